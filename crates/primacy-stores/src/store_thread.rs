//! [`StoreThread`]: a handle's connection to the thread of a store whose requests block.

use std::sync::{Arc, OnceLock, mpsc};

use tokio::sync::{oneshot, watch};

use crate::open_error::OpenError;
use crate::watch::Watcher;

/// The error of a request whose thread has stopped.
pub(crate) const THREAD_STOPPED: &str = "the store's thread has stopped";

/// The sender of the answer to a request.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// A thread that takes requests `R` for a store at a place `P`, and knows the newest version `V` of the record.
#[derive(Debug)]
pub(crate) struct StoreThread<R, P, V> {
    requests: mpsc::Sender<R>,
    place: Arc<P>,
    /// The newest version that the thread has read or written.
    latest: watch::Receiver<V>,
    /// Started by the first wait for a change.
    watcher: OnceLock<Option<Watcher>>,
}

impl<R, P, V> StoreThread<R, P, V>
where
    R: Send + 'static,
    P: Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Starts the thread: `open` opens the store, and `serve` answers its requests until no sender is left.
    pub(crate) async fn start<S: 'static>(
        name: &'static str,
        open: impl FnOnce() -> Result<(S, Arc<P>, watch::Receiver<V>), OpenError> + Send + 'static,
        serve: fn(S, &mpsc::Receiver<R>),
    ) -> Result<Self, OpenError> {
        let (requests, received) = mpsc::channel();
        let (opened, outcome) = oneshot::channel();
        let run = move || match open() {
            Err(error) => drop(opened.send(Err(error))),
            Ok((store, place, latest)) => {
                // A caller that has gone needs neither the answer nor the thread.
                if opened.send(Ok((place, latest))).is_ok() {
                    serve(store, &received);
                }
            }
        };
        let unavailable = |why: String| OpenError::Unavailable { why };
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        started.map_err(|error| unavailable(format!("no thread could be started for the store: {error}")))?;
        let (place, latest) = outcome.await.map_err(|_| unavailable(THREAD_STOPPED.to_owned()))??;
        Ok(Self { requests, place, latest, watcher: OnceLock::new() })
    }

    pub(crate) fn latest(&self) -> V {
        self.latest.borrow().clone()
    }

    /// Sends a request to the thread, and waits for the answer; `None` if the thread has stopped.
    pub(crate) async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> R) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).ok()?;
        answer.await.ok()
    }

    /// Resolves when the thread finds a version for which `is_news` is true; never if the watcher, which `watch` starts, cannot be started.
    pub(crate) async fn changed(
        &self,
        watch: impl FnOnce(Arc<P>, mpsc::Sender<R>) -> Option<Watcher>,
        is_news: impl FnMut(&V) -> bool,
    ) {
        let watcher = self.watcher.get_or_init(|| watch(Arc::clone(&self.place), self.requests.clone()));
        let moved = self.latest.clone().wait_for(is_news).await.is_ok();
        if !moved || watcher.is_none() {
            // No change can be noticed here; the caller's periodic reads find it.
            std::future::pending::<()>().await;
        }
    }
}
