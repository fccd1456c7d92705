//! The random faults of generated worlds: each kind, applied to a drawn node, as script commands.

use core::fmt::Write as _;

use primacy_core::Duration;

use super::{Beyond, Swarm, text};
use crate::algorithm::Algorithm;
use crate::process_slot::ProcessSlot;

/// The kinds of faults of which each world draws a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Crash,
    /// A process is killed and restarted at once: it loses its memory, but no time.
    Restart,
    CrashAtWrite,
    FullDisk,
    Pause,
    Clock,
    Cut,
    /// Only some pairs of nodes can communicate: the three shapes in which elections get stuck (OmniPaxos, EuroSys
    /// 2023, section 2).
    Partition,
    /// The leader is cut off, and some of the others may restart at that moment.
    Isolate,
    Close,
    Command,
    Guardian,
    Store,
    /// An operator deletes the record, or leaves a request to resign in it.
    Record,
    /// A slow write of a leader's work to the resource.
    Write,
    // Targeted faults.
    Oust,
    HoldBack,
    Forget,
    Haunt,
    // Faults beyond the assumptions.
    Jump,
    Freeze,
    Rot,
    Lie,
    Rewind,
}

pub(super) const MIXED: &[Kind] = &[
    Kind::Crash,
    Kind::Restart,
    Kind::CrashAtWrite,
    Kind::FullDisk,
    Kind::Pause,
    Kind::Clock,
    Kind::Cut,
    Kind::Partition,
    Kind::Isolate,
    Kind::Close,
    Kind::Command,
    Kind::Guardian,
    Kind::Store,
    Kind::Record,
    Kind::Write,
    Kind::Oust,
    Kind::HoldBack,
    Kind::Forget,
    Kind::Haunt,
];

/// The counters that a search of many seeds must increment for any election.
pub(crate) const MUST_MEET: &[&str] = &[
    "elected",
    "fault: crash",
    "fault: crash with the guardian",
    "fault: crash of a host",
    "fault: crash of a guardian",
    "fault: pause",
    "fault: clock runs otherwise",
    "fault: partition",
    "fault: isolation",
    "packet: link cut",
    "packet: link cut one way",
    "packet: lost",
    "packet: doubled",
    "packet: late",
    "aimed: lost",
    "aimed: doubled",
    "aimed: late",
    "ploy: duel",
    "ploy: oust",
    "write accepted",
];

impl Kind {
    /// Returns the kind of fault that violates this assumption, if it is a fault.
    pub(super) const fn beyond(beyond: Beyond) -> Option<Self> {
        match beyond {
            Beyond::Drift => None, // The clocks that are drawn anyway are drawn from a wider range.
            Beyond::Jump => Some(Self::Jump),
            Beyond::FrozenMachine => Some(Self::Freeze),
            Beyond::RottenDisk => Some(Self::Rot),
            Beyond::LyingStore => Some(Self::Lie),
            Beyond::RestoredStore => Some(Self::Rewind),
        }
    }
}

impl<A: Algorithm> Swarm<A> {
    pub(super) fn slot(&mut self) -> ProcessSlot {
        let count = self.world().slots().count();
        ProcessSlot(self.index(count))
    }

    /// Draws a node, with a preference for the leader.
    pub(super) fn victim(&mut self) -> ProcessSlot {
        let leader = self.world().leaders().next();
        match leader {
            Some(leader) if !self.one_in(3) => leader,
            Some(_) | None => self.slot(),
        }
    }

    pub(super) fn name(&self, slot: ProcessSlot) -> String {
        self.world().node(slot).name.to_string()
    }

    pub(super) fn runs(&self, slot: ProcessSlot) -> bool {
        self.world().process(slot).is_some()
    }

    pub(super) fn befall(&mut self, kind: Kind) {
        let slot = self.victim();
        let name = self.name(slot);
        self.cut_off =
            matches!(kind, Kind::Isolate | Kind::Pause | Kind::Freeze | Kind::Partition | Kind::Crash);
        match kind {
            Kind::Crash if !self.runs(slot) => self.tell(format!("restart {name}")),
            Kind::Crash => {
                let what = ["crash N", "crash N and guardian", "crash host N"][self.index(3)];
                self.crash(what, &name);
            }
            Kind::Restart => self.kill_and_start(slot),
            Kind::CrashAtWrite => {
                let kept = ["", " kept"][self.index(2)];
                self.tell(format!("crash {name} at its next write{kept}"));
                self.restart_somebody();
            }
            Kind::FullDisk => {
                let what = if self.world().node(slot).disk.failing { "works" } else { "fails" };
                self.tell(format!("disk {name} {what}"));
                self.restart_somebody();
            }
            Kind::Pause => self.pause(slot, &name),
            Kind::Clock => self.draw_clock(slot),
            Kind::Jump => {
                let by = self.up_to(self.patience.times(2));
                self.tell(format!("jump {name} {}", text(by)));
            }
            Kind::Cut => self.cut(),
            Kind::Partition => self.partition(slot),
            Kind::Isolate => self.isolate(slot),
            Kind::Close => {
                let other = self.slot();
                let other = self.name(other);
                self.tell(format!("close {name} {other}"));
            }
            Kind::Command => self.command(slot),
            Kind::Guardian => self.tell(format!("crash guardian {name}")),
            Kind::Store => self.store(),
            Kind::Record => self.record(),
            Kind::Write => {
                let after = self.up_to(self.patience.times(2));
                if self.world().node(slot).mandate.is_some() {
                    self.tell(format!("write {name} late {}", text(after)));
                }
            }
            Kind::Oust => self.oust(),
            Kind::HoldBack => self.hold_back(),
            Kind::Forget => self.forget(),
            Kind::Haunt => self.haunt(),
            Kind::Freeze => {
                let frozen = self.world().node(slot).clock.is_frozen();
                self.tell(format!("{} {name}", if frozen { "thaw" } else { "freeze" }));
            }
            Kind::Rot => {
                if self.runs(slot) {
                    self.tell(format!("crash host {name}"));
                }
                self.tell(format!("rot {name}"));
                self.tell(format!("restart {name}"));
            }
            Kind::Lie => self.tell("store lies".to_owned()),
            Kind::Rewind => {
                let writes = 1 + self.rng.up_to(7);
                self.tell(format!("store rewind {writes}"));
            }
        }
    }

    /// True if this command must be skipped, because too few nodes would know the committed records, or because an
    /// earlier command was skipped for that reason.
    pub(super) fn is_spared(&self, words: &[&str]) -> bool {
        let falls = match *words {
            ["restart", node, ..] => {
                return self.world().find(node).is_ok_and(|slot| self.runs(slot));
            }
            ["crash", "guardian", _] => return false,
            ["crash", "host", node, ..] | ["crash", node, ..] | ["disk", node, "fails"] => node,
            _ => return false,
        };
        let Ok(falls) = self.world().find(falls) else { return false };
        !self.runs(falls) || self.world().few_know_without(falls)
    }

    /// Sends drawn requests of clients.
    pub(super) fn ask(&mut self) {
        if !self.asks {
            return;
        }
        let count = self.rng.up_to(4);
        if count > 0 {
            self.tell(format!("clients ask {count}"));
        }
        if self.one_in(12) {
            let kept: Vec<String> = self.world().clients.kept().map(|session| session.to_string()).collect();
            if !kept.is_empty() {
                let session = &kept[self.index(kept.len())];
                self.tell(format!("clients let {session} go"));
            }
        }
    }

    /// Ends some faults, so that the next ones meet running nodes and a leader.
    pub(super) fn relieve(&mut self) {
        self.tell("heal".to_owned());
        for slot in self.world().slots() {
            let name = self.name(slot);
            if self.world().node(slot).disk.failing {
                self.tell(format!("disk {name} works"));
            }
            match self.world().process(slot) {
                Some(process) if process.paused && !self.world().node(slot).clock.is_frozen() => {
                    self.tell(format!("resume {name}"));
                }
                Some(_) => {}
                None => self.tell(format!("restart {name}")),
            }
            if self.runs(slot) {
                self.tell(format!("campaign {name}"));
            }
        }
    }

    fn pause(&mut self, slot: ProcessSlot, name: &str) {
        let what = match self.world().process(slot) {
            Some(process) if process.paused => "resume",
            Some(_) => "pause",
            None => "restart",
        };
        self.tell(format!("{what} {name}"));
    }

    fn crash(&mut self, what: &str, name: &str) {
        let kept = ["", " kept"][self.index(2)];
        self.tell(format!("{}{kept}", what.replace('N', name)));
    }

    /// Cuts off or stops a leader that all nodes support, without further faults while the others replace it: only
    /// the lease keeps the two leaders apart. As the worst case, the leader's clock is the slowest, and the other
    /// clocks are the fastest.
    pub(super) fn duel(&mut self) {
        self.relieve();
        let settling = self.patience.times(2).plus(self.up_to(self.patience));
        self.tell(format!("advance {}", text(settling)));
        let Some(leader) = self.world().leaders().next() else { return };
        let name = self.name(leader);
        if self.one_in(2) {
            let wider = if self.beyond == Some(Beyond::Drift) { 3 } else { 1 };
            for slot in self.world().slots() {
                let ppm = if slot == leader { 0 } else { u64::from(self.drift) * wider };
                let name = self.name(slot);
                self.tell(format!("clock {name} {ppm}ppm"));
            }
        }
        let what = match self.rng.up_to(4) {
            0 => format!("pause {name}"),
            1 => format!("transfer {name} {}", self.anybody()),
            _ => format!("isolate {name}"),
        };
        self.tell(what);
        let restarts = self.one_in(4);
        for slot in self.world().slots().filter(|&slot| slot != leader) {
            if restarts {
                self.kill_and_start(slot);
            }
            if self.beyond == Some(Beyond::Jump) {
                let name = self.name(slot);
                self.tell(format!("jump {name} {}", text(self.patience)));
            }
        }
        let replacing = self.patience.plus(self.up_to(self.patience));
        self.tell(format!("advance {}", text(replacing)));
        if self.is_replaced(leader) {
            self.came_off("ploy: duel");
        }
    }

    fn anybody(&mut self) -> String {
        let slot = self.slot();
        self.name(slot)
    }

    /// Wipes the disk of one node at some time, and readmits it at its peers, one after the other. The same node may
    /// be wiped again, before or after its recovery; and a former disk may be put back.
    pub(super) fn wipe_or_readmit(&mut self) {
        let count = self.world().slots().count();
        // With a single voter, no peer would notice.
        if !self.wipes || count == 1 || !self.one_in(4) {
            return;
        }
        let slot = self.slot();
        let (again, back) = (self.one_in(8), self.one_in(6));
        // If voters change, there may be as few as one, which alone knows the committed records.
        let spared = |swarm: &Self, slot| swarm.operators.is_some() && swarm.world().few_know_without(slot);
        match self.wiped {
            Some(wiped) if (again || back) && spared(self, wiped) => {}
            Some(wiped) if again => self.wipe(wiped),
            Some(wiped) if back => {
                let numbers: Vec<usize> =
                    self.world().node(wiped).shelf.iter().map(|disk| disk.number).collect();
                let Some(&number) = numbers.get(self.index(numbers.len())) else { return };
                let name = self.crash_if_it_runs(wiped);
                self.tell(format!("restart {name} with disk {number}"));
            }
            // The node must have connected with its disk, and have been refused.
            Some(wiped) if self.runs(wiped) => {
                let (name, by) = (self.name(wiped), self.name(slot));
                let vain = if self.world().would_readmit(wiped, slot) { "" } else { " in vain" };
                self.tell(format!("readmit {name} at {by}{vain}"));
            }
            Some(_) => {}
            // A peer that has never seen the present disk would accept the next one.
            None if spared(self, slot) => {}
            None if self.world().is_known_to_all(slot) => {
                self.wiped = Some(slot);
                self.wipe(slot);
            }
            None => {}
        }
    }

    fn wipe(&mut self, slot: ProcessSlot) {
        let name = self.crash_if_it_runs(slot);
        if self.forgets && self.runs(slot) {
            // The crash was skipped; but if the node has lost another disk before, it stays wiped, because two such
            // nodes would wait for each other for ever.
            if self.world().node(slot).shelf.is_empty() {
                self.wiped = None;
            }
            return;
        }
        self.tell(format!("restart {name} without disk"));
    }

    fn crash_if_it_runs(&mut self, slot: ProcessSlot) -> String {
        let name = self.name(slot);
        let host = self.one_in(2);
        if self.runs(slot) {
            self.tell(if host { format!("crash host {name}") } else { format!("crash {name} and guardian") });
        }
        name
    }

    pub(super) fn kill_and_start(&mut self, slot: ProcessSlot) {
        let name = self.name(slot);
        if self.runs(slot) {
            let what = ["crash host N", "crash N and guardian"][self.index(2)];
            self.crash(what, &name);
        }
        self.tell(format!("restart {name}"));
    }

    fn restart_somebody(&mut self) {
        let world = self.world();
        let down = world.slots().find(|&slot| world.process(slot).is_none());
        if let Some(slot) = down {
            let name = self.name(slot);
            self.tell(format!("restart {name}"));
        }
    }

    fn isolate(&mut self, slot: ProcessSlot) {
        if self.one_in(3) {
            return self.tell("heal".to_owned());
        }
        let name = self.name(slot);
        self.tell(format!("isolate {name}"));
        let restarts = self.one_in(2);
        for other in self.world().slots().filter(|&other| other != slot) {
            if restarts && !self.one_in(4) {
                self.kill_and_start(other);
            }
        }
    }

    /// Draws a clock: the rates of any two clocks differ by at most the bound, and often by exactly that.
    pub(super) fn draw_clock(&mut self, slot: ProcessSlot) {
        let wider = if self.beyond == Some(Beyond::Drift) { 3 } else { 1 };
        let most = u64::from(self.drift) * wider;
        let between = self.rng.up_to(most);
        let ppm = [0, most, between][self.index(if self.tight { 2 } else { 3 })];
        let name = self.name(slot);
        self.tell(format!("clock {name} {ppm}ppm"));
    }

    fn cut(&mut self) {
        let (a, b) = (self.slot(), self.slot());
        let (a, b) = (self.name(a), self.name(b));
        let what = match self.rng.up_to(6) {
            0 => format!("cut {a} -> {b}"),
            1 => format!("cut {a} {b}"),
            2 => format!("isolate {a}"),
            3 => format!("cut {a} -> store"),
            4 => format!("cut store -> {a}"),
            _ => "heal".to_owned(),
        };
        self.tell(what);
    }

    fn partition(&mut self, leader: ProcessSlot) {
        let slots: Vec<ProcessSlot> = self.world().slots().collect();
        let middle = self.slot();
        let linked: fn(usize, usize, usize, usize) -> bool = match self.rng.up_to(3) {
            // Quorum loss: one node reaches all, and the others reach only that one.
            0 => |a, b, middle, _| a == middle || b == middle,
            // Constrained election: the same, and the leader is cut off from all.
            1 => |a, b, middle, leader| (a == middle || b == middle) && a != leader && b != leader,
            // Chained: each node reaches only its neighbours.
            2 => |a, b, _, _| a.abs_diff(b) == 1,
            _ => return self.tell("heal".to_owned()),
        };
        let mut links = "links".to_owned();
        for &a in &slots {
            for &b in slots.iter().filter(|&&b| a < b && linked(a.0, b.0, middle.0, leader.0)) {
                let (a, b) = (self.name(a), self.name(b));
                let _ = write!(links, " {a}-{b}");
            }
        }
        self.tell(links);
    }

    fn command(&mut self, slot: ProcessSlot) {
        let to = self.slot();
        let (name, to) = (self.name(slot), self.name(to));
        if !self.runs(slot) {
            return;
        }
        let what = match self.rng.up_to(6) {
            0 => format!("resign {name}"),
            1 | 2 => format!("transfer {name} {to}"),
            3 => format!("health {name} {}", ["good", "bad"][self.index(2)]),
            4 if self.one_in(2) => format!("busy {name}"),
            4 => format!("idle {name}"),
            5 => format!("withdraw {name}"),
            _ => format!("campaign {name}"),
        };
        self.tell(what);
    }

    fn store(&mut self) {
        let slot = self.victim();
        let name = self.name(slot);
        let slow = self.up_to(Duration::from_millis(400));
        let what = match self.rng.up_to(8) {
            0 => "store down".to_owned(),
            1 => "store silent".to_owned(),
            2 => format!("lose next reply {name}"),
            3 => format!("unknown next write {name}"),
            4 => format!("unknown next write {name} undone"),
            5 => format!("repeat next write {name}"),
            6 => format!("delay next {name} -> store {}", text(slow)),
            _ => "store up".to_owned(),
        };
        self.tell(what);
    }

    fn record(&mut self) {
        if self.world().sessions.first().is_some() {
            return self.tell("request-resign ops".to_owned());
        }
        if self.world().store.record().is_none() {
            return;
        }
        // Absence has no version: a delayed request that creates the first record may arrive after a deletion, with a
        // token from before it. No invariant can hold then. A paused process may hold such a request, if the record
        // was absent at some time.
        let world = self.world();
        let is_paused = |slot| world.process(slot).is_some_and(|process| process.paused);
        let late =
            world.lag > world.conditions.delay.times(2) || (self.was_absent && world.slots().any(is_paused));
        let may_come_late =
            late || self.world().network.chance.doubled + self.world().network.chance.delayed > 0;
        if self.deletes && !may_come_late && self.one_in(4) {
            // A machine that notices the deletion raises a justified alarm.
            self.alarming = true;
            // The holder may be kept from noticing the deletion.
            let holder = self.victim();
            if self.one_in(2) {
                let name = self.name(holder);
                self.tell(format!("isolate {name}"));
            }
            self.tell("store delete".to_owned());
            self.was_absent = true;
            if self.one_in(2) {
                self.disown();
            }
        } else {
            self.tell("request-resign ops".to_owned());
        }
    }

    /// Applies small faults to one node that does not lead, and doubles messages.
    pub(super) fn calm(&mut self) {
        let leader = self.world().leaders().next();
        let slot = self.slot();
        if Some(slot) == leader || self.spared.is_some_and(|name| name == self.name(slot)) {
            return; // The next seed draws another.
        }
        let other = self.slot();
        let (name, other) = (self.name(slot), self.name(other));
        let longest = self.up_to(self.patience.times(2));
        self.tell("calm".to_owned());
        self.tell(format!("chance doubled 20% up to {}", text(longest)));
        for _ in 0..4 {
            let pause = self.up_to(self.patience.times(2));
            let deed = self.rng.up_to(4);
            // Where death is detected only by silence, two short silences must not add up to a long one.
            let pause = if A::ADVISORY { pause.max(self.patience) } else { pause };
            let (what, back) = match deed {
                // A node that is cut off, or wakes while it is cut off, may elect itself.
                0 | 3 if A::ADVISORY => (format!("close {name} {other}"), String::new()),
                0 => (format!("isolate {name}"), "heal".to_owned()),
                1 => (format!("crash {name}"), format!("restart {name}")),
                2 => (format!("crash host {name}"), format!("restart {name}")),
                3 => (format!("pause {name}"), format!("resume {name}")),
                _ => (format!("close {name} {other}"), String::new()),
            };
            self.tell(what);
            self.tell(format!("advance {}", text(pause)));
            if !back.is_empty() {
                self.tell(back);
            }
            self.tell(format!("advance {}", text(pause)));
        }
        self.tell("calm over".to_owned());
    }
}
