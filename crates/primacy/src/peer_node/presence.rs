//! The moments at which a node looks whether its state directory is still there.

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::config::STATE_LOOK;

/// A clock that tells when to look again.
#[derive(Debug)]
pub(super) struct Presence(Interval);

impl Presence {
    pub(super) fn new() -> Self {
        let mut interval = interval_at(Instant::now() + STATE_LOOK, STATE_LOOK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self(interval)
    }

    /// Waits until it is time to look. Nothing is lost if this is dropped.
    pub(super) async fn due(&mut self) {
        self.0.tick().await;
    }
}
