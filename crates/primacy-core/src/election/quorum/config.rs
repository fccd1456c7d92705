//! What a node of the quorum election is told.

use alloc::collections::BTreeSet;

use crate::id::{Identity, NodeId};
use crate::time::{Drift, Duration};

/// Who takes part, and how patient they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, in this life.
    pub me: Identity,
    /// All who vote, this node among them.
    pub voters: BTreeSet<NodeId>,
    /// What is promised. The same for all voters.
    pub safety: Safety,
    /// How often the leader shows itself.
    pub heartbeat_interval: Duration,
    /// How many heartbeats in a row must be missed until the leader is not heard any more.
    pub miss_count: u32,
    /// For how long an answered heartbeat binds this node. Nodes with different durations are safe together.
    pub promise_duration: Duration,
    /// How long a new node listens for a leader.
    pub initial_wait: Duration,
    /// The longest random wait before a node stands.
    pub random_wait_max: Duration,
    /// How long a candidate waits for the answers of one round.
    pub round_timeout: Duration,
    /// The least time between two nodes that stand in order.
    pub stagger: Duration,
    /// How far the rates of two clocks may differ.
    pub drift_max: Drift,
    /// Nodes of higher priority stand first.
    pub priority: u32,
    /// Whether this node only votes.
    pub witness: bool,
    /// Whether a candidate asks before it takes a new term. Off only to show why it is on.
    pub pre_vote: bool,
    /// Whether a node that hears a leader refuses pre-votes. Off only to show why it is on.
    pub sticky: bool,
    /// The seed of the random waits. Different for each node and each of its lives.
    pub seed: u64,
}

/// What the election promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Safety {
    /// No two nodes believe that they lead at the same time, under the drift bound; and tokens grow.
    #[default]
    Lease,
    /// Tokens grow, and that is all: for where every resource checks them.
    Fenced,
}

impl Config {
    /// For how long an answer to a heartbeat binds this node.
    pub(super) fn promised(&self) -> Duration {
        match self.safety {
            Safety::Lease => self.promise_duration,
            Safety::Fenced => Duration::ZERO,
        }
    }
}
