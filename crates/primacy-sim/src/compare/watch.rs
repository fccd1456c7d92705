//! The sums of times and changes of leaders, updated at each event.

use std::collections::BTreeSet;

use primacy_core::{Duration, NodeId};

use crate::algorithm::Algorithm;
use crate::clock::Moment;
use crate::world::World;

/// The totals so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// The time in which no node acted as the leader of the larger part.
    pub(super) leaderless: Duration,
    /// The maximum number of nodes that acted as the leader at the same moment.
    pub(super) leaders_max: u32,
    /// The time in which two or more nodes did.
    pub(super) overlap: Duration,
    /// The number of leader changes of the larger part.
    pub(super) changes: u64,
    /// The latest leadership in the larger part, by its number in the world.
    current: u64,
    /// The latest leadership of any node.
    newest: u64,
}

impl Watch {
    /// Begins in a world in which exactly one node leads.
    pub(super) fn begin<A: Algorithm>(world: &World<A>) -> Self {
        let current = world.leaderships.in_force(world.now()).map(|interval| interval.ordinal).max();
        Self { current: current.unwrap_or(0), newest: world.leaderships.count, ..Self::default() }
    }

    /// Adds the time from now until `until`, in which leaderships only end by the clock. The nodes `aside` do not
    /// belong to the larger part.
    pub(super) fn add<A: Algorithm>(&mut self, world: &World<A>, until: Moment, aside: &BTreeSet<NodeId>) {
        let mut from = world.now();
        while from < until {
            let mut acting = 0;
            let mut next = until;
            let mut of_larger_part: Vec<u64> = Vec::new();
            for interval in world.leaderships.in_force(from) {
                acting += 1;
                next = next.min(interval.until());
                if !aside.contains(&interval.who.node) {
                    of_larger_part.push(interval.ordinal);
                }
            }
            let passed = next.since(from);
            self.leaders_max = self.leaders_max.max(acting);
            if of_larger_part.is_empty() {
                self.leaderless = self.leaderless.plus(passed);
            }
            if acting > 1 {
                self.overlap = self.overlap.plus(passed);
            }
            self.count_changes(&of_larger_part);
            self.newest = world.leaderships.count;
            from = next;
        }
    }

    fn count_changes(&mut self, of_larger_part: &[u64]) {
        let begun = of_larger_part.iter().filter(|&&ordinal| ordinal > self.newest);
        self.changes += begun.clone().count() as u64;
        if let Some(&begun) = begun.max() {
            self.current = begun;
        } else if let Some(&left) =
            of_larger_part.iter().max().filter(|_| !of_larger_part.contains(&self.current))
        {
            // The latest leadership has ended, while an earlier one, or one of a cut-off node, is still in force.
            self.changes += 1;
            self.current = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leadership_that_begins_is_a_change_and_so_is_one_that_is_gone_back_to() {
        let mut watch = Watch { current: 1, newest: 1, ..Watch::default() };
        let mut after = |of_larger_part: &[u64], newest| {
            watch.count_changes(of_larger_part);
            watch.newest = newest;
            watch.changes
        };
        assert_eq!(after(&[1], 1), 0);
        assert_eq!(after(&[], 1), 0, "it is cut off");
        assert_eq!(after(&[2], 2), 1);
        assert_eq!(after(&[1, 2], 2), 1, "it is back");
        assert_eq!(after(&[1], 2), 2, "and is kept, and not the other one");
        assert_eq!(after(&[1], 3), 2, "another one began elsewhere");
        assert_eq!(after(&[1, 3], 3), 2);
        assert_eq!(after(&[3], 3), 3);
        assert_eq!(after(&[], 3), 3);
        assert_eq!(after(&[5], 5), 4, "the fourth lasted for no time");
    }
}
