//! The faults of a comparison: the same for every election, with random choices determined by the seed.

use primacy_core::{Command, Duration, Input};

use super::trial::Trial;
use crate::algorithm::Algorithm;
use crate::disk::MetByCrash;
use crate::process_slot::ProcessSlot;
use crate::world::faults::Crash;

/// The duration of a fault: three leases of a store.
const STRUCK: Duration = Duration::from_secs(30);

/// The time measured after the fault has ended.
const AFTER: Duration = Duration::from_secs(30);

/// The duration of each phase of a bad link, in which it is bad or good.
const TURN: Duration = Duration::from_secs(5);

/// The number of bad phases.
const TURNS: u32 = 6;

/// The downtime of a restarted node.
const DOWN: Duration = Duration::from_secs(2);

/// The time from the restart of one node to the restart of the next one.
const UP: Duration = Duration::from_secs(8);

/// The time within which a node must give up the lead before its restart, and the interval of checking.
const WITHDRAWS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(100));

/// A scenario: the faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// No fault.
    Calm,
    /// The leader's process is killed; its guardian ends its work and reports the death to the others.
    Crash,
    /// The leader's host loses power, so no death is reported, and starts again half a minute later.
    PowerLoss,
    /// The leader is cut off from all others, and from the store, for half a minute.
    Isolation,
    /// The leader and as many others as make a minority are cut off from the rest, and from the store, for half a minute.
    Split,
    /// The link between the leader and the highest of the other names is bad for five seconds and good for
    /// five, six times: in both directions, then from the leader only, then to the leader only, and again.
    /// All other links work.
    BadLink,
    /// Each node in turn withdraws, ends, and starts again two seconds later.
    RollingRestart,
}

impl Scenario {
    /// All scenarios, in the order of the tables.
    pub const ALL: &[Self] = &[
        Self::Calm,
        Self::Crash,
        Self::PowerLoss,
        Self::Isolation,
        Self::Split,
        Self::BadLink,
        Self::RollingRestart,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Crash => "crash",
            Self::PowerLoss => "power-loss",
            Self::Isolation => "isolation",
            Self::Split => "split",
            Self::BadLink => "ping-pong",
            Self::RollingRestart => "rolling-restart",
        }
    }

    /// The scenario of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scenario| scenario.name() == name)
    }

    /// Returns a one-sentence description of the scenario for this many nodes.
    #[must_use]
    pub fn about(self, nodes: usize) -> String {
        let minority = minority(nodes);
        match self {
            Self::Calm => "nothing happens; measured for 60 s".to_owned(),
            Self::Crash => {
                "the leader's process is killed, and its guardian tells; measured for 60 s".to_owned()
            }
            Self::PowerLoss => {
                "the leader's host is dead for 30 s, and nobody tells; measured for 60 s".to_owned()
            }
            Self::Isolation => "the leader is cut off from everything for 30 s; measured for 60 s".to_owned(),
            Self::Split => format!(
                "{minority} with the leader | {} with the store, for 30 s; measured for 60 s",
                nodes.saturating_sub(minority)
            ),
            Self::BadLink => {
                "the link of the leader and one other is bad for 5 s, six times; measured for 90 s".to_owned()
            }
            Self::RollingRestart => {
                format!(
                    "each node in turn is stopped in order, and starts again 2 s later; measured for about {} s",
                    nodes * 10 + 30
                )
            }
        }
    }
}

/// The size of the smaller part of a split.
const fn minority(nodes: usize) -> usize {
    nodes.saturating_sub(1) / 2
}

impl<A: Algorithm> Trial<A> {
    /// Plays the scenario from now on, with this node as the leader.
    pub(super) fn play(&mut self, scenario: Scenario, leader: ProcessSlot) {
        match scenario {
            Scenario::Calm => self.advance(STRUCK),
            Scenario::Crash => {
                self.strike(&[leader]);
                self.world.crash(leader, Crash::Process, MetByCrash::Lost);
                self.advance(STRUCK);
            }
            Scenario::PowerLoss => {
                self.strike(&[leader]);
                self.world.crash(leader, Crash::Host, MetByCrash::Lost);
                self.advance(STRUCK);
                self.world.restart(leader, false);
            }
            Scenario::Isolation => self.cut_for_a_while(&[leader]),
            Scenario::Split => {
                let others = self.draw_others(leader);
                let smaller: Vec<ProcessSlot> = [leader].into_iter().chain(others).collect();
                self.cut_for_a_while(&smaller);
            }
            Scenario::BadLink => self.bad_link(leader),
            Scenario::RollingRestart => self.rolling_restart(),
        }
        self.advance(AFTER);
    }

    fn cut_for_a_while(&mut self, slots: &[ProcessSlot]) {
        self.cut_off(slots);
        self.advance(STRUCK);
        self.heal();
    }

    /// Draws the nodes that join the leader in the smaller part.
    fn draw_others(&mut self, leader: ProcessSlot) -> Vec<ProcessSlot> {
        let mut others: Vec<ProcessSlot> = self.world.slots().filter(|&slot| slot != leader).collect();
        let wanted = minority(others.len() + 1).saturating_sub(1);
        let mut drawn = Vec::new();
        while drawn.len() < wanted {
            let index = self.rng.up_to(others.len().saturating_sub(1) as u64);
            drawn.push(others.swap_remove(usize::try_from(index).unwrap_or(0)));
        }
        drawn
    }

    fn bad_link(&mut self, leader: ProcessSlot) {
        let highest = self.world.slots().filter(|&slot| slot != leader).last();
        let Some(rival) = highest else { return };
        let (from, to) = (self.world.host(leader), self.world.host(rival));
        for turn in 0..TURNS {
            let ways = [(turn % 3 != 2, from, to), (turn % 3 != 1, to, from)];
            for (is_cut, from, to) in ways {
                self.world.network.set_cut(from, to, is_cut);
            }
            self.advance(TURN);
            self.heal();
            self.advance(TURN);
        }
    }

    fn rolling_restart(&mut self) {
        for slot in self.world.slots() {
            self.strike(&[slot]);
            self.world.give(slot, Input::Command(Command::Withdraw));
            let (most, interval) = WITHDRAWS;
            let end = self.world.now().after(most);
            // At least one interval, so that the node's messages to the others have left.
            loop {
                self.advance(interval);
                if !self.works(slot) || self.world.now() >= end {
                    break;
                }
            }
            self.world.crash(slot, Crash::ProcessAndGuardian, MetByCrash::Lost);
            self.advance(DOWN);
            self.world.restart(slot, false);
            self.advance(UP);
        }
    }

    /// True if work of this node may be running.
    fn works(&self, slot: ProcessSlot) -> bool {
        let name = self.world.node(slot).name;
        self.world.leaderships.in_force(self.world.now()).any(|interval| interval.who.node == name)
    }
}
