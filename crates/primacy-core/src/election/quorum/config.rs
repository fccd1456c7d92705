//! The configuration of a node of the quorum election.

use alloc::collections::BTreeSet;

use crate::id::{Identity, NodeId};
use crate::time::{Drift, Duration};

/// The voters, the timing and the safety of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, with the incarnation of this process.
    pub me: Identity,
    /// The voters, this node among them.
    pub voters: BTreeSet<NodeId>,
    /// The guarantee. The same for all voters.
    pub safety: Safety,
    /// The interval at which the leader sends heartbeats.
    pub heartbeat_interval: Duration,
    /// The number of consecutive heartbeats that a follower misses before it no longer counts the leader as heard.
    pub miss_count: u32,
    /// The duration of the promise with which this node answers a heartbeat. Nodes with different durations are safe
    /// together.
    pub promise_duration: Duration,
    /// The time for which a new node listens for a leader.
    pub initial_wait: Duration,
    /// The longest random wait before a node campaigns.
    pub random_wait_max: Duration,
    /// The time for which a candidate waits for the answers of one round.
    pub round_timeout: Duration,
    /// The least time between two nodes that campaign in order.
    pub stagger: Duration,
    /// The largest difference between the rates of two clocks.
    pub drift_max: Drift,
    /// The priority of this node: nodes of higher priority campaign first.
    pub priority: u32,
    /// True if this node only votes.
    pub witness: bool,
    /// True if a candidate asks for pre-votes before it takes a new term. Disabled only to demonstrate why it is
    /// needed.
    pub pre_vote: bool,
    /// True if a node that hears a leader refuses pre-votes. Disabled only to demonstrate why it is needed.
    pub sticky: bool,
    /// The seed of the random waits. Different for each node and each incarnation.
    pub seed: u64,
}

/// The guarantee of the election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Safety {
    /// No two nodes lead at the same time, within the drift bound; and tokens grow.
    #[default]
    Lease,
    /// Tokens grow, and there is no lease: for use where every resource checks tokens.
    Fenced,
}

impl Config {
    /// The duration of the promise in this node's heartbeat replies.
    pub(super) fn promised(&self) -> Duration {
        match self.safety {
            Safety::Lease => self.promise_duration,
            Safety::Fenced => Duration::ZERO,
        }
    }
}
