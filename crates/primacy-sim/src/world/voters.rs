//! The voters, where they may change: as each node counts them, perhaps by an old record.

use std::collections::BTreeSet;

use primacy_core::{LeaderSequence, NodeId};

use super::World;
use crate::algorithm::Algorithm;
use crate::seat::Seat;

impl<A: Algorithm> World<A> {
    /// The voters that a node counts, or would count if it ran; all nodes, where voters do not change.
    #[must_use]
    pub fn voters_of(&self, seat: Seat) -> BTreeSet<NodeId> {
        self.numbered_voters_of(seat).1
    }

    /// True if a node votes, as far as it knows itself.
    #[must_use]
    pub fn votes(&self, seat: Seat) -> bool {
        self.voters_of(seat).contains(&self.node(seat).name)
    }

    /// The newest voters that any node counts; all nodes, where voters do not change.
    #[must_use]
    pub fn newest_voters(&self) -> BTreeSet<NodeId> {
        let all = self.seats().map(|seat| self.numbered_voters_of(seat));
        all.max_by_key(|(number, _)| *number).map(|(_, voters)| voters).unwrap_or_default()
    }

    fn numbered_voters_of(&self, seat: Seat) -> (LeaderSequence, BTreeSet<NodeId>) {
        let machine = self.process(seat).map(|process| A::metadata(&process.machine));
        let counted = match machine {
            Some(None) => {
                return (LeaderSequence::NONE, self.seats().map(|seat| self.node(seat).name).collect());
            }
            Some(Some(machine)) => Some(machine.replica().voters()),
            None => self.node(seat).disk.slot.as_ref().and_then(A::voters),
        };
        let configured = || (LeaderSequence::NONE, self.node(seat).voters.clone());
        counted.map_or_else(configured, |voters| (voters.number, voters.names()))
    }
}
