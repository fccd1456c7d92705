//! `primacy-lab bench map`: the replicated map of the nodes, measured through its etcd API, beside etcd itself.
//!
//! Both systems are three nodes on loopback with their data on the same disk, and get their requests from the same
//! client: the messages of the `etcd` store over HTTP/2, from one thread. The two are measured in turn.

mod caller;
mod delay;
mod gap;
mod puts;
mod recovery;
mod sessions;
mod trio;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use super::idle::rounded;
use super::process_group::ProcessGroup;
use super::state_dir::StateDir;
use crate::exit::{self, Exit, Failure};

/// Measure the map that nodes replicate, beside etcd.
///
/// Starts three nodes of each on loopback, with their data on the same disk and everything flushed, and asks both through the same
/// client, in turns. etcd is that of this machine's package, with its defaults; etcdctl is needed for the recovery.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::BENCH_HELP)]
pub(crate) struct Map {
    /// The measurements to make [default: all of them]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    only: Vec<Measurement>,

    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,

    /// The size of each measurement, in percent: of its keys, requests and sessions, and of its idle times. Below 100 the figures are
    /// worth little, but it is soon known whether the bench works
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    size: u32,

    /// For the recovery: the amount that is written while a node is away, in MiB
    #[arg(long, value_name = "N", default_value_t = 1024)]
    history: u64,

    /// Where the nodes keep their data, which must be on a disk [default: $XDG_STATE_HOME/primacy or ~/.local/state/primacy]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A measurement that can be made by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Puts and guarded transactions a second, by 1, 16 and 256 clients, how long each takes, and the memory afterwards
    Puts,
    /// The delay until 1 and 100 watchers get the event of a write
    Delay,
    /// The cost of 10,000 sessions that are only kept alive
    Sessions,
    /// The time without writes when the leader is killed while 16 clients write, and in the seconds after it
    Gap,
    /// The time that a node takes to catch up that was away, or has lost its disk
    Recovery,
}

/// The result, as it is printed with `--json`. `null` marks what was not measured.
#[derive(Debug, Serialize)]
struct Outcome {
    file_system: String,
    rounds: usize,
    size_percent: u32,
    cores: usize,
    /// The busy share of the machine before anything was started.
    busy_before: f64,
    puts: Option<Vec<puts::PutsRow>>,
    memory: Option<puts::Memory>,
    delay: Option<Vec<delay::DelayRow>>,
    sessions: Option<Vec<sessions::SessionsRow>>,
    gap: Option<Vec<gap::GapRow>>,
    recovery: Option<Vec<recovery::RecoveryRow>>,
}

/// The settings that all measurements share.
struct Run<'a> {
    group: &'a ProcessGroup,
    place: &'a StateDir,
    rounds: usize,
    size_percent: u32,
    history_mib: u64,
}

/// The time for which the machine's load is measured before the start.
const LOOK: Duration = Duration::from_secs(2);

/// Runs the verb.
pub(crate) fn map(args: &Map) -> Result<Exit, Failure> {
    if args.rounds == 0 || args.history == 0 {
        return Err(Failure::new(Exit::Usage, "--rounds and --history: at least one"));
    }
    let place = StateDir::new(args.state_dir.as_deref())?;
    let group = ProcessGroup::new()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (rounds, size_percent, history_mib) = (args.rounds, args.size, args.history);
    let run = Run { group: &group, place: &place, rounds, size_percent, history_mib };
    let outcome = runtime.block_on(run.measure(args))?;
    print(&outcome, args.json);
    Ok(Exit::Success)
}

impl Run<'_> {
    async fn measure(&self, args: &Map) -> Result<Outcome, Failure> {
        let wanted = |what| args.only.is_empty() || args.only.contains(&what);
        let busy = Busy::start();
        tokio::time::sleep(LOOK).await;
        let mut outcome = Outcome {
            file_system: self.place.file_system().to_owned(),
            rounds: self.rounds,
            size_percent: self.size_percent,
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            busy_before: rounded(busy.fraction(), 1e2),
            puts: None,
            memory: None,
            delay: None,
            sessions: None,
            gap: None,
            recovery: None,
        };
        if wanted(Measurement::Puts) {
            let (rows, memory) = puts::measure(self).await?;
            (outcome.puts, outcome.memory) = (Some(rows), Some(memory));
        }
        if wanted(Measurement::Delay) {
            outcome.delay = Some(delay::measure(self).await?);
        }
        if wanted(Measurement::Sessions) {
            outcome.sessions = Some(sessions::measure(self).await?);
        }
        if wanted(Measurement::Gap) {
            outcome.gap = Some(gap::measure(self).await?);
        }
        if wanted(Measurement::Recovery) {
            outcome.recovery = Some(recovery::measure(self).await?);
        }
        Ok(outcome)
    }

    /// Returns the items in order in one round, and in reverse in the next.
    fn in_turns<T>(&self, round: usize, all: impl Iterator<Item = T>) -> Vec<T> {
        let mut all: Vec<T> = all.collect();
        if round.is_multiple_of(2) {
            all.reverse();
        }
        all
    }

    /// Scales a count to the requested size; at least one.
    fn sized(&self, all: u64) -> u64 {
        (all * u64::from(self.size_percent) / 100).max(1)
    }

    fn sized_time(&self, all: Duration) -> Duration {
        all * self.size_percent / 100
    }

    fn progress(&self, round: usize, what: &str) {
        eprintln!("round {round} of {}: {what}", self.rounds);
    }
}

/// The meter of the machine's busy share since its creation.
#[derive(Clone, Copy, Debug)]
struct Busy(Option<Ticks>);

#[derive(Clone, Copy, Debug)]
struct Ticks {
    all: u64,
    idle: u64,
}

impl Busy {
    fn start() -> Self {
        Self(Ticks::now())
    }

    /// The busy share of all cores; NaN where the system does not report it.
    fn fraction(self) -> f64 {
        let Some((before, now)) = self.0.zip(Ticks::now()) else { return f64::NAN };
        let all = now.all.saturating_sub(before.all).counted();
        let idle = now.idle.saturating_sub(before.idle).counted();
        1.0 - idle / all.max(1.0)
    }
}

impl Ticks {
    fn now() -> Option<Self> {
        let table = std::fs::read_to_string("/proc/stat").ok()?;
        Self::parse(table.lines().next()?)
    }

    /// Parses the line of all cores in `/proc/stat`: user, nice, system, idle, iowait, and further fields.
    fn parse(line: &str) -> Option<Self> {
        let ticks = line.strip_prefix("cpu ")?.split_ascii_whitespace().map(str::parse);
        let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().ok()?;
        Some(Self { all: ticks.iter().sum(), idle: ticks.get(3)? + ticks.get(4)? })
    }
}

/// A count that can be a term of a quotient.
trait Counted {
    fn counted(self) -> f64;
}

impl Counted for u64 {
    #[allow(clippy::cast_precision_loss, reason = "what is counted here has no 52 bits")]
    fn counted(self) -> f64 {
        self as f64
    }
}

impl Counted for usize {
    #[allow(clippy::cast_precision_loss, reason = "what is counted here has no 52 bits")]
    fn counted(self) -> f64 {
        self as f64
    }
}

/// The median; `None` of no measurements.
fn median_of(measured: &[f64]) -> Option<f64> {
    let mut sorted = measured.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

fn print(outcome: &Outcome, json: bool) {
    if json {
        println!("{}", serde_json::to_string(outcome).unwrap_or_default());
        return;
    }
    let Outcome { file_system, rounds, size_percent, cores, busy_before, .. } = outcome;
    println!(
        "three nodes each on loopback, data on {file_system}, {rounds} rounds of {size_percent} %, {cores} cores, \
         {busy_before} of them busy before"
    );
    list("puts and guarded transactions", outcome.puts.as_deref());
    if let Some(memory) = &outcome.memory {
        println!("{memory}");
    }
    list("from a write to the news of it", outcome.delay.as_deref());
    list("sessions that are only kept alive", outcome.sessions.as_deref());
    list("the leader is killed while clients write", outcome.gap.as_deref());
    list("a node comes back", outcome.recovery.as_deref());
}

fn list<R: std::fmt::Display>(title: &str, rows: Option<&[R]>) {
    let Some(rows) = rows else { return };
    println!("{title}:");
    for row in rows {
        println!("{row}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_busy_as_far_as_it_neither_idles_nor_waits_for_a_disk() {
        let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 0 0").unwrap();
        assert_eq!((before.all, before.idle), (1000, 850));
        assert!(Ticks::parse("cpu0 1 2 3 4 5").is_none() && Ticks::parse("cpu  1 2 x 4 5").is_none());
        assert!((0.0..=1.0).contains(&Busy::start().fraction()));
    }

    #[test]
    fn a_median_is_one_of_those_measured() {
        assert_eq!(median_of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median_of(&[4.0, 1.0]), Some(1.0));
        assert_eq!(median_of(&[]), None);
    }
}
