//! Failure detectors: a guess, from silence, that a node is gone.
//!
//! A detector can always be wrong, so no election rests its safety on one. The detector decides when to campaign;
//! votes, promises and records decide whether there may be another leader.

mod phi_accrual;

pub use self::phi_accrual::PhiAccrual;
use crate::time::{Duration, Instant};

/// A way of judging silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Detection {
    /// By the number of consecutive heartbeats that did not come.
    Missed {
        /// The number.
        count: u32,
    },
    /// By a fixed timeout, independent of the heartbeat interval: Hazelcast's default.
    Deadline {
        /// The timeout.
        timeout: Duration,
    },
    /// By how unlikely the silence is, given the intervals observed so far: Akka's detector.
    PhiAccrual {
        /// The threshold of phi, in tenths: at 80, a live node is expected to be silent that long once in 10⁸
        /// intervals.
        threshold_tenths: u32,
        /// The pause of the node that is tolerated beyond the interval.
        acceptable_pause: Duration,
        /// The lower bound on the assumed standard deviation of the intervals.
        deviation_min: Duration,
    },
}

/// A detector of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Detector {
    /// Made by [`Detection::Missed`] and [`Detection::Deadline`], which differ only in their configuration.
    Timeout(MissedHeartbeats),
    /// See [`Detection::PhiAccrual`].
    PhiAccrual(PhiAccrual),
}

impl Detection {
    /// Makes a detector of a node that is expected every `interval`, and counts as heard `at` this time.
    #[must_use]
    pub fn begin(self, interval: Duration, at: Instant) -> Detector {
        match self {
            Self::Missed { count } => Detector::Timeout(MissedHeartbeats::new(interval, count, at)),
            Self::Deadline { timeout } => Detector::Timeout(MissedHeartbeats::new(timeout, 1, at)),
            Self::PhiAccrual { threshold_tenths, acceptable_pause, deviation_min } => {
                let first = PhiAccrual::new(interval, threshold_tenths, acceptable_pause, deviation_min, at);
                Detector::PhiAccrual(first)
            }
        }
    }

    /// The silence after which a node that was heard once, and is expected every `interval`, is suspected.
    #[must_use]
    pub fn patience(self, interval: Duration) -> Duration {
        self.begin(interval, Instant::default()).deadline().since(Instant::default())
    }
}

impl Detector {
    /// Takes a heartbeat.
    pub fn heard(&mut self, now: Instant) {
        match self {
            Self::Timeout(detector) => detector.heard(now),
            Self::PhiAccrual(detector) => detector.heard(now),
        }
    }

    /// The time at which the node will be suspected if no heartbeat comes until then.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        match self {
            Self::Timeout(detector) => detector.deadline(),
            Self::PhiAccrual(detector) => detector.deadline(),
        }
    }

    /// True if the node is suspected.
    #[must_use]
    pub fn suspects(&self, now: Instant) -> bool {
        now >= self.deadline()
    }

    pub(crate) fn heard_at_mut(&mut self) -> &mut Instant {
        match self {
            Self::Timeout(detector) => detector.heard_at_mut(),
            Self::PhiAccrual(detector) => detector.heard_at_mut(),
        }
    }
}

/// A detector that suspects a node after a number of consecutive missed heartbeats.
///
/// Intuition: the node is expected every `interval`; it is suspected after `miss_count` intervals of silence. The
/// BlazingMQ article uses three of them (its code ten).
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

    /// Takes a heartbeat.
    pub fn heard(&mut self, now: Instant) {
        self.heard_at = self.heard_at.max(now);
    }

    pub(crate) fn heard_at_mut(&mut self) -> &mut Instant {
        &mut self.heard_at
    }

    /// The time at which the node will be suspected if no heartbeat comes until then.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.heard_at.after(self.patience)
    }

    /// True if the node is suspected.
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

    #[test]
    fn a_deadline_does_not_depend_on_the_interval() {
        let timeout = Duration::from_secs(2);
        let detection = Detection::Deadline { timeout };
        assert_eq!(detection.patience(Duration::from_millis(100)), timeout);
        assert_eq!(
            Detection::Missed { count: 4 }.patience(Duration::from_millis(250)),
            Duration::from_secs(1)
        );
    }
}
