//! Time as plain numbers: a machine is given the time and never asks for it.
//!
//! [`Instant`] and [`Duration`] are our own, because a machine's state must be cloned, hashed, printed and
//! replayed, and the standard library's `Instant` can be none of these.

use core::fmt;

const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const PPM: u128 = 1_000_000;

/// A reading of one machine's clock, in nanoseconds since an origin that only that clock knows.
///
/// Instants of two machines cannot be compared, and Primacy never compares them.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A length of time, in nanoseconds; up to 584 years.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

/// The largest difference between the rates of two clocks: the bound under which leases are safe.
///
/// The holder of a promise that was made for `d` on another clock may rely on it for `d / (1 + drift)` on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drift {
    parts_per_million: u32,
}

impl Instant {
    /// The end of time, which never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Makes an instant of nanoseconds since the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant that is `duration` later; [`Instant::NEVER`] at most.
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.0))
    }

    /// The instant that is `duration` earlier; the clock's origin at least.
    #[must_use]
    pub const fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.0))
    }

    /// The time since `earlier`; zero if it is not in the past.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Makes a duration of nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Makes a duration of milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// Makes a duration of seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SECOND))
    }

    /// The nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MILLI
    }

    /// True if this is no time at all.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference to `other`; zero at least.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This many times as long.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// This duration divided by `parts`, rounded down.
    ///
    /// # Panics
    /// If `parts` is zero.
    #[must_use]
    pub const fn divided_by(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }

    /// This duration times `part / whole`, rounded down; unchanged if `part` is not less than `whole`.
    #[must_use]
    pub fn scaled(self, part: Self, whole: Self) -> Self {
        if part >= whole {
            return self;
        }
        let scaled = u128::from(self.0) * u128::from(part.0) / u128::from(whole.0);
        Self(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

impl Drift {
    /// Clocks whose rates are the same.
    pub const NONE: Self = Self { parts_per_million: 0 };

    /// Makes a drift of parts per million: 10 000 is one per cent.
    #[must_use]
    pub const fn from_ppm(parts_per_million: u32) -> Self {
        Self { parts_per_million }
    }

    /// The drift in parts per million.
    #[must_use]
    pub const fn as_ppm(self) -> u32 {
        self.parts_per_million
    }

    /// The time for which the holder of a promise may rely on it: `duration / (1 + drift)`, rounded down.
    #[must_use]
    pub fn shorten(self, duration: Duration) -> Duration {
        let shortened = u128::from(duration.0) * PPM / (PPM + u128::from(self.parts_per_million));
        Duration(u64::try_from(shortened).expect("no longer than it was"))
    }

    /// The time for which a rival must wait until a promise to another node has ended: `duration × (1 + drift)`,
    /// rounded up.
    #[must_use]
    pub fn lengthen(self, duration: Duration) -> Duration {
        let lengthened = (u128::from(duration.0) * (PPM + u128::from(self.parts_per_million))).div_ceil(PPM);
        Duration(u64::try_from(lengthened).unwrap_or(u64::MAX))
    }
}

impl From<core::time::Duration> for Duration {
    fn from(duration: core::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(duration: Duration) -> Self {
        Self::from_nanos(duration.0)
    }
}

impl fmt::Display for Duration {
    /// Shows the largest unit in which the number has at most three decimals: `1.5s`, `250ms`, `90ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0 => return f.write_str("0s"),
            nanos if nanos >= NANOS_PER_SECOND => (NANOS_PER_SECOND, "s"),
            nanos if nanos >= NANOS_PER_MILLI => (NANOS_PER_MILLI, "ms"),
            nanos if nanos >= 1_000 => (1_000, "µs"),
            nanos => return write!(f, "{nanos}ns"),
        };
        let thousandths = self.0 / (unit / 1_000);
        let (whole, part) = (thousandths / 1_000, thousandths % 1_000);
        match part {
            0 => write!(f, "{whole}{name}"),
            _ if part % 100 == 0 => write!(f, "{whole}.{}{name}", part / 100),
            _ if part % 10 == 0 => write!(f, "{whole}.{:02}{name}", part / 10),
            _ => write!(f, "{whole}.{part:03}{name}"),
        }
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER { f.write_str("never") } else { write!(f, "{}", Duration(self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_rounds_down_and_a_rival_rounds_up() {
        let drift = Drift::from_ppm(10_000);
        assert_eq!(drift.shorten(Duration::from_nanos(1_000)), Duration::from_nanos(990));
        assert_eq!(drift.lengthen(Duration::from_nanos(1_001)), Duration::from_nanos(1_012));
        for nanos in 0..5_000 {
            let promised = Duration::from_nanos(nanos);
            assert!(drift.lengthen(drift.shorten(promised)) <= promised.plus(Duration::from_nanos(1)));
            assert!(drift.shorten(drift.lengthen(promised)) >= promised);
        }
        assert_eq!(drift.lengthen(Duration::from_nanos(u64::MAX)), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn time_stops_at_its_ends() {
        assert_eq!(Instant::NEVER.after(Duration::from_secs(1)), Instant::NEVER);
        assert_eq!(Instant::default().before(Duration::from_secs(1)), Instant::default());
        assert_eq!(Instant::default().since(Instant::NEVER), Duration::ZERO);
    }

    #[test]
    fn durations_are_printed_for_people() {
        let cases =
            [(0, "0s"), (90, "90ns"), (1_500, "1.5µs"), (250_000_000, "250ms"), (1_000_000_000, "1s")];
        for (nanos, text) in cases {
            assert_eq!(std::format!("{}", Duration::from_nanos(nanos)), text);
        }
        assert_eq!(std::format!("{}", Duration::from_nanos(1_234_567_890)), "1.234s");
        assert_eq!(std::format!("{}", Duration::from_millis(10_050)), "10.05s");
    }
}
