//! The messages between the nodes of a cluster that is led [by seniority](super).
//!
//! Every message is bounded: a view has at most [`MEMBERS_MAX`](crate::membership::MEMBERS_MAX) members, whose
//! attributes have at most 512 bytes each, and remembers at most [`REMOVED_MAX`](crate::membership::REMOVED_MAX) names;
//! a heartbeat names at most as many suspects as there are members. All other fields have a fixed size, except names.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::fmt;

use crate::election::lease;
use crate::id::{Identity, Incarnation, NodeId};
use crate::membership::{AgesRunOut, Attributes, MEMBERS_MAX, Sight, View};

/// A message between nodes.
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
    /// To seeds, and to a coordinator: "Let me join."
    Join {
        /// The number of the sender's joining. The answer repeats it, and so does the view that includes the sender.
        joining: u64,
        /// The attributes of the sender.
        attributes: Arc<Attributes>,
    },
    /// The answer, where it is not a view.
    JoinReply {
        /// The number of the joining that was asked for.
        joining: u64,
        /// The reason why there is no view.
        answer: JoinAnswer,
    },
    /// A view: from the coordinator to members and former members, and in answer to [`Body::Ask`].
    View(Arc<View>),
    /// To the coordinator: "I have taken the view with this number."
    ViewReply(Sight),
    /// To other members: "I am alive."
    Heartbeat {
        /// The view that the sender has.
        sight: Sight,
        /// The nodes that it suspects. While it suspects any, it sends its heartbeats to all members.
        suspects: BTreeSet<NodeId>,
    },
    /// To a node that has a later view: "Send it to me; I have this one."
    Ask(Sight),
    /// To members: "I have left the cluster; all my joinings before this number have ended."
    Leave {
        /// The next joining.
        joining: u64,
    },
    /// To members: "An operator reports that this node is dead."
    Down {
        /// The node and its incarnation.
        identity: Identity,
        /// The joining by which it belongs to the cluster.
        joining: u64,
    },
    /// From a coordinator to missing nodes: "I coordinate the part with this view."
    Probe(Sight),
    /// The answer: "And this is mine."
    ProbeReply(Sight),
    /// From the coordinator of the smaller part to that of the larger one: "May we join you?"
    MergeAsk(Sight),
    /// The answer: "You may; we join no other part meanwhile."
    MergeReply(Sight),
    /// From a coordinator to its members: "Join that node, as I do."
    Merge {
        /// The coordinator of the larger part.
        into: NodeId,
        /// The view that the merge ends.
        sight: Sight,
    },
    /// To and from the store, under [`Policy::Lease`](crate::membership::Policy::Lease).
    Store(lease::Message),
}

/// The reason why there is no view for a node that asks to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JoinAnswer {
    /// "I do not belong to a cluster either."
    NotJoined,
    /// "I do not coordinate; ask that node."
    Ask(NodeId),
    /// "No."
    Refused(Refusal),
}

/// The reason why a node cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There are [`MEMBERS_MAX`] members.
    Full,
    /// No age is left.
    AgesRunOut(AgesRunOut),
    /// Another incarnation of that node is a member, and is heard.
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
