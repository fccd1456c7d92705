//! Distributions of durations, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use primacy_core::Duration;

/// The upper limits of the buckets of a [`Histogram`], in nanoseconds: from the round trip of a loopback interface to a
/// hanging disk.
pub(crate) const BUCKETS: [u64; 16] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
];

/// The distribution of durations over buckets.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// The last count is of durations above the last limit.
    counts: [AtomicU64; BUCKETS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, took: Duration) {
        let nanos = took.as_nanos();
        let bucket = BUCKETS.partition_point(|&end| end < nanos);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The count of each bucket.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn counts(&self) -> [u64; BUCKETS.len() + 1] {
        std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed))
    }

    /// The sum of the durations, in nanoseconds.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn sum(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_as_long_as_a_bucket_ends_is_in_it() {
        let histogram = Histogram::default();
        for nanos in [0, 50_000, 50_001, 5_000_000_000, 5_000_000_001] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let counts = histogram.counts();
        assert_eq!((counts[0], counts[1], counts[15], counts[16]), (2, 1, 1, 1));
        assert_eq!(histogram.sum(), 10_000_100_002);
    }
}
