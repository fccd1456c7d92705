//! What the servers of a [ranked election](super) say to each other.
//!
//! The note's three messages, each with a ballot, and what makes them safe to use: a `Lead` is answered, an `Elect` that meets
//! a leader is told so, and a leader that goes says so.

use alloc::sync::Arc;

use crate::id::{Incarnation, NodeId};
use crate::protocol::Leader;
use crate::term::{LeaderSequence, Term};

/// What servers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The process life of the sender.
    pub incarnation: Incarnation,
    /// What it says.
    pub body: Body,
}

/// The parts of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// To all: "let us elect a leader; this is my claim". It promises nothing.
    Elect {
        /// The ballot that the sender proposes.
        ballot: Term,
        /// What speaks for the sender.
        claim: Claim,
    },
    /// To a server that elects: "I hear a leader". So its round need not go on.
    Hears {
        /// The process life that elects.
        to: Incarnation,
        /// Whom the sender hears.
        leader: Leader,
    },
    /// To the best claim: "my one vote in this ballot is yours".
    Vote {
        /// The process life that is chosen.
        to: Incarnation,
        /// The ballot.
        ballot: Term,
    },
    /// To all: "I lead".
    Lead {
        /// The term, which is the ballot that was won, and the number of this message.
        number: LeaderSequence,
        /// The application's own state, as the leader has announced it last.
        state: Arc<[u8]>,
    },
    /// The answer: support, or, with a higher ballot, "you do not".
    LeadReply {
        /// The process life that leads.
        to: Incarnation,
        /// The message that is answered.
        number: LeaderSequence,
        /// The highest ballot that binds the answerer.
        promised: Term,
    },
    /// To all: "I led in this term and do not any more".
    Resigned {
        /// The term.
        term: Term,
        /// Who shall have the lead next, if anyone in particular.
        successor: Option<NodeId>,
    },
}

/// What speaks for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The last `Lead` that it has seen.
    pub seen: Option<LeaderSequence>,
    /// How many servers were on its slate in its last round, itself among them; `None` if this is its first one since there
    /// was a leader.
    pub hears: Option<u32>,
    /// Whether it wants to lead. One that does not still votes.
    pub stands: bool,
}
