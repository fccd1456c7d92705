//! The membership of a cluster: members with their ages, in views that a coordinator numbers.
//!
//! It is the membership of Joshi's "Emergent Leader", with its open questions decided: a coordinator gives each age
//! once, and the ages in a view are distinct; views of different coordinators have different numbers; and a [`Policy`]
//! decides which parts of a split cluster go on. Nothing here sends or waits; [`seniority`](crate::election::seniority)
//! does.

mod attributes;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::{Ordering, Reverse};
use core::fmt;

pub use self::attributes::{Attributes, AttributesError};
use crate::fence::FencingToken;
use crate::id::{Identity, NodeId};
use crate::majority;
use crate::term::Term;

/// The highest number of members of a cluster. A node that asks to join a full one is refused.
pub const MEMBERS_MAX: usize = 1_024;

/// The highest number of removed nodes that a view remembers.
pub const REMOVED_MAX: usize = 1_024;

/// The limit on the terms, view numbers and ages of honest coordinators. A higher number is refused, because it leaves
/// no room for later ones.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// The age of a member: the smaller number is older. A coordinator gives each age once; two coordinators that do not
/// hear each other may give the same age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age(pub u64);

impl Age {
    /// The youngest age that can be given.
    pub const MAX: Self = Self(NUMBER_MAX);
}

/// An incarnation that belongs to the cluster. A node that restarts after a crash joins as a new member, the youngest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The age.
    pub age: Age,
    /// The node and its incarnation.
    pub identity: Identity,
    /// The number of its joining in this incarnation, counted from 1: a node that has left and joins again is a new
    /// member.
    pub joining: u64,
    /// The attributes that it reports.
    pub attributes: Arc<Attributes>,
}

/// The number of a view.
///
/// Each coordinator takes a term above all that it has heard of, and numbers its views from 1. The coordinators of two
/// parts that have lost each other may take the same term; then their names decide, so that all nodes order any two
/// views alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewVersion {
    /// The coordinator's term.
    pub term: Term,
    /// The coordinator. Of two in one term, the one with the smaller name comes first.
    pub coordinator: Identity,
    /// The number of views that this coordinator has made in this term.
    pub number: u64,
}

/// The identity of a cluster: its founding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cluster {
    /// The incarnation that has founded it.
    pub founder: Identity,
    /// The number of its joining at that time.
    pub joining: u64,
}

/// The members of a cluster, as a coordinator has decided them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    cluster: Cluster,
    version: ViewVersion,
    /// The members, the oldest first. Never empty.
    members: Vec<Member>,
    removed: BTreeSet<NodeId>,
    next_age: Age,
    decision: FencingToken,
}

/// The summary of a view that most messages carry: enough to identify the view, and to tell which of two parts is the
/// larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sight {
    /// The cluster.
    pub cluster: Cluster,
    /// The number of the view.
    pub version: ViewVersion,
    /// The number of its members.
    pub members: u32,
    /// The last decision of the store, where one decides; otherwise 0.
    pub decision: FencingToken,
}

/// All parts of a view, as they are read from bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewParts {
    /// The cluster.
    pub cluster: Cluster,
    /// The number of the view.
    pub version: ViewVersion,
    /// The members, the oldest first.
    pub members: Vec<Member>,
    /// The nodes that were removed and have not come back.
    pub removed: BTreeSet<NodeId>,
    /// The age of the next node that joins.
    pub next_age: Age,
    /// The last decision of the store, where one decides; otherwise 0.
    pub decision: FencingToken,
}

/// The reason why parts read from bytes are refused as a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewError {
    /// It has no members, or more than [`MEMBERS_MAX`].
    Members(usize),
    /// More than [`REMOVED_MAX`] were removed.
    Removed(usize),
    /// A name occurs twice, or the ages are not strictly increasing and below `next_age`.
    Order(NodeId),
    /// The coordinator is not the oldest.
    Coordinator(NodeId),
    /// A number is larger than any honest coordinator's.
    Number(u64),
}

/// Error: no age is left for a node that asks to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgesRunOut {
    /// The youngest age that may be given, which has been given already.
    pub last: Age,
}

/// Error: a request is refused, because this part of the cluster has too few members to serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TooFewMembers {
    /// The number of members; 0 if this node is not a member itself.
    pub members: usize,
    /// The number of members that are needed.
    pub minimum: usize,
}

/// The rule that decides which parts of a split cluster go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The part with more than half of the members goes on; of two halves, the one with the smallest name.
    #[default]
    KeepMajority,
    /// A part with at least this many members goes on. In a cluster of twice as many members or more, two parts may.
    StaticQuorum(usize),
    /// The part with the oldest member goes on, however small it is. If the oldest member is alone and has lost at
    /// least two, the others go on instead; otherwise its crash would stop them all.
    KeepOldest,
    /// The part that first writes its claim to the store goes on. The larger part asks at once, the smaller one later.
    Lease,
    /// Every part goes on. There is a leader in each until the parts merge.
    Available,
}

/// Writes the policy as options and configuration files name it, without the store of [`Lease`](Policy::Lease).
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeepMajority => f.write_str("keep-majority"),
            Self::StaticQuorum(count) => write!(f, "static-quorum:{count}"),
            Self::KeepOldest => f.write_str("keep-oldest"),
            Self::Lease => f.write_str("lease"),
            Self::Available => f.write_str("available"),
        }
    }
}

/// The action of a part that has lost the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It goes on without the others.
    GoesOn,
    /// It stops.
    Stops,
    /// It goes on if the store chooses it.
    AsksStore {
        /// True if it is the smaller one, and waits before it asks.
        waits: bool,
    },
}

impl View {
    /// The first view of a cluster, with its first member alone.
    #[must_use]
    pub fn founded_by(
        first: Identity,
        joining: u64,
        attributes: Arc<Attributes>,
        decision: FencingToken,
    ) -> Self {
        let version = ViewVersion { term: Term(1), coordinator: first, number: 1 };
        let members = alloc::vec![Member { age: Age(1), identity: first, joining, attributes }];
        let cluster = Cluster { founder: first, joining };
        Self { cluster, version, members, removed: BTreeSet::new(), next_age: Age(2), decision }
    }

    /// Makes a view from its parts, and checks it.
    ///
    /// # Errors
    /// [`ViewError`] if the parts contradict each other or exceed a limit.
    pub fn new(parts: ViewParts) -> Result<Self, ViewError> {
        let ViewParts { cluster, version, members, removed, next_age, decision } = parts;
        let oldest = members
            .first()
            .filter(|_| members.len() <= MEMBERS_MAX)
            .ok_or(ViewError::Members(members.len()))?;
        if oldest.identity != version.coordinator {
            return Err(ViewError::Coordinator(version.coordinator.node));
        }
        if removed.len() > REMOVED_MAX {
            return Err(ViewError::Removed(removed.len()));
        }
        let numbers = [version.term.0, version.number, next_age.0.saturating_sub(1), decision.0];
        if let Some(&number) = numbers.iter().find(|&&number| number > NUMBER_MAX) {
            return Err(ViewError::Number(number));
        }
        let mut names = BTreeSet::new();
        let mut after = Age(0);
        for member in &members {
            if !names.insert(member.identity.node) || member.age <= after || member.age >= next_age {
                return Err(ViewError::Order(member.identity.node));
            }
            after = member.age;
        }
        Ok(Self { cluster, version, members, removed, next_age, decision })
    }

    /// All parts, to be written as bytes.
    #[must_use]
    pub fn parts(&self) -> ViewParts {
        let Self { cluster, version, members, removed, next_age, decision } = self.clone();
        ViewParts { cluster, version, members, removed, next_age, decision }
    }

    /// The cluster whose members it lists.
    #[must_use]
    pub const fn cluster(&self) -> Cluster {
        self.cluster
    }

    /// Its number.
    #[must_use]
    pub const fn version(&self) -> ViewVersion {
        self.version
    }

    /// The identity and the weight of this view.
    #[must_use]
    pub fn sight(&self) -> Sight {
        let members = u32::try_from(self.members.len()).expect("at most MEMBERS_MAX");
        Sight { cluster: self.cluster, version: self.version, members, decision: self.decision }
    }

    /// The members, the oldest first.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The nodes that were removed and have not come back. A coordinator continues to probe them.
    #[must_use]
    pub const fn removed(&self) -> &BTreeSet<NodeId> {
        &self.removed
    }

    /// The last decision of the store, where one decides.
    #[must_use]
    pub const fn decision(&self) -> FencingToken {
        self.decision
    }

    /// The age of the next node that joins.
    #[must_use]
    pub const fn next_age(&self) -> Age {
        self.next_age
    }

    /// The oldest member, which coordinates.
    ///
    /// # Panics
    /// Never: a view has members.
    #[must_use]
    pub fn oldest(&self) -> &Member {
        self.members.first().expect("a view has members")
    }

    /// The member that is this incarnation.
    #[must_use]
    pub fn member(&self, identity: Identity) -> Option<&Member> {
        self.members.iter().find(|member| member.identity == identity)
    }

    /// The member with this name, in any incarnation.
    #[must_use]
    pub fn named(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.identity.node == node)
    }

    /// The next view, with one more member, the youngest. It replaces a member of the same name.
    ///
    /// # Errors
    /// If ages above `last` would have to be given.
    pub fn with(
        &self,
        identity: Identity,
        joining: u64,
        attributes: Arc<Attributes>,
        last: Age,
    ) -> Result<Self, AgesRunOut> {
        if self.next_age > last.min(Age::MAX) {
            return Err(AgesRunOut { last });
        }
        let mut next = self.next();
        next.members.retain(|member| member.identity.node != identity.node);
        next.removed.remove(&identity.node);
        next.members.push(Member { age: next.next_age, identity, joining, attributes });
        next.next_age = Age(next.next_age.0 + 1);
        Ok(next)
    }

    /// The next view, without the members `gone`; `None` if no member would be left.
    #[must_use]
    pub fn without(&self, gone: &BTreeSet<NodeId>) -> Option<Self> {
        let mut next = self.next();
        next.members.retain(|member| !gone.contains(&member.identity.node));
        next.removed.extend(gone.iter().filter(|&&node| self.named(node).is_some()));
        while next.removed.len() > REMOVED_MAX {
            next.removed.pop_first();
        }
        (!next.members.is_empty()).then_some(next)
    }

    /// The same members in a view of a new coordinator, whose term is above this one and above `heard_of`.
    #[must_use]
    pub fn taken_over_by(&self, coordinator: Identity, heard_of: Term) -> Self {
        let term = self.version.term.max(heard_of).next();
        Self { version: ViewVersion { term, coordinator, number: 1 }, ..self.clone() }
    }

    /// The same, after this decision of the store.
    #[must_use]
    pub fn decided(self, decision: FencingToken) -> Self {
        Self { decision, ..self }
    }

    fn next(&self) -> Self {
        let version = ViewVersion { number: self.version.number + 1, ..self.version };
        Self { version, ..self.clone() }
    }

    /// True if this member is the next coordinator: all older members are lost. Exactly one member is, whichever others
    /// die with the coordinator.
    #[must_use]
    pub fn is_next(&self, me: Identity, lost: &BTreeSet<NodeId>) -> bool {
        let older = |me: &Member| {
            let mut older = self.members.iter().take_while(|member| member.age < me.age);
            older.all(|member| lost.contains(&member.identity.node))
        };
        self.member(me).is_some_and(older)
    }

    /// The action of the part that has lost the members `lost`.
    #[must_use]
    pub fn fate(&self, policy: Policy, lost: &BTreeSet<NodeId>) -> Fate {
        let (gone, here): (Vec<&Member>, Vec<&Member>) =
            self.members.iter().partition(|member| lost.contains(&member.identity.node));
        if gone.is_empty() {
            return Fate::GoesOn;
        }
        let by_name = |members: &[&Member]| members.iter().map(|member| member.identity.node).min();
        let is_larger = match here.len().cmp(&gone.len()) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => by_name(&here) < by_name(&gone),
        };
        let has_oldest = here.first().is_some_and(|member| member.age == self.oldest().age);
        let goes_on = match policy {
            Policy::KeepMajority => is_larger,
            Policy::StaticQuorum(size) => here.len() >= size,
            Policy::KeepOldest if has_oldest => here.len() > 1 || gone.len() == 1,
            Policy::KeepOldest => gone.len() == 1 && here.len() > 1,
            Policy::Lease => return Fate::AsksStore { waits: !is_larger },
            Policy::Available => true,
        };
        if goes_on { Fate::GoesOn } else { Fate::Stops }
    }
}

impl Sight {
    /// True if the part with this view joins the other part when the two meet again. The part with the lower decision
    /// of the store joins; then the smaller part; then the part with the lower term, or view number; then the part
    /// whose coordinator has the higher name. So exactly one of two parts joins the other.
    #[must_use]
    pub fn joins(&self, other: &Self) -> bool {
        let weight = |sight: &Self| {
            let ViewVersion { term, coordinator, number } = sight.version;
            (sight.decision, sight.members, term, number, Reverse(coordinator))
        };
        weight(self) < weight(other)
    }

    /// True if this is a later view of the same cluster than `other`.
    #[must_use]
    pub fn is_later_than(&self, other: &Self) -> bool {
        self.cluster == other.cluster && self.version > other.version
    }

    /// True if an honest coordinator can have made this view.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.version.term.0 <= NUMBER_MAX
            && self.version.number <= NUMBER_MAX
            && self.decision.0 <= NUMBER_MAX
            && (1..=MEMBERS_MAX as u64).contains(&u64::from(self.members))
    }
}

impl Policy {
    /// True if two parts of a cluster of `members` may go on at the same time.
    #[must_use]
    pub const fn allows_two(self, members: usize) -> bool {
        match self {
            // The two parts count the members of the same view: see `settled` in `election/seniority/coordinating.rs`.
            Self::KeepMajority | Self::KeepOldest | Self::Lease => false,
            Self::StaticQuorum(size) => size < majority::needed(members),
            Self::Available => members > 1,
        }
    }
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members(0) => f.write_str("a view has members; this one has none"),
            Self::Members(count) => {
                write!(f, "a view has at most {MEMBERS_MAX} members; this one has {count}")
            }
            Self::Removed(count) => {
                write!(
                    f,
                    "a view remembers at most {REMOVED_MAX} who were removed; this one remembers {count}"
                )
            }
            Self::Order(node) => write!(f, "{node} is in the view twice, or its age is out of order"),
            Self::Coordinator(node) => write!(f, "{node} has made the view, and is not its oldest member"),
            Self::Number(number) => write!(f, "{number} is larger than any number of a view, or any age"),
        }
    }
}

impl core::error::Error for ViewError {}

impl fmt::Display for AgesRunOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last.0;
        write!(
            f,
            "all ages up to {last} have been given; nobody can join until the cluster is stopped and founded anew"
        )
    }
}

impl core::error::Error for AgesRunOut {}

impl fmt::Display for TooFewMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, minimum } = self;
        write!(
            f,
            "the cluster has {members} members here, and needs {minimum} to serve this; ask again when more have joined"
        )
    }
}

impl core::error::Error for TooFewMembers {}
