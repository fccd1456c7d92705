//! The time that the hook `--on-elected` may take.
//!
//! While the hook runs, its node leads, the command is not started, and no other node can start it. So a hook that
//! hangs is reported after one lease, and again each time that its running time has doubled. The lead is given up when
//! the hook has not ended within 90 s (as long as systemd lets a unit start), or within ten leases if these are longer.

use primacy::core::{Duration, Instant};

/// The longest time that the hook may run, unless ten leases are longer.
const TIME_MAX: Duration = Duration::from_secs(90);
const LEASES_MAX: u64 = 10;

/// A running hook, and the times of its reports.
#[derive(Debug)]
pub(crate) struct SlowHook {
    began: Instant,
    time_max: Duration,
    /// The running time at which the hook is reported next.
    told_after: Duration,
}

/// The state of a hook that has not ended by its due time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The hook may go on; the text is a warning.
    Slow(String),
    /// The hook's time is over; the text is the reason.
    TooLate(String),
}

impl SlowHook {
    /// Creates the state for a hook that begins now, on a node with this lease.
    pub(crate) fn begins(now: Instant, lease: Duration) -> Self {
        Self { began: now, time_max: time_max(lease), told_after: lease }
    }

    /// Returns the time of the next report, if the hook has not ended before.
    pub(crate) fn due(&self) -> Instant {
        self.began.after(self.told_after.min(self.time_max))
    }

    /// Returns the warning that is due, if any.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Late> {
        if now < self.due() {
            return None;
        }
        let (ran, time_max) = (now.since(self.began), self.time_max);
        if ran >= time_max {
            return Some(Late::TooLate(format!("the hook --on-elected has not ended within {time_max}")));
        }
        while self.told_after <= ran {
            self.told_after = self.told_after.times(2);
        }
        let ran = match ran.as_millis() / 1_000 {
            0 => ran.to_string(),
            seconds => format!("{seconds}s"),
        };
        Some(Late::Slow(format!(
            "its hook --on-elected has run for {ran}, and until it ends the command is not started; after {time_max} the lead is \
             given up"
        )))
    }
}

fn time_max(lease: Duration) -> Duration {
    // Tests do not wait so long; a release build ignores this variable.
    let of_test = std::env::var("PRIMACY_TEST_HOOK_MS").ok().filter(|_| cfg!(debug_assertions));
    of_test
        .and_then(|text| text.parse().ok())
        .map_or(TIME_MAX.max(lease.times(LEASES_MAX)), Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times at which a hook that does not end is reported, each with whether its time is over.
    fn told(lease: Duration) -> Vec<(u64, bool)> {
        let began = Instant::from_nanos(7);
        let mut hook = SlowHook::begins(began, lease);
        let mut told = Vec::new();
        loop {
            let due = hook.due();
            assert_eq!(hook.look(due.before(Duration::from_millis(1))), None);
            let late = hook.look(due).unwrap();
            told.push((due.since(began).as_millis(), matches!(late, Late::TooLate(_))));
            if matches!(late, Late::TooLate(_)) {
                return told;
            }
        }
    }

    #[test]
    fn a_hook_that_hangs_is_told_less_and_less_often_until_its_time_is_over() {
        let short = [(8, false), (16, false), (32, false), (64, false), (90, true)];
        assert_eq!(told(Duration::from_secs(8)), short.map(|(seconds, over)| (seconds * 1_000, over)));
        let long = [(60, false), (120, false), (240, false), (480, false), (600, true)];
        assert_eq!(told(Duration::from_secs(60)), long.map(|(seconds, over)| (seconds * 1_000, over)));
    }

    #[test]
    fn one_that_was_looked_at_late_is_told_once() {
        let began = Instant::from_nanos(7);
        let mut hook = SlowHook::begins(began, Duration::from_secs(1));
        let late = hook.look(began.after(Duration::from_millis(9_300)));
        assert!(matches!(late, Some(Late::Slow(text)) if text.contains("has run for 9s,")));
        assert_eq!(hook.due(), began.after(Duration::from_secs(16)));
    }
}
