//! The configuration of a server of the ranked election.

use alloc::collections::BTreeSet;

use crate::id::{Identity, NodeId};
use crate::time::Duration;

/// The longest state that a leader can announce, in bytes.
pub const STATE_MAX: usize = 16 * 1024;

/// The voters and the timing of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This server, with the incarnation of this process.
    pub me: Identity,
    /// The voters, this server among them.
    pub voters: BTreeSet<NodeId>,
    /// The interval at which the leader sends heartbeats (the note's HBT).
    pub heartbeat_interval: Duration,
    /// The number of consecutive heartbeats that a server misses before it no longer counts the leader as heard; the
    /// note has 3.
    pub miss_count: u32,
    /// The number of heartbeat intervals for which a server listens for a leader after its start; the note has 5.
    pub initial_count: u32,
    /// The least time for which claims are gathered in a first round (the note's RTT). If two measured round trips take
    /// longer, claims are gathered for that long.
    pub gathering: Duration,
    /// True if this server only votes.
    pub witness: bool,
    /// The seed of the random waits. Different for each server and each incarnation.
    pub seed: u64,
}

impl Config {
    /// The silence after which the leader no longer counts as heard.
    pub(super) fn patience(&self) -> Duration {
        self.heartbeat_interval.times(u64::from(self.miss_count))
    }
}
