//! Fault injection, and the undoing of revocable faults.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use primacy::clock;
use rustix::process::Signal;

use crate::chaos::arm::ELECTION;
use crate::chaos::event_log::{RunEvent, Sent};
use crate::chaos::fault::{Kind, NodeProcess};
use crate::chaos::processes::{LOOK_INTERVAL, MARK, marked, signal};
use crate::chaos::run::ArmRun;
use crate::chaos::schedule::{Fault, Target};
use crate::chaos::server::Store;
use primacy_testbed::network::Cut;
use primacy_testbed::run_error::RunError;

/// The processes of a node, from parent to child.
const PARTS: [NodeProcess; 3] = [NodeProcess::Supervisor, NodeProcess::Guardian, NodeProcess::Job];
/// The time that a terminated node has to end, before it is killed.
pub(crate) const END_MAX: Duration = Duration::from_secs(10);
/// The time for which a job that wakes first runs alone.
const HEAD_START: Duration = Duration::from_millis(25);
/// The longest pause between two nodes of a rolling restart.
const BETWEEN_MAX_MS: u64 = 1_500;

/// Returns the signals of a fault that consists only of signals.
const fn signals(fault: Fault) -> Option<(&'static [NodeProcess], Sent)> {
    let parts: &[NodeProcess] = match fault.kind {
        Kind::KillSupervisor | Kind::PauseSupervisor | Kind::Terminate => &[NodeProcess::Supervisor],
        Kind::KillGuardian | Kind::PauseGuardian => &[NodeProcess::Guardian],
        Kind::KillJob | Kind::PauseJob => &[NodeProcess::Job],
        Kind::KillBoth => match fault.detail % 3 {
            0 => &[NodeProcess::Supervisor, NodeProcess::Guardian],
            1 => &[NodeProcess::Guardian, NodeProcess::Supervisor],
            _ => &PARTS,
        },
        Kind::Cut | Kind::CutOneWay | Kind::Drop | Kind::Isolate | Kind::QuorumLoss | Kind::Constrained => {
            return None;
        }
        Kind::Chain | Kind::Freeze | Kind::FullDisk | Kind::RestartAll | Kind::RollingRestart => return None,
        Kind::Resign | Kind::Transfer | Kind::ReplaceVoter | Kind::FakedClock => return None,
        Kind::StoreCut | Kind::StoreStall | Kind::StoreRepliesLost => return None,
        Kind::StoreOutage | Kind::StoreKilled => return None,
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

/// An operator's command that is running.
#[derive(Debug)]
pub(crate) struct Verb {
    step: u32,
    kind: Kind,
    line: String,
    child: Child,
    /// True if a voter was being replaced meanwhile: the command may name a node that is no voter any more.
    replacing: bool,
}

/// The exit codes of an operator's command that was obeyed: as requested, or with another node elected.
const OBEYED: [i32; 2] = [0, 2];
/// The exit codes of a command that the node could not obey: it is not running, or does not lead.
pub(crate) const DISOBEYED: [i32; 2] = [69, 75];

/// The description of a fault's target.
fn whom(kind: Kind, name: String, other: &str) -> String {
    match kind {
        Kind::RestartAll | Kind::RollingRestart => "all nodes".to_owned(),
        Kind::FullDisk | Kind::StoreOutage | Kind::StoreKilled => "the store".to_owned(),
        Kind::StoreCut | Kind::StoreStall | Kind::StoreRepliesLost => name,
        Kind::Transfer => format!("{name} to {other}"),
        Kind::ReplaceVoter => name,
        Kind::Freeze | Kind::Resign | Kind::Terminate | Kind::FakedClock => name,
        Kind::KillSupervisor | Kind::KillGuardian | Kind::KillJob | Kind::KillBoth => name,
        Kind::PauseSupervisor | Kind::PauseGuardian | Kind::PauseJob => name,
        Kind::Cut | Kind::CutOneWay | Kind::Drop | Kind::Isolate => name,
        Kind::QuorumLoss | Kind::Constrained | Kind::Chain => name,
    }
}

impl ArmRun {
    /// Injects a fault, and records whether it took effect, as far as that is known at once.
    ///
    /// # Errors
    /// [`RunError`] if it cannot be injected.
    pub(crate) fn make(&mut self, step: u32, fault: Fault) -> Result<(), RunError> {
        let node = match fault.target {
            Target::Leader => self.leader(),
            Target::Node(index) => index,
        };
        let kind = fault.kind;
        let name = self.nodes[node].name.clone();
        let event = |what: String| RunEvent::Fault { step, kind, what };
        let took = if let Some((parts, sent)) = signals(fault) {
            self.events.log(event(format!("{name}: {parts:?}")))?;
            self.strike(node, parts, sent)?
        } else if kind.is_of_network() {
            let (cut, what) = self.cut(fault, node);
            self.events.log(event(what))?;
            if let Some(network) = &mut self.network {
                network.cut(cut)?;
                self.cuts.push(kind);
            }
            // Its packet counters show that at the healing.
            false
        } else if kind.is_of_store() {
            self.events.log(event(whom(kind, name, "")))?;
            if let Some(store) = &mut self.store {
                store.make(kind, node);
            }
            false
        } else {
            let to = self.nodes[self.other(node, fault.detail)].name.clone();
            self.events.log(event(whom(kind, name, &to)))?;
            self.make_other(step, fault, node, &to)?
        };
        if took { self.events.log(RunEvent::Took { step, kind }) } else { Ok(()) }
    }

    /// Injects a fault that is neither signals nor links. Returns whether it took effect, as far as that is known at
    /// once.
    fn make_other(&mut self, step: u32, fault: Fault, node: usize, to: &str) -> Result<bool, RunError> {
        let most = self.nodes.len() / 2 + 1;
        match fault.kind {
            Kind::Freeze => self.freeze(node),
            Kind::FullDisk => {
                let leader = self.leader();
                self.fill()?;
                self.nodes[leader].send(NodeProcess::Supervisor, Sent::Kill, &mut self.events)?;
                // The nodes report when they meet the full disk.
                Ok(false)
            }
            Kind::RestartAll => {
                let mut hit = 0;
                for node in &self.nodes {
                    for part in PARTS {
                        let got = node.send(part, Sent::Kill, &mut self.events)?;
                        hit += usize::from(got && part == NodeProcess::Supervisor);
                    }
                }
                Ok(hit >= most)
            }
            Kind::RollingRestart => Ok(self.roll(fault.detail)? >= most),
            // The end of the command shows whether it took effect.
            Kind::Resign => self.verb(step, fault.kind, node, &["resign"]).map(|()| false),
            Kind::Transfer => self.verb(step, fault.kind, node, &["transfer", "--to", to]).map(|()| false),
            // It goes on during the following steps, and reports when it is done.
            Kind::ReplaceVoter => self.begin_replacing(step, node, fault.detail).map(|()| false),
            // Signals and links are injected elsewhere; a faked clock is in place from the first incarnation on.
            Kind::KillSupervisor | Kind::KillGuardian | Kind::KillJob | Kind::KillBoth => Ok(false),
            Kind::PauseSupervisor | Kind::PauseGuardian | Kind::PauseJob | Kind::Terminate => Ok(false),
            Kind::Cut | Kind::CutOneWay | Kind::Drop | Kind::Isolate => Ok(false),
            Kind::QuorumLoss | Kind::Constrained | Kind::Chain | Kind::FakedClock => Ok(false),
            Kind::StoreCut | Kind::StoreStall | Kind::StoreRepliesLost => Ok(false),
            Kind::StoreOutage | Kind::StoreKilled => Ok(false),
        }
    }

    /// Returns another node, if there is one.
    pub(crate) fn other(&self, node: usize, detail: u64) -> usize {
        let count = self.nodes.len();
        let ahead = usize::try_from(detail.checked_rem(count as u64 - 1).unwrap_or(0)).unwrap_or(0);
        (node + 1 + ahead) % count
    }

    /// Sends a signal to some processes of a node. Returns whether all got it; the job may be missing if it is not the only
    /// target.
    fn strike(&mut self, node: usize, parts: &[NodeProcess], sent: Sent) -> Result<bool, RunError> {
        if sent == Sent::Stop && !self.stopped.contains(&node) {
            self.stopped.push(node);
        }
        let mut all = true;
        for &part in parts {
            let got = self.nodes[node].send(part, sent, &mut self.events)?;
            all &= got || (part == NodeProcess::Job && parts.len() > 1);
        }
        Ok(all)
    }

    /// Stops all processes of a node. Returns whether supervisor and guardian were running.
    fn freeze(&mut self, node: usize) -> Result<bool, RunError> {
        let before = clock::now().as_nanos();
        let took = self.strike(node, &PARTS, Sent::Stop)?;
        let node = &self.nodes[node];
        for pid in marked(&node.start.mark) {
            signal(pid, Signal::STOP)?;
        }
        if node.pid(NodeProcess::Job).is_none() {
            // A job that has not reported itself yet is stopped too.
            self.events.log_at(before, node.signalled(NodeProcess::Job, Sent::Stop))?;
        }
        Ok(took)
    }

    /// Returns the links that this fault cuts, with a description.
    fn cut(&self, fault: Fault, node: usize) -> (Cut, String) {
        let (leader, other) = (self.leader(), self.other(node, fault.detail));
        let hub = self.other(leader, fault.detail);
        let name = |index: usize| self.nodes[index].name.as_str();
        let (detail, count) = (fault.detail >> 32, self.nodes.len());
        // All links but the remaining ones.
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
                // The position of a node in a ring that begins with the target.
                let place = |index: usize| (index + count - node) % count;
                let stays = |from, to| place(from).abs_diff(place(to)) == 1;
                (only(links(&stays)), format!("in a row from {}", name(node)))
            }
            Kind::Isolate => (only(links(&|from, to| from != node && to != node)), name(node).to_owned()),
            // These faults cut no link.
            Kind::KillSupervisor | Kind::KillGuardian | Kind::KillJob | Kind::KillBoth => Default::default(),
            Kind::PauseSupervisor | Kind::PauseGuardian | Kind::PauseJob | Kind::Freeze => Default::default(),
            Kind::FullDisk | Kind::Terminate | Kind::RestartAll | Kind::RollingRestart => Default::default(),
            Kind::Resign | Kind::Transfer | Kind::ReplaceVoter | Kind::FakedClock => Default::default(),
            Kind::StoreCut | Kind::StoreStall | Kind::StoreRepliesLost => Default::default(),
            Kind::StoreOutage | Kind::StoreKilled => Default::default(),
        }
    }

    fn fill(&mut self) -> Result<(), RunError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        self.events.log(RunEvent::Disk { full: true })?;
        self.full = true;
        disk.fill()
    }

    /// Terminates each node, and waits until it is back. Returns how many were running.
    fn roll(&mut self, detail: u64) -> Result<usize, RunError> {
        let mut told = 0;
        for index in 0..self.nodes.len() {
            let life = self.nodes[index].life;
            let got = self.nodes[index].send(NodeProcess::Supervisor, Sent::Terminate, &mut self.events)?;
            told += usize::from(got);
            let until = Instant::now() + END_MAX;
            while self.nodes[index].life == life && Instant::now() < until && !self.is_over() {
                self.turn()?;
                std::thread::sleep(LOOK_INTERVAL);
            }
            if self.nodes[index].life == life && !self.is_over() {
                let what = format!("{} did not end within {END_MAX:?} of SIGTERM", self.nodes[index].name);
                self.events.log(RunEvent::Stuck { step: 0, what })?;
                self.nodes[index].send(NodeProcess::Supervisor, Sent::Kill, &mut self.events)?;
            }
            self.pause(Duration::from_millis(
                detail.rotate_right(8 * u32::try_from(index).unwrap_or(0)) % BETWEEN_MAX_MS,
            ))?;
        }
        Ok(told)
    }

    fn verb(&mut self, step: u32, kind: Kind, node: usize, words: &[&str]) -> Result<(), RunError> {
        let node = &self.nodes[node];
        let start = &node.start;
        let mut command = Command::new(&start.primacy);
        command.args(words).args(["--election", ELECTION, "--node", &node.name, "--no-wait", "--state-dir"]);
        command.arg(&start.state).env(MARK, format!("{}-operator", start.mark));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(RunError::file("start", &start.primacy))?;
        self.verbs.push(Verb {
            step,
            kind,
            line: format!("primacy {} --node {}", words.join(" "), node.name),
            child,
            replacing: self.replacing.is_some(),
        });
        Ok(())
    }

    /// Collects the ended commands of the operator, and records those that failed for no reason that chaos gives
    /// them. A command to a stopped node ends when that node continues.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn take_verbs(&mut self) -> Result<(), RunError> {
        for mut verb in std::mem::take(&mut self.verbs) {
            verb.replacing |= self.replacing.is_some();
            let failed = |said: String| RunError::Program { line: verb.line.clone(), said };
            let Some(status) = verb.child.try_wait().map_err(|error| failed(error.to_string()))? else {
                self.verbs.push(verb);
                continue;
            };
            let ended_with = |codes: [i32; 2]| status.code().is_some_and(|code| codes.contains(&code));
            if ended_with(OBEYED) {
                self.events.log(RunEvent::Took { step: verb.step, kind: verb.kind })?;
            } else if !ended_with(DISOBEYED) && !verb.replacing {
                let mut said = String::new();
                if let Some(mut stderr) = verb.child.stderr.take() {
                    stderr.read_to_string(&mut said).map_err(|error| failed(error.to_string()))?;
                }
                let what = failed(format!("{status}: {}", said.trim())).to_string();
                self.events.log(RunEvent::Failed { step: verb.step, what })?;
            }
        }
        Ok(())
    }

    /// Records the operator's commands that have not ended; they are abandoned.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn leave_verbs(&mut self, waited: Duration) -> Result<(), RunError> {
        for verb in std::mem::take(&mut self.verbs) {
            let what = format!("`{}` did not end, {waited:?} after its node was told to end", verb.line);
            self.events.log(RunEvent::Failed { step: verb.step, what })?;
        }
        Ok(())
    }

    /// Undoes all revocable faults.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn heal(&mut self, step: u32) -> Result<(), RunError> {
        let (dropped, by_cut) = match &mut self.network {
            Some(network) => network.heal()?,
            None => (0, Vec::new()),
        };
        let cuts = std::mem::take(&mut self.cuts).into_iter().zip(by_cut);
        for (kind, _) in cuts.filter(|(_, dropped)| *dropped > 0) {
            self.events.log(RunEvent::Took { step, kind })?;
        }
        for kind in self.store.iter_mut().flat_map(Store::heal) {
            self.events.log(RunEvent::Took { step, kind })?;
        }
        if std::mem::take(&mut self.full)
            && let Some(disk) = &self.disk
        {
            disk.free()?;
            self.events.log(RunEvent::Disk { full: false })?;
        }
        for index in std::mem::take(&mut self.stopped) {
            let node = &self.nodes[index];
            let mut order = PARTS;
            if step.is_multiple_of(2) {
                // The job wakes first, and acts before its guardian can stop it: only the fence can refuse that.
                order.reverse();
            }
            for part in order {
                if node.send(part, Sent::Continue, &mut self.events)?
                    && part == NodeProcess::Job
                    && step.is_multiple_of(2)
                {
                    std::thread::sleep(HEAD_START);
                }
            }
            // Includes processes that belong to no current incarnation: those of a dead guardian, or a grandchild.
            for pid in marked(&node.start.mark) {
                signal(pid, Signal::CONT)?;
            }
            if node.pid(NodeProcess::Job).is_none() {
                self.events.log(node.signalled(NodeProcess::Job, Sent::Continue))?;
            }
        }
        self.events.log(RunEvent::Healed { step, dropped })
    }
}
