//! The voters, where they may change: as each node counts them, possibly by an old record.

use std::collections::BTreeSet;

use primacy_core::{LeaderSequence, NodeId};

use super::World;
use crate::algorithm::{Algorithm, metadata};
use crate::process_slot::ProcessSlot;

impl<A: Algorithm> World<A> {
    /// The voters that a node counts, or would count if it ran; all nodes, where voters do not change.
    #[must_use]
    pub fn voters_of(&self, slot: ProcessSlot) -> BTreeSet<NodeId> {
        self.numbered_voters_of(slot).1
    }

    /// True if a node votes, by its own list of voters.
    #[must_use]
    pub fn votes(&self, slot: ProcessSlot) -> bool {
        self.voters_of(slot).contains(&self.node(slot).name)
    }

    /// Returns the newest voters that any node counts; all nodes, where voters do not change.
    #[must_use]
    pub fn newest_voters(&self) -> BTreeSet<NodeId> {
        let all = self.slots().map(|slot| self.numbered_voters_of(slot));
        all.max_by_key(|(number, _)| *number).map(|(_, voters)| voters).unwrap_or_default()
    }

    fn numbered_voters_of(&self, slot: ProcessSlot) -> (LeaderSequence, BTreeSet<NodeId>) {
        let machine = self.process(slot).map(|process| metadata::<A>(&process.machine));
        let counted = match machine {
            Some(None) => {
                return (LeaderSequence::NONE, self.slots().map(|slot| self.node(slot).name).collect());
            }
            Some(Some(machine)) => Some(machine.replica().voters()),
            None => {
                self.node(slot).disk.contents.as_ref().and_then(|contents| (A::REPLICATION?.voters)(contents))
            }
        };
        let configured = || (LeaderSequence::NONE, self.node(slot).voters.clone());
        counted.map_or_else(configured, |voters| (voters.number, voters.names()))
    }
}
