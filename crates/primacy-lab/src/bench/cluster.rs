//! The nodes of a bench: start, fault and restart; their output is read as it arrives.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use primacy::clock;
use primacy::config::{Timers, Venue};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;

use super::namespaces::{self, Namespaces, command_in};
use super::process_group::{Line, Lines, ProcessGroup, start, without_settings};
use super::sockets::Connections;
use super::subject::{self, Home, Meeting, Settings};
use super::{failed, primacy};
use crate::exit::{Exit, Failure};

/// The maximum time to wait for an expected event before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between two checks of the kernel's connections.
const LOOK: Duration = Duration::from_millis(10);
/// The margin beyond its promise after which a new node counts as able to vote, and beyond its settling time a new guardian as settled.
const SETTLE_MARGIN: Duration = Duration::from_millis(100);
/// The time after its start at which a guardian has connected to all peers that are there.
const SETTLING_TIME: Duration = Duration::from_secs(1);
/// The number of output lines shown when an expected event does not happen.
const LINES_SHOWN: usize = 16;
/// Ports below the kernel's ephemeral range, so that a restarted node finds its port free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// The names of nodes; their number is the maximum size of a cluster.
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// The network of the nodes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Network<'a> {
    /// All nodes on this machine's loopback.
    Loopback,
    /// All nodes on the loopback of one namespace.
    Inside(&'a Namespaces, &'a str),
    /// Each node in a namespace of its own.
    Bridged(&'a Namespaces),
}

/// A process of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessRole {
    /// The node itself; for `primacy run`, the supervisor.
    Node,
    Guardian,
    Job,
}

/// The nodes, with their state as their own output reports it.
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    group: &'a ProcessGroup,
    network: Network<'a>,
    settings: Settings,
    timers: Timers,
    program: PathBuf,
    dir: PathBuf,
    meeting: Meeting,
    nodes: Vec<Node>,
    lines: Lines,
    last_lines: VecDeque<String>,
    /// Processes whose parent was killed, and which this process has inherited.
    orphans: Vec<Pid>,
}

#[derive(Debug)]
struct Node {
    name: String,
    address: SocketAddr,
    child: Option<Child>,
    life: u32,
    started_at: Instant,
    guardian: Option<i32>,
    /// The start of its guardian, in nanoseconds of the boot clock.
    guarded_at: Option<u64>,
    job: Option<i32>,
    /// Its election, if it reports that it leads.
    leads: Option<NodeEvent>,
    /// The first line of its job.
    works: Option<NodeEvent>,
    /// The leader that it follows, and the term.
    follows: Option<(String, u64)>,
    /// The number of its elections, over all incarnations.
    elections: u64,
}

/// The reason for which a new leader campaigned, as it reports it.
pub(super) type Evidence = String;

/// An awaited event.
#[derive(Clone, Debug)]
pub(super) struct NodeEvent {
    /// The node that reported it.
    pub(super) node: usize,
    pub(super) token: u64,
    /// For an election, the reason for which the node campaigned.
    pub(super) evidence: Option<Evidence>,
    /// The time of the event on the boot clock, as the process itself read it.
    pub(super) boot_ns: u64,
}

impl<'a> Cluster<'a> {
    /// Starts `count` nodes that elect among themselves, with their state below `dir`.
    pub(super) fn start(
        group: &'a ProcessGroup,
        network: Network<'a>,
        settings: Settings,
        count: usize,
        dir: &Path,
    ) -> Result<Self, Failure> {
        Self::start_on(group, network, settings, count, dir, None)
    }

    /// Starts `count` nodes that elect over the store at this URL; among themselves, if there is none.
    pub(super) fn start_on(
        group: &'a ProcessGroup,
        network: Network<'a>,
        settings: Settings,
        count: usize,
        dir: &Path,
        store: Option<&str>,
    ) -> Result<Self, Failure> {
        if !(2..=NAMES.len()).contains(&count) {
            return Err(Failure::new(Exit::Usage, format!("--nodes: from 2 to {}", NAMES.len())));
        }
        let mut nodes = Vec::new();
        // Benches started one after another have adjacent process numbers, and must not use the same ports.
        let process = usize::try_from(std::process::id()).unwrap_or(0);
        let mut ports = PORTS.skip(process * NAMES.len() % 10_000);
        for (index, name) in names(count).into_iter().enumerate() {
            let address = match network {
                Network::Loopback | Network::Inside(..) => free_address(&mut ports)?,
                Network::Bridged(_) => namespaces::address(index),
            };
            nodes.push(Node::new(name, address));
        }
        let peers: Vec<String> = nodes.iter().map(|node| format!("{}={}", node.name, node.address)).collect();
        let mut cluster = Self {
            group,
            network,
            settings,
            timers: Timers::new(if store.is_some() { Venue::Store } else { Venue::Peers }, settings.lease),
            // By its path rather than /proc/self/exe, because another program enters the namespace.
            program: primacy()?,
            dir: dir.to_owned(),
            meeting: store
                .map_or_else(|| Meeting::Peers(peers.join(",")), |url| Meeting::Store(url.to_owned())),
            nodes,
            lines: Lines::default(),
            last_lines: VecDeque::new(),
            orphans: Vec::new(),
        };
        (0..count).try_for_each(|node| cluster.start_node(node))?;
        Ok(cluster)
    }

    fn start_node(&mut self, index: usize) -> Result<(), Failure> {
        let program = self.program.to_string_lossy().into_owned();
        let name = self.nodes[index].name.clone();
        let mut command = match self.network {
            Network::Loopback => Command::new(&self.program),
            Network::Inside(namespaces, inside) => command_in(&namespaces.name(inside), &program),
            Network::Bridged(namespaces) => command_in(&namespaces.name(&name), &program),
        };
        let job = std::env::current_exe()?;
        subject::start(&mut command, &self.settings, &self.home(index), &job.to_string_lossy());
        let mut child = start(command)?;
        let node = &mut self.nodes[index];
        let life = node.life + 1;
        self.lines.listen(&mut child, index, life)?;
        let elections = node.elections;
        *node = Node { child: Some(child), life, elections, ..Node::new(name, node.address) };
        Ok(())
    }

    fn home(&self, index: usize) -> Home<'_> {
        Home {
            node: &self.nodes[index].name,
            meeting: &self.meeting,
            state_dir: &self.dir,
            cleartext: matches!(self.network, Network::Bridged(_)),
        }
    }

    /// The timers of all nodes.
    pub(super) fn timers(&self) -> &Timers {
        &self.timers
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn name(&self, node: usize) -> &str {
        &self.nodes[node].name
    }

    /// The total number of elections.
    pub(super) fn elections(&self) -> u64 {
        self.nodes.iter().map(|node| node.elections).sum()
    }

    /// The process of this role, if it is known and not known to have ended.
    pub(super) fn pid(&self, node: usize, part: ProcessRole) -> Option<i32> {
        let node = &self.nodes[node];
        match part {
            ProcessRole::Node => {
                node.child.as_ref().map(|child| Pid::from_child(child).as_raw_nonzero().get())
            }
            ProcessRole::Guardian => node.guardian,
            ProcessRole::Job => node.job,
        }
    }

    /// Sends a signal to a part of a node.
    ///
    /// # Errors
    /// If there is no such process.
    pub(super) fn signal(&self, node: usize, part: ProcessRole, signal: Signal) -> Result<(), Failure> {
        let pid = self.pid(node, part).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(format!("{} has no {part:?} to signal", self.name(node))))?;
        Ok(kill_process(pid, signal)?)
    }

    /// The token with which a node leads, as it reports it.
    pub(super) fn token(&self, node: usize) -> Option<u64> {
        self.nodes[node].leads.as_ref().map(|report| report.token)
    }

    /// Transfers the lead to another node by `primacy transfer`, and returns when that command has ended.
    pub(super) fn transfer(&self, leader: usize, to: usize) -> Result<(), Failure> {
        let mut command = Command::new(&self.program);
        command.args(subject::transfer(&self.home(leader), self.name(to))).stdin(Stdio::null());
        without_settings(&mut command);
        let output = command.output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(failed(format!("{} was not transferred to {}: {said}", self.name(leader), self.name(to))))
    }

    /// Waits for an event that is `wanted`.
    pub(super) fn wait_for(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(usize, &Value) -> bool,
    ) -> Result<NodeEvent, Failure> {
        let until = Instant::now() + PATIENCE;
        while let Some(line) = self.lines.next(self.group, until)? {
            let Some((node, event)) = self.learn(line) else { continue };
            let (Some(boot_ns), true) = (event["boot_ns"].as_u64(), wanted(node, &event)) else { continue };
            let token = event["token"].as_u64().unwrap_or(0);
            return Ok(NodeEvent { node, token, evidence: evidence(&event), boot_ns });
        }
        Err(self.did_not_happen(what))
    }

    /// Waits until another node leads, with a higher token.
    pub(super) fn wait_for_elected(&mut self, above: u64) -> Result<NodeEvent, Failure> {
        // The event may have been read while another one was awaited.
        if let Some(report) =
            self.nodes.iter().filter_map(|node| node.leads.clone()).find(|report| report.token > above)
        {
            return Ok(report);
        }
        self.wait_for("the election of another leader", |_, event| {
            event["event"] == "elected" && event["token"].as_u64().is_some_and(|token| token > above)
        })
    }

    /// Waits until the job of this leadership has printed its first line.
    pub(super) fn wait_for_job(&mut self, of: u64) -> Result<NodeEvent, Failure> {
        // The job's output is not ordered with the election's events, and may have been read before them.
        let report =
            self.nodes.iter().filter_map(|node| node.works.clone()).find(|report| report.token == of);
        if let Some(report) = report {
            return Ok(report);
        }
        self.wait_for("the first line of the new job", |_, event| {
            event["job"] == "first_line" && event["token"] == of
        })
    }

    fn did_not_happen(&self, what: &str) -> Failure {
        let lines: Vec<String> = self.last_lines.iter().map(|line| format!("\n  {line}")).collect();
        failed(format!("{what} did not happen within {PATIENCE:?}; the last lines:{}", lines.concat()))
    }

    /// Processes a line of a node's output.
    fn learn(&mut self, line: Line) -> Option<(usize, Value)> {
        let node = &mut self.nodes[line.process];
        self.last_lines.push_back(format!("{}: {}", node.name, line.text));
        if self.last_lines.len() > LINES_SHOWN {
            self.last_lines.pop_front();
        }
        let event: Value = serde_json::from_str(&line.text).ok()?;
        if event["event"] == "elected" {
            node.elections += 1;
        }
        if line.life != node.life {
            return Some((line.process, event)); // It has been started again meanwhile.
        }
        let pid = event["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let token_and_time = event["token"].as_u64().zip(event["boot_ns"].as_u64());
        let report = token_and_time.map(|(token, boot_ns)| NodeEvent {
            node: line.process,
            token,
            evidence: evidence(&event),
            boot_ns,
        });
        match event["event"].as_str() {
            Some("guardian") => (node.guardian, node.guarded_at) = (pid, event["boot_ns"].as_u64()),
            Some("elected") => node.leads = report,
            Some("started") => node.job = pid,
            Some("exited") => node.job = None,
            Some("released") => (node.leads, node.job) = (None, None),
            Some("leader") => {
                let leader = event["leader"].as_str().map(str::to_owned);
                node.follows = leader.zip(event["term"].as_u64());
            }
            Some(_) => {}
            None if event["job"] == "first_line" => node.works = report,
            None => {}
        }
        Some((line.process, event))
    }

    /// Reads output for this time.
    pub(super) fn listen(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while let Some(line) = self.lines.next(self.group, until)? {
            self.learn(line);
        }
        Ok(())
    }

    /// Waits until one node leads, all others follow it, all nodes and guardians are connected, no node is bound by a
    /// promise of an earlier incarnation, and every guardian has released the resources that only its start needs.
    /// Returns the leader and its token.
    ///
    /// # Errors
    /// If it takes too long, or a node has ended.
    pub(super) fn settle(&mut self) -> Result<(usize, u64), Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.listen(LOOK)?;
            self.reap_orphans();
            if let Some(settled) = self.settled() {
                return Ok(settled);
            }
            self.check_alive()?;
            if Instant::now() > until {
                return Err(self.did_not_happen("the settling of the nodes"));
            }
        }
    }

    fn settled(&self) -> Option<(usize, u64)> {
        let mut leaders = self.nodes.iter().enumerate().filter(|(_, node)| node.leads.is_some());
        let (index, leader) = leaders.next()?;
        let token = leader.leads.as_ref()?.token;
        // Among peers the token is the term.
        let agree = self.nodes.iter().all(|node| node.follows == Some((leader.name.clone(), token)));
        // The job's first line is not ordered with the report of its start, and may arrive before it.
        let works = leader.job.is_some() && leader.works.as_ref().is_some_and(|report| report.token == token);
        let works = works || !self.settings.subject.has_job();
        let silence = self.timers.lease + SETTLE_MARGIN;
        let apart = matches!(self.meeting, Meeting::Store(_)); // They promise each other nothing, and are not connected.
        let free = apart || self.nodes.iter().all(|node| node.started_at.elapsed() >= silence);
        let guarded = self.nodes.iter().all(|node| node.guarded_at.is_some_and(has_settled));
        let settled = leaders.next().is_none() && agree && works && free && guarded;
        (settled && (apart || self.all_connected())).then_some((index, token))
    }

    /// True if every node and every guardian has a connection to every other node.
    fn all_connected(&self) -> bool {
        let processes = self.nodes.iter().filter_map(|node| node.guardian);
        let connections = match self.network {
            Network::Loopback | Network::Inside(..) => Connections::of(processes.take(1)),
            Network::Bridged(_) => Connections::of(processes),
        };
        let others = self.nodes.len() - 1;
        self.nodes.iter().all(|node| connections.to(node.address) == 2 * others)
    }

    /// Checks that all nodes run.
    ///
    /// # Errors
    /// If a node has ended.
    pub(super) fn check_alive(&mut self) -> Result<(), Failure> {
        for index in 0..self.nodes.len() {
            let ended = self.nodes[index].child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                // The node's last output may explain its end.
                self.listen(LOOK)?;
                let lines: Vec<&str> = self.last_lines.iter().map(String::as_str).collect();
                let name = self.name(index);
                return Err(failed(format!(
                    "{name} has ended ({status}); the last lines:\n  {}",
                    lines.join("\n  ")
                )));
            }
        }
        Ok(())
    }

    /// Waits for the end of a node that was killed or terminated, and starts it again.
    pub(super) fn restart(&mut self, node: usize) -> Result<(), Failure> {
        let orphans = [ProcessRole::Guardian, ProcessRole::Job]
            .map(|part| self.pid(node, part).and_then(Pid::from_raw));
        self.orphans.extend(orphans.into_iter().flatten());
        if let Some(mut child) = self.nodes[node].child.take() {
            let until = Instant::now() + PATIENCE;
            while child.try_wait()?.is_none() {
                if Instant::now() > until {
                    return Err(self.did_not_happen(&format!("the end of {}", self.name(node))));
                }
                self.listen(LOOK)?;
            }
        }
        self.start_node(node)
    }

    /// Reaps orphans that have ended; otherwise they would stay in the process table until the end of the bench.
    fn reap_orphans(&mut self) {
        self.orphans.retain(|&orphan| matches!(waitpid(Some(orphan), WaitOptions::NOHANG), Ok(None)));
    }
}

impl Node {
    fn new(name: String, address: SocketAddr) -> Self {
        Self {
            name,
            address,
            child: None,
            life: 0,
            started_at: Instant::now(),
            guardian: None,
            guarded_at: None,
            job: None,
            leads: None,
            works: None,
            follows: None,
            elections: 0,
        }
    }
}

/// True if a guardian that was started then has the same resource use as a long-running one by now.
fn has_settled(since: u64) -> bool {
    let age = clock::now().since(primacy::core::Instant::from_nanos(since));
    age >= primacy::core::Duration::from(SETTLING_TIME + SETTLE_MARGIN)
}

fn evidence(event: &Value) -> Option<Evidence> {
    event["evidence"].as_str().map(Evidence::from)
}

/// Returns the first `count` names.
pub(super) fn names(count: usize) -> Vec<String> {
    NAMES.iter().take(count).map(|&name| name.to_owned()).collect()
}

/// The present time, in nanoseconds of the boot clock.
pub(super) fn boot_ns() -> u64 {
    clock::now().as_nanos()
}

fn free_address(ports: &mut impl Iterator<Item = u16>) -> Result<SocketAddr, Failure> {
    for port in ports {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(failed(format!("no port from {} to {} is free", PORTS.start, PORTS.end)))
}
