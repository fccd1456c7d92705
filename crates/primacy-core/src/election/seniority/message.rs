//! What the nodes of a cluster that is led [by seniority](super) say to each other.
//!
//! Every message is bounded: a view has at most [`MEMBERS_MAX`](crate::membership::MEMBERS_MAX) members, whose attributes have at
//! most 512 bytes each, and remembers at most [`REMOVED_MAX`](crate::membership::REMOVED_MAX) names; a heartbeat names at most as
//! many suspects as there are members. All else is of fixed size, but for names.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::fmt;

use crate::election::lease;
use crate::id::{Identity, Incarnation, NodeId};
use crate::membership::{AgesRunOut, Attributes, MEMBERS_MAX, Sight, View};

/// What nodes say to each other.
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
    /// To seeds, and to a coordinator: "let me join".
    Join {
        /// Which of its joinings; the answer repeats it, and so does the view that it is taken into.
        joining: u64,
        /// What the sender tells of itself.
        attributes: Arc<Attributes>,
    },
    /// The answer, where it is not a view.
    JoinReply {
        /// Which joining was asked for.
        joining: u64,
        /// Why there is no view.
        answer: JoinAnswer,
    },
    /// From the coordinator to members, and to those who are none any more; and from whoever holds a later one to who asks.
    View(Arc<View>),
    /// To the coordinator: "I have taken the view with this number".
    ViewReply(Sight),
    /// To other members: "I live".
    Heartbeat {
        /// The view that the sender has.
        sight: Sight,
        /// Whom it suspects. While it suspects anybody, this goes to all.
        suspects: BTreeSet<NodeId>,
    },
    /// To one that has a later view: "send it to me, who has this one".
    Ask(Sight),
    /// To members: "I belong to the cluster no more by anything before this joining of mine".
    Leave {
        /// The next joining.
        joining: u64,
    },
    /// To members: "an operator vouches that this node is not to be waited for".
    Down {
        /// Which life of it.
        identity: Identity,
        /// By which joining it belongs to the cluster.
        joining: u64,
    },
    /// From a coordinator to those who are not there: "this is the part that I coordinate".
    Probe(Sight),
    /// The answer: "and this is mine".
    ProbeReply(Sight),
    /// From the coordinator of the smaller part to that of the larger one: "may we join you?"
    MergeAsk(Sight),
    /// The answer: "you may; we join nobody else meanwhile".
    MergeReply(Sight),
    /// From a coordinator to its members: "join that one, as I do".
    Merge {
        /// The coordinator of the larger part.
        into: NodeId,
        /// The view that ends by this.
        sight: Sight,
    },
    /// To and from the store, where one decides which part goes on.
    Store(lease::Message),
}

/// Why there is no view for one who asks to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JoinAnswer {
    /// "I do not belong to a cluster either."
    NotJoined,
    /// "I do not coordinate; ask that one."
    Ask(NodeId),
    /// "No."
    Refused(Refusal),
}

/// Why somebody cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There are [`MEMBERS_MAX`] members.
    Full,
    /// There is no younger age.
    AgesRunOut(AgesRunOut),
    /// Another process of that name is a member, and is heard.
    NameTaken,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "the cluster has {MEMBERS_MAX} members, and takes no more"),
            Self::AgesRunOut(error) => error.fmt(f),
            Self::NameTaken => {
                f.write_str("another process of this name is a member and lives; give each node its own name")
            }
        }
    }
}
