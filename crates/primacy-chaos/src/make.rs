//! Making a fault, and taking back what can be taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::arm::ELECTION;
use crate::fault::{Kind, Part};
use crate::network::Cut;
use crate::notes::{Note, Sent};
use crate::processes::{LOOK_INTERVAL, MARK, marked, signal};
use crate::run::Stage;
use crate::schedule::{Fault, Target};
use crate::trouble::Trouble;

/// The parts of a node, from the top down.
const PARTS: [Part; 3] = [Part::Supervisor, Part::Guardian, Part::Job];
/// How long a node may take to end when it is told to, before it is killed.
const END_MAX: Duration = Duration::from_secs(10);
/// How long a job that wakes first is alone.
const HEAD_START: Duration = Duration::from_millis(25);
/// How long between two nodes of a rolling restart, at most.
const BETWEEN_MAX_MS: u64 = 1_500;

/// The signals of a fault that is made of nothing else.
const fn signals(fault: Fault) -> Option<(&'static [Part], Sent)> {
    let parts: &[Part] = match fault.kind {
        Kind::KillSupervisor | Kind::PauseSupervisor | Kind::Terminate => &[Part::Supervisor],
        Kind::KillGuardian | Kind::PauseGuardian => &[Part::Guardian],
        Kind::KillJob | Kind::PauseJob => &[Part::Job],
        Kind::KillBoth => match fault.detail % 3 {
            0 => &[Part::Supervisor, Part::Guardian],
            1 => &[Part::Guardian, Part::Supervisor],
            _ => &PARTS,
        },
        Kind::Cut | Kind::CutOneWay | Kind::Drop | Kind::Isolate | Kind::QuorumLoss | Kind::Constrained => {
            return None;
        }
        Kind::Chain | Kind::Freeze | Kind::FullDisk | Kind::RestartAll | Kind::RollingRestart => return None,
        Kind::Resign | Kind::Transfer | Kind::FakedClock => return None,
    };
    let sent = if matches!(fault.kind, Kind::Terminate) {
        Sent::Terminate
    } else if matches!(fault.kind, Kind::PauseSupervisor | Kind::PauseGuardian | Kind::PauseJob) {
        Sent::Stop
    } else {
        Sent::Kill
    };
    Some((parts, sent))
}

impl Stage {
    /// Makes a fault.
    ///
    /// # Errors
    /// [`Trouble`] where it cannot be made.
    pub(crate) fn make(&mut self, step: u32, fault: Fault) -> Result<(), Trouble> {
        let node = match fault.target {
            Target::Leader => self.leader(),
            Target::Node(index) => index,
        };
        let name = self.nodes[node].name.clone();
        let note = |what: String| Note::Fault { step, kind: fault.kind, what };
        if let Some((parts, sent)) = signals(fault) {
            return self.strike(note(format!("{name}: {parts:?}")), node, parts, sent);
        }
        if fault.kind.is_of_network() {
            let (cut, what) = self.cut(fault, node);
            self.notes.note(note(what))?;
            return self.network.as_mut().map_or(Ok(()), |network| network.cut(cut));
        }
        match fault.kind {
            Kind::Freeze => {
                self.strike(note(name), node, &PARTS, Sent::Stop)?;
                for pid in marked(&self.nodes[node].start.mark) {
                    signal(pid, Signal::STOP);
                }
            }
            Kind::FullDisk => {
                let leader = self.leader();
                self.fill(note(name), node)?;
                self.nodes[leader].send(Part::Supervisor, Sent::Kill, &mut self.notes)?;
            }
            Kind::RestartAll => {
                self.notes.note(note("all".into()))?;
                for node in &self.nodes {
                    for part in PARTS {
                        node.send(part, Sent::Kill, &mut self.notes)?;
                    }
                }
            }
            Kind::RollingRestart => {
                self.notes.note(note("one after the other".into()))?;
                self.roll(fault.detail)?;
            }
            Kind::Resign => {
                self.notes.note(note(name.clone()))?;
                self.verb("resign", &name, &[])?;
            }
            Kind::Transfer => {
                let to = self.nodes[self.other(node, fault.detail)].name.clone();
                self.notes.note(note(format!("{name} to {to}")))?;
                self.verb("transfer", &name, &["--to", &to])?;
            }
            // Signals and links are made above; a faked clock holds from the first life on.
            Kind::KillSupervisor | Kind::KillGuardian | Kind::KillJob | Kind::KillBoth => {}
            Kind::PauseSupervisor | Kind::PauseGuardian | Kind::PauseJob | Kind::Terminate => {}
            Kind::Cut | Kind::CutOneWay | Kind::Drop | Kind::Isolate => {}
            Kind::QuorumLoss | Kind::Constrained | Kind::Chain | Kind::FakedClock => {}
        }
        Ok(())
    }

    /// Another node than this one.
    fn other(&self, node: usize, detail: u64) -> usize {
        let count = self.nodes.len();
        let ahead = usize::try_from(detail % (count as u64 - 1)).unwrap_or(0);
        (node + 1 + ahead) % count
    }

    fn strike(&mut self, note: Note, node: usize, parts: &[Part], sent: Sent) -> Result<(), Trouble> {
        self.notes.note(note)?;
        if sent == Sent::Stop && !self.stopped.contains(&node) {
            self.stopped.push(node);
        }
        for &part in parts {
            self.nodes[node].send(part, sent, &mut self.notes)?;
        }
        Ok(())
    }

    /// Which links this fault cuts, and that in words.
    fn cut(&self, fault: Fault, node: usize) -> (Cut, String) {
        let (leader, other) = (self.leader(), self.other(node, fault.detail));
        let hub = self.other(leader, fault.detail);
        let name = |index: usize| self.nodes[index].name.as_str();
        let (detail, count) = (fault.detail >> 32, self.nodes.len());
        // All links but those that stay.
        let links = |stays: &dyn Fn(usize, usize) -> bool| -> BTreeSet<(usize, usize)> {
            let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            pairs.filter(|&(from, to)| from != to && !stays(from, to)).collect()
        };
        let only = |links: BTreeSet<(usize, usize)>| Cut { links, shares: BTreeMap::new() };
        match fault.kind {
            Kind::Cut => {
                let both = BTreeSet::from([(node, other), (other, node)]);
                (only(both), format!("{} and {}", name(node), name(other)))
            }
            Kind::CutOneWay => match detail % 4 {
                2 => (only(links(&|from, _| from != node)), format!("from {} to all", name(node))),
                3 => (only(links(&|_, to| to != node)), format!("from all to {}", name(node))),
                _ => {
                    (only(BTreeSet::from([(node, other)])), format!("from {} to {}", name(node), name(other)))
                }
            },
            Kind::Drop => {
                let percent = 10 + detail % 60;
                let cut = Cut { links: BTreeSet::new(), shares: BTreeMap::from([(node, percent)]) };
                (cut, format!("{percent} % of what arrives at {}", name(node)))
            }
            Kind::QuorumLoss => {
                (only(links(&|from, to| from == hub || to == hub)), format!("only {} reaches all", name(hub)))
            }
            Kind::Constrained => {
                let stays = |from, to| (from == hub || to == hub) && from != leader && to != leader;
                let what = format!("only {} reaches the others, and not {}", name(hub), name(leader));
                (only(links(&stays)), what)
            }
            Kind::Chain => {
                // From the one that was hit on, around.
                let place = |index: usize| (index + count - node) % count;
                let stays = |from, to| place(from).abs_diff(place(to)) == 1;
                (only(links(&stays)), format!("in a row from {}", name(node)))
            }
            Kind::Isolate => (only(links(&|from, to| from != node && to != node)), name(node).to_owned()),
            // These cut no link.
            Kind::KillSupervisor | Kind::KillGuardian | Kind::KillJob | Kind::KillBoth => Default::default(),
            Kind::PauseSupervisor | Kind::PauseGuardian | Kind::PauseJob | Kind::Freeze => Default::default(),
            Kind::FullDisk | Kind::Terminate | Kind::RestartAll | Kind::RollingRestart => Default::default(),
            Kind::Resign | Kind::Transfer | Kind::FakedClock => Default::default(),
        }
    }

    fn fill(&mut self, note: Note, node: usize) -> Result<(), Trouble> {
        self.notes.note(note)?;
        // Of a node that has none, the next one's.
        let disk = self.disks.iter().find(|(of, _)| of.is_none_or(|of| of >= node)).or(self.disks.first());
        let Some((of, disk)) = disk else { return Ok(()) };
        let node = of.map(|of| self.nodes[of].name.clone());
        self.notes.note(Note::Disk { node, full: true })?;
        self.full = true;
        disk.fill()
    }

    /// Tells each node to end, and waits until it is back.
    fn roll(&mut self, detail: u64) -> Result<(), Trouble> {
        for index in 0..self.nodes.len() {
            let life = self.nodes[index].life;
            self.nodes[index].send(Part::Supervisor, Sent::Terminate, &mut self.notes)?;
            let until = Instant::now() + END_MAX;
            while self.nodes[index].life == life && Instant::now() < until && !self.is_over() {
                self.turn()?;
                std::thread::sleep(LOOK_INTERVAL);
            }
            if self.nodes[index].life == life && !self.is_over() {
                let what = format!("{} did not end within {END_MAX:?} of SIGTERM", self.nodes[index].name);
                self.notes.note(Note::Stuck { step: 0, what })?;
                self.nodes[index].send(Part::Supervisor, Sent::Kill, &mut self.notes)?;
            }
            self.pause(Duration::from_millis(
                detail.rotate_right(8 * u32::try_from(index).unwrap_or(0)) % BETWEEN_MAX_MS,
            ))?;
        }
        Ok(())
    }

    fn verb(&mut self, verb: &str, node: &str, more: &[&str]) -> Result<(), Trouble> {
        let Some(start) = self.nodes.iter().find(|each| each.name == node).map(|node| &node.start) else {
            return Ok(());
        };
        let mut command = Command::new(&start.primacy);
        command
            .args([verb, "--election", ELECTION, "--node", node, "--no-wait", "--state-dir"])
            .arg(&start.state);
        command.args(more).env(MARK, format!("{}-operator", start.mark));
        // What it says is no part of the judgement: a node that does not lead refuses.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.verbs.push(command.spawn().map_err(Trouble::file("start", &start.primacy))?);
        Ok(())
    }

    /// Takes back what can be taken back.
    ///
    /// # Errors
    /// [`Trouble`]
    pub(crate) fn heal(&mut self, step: u32) -> Result<(), Trouble> {
        let dropped = match &mut self.network {
            Some(network) => network.heal()?,
            None => 0,
        };
        if std::mem::take(&mut self.full) {
            for (of, disk) in &self.disks {
                disk.free()?;
                let node = of.map(|of| self.nodes[of].name.clone());
                self.notes.note(Note::Disk { node, full: false })?;
            }
        }
        for index in std::mem::take(&mut self.stopped) {
            let node = &self.nodes[index];
            let mut order = PARTS;
            if step.is_multiple_of(2) {
                // The job wakes first, and acts before anybody can keep it from that: what only the fence can refuse.
                order.reverse();
            }
            for part in order {
                if node.send(part, Sent::Continue, &mut self.notes)?
                    && part == Part::Job
                    && step.is_multiple_of(2)
                {
                    std::thread::sleep(HEAD_START);
                }
            }
            // Also those that are no part any more: what a dead guardian has left, or a grandchild.
            for pid in marked(&node.start.mark) {
                signal(pid, Signal::CONT);
            }
        }
        self.notes.note(Note::Healed { step, dropped })
    }
}
