//! Failure detectors: a guess, from silence, that a node is gone.
//!
//! A detector is never right for certain, which is why no election here rests its safety on one. It decides
//! when to ask for another leader; votes, promises and records decide whether there may be one.

use crate::time::{Duration, Instant};

/// Suspects a node after a number of heartbeats in a row did not come.
///
/// Intuition: the node is heard every `interval`; `miss_count` intervals of silence, and it is suspected.
/// The BlazingMQ article uses three of them (its code ten).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MissedHeartbeats {
    patience: Duration,
    heard_at: Instant,
}

impl MissedHeartbeats {
    /// A detector that takes the node to have been heard `now`.
    #[must_use]
    pub fn new(interval: Duration, miss_count: u32, now: Instant) -> Self {
        Self { patience: interval.times(u64::from(miss_count)), heard_at: now }
    }

    /// A heartbeat came.
    pub fn heard(&mut self, now: Instant) {
        self.heard_at = self.heard_at.max(now);
    }

    pub(crate) fn heard_at_mut(&mut self) -> &mut Instant {
        &mut self.heard_at
    }

    /// When the node will be suspected if nothing comes until then.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.heard_at.after(self.patience)
    }

    /// Whether the node is suspected.
    #[must_use]
    pub fn suspects(&self, now: Instant) -> bool {
        now >= self.deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_misses_are_suspicious_and_two_are_not() {
        let at = |millis| Instant::default().after(Duration::from_millis(millis));
        let mut detector = MissedHeartbeats::new(Duration::from_millis(100), 3, at(0));
        assert!(!detector.suspects(at(299)));
        assert!(detector.suspects(at(300)));
        detector.heard(at(250));
        assert!(!detector.suspects(at(549)));
        assert_eq!(detector.deadline(), at(550));
        detector.heard(at(100)); // A clock that is read out of order takes nothing back.
        assert_eq!(detector.deadline(), at(550));
    }
}
