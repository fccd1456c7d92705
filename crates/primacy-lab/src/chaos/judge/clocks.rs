//! Conversion of a faked clock's readings to the machine's own clock.

use crate::chaos::fake_clock::Reading;
use primacy_testbed::run_error::RunError;

/// The maximum distance of a reading from the line through the first and the last one, beyond its own uncertainty.
const UNEVEN_MAX_NS: u64 = 2_000_000;

/// A node's clock: the machine's, or one with a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeClock {
    /// The machine's own.
    True,
    /// A line through two readings, accurate to `within_ns`.
    Line {
        /// The first reading.
        first: Reading,
        /// The last one.
        last: Reading,
        /// The maximum error.
        within_ns: u64,
    },
}

impl NodeClock {
    /// Fits the line through these readings.
    ///
    /// # Errors
    /// [`RunError::NotWhole`] if there are too few, or they are not on a line.
    pub(crate) fn through(readings: &[Reading]) -> Result<Self, RunError> {
        let (Some(&first), Some(&last)) = (readings.first(), readings.last()) else {
            return Err(RunError::NotWhole("the faked clock was never read".into()));
        };
        if last.true_ns <= first.true_ns || last.faked_ns <= first.faked_ns {
            return Err(RunError::NotWhole("the faked clock was read once only, or did not move".into()));
        }
        let mut line = Self::Line { first, last, within_ns: 0 };
        let mut worst = 0;
        for reading in readings {
            let off = line.true_ns(reading.faked_ns).abs_diff(reading.true_ns);
            if off > reading.within_ns + first.within_ns + last.within_ns + UNEVEN_MAX_NS {
                return Err(RunError::NotWhole(format!(
                    "the faked clock did not run evenly: {off} ns off its line"
                )));
            }
            worst = worst.max(off + reading.within_ns);
        }
        if let Self::Line { within_ns, .. } = &mut line {
            *within_ns = worst;
        }
        Ok(line)
    }

    /// The machine's time at which this clock showed `shown`.
    pub(crate) fn true_ns(&self, shown: u64) -> u64 {
        match *self {
            Self::True => shown,
            Self::Line { first, last, .. } => {
                let passed = i128::from(shown) - i128::from(first.faked_ns);
                let true_span = i128::from(last.true_ns - first.true_ns);
                let faked_span = i128::from(last.faked_ns - first.faked_ns);
                let at = i128::from(first.true_ns) + passed * true_span / faked_span;
                u64::try_from(at).unwrap_or(if at < 0 { 0 } else { u64::MAX })
            }
        }
    }

    /// The maximum error of a converted time, in nanoseconds.
    pub(crate) const fn within_ns(&self) -> u64 {
        match *self {
            Self::True => 0,
            Self::Line { within_ns, .. } => within_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(true_ns: u64, faked_ns: u64) -> Reading {
        Reading { true_ns, faked_ns, within_ns: 10 }
    }

    #[test]
    fn a_fast_clock_is_read_back() {
        let second = 1_000_000_000;
        let readings = [
            reading(second, 50 * second),
            reading(6 * second, 50 * second + 5_040_000_000),
            reading(11 * second, 60_080_000_000),
        ];
        let clock = NodeClock::through(&readings).unwrap();
        assert_eq!(clock.true_ns(50 * second), second);
        assert_eq!(clock.true_ns(50 * second + 1_008_000_000), 2 * second);
        // Before the first reading, too.
        assert_eq!(clock.true_ns(50 * second - 1_008_000_000), 0);
        assert_eq!(NodeClock::True.true_ns(7), 7);
    }

    #[test]
    fn readings_on_no_line_are_refused() {
        let second = 1_000_000_000;
        let uneven =
            [reading(second, second), reading(2 * second, 3 * second), reading(3 * second, 3_100_000_000)];
        assert!(NodeClock::through(&uneven).is_err());
        assert!(NodeClock::through(&[]).is_err() && NodeClock::through(&uneven[..1]).is_err());
        assert!(NodeClock::through(&[reading(1, 5), reading(9, 5)]).is_err());
    }
}
