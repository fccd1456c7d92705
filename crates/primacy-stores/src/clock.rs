//! The clock that measures sessions: it continues while the machine is suspended, as the servers' clocks do. On Linux the standard
//! library's `Instant` stops then, and a session that has expired on the servers would seem to be valid.

use primacy_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// The boot clock, which continues during a suspend.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;

/// The monotonic clock on other systems; on Apple's, it also continues during a suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The time now.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(CLOCK);
    // It counts from the boot, so neither is negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let part = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn it_counts_what_the_machine_was_suspended_for() {
        // As the kernel does, in whole seconds, rounded up.
        let uptime = || {
            let seconds = u64::try_from(rustix::system::sysinfo().uptime).unwrap();
            Instant::from_nanos(seconds * NANOS_PER_SECOND)
        };
        let second = primacy_core::Duration::from_secs(1);
        let (before, now, after) = (uptime(), now(), uptime());
        assert!(before.before(second) <= now && now <= after, "{before:?} {now:?} {after:?}");
    }
}
