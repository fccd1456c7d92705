//! True time, and the clocks that nodes read instead of it.

use core::fmt;

use primacy_core::{Duration, Instant};

const PPM: u64 = 1_000_000;

/// A moment of the world's own time, in nanoseconds since it began. No machine ever sees one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// From nanoseconds since the world began.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the world began.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment that is `duration` later.
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_nanos()))
    }

    /// The time since `earlier`; zero if it is not in the past.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Moment {
    /// Seconds with three decimals, rounded down: `1.250s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            return f.pad("never");
        }
        let millis = self.0 / 1_000_000;
        f.pad(&format!("{}.{:03}s", millis / 1_000, millis % 1_000))
    }
}

/// A clock that may run fast or slow, stand still, or jump.
///
/// Its reading is linear from the last change on: cheap to compute, and exactly invertible. So the world can compute
/// when a node's deadline is due and when its leadership expires.
#[derive(Clone, Debug)]
pub struct Clock {
    changed_at: Moment,
    reading: u64,
    rate: u64,
}

impl Clock {
    /// A clock that shows `reading` when the world begins, and runs at the true rate.
    #[must_use]
    pub const fn new(reading: Instant) -> Self {
        Self { changed_at: Moment(0), reading: reading.as_nanos(), rate: PPM }
    }

    /// Returns the reading at `moment`, rounded down.
    #[must_use]
    pub fn read(&self, moment: Moment) -> Instant {
        let passed = moment.0.saturating_sub(self.changed_at.0);
        // Divided in two parts, because a 128-bit division is the slowest operation in the simulator.
        let (millions, rest) = (passed / PPM, passed % PPM);
        let shown = millions.saturating_mul(self.rate).saturating_add(rest * self.rate / PPM);
        Instant::from_nanos(self.reading.saturating_add(shown))
    }

    /// Returns the first moment at which the clock shows `instant` or more, if its rate does not change.
    #[must_use]
    pub fn when(&self, instant: Instant) -> Moment {
        if instant.as_nanos() <= self.reading {
            return self.changed_at;
        }
        if instant == Instant::NEVER || self.rate == 0 {
            return Moment::NEVER;
        }
        let ahead = instant.as_nanos() - self.reading;
        let (rounds, rest) = (ahead / self.rate, ahead % self.rate);
        let passed = rounds.saturating_mul(PPM).saturating_add((rest * PPM).div_ceil(self.rate));
        Moment(self.changed_at.0.saturating_add(passed))
    }

    /// Sets the rate from `now` on, in parts per million faster or slower than true time. The rate is never negative.
    pub fn set_rate(&mut self, now: Moment, ppm: i32) {
        self.reading = self.read(now).as_nanos();
        self.changed_at = now;
        // No clock goes faster than a thousand times true, so nothing overflows.
        self.rate = PPM.saturating_add_signed(i64::from(ppm)).min(1_000 * PPM);
    }

    /// True if it stands still.
    #[must_use]
    pub const fn is_frozen(&self) -> bool {
        self.rate == 0
    }

    /// Stops the clock, as when a whole machine is frozen.
    pub fn freeze(&mut self, now: Moment) {
        self.reading = self.read(now).as_nanos();
        self.changed_at = now;
        self.rate = 0;
    }

    /// Makes it jump ahead.
    pub fn jump(&mut self, now: Moment, by: Duration) {
        self.reading = self.read(now).after(by).as_nanos();
        self.changed_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_backwards_exactly() {
        let mut clock = Clock::new(Instant::from_nanos(5_000));
        for ppm in [0, 10_000, -10_000, 333_333, -777_777, 7] {
            clock.set_rate(Moment(1_000), ppm);
            for nanos in (5_500..9_000).step_by(7) {
                let instant = Instant::from_nanos(nanos);
                let moment = clock.when(instant);
                assert!(clock.read(moment) >= instant);
                assert!(moment == Moment(1_000) || clock.read(Moment(moment.0 - 1)) < instant);
            }
        }
    }

    #[test]
    fn a_frozen_clock_never_comes_anywhere() {
        let mut clock = Clock::new(Instant::from_nanos(0));
        clock.freeze(Moment(10));
        assert_eq!(clock.when(Instant::from_nanos(11)), Moment::NEVER);
        assert_eq!(clock.read(Moment(99)), Instant::from_nanos(10));
        clock.set_rate(Moment(100), 0);
        assert_eq!(clock.when(Instant::from_nanos(11)), Moment(101));
    }
}
