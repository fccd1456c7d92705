//! Faults of nodes, and their detection by others: crashes, pauses, restarts, connections, guardians.

use primacy_core::{Command, Duration, Endpoint, Evidence, Identity, Input, Peer, Term};

use super::{ScheduledEvent, World};
use crate::algorithm::{Algorithm, Settings as _};
use crate::disk::{Disk, MetByCrash, PeerDisk};
use crate::invariants::Observation;
use crate::network::{HandshakeRefusal, Hello, shake_hands};
use crate::process_slot::ProcessSlot;
use crate::trace::{Level, Turn};

/// The time after which a guardian repeats a lost death notice.
const TELL_AGAIN: Duration = Duration::from_millis(50);

/// The extent of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The node's process: its connections close, and its guardian ends its work and reports the death.
    Process,
    /// The process and its guardian: the connections close, the work dies with the guardian, and no death is
    /// reported.
    ProcessAndGuardian,
    /// The whole host: nothing closes, and no death is reported.
    Host,
}

impl<A: Algorithm> World<A> {
    /// Crashes a node; everything that is not on the disk is lost.
    pub fn crash(&mut self, slot: ProcessSlot, what: Crash, met: MetByCrash) {
        let Some(process) = self.slots[slot.0].take() else { return };
        let text = match what {
            Crash::Process => "crashes",
            Crash::ProcessAndGuardian => "crashes, and its guardian too",
            Crash::Host => "loses power",
        };
        self.trace_turn(slot, Level::Event, Turn::Ends, || text.to_owned());
        self.counters.count(match (what, &process.writing, met) {
            (_, Some(_), MetByCrash::Lost) => "fault: crash before a write is kept",
            (_, Some(_), MetByCrash::Kept) => "fault: crash after a write is kept",
            (Crash::Process, None, _) => "fault: crash",
            (Crash::ProcessAndGuardian, None, _) => "fault: crash with the guardian",
            (Crash::Host, None, _) => "fault: crash of a host",
        });
        let (dead, life) = (process.me, process.life);
        self.observe(Observation::Ended { who: dead });
        let guarded = self.node(slot).guarded;
        let node = self.node_mut(slot);
        node.leader = None;
        match (process.writing, met) {
            (Some(written), MetByCrash::Kept) => self.keep(slot, written),
            (Some(_), MetByCrash::Lost) | (None, MetByCrash::Lost | MetByCrash::Kept) => {}
        }
        self.clients.gone(life);
        match what {
            Crash::Process if guarded => {
                self.close_all(slot, life);
                self.plan(self.conditions.kill, ScheduledEvent::WorkKilled { slot, dead });
            }
            Crash::Process | Crash::ProcessAndGuardian => {
                self.close_all(slot, life);
                self.leaderships.gone(self.now, dead);
                self.node_mut(slot).guarded = false;
            }
            Crash::Host => {
                self.leaderships.gone(self.now, dead);
                let guardian = self.guardian(slot);
                self.slots[guardian.0] = None;
                self.node_mut(slot).guarded = false;
            }
        }
    }

    fn guardian(&self, slot: ProcessSlot) -> ProcessSlot {
        ProcessSlot(slot.0 % self.nodes.len() + self.nodes.len())
    }

    fn close_all(&mut self, slot: ProcessSlot, life: u64) {
        for other in self.slots() {
            let (a, b) = (self.host(slot), self.host(other));
            let Some(lives) = self.network.connection(a, b).filter(|_| other != slot) else { continue };
            let mine = if a < b { lives.0 } else { lives.1 };
            if mine == life && !self.network.is_cut(a, b) {
                let delay = self.network.delay(a, b);
                self.plan(delay, ScheduledEvent::Close { to: other, from: slot, lives });
            }
        }
    }

    pub(crate) fn closed(&mut self, to: ProcessSlot, from: ProcessSlot, lives: (u64, u64)) {
        let (a, b) = (self.host(from), self.host(to));
        if self.network.connection(a, b) != Some(lives) {
            return; // A newer connection has taken its place.
        }
        self.network.set_connection(a, b, None);
        let name = self.node(from).name;
        self.give(to, Input::Evidence(Evidence::Disconnected(name)));
    }

    /// Closes the connection of two nodes, as a proxy between them may; the nodes reconnect.
    pub fn close(&mut self, a: ProcessSlot, b: ProcessSlot) {
        let hosts = (self.host(a), self.host(b));
        if self.network.connection(hosts.0, hosts.1).is_none() {
            return;
        }
        self.network.set_connection(hosts.0, hosts.1, None);
        self.counters.count("fault: connection closed");
        let (name_a, name_b) = (self.node(a).name, self.node(b).name);
        self.give(a, Input::Evidence(Evidence::Disconnected(name_b)));
        self.give(b, Input::Evidence(Evidence::Disconnected(name_a)));
        self.plan(self.conditions.reconnect, ScheduledEvent::Reconnect { slots: (a, b) });
    }

    /// Records that the guardian has ended the work of its dead node; only then does it notify the peers.
    pub(crate) fn work_killed(&mut self, slot: ProcessSlot, dead: Identity) {
        self.leaderships.gone(self.now, dead);
        if !self.node(slot).guarded {
            return;
        }
        for to in self.slots().filter(|&to| to != slot) {
            self.tell_death(slot, to, dead);
        }
        let seed = self.rng.next_u64();
        let node = self.node(slot);
        if let Some(start) = A::GUARDIAN {
            let machine = start(&node.settings, dead, seed, node.clock.read(self.now));
            let guardian = self.guardian(slot);
            self.begin(guardian, dead, machine);
        }
    }

    pub(crate) fn tell_death(&mut self, guardian_of: ProcessSlot, to: ProcessSlot, dead: Identity) {
        if !self.node(guardian_of).guarded {
            return;
        }
        let (a, b) = (self.host(guardian_of), self.host(to));
        let fate = self.network.fate(a, b, "Died", &mut self.rng);
        // A connection retransmits lost packets, so it delivers every notice once.
        match fate.arrivals[0] {
            Some(delay) => {
                self.counters.count("death told");
                self.trace_death(guardian_of, to, dead, fate);
                self.plan(delay, ScheduledEvent::Notice { slot: to, evidence: Evidence::Died(dead) });
            }
            None => self.plan(TELL_AGAIN, ScheduledEvent::TellDeath { guardian_of, to, dead }),
        }
    }

    /// Crashes only the guardian of a node: the node notices it, ends its work, resigns, and starts a new guardian.
    pub fn crash_guardian(&mut self, slot: ProcessSlot) {
        self.trace_node(slot, Level::Event, || "loses its guardian".to_owned());
        self.counters.count("fault: crash of a guardian");
        let Some(who) = self.process(slot).map(|process| process.me) else {
            self.node_mut(slot).guarded = false; // Nobody is left to start a new one.
            return;
        };
        // The work dies with the guardian.
        self.leaderships.work_ended(self.now, who);
        self.give(slot, Input::Command(Command::Resign));
    }

    /// Starts a crashed node again; with an empty disk, if `disk_lost`.
    pub fn restart(&mut self, slot: ProcessSlot, disk_lost: bool) {
        if self.process(slot).is_some() {
            return;
        }
        if disk_lost {
            let id = self.rng.next_u64();
            // The operator who replaces the disk also configures the current voters.
            let voters = self.newest_voters();
            let node = self.node_mut(slot);
            node.voters = voters;
            let empty = Disk::new(node.shelf.len() + 2, id, node.disk.latency);
            let lost = std::mem::replace(&mut node.disk, empty);
            node.shelf.push(lost);
            let node = node.name;
            self.observe(Observation::DiskLost { node });
            self.counters.count("lost disk: an empty one");
            self.trace_node(slot, Level::Event, || "finds an empty disk".to_owned());
        }
        self.start(slot);
    }

    /// Starts a crashed node again with only the log missing from its disk. Returns false if the node runs, or keeps
    /// no log.
    pub fn restart_without_log(&mut self, slot: ProcessSlot) -> bool {
        let Some(replication) = A::REPLICATION.filter(|_| self.process(slot).is_none()) else { return false };
        (replication.lose_log)(&mut self.node_mut(slot).disk.contents);
        self.counters.count("lost disk: the log alone");
        self.trace_node(slot, Level::Event, || "finds no log on its disk".to_owned());
        self.start(slot);
        true
    }

    /// Starts a crashed node again with a former disk of its own. Returns false if it runs, or has no such disk.
    pub fn restart_with(&mut self, slot: ProcessSlot, number: usize) -> bool {
        let runs = self.process(slot).is_some();
        let node = self.node_mut(slot);
        let found = node.shelf.iter_mut().find(|disk| disk.number == number && !runs);
        let Some(found) = found else { return false };
        std::mem::swap(found, &mut node.disk);
        let node = node.name;
        self.observe(Observation::DiskLost { node });
        self.counters.count("lost disk: a former one is put back");
        self.trace_node(slot, Level::Event, || format!("finds the disk {number} that it had before"));
        self.start(slot);
        true
    }

    /// Makes the newest of the two slots on a node's disk rot, so that the one before it is used. No election that
    /// relies on the lost slot survives this.
    pub fn rot(&mut self, slot: ProcessSlot) {
        self.counters.count("fault: disk rotten");
        let disk = &mut self.node_mut(slot).disk;
        disk.contents.clone_from(&disk.before);
        self.trace_node(slot, Level::Event, || "finds its newest slot rotten".to_owned());
    }

    /// Pauses a process, as by SIGSTOP: its inputs wait, and its clock goes on.
    pub fn pause(&mut self, slot: ProcessSlot) {
        if let Some(process) = &mut self.slots[slot.0] {
            process.paused = true;
            self.counters.count("fault: pause");
            self.trace_turn(slot, Level::Event, Turn::Paused, || "is paused".to_owned());
        }
    }

    /// Resumes a paused process.
    pub fn resume(&mut self, slot: ProcessSlot) {
        if let Some(process) = self.slots[slot.0].as_mut().filter(|process| process.paused) {
            process.paused = false;
            self.trace_turn(slot, Level::Event, Turn::Resumed, || "is resumed".to_owned());
            self.settle(slot);
            self.connect_all();
        }
    }

    /// Freezes a whole machine and its clock, which no lease can survive.
    pub fn freeze(&mut self, slot: ProcessSlot) {
        let now = self.now;
        self.pause(slot);
        self.counters.count("fault: machine frozen");
        self.node_mut(slot).clock.freeze(now);
        self.clock_changed(slot);
    }

    /// Thaws a frozen machine, which goes on as if no time had passed.
    pub fn thaw(&mut self, slot: ProcessSlot) {
        self.set_rate(slot, 0);
        self.resume(slot);
    }

    /// Sets the rate of a clock, in parts per million faster than true time.
    pub fn set_rate(&mut self, slot: ProcessSlot, ppm: i32) {
        let now = self.now;
        self.counters.count("fault: clock runs otherwise");
        self.node_mut(slot).clock.set_rate(now, ppm);
        self.clock_changed(slot);
    }

    /// Makes a clock jump ahead.
    pub fn jump(&mut self, slot: ProcessSlot, by: Duration) {
        let now = self.now;
        self.counters.count("fault: clock jumps");
        self.node_mut(slot).clock.jump(now, by);
        self.clock_changed(slot);
    }

    fn clock_changed(&mut self, slot: ProcessSlot) {
        let guardian = self.guardian(slot);
        if let Some(who) = self.process(slot).map(|process| process.me) {
            let clock = &self.nodes[slot.0].clock;
            self.leaderships.clock_changed(clock, who);
            self.observe(Observation::ClockChanged);
        }
        self.settle(slot);
        self.settle(guardian);
    }

    // ── connections ─────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn is_connected(&self, from: ProcessSlot, life: u64, to: ProcessSlot) -> bool {
        let (a, b) = (self.host(from), self.host(to));
        let lives = self.network.connection(a, b);
        lives.is_some_and(|(first, second)| life == if a < b { first } else { second })
    }

    fn lives(&self, a: ProcessSlot, b: ProcessSlot) -> Option<(u64, u64)> {
        let (one, other) = (self.process(a)?.life, self.process(b)?.life);
        Some(if self.host(a) < self.host(b) { (one, other) } else { (other, one) })
    }

    /// Connects two nodes, if they can reach each other and are not connected already.
    pub(crate) fn connect(&mut self, a: ProcessSlot, b: ProcessSlot) {
        let (host_a, host_b) = (self.host(a), self.host(b));
        let Some(lives) = self.lives(a, b).filter(|_| a != b) else { return };
        if self.network.connection(host_a, host_b) != Some(lives) {
            let round_trip = self.network.delay(host_a, host_b).plus(self.network.delay(host_b, host_a));
            self.plan(round_trip, ScheduledEvent::ShakeHands { slots: (a, b), lives });
        }
    }

    /// Connects all nodes that are not connected.
    pub fn connect_all(&mut self) {
        for a in self.slots() {
            for b in self.slots().filter(|&b| a < b) {
                self.connect(a, b);
            }
        }
    }

    pub(crate) fn shake_hands(&mut self, (a, b): (ProcessSlot, ProcessSlot), lives: (u64, u64)) {
        let (host_a, host_b) = (self.host(a), self.host(b));
        let done = self.network.connection(host_a, host_b) == Some(lives);
        let gone = self.lives(a, b) != Some(lives);
        let paused = [a, b].into_iter().any(|slot| self.process(slot).is_some_and(|it| it.paused));
        let cut = self.network.is_cut(host_a, host_b) || self.network.is_cut(host_b, host_a);
        if done || gone || paused || cut {
            return; // They try again when something changes.
        }
        if let Err(refused) = self.may_talk(a, b) {
            if refused == HandshakeRefusal::Disk && (self.is_former(a, b) || self.is_former(b, a)) {
                self.counters.count("lost disk: a former one is refused");
            }
            for (slot, by) in [(a, b), (b, a)] {
                self.report_disk(slot, by);
            }
            let (name_a, name_b) = (self.node(a).name, self.node(b).name);
            let why = match refused {
                HandshakeRefusal::Voters => "their voter sets differ",
                HandshakeRefusal::TermsOfUse => "their elections promise different things",
                HandshakeRefusal::Disk => "a disk is not the one that was known",
            };
            return self.trace_world(Level::Event, || format!("{name_a} and {name_b} do not talk: {why}"));
        }
        let (disk_a, disk_b) = (self.node(a).disk.id, self.node(b).disk.id);
        let first = |id: u64| PeerDisk { id, ..PeerDisk::default() };
        self.node_mut(a).disk.peers.entry(b).or_insert_with(|| first(disk_b));
        self.node_mut(b).disk.peers.entry(a).or_insert_with(|| first(disk_a));
        self.network.set_connection(host_a, host_b, Some(lives));
        let round_trip = self.network.delay(host_a, host_b).plus(self.network.delay(host_b, host_a));
        self.report_term(a, b);
        self.report_term(b, a);
        for (slot, other) in [(a, b), (b, a)] {
            let Some(identity) = self.process(other).map(|process| process.me) else { continue };
            let (priority, witness) = self.priority_and_witness(other);
            let name = self.node(other).name;
            self.trace_node(slot, Level::Disk, || format!("is connected with {name}"));
            let peer = Peer { identity, priority, witness, round_trip };
            self.give(slot, Input::Evidence(Evidence::Connected(peer)));
        }
    }

    /// Reports to a node that `by` refuses its disk.
    fn report_disk(&mut self, slot: ProcessSlot, by: ProcessSlot) {
        let (id, name) = (self.node(slot).disk.id, self.node(by).name);
        let known = self.node(by).disk.peers.get(&slot).filter(|known| known.id != id);
        let Some(replaced) = known.map(|known| known.former.contains(&id)) else { return };
        self.give(slot, Input::Evidence(Evidence::DiskRefused { by: name, replaced }));
    }

    fn may_talk(&self, a: ProcessSlot, b: ProcessSlot) -> Result<(), HandshakeRefusal> {
        let hello = |slot: ProcessSlot| {
            let node = self.node(slot);
            Hello {
                voters: node.voters.iter().copied().filter(|_| !A::VOTERS_CHANGE).collect(),
                terms_of_use: node.settings.terms_of_use(),
                disk: node.disk.id,
            }
        };
        let (hello_a, hello_b) = (hello(a), hello(b));
        let known =
            |by: ProcessSlot, of: ProcessSlot| self.node(by).disk.peers.get(&of).map(|known| known.id);
        shake_hands(&hello_a, &hello_b, known(a, b))?;
        shake_hands(&hello_b, &hello_a, known(b, a))
    }

    /// True if the election relies on the contents of this node's disk, and every other node would notice a new disk.
    #[must_use]
    pub fn is_known_to_all(&self, slot: ProcessSlot) -> bool {
        let reports = self.can_tell_terms(slot);
        let mut others = self.slots().filter(|&other| other != slot);
        reports && others.all(|other| self.node(other).disk.peers.contains_key(&slot))
    }

    /// True if `by` knows that this node's present disk was replaced by another one.
    #[must_use]
    pub fn is_former(&self, slot: ProcessSlot, by: ProcessSlot) -> bool {
        let known = self.node(by).disk.peers.get(&slot);
        known.is_some_and(|known| known.former.contains(&self.node(slot).disk.id))
    }

    /// True if `by` would readmit that node.
    #[must_use]
    pub fn would_readmit(&self, slot: ProcessSlot, by: ProcessSlot) -> bool {
        self.can_tell_terms(by) && slot != by && !self.is_former(slot, by)
    }

    fn term_to_report(&self, slot: ProcessSlot) -> Option<Term> {
        let recovery = A::RECOVERY?;
        self.process(slot).and_then(|process| (recovery.term_to_report)(&process.machine))
    }

    fn can_tell_terms(&self, by: ProcessSlot) -> bool {
        self.term_to_report(by).is_some()
    }

    /// Readmits a node that has lost its disk, as an operator: from now on `by` knows the node with its new disk.
    /// Returns false if `by` refuses: it does not run, or has lost its own disk and cannot report terms, or the disk
    /// is a former one.
    pub fn readmit(&mut self, slot: ProcessSlot, by: ProcessSlot) -> bool {
        if !self.can_tell_terms(by) || slot == by {
            return false;
        }
        let (id, name) = (self.node(slot).disk.id, self.node(slot).name);
        if self.is_former(slot, by) {
            self.counters.count("lost disk: a former one is not readmitted");
            self.trace_node(by, Level::Event, || format!("does not readmit {name}: its disk was replaced"));
            return false;
        }
        let first = || PeerDisk { id, ..PeerDisk::default() };
        let known = self.node_mut(by).disk.peers.entry(slot).or_insert_with(first);
        if known.id != id {
            known.former.insert(known.id);
        }
        (known.id, known.readmitted) = (id, true);
        self.trace_node(by, Level::Event, || format!("readmits {name}"));
        let connected = self.process(by).is_some_and(|process| self.is_connected(by, process.life, slot))
            && self.process(slot).is_some_and(|process| self.is_connected(slot, process.life, by));
        if !connected {
            self.connect(by, slot);
        } else if !self.network.is_cut(self.host(by), self.host(slot)) {
            // The node was trusted, or was never refused here. If a cut drops the report, the operator readmits it
            // again.
            self.report_term(by, slot);
        }
        true
    }

    /// Sends the voters and the term to a readmitted node, as the first messages over a connection.
    fn report_term(&mut self, by: ProcessSlot, to: ProcessSlot) {
        let reports = self.node(by).disk.peers.get(&to).is_some_and(|known| known.readmitted);
        let term = self.term_to_report(by);
        let voters = self.process(by).and_then(|process| {
            A::REPLICATION.map(|replication| (replication.voters_to_tell)(process.me, &process.machine))
        });
        if let Some(term) = term.filter(|_| reports) {
            let by = self.node(by).name;
            self.trace_node(to, Level::Event, || {
                format!("is told by {by}, which has readmitted it: term {term}")
            });
            if let Some(message) = voters {
                self.give(to, Input::Message { from: Endpoint::Node(by), message });
            }
            self.give(to, Input::Evidence(Evidence::Readmitted { by, term }));
        }
    }
}
