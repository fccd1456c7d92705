//! Bidirectional ring (Hirschberg and Sinclair 1980): each candidate asks ever larger neighbourhoods on both sides.
//! Assumes   a ring on which everybody reaches the next one that is alive, both ways; crashes, not partitions.
//! Promises  at most one leader *only while that holds*; a partition elects two. No token.
//! Costs     at most 8n(1 + ⌈log₂ n⌉) messages, whoever starts and however the names lie; and n to announce the leader. Each
//!           heartbeat is n messages.   Prefer `quorum`; or let one confirm it.
//!
//! How it goes: in phase k a candidate sends its name 2ᵏ nodes far in both directions. A node with a higher name swallows it; the
//! last node that it reaches sends an answer back. With answers from both sides the candidate goes into the next phase. A node
//! that its own name comes back to, from the other side, has the highest one, and [says so](super::on_a_ring).

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::on_a_ring::{Found, OnARing, Place, Probing};
use crate::id::Identity;
use crate::neighbours::Direction;

/// The machine of one node.
pub type RingBidirectional = OnARing<HirschbergSinclair>;

/// What a node remembers of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HirschbergSinclair {
    /// The phase that it is in with its own name; `None` if that has not left it.
    phase: Option<u32>,
    /// From which sides the answers of that phase have come.
    answered: BTreeSet<Direction>,
}

/// What goes around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// "Is anybody here with a higher name?"
    Out {
        /// Whose name it is.
        candidate: Identity,
        /// In which phase.
        phase: u32,
        /// How many nodes it is still to reach.
        left: u32,
    },
    /// "Nobody on this side, as far as you have asked."
    Back {
        /// Who has asked.
        candidate: Identity,
        /// In which phase.
        phase: u32,
        /// How many nodes it may still pass: as many as the question did.
        left: u32,
    },
}

/// A phase beyond this one would ask more nodes than there can be.
const PHASE_MAX: u32 = 31;

impl Probing for HirschbergSinclair {
    type Probe = Probe;

    fn begin(&mut self, me: Identity) -> Vec<(Direction, Probe)> {
        self.ask(me, 0)
    }

    fn take(&mut self, at: Place, direction: Direction, probe: Probe) -> Found<Probe> {
        match probe {
            Probe::Out { candidate, .. } if candidate == at.me && at.stands => Found::Highest,
            Probe::Out { candidate, phase, left } if candidate.node > at.me.node || !at.stands => {
                Found::Send(if left > 1 {
                    vec![(direction, Probe::Out { candidate, phase, left: left - 1 })]
                } else {
                    vec![(
                        direction.opposite(),
                        Probe::Back { candidate, phase, left: 1 << phase.min(PHASE_MAX) },
                    )]
                })
            }
            Probe::Out { candidate, .. } if candidate.node < at.me.node && self.phase.is_none() => {
                Found::Send(self.begin(at.me)) // In place of the lower one.
            }
            Probe::Out { .. } => Found::Send(Vec::new()), // A lower name, or that of an earlier life.
            Probe::Back { candidate, phase, .. } if candidate == at.me => {
                Found::Send(self.on_answer(at.me, direction, phase))
            }
            // Its candidate is not there any more.
            Probe::Back { left: 0, .. } => Found::Send(Vec::new()),
            Probe::Back { candidate, phase, left } => {
                Found::Send(vec![(direction, Probe::Back { candidate, phase, left: left - 1 })])
            }
        }
    }
}

impl HirschbergSinclair {
    fn ask(&mut self, me: Identity, phase: u32) -> Vec<(Direction, Probe)> {
        self.phase = Some(phase);
        self.answered.clear();
        let probe = Probe::Out { candidate: me, phase, left: 1 << phase };
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
