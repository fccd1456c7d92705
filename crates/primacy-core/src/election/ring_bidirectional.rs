//! Bidirectional ring (Hirschberg and Sinclair 1980): each candidate asks ever larger neighbourhoods on both sides.
//! Assumes   a ring on which each node reaches the next one that is alive, both ways; crashes, not partitions.
//! Promises  at most one leader *only while that holds*; a partition elects two. No token.
//! Costs     at most 8n(1 + ⌈log₂ n⌉) messages, whichever nodes start and however the names lie; and n to announce the
//!           leader. Each heartbeat is n messages.   Prefer `quorum`; or let one confirm it.
//!
//! In phase k a candidate sends its name 2ᵏ nodes far in both directions. A node with a higher name drops it; the last
//! node that it reaches sends an answer back. With answers from both sides the candidate enters the next phase. A node
//! that its own name reaches from the other side has the highest one, and [announces it](super::on_a_ring).

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::ElectionDescriptor;
use super::on_a_ring::{OnARing, ProbeOutcome, Probing, RingPosition};
use crate::id::Identity;
use crate::neighbours::Direction;

/// The facts about this election.
pub const DESCRIPTOR: ElectionDescriptor = ElectionDescriptor {
    name: "ring-bidirectional",
    choose_when: "to learn, or to nominate",
    guarantee: "advisory: two leaders in a partition, no token",
    is_fenced: false,
};

/// The state machine of one node.
pub type RingBidirectional = OnARing<HirschbergSinclair>;

/// A node's state of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HirschbergSinclair {
    /// The phase of its own candidacy; `None` if it has not sent its name.
    phase: Option<u32>,
    /// The directions from which answers of this phase have arrived.
    answered: BTreeSet<Direction>,
}

/// A message of the search, of bounded size: an identity and two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// A question: "Is there a higher name here?"
    Out {
        /// The node that asks.
        candidate: Identity,
        /// The phase; at most [`PHASE_MAX`].
        phase: u32,
        /// The number of nodes that it has still to reach; at most 2 to the power of the phase.
        left: u32,
    },
    /// The answer: "None on this side, as far as you have asked."
    Back {
        /// The node that has asked.
        candidate: Identity,
        /// The phase; at most [`PHASE_MAX`].
        phase: u32,
        /// The number of nodes that it may still pass on its way back; at first as many as the question reached.
        left: u32,
    },
}

/// The last phase: 2³¹ nodes on each side are more than any ring has.
pub const PHASE_MAX: u32 = 31;

impl Probing for HirschbergSinclair {
    type Probe = Probe;

    /// One until the node with the highest name takes part; below four for its phases, there and back 1 + 2 + 4 + …
    /// nodes; and one for the last question around the ring.
    const TURNS: u64 = 6;

    fn begin(&mut self, me: Identity) -> Vec<(Direction, Probe)> {
        self.ask(me, 0)
    }

    fn takes_part(&self) -> bool {
        self.phase.is_some()
    }

    fn candidate(probe: &Probe) -> Identity {
        match *probe {
            Probe::Out { candidate, .. } | Probe::Back { candidate, .. } => candidate,
        }
    }

    fn take(&mut self, at: RingPosition, direction: Direction, probe: Probe) -> ProbeOutcome<Probe> {
        match probe {
            // A name that was sent by an earlier incarnation, or before the node withdrew, elects no node.
            Probe::Out { candidate, .. } | Probe::Back { candidate, .. }
                if candidate.node == at.me.node && !(candidate == at.me && at.campaigns) =>
            {
                ProbeOutcome::Send(Vec::new())
            }
            Probe::Out { candidate, .. } if candidate == at.me => ProbeOutcome::Highest,
            Probe::Out { candidate, phase, left } if candidate.node > at.me.node || !at.campaigns => {
                ProbeOutcome::Send(vec![pass(direction, candidate, phase, left, at.count)])
            }
            // Its own name is on the way.
            Probe::Out { .. } if self.phase.is_some() => ProbeOutcome::Send(Vec::new()),
            Probe::Out { .. } => ProbeOutcome::Send(self.begin(at.me)), // In place of the lower one.
            Probe::Back { candidate, phase, .. } if candidate == at.me => {
                ProbeOutcome::Send(self.on_answer(at.me, direction, phase))
            }
            Probe::Back { left: 0 | 1, .. } => ProbeOutcome::Send(Vec::new()), // Its candidate is not there any more.
            Probe::Back { candidate, phase, left } => {
                let left = left.min(reach(phase)) - 1;
                ProbeOutcome::Send(vec![(direction, Probe::Back { candidate, phase, left })])
            }
        }
    }
}

/// The number of nodes that a candidate asks on each side.
const fn reach(phase: u32) -> u32 {
    1 << if phase < PHASE_MAX { phase } else { PHASE_MAX }
}

/// Passes a question on, or answers it if this is the last node that it reaches.
fn pass(
    direction: Direction,
    candidate: Identity,
    phase: u32,
    left: u32,
    count: usize,
) -> (Direction, Probe) {
    // No honest question travels around the ring twice.
    let left =
        left.min(reach(phase)).min(u32::try_from(count).map_or(u32::MAX, |count| count.saturating_mul(2)));
    if left > 1 {
        (direction, Probe::Out { candidate, phase, left: left - 1 })
    } else {
        (direction.opposite(), Probe::Back { candidate, phase, left: reach(phase) })
    }
}

impl HirschbergSinclair {
    fn ask(&mut self, me: Identity, phase: u32) -> Vec<(Direction, Probe)> {
        self.phase = Some(phase);
        self.answered.clear();
        let probe = Probe::Out { candidate: me, phase, left: reach(phase) };
        vec![(Direction::Onward, probe), (Direction::Back, probe)]
    }

    fn on_answer(&mut self, me: Identity, direction: Direction, phase: u32) -> Vec<(Direction, Probe)> {
        if self.phase != Some(phase) || phase >= PHASE_MAX {
            return Vec::new(); // Of a phase that is over.
        }
        self.answered.insert(direction);
        if self.answered.len() == 2 { self.ask(me, phase + 1) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests;
