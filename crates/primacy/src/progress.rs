//! Progress reports of a leader's work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use primacy_core::Instant;

use crate::clock;

/// A promise that the work makes progress: while this value exists, [`made`](Self::made) must be called again within the
/// interval. Otherwise the lead is given up in order with [`Reason::Unhealthy`](crate::Reason::Unhealthy), because a leader
/// that is alive and does nothing is worse than none. Made by [`Leadership::progress`](crate::Leadership::progress).
///
/// The election's own thread watches the deadline, so it works even if the work blocks its runtime. Dropping this value
/// ends the promise.
#[derive(Debug)]
pub struct Progress {
    due: Arc<Due>,
    interval: Duration,
}

impl Progress {
    pub(crate) fn new(interval: Duration, now: Instant) -> Self {
        let due = Arc::new(Due(AtomicU64::new(now.after(interval.into()).as_nanos())));
        Self { due, interval }
    }

    pub(crate) fn due(&self) -> Weak<Due> {
        Arc::downgrade(&self.due)
    }

    /// Reports that the work has made progress. It takes no lock and wakes no task: it may be called in a hot loop.
    pub fn made(&self) {
        self.made_at(clock::now());
    }

    fn made_at(&self, now: Instant) {
        self.due.0.store(now.after(self.interval.into()).as_nanos(), Ordering::Relaxed);
    }
}

/// The time by which the next report must come, in nanoseconds of the boot clock.
#[derive(Debug)]
pub(crate) struct Due(AtomicU64);

/// The promises of progress in a leadership.
#[derive(Debug, Default)]
pub(crate) struct Promises(Vec<Weak<Due>>);

impl Promises {
    pub(crate) fn add(&mut self, due: Weak<Due>) {
        self.0.push(due);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The earliest time by which a report must come.
    pub(crate) fn next_due(&mut self) -> Option<Instant> {
        self.0.retain(|due| due.strong_count() > 0);
        let due = self.0.iter().filter_map(Weak::upgrade);
        due.map(|due| Instant::from_nanos(due.0.load(Ordering::Relaxed))).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_promise_that_is_broken_counts_and_one_that_is_dropped_does_not() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut promises = Promises::default();
        assert_eq!(promises.next_due(), None);
        let slow = Progress::new(Duration::from_secs(10), at(0));
        let quick = Progress::new(Duration::from_secs(2), at(0));
        promises.add(slow.due());
        promises.add(quick.due());
        assert_eq!(promises.next_due(), Some(at(2)));
        quick.made_at(at(1));
        assert_eq!(promises.next_due(), Some(at(3)));
        drop(quick);
        assert_eq!(promises.next_due(), Some(at(10)));
        slow.made_at(at(9));
        assert_eq!(promises.next_due(), Some(at(19)));
        drop(slow);
        assert_eq!(promises.next_due(), None);
    }
}
