//! Ring (Chang and Roberts 1979): a probe that travels around the ring carries the highest name that it has met.
//! Assumes   a ring on which each node reaches the next one that is alive; crashes, not partitions.
//! Promises  at most one leader *only while that holds*; a partition elects two. No token.
//! Costs     with all n nodes starting, n·Hₙ probes on the average over all rings, 2n − 1 at best, n(n + 1)/2 at worst; and n
//!           messages to announce the leader. Each heartbeat is n messages.   Prefer `quorum`; or let one confirm it.
//!
//! A node that misses the leader sends a probe with its own name. A node passes on a probe with a higher name than its
//! own; it replaces the first lower name by its own, and drops later ones. A node that receives its own name has the
//! highest one, and [announces it](super::on_a_ring).

use alloc::vec;
use alloc::vec::Vec;

use super::ElectionDescriptor;
use super::on_a_ring::{OnARing, ProbeOutcome, Probing, RingPosition};
use crate::id::Identity;
use crate::neighbours::Direction;

/// The facts about this election.
pub const DESCRIPTOR: ElectionDescriptor = ElectionDescriptor {
    name: "ring",
    choose_when: "to learn, or to nominate",
    guarantee: "advisory: two leaders in a partition, no token",
    is_fenced: false,
};

/// The state machine of one node.
pub type Ring = OnARing<ChangRoberts>;

/// A node's state of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangRoberts {
    /// True if it has sent its own name, or passed on a higher one, and so cannot win.
    takes_part: bool,
}

/// The highest name so far, of bounded size: an identity and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    /// The node that has the name.
    pub candidate: Identity,
    /// The number of nodes that have passed it on; below the number of nodes.
    pub hops: u32,
}

impl Probing for ChangRoberts {
    type Probe = Probe;

    /// One until the node with the highest name takes part, and one for its name.
    const TURNS: u64 = 2;

    fn takes_part(&self) -> bool {
        self.takes_part
    }

    fn candidate(probe: &Probe) -> Identity {
        probe.candidate
    }

    fn begin(&mut self, me: Identity) -> Vec<(Direction, Probe)> {
        self.takes_part = true;
        vec![(Direction::Onward, Probe { candidate: me, hops: 0 })]
    }

    fn take(&mut self, at: RingPosition, direction: Direction, probe: Probe) -> ProbeOutcome<Probe> {
        let Probe { candidate, hops } = probe;
        if candidate.node == at.me.node {
            // A name that was sent by an earlier incarnation, or before the node withdrew, elects no node.
            if candidate == at.me && at.campaigns {
                ProbeOutcome::Highest
            } else {
                ProbeOutcome::Send(Vec::new())
            }
        } else if candidate.node > at.me.node || !at.campaigns {
            self.takes_part = true;
            // A probe that has passed as many nodes as the ring has is dropped: its candidate is gone.
            let hops = hops.saturating_add(1);
            let goes_on = (hops as usize) < at.count;
            ProbeOutcome::Send(
                goes_on.then_some((direction, Probe { candidate, hops })).into_iter().collect(),
            )
        } else if self.takes_part {
            ProbeOutcome::Send(Vec::new()) // Its own name is on the way, or a higher one.
        } else {
            ProbeOutcome::Send(self.begin(at.me)) // In place of the lower one.
        }
    }
}

#[cfg(test)]
mod tests;
