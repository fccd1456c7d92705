//! The moment at which everything happens, and the length of a tick.

use primacy_core::{Duration, Instant};

/// The constant reading of every clock: all instants are stored as their distance from it. A tick is one nanosecond
/// for the machines.
pub(super) const NOW: Instant = Instant::from_nanos(1 << 20);

/// This many ticks.
pub(super) fn ticks(count: u8) -> Duration {
    Duration::from_nanos(u64::from(count))
}
