//! What the nodes of a [quorum election](super) say to each other.
//!
//! Three questions and their answers, and a farewell. Every message carries the sender's process life and term; every
//! question a round, which its answer echoes together with the life that asked, so that whatever is stale is known as such.

use crate::id::{Identity, Incarnation, NodeId};
use crate::term::Term;
use crate::time::Duration;

/// What nodes say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The process life of the sender.
    pub incarnation: Incarnation,
    /// The sender's term.
    pub term: Term,
    /// What it says.
    pub body: Body,
}

/// The number of a round of questions, which the answers echo; each node counts its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u64);

/// The parts of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// "If I stood for the term after mine, would you vote for me?" (the article's scouting). Changes nothing.
    PreVote {
        /// The sender's round.
        round: Round,
        /// The leader whose resignation the sender has in hand.
        leave: Option<Leave>,
    },
    /// The answer.
    PreVoteReply {
        /// The round that is answered.
        round: Round,
        /// The process life that asked.
        to: Incarnation,
        /// Yes or no.
        answer: Answer,
    },
    /// "Vote for me in my term" (the article's proposal).
    Vote {
        /// The sender's round.
        round: Round,
        /// The leader whose resignation the sender has in hand.
        leave: Option<Leave>,
    },
    /// The answer.
    VoteReply {
        /// The round that is answered.
        round: Round,
        /// The process life that asked.
        to: Incarnation,
        /// Yes or no.
        answer: Answer,
    },
    /// "I lead in my term."
    Heartbeat {
        /// The sender's round.
        round: Round,
    },
    /// The answer: support, or, from a higher term, "you do not" (the article's invalid heartbeat).
    HeartbeatReply {
        /// The round that is answered.
        round: Round,
        /// The process life that asked.
        to: Incarnation,
        /// For how long, counted from when the heartbeat came, the answerer promises to support nobody else.
        promise: Duration,
    },
    /// "I led in my term and do not any more" (the article's cession).
    Resigned {
        /// Who shall have the lead next, if anyone in particular.
        successor: Option<NodeId>,
    },
}

/// Yes or no, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Yes.
    Yes,
    /// No.
    No(Refusal),
}

/// Why a node says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The term is not above its own, or it has voted for another in it.
    Term,
    /// It hears this leader.
    HearsLeader(NodeId),
    /// It has promised to support another for this much longer.
    Promised {
        /// For how much longer.
        left: Duration,
    },
    /// It has just started and has forgotten what it promised; it stays silent for this much longer.
    JustStarted {
        /// For how much longer.
        left: Duration,
    },
    /// It has lost its disk, was readmitted, and has not heard yet from all others which term they are in.
    Forgotten,
}

/// A resignation, passed on: this process life led in this term, and has given that up for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leave {
    /// Who led.
    pub leader: Identity,
    /// In which term.
    pub term: Term,
}

impl Refusal {
    /// For how much longer it will be so, where that is known.
    #[must_use]
    pub const fn left(&self) -> Option<Duration> {
        match self {
            Self::Promised { left } | Self::JustStarted { left } => Some(*left),
            Self::Term | Self::HearsLeader(_) | Self::Forgotten => None,
        }
    }
}
