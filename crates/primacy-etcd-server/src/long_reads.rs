//! Turns for long reads of the map.
//!
//! A read of few entries is done at once. A longer one waits for its turn, first of its connection and then of the node, and runs on a
//! thread of its own, which then rests for as long. So the threads that serve all clients never run one, and even many small requests
//! that each read the whole map take at most a share of the machine.

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// The turns for long reads: one at a time per connection, and one for every two processors of the node.
#[derive(Clone, Debug)]
pub(super) struct LongReads {
    connection: Arc<Semaphore>,
    node: Arc<Semaphore>,
}

impl LongReads {
    /// The turns of a connection of this node.
    pub(super) fn new(node: &Arc<Semaphore>) -> Self {
        Self { connection: Arc::new(Semaphore::new(1)), node: Arc::clone(node) }
    }

    /// The turns that all connections of a node share.
    pub(super) fn of_node() -> Arc<Semaphore> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Arc::new(Semaphore::new((processors / 2).max(1)))
    }

    /// Waits for a turn, and reads on a thread of its own; `None` if the runtime ends. If the future is dropped after the read has begun,
    /// the read continues, and keeps its turn until it has ended and rested: otherwise a client could disconnect and begin another one.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let connection = Arc::clone(&self.connection).acquire_owned().await.ok()?;
        let node = Arc::clone(&self.node).acquire_owned().await.ok()?;
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let began = Instant::now();
            let looked = tokio::task::spawn_blocking(look).await;
            drop(looked.map(|looked| tell.send(looked)));
            tokio::time::sleep(began.elapsed()).await;
            drop((connection, node));
        });
        told.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_read_whose_client_has_gone_keeps_its_turn_until_it_ends() {
        let node = Arc::new(Semaphore::new(1));
        let turns = LongReads::new(&node);
        let (begin, begun) = oneshot::channel();
        let (end, ended) = mpsc::channel::<()>();
        let reading = tokio::spawn(async move {
            let look = move || {
                begin.send(()).unwrap();
                ended.recv().unwrap();
            };
            turns.run(look).await
        });
        begun.await.unwrap();
        reading.abort();
        assert!(reading.await.unwrap_err().is_cancelled());
        assert_eq!(node.available_permits(), 0, "it still looks");
        end.send(()).unwrap();
        drop(node.acquire().await.unwrap());
    }
}
