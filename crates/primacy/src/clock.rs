//! The clock of leases.
//!
//! It counts while the machine is suspended: a laptop that sleeps through its lease must find, on waking, that the
//! lease is over. The standard library's `Instant` stops during a suspend on Linux, so it cannot be used. The clock is
//! read through libc (and there through the vDSO, without a system call), so that tests can fake it. Processes of one
//! machine can compare their instants, because the origin is its boot.

use primacy_core::Instant;
use rustix::time::ClockId;

/// The boot clock, which goes on during a suspend.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;

/// On other systems the monotonic clock; on Apple's it, too, goes on during a suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// The time now on the clock of leases. Costs tens of nanoseconds.
#[must_use]
pub fn now() -> Instant {
    Instant::from_nanos(nanos(CLOCK))
}

/// Milliseconds since 1970 by the wall clock, which can be set forwards and back.
///
/// No duration is ever measured with it. It serves as the first token of an election whose store has lost or never had
/// its record, so that the new tokens are above the old ones.
#[must_use]
pub fn wall_millis() -> u64 {
    nanos(ClockId::Realtime) / NANOS_PER_MILLI
}

fn nanos(clock: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    // A time before the clock's origin (a wall clock before 1970) counts as the origin.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let part = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let mut before = now();
        for _ in 0..10_000 {
            let after = now();
            assert!(after >= before);
            before = after;
        }
    }

    #[test]
    fn setting_the_wall_clock_moves_no_lease() {
        // A clock that counts from the boot of this machine is decades behind one that counts from 1970, however the
        // wall clock is set.
        let wall = wall_millis() / 2;
        assert!(now() < Instant::from_nanos(wall * NANOS_PER_MILLI), "{:?}", now());
    }

    #[test]
    fn the_wall_clock_is_in_this_century() {
        // 2020 and 2100, in milliseconds.
        assert!((1_577_836_800_000..4_102_444_800_000).contains(&wall_millis()));
    }
}
