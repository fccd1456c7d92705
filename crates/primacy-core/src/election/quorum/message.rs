//! The messages between the nodes of a [quorum election](super).
//!
//! There are three questions with their answers, and a resignation. Every message carries the sender's incarnation and
//! term. Every question carries a round, which its answer echoes together with the incarnation that asked, so that
//! stale answers are recognised.

use crate::id::{Identity, Incarnation, NodeId};
use crate::term::Term;
use crate::time::Duration;

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The incarnation of the sender.
    pub incarnation: Incarnation,
    /// The term of the sender.
    pub term: Term,
    /// The content.
    pub body: Body,
}

/// The number of a round of questions, which the answers echo; each node counts its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(pub u64);

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// A pre-vote: "Would you vote for me in the term after mine?" (the article's scouting). It changes no state.
    PreVote {
        /// The sender's round.
        round: Round,
        /// The leader whose resignation the sender has in hand.
        resignation: Option<Resignation>,
    },
    /// The answer.
    PreVoteReply {
        /// The round that is answered.
        round: Round,
        /// The incarnation that asked.
        to: Incarnation,
        /// Yes or no.
        answer: Answer,
    },
    /// A request for a vote: "Vote for me in my term" (the article's proposal).
    Vote {
        /// The sender's round.
        round: Round,
        /// The leader whose resignation the sender has in hand.
        resignation: Option<Resignation>,
    },
    /// The answer.
    VoteReply {
        /// The round that is answered.
        round: Round,
        /// The incarnation that asked.
        to: Incarnation,
        /// Yes or no.
        answer: Answer,
    },
    /// A heartbeat: "I lead in my term."
    Heartbeat {
        /// The sender's round.
        round: Round,
    },
    /// The answer: support, or, from a higher term, "you do not" (the article's invalid heartbeat).
    HeartbeatReply {
        /// The round that is answered.
        round: Round,
        /// The incarnation that asked.
        to: Incarnation,
        /// The time, counted from the arrival of the heartbeat, for which the sender promises to support no other node.
        promise: Duration,
    },
    /// A resignation: "I led in my term and do not any more" (the article's cession).
    Resigned {
        /// The preferred next leader, if there is one.
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

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The term is not above the voter's own, or it has voted for another in it.
    Term,
    /// The voter hears this leader.
    HearsLeader(NodeId),
    /// The voter has promised to support another node for the duration `left`.
    Promised {
        /// The rest of the promise.
        left: Duration,
    },
    /// The voter has just started and does not know what it promised; it grants nothing for the duration `left`.
    JustStarted {
        /// The rest of the silence.
        left: Duration,
    },
    /// The voter has lost its disk, was readmitted, and has not yet received the terms of all others.
    DiskLost,
}

/// A resignation, as nodes pass it on: this incarnation led in this term, and has given up that leadership for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resignation {
    /// The leader that resigned.
    pub leader: Identity,
    /// The term in which it led.
    pub term: Term,
}

impl Refusal {
    /// The time for which the refusal still holds, if that is known.
    #[must_use]
    pub const fn left(&self) -> Option<Duration> {
        match self {
            Self::Promised { left } | Self::JustStarted { left } => Some(*left),
            Self::Term | Self::HearsLeader(_) | Self::DiskLost => None,
        }
    }
}
