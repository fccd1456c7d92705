//! Who belongs to a cluster: members with their ages, in views that a coordinator numbers.
//!
//! It is the membership of Joshi's "Emergent Leader", with what that leaves open decided: an age is never given twice, a view
//! of another coordinator is never mistaken for a later one of the same, and what becomes of two parts that have lost each other
//! is a [`Policy`], and not an accident. Nothing here sends or waits; [`seniority`](crate::election) does.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::id::{Identity, NodeId};
use crate::majority;
use crate::term::Term;

/// How long ago a member joined, compared with others: a smaller number is older. Given once in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age(pub u64);

/// One process life that belongs to the cluster. Who comes back after a crash is another one, and the youngest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// How old.
    pub age: Age,
    /// Who.
    pub identity: Identity,
}

/// The number of a view.
///
/// Each coordinator has an epoch of its own, above all that it has heard of, and numbers its views from 1. Two parts of a cluster
/// that have lost each other may come to the same epoch; then the name of the coordinator tells them apart, so that any two
/// views are ordered in the same way by everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewVersion {
    /// The coordinator's epoch.
    pub epoch: Term,
    /// Who coordinates. Of two in one epoch, the one with the smaller name comes first.
    pub coordinator: NodeId,
    /// How many views this coordinator has made in this epoch.
    pub number: u64,
}

/// The members as a coordinator has decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// Its number.
    pub version: ViewVersion,
    /// Those who belong to it, the oldest first. Never empty.
    members: Vec<Member>,
    /// Those who were removed and have not come back: a coordinator goes on asking for them.
    removed: BTreeSet<NodeId>,
    /// The age of whoever joins next.
    next_age: Age,
}

/// What becomes of the parts of a cluster that have lost each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The part with most of the members goes on; of two halves, the one with the smallest name.
    #[default]
    KeepMajority,
    /// A part of at least this many goes on. With more than twice as many members less one, two parts may.
    StaticQuorum(usize),
    /// The part with the oldest member goes on, however small it is.
    KeepOldest,
    /// The part that is given a lease in a store goes on. Asked for by the larger part first.
    Lease,
    /// Every part goes on. There are two leaders until they meet again.
    Available,
}

/// What a part shall do that has lost the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It goes on without the others.
    GoesOn,
    /// It stops.
    Stops,
    /// It goes on if it is given the lease; the smaller part waits before it asks.
    AsksForLease {
        /// Whether it is the smaller one.
        waits: bool,
    },
}

impl View {
    /// The first view of a cluster, with its first member alone.
    #[must_use]
    pub fn founded_by(first: Identity) -> Self {
        let version = ViewVersion { epoch: Term(1), coordinator: first.node, number: 1 };
        let members = alloc::vec![Member { age: Age(1), identity: first }];
        Self { version, members, removed: BTreeSet::new(), next_age: Age(2) }
    }

    /// The members, the oldest first.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Those who were removed and have not come back.
    #[must_use]
    pub const fn removed(&self) -> &BTreeSet<NodeId> {
        &self.removed
    }

    /// The oldest member.
    ///
    /// # Panics
    /// Never: a view has members.
    #[must_use]
    pub fn oldest(&self) -> Member {
        *self.members.first().expect("a view has members")
    }

    /// This process life as a member.
    #[must_use]
    pub fn member(&self, identity: Identity) -> Option<Member> {
        self.members.iter().copied().find(|member| member.identity == identity)
    }

    /// The member of this name, whichever life of it belongs to the cluster.
    #[must_use]
    pub fn named(&self, node: NodeId) -> Option<Member> {
        self.members.iter().copied().find(|member| member.identity.node == node)
    }

    /// The next view, with one more member: the youngest. An earlier life of it is removed by that.
    #[must_use]
    pub fn with(&self, identity: Identity) -> Self {
        let mut next = self.next();
        next.members.retain(|member| member.identity.node != identity.node);
        next.removed.remove(&identity.node);
        next.members.push(Member { age: next.next_age, identity });
        next.next_age = Age(next.next_age.0 + 1);
        next
    }

    /// The next view, without these; `None` if nobody would be left.
    #[must_use]
    pub fn without(&self, gone: &BTreeSet<NodeId>) -> Option<Self> {
        let mut next = self.next();
        next.members.retain(|member| !gone.contains(&member.identity.node));
        next.removed.extend(gone.iter().filter(|&&node| self.named(node).is_some()));
        (!next.members.is_empty()).then_some(next)
    }

    /// The same members in a view of another coordinator, in an epoch above this one and above what else was heard of.
    #[must_use]
    pub fn taken_over_by(&self, coordinator: NodeId, heard_of: Term) -> Self {
        let epoch = self.version.epoch.max(heard_of).next();
        Self { version: ViewVersion { epoch, coordinator, number: 1 }, ..self.clone() }
    }

    fn next(&self) -> Self {
        let version = ViewVersion { number: self.version.number + 1, ..self.version };
        Self { version, ..self.clone() }
    }

    /// Whether this member is to claim the lead: all that are older than it are suspected. So one alone does when the
    /// coordinator dies, whoever else dies with it.
    #[must_use]
    pub fn is_next(&self, me: Identity, suspected: &BTreeSet<NodeId>) -> bool {
        let older = |me: &Member| {
            self.members.iter().take_while(|member| member.age < me.age).all(|member| suspected.contains(&member.identity.node))
        };
        self.member(me).as_ref().is_some_and(older)
    }

    /// What the part shall do of which these members are not.
    #[must_use]
    pub fn fate(&self, policy: Policy, lost: &BTreeSet<NodeId>) -> Fate {
        let (gone, here): (Vec<Member>, Vec<Member>) =
            self.members.iter().partition(|member| lost.contains(&member.identity.node));
        let by_name = |members: &[Member]| members.iter().map(|member| member.identity.node).min();
        let is_larger = match here.len().cmp(&gone.len()) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => by_name(&here) < by_name(&gone),
        };
        let goes_on = match policy {
            Policy::KeepMajority => is_larger,
            Policy::StaticQuorum(size) => here.len() >= size,
            Policy::KeepOldest => here.contains(&self.oldest()),
            Policy::Lease => return Fate::AsksForLease { waits: !is_larger },
            Policy::Available => true,
        };
        if goes_on { Fate::GoesOn } else { Fate::Stops }
    }

    /// Whether the part with this view joins that of the other one, when two parts meet again: the smaller one does; of two that
    /// are as large, the one with the earlier version. So one of the two does, and never both.
    #[must_use]
    pub fn joins(&self, other_members: usize, other: ViewVersion) -> bool {
        (self.members.len(), self.version) < (other_members, other)
    }
}

impl Policy {
    /// Whether two parts of so many members may go on at the same time.
    #[must_use]
    pub const fn allows_two(self, members: usize) -> bool {
        match self {
            // Both count the members of the last view that they had together.
            Self::KeepMajority | Self::KeepOldest | Self::Lease => false,
            Self::StaticQuorum(size) => size < majority::needed(members),
            Self::Available => members > 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;

    fn life(name: &str, count: u64) -> Identity {
        Identity::new(NodeId::new(name).unwrap(), Incarnation { count, nonce: 0 })
    }

    fn names<const COUNT: usize>(names: [&str; COUNT]) -> BTreeSet<NodeId> {
        names.map(|name| NodeId::new(name).unwrap()).into()
    }

    fn cluster<const COUNT: usize>(names: [&str; COUNT]) -> View {
        let first = View::founded_by(life(names[0], 1));
        names[1..].iter().fold(first, |view, name| view.with(life(name, 1)))
    }

    const FIVE: [&str; 5] = ["athens", "byzantium", "cyrene", "delphi", "euphesus"];

    #[test]
    fn ages_are_given_once() {
        let view = cluster(["athens", "byzantium", "cyrene"]);
        let ages: Vec<u64> = view.members().iter().map(|member| member.age.0).collect();
        assert_eq!((ages, view.version.number), (alloc::vec![1, 2, 3], 3));
        // The youngest leaves, and another comes: it is younger than that one was.
        let view = view.without(&names(["cyrene"])).unwrap().with(life("delphi", 1));
        assert_eq!(view.named(NodeId::new("delphi").unwrap()).unwrap().age, Age(4));
        assert_eq!(*view.removed(), names(["cyrene"]));
        let view = view.with(life("cyrene", 2));
        assert_eq!((view.member(life("cyrene", 1)), view.removed().len()), (None, 0));
        assert_eq!(view.member(life("cyrene", 2)).unwrap().age, Age(5));
        // Back before anybody has missed it.
        let view = view.with(life("athens", 2));
        assert_eq!((view.oldest().identity, view.members().len()), (life("byzantium", 1), 4));
    }

    #[test]
    fn one_alone_claims_the_lead_whoever_has_died() {
        let view = cluster(FIVE);
        let claims = |suspected: &BTreeSet<NodeId>| -> Vec<&str> {
            let here = FIVE.iter().filter(|name| !suspected.contains(&NodeId::new(name).unwrap()));
            here.filter(|name| view.is_next(life(name, 1), suspected)).copied().collect()
        };
        assert_eq!(claims(&names(["athens"])), ["byzantium"]);
        // By the article's rule nobody would.
        assert_eq!(claims(&names(["athens", "euphesus"])), ["byzantium"]);
        assert_eq!(claims(&names(["athens", "byzantium", "cyrene"])), ["delphi"]);
        assert_eq!(claims(&names(["cyrene"])), ["athens"]);
        assert!(!view.is_next(life("byzantium", 2), &names(["athens"])), "another life is no member");
    }

    #[test]
    fn of_two_parts_one_goes_on_unless_the_policy_lets_both() {
        for count in 2..=5 {
            let view = FIVE[1..count].iter().fold(View::founded_by(life(FIVE[0], 1)), |view, name| view.with(life(name, 1)));
            for parts in 1..(1_u32 << count) - 1 {
                let part = |side: bool| -> BTreeSet<NodeId> {
                    let inside = (0..count).filter(|&place| ((parts >> place) & 1 == 1) == side);
                    inside.map(|place| NodeId::new(FIVE[place]).unwrap()).collect()
                };
                let fates = |policy| (view.fate(policy, &part(true)), view.fate(policy, &part(false)));
                for policy in [Policy::KeepMajority, Policy::KeepOldest] {
                    let one = matches!(fates(policy), (Fate::GoesOn, Fate::Stops) | (Fate::Stops, Fate::GoesOn));
                    assert!(one && !policy.allows_two(count), "{policy:?} {parts:b} of {count}");
                }
                let (one, other) = fates(Policy::Lease);
                assert_ne!(one, other, "one of them asks first");
                assert_eq!(fates(Policy::Available), (Fate::GoesOn, Fate::GoesOn));
                let both = fates(Policy::StaticQuorum(2)) == (Fate::GoesOn, Fate::GoesOn);
                assert!(!both || Policy::StaticQuorum(2).allows_two(count));
                assert_ne!(fates(Policy::StaticQuorum(3)), (Fate::GoesOn, Fate::GoesOn), "of five or fewer");
            }
        }
    }

    #[test]
    fn of_two_halves_one_joins_the_other_and_never_both() {
        let view = cluster(["athens", "byzantium", "cyrene", "delphi"]);
        let old = view.without(&names(["cyrene", "delphi"])).unwrap();
        let cyrene = NodeId::new("cyrene").unwrap();
        let new = view.taken_over_by(cyrene, Term(1)).without(&names(["athens", "byzantium"])).unwrap();
        assert!(old.joins(2, new.version) && !new.joins(2, old.version));
        assert!(!old.joins(1, new.version) && new.joins(3, old.version), "the smaller one, else");
        // After that the epoch is above both.
        let together = new.taken_over_by(cyrene, old.version.epoch);
        assert!(together.version > new.version && together.version > old.version);
        assert_eq!(old.without(&names(["athens", "byzantium"])), None);
    }
}
