//! Who acts as the leader, from event to event, and how the time adds up.

use std::collections::BTreeSet;

use primacy_core::{Duration, NodeId};

use crate::algorithm::Algorithm;
use crate::clock::Moment;
use crate::world::World;

/// What has added up so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// For how long nobody acted as the leader of the larger part.
    pub(super) leaderless: Duration,
    /// How many acted as the leader at the same moment, at most.
    pub(super) leaders_max: u32,
    /// For how long two or more did.
    pub(super) overlap: Duration,
}

impl Watch {
    /// Adds the time from now until `until`, in which nothing happens but that leaderships end by the clock. Whoever is `aside`
    /// is not of the larger part.
    pub(super) fn add<A: Algorithm>(&mut self, world: &World<A>, until: Moment, aside: &BTreeSet<NodeId>) {
        let mut from = world.now();
        while from < until {
            let mut acting = 0;
            let mut of_larger_part = 0;
            let mut next = until;
            for belief in world.beliefs.in_force(from) {
                acting += 1;
                of_larger_part += u32::from(!aside.contains(&belief.who.node));
                next = next.min(belief.until());
            }
            let passed = next.since(from);
            self.leaders_max = self.leaders_max.max(acting);
            if of_larger_part == 0 {
                self.leaderless = self.leaderless.plus(passed);
            }
            if acting > 1 {
                self.overlap = self.overlap.plus(passed);
            }
            from = next;
        }
    }
}
