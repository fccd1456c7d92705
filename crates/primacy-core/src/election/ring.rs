//! Ring (Chang and Roberts 1979): a probe that goes round carries the highest name that it has met.
//! Assumes   a ring on which everybody reaches the next one that is alive; crashes, not partitions.
//! Promises  at most one leader *only while that holds*; a partition elects two. No token.
//! Costs     with all n nodes starting, n·Hₙ probes on the average over all rings, 2n − 1 at best, n(n + 1)/2 at worst; and n
//!           messages to announce the leader. Each heartbeat is n messages.   Prefer `quorum`; or let one confirm it.
//!
//! How it goes: whoever misses the leader sends a probe with its own name. A node passes on a probe with a higher name than its
//! own; a lower one it replaces by its own, once, and swallows after that. A node that its own name comes back to has the
//! highest one. It says so once around the ring, and again with each heartbeat.
//!
//! What the textbooks leave out: rounds are numbered; each hop is confirmed, and who does not confirm is skipped; a probe whose
//! node has died meanwhile ends after one turn; a round that comes to nothing is begun again; and a higher name that comes back
//! either takes over, or, where the election is `sticky`, waits until there is need.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::detector::MissedHeartbeats;
use crate::id::{Identity, Incarnation, NodeId};
use crate::neighbours::{Direction, Neighbours};
use crate::protocol::{
    Command, Endpoint, Event, Evidence, Input, Leader, Mandate, Occasion, Output, Protocol, Reason,
};
use crate::term::Term;
use crate::time::{Duration, Instant};

/// A number of a round above this one is no honest node's.
const ROUND_MAX: Term = Term(u64::MAX / 2);

/// Who takes part, and how patient they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, in this life.
    pub me: Identity,
    /// All nodes in the order of the ring, this one among them. Who is elected, the order of the names decides.
    pub ring: Arc<[NodeId]>,
    /// How often the leader shows itself.
    pub heartbeat_interval: Duration,
    /// How many heartbeats in a row must be missed until the leader is taken to be dead.
    pub miss_count: u32,
    /// How long the next node may take to confirm that it has received something.
    pub hop_timeout: Duration,
    /// Whether a node that comes back leaves the lead to whoever has it.
    pub sticky: bool,
}

/// What nodes say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The process life of the sender.
    pub incarnation: Incarnation,
    /// The round that it is about.
    pub round: Term,
    /// What is said.
    pub body: Body,
}

/// The parts of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Onward: "this is the highest name so far".
    Probe {
        /// Whose name it is.
        candidate: Identity,
        /// How many have passed it on.
        hops: u32,
    },
    /// Onward: "this one leads".
    Elected {
        /// Who.
        leader: Identity,
        /// How often it has said so.
        beat: u64,
        /// How many have passed it on.
        hops: u32,
    },
    /// Onward: "this one leads no more".
    Resigned {
        /// Who.
        leader: Identity,
        /// How many have passed it on.
        hops: u32,
    },
    /// Back to the sender: "I have it".
    Received,
}
