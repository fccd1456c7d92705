//! `primacy demo`: a demonstration on real processes, with measurements, in chapters.

pub(crate) mod embedded;
mod failover;
pub(crate) mod job;
pub(crate) mod ledger;
mod relay;
mod split;

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::exit::{self, Exit, Failure};

/// Show what Primacy does, on real processes of this machine.
///
/// Chapter `failover`: three nodes elect a leader among themselves; the
/// leader's job writes to a ledger that checks fencing tokens. The demo
/// kills leaders, pauses one whole as a frozen machine would be and lets it
/// write when it wakes, and asks others to resign.
///
/// Chapter `split`: five nodes elect the oldest of them, and are split into
/// three and two: first as they are, with two leaders, and then with a
/// quorum that confirms, with one. What the two parts say to each other goes
/// through the demo itself, which can cut it; so it needs no root.
///
/// Both take less than a minute, and leave nothing behind.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::DEMO_HELP)]
pub(crate) struct Demo {
    /// Show only this chapter; may be given several times
    #[arg(long, value_enum, value_name = "CHAPTER")]
    chapter: Vec<Chapter>,

    /// Print only the summary, as JSON
    #[arg(long)]
    json: bool,
}

/// A part of the demo that can be shown alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chapter {
    /// Leaders that die, freeze and resign
    Failover,
    /// A split of three and two
    Split,
}

/// Narrates the events, with the time since the demo began.
#[derive(Clone, Copy, Debug)]
struct Narrator {
    quiet: bool,
    began: Instant,
}

impl Narrator {
    fn say(&self, text: &str) {
        if !self.quiet {
            // The reader may close the pipe; the demo still ends in order.
            let _ = writeln!(std::io::stdout(), "{:6.2} s  {text}", self.began.elapsed().as_secs_f64());
        }
    }
}

/// The summary as it is printed with `--json`, without the chapters that were not shown.
#[derive(Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    failover: Option<Failovers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<split::Measured>,
}

#[derive(Debug, Serialize)]
struct Failovers {
    failovers: usize,
    failover_ms: Spread,
    stale_writes: StaleWrites,
}

#[derive(Debug, Serialize)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct StaleWrites {
    tried: u64,
    refused: u64,
    accepted: u64,
}

/// Runs the verb.
pub(crate) fn demo(args: &Demo) -> Result<Exit, Failure> {
    let narrator = Narrator { quiet: args.json, began: Instant::now() };
    let shown = |chapter| args.chapter.is_empty() || args.chapter.contains(&chapter);
    // The processes of a chapter are ended before its result is printed, so that its reader finds none running.
    let failover = shown(Chapter::Failover).then(|| failover::tell(narrator)).transpose()?;
    let split = shown(Chapter::Split).then(|| split::tell(narrator)).transpose()?;
    print(&Summary { failover: failover.as_ref().map(Failovers::of), split: split.clone() }, args.json);
    failover.iter().try_for_each(failover::Measured::judge)?;
    split.iter().try_for_each(split::Measured::judge)?;
    Ok(Exit::Success)
}

impl Failovers {
    fn of(measured: &failover::Measured) -> Self {
        let mut times = measured.failovers.clone();
        times.sort();
        let at = |index: usize| times.get(index).copied().map_or(0.0, milliseconds);
        let count = times.len();
        let middle = (at(count.saturating_sub(1) / 2) + at(count / 2)) / 2.0;
        let failover::Measured { tried, refused, accepted, .. } = *measured;
        Self {
            failovers: count,
            failover_ms: Spread { min: at(0), median: rounded(middle), max: at(count.saturating_sub(1)) },
            stale_writes: StaleWrites { tried, refused, accepted },
        }
    }
}

fn print(summary: &Summary, json: bool) {
    // The reader may close the pipe.
    if json {
        let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(summary).unwrap_or_default());
        return;
    }
    let _ = writeln!(std::io::stdout());
    if let Some(Failovers { failovers, failover_ms: Spread { min, median, max }, stale_writes }) =
        &summary.failover
    {
        let StaleWrites { tried, refused, accepted } = stale_writes;
        let _ = writeln!(
            std::io::stdout(),
            "failovers     {failovers}, from the event to the first write: min {min} ms, median {median} ms, max {max} ms\n\
             stale writes  {tried} tried, {refused} refused, {accepted} accepted"
        );
    }
    if let Some(split::Measured { advisory, confirmed }) = &summary.split {
        let _ = writeln!(
            std::io::stdout(),
            "split         advisory: {advisory}\n              confirmed: {confirmed}"
        );
    }
}

fn milliseconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1_000.0)
}

/// Rounds to microseconds, the precision of the measurements.
fn rounded(milliseconds: f64) -> f64 {
    (milliseconds * 1_000.0).round() / 1_000.0
}

fn ledger_failed(error: primacy_fence_sqlite::GuardError) -> Failure {
    Failure::new(Exit::Failed, format!("the ledger cannot be used: {error}"))
}
