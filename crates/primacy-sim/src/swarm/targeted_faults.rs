//! Targeted faults: combinations in an order that chance would seldom produce. Each targets a kind of mistake that
//! shows only if two conditions coincide.
//!
//! A targeted fault is counted when it has succeeded. If that is later than the fault itself, its effect is counted:
//! `aimed: …` for [`hold_back`](Swarm::hold_back), `death told: of an earlier life` for [`haunt`](Swarm::haunt).

use primacy_core::Duration;

use super::{Swarm, text};
use crate::algorithm::Algorithm;
use crate::process_slot::ProcessSlot;

/// The number of steps of waiting for an event.
const STEPS: u64 = 60;

impl<A: Algorithm> Swarm<A> {
    /// Cuts off or pauses the leader for longer than any node waits, without another fault until another node leads:
    /// only promises and leases keep the two apart. Before that, messages to the leader may be delayed, so that its
    /// last renewals rest on old answers.
    pub(super) fn oust(&mut self) {
        let Some(leader) = self.world().leaders().next() else { return };
        let name = self.name(leader);
        if self.one_in(2) {
            let longest = self.patience;
            let late = self.up_to(longest);
            let (times, word) = (1 + self.rng.up_to(4), self.word());
            self.tell(format!("delay {times} any -> {name} {}{word}", text(late)));
            let pause = self.up_to(self.patience.divided_by(2));
            self.tell(format!("advance {}", text(pause)));
        }
        let paused = self.one_in(4);
        match self.rng.up_to(2) {
            _ if paused => self.tell(format!("pause {name}")),
            0 => self.mute(leader),
            _ => self.tell(format!("isolate {name}")),
        }
        let pause = self.patience.plus(self.up_to(self.patience));
        self.tell(format!("advance {}", text(pause)));
        if self.is_replaced(leader) {
            self.came_off("ploy: oust");
        }
        self.tell(if paused { format!("resume {name}") } else { "heal".to_owned() });
    }

    /// Cuts a node's outgoing links: it hears all nodes, and no node hears it.
    fn mute(&mut self, slot: ProcessSlot) {
        let name = self.name(slot);
        for other in self.world().slots().filter(|&other| other != slot) {
            let other = self.name(other);
            self.tell(format!("cut {name} -> {other}"));
        }
        self.tell(format!("cut {name} -> store"));
    }

    /// Delays, doubles or drops a few messages, perhaps of one kind.
    pub(super) fn hold_back(&mut self) {
        let (times, late) = (1 + self.rng.up_to(3), self.up_to(self.patience.times(2)));
        let (from, to, word) = (self.end_of_a_link(), self.end_of_a_link(), self.word());
        let what = match self.rng.up_to(4) {
            0 => format!("drop {times} {from} -> {to}{word}"),
            1 => format!("double {times} {from} -> {to}{word}"),
            _ => format!("delay {times} {from} -> {to} {}{word}", text(late)),
        };
        self.tell(what);
    }

    fn end_of_a_link(&mut self) -> String {
        if self.one_in(2) {
            return "any".to_owned();
        }
        let slot = self.victim();
        self.name(slot)
    }

    /// Draws a kind of message, to be appended to a command, or an empty text for all kinds.
    fn word(&mut self) -> String {
        let drawn = self.index(self.words.len() + 1);
        self.words.get(drawn).map_or_else(String::new, |word| format!(" {word}"))
    }

    /// Restarts a node just after a write to its disk, while the request that caused the write may still arrive
    /// again.
    pub(super) fn forget(&mut self) {
        let slot = self.slot();
        let written = |swarm: &Self| swarm.world().node(slot).disk.writes;
        let before = written(self);
        if self.world().node(slot).disk.contents.is_none() || !self.runs(slot) {
            return; // This election keeps nothing.
        }
        let name = self.name(slot);
        if self.one_in(2) {
            let late = self.up_to(self.patience.times(2));
            let (times, word) = (1 + self.rng.up_to(2), self.word());
            self.tell(format!("delay {times} any -> {name} {}{word}", text(late)));
        }
        let leader = self.world().leaders().next();
        if let Some(leader) = leader.filter(|&leader| leader != slot) {
            let leader = self.name(leader);
            self.tell(format!("isolate {leader}"));
        }
        let step = self.patience.times(2).divided_by(STEPS).max(Duration::from_millis(1));
        for _ in 0..STEPS {
            self.tell(format!("advance {}", text(step)));
            if written(self) != before {
                self.kill_and_start(slot);
                self.came_off("ploy: forget");
                break;
            }
        }
    }

    /// Restarts a node, and delays its guardian's death notice until the next process runs.
    pub(super) fn haunt(&mut self) {
        let slot = self.victim();
        if !self.runs(slot) {
            return;
        }
        let (name, late) = (self.name(slot), self.patience.plus(self.up_to(self.patience.times(2))));
        self.tell(format!("delay 4 {name} -> any {} Died", text(late)));
        self.tell(format!("crash {name}"));
        let pause = self.millis(0, 30);
        self.tell(format!("advance {}", text(pause)));
        self.tell(format!("restart {name}"));
    }

    /// Makes the node that has created the record anew release it, or crash.
    pub(super) fn disown(&mut self) {
        let pause = self.up_to(self.patience.divided_by(4));
        self.tell(format!("advance {}", text(pause)));
        let holder = self.world().store.record().and_then(|record| record.holder.as_ref());
        let Some(name) = holder.map(|holder| holder.identity.node.to_string()) else { return };
        if !self.world().find(&name).is_ok_and(|slot| self.runs(slot)) {
            return;
        }
        let what = match self.rng.up_to(4) {
            0 => format!("resign {name}"),
            1 => format!("withdraw {name}"),
            2 => format!("health {name} bad"),
            _ => format!("crash {name}"), // Its guardian tells the store.
        };
        self.tell(what);
        if self.world().store.record().is_some_and(|record| record.young) {
            self.came_off("ploy: disown");
        }
    }

    /// Makes one node deaf or mute while all else is well; the others must still agree.
    pub(super) fn wound(&mut self) {
        let slot = self.victim();
        let name = self.name(slot);
        let others: Vec<ProcessSlot> = self.world().slots().filter(|&other| other != slot).collect();
        if others.iter().all(|&other| self.world().priority_and_witness(other).1) {
            return; // Those who are left only vote.
        }
        let deaf = self.one_in(2);
        for other in others {
            let other = self.name(other);
            self.tell(if deaf { format!("cut {other} -> {name}") } else { format!("cut {name} -> {other}") });
        }
        self.tell(if deaf { format!("cut store -> {name}") } else { format!("cut {name} -> store") });
        self.tell(format!("settle without {name}"));
        if self.world().agreed(Some(slot)) {
            self.came_off("ploy: wound");
        }
        self.tell("heal".to_owned());
    }
}
