//! Phi-accrual (Hayashibara, Défago, Yared, Katayama 2004): the longer the silence, compared with the usual interval,
//! the less likely it is that the node is alive. A node is suspected if only one interval in 10^phi of a live node
//! would be as long.
//!
//! Intuition: a timeout that adapts. Intervals are assumed to be normally distributed around the observed mean. A
//! threshold phi is then a timeout of the mean plus a number of standard deviations, and that number depends on phi
//! alone. So no floating-point library is needed.
//!
//! The tail of the normal distribution is taken from the logistic approximation that Akka uses (Bowling, Khasawneh,
//! Kaewkuekool, Cho 2009): P(X > mean + y·deviation) ≈ 1 / (1 + exp(y·(1.5976 + 0.070566·y²))), with an error of at
//! most 0.00014. Far out in the tail this matters: it places phi 8 at 5.2 deviations instead of 5.6, which errs towards
//! suspicion.

use alloc::collections::VecDeque;

use crate::time::{Duration, Instant};

/// The number of latest intervals that are kept. Akka and Hayashibara's study keep 1,000. With 100 the mean is exact to
/// a tenth of a deviation, and the detectors of 1,000 members stay small.
const SAMPLES_MAX: usize = 100;

const MILLION: u64 = 1_000_000;

/// ln 10, in millionths.
const LN_10: u64 = 2_302_585;

/// A detector that learns how regularly the node is heard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PhiAccrual {
    /// The threshold, as a number of deviations above the mean, in thousandths.
    deviations: u64,
    acceptable_pause: Duration,
    deviation_min: Duration,
    /// The latest intervals, in nanoseconds.
    intervals: VecDeque<u64>,
    /// The mean and the deviation of `intervals`, stored so that each call does not compute them again.
    mean: Duration,
    deviation: Duration,
    heard_at: Instant,
}

impl PhiAccrual {
    /// Makes a detector of a node that counts as heard `now`. Before the first samples it assumes a mean of `interval`
    /// and a deviation of a quarter of it.
    #[must_use]
    pub fn new(
        interval: Duration,
        threshold_tenths: u32,
        acceptable_pause: Duration,
        deviation_min: Duration,
        now: Instant,
    ) -> Self {
        let quarter = interval.divided_by(4);
        let first = [interval.minus(quarter).as_nanos(), interval.plus(quarter).as_nanos()];
        let mut detector = Self {
            deviations: deviations(threshold_tenths),
            acceptable_pause,
            deviation_min,
            intervals: first.into(),
            mean: Duration::ZERO,
            deviation: Duration::ZERO,
            heard_at: now,
        };
        detector.learn();
        detector
    }

    /// Takes a heartbeat.
    pub fn heard(&mut self, now: Instant) {
        if now <= self.heard_at {
            return; // It was taken to have been heard later, or the clock is read out of order.
        }
        // An interval after which the node was suspected is an outlier, and not sampled.
        if now < self.deadline() {
            self.intervals.push_back(now.since(self.heard_at).as_nanos());
            if self.intervals.len() > SAMPLES_MAX {
                self.intervals.pop_front();
            }
            self.learn();
        }
        self.heard_at = now;
    }

    pub(crate) fn heard_at_mut(&mut self) -> &mut Instant {
        &mut self.heard_at
    }

    /// The time at which the node will be suspected if no heartbeat comes until then.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let deviation = self.deviation.max(self.deviation_min).as_nanos();
        let above = u128::from(deviation) * u128::from(self.deviations) / 1_000;
        let above = Duration::from_nanos(u64::try_from(above).unwrap_or(u64::MAX));
        self.heard_at.after(self.mean).after(self.acceptable_pause).after(above)
    }

    fn learn(&mut self) {
        let count = self.intervals.len() as u128;
        let mean = self.intervals.iter().map(|&nanos| u128::from(nanos)).sum::<u128>() / count;
        let square = |&nanos: &u64| u128::from(nanos).abs_diff(mean).saturating_pow(2) / count;
        let variance = self.intervals.iter().map(square).fold(0_u128, u128::saturating_add);
        let nanos = |number: u128| Duration::from_nanos(u64::try_from(number).unwrap_or(u64::MAX));
        (self.mean, self.deviation) = (nanos(mean), nanos(variance.isqrt()));
    }
}

/// The y, in thousandths, at which the tail of the normal distribution is 10^-phi: where y·(1.5976 + 0.070566·y²)
/// reaches phi·ln 10. (Exactly it would be ln(10^phi − 1), which is the same from phi = 1 on, within a twentieth.)
fn deviations(threshold_tenths: u32) -> u64 {
    let wanted = u128::from(threshold_tenths) * u128::from(LN_10) / 10;
    let reached = |y: u64| {
        let y = u128::from(y);
        let cubed = 70_566 * y * y / u128::from(MILLION);
        y * (1_597_600 + cubed) / 1_000
    };
    let (mut low, mut high) = (0, MILLION);
    while low < high {
        let middle = u64::midpoint(low, high);
        if reached(middle) < wanted { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tail of the normal distribution, from tables: one in 10, 10³, 10⁵ and 10⁸ is this many deviations above the
    /// mean.
    #[test]
    fn a_threshold_is_a_number_of_deviations() {
        for (tenths, exact) in [(10, 1_282), (30, 3_090), (50, 4_265), (80, 5_612)] {
            let found = deviations(tenths);
            assert!(found.abs_diff(exact) * 10 <= exact, "phi {tenths}/10: {found}, and {exact} from tables");
        }
        assert!((0..200).all(|tenths| deviations(tenths) <= deviations(tenths + 1)));
        assert_eq!(deviations(0), 0);
    }

    fn detector() -> PhiAccrual {
        let millis = Duration::from_millis;
        PhiAccrual::new(millis(100), 80, Duration::ZERO, millis(1), Instant::default())
    }

    fn heard_every(
        detector: &mut PhiAccrual,
        mut now: Instant,
        millis: impl Iterator<Item = u64>,
    ) -> Instant {
        for millis in millis {
            now = now.after(Duration::from_millis(millis));
            assert!(now < detector.deadline(), "a heartbeat after {millis} ms is usual here");
            detector.heard(now);
        }
        now
    }

    #[test]
    fn the_more_regular_the_heartbeats_the_sooner_is_silence_suspicious() {
        let mut regular = detector();
        let now = heard_every(&mut regular, Instant::default(), core::iter::repeat_n(100, 200));
        let patient = regular.deadline().since(now);
        assert!(patient > Duration::from_millis(100) && patient < Duration::from_millis(110), "{patient}");
        let mut ragged = detector();
        let now = heard_every(&mut ragged, Instant::default(), [60, 140].into_iter().cycle().take(200));
        assert!(ragged.deadline().since(now) > Duration::from_millis(300));
    }

    #[test]
    fn a_silence_that_was_suspicious_teaches_nothing() {
        let mut detector = detector();
        let now = heard_every(&mut detector, Instant::default(), core::iter::repeat_n(100, 200));
        let patient = detector.deadline().since(now);
        let back = now.after(Duration::from_secs(60));
        detector.heard(back);
        assert_eq!(detector.deadline().since(back), patient);
        detector.heard(now); // Out of order.
        assert_eq!(detector.deadline().since(back), patient);
    }
}
