//! Three etcd members with the same faults: the system that Primacy is compared with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::cluster::boot_ns;
use super::failed;
use super::namespaces::command_in;
use super::process_group::{Line, Lines, ProcessGroup, start};
use crate::exit::Failure;

/// The heartbeat interval and the election timeout of etcd.
#[derive(Clone, Copy, Debug)]
pub(super) struct EtcdTimers {
    pub(super) heartbeat_ms: u32,
    pub(super) election_ms: u32,
}

/// The timers that are compared with: etcd's defaults, and the shortest that are stable on a small machine.
pub(super) const TIMERS: &[EtcdTimers] = &[
    EtcdTimers { heartbeat_ms: 100, election_ms: 1_000 },
    EtcdTimers { heartbeat_ms: 10, election_ms: 100 },
];

pub(super) const MEMBERS: usize = 3;
/// The error for a comparison with another number of nodes.
pub(super) const OTHER_COUNT: &str = "etcd has three members here: compare it with --nodes 3";
const PATIENCE: Duration = Duration::from_secs(60);
/// The time for a restarted member to catch up before the next trial.
const SETTLE: Duration = Duration::from_secs(2);

/// An etcd cluster.
#[derive(Debug)]
pub(super) struct Rival<'a> {
    group: &'a ProcessGroup,
    name: String,
    timers: EtcdTimers,
    namespace: Option<String>,
    dir: PathBuf,
    ports: Vec<(u16, u16)>,
    members: Vec<Option<Child>>,
    lives: Vec<u32>,
    lines: Lines,
    leader: Option<usize>,
    /// The number of leader elections, in the output read so far.
    elections: u64,
    measured: Measured,
}

/// The measurements of all trials.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) elected: Vec<Duration>,
    /// The number of discarded trials, in which the leader changed before it was killed.
    pub(super) discarded: usize,
}

/// The maximum number of trials discarded in a row.
const DISCARDED_MAX: usize = 10;

impl<'a> Rival<'a> {
    /// Starts three members with these timers, on this machine's loopback.
    pub(super) fn start(group: &'a ProcessGroup, dir: &Path, timers: EtcdTimers) -> Result<Self, Failure> {
        Self::start_in(group, dir, timers, None)
    }

    /// Starts three members with these timers, on the loopback of a namespace.
    pub(super) fn start_in(
        group: &'a ProcessGroup,
        dir: &Path,
        timers: EtcdTimers,
        namespace: Option<String>,
    ) -> Result<Self, Failure> {
        let EtcdTimers { heartbeat_ms, election_ms } = timers;
        let dir = dir.join(format!("etcd-{heartbeat_ms}-{election_ms}"));
        fs::create_dir_all(&dir)?;
        let mut rival = Self {
            group,
            name: format!("etcd {heartbeat_ms}/{election_ms} ms"),
            timers,
            namespace,
            dir,
            ports: free_ports(MEMBERS)?,
            members: (0..MEMBERS).map(|_| None).collect(),
            lives: vec![0; MEMBERS],
            lines: Lines::default(),
            leader: None,
            elections: 0,
            measured: Measured::default(),
        };
        (0..MEMBERS).try_for_each(|member| rival.start_member(member))?;
        rival.wait_for_leader(None)?;
        rival.listen(SETTLE)?;
        Ok(rival)
    }

    fn start_member(&mut self, member: usize) -> Result<(), Failure> {
        let mut command = match &self.namespace {
            Some(namespace) => command_in(namespace, "etcd"),
            None => Command::new("etcd"),
        };
        let timers = Some(self.timers);
        self::member(&mut command, &self.dir, &self.ports, member, timers);
        let mut child = start(command)?;
        self.lives[member] += 1;
        self.lines.listen(&mut child, member, self.lives[member])?;
        self.members[member] = Some(child);
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn measured(&self) -> &Measured {
        &self.measured
    }

    pub(super) fn elections(&self) -> u64 {
        self.elections
    }

    /// The members' processes.
    pub(super) fn processes(&self) -> Vec<i32> {
        self.members.iter().flatten().map(|child| child.id().cast_signed()).collect()
    }

    /// Repeats trials until one counts, and returns the time until another member printed that it leads.
    pub(super) fn trial(&mut self) -> Result<Duration, Failure> {
        for _ in 0..DISCARDED_MAX {
            let took = self.strike()?;
            if let Some(took) = took {
                self.measured.elected.push(took);
                return Ok(took);
            }
            eprintln!("{}: discarded, for another one led before the leader was killed", self.name);
            self.measured.discarded += 1;
        }
        Err(failed(format!("{}: its leader changes by itself, so nothing can be measured", self.name)))
    }

    /// Kills the leader once, and restarts it when another member leads. Returns `None` if the leader had changed
    /// before the kill.
    fn strike(&mut self) -> Result<Option<Duration>, Failure> {
        // Reads the output that was written during other measurements.
        self.listen(Duration::ZERO)?;
        let leader = self.leader.ok_or_else(|| failed(format!("{} has no leader", self.name)))?;
        let killed_at = boot_ns();
        let mut killed = self.members[leader].take();
        if let Some(child) = &mut killed {
            child.kill()?;
        }
        // No election is as fast as this read; the lines read here were written before the kill.
        self.listen(Duration::ZERO)?;
        let led = self.leader == Some(leader);
        let elected_at = if led { Some(self.wait_for_leader(Some(leader))?) } else { None };
        if let Some(mut child) = killed {
            child.wait()?;
        }
        self.start_member(leader)?;
        self.wait_until_it_follows(leader)?;
        self.listen(SETTLE)?;
        Ok(elected_at.and_then(|at| at.checked_sub(killed_at)).map(Duration::from_nanos))
    }

    /// Waits for another leader than `killed`. Returns the time at which its line was read, a tenth of a millisecond after it
    /// was written.
    fn wait_for_leader(&mut self, killed: Option<usize>) -> Result<u64, Failure> {
        let until = Instant::now() + PATIENCE;
        while let Some(line) = self.lines.next(self.group, until)? {
            if self.learn(&line) && Some(line.process) != killed {
                return Ok(line.read_ns);
            }
        }
        Err(failed(format!("{}: no member became the leader within {PATIENCE:?}", self.name)))
    }

    fn wait_until_it_follows(&mut self, member: usize) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        while let Some(line) = self.lines.next(self.group, until)? {
            self.learn(&line);
            let own = line.process == member && line.life == self.lives[member];
            if own && line.text.contains(" elected leader ") {
                return Ok(());
            }
        }
        Err(failed(format!("{}: a member did not come back within {PATIENCE:?}", self.name)))
    }

    /// Reads output for this time.
    pub(super) fn listen(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while let Some(line) = self.lines.next(self.group, until)? {
            self.learn(&line);
        }
        Ok(())
    }

    /// True if the line reports a new leader.
    fn learn(&mut self, line: &Line) -> bool {
        let leads = line.text.contains(" became leader at term ") && line.life == self.lives[line.process];
        if leads {
            self.leader = Some(line.process);
            self.elections += 1;
        }
        leads
    }
}

/// Adds the arguments that start one member of a new cluster to a command, with its data below `dir`; `ports` has the
/// client port and the peer port of each member. Without timers, etcd's defaults are used.
pub(super) fn member(
    command: &mut Command,
    dir: &Path,
    ports: &[(u16, u16)],
    member: usize,
    timers: Option<EtcdTimers>,
) {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (clients, peers) = ports[member];
    let all: Vec<String> =
        ports.iter().enumerate().map(|(other, ports)| format!("m{other}={}", url(ports.1))).collect();
    command.args(["--name", &format!("m{member}"), "--logger", "zap", "--log-outputs", "stderr"]);
    command.arg("--data-dir").arg(dir.join(format!("m{member}")));
    command.args(["--listen-client-urls", &url(clients), "--advertise-client-urls", &url(clients)]);
    command.args(["--listen-peer-urls", &url(peers), "--initial-advertise-peer-urls", &url(peers)]);
    command.args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "bench"]);
    if let Some(EtcdTimers { heartbeat_ms, election_ms }) = timers {
        command.args(["--heartbeat-interval", &heartbeat_ms.to_string()]);
        command.args(["--election-timeout", &election_ms.to_string()]);
    }
}

/// Returns this many pairs of free ports, for clients and peers, below the kernel's ephemeral range.
pub(super) fn free_ports(count: usize) -> Result<Vec<(u16, u16)>, Failure> {
    /// The maximum number of pairs for one bench: etcd with each of its timers, and the nodes that it is compared
    /// with.
    const TAKEN_MAX: usize = 2 * MEMBERS * (1 + TIMERS.len());
    // Benches started one after another have adjacent process numbers, and must not use the same ports.
    let process = usize::try_from(std::process::id()).unwrap_or(0);
    let mut free = (10_000..20_000_u16)
        .skip(process * TAKEN_MAX % 9_000)
        .filter(|&port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok());
    let mut ports = Vec::new();
    while ports.len() < count {
        let pair = free.next().zip(free.next());
        ports.push(pair.ok_or_else(|| failed("no ports are free for etcd"))?);
    }
    Ok(ports)
}
