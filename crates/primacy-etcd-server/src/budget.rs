//! Budgets for the memory that a connection and a node may use for clients, and charges against them.
//!
//! All memory that a client makes the node hold is charged before it is allocated, and the charge is returned when it is freed: a
//! stream, the message of a request, a watcher with its keys, changes that wait for a watcher, an answer that was not read yet. A
//! charge that does not fit is refused, and so is its request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit of bytes, and the bytes that are charged.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    taken: AtomicUsize,
    /// True if a single charge may exceed the limit while nothing else is charged.
    one_may_exceed: bool,
}

impl Budget {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0), one_may_exceed: false }
    }

    /// A budget that a single charge may exceed while it is the only one: one answer may be longer than the limit of
    /// its connection.
    pub(super) const fn of_answers(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0), one_may_exceed: true }
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| {
            let sum = taken.saturating_add(bytes);
            (sum <= self.most || (self.one_may_exceed && taken == 0)).then_some(sum)
        };
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the charged bytes.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The memory that the HTTP/2 library keeps for the streams of all connections. Until a connection ends, the library keeps the memory
/// of its greatest number of simultaneous streams, so a connection is charged for its peak.
#[derive(Debug)]
pub(super) struct StreamBudget(Budget);

/// The bytes that a stream keeps at its peak, with its task, its head and its answer.
const STREAM_PEAK_BYTES: usize = 8 << 10;

/// The simultaneous streams that a connection may have even if the budget is used up. So all connections together exceed the budget by
/// at most this number of streams each.
const STREAMS_MIN: usize = 4;

impl StreamBudget {
    pub(super) const fn new(most: usize) -> Self {
        Self(Budget::new(most))
    }

    /// Charges one more stream to a connection whose peak is `peak`. If the budget is used up, only a connection with few streams may
    /// have one more, so that connections with many streams keep no client out.
    fn take(&self, peak: usize) -> bool {
        if self.0.take(STREAM_PEAK_BYTES) {
            return true;
        }
        let is_small = peak < STREAMS_MIN;
        if is_small {
            self.0.taken.fetch_add(STREAM_PEAK_BYTES, Ordering::Relaxed);
        }
        is_small
    }

    /// Returns the charged bytes.
    pub(super) fn taken(&self) -> usize {
        self.0.taken()
    }
}

/// The streams of one connection that are charged to one budget.
#[derive(Debug)]
pub(super) struct Streams {
    budget: Arc<StreamBudget>,
    open: AtomicUsize,
    peak: AtomicUsize,
}

impl Streams {
    pub(super) fn new(budget: &Arc<StreamBudget>) -> Self {
        Self { budget: Arc::clone(budget), open: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// Counts a new stream; `false` if it does not fit.
    #[must_use]
    pub(super) fn open(&self) -> bool {
        let (open, peak) = (self.open.fetch_add(1, Ordering::Relaxed), self.peak.load(Ordering::Relaxed));
        if open < peak {
            return true;
        }
        let fits = self.budget.take(peak);
        if fits {
            self.peak.fetch_add(1, Ordering::Relaxed);
        } else {
            self.close();
        }
        fits
    }

    /// Counts the end of a stream.
    pub(super) fn close(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the charge: the streams are charged to another budget from now on.
    pub(super) fn release(&self) {
        self.budget.0.give_back(self.peak.swap(0, Ordering::Relaxed) * STREAM_PEAK_BYTES);
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.release();
    }
}

/// The two budgets of a charge: the connection's and the node's.
#[derive(Clone, Debug)]
pub(super) struct Purse([Arc<Budget>; 2]);

impl Purse {
    pub(super) fn new(of_connection: Budget, of_node: &Arc<Budget>) -> Self {
        Self([Arc::new(of_connection), Arc::clone(of_node)])
    }

    /// A charge of zero bytes, to be [grown](Charge::grow).
    pub(super) fn nothing(&self) -> Charge {
        Charge { purse: self.clone(), bytes: AtomicUsize::new(0) }
    }

    /// Charges `bytes`, if they fit.
    pub(super) fn charge(&self, bytes: usize) -> Option<Charge> {
        let charge = self.nothing();
        charge.grow(bytes).then_some(charge)
    }
}

/// A charge of bytes, which is returned when this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    purse: Purse,
    bytes: AtomicUsize,
}

impl Charge {
    /// Charges more bytes; if they do not fit, returns `false` and charges nothing.
    #[must_use]
    pub(super) fn grow(&self, bytes: usize) -> bool {
        let Purse([connection, node]) = &self.purse;
        if !connection.take(bytes) {
            return false;
        }
        if !node.take(bytes) {
            connection.give_back(bytes);
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Makes another charge against the same budgets, if it fits.
    pub(super) fn another(&self, bytes: usize) -> Option<Self> {
        self.purse.charge(bytes)
    }

    /// Returns a part of the charge.
    pub(super) fn shrink(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.purse.0.iter().for_each(|budget| budget.give_back(bytes));
    }

    /// Returns the whole charge.
    pub(super) fn clear(&self) {
        self.shrink(self.bytes.load(Ordering::Relaxed));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_counts_against_both_budgets_until_it_is_dropped() {
        let node = Arc::new(Budget::new(100));
        let [first, second] = [(); 2].map(|()| Purse::new(Budget::new(60), &node));
        let held = first.charge(60).unwrap();
        assert!(first.charge(1).is_none(), "the connection's is spent");
        assert!(
            second.charge(41).is_none(),
            "the node's is spent, and nothing of the connection's was taken"
        );
        let other = second.charge(40).unwrap();
        assert!(!other.grow(1));
        held.shrink(20);
        assert!(other.grow(20));
        drop((held, other));
        assert_eq!(node.taken(), 0);
    }

    #[test]
    fn streams_are_charged_at_their_peak_and_few_of_them_beyond_the_budget() {
        let budget = Arc::new(StreamBudget::new(20 * STREAM_PEAK_BYTES));
        let [large, small] = [(); 2].map(|()| Streams::new(&budget));
        for _ in 0..20 {
            assert!(large.open());
        }
        large.close();
        assert_eq!(budget.taken(), 20 * STREAM_PEAK_BYTES, "the library keeps what the peak needed");
        assert!(large.open() && !large.open(), "the budget is spent");
        for _ in 0..STREAMS_MIN {
            assert!(small.open());
        }
        assert!(!small.open());
        drop(large);
        assert!(small.open());
        small.release();
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_single_answer_may_exceed_the_budget_of_answers() {
        let node = Arc::new(Budget::of_answers(100));
        let purse = Purse::new(Budget::of_answers(10), &node);
        let large = purse.charge(1000).unwrap();
        assert!(purse.charge(1).is_none());
        drop(large);
        assert!(purse.charge(1).is_some());
    }
}
