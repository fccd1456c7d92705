//! The runs of a stop command: again and again, with growing pauses, until one has succeeded.
//!
//! Exit code 0 is the only sign that the work of other processes for the job has ended. So after a failure of the
//! command (of the daemon that it calls, or of the fork) the lead is kept and the command is run again.

use primacy::core::Duration;

/// The pause after the first failure; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The runs of the stop command of one leadership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StopAttempts {
    is_owed: bool,
    failures: u32,
    is_given_up: bool,
}

impl StopAttempts {
    /// Records that the job is gone, and that the work of other processes for it may go on.
    pub(super) fn begin(&mut self) {
        self.is_owed = true;
    }

    pub(super) fn succeed(&mut self) {
        self.is_owed = false;
    }

    /// Records a failed run. Returns the number of failures, and the pause before the next run.
    pub(super) fn fail(&mut self) -> (u32, Duration) {
        let pause = PAUSE_MIN.times(1_u64 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        (self.failures, pause)
    }

    /// Records that the operator does not wait for a success.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// Returns whether the work that the command is to end may go on.
    pub(super) fn is_owed(&self) -> bool {
        self.is_owed
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_only_a_success_ends_what_is_owed() {
        let mut stop = StopAttempts::default();
        assert!(!stop.is_owed());
        stop.begin();
        let pauses: Vec<u64> = (0..7).map(|_| stop.fail().1.as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(stop.fail().0, 8);
        assert!(stop.is_owed());
        stop.succeed();
        assert!(!stop.is_owed());
    }
}
