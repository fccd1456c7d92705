//! `primacy-lab bench partitions`: the cost of many partitions, and the time until other nodes have the partitions of a dead
//! node.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use primacy::clock;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::Serialize;
use serde_json::Value;

use super::child::{GUARDED_PARTITION_NODE, PARTITION_NODE};
use super::failed;
use super::partition_node::PartitionCommand;
use super::process_group::{Lines, ProcessGroup, spawn};
use super::state_dir::StateDir;
use crate::exit::{self, Exit, Failure};

/// The maximum time to wait for an expected event before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// The quiet time before memory and traffic are read, and before a node is killed: a restarted node votes only when
/// the promises of its earlier incarnation are over.
const SETTLE: Duration = Duration::from_secs(2);
/// The names of nodes; their number is the maximum size of a cluster.
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
/// The name of the group.
const GROUP: &str = "bench";

/// Measure the cost of partitions.
///
/// Starts real nodes on the loopback of this machine, which share a group of partitions out among them. Measured are the time
/// that this takes, what it adds to their memory and to their traffic while nothing happens, the time until the partitions of
/// a node that is killed are others', and the time until a new node has its share. Traffic is what the loopback has counted;
/// in a network namespace of its own (`unshare --net`, and `ip link set lo up`) nothing else is.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::BENCH_HELP)]
pub(crate) struct Partitions {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=9))]
    nodes: u8,

    /// Number of partitions
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    partitions: u32,

    /// Number of kills: by turns of a follower, and of the leader
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,

    /// Give each node a guardian, which vouches for its death: another node need not wait until its session is over
    #[arg(long)]
    with_guardian: bool,

    /// Time for which traffic is counted, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// Where the nodes keep their state, which must be on a disk [default: $XDG_STATE_HOME/primacy or ~/.local/state/primacy]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<std::path::PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Outcome {
    nodes: u8,
    partitions: u32,
    guardian: bool,
    file_system: String,
    /// From the command until every partition has a primary that knows of it.
    create_ms: f64,
    /// The number of partitions of each node after that.
    shares: Vec<usize>,
    rss_before_mib: Vec<f64>,
    rss_after_mib: Vec<f64>,
    bytes_per_second_before: f64,
    bytes_per_second_after: f64,
    deaths: Vec<Death>,
}

#[derive(Debug, Serialize)]
struct Death {
    /// The number of partitions that it had.
    moved: usize,
    /// True if it led: then another leader is elected first.
    led: bool,
    /// From the kill until every partition has a primary again that knows of it.
    until_all_ms: f64,
    /// From the first of its partitions with a new primary until the last.
    spread_ms: f64,
    /// From the start of its next incarnation until the partitions are evenly distributed again.
    rejoined_ms: f64,
}

struct Cluster<'a> {
    group: &'a ProcessGroup,
    dir: &'a Path,
    peers: String,
    role: &'static str,
    lines: Lines,
    nodes: Vec<Node>,
    /// The last node that reported that it leads.
    leader: Option<usize>,
}

struct Node {
    name: &'static str,
    child: Child,
    life: u32,
    joined: bool,
    has: usize,
    /// The time at which it last reported its number of partitions.
    told_at: u64,
}

/// Runs the verb.
pub(crate) fn partitions(args: &Partitions) -> Result<Exit, Failure> {
    let place = StateDir::new(args.state_dir.as_deref())?;
    let group = ProcessGroup::new()?;
    let role = if args.with_guardian { GUARDED_PARTITION_NODE } else { PARTITION_NODE };
    let mut cluster = Cluster::start(&group, place.dir(), usize::from(args.nodes), role)?;
    let rss_before_mib = cluster.memory();
    let bytes_per_second_before = cluster.traffic(args.seconds)?;
    let count = usize::try_from(args.partitions).map_err(|_| failed("so many cannot be counted"))?;
    let asked_at = now();
    cluster.order(0, &PartitionCommand::Create { group: GROUP.to_owned(), count: args.partitions })?;
    let shared_at = cluster.wait_for_all("the partitions are shared out", count)?;
    let shares = cluster.nodes.iter().map(|node| node.has).collect();
    let bytes_per_second_after = cluster.traffic(args.seconds)?;
    let rss_after_mib = cluster.memory();
    let mut deaths = Vec::new();
    for round in 0..args.rounds {
        cluster.pass(SETTLE)?;
        let leader = cluster.leader.ok_or_else(|| failed("no node has told that it leads"))?;
        let victim = if round % 2 == 0 { (leader + 1) % cluster.nodes.len() } else { leader };
        deaths.push(cluster.kill(victim, count)?);
    }
    let outcome = Outcome {
        nodes: args.nodes,
        partitions: args.partitions,
        guardian: args.with_guardian,
        file_system: place.file_system().to_owned(),
        create_ms: milliseconds(asked_at, shared_at),
        shares,
        rss_before_mib,
        rss_after_mib,
        bytes_per_second_before,
        bytes_per_second_after,
        deaths,
    };
    print(&outcome, args.json);
    Ok(Exit::Success)
}

fn print(outcome: &Outcome, json: bool) {
    if json {
        println!("{}", serde_json::to_string(outcome).expect("numbers and text"));
        return;
    }
    println!(
        "{} partitions over {} nodes, state on {}",
        outcome.partitions, outcome.nodes, outcome.file_system
    );
    println!("shared out after {:.0} ms", outcome.create_ms);
    println!(
        "memory of each node, MiB: {:.1?} before, {:.1?} after",
        outcome.rss_before_mib, outcome.rss_after_mib
    );
    println!(
        "all nodes send, bytes a second: {:.0} before, {:.0} after",
        outcome.bytes_per_second_before, outcome.bytes_per_second_after
    );
    for death in &outcome.deaths {
        println!(
            "killed{}: its {} have a primary after {:.0} ms, {:.0} ms after the first; back with its share {:.0} ms after its \
             start",
            if death.led { ", and it led" } else { "" },
            death.moved,
            death.until_all_ms,
            death.spread_ms,
            death.rejoined_ms
        );
    }
}

fn now() -> u64 {
    clock::now().as_nanos()
}

fn milliseconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64() * 1_000.0
}

impl<'a> Cluster<'a> {
    fn start(
        group: &'a ProcessGroup,
        dir: &'a Path,
        count: usize,
        role: &'static str,
    ) -> Result<Self, Failure> {
        let listeners: Vec<std::net::TcpListener> = NAMES[..count]
            .iter()
            .map(|_| std::net::TcpListener::bind("127.0.0.1:0"))
            .collect::<Result<_, _>>()?;
        let mut peers = Vec::new();
        for (name, listener) in NAMES.iter().zip(&listeners) {
            peers.push(format!("{name}={}", listener.local_addr()?));
        }
        drop(listeners);
        let (lines, nodes, leader) = (Lines::default(), Vec::new(), None);
        let mut cluster = Self { group, dir, peers: peers.join(","), role, lines, nodes, leader };
        for (index, name) in NAMES[..count].iter().enumerate() {
            let child = cluster.spawn(index, name, 0)?;
            cluster.nodes.push(Node { name, child, life: 0, joined: false, has: 0, told_at: 0 });
        }
        cluster.wait_for("all have joined", |nodes| nodes.iter().all(|node| node.joined))?;
        Ok(cluster)
    }

    fn spawn(&mut self, index: usize, name: &str, life: u32) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench-child", self.role, name, &self.peers]).arg(self.dir.join(name));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command)?;
        self.lines.listen(&mut child, index, life)?;
        Ok(child)
    }

    fn order(&mut self, index: usize, order: &PartitionCommand) -> Result<(), Failure> {
        let order = serde_json::to_string(order).map_err(|error| failed(error.to_string()))?;
        let stdin = self.nodes[index].child.stdin.as_mut();
        Ok(writeln!(stdin.ok_or_else(|| failed("a node without an input"))?, "{order}")?)
    }

    /// Reads the nodes' output until a condition holds.
    fn wait_for(&mut self, what: &str, holds: impl Fn(&[Node]) -> bool) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        while !holds(&self.nodes) {
            let Some(line) = self.lines.next(self.group, until)? else {
                return Err(failed(format!("within {PATIENCE:?} it did not happen that {what}")));
            };
            self.take(line.process, line.life, &line.text);
        }
        Ok(())
    }

    fn take(&mut self, process: usize, life: u32, text: &str) {
        let node = &mut self.nodes[process];
        let told: Value = serde_json::from_str(text).unwrap_or_default();
        match told["event"].as_str() {
            Some(_) if node.life != life => {} // Of an earlier life.
            Some("joined") => node.joined = true,
            Some("order_refused") => eprintln!("{}: {text}", node.name),
            Some("leads") => self.leader = Some(process),
            Some("has") => {
                node.has = told["count"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                node.told_at = told["boot_ns"].as_u64().unwrap_or(0);
            }
            Some(_) => {}
            None => eprintln!("{}: {text}", node.name),
        }
    }

    /// Waits until every partition has a primary, and the nodes' numbers differ by one at most. Returns the time at
    /// which that was.
    fn wait_for_all(&mut self, what: &str, count: usize) -> Result<u64, Failure> {
        let is_done = |nodes: &[Node]| {
            let alive = || nodes.iter().filter(|node| node.joined).map(|node| node.has);
            let (most, least) = (alive().max().unwrap_or(0), alive().min().unwrap_or(0));
            alive().sum::<usize>() == count && most - least <= 1
        };
        self.wait_for(what, is_done)?;
        Ok(self.nodes.iter().filter(|node| node.joined).map(|node| node.told_at).max().unwrap_or(0))
    }

    /// Kills a node, and waits until other nodes are primaries in its place; then restarts it, and waits until it has its
    /// share.
    fn kill(&mut self, index: usize, count: usize) -> Result<Death, Failure> {
        let (pid, led) = (Pid::from_child(&self.nodes[index].child), self.leader == Some(index));
        let moved = self.nodes[index].has;
        let killed_at = now();
        kill_process(pid, Signal::KILL)?;
        waitpid(Some(pid), WaitOptions::empty())?;
        let node = &mut self.nodes[index];
        (node.joined, node.has, node.life) = (false, 0, node.life + 1);
        let all_at = self.wait_for_all("the partitions of a dead node are others'", count)?;
        let alive = self.nodes.iter().filter(|node| node.joined);
        let first_at = alive.map(|node| node.told_at).min().unwrap_or(all_at);
        let (name, life) = (self.nodes[index].name, self.nodes[index].life);
        let started_at = now();
        self.nodes[index].child = self.spawn(index, name, life)?;
        self.wait_for("it has joined again", |nodes| nodes[index].joined)?;
        let rejoined_at = self.wait_for_all("it has its share", count)?;
        Ok(Death {
            moved,
            led,
            until_all_ms: milliseconds(killed_at, all_at),
            spread_ms: milliseconds(first_at, all_at),
            rejoined_ms: milliseconds(started_at, rejoined_at),
        })
    }

    /// The memory of each node, in MiB.
    fn memory(&self) -> Vec<f64> {
        let of = |node: &Node| {
            let status = fs::read_to_string(format!("/proc/{}/status", node.child.id())).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        self.nodes.iter().map(|node| of(node).unwrap_or(0.0) / 1_024.0).collect()
    }

    /// The traffic of all nodes while nothing happens, in bytes a second.
    fn traffic(&mut self, seconds: u64) -> Result<f64, Failure> {
        self.pass(SETTLE)?;
        let (before, began) = (loopback_bytes()?, Instant::now());
        self.pass(Duration::from_secs(seconds))?;
        #[allow(clippy::cast_precision_loss, reason = "so many bytes are not sent")]
        let bytes = (loopback_bytes()? - before) as f64;
        Ok(bytes / began.elapsed().as_secs_f64())
    }

    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while let Some(line) = self.lines.next(self.group, until)? {
            self.take(line.process, line.life, &line.text);
        }
        Ok(())
    }
}

/// Returns the bytes that the loopback has carried.
fn loopback_bytes() -> Result<u64, Failure> {
    let table = fs::read_to_string("/proc/self/net/dev")?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix("lo:"));
    let bytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    bytes.ok_or_else(|| failed("the system does not tell what the loopback carries"))
}
