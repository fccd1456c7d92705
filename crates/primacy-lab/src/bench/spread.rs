//! A summary of many measurements.

use std::time::Duration;

use serde::Serialize;

/// Milliseconds; the `p`th percentile is the smallest value that at least `p` percent of all values do not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Summarises at least one measurement; `None` of none.
    pub(super) fn of(measured: &[Duration]) -> Option<Self> {
        let mut sorted = measured.to_vec();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(place).copied().map(milliseconds)
        };
        Some(Self { min: at(0)?, median: at(50)?, p90: at(90)?, p99: at(99)?, max: at(100)? })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { min, median, p90, p99, max } = self;
        write!(f, "min {min:.2}  median {median:.2}  p90 {p90:.2}  p99 {p99:.2}  max {max:.2} ms")
    }
}

/// Rounded to three decimals, the precision of the processes' clocks.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The median; `None` of no measurements.
pub(super) fn median(measured: &[Duration]) -> Option<Duration> {
    let mut sorted = measured.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let measured: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let spread = Spread::of(&measured).unwrap();
        assert_eq!(spread, Spread { min: 1.0, median: 50.0, p90: 90.0, p99: 99.0, max: 100.0 });
        let one = Spread::of(&measured[..1]).unwrap();
        assert_eq!((one.min, one.median, one.p99, one.max), (100.0, 100.0, 100.0, 100.0));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(median(&measured), Some(Duration::from_millis(50)));
        assert_eq!(median(&[]), None);
    }
}
