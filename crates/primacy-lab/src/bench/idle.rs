//! `primacy-lab bench idle`: the cost of nodes while nothing happens, and the needless changes of their leader.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use primacy::Safety;
use serde::Serialize;

use super::cluster::{Cluster, Network, ProcessRole};
use super::etcd::{self, EtcdTimers, Rival};
use super::load::Load;
use super::namespaces::Namespaces;
use super::process_group::ProcessGroup;
use super::state_dir::StateDir;
use super::subject::{Settings, Subject};
use super::{failed, parse_duration};
use crate::exit::{self, Exit, Failure};

/// Measure the cost of nodes while nothing happens.
///
/// Starts real nodes in a network namespace of their own, and measures from when all have settled: the processor time
/// of each node and of its guardian, their memory, the bytes on the wire, and the number of changes of the leader.
/// With --busy other processes keep the cores busy, so that a change of leader shows timers that are too short.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::BENCH_HELP)]
pub(crate) struct Idle {
    /// Seconds to measure
    #[arg(long, value_name = "N", default_value_t = 30)]
    seconds: u64,

    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: usize,

    /// The command to measure
    #[arg(long, value_enum, default_value_t = Subject::Run)]
    subject: Subject,

    /// The nodes' --lease
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lease: Option<Duration>,

    /// The nodes' --heartbeat
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    heartbeat: Option<Duration>,

    /// Number of other processes that compute without a pause beside it
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: usize,

    /// Measure three members of etcd with these timers in milliseconds, heartbeat and election timeout, as in 10/100; at
    /// the same time, so that both have the same machine
    #[arg(long, value_name = "H/E", value_parser = etcd_timers)]
    beside_etcd: Option<EtcdTimers>,

    /// Where the nodes keep their state, which must be on a disk [default: $XDG_STATE_HOME/primacy or ~/.local/state/primacy]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The result, as it is printed with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    subject: &'static str,
    file_system: String,
    seconds: f64,
    busy: usize,
    lease_ms: u128,
    /// The number of leader changes after all had settled.
    leader_changes: u64,
    /// The traffic of all nodes, with TCP and IP headers; `null` without a namespace to count it in.
    bytes_per_second: Option<f64>,
    nodes: Vec<NodeCost>,
    beside: Option<Beside>,
}

#[derive(Debug, Serialize)]
struct NodeCost {
    node: String,
    leads: bool,
    /// `null` for a process that has ended: a guardian that was not scheduled for too long is replaced.
    process: Option<Cost>,
    guardian: Option<Cost>,
}

#[derive(Debug, Serialize)]
struct Beside {
    system: String,
    leader_changes: u64,
    bytes_per_second: Option<f64>,
    members: Vec<Option<Cost>>,
}

/// The cost of one process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    /// Processor time, in per cent of one core.
    pub(super) cpu_percent: f64,
    /// All its resident pages, including those of shared files.
    rss_mib: f64,
    /// The same, with shared pages divided among the processes that share them.
    pub(super) pss_mib: f64,
    /// Pages that no other process shares.
    private_mib: f64,
}

/// The counters of some processes and of a network.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    processes: Vec<(i32, Cpu)>,
    bytes: Option<u64>,
    at: Instant,
}

/// The processor time of a process since its first reading.
#[derive(Clone, Debug, Default)]
struct Cpu {
    /// The run time of each thread at the last reading.
    threads: BTreeMap<u32, Duration>,
    spent: Duration,
}

/// The time for which the nodes' output is read before etcd's; short, so that etcd's pipe does not fill.
const SLICE: Duration = Duration::from_millis(100);
/// The interval between two readings. For a thread that ends in between, the run time since the last reading is lost.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the verb.
pub(crate) fn idle(args: &Idle) -> Result<Exit, Failure> {
    if args.seconds == 0 {
        return Err(Failure::new(Exit::Usage, "--seconds: at least one"));
    }
    if args.beside_etcd.is_some() && args.nodes != etcd::MEMBERS {
        return Err(Failure::new(Exit::Usage, etcd::OTHER_COUNT));
    }
    let place = StateDir::new(args.state_dir.as_deref())?;
    let outcome = measure(args, &place)?;
    print(&outcome, args.json);
    Ok(Exit::Success)
}

fn measure(args: &Idle, place: &StateDir) -> Result<Outcome, Failure> {
    let alone = |name| match Namespaces::alone(name) {
        Ok(namespaces) => Some(namespaces),
        Err(failure) => {
            eprintln!("bytes on the wire are not counted: {}", failure.message);
            None
        }
    };
    let (namespaces, rivals_namespaces) = (alone("idle"), args.beside_etcd.and_then(|_| alone("etcd")));
    let group = ProcessGroup::new()?;
    let settings = Settings {
        subject: args.subject,
        safety: Safety::Lease,
        lease: args.lease,
        heartbeat: args.heartbeat,
    };
    let network =
        namespaces.as_ref().map_or(Network::Loopback, |namespaces| Network::Inside(namespaces, "idle"));
    let mut cluster = Cluster::start(&group, network, settings, args.nodes, place.dir())?;
    let mut rival = match args.beside_etcd {
        Some(timers) => {
            let inside = rivals_namespaces.as_ref().map(|namespaces| namespaces.name("etcd"));
            Some(Rival::start_in(&group, place.dir(), timers, inside)?)
        }
        None => None,
    };
    let (leader, _) = settle(&mut cluster, rival.as_mut())?;
    let load = Load::start(args.busy)?;
    let elections = (cluster.elections(), rival.as_ref().map_or(0, Rival::elections));
    let mut meter = Meter::start(processes(&cluster)?, namespaces.is_some());
    let mut rivals_meter =
        rival.as_ref().map(|rival| Meter::start(rival.processes(), rivals_namespaces.is_some()));
    eprintln!("measuring for {} s", args.seconds);
    listen(args, &mut cluster, rival.as_mut(), [Some(&mut meter), rivals_meter.as_mut()])?;
    let seconds = meter.at.elapsed().as_secs_f64();
    let (costs, bytes_per_second) = meter.read();
    let leader_changes = cluster.elections() - elections.0;
    let beside = match (&mut rival, &rivals_meter) {
        (Some(rival), Some(meter)) => {
            let (members, bytes_per_second) = meter.read();
            rival.listen(Duration::ZERO)?;
            let leader_changes = rival.elections() - elections.1;
            Some(Beside { system: rival.name().to_owned(), leader_changes, bytes_per_second, members })
        }
        (Some(_) | None, _) => None,
    };
    drop(load);
    // Nodes that cannot settle again were not idle.
    settle(&mut cluster, rival.as_mut())?;
    let nodes = costs.chunks(2).enumerate().map(|(node, costs)| NodeCost {
        node: cluster.name(node).to_owned(),
        leads: node == leader,
        process: costs.first().copied().flatten(),
        guardian: costs.get(1).copied().flatten(),
    });
    Ok(Outcome {
        subject: args.subject.name(),
        file_system: place.file_system().to_owned(),
        seconds,
        busy: args.busy,
        lease_ms: cluster.timers().lease.as_millis(),
        leader_changes,
        bytes_per_second,
        nodes: nodes.collect(),
        beside,
    })
}

/// Reads all output for the measured time, and the counters of the processes.
///
/// # Errors
/// If a node has ended.
fn listen(
    args: &Idle,
    cluster: &mut Cluster<'_>,
    mut rival: Option<&mut Rival<'_>>,
    meters: [Option<&mut Meter>; 2],
) -> Result<(), Failure> {
    let mut meters: Vec<&mut Meter> = meters.into_iter().flatten().collect();
    let began = Instant::now();
    let (until, mut look_at) = (began + Duration::from_secs(args.seconds), began + LOOK);
    while Instant::now() < until {
        cluster.listen(SLICE.min(until.saturating_duration_since(Instant::now())))?;
        cluster.check_alive()?;
        if let Some(rival) = &mut rival {
            rival.listen(Duration::ZERO)?;
        }
        if Instant::now() >= look_at {
            meters.iter_mut().for_each(|meter| meter.look());
            look_at += LOOK;
        }
    }
    meters.iter_mut().for_each(|meter| meter.look());
    Ok(())
}

/// Waits until the nodes have settled. The output of etcd's members is read after that.
fn settle(cluster: &mut Cluster<'_>, rival: Option<&mut Rival<'_>>) -> Result<(usize, u64), Failure> {
    let settled = cluster.settle()?;
    if let Some(rival) = rival {
        rival.listen(Duration::ZERO)?;
    }
    Ok(settled)
}

/// Each node, followed by its guardian.
fn processes(cluster: &Cluster<'_>) -> Result<Vec<i32>, Failure> {
    let mut pids = Vec::new();
    for node in 0..cluster.count() {
        for part in [ProcessRole::Node, ProcessRole::Guardian] {
            let pid = cluster.pid(node, part);
            pids.push(pid.ok_or_else(|| failed(format!("{} has no {part:?}", cluster.name(node))))?);
        }
    }
    Ok(pids)
}

impl Meter {
    pub(super) fn start(pids: Vec<i32>, own_network: bool) -> Self {
        let bytes = if own_network { pids.first().and_then(|&pid| bytes(pid)) } else { None };
        let processes = pids.into_iter().map(|pid| (pid, Cpu::of(pid))).collect();
        Self { processes, bytes, at: Instant::now() }
    }

    /// Adds the processor time since the last reading.
    pub(super) fn look(&mut self) {
        for (pid, cpu) in &mut self.processes {
            cpu.add(threads(*pid));
        }
    }

    /// Returns the cost of each process from the start to the last reading, and the bytes per second on the network.
    pub(super) fn read(&self) -> (Vec<Option<Cost>>, Option<f64>) {
        let seconds = self.at.elapsed().as_secs_f64();
        let mut costs = Vec::new();
        for (pid, cpu) in &self.processes {
            let cpu_percent = rounded(cpu.spent.as_secs_f64() / seconds * 100.0, 1e3);
            costs.push(memory(*pid).map(|memory| Cost { cpu_percent, ..memory }));
        }
        let after = self.processes.first().and_then(|&(pid, _)| bytes(pid));
        let sent = self.bytes.zip(after).map(|(before, after)| after.saturating_sub(before));
        #[allow(clippy::cast_precision_loss, reason = "a rate has no 52 bits that matter")]
        let rate = sent.map(|sent| rounded(sent as f64 / seconds, 10.0));
        (costs, rate)
    }
}

impl Cpu {
    /// Starts measuring a process.
    fn of(pid: i32) -> Self {
        Self { threads: threads(pid), spent: Duration::ZERO }
    }

    /// Adds run times. The run time of a thread that has ended stays counted; a new thread counts from its start,
    /// even with a reused thread number.
    fn add(&mut self, threads: BTreeMap<u32, Duration>) {
        for (thread, &ran) in &threads {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            self.spent += ran.checked_sub(before).unwrap_or(ran);
        }
        self.threads = threads;
    }
}

/// The run time of each thread of a process. The scheduler counts in nanoseconds; `/proc/PID/stat` counts in
/// hundredths of a second, too coarse for an idle process.
fn threads(pid: i32) -> BTreeMap<u32, Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ran = threads.filter_map(|thread| {
        let number = thread.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((number, Duration::from_nanos(text.split(' ').next()?.parse().ok()?)))
    });
    ran.collect()
}

/// The memory of a process now.
pub(super) fn memory(pid: i32) -> Option<Cost> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().strip_suffix(" kB")?.trim().parse().ok()
    };
    let mib = |kib: f64| rounded(kib / 1024.0, 1e2);
    Some(Cost {
        cpu_percent: 0.0,
        rss_mib: mib(kib("Rss")?),
        pss_mib: mib(kib("Pss:")?),
        private_mib: mib(kib("Private_Clean")? + kib("Private_Dirty")?),
    })
}

/// The bytes that the loopback of a process's network namespace has carried.
fn bytes(pid: i32) -> Option<u64> {
    let table = fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

pub(super) fn rounded(value: f64, places: f64) -> f64 {
    (value * places).round() / places
}

fn etcd_timers(text: &str) -> Result<EtcdTimers, String> {
    let timers = text.split_once('/').and_then(|(heartbeat, election)| {
        Some(EtcdTimers { heartbeat_ms: heartbeat.parse().ok()?, election_ms: election.parse().ok()? })
    });
    timers.ok_or_else(|| format!("write two numbers of milliseconds, as in 10/100; not {text:?}"))
}

fn print(outcome: &Outcome, json: bool) {
    if json {
        println!("{}", serde_json::to_string(outcome).unwrap_or_default());
        return;
    }
    let Outcome { subject, file_system, seconds, busy, lease_ms, leader_changes, .. } = outcome;
    println!(
        "{} nodes of {subject}, lease {lease_ms} ms, {seconds:.0} s, {busy} busy processes beside, state on \
         {file_system}",
        outcome.nodes.len()
    );
    for NodeCost { node, leads, process, guardian } in &outcome.nodes {
        println!("  {node}{}", if *leads { " (leads)" } else { "" });
        println!("    process  {}\n    guardian {}", shown(process.as_ref()), shown(guardian.as_ref()));
        if let (Some(process), Some(guardian)) = (process, guardian) {
            let (cpu, rss) = (process.cpu_percent + guardian.cpu_percent, process.rss_mib + guardian.rss_mib);
            println!("    together {cpu:.3} % of a core, {rss:.2} MiB resident");
        }
    }
    let rate = |bytes: Option<f64>| bytes.map_or("not counted".to_owned(), |bytes| format!("{bytes:.0}"));
    println!("  bytes a second on the wire: {}", rate(outcome.bytes_per_second));
    println!("  changes of leader: {leader_changes}");
    if let Some(Beside { system, leader_changes, bytes_per_second, members }) = &outcome.beside {
        println!(
            "  beside it, {system}: changes of leader: {leader_changes}; bytes a second: {}",
            rate(*bytes_per_second)
        );
        for member in members {
            println!("    member   {}", shown(member.as_ref()));
        }
    }
}

fn shown(cost: Option<&Cost>) -> String {
    cost.map_or("has ended meanwhile, and was replaced".to_owned(), Cost::to_string)
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cpu_percent, rss_mib, pss_mib, private_mib } = self;
        write!(
            f,
            "{cpu_percent:.3} % of a core; {rss_mib:.2} MiB resident, {pss_mib:.2} with shared pages divided, \
             {private_mib:.2} private"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_takes_nothing_back() {
        let at = |threads: &[(u32, u64)]| -> BTreeMap<u32, Duration> {
            threads.iter().map(|&(thread, ran)| (thread, Duration::from_nanos(ran))).collect()
        };
        let mut cpu = Cpu { threads: at(&[(1, 100), (2, 50)]), spent: Duration::ZERO };
        for (threads, spent) in [
            (&[(1, 110), (2, 50)][..], 10),
            (&[(1, 110), (2, 55), (3, 7)], 22),
            (&[(1, 110)], 22),
            (&[(1, 120), (2, 3)], 35),
            (&[(1, 120), (2, 1)], 36),
        ] {
            cpu.add(at(threads));
            assert_eq!(cpu.spent, Duration::from_nanos(spent), "{threads:?}");
        }
    }

    #[test]
    fn a_process_that_computes_and_remembers_costs_something() {
        let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = busy.id().cast_signed();
        let (began, mut cpu, mut cost) = (Instant::now(), Cpu::of(pid), memory(pid).unwrap());
        // A bound for a machine that does not schedule the process. At first the process has a page or two, which
        // rounds to zero.
        while (cpu.spent.is_zero() || cost.rss_mib == 0.0) && began.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
            cpu.add(threads(pid));
            cost = memory(pid).unwrap();
        }
        assert!(!cpu.spent.is_zero());
        assert!(cost.rss_mib > 0.0 && cost.private_mib <= cost.rss_mib, "{cost:?}");
        assert!(bytes(pid).is_some());
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(etcd_timers("10/100").is_ok() && etcd_timers("10").is_err());
    }
}
