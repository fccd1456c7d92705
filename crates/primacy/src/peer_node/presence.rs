//! The interval at which a node checks that its state directory exists.

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::config::STATE_LOOK;

/// The timer of that check.
#[derive(Debug)]
pub(super) struct Presence(Interval);

impl Presence {
    pub(super) fn new() -> Self {
        let mut interval = interval_at(Instant::now() + STATE_LOOK, STATE_LOOK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self(interval)
    }

    /// Waits until the next check is due. Cancel safe.
    pub(super) async fn due(&mut self) {
        self.0.tick().await;
    }
}
