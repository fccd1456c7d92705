//! What a server of the ranked election is told.

use alloc::collections::BTreeSet;

use crate::id::{Identity, NodeId};
use crate::time::Duration;

/// The longest state that a leader can announce, in bytes.
pub const STATE_MAX: usize = 16 * 1024;

/// Who takes part, and how patient they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This server, in this life.
    pub me: Identity,
    /// All who vote, this server among them.
    pub voters: BTreeSet<NodeId>,
    /// How often the leader shows itself (the note's HBT).
    pub heartbeat_interval: Duration,
    /// How many heartbeats in a row must be missed until the leader is not heard any more; the note has 3.
    pub miss_count: u32,
    /// How many heartbeats long a server that has just started listens for a leader; the note has 5.
    pub initial_count: u32,
    /// How long claims are gathered in a first round at least (the note's RTT); two round trips, where those that connect show
    /// that these take longer.
    pub gathering: Duration,
    /// Whether this server only votes.
    pub witness: bool,
    /// The seed of the random waits. Different for each server and each of its lives.
    pub seed: u64,
}

impl Config {
    /// After how much silence the leader is not heard any more.
    pub(super) fn patience(&self) -> Duration {
        self.heartbeat_interval.times(u64::from(self.miss_count))
    }
}
