//! Making a fault, and taking back what can be taken back.

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
/// How long between two nodes of a rolling restart, at most.
const BETWEEN_MAX_MS: u64 = 1_500;

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
        match fault.kind {
            Kind::Cut
            | Kind::CutOneWay
            | Kind::Drop
            | Kind::Isolate
            | Kind::QuorumLoss
            | Kind::Constrained
            | Kind::Chain => {
                let (cut, what) = self.cut(fault, node);
                self.notes.note(note(what))?;
                if let Some(network) = &mut self.network {
                    network.cut(cut)?;
                }
                Ok(())
            }
            Kind::KillSupervisor => self.strike(note(name), node, &[Part::Supervisor], Sent::Kill),
            Kind::KillGuardian => self.strike(note(name), node, &[Part::Guardian], Sent::Kill),
            Kind::KillJob => self.strike(note(name), node, &[Part::Job], Sent::Kill),
            Kind::KillBoth => {
                let parts: &[Part] = match fault.detail % 3 {
                    0 => &[Part::Supervisor, Part::Guardian],
                    1 => &[Part::Guardian, Part::Supervisor],
                    _ => &PARTS,
                };
                self.strike(note(format!("{name}: {parts:?}")), node, parts, Sent::Kill)
            }
            Kind::PauseSupervisor => self.strike(note(name), node, &[Part::Supervisor], Sent::Stop),
            Kind::PauseGuardian => self.strike(note(name), node, &[Part::Guardian], Sent::Stop),
            Kind::PauseJob => self.strike(note(name), node, &[Part::Job], Sent::Stop),
            Kind::Freeze => {
                self.strike(note(name), node, &PARTS, Sent::Stop)?;
                for pid in marked(&self.nodes[node].start.mark) {
                    signal(pid, Signal::STOP);
                }
                Ok(())
            }
            Kind::FullDisk => {
                let leader = self.leader();
                self.fill(note(name), node)?;
                self.nodes[leader].send(Part::Supervisor, Sent::Kill, &mut self.notes).map(|_| ())
            }
            Kind::Terminate => self.strike(note(name), node, &[Part::Supervisor], Sent::Terminate),
            Kind::RestartAll => {
                self.notes.note(note("all".into()))?;
                for node in &self.nodes {
                    for part in PARTS {
                        node.send(part, Sent::Kill, &mut self.notes)?;
                    }
                }
                Ok(())
            }
            Kind::RollingRestart => {
                self.notes.note(note("one after the other".into()))?;
                self.roll(fault.detail)
            }
            Kind::Resign => {
                self.notes.note(note(name.clone()))?;
                self.verb("resign", &name, &[])
            }
            Kind::Transfer => {
                let to = self.nodes[self.other(node, fault.detail)].name.clone();
                self.notes.note(note(format!("{name} to {to}")))?;
                self.verb("transfer", &name, &["--to", &to])
            }
            // It holds from the first life on, and is not made a second time.
            Kind::FakedClock => Ok(()),
        }
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
        let count = self.nodes.len();
        let other = self.other(node, fault.detail);
        let name = |index: usize| self.nodes[index].name.as_str();
        let mut cut = Cut::default();
        let but = |keeps: &dyn Fn(usize, usize) -> bool| {
            let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            pairs.filter(|&(from, to)| from != to && !keeps(from, to)).collect()
        };
        let what = match fault.kind {
            Kind::Cut => {
                cut.links.extend([(node, other), (other, node)]);
                format!("{} and {}", name(node), name(other))
            }
            Kind::CutOneWay => match (fault.detail >> 32) % 4 {
                0 | 1 => {
                    cut.links.insert((node, other));
                    format!("from {} to {}", name(node), name(other))
                }
                2 => {
                    cut.links = but(&|from, _| from != node);
                    format!("from {} to all", name(node))
                }
                _ => {
                    cut.links = but(&|_, to| to != node);
                    format!("from all to {}", name(node))
                }
            },
            Kind::Drop => {
                let percent = 10 + (fault.detail >> 32) % 60;
                cut.shares.insert(node, percent);
                format!("{percent} % of what arrives at {}", name(node))
            }
            Kind::QuorumLoss => {
                let hub = self.other(self.leader(), fault.detail);
                cut.links = but(&|from, to| from == hub || to == hub);
                format!("only {} reaches all", name(hub))
            }
            Kind::Constrained => {
                let leader = self.leader();
                let hub = self.other(leader, fault.detail);
                cut.links = but(&|from, to| (from == hub || to == hub) && from != leader && to != leader);
                format!("only {} reaches the others, and not {}", name(hub), name(leader))
            }
            Kind::Chain => {
                // From the one that was hit on, around.
                let place = |index: usize| (index + count - node) % count;
                cut.links = but(&|from, to| place(from).abs_diff(place(to)) == 1);
                format!("in a row from {}", name(node))
            }
            Kind::Isolate => {
                cut.links = but(&|from, to| from != node && to != node);
                name(node).to_owned()
            }
            Kind::KillSupervisor
            | Kind::KillGuardian
            | Kind::KillJob
            | Kind::KillBoth
            | Kind::PauseSupervisor
            | Kind::PauseGuardian
            | Kind::PauseJob
            | Kind::Freeze
            | Kind::FullDisk
            | Kind::Terminate
            | Kind::RestartAll
            | Kind::RollingRestart
            | Kind::Resign
            | Kind::Transfer
            | Kind::FakedClock => String::new(), // No link is cut.
        };
        (cut, what)
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
            self.pause(Duration::from_millis(detail.rotate_right(8 * u32::try_from(index).unwrap_or(0)) % BETWEEN_MAX_MS))?;
        }
        Ok(())
    }

    fn verb(&mut self, verb: &str, node: &str, more: &[&str]) -> Result<(), Trouble> {
        let Some(start) = self.nodes.iter().find(|each| each.name == node).map(|node| &node.start) else { return Ok(()) };
        let mut command = Command::new(&start.primacy);
        command.args([verb, "--election", ELECTION, "--node", node, "--no-wait", "--state-dir"]).arg(&start.state);
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
        if let Some(network) = &mut self.network {
            network.heal()?;
        }
        if std::mem::take(&mut self.full) {
            for (of, disk) in &self.disks {
                disk.free()?;
                let node = of.map(|of| self.nodes[of].name.clone());
                self.notes.note(Note::Disk { node, full: false })?;
            }
        }
        for index in std::mem::take(&mut self.stopped) {
            let node = &self.nodes[index];
            for part in PARTS {
                node.send(part, Sent::Continue, &mut self.notes)?;
            }
            // Also those that are no part any more: what a dead guardian has left, or a grandchild.
            for pid in marked(&node.start.mark) {
                signal(pid, Signal::CONT);
            }
        }
        self.notes.note(Note::Healed { step })
    }
}
