//! The voters in a replicated log: names and addresses, with a number that orders the sets.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use primacy_core::id::NodeId;
use primacy_core::term::LeaderSequence;

/// A set of voters.
///
/// The number is that of the last record that states the set, so the newer of two sets is the one with the higher
/// number. A set from a configuration has the number [`LeaderSequence::NONE`], so every set in a log is newer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Voters {
    /// The record that states it.
    pub number: LeaderSequence,
    /// The voters, each with the address at which the others reach it. The state machines do not interpret addresses.
    pub members: BTreeMap<NodeId, Arc<str>>,
}

impl Voters {
    /// The number of voters.
    #[must_use]
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// True if this node votes.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> BTreeSet<NodeId> {
        self.members.keys().copied().collect()
    }

    /// The same voters, stated by another record.
    #[must_use]
    pub fn restated(&self, number: LeaderSequence) -> Self {
        Self { number, members: self.members.clone() }
    }
}
