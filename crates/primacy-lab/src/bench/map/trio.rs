//! Three nodes that serve the etcd API: Primacy's, or etcd's own members.

use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use primacy::stores::etcd::api::{self, method};
use rustix::process::Pid;

use super::caller::{Caller, ask_within};
use crate::bench::etcd::{self, EtcdTimers, MEMBERS};
use crate::bench::idle::memory;
use crate::bench::process_group::{ProcessGroup, spawn, without_settings};
use crate::bench::subject::ELECTION;
use crate::bench::{failed, primacy};
use crate::exit::Failure;
use crate::processes::descendants_of;

/// The maximum time until three nodes serve.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two checks that they serve, and the longest time for an answer.
const LOOK: Duration = Duration::from_millis(20);
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The time for which etcd's members must have been connected before another one is added: five seconds, and the time
/// to detect that.
const CONNECTED_FOR: Duration = Duration::from_secs(6);
/// The number of bytes of a node's last output that are shown when an expected event does not happen.
const SAID_SHOWN: usize = 2000;
/// The names of Primacy's nodes.
const NAMES: [&str; MEMBERS] = ["a", "b", "c"];

/// The system that serves.
#[derive(Clone, Copy, Debug)]
pub(super) enum System {
    /// `primacy node --etcd-api`, with its defaults: writes are flushed on a majority of the disks.
    Primacy,
    /// etcd, with these timers or its own.
    Etcd(Option<EtcdTimers>),
}

impl System {
    pub(super) fn name(self) -> String {
        match self {
            Self::Primacy => "primacy".to_owned(),
            Self::Etcd(None) => "etcd".to_owned(),
            Self::Etcd(Some(EtcdTimers { heartbeat_ms, election_ms })) => {
                format!("etcd {heartbeat_ms}/{election_ms} ms")
            }
        }
    }
}

/// Three nodes on loopback, with their data below one directory. Dropping it kills them, and removes the data.
#[derive(Debug)]
pub(super) struct Trio<'a> {
    group: &'a ProcessGroup,
    system: System,
    dir: PathBuf,
    /// The ports for clients, and for the other nodes.
    ports: Vec<(u16, u16)>,
    children: Vec<Option<Child>>,
}

impl<'a> Trio<'a> {
    /// Starts three nodes of each system at the same time, and waits until they serve.
    pub(super) async fn start_all(
        group: &'a ProcessGroup,
        dir: &Path,
        systems: &[System],
    ) -> Result<Vec<Self>, Failure> {
        // All ports are chosen at once, because the port of a node that has not started yet is still free.
        let mut ports = etcd::free_ports(MEMBERS * systems.len())?;
        let mut trios = Vec::new();
        for (number, &system) in systems.iter().enumerate() {
            let dir = dir.join(format!("map-{number}"));
            fs::create_dir_all(&dir)?;
            let ports = ports.split_off(ports.len() - MEMBERS);
            let children = (0..MEMBERS).map(|_| None).collect();
            let mut trio = Self { group, system, dir, ports, children };
            (0..MEMBERS).try_for_each(|node| trio.start(node))?;
            trios.push(trio);
        }
        for trio in &trios {
            trio.serves().await?;
        }
        Ok(trios)
    }

    pub(super) fn name(&self) -> String {
        self.system.name()
    }

    /// The address at which clients reach a node.
    pub(super) fn address(&self, node: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[node].0))
    }

    /// The addresses at which clients reach all of them.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        (0..MEMBERS).map(|node| self.address(node)).collect()
    }

    /// Starts a node, with the state of its earlier incarnation.
    pub(super) fn start(&mut self, node: usize) -> Result<(), Failure> {
        self.start_with(node, &[])
    }

    /// Starts a node with more arguments, which override earlier ones.
    fn start_with(&mut self, node: usize, more: &[&str]) -> Result<(), Failure> {
        let mut command = match self.system {
            System::Primacy => Command::new(primacy()?),
            System::Etcd(_) => Command::new("etcd"),
        };
        match self.system {
            System::Primacy => {
                command.args(["node", "--json", "--election", ELECTION, "--node", NAMES[node]]);
                command.args(["--peers", &self.peers(), "--etcd-api", &self.address(node).to_string()]);
                command.arg("--state-dir").arg(self.home(node));
            }
            System::Etcd(timers) => {
                etcd::member(&mut command, &self.dir, &self.ports, node, timers);
            }
        }
        command.args(more);
        let said = OpenOptions::new().create(true).append(true).open(self.said(node))?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        self.children[node] = Some(spawn(command)?);
        Ok(())
    }

    fn peers(&self) -> String {
        let peer = |(name, (_, port)): (&&str, &(u16, u16))| format!("{name}=127.0.0.1:{port}");
        NAMES.iter().zip(&self.ports).map(peer).collect::<Vec<_>>().join(",")
    }

    /// The directory of a node's data.
    fn home(&self, node: usize) -> PathBuf {
        self.dir.join(format!("m{node}"))
    }

    fn said(&self, node: usize) -> PathBuf {
        self.dir.join(format!("m{node}.log"))
    }

    /// Kills a node's process, and waits for its end.
    pub(super) fn kill(&mut self, node: usize) -> Result<(), Failure> {
        if let Some(mut child) = self.children[node].take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// The processes of each node: its main process, and its children.
    pub(super) fn processes(&self) -> Vec<Vec<i32>> {
        let of = |child: &Child| {
            let own = Pid::from_child(child);
            let all = [own].into_iter().chain(descendants_of(own));
            all.map(|pid| pid.as_raw_nonzero().get()).collect()
        };
        self.children.iter().flatten().map(of).collect()
    }

    /// The memory of each node, in MiB, with shared pages divided among the processes that share them.
    pub(super) fn memory(&self) -> Vec<f64> {
        let of = |pids: Vec<i32>| pids.into_iter().filter_map(memory).map(|cost| cost.pss_mib).sum();
        self.processes().into_iter().map(of).collect()
    }

    /// Waits until all nodes know the same leader and each completes a write. Returns the leader.
    pub(super) async fn serves(&self) -> Result<usize, Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.group.check_interrupted()?;
            let why = match self.leader().await {
                Ok(leader) => match self.all_write().await {
                    Ok(()) => return Ok(leader),
                    Err(why) => why,
                },
                Err(why) => why,
            };
            if Instant::now() > until {
                let said: Vec<String> = (0..MEMBERS).map(|node| self.last_said(node)).collect();
                let message = format!("{} does not serve within {PATIENCE:?}: {why}", self.name());
                return Err(failed(format!("{message}; what its nodes said last:\n{}", said.join("\n"))));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// # Errors
    /// The node that did not write, and why.
    async fn all_write(&self) -> Result<(), String> {
        for node in 0..MEMBERS {
            let put = api::PutRequest { key: b"serves".to_vec(), ..api::PutRequest::default() };
            let caller = Caller::lazily(self.address(node)).map_err(|failure| failure.message)?;
            let written = ask_within(ANSWER_MAX, caller.put(put)).await;
            written.map_err(|status| format!("node {node} does not write: {}", status.message()))?;
        }
        Ok(())
    }

    /// The leader, if all nodes name the same.
    ///
    /// # Errors
    /// The answers of the nodes, if they differ.
    async fn leader(&self) -> Result<usize, String> {
        let (mut members, mut leaders) = (Vec::new(), Vec::new());
        for node in 0..MEMBERS {
            let caller = Caller::lazily(self.address(node)).map_err(|failure| failure.message)?;
            let status: Result<api::StatusResponse, _> =
                ask_within(ANSWER_MAX, caller.ask(method::STATUS, api::StatusRequest {})).await;
            let status =
                status.map_err(|status| format!("node {node} does not answer: {}", status.message()))?;
            members.push(status.header.map_or(0, |header| header.member_id));
            leaders.push(status.leader);
        }
        let leader = leaders.iter().all(|leader| Some(leader) == leaders.first()).then(|| leaders[0]);
        let leader = leader.and_then(|leader| members.iter().position(|&member| member == leader));
        leader.ok_or_else(|| format!("the members {members:?} say that these lead: {leaders:?}"))
    }

    fn last_said(&self, node: usize) -> String {
        let said = fs::read(self.said(node)).unwrap_or_default();
        String::from_utf8_lossy(&said[said.len().saturating_sub(SAID_SHOWN)..]).into_owned()
    }

    /// Starts a node that has lost its disk, and runs the operator's commands that readmit it.
    pub(super) async fn start_empty(&mut self, node: usize) -> Result<(), Failure> {
        fs::remove_dir_all(self.home(node))?;
        match self.system {
            System::Primacy => {
                self.start(node)?;
                self.readmit(node).await
            }
            System::Etcd(_) => {
                self.replace_member(node).await?;
                self.start_with(node, &["--initial-cluster-state", "existing"])
            }
        }
    }

    async fn readmit(&self, node: usize) -> Result<(), Failure> {
        let program = primacy()?;
        for other in (0..MEMBERS).filter(|&other| other != node) {
            // Its new incarnation may not have reached the other nodes yet.
            insist(|| {
                let mut command = Command::new(&program);
                command.args([
                    "member",
                    "readmit",
                    NAMES[node],
                    "--election",
                    ELECTION,
                    "--node",
                    NAMES[other],
                ]);
                command.arg("--state-dir").arg(self.home(other));
                command
            })
            .await?;
        }
        Ok(())
    }

    async fn replace_member(&self, node: usize) -> Result<(), Failure> {
        let other = self.address((node + 1) % MEMBERS);
        let list: api::MemberListResponse = Caller::lazily(other)?
            .ask(method::MEMBER_LIST, api::MemberListRequest::default())
            .await
            .map_err(|status| failed(format!("etcd does not list its members: {status}")))?;
        let name = format!("m{node}");
        let lost = list.members.iter().find(|member| member.name == name);
        let lost = lost.ok_or_else(|| failed("etcd does not know its member"))?.id;
        let etcdctl = |arguments: &[&str]| {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", &other.to_string(), "member"]);
            command.args(arguments);
            command
        };
        let (lost, url) =
            (format!("{lost:x}"), format!("--peer-urls=http://127.0.0.1:{}", self.ports[node].1));
        run(etcdctl(&["remove", &lost]))?;
        // The members refuse it while they take the cluster for unhealthy.
        insist(|| etcdctl(&["add", &name, &url])).await
    }

    /// Waits until a node that has lost its disk can be replaced at once, if all nodes have served since `since`.
    pub(super) async fn can_replace(&self, since: Instant) {
        match self.system {
            System::Primacy => {}
            System::Etcd(_) => tokio::time::sleep(CONNECTED_FOR.saturating_sub(since.elapsed())).await,
        }
    }
}

impl Drop for Trio<'_> {
    fn drop(&mut self) {
        for node in 0..MEMBERS {
            // A node that has ended already cannot be killed.
            let _ = self.kill(node);
        }
        // Files that cannot be removed here are removed with the directory of the run.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Repeats the command until it succeeds.
async fn insist(command: impl Fn() -> Command) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    while let Err(failure) = run(command()) {
        if Instant::now() > until {
            return Err(failure);
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

fn run(mut command: Command) -> Result<(), Failure> {
    without_settings(&mut command);
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    Err(failed(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
