//! Reads of a map, and the turns of those that take long.
//!
//! A read that looks at few entries is done at once. A longer one waits for its turn, of its connection and then of the node, and is done
//! by a thread of its own, which then rests for as long: the threads that serve all clients are never busy with one of them, and so
//! many small requests that each look at all of the map cost others at most a share of the machine.

use std::sync::Arc;

use primacy_core::metadata::command::{Answer, Operation, Refusal, Version};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::backend::Freshness;
use super::errors::Known;
use super::hub::Hub;
use super::kv;

/// Entries that a read may look at without waiting for a turn.
const SHORT_LOOKS_MAX: u64 = 1_000;

/// The turns of long reads: one at a time for a connection, and one for every two processors of the node.
#[derive(Clone, Debug)]
pub(super) struct LongReads {
    connection: Arc<Semaphore>,
    node: Arc<Semaphore>,
}

impl LongReads {
    /// The turns of a connection of a node that has these.
    pub(super) fn new(node: &Arc<Semaphore>) -> Self {
        Self { connection: Arc::new(Semaphore::new(1)), node: Arc::clone(node) }
    }

    /// The turns that all connections share.
    pub(super) fn of_node() -> Arc<Semaphore> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Arc::new(Semaphore::new((processors / 2).max(1)))
    }
}

/// Does an operation that only reads: the answer, and the version of the map.
///
/// # Errors
/// Why it could not be read.
pub(super) async fn observe(
    hub: &Arc<Hub>,
    turns: &LongReads,
    operation: Operation,
    freshness: Freshness,
) -> Result<(Version, Answer), Known> {
    if freshness == Freshness::Newest {
        hub.backend.catch_up().await?;
    }
    let outcome = hub.backend.look(&operation, SHORT_LOOKS_MAX);
    if outcome.result != Err(Refusal::TooManyEntries) {
        return kv::answered(outcome);
    }
    let connection = Arc::clone(&turns.connection).acquire_owned().await.map_err(|_| Known::STOPPED)?;
    let node = Arc::clone(&turns.node).acquire_owned().await.map_err(|_| Known::STOPPED)?;
    let hub = Arc::clone(hub);
    let began = Instant::now();
    let looked = tokio::task::spawn_blocking(move || hub.backend.look(&operation, u64::MAX)).await;
    tokio::spawn(async move {
        tokio::time::sleep(began.elapsed()).await;
        drop((connection, node));
    });
    kv::answered(looked.map_err(|_| Known::STOPPED)?)
}
