//! The messages between the servers of a [ranked election](super).
//!
//! They are the note's three messages, each with a ballot, and three additions: a `Lead` is answered, a server that
//! hears a leader answers an `Elect` with `Hears`, and a leader that resigns sends `Resigned`.

use alloc::sync::Arc;

use crate::id::{Incarnation, NodeId};
use crate::protocol::Leader;
use crate::term::{LeaderSequence, Term};

/// A message between servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The incarnation of the sender.
    pub incarnation: Incarnation,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// To all: "Let us elect a leader; this is my claim." It promises nothing.
    Elect {
        /// The ballot that the sender proposes.
        ballot: Term,
        /// The sender's claim to the lead.
        claim: Claim,
    },
    /// The answer to an `Elect`, where there is a leader: "I hear a leader." It ends the receiver's round.
    Hears {
        /// The incarnation that sent the `Elect`.
        to: Incarnation,
        /// The leader that the sender hears.
        leader: Leader,
    },
    /// To the best claim: "My one vote in this ballot is yours."
    Vote {
        /// The incarnation that is chosen.
        to: Incarnation,
        /// The ballot.
        ballot: Term,
    },
    /// To all: "I lead."
    Lead {
        /// The term, which is the ballot that was won, and the number of this message.
        number: LeaderSequence,
        /// The application's own state, as the leader has announced it last.
        state: Arc<[u8]>,
    },
    /// The answer: support, or, with a higher ballot, "you do not".
    LeadReply {
        /// The incarnation that leads.
        to: Incarnation,
        /// The message that is answered.
        number: LeaderSequence,
        /// The highest ballot that binds the sender.
        promised: Term,
    },
    /// To all: "I led in this term and do not any more."
    Resigned {
        /// The term.
        term: Term,
        /// The preferred next leader, if there is one.
        successor: Option<NodeId>,
    },
}

/// A server's claim to the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The last `Lead` that it has seen.
    pub seen: Option<LeaderSequence>,
    /// The number of claims on its slate in its last round, its own among them; `None` if this is its first round since
    /// there was a leader.
    pub hears: Option<u32>,
    /// True if it wants to lead. A server that does not still votes.
    pub campaigns: bool,
}
