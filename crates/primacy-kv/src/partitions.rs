//! Partitions: the primary of each, its number, and the nodes that can be a primary.
//!
//! It is the partition state table of BlazingMQ, kept by all replicas. Only events are replicated: a node joins, leaves
//! or gives partitions back, or an operator gives an order. Every replica computes the primaries from the events in the
//! same way; so the death of a node is one small record, however many partitions it has, and without events there is no
//! traffic.
//!
//! Assumes   that a session is ended only when its node considers it over (see [`Command::Join`]), when that incarnation
//!           of the node is gone, or by the node itself, when it has stopped.
//! Promises  that a partition has at most one primary; that its number grows with each new primary; that no node gets it
//!           before the former primary has given it back, or the former primary's session has ended; that loads differ
//!           by one at most, in each group and in all groups together, after every change of the nodes and partitions,
//!           unless operators move partitions.
//! Costs     a few bytes for each partition, and a step for each when a node comes or goes.
//!
//! ```text
//!   free ──► held by A ──► taken back from A, for B ──► held by B
//!     ▲          │                   │
//!     └──────────┴─── A is gone ─────┘         each arrow to `held` has a number of its own
//! ```

pub(super) mod assign;
pub(super) mod encoding;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU16;

use primacy_core::id::{Incarnation, NodeId};
use primacy_core::time::Duration;

use super::session_id::SessionId;

/// The limit on partitions in all groups together: a replica scans that many in a few milliseconds.
pub const PARTITIONS_MAX: u32 = 1_000_000;
/// The highest number of groups.
pub const GROUPS_MAX: usize = 1_000;
/// The highest number of nodes that are up or drained.
pub const NODES_MAX: usize = 1_000;
/// The longest name of a group, in bytes.
pub const GROUP_NAME_MAX: usize = 63;

/// The size of a partition, in bytes.
const PARTITION_BYTES: u64 = 16;
/// The size of a group without its partitions, in bytes.
const GROUP_BYTES: u64 = 128;
/// The size of a node, in bytes.
const NODE_BYTES: u64 = 128;

/// The name of a group of partitions: 1 to [`GROUP_NAME_MAX`] letters, digits, `.`, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

impl GroupName {
    /// The group of this name.
    ///
    /// # Errors
    /// [`GroupNameError`] if it is not a valid name.
    pub fn new(name: &str) -> Result<Self, GroupNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_name = (1..=GROUP_NAME_MAX).contains(&name.len()) && name.bytes().all(allowed);
        if is_name { Ok(Self(name.into())) } else { Err(GroupNameError) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Error: the text is not a valid [`GroupName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupNameError;

impl fmt::Display for GroupNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a group has 1 to {GROUP_NAME_MAX} letters, digits, '.', '_' and '-'")
    }
}

impl core::error::Error for GroupNameError {}

/// An order about partitions, or an event of their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The sending node is up, and may be a primary, from now until this session ends. If an earlier incarnation of it
    /// was up, this one replaces it, as the primary of the same partitions under new numbers.
    ///
    /// Only the leader and the node itself end such a session: the leader when its time is over by the leader's clock,
    /// or when a guardian has reported the death of this incarnation. The node counts the time to live from before it
    /// sent its request to join or to keep the session alive, less the drift; the leader counts from after it has
    /// received it.
    Join {
        /// The number of the session, which this command begins.
        session: SessionId,
        /// The time after which it expires unless it is kept alive.
        time_to_live: Duration,
    },
    /// The node of this session has stopped as the primary of all partitions, and is no longer up.
    Leave {
        /// The session, which this command ends.
        session: SessionId,
    },
    /// The node of this session gives back these partitions, where its number as the primary is at most `up_to`. It
    /// keeps partitions that it has been given since, under higher numbers.
    Release {
        /// The session.
        session: SessionId,
        /// The highest number that is given back.
        up_to: u64,
        /// The partitions. Groups that do not exist are ignored.
        ranges: Vec<Ranges>,
    },
    /// Creates a group.
    Create {
        /// Its name.
        group: GroupName,
        /// The number of its partitions.
        count: u32,
    },
    /// Drops a group. It is removed when all primaries have given its partitions back.
    Drop {
        /// Its name.
        group: GroupName,
    },
    /// Drains a node: it is not to be a primary as long as any other node can be.
    Drain {
        /// The node, which need not be up.
        node: NodeId,
    },
    /// Lets a drained node be a primary again.
    Undrain {
        /// The node.
        node: NodeId,
    },
    /// Makes this node the primary of this partition.
    Move {
        /// The group.
        group: GroupName,
        /// The partition, from 0.
        index: u32,
        /// The node.
        node: NodeId,
    },
}

/// Some partitions of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The group.
    pub group: GroupName,
    /// The ranges, in order and separate.
    pub ranges: Vec<core::ops::Range<u32>>,
}

/// The reason why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The group exists already, or is not yet removed.
    GroupExists,
    /// The group does not exist, or is being removed.
    GroupNotFound,
    /// The group has no such partition.
    PartitionNotFound {
        /// The number of its partitions.
        count: u32,
    },
    /// The group would have no partitions.
    NoPartitions,
    /// There would be more than [`PARTITIONS_MAX`].
    TooManyPartitions,
    /// There would be more than [`GROUPS_MAX`].
    TooManyGroups,
    /// There would be more than [`NODES_MAX`].
    TooManyNodes,
    /// The node is not up.
    NodeNotUp,
    /// The node is drained.
    NodeDrained,
    /// Another incarnation of the node is up, and is not known to be earlier than the sender.
    NodeUp,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupExists => f.write_str("there is such a group already, or it is not gone yet"),
            Self::GroupNotFound => f.write_str("there is no such group"),
            Self::PartitionNotFound { count } => {
                write!(f, "there is no such partition: the group has {count}, the first one is 0")
            }
            Self::NoPartitions => f.write_str("a group has one partition at least"),
            Self::TooManyPartitions => write!(f, "there would be more than {PARTITIONS_MAX} partitions"),
            Self::TooManyGroups => write!(f, "there would be more than {GROUPS_MAX} groups"),
            Self::TooManyNodes => write!(f, "there would be more than {NODES_MAX} nodes"),
            Self::NodeNotUp => f.write_str("the node is not up"),
            Self::NodeDrained => f.write_str("the node is drained"),
            Self::NodeUp => f.write_str("another life of the node is up"),
        }
    }
}

/// All partitions, and the nodes that are up or drained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// The nodes in the order of their names. Each is up or drained.
    nodes: Vec<Node>,
    groups: BTreeMap<GroupName, Group>,
    /// The number of partitions, in all groups.
    count: u32,
    /// The number of commands and ends of sessions that have changed anything. A new primary has the step as its
    /// number.
    step: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    name: NodeId,
    drained: bool,
    /// The session, while it is up.
    up: Option<Up>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Up {
    session: SessionId,
    time_to_live: Duration,
    incarnation: Incarnation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    slots: Vec<Slot>,
    /// True if it is being removed: partitions that are given back get no primary.
    ending: bool,
}

/// One partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// The number of the present primary, or of the last one.
    number: u64,
    primary: Option<NodeIndex>,
    next: Next,
}

/// A node, by its index among the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeIndex(NonZeroU16);

/// The plan for a partition that has a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// No plan: the primary stays, or there is none.
    Stays,
    /// The partition is taken back for this node; `None` if no node can have it.
    Taken(Option<NodeIndex>),
}

/// One partition, as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its primary.
    pub primary: Option<NodeId>,
    /// The number of the primary, which is its fencing token. If there is no primary, the number of the last one; 0 if
    /// there was none.
    pub number: u64,
    /// The plan for it.
    pub plan: Plan,
}

/// The plan for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// No plan.
    Stays,
    /// Its primary is to give it back, and then this node gets it; `None` if no node does.
    Taken(Option<NodeId>),
}

/// Consecutive partitions with the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The group.
    pub group: GroupName,
    /// The indices of the partitions.
    pub range: core::ops::Range<u32>,
    /// The state of each of them.
    pub partition: Partition,
}

/// A node, as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeHealth {
    /// Its name.
    pub node: NodeId,
    /// The session by which it is up.
    pub up: Option<SessionId>,
    /// True if it is drained.
    pub drained: bool,
    /// The number of partitions of which it is the primary.
    pub primary_of: u32,
    /// The number of these that are being taken back from it.
    pub gives_back: u32,
    /// The number of partitions that are being taken back from other nodes for it.
    pub awaits: u32,
}

/// A group, as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSize {
    /// The number of its partitions.
    pub count: u32,
    /// The number of partitions without a primary.
    pub free: u32,
    /// The number of partitions that are being taken back.
    pub taken: u32,
    /// True if it is to go.
    pub ending: bool,
}

impl NodeIndex {
    fn of(index: usize) -> Self {
        let number = u16::try_from(index + 1).ok().and_then(NonZeroU16::new);
        Self(number.expect("there are no more than NODES_MAX nodes"))
    }

    fn index(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

impl Slot {
    const FREE: Self = Self { number: 0, primary: None, next: Next::Stays };

    /// The primary after the plan is completed.
    fn owner(&self) -> Option<NodeIndex> {
        match self.next {
            Next::Stays => self.primary,
            Next::Taken(next) => next,
        }
    }

    /// Sets the primary.
    fn give(&mut self, primary: NodeIndex, number: u64) {
        *self = Self { number, primary: Some(primary), next: Next::Stays };
    }

    /// Removes the primary.
    fn free(&mut self) {
        *self = Self { primary: None, next: Next::Stays, ..*self };
    }
}

impl Node {
    fn may_get(&self) -> bool {
        self.up.is_some() && !self.drained
    }
}

impl Group {
    fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("no more than PARTITIONS_MAX")
    }
}

impl Partitions {
    /// The number of commands and ends of sessions that have changed anything. If it has grown, there are new changes
    /// to watch.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// The session by which a node is up.
    #[must_use]
    pub fn session_of(&self, node: NodeId) -> Option<SessionId> {
        self.place(node).and_then(|place| self.nodes[place.index()].up).map(|up| up.session)
    }

    /// The incarnation of a node that is up.
    #[must_use]
    pub fn life_of(&self, node: NodeId) -> Option<Incarnation> {
        self.place(node).and_then(|place| self.nodes[place.index()].up).map(|up| up.incarnation)
    }

    /// All sessions by which nodes are up, and their times to live.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, Duration)> {
        self.nodes.iter().filter_map(|node| node.up).map(|up| (up.session, up.time_to_live))
    }

    /// The time to live of this session, if a node is up by it.
    #[must_use]
    pub fn time_to_live(&self, session: SessionId) -> Option<Duration> {
        self.sessions().find(|&(other, _)| other == session).map(|(_, time_to_live)| time_to_live)
    }

    /// One partition.
    #[must_use]
    pub fn partition(&self, group: &GroupName, index: u32) -> Option<Partition> {
        let slot = self.groups.get(group)?.slots.get(usize::try_from(index).ok()?)?;
        Some(self.seen(*slot))
    }

    /// All partitions of a group, in their order; none if there is no such group.
    pub fn runs(&self, group: &GroupName) -> impl Iterator<Item = Run> {
        self.groups.get_key_value(group).into_iter().flat_map(|(name, group)| self.runs_of(name, group))
    }

    /// All partitions of which this node is the primary, group by group, each in their order.
    #[must_use]
    pub fn runs_with_primary(&self, node: NodeId) -> Vec<Run> {
        let Some(place) = self.place(node) else { return Vec::new() };
        let of = |group: &Group| group.slots.iter().any(|slot| slot.primary == Some(place));
        let groups = self.groups.iter().filter(|(_, group)| of(group));
        let runs = groups.flat_map(|(name, group)| self.runs_of(name, group));
        runs.filter(|run| run.partition.primary == Some(node)).collect()
    }

    fn runs_of<'a>(&'a self, name: &'a GroupName, group: &'a Group) -> impl Iterator<Item = Run> + 'a {
        let mut from = 0;
        group.slots.chunk_by(|one, next| one == next).map(move |alike| {
            let end = from + u32::try_from(alike.len()).expect("no more than PARTITIONS_MAX");
            let range = core::mem::replace(&mut from, end)..end;
            Run { group: name.clone(), range, partition: self.seen(alike[0]) }
        })
    }

    /// The groups, in the order of their names.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&GroupName, GroupSize)> {
        self.groups.iter().map(|(name, group)| {
            let count = |which: fn(&Slot) -> bool| {
                let some = group.slots.iter().filter(|slot| which(slot)).count();
                u32::try_from(some).expect("no more than PARTITIONS_MAX")
            };
            let free = count(|slot| slot.primary.is_none());
            let taken = count(|slot| slot.next != Next::Stays);
            (name, GroupSize { count: group.count(), free, taken, ending: group.ending })
        })
    }

    /// The nodes that are up or drained, in the order of their names.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHealth> {
        let health = |node: &Node| NodeHealth {
            node: node.name,
            up: node.up.map(|up| up.session),
            drained: node.drained,
            primary_of: 0,
            gives_back: 0,
            awaits: 0,
        };
        let mut nodes: Vec<NodeHealth> = self.nodes.iter().map(health).collect();
        for slot in self.groups.values().flat_map(|group| &group.slots) {
            if let Some(primary) = slot.primary {
                nodes[primary.index()].primary_of += 1;
                nodes[primary.index()].gives_back += u32::from(slot.next != Next::Stays);
            }
            if let Next::Taken(Some(next)) = slot.next {
                nodes[next.index()].awaits += 1;
            }
        }
        nodes
    }

    /// The size of all nodes, groups and partitions, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let length = |length: usize| u64::try_from(length).expect("a length fits");
        length(self.nodes.len()) * NODE_BYTES
            + length(self.groups.len()) * GROUP_BYTES
            + u64::from(self.count) * PARTITION_BYTES
    }

    /// The most bytes by which a command increases [`Self::bytes`].
    pub(super) fn bytes_of(command: &Command) -> u64 {
        match command {
            Command::Create { count, .. } => GROUP_BYTES + u64::from(*count) * PARTITION_BYTES,
            Command::Join { .. } | Command::Drain { .. } => NODE_BYTES,
            Command::Leave { .. } | Command::Release { .. } | Command::Drop { .. } => 0,
            Command::Undrain { .. } | Command::Move { .. } => 0,
        }
    }

    fn seen(&self, slot: Slot) -> Partition {
        let name = |place: NodeIndex| self.nodes[place.index()].name;
        let plan = match slot.next {
            Next::Stays => Plan::Stays,
            Next::Taken(next) => Plan::Taken(next.map(name)),
        };
        Partition { primary: slot.primary.map(name), number: slot.number, plan }
    }

    fn place(&self, node: NodeId) -> Option<NodeIndex> {
        self.nodes.binary_search_by_key(&node, |node| node.name).ok().map(NodeIndex::of)
    }

    fn place_of_session(&self, session: SessionId) -> Option<NodeIndex> {
        let has = |node: &Node| node.up.is_some_and(|up| up.session == session);
        self.nodes.iter().position(has).map(NodeIndex::of)
    }
}

#[cfg(test)]
mod tests;
