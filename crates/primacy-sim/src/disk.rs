//! A node's disk: one durable slot, the count of its starts, and what can go wrong with them.

use primacy_core::Duration;

/// What becomes of a write that a crash meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetByCrash {
    /// Nothing of it is found afterwards.
    Lost,
    /// It is found afterwards, though nobody was told.
    Kept,
}

/// The disk of one node.
#[derive(Clone, Debug)]
pub struct Disk<D> {
    /// The random number that was made with the state directory, by which a wiped disk is noticed.
    pub id: u64,
    /// How often a process has started from it.
    pub starts: u64,
    /// What was last written.
    pub slot: Option<D>,
    /// How long a write takes until it would survive a power cut.
    pub latency: Duration,
    /// Every write fails, as on a full disk.
    pub failing: bool,
}

impl<D> Disk<D> {
    /// An empty disk.
    #[must_use]
    pub const fn new(id: u64, latency: Duration) -> Self {
        Self { id, starts: 0, slot: None, latency, failing: false }
    }

    /// Another, empty disk is in its place.
    pub fn replace(&mut self, id: u64) {
        *self = Self::new(id, self.latency);
    }

    /// The write that was under way when the node crashed.
    pub fn crash(&mut self, writing: Option<D>, met: MetByCrash) {
        match (writing, met) {
            (Some(written), MetByCrash::Kept) => self.slot = Some(written),
            (Some(_), MetByCrash::Lost) | (None, MetByCrash::Lost | MetByCrash::Kept) => {}
        }
    }
}
