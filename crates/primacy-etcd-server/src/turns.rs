//! Turns for operations that take long to apply.
//!
//! Every node applies operations on the thread that also renews the lead, and an operation over a range of keys or with many changes takes
//! long. So the entries of such operations that are not applied yet are limited, for a connection and for the node. The next operation
//! waits in the etcd API, where it is dropped if its client disconnects. Waiting connections get their turns one after the other, and
//! other writes wait for none.

use std::sync::Arc;

use primacy_kv::command::{Compared, Keys, Operation, SortKey};
use primacy_kv::state::Size;
use primacy_kv::state::cost::{CHANGE_LOOKS, COMPARED_BYTES, LOOKS_MAX};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most entries of unapplied operations, of one connection and of all.
const CONNECTION_LOOKS_MAX: u32 = 100_000;
const NODE_LOOKS_MAX: u32 = 4 * CONNECTION_LOOKS_MAX;

/// The most changes of an operation that needs no turn: locks, elections and compare-and-set make no more, and must not wait behind long
/// operations.
const CHANGES_FREE: u64 = 16;

const _: () =
    assert!(CONNECTION_LOOKS_MAX as u64 == LOOKS_MAX, "a connection may do one operation of any cost");

/// The turns of one connection.
#[derive(Debug)]
pub(super) struct Turns {
    connection: Arc<Semaphore>,
    node: Arc<Semaphore>,
}

/// The turn of an operation; dropped when the operation is applied.
#[derive(Debug)]
pub(super) struct Turn {
    _permits: [OwnedSemaphorePermit; 2],
}

/// The turns that all connections of a node share.
pub(super) fn of_node() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(NODE_LOOKS_MAX as usize))
}

impl Turns {
    pub(super) fn new(node: &Arc<Semaphore>) -> Self {
        Self { connection: Arc::new(Semaphore::new(CONNECTION_LOOKS_MAX as usize)), node: Arc::clone(node) }
    }

    /// Waits for the turn of an operation in a map of this size; `None` if it needs no turn.
    pub(super) async fn wait(&self, operation: &Operation, size: Size) -> Option<Turn> {
        let changes = changes(operation).saturating_sub(CHANGES_FREE).saturating_mul(CHANGE_LOOKS);
        let looks = u32::try_from(looks(operation, size).saturating_add(changes))
            .unwrap_or(u32::MAX)
            .min(CONNECTION_LOOKS_MAX);
        if looks == 0 {
            return None;
        }
        // One after the other: a connection has at most one operation in the node's queue.
        let connection = Arc::clone(&self.connection).acquire_many_owned(looks).await.ok()?;
        let node = Arc::clone(&self.node).acquire_many_owned(looks).await.ok()?;
        Some(Turn { _permits: [connection, node] })
    }
}

/// The entries that comparisons, reads and deletions of ranges may look at, in both branches: all entries of the map, and as many more
/// as comparing or sorting their values costs.
fn looks(operation: &Operation, size: Size) -> u64 {
    let of_range = |keys: &Keys, values: u64| match keys {
        Keys::One(_) => 0,
        Keys::Between(..) | Keys::From(_) => {
            size.entries.saturating_add(size.history_changes).saturating_add(values)
        }
    };
    let compared = size.bytes / COMPARED_BYTES;
    match operation {
        Operation::Read(read) if read.order.key == SortKey::Value => {
            let times = u64::from(size.entries.checked_ilog2().unwrap_or(0)) + 1;
            of_range(&read.keys, compared.saturating_mul(times))
        }
        Operation::Read(read) => of_range(&read.keys, 0),
        Operation::Delete(delete) => of_range(&delete.keys, 0),
        Operation::Write(_) => 0,
        Operation::Transaction(transaction) => {
            let comparisons = transaction.comparisons.iter().map(|it| {
                of_range(&it.keys, if matches!(it.compared, Compared::Value(_)) { compared } else { 0 })
            });
            let done = transaction.then.iter().chain(&transaction.otherwise);
            comparisons.chain(done.map(|one| looks(one, size))).fold(0, u64::saturating_add)
        }
    }
}

/// The number of writes and deletions in an operation, in both branches.
fn changes(operation: &Operation) -> u64 {
    match operation {
        Operation::Write(_) | Operation::Delete(_) => 1,
        Operation::Read(_) => 0,
        Operation::Transaction(transaction) => {
            transaction.then.iter().chain(&transaction.otherwise).map(changes).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use primacy_kv::command::{Order, Previous, Read, Replace, Transaction, Write};

    use super::*;

    fn size(entries: u64) -> Size {
        Size { entries, bytes: 0, history_changes: 0, history_bytes: 0 }
    }

    fn reads(count: usize, keys: &Keys) -> Operation {
        let then = vec![Operation::Read(Box::new(Read::of(keys.clone()))); count];
        Operation::Transaction(Transaction { then, ..Transaction::default() })
    }

    /// Returns whether it gets its turn without waiting.
    async fn at_once(turns: &Turns, operation: &Operation, size: Size) -> Option<Option<Turn>> {
        let mut waiting = std::pin::pin!(turns.wait(operation, size));
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match waiting.as_mut().poll(context) {
                std::task::Poll::Ready(turn) => Some(turn),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn costly_operations_wait_for_their_turns_and_others_do_not() {
        let node = of_node();
        let turns = || Turns::new(&node);
        let (large, all) = (size(LOOKS_MAX), Keys::all());
        let attacker = turns();
        let first = at_once(&attacker, &reads(11, &all), large).await.expect("nobody is before it");
        assert!(first.is_some());
        assert!(at_once(&attacker, &reads(1, &all), large).await.is_none(), "a second one waits");
        let single = reads(20, &Keys::One(b"k".to_vec().into()));
        assert!(matches!(at_once(&attacker, &single, large).await, Some(None)), "a single key needs no turn");
        // Other connections get their turns, until the node's limit is reached.
        let others: Vec<Turns> = (0..4).map(|_| turns()).collect();
        let mut held = Vec::new();
        for (index, other) in others.iter().enumerate() {
            let turn = at_once(other, &reads(1, &all), large).await;
            assert_eq!(turn.is_some(), index < 3, "{index}");
            held.push(turn);
        }
        drop(first);
        assert!(at_once(&others[3], &reads(1, &all), large).await.is_some());
        drop(held);
        // Long values that must be sorted count by their length.
        let long = Size { bytes: COMPARED_BYTES * LOOKS_MAX, ..size(10) };
        let order = Order { key: SortKey::Value, ..Order::default() };
        let sorts = Operation::Read(Box::new(Read { order, ..Read::of(Keys::all()) }));
        let sorted = at_once(&attacker, &sorts, long).await.expect("nobody is before it");
        assert!(
            at_once(&attacker, &reads(1, &all), size(1)).await.is_none(),
            "it takes all of the connection"
        );
        drop(sorted);
        // Many changes take long, whatever the size of the map.
        let put = || {
            let (key, value) = (b"k".to_vec().into(), Replace::With(b"v".to_vec().into()));
            let session = Replace::With(None);
            Operation::Write(Write { key, value, session, previous: Previous::Unwanted })
        };
        let puts = |count| {
            let then = (0..count).map(|_| put()).collect();
            Operation::Transaction(Transaction { then, ..Transaction::default() })
        };
        let mut written = Vec::new();
        while let Some(turn) = at_once(&attacker, &puts(768), size(1)).await {
            assert!(turn.is_some() && written.len() < 9, "no more than a connection may change");
            written.push(turn);
        }
        assert_eq!(written.len(), 8);
        for few in [put(), puts(16)] {
            assert!(
                matches!(at_once(&attacker, &few, size(1)).await, Some(None)),
                "a few writes need no turn"
            );
        }
        drop(written);
        // In a small map a connection may have many at a time.
        let mut many = Vec::new();
        for _ in 0..20 {
            many.push(at_once(&attacker, &reads(1, &all), size(100)).await.expect("there is room"));
        }
    }
}
