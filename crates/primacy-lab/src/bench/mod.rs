//! `primacy-lab bench`: failover, idle cost, and the replicated map, measured on real processes of this machine.

pub(crate) mod child;
mod cluster;
mod etcd;
mod failover;
mod floor;
mod idle;
mod load;
mod map;
mod namespaces;
mod over_store;
mod partition_guardian;
mod partition_node;
mod partitions;
mod process_group;
mod sockets;
mod spread;
mod state_dir;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Failure};

/// Measure failover, idle cost and the map of the nodes on this machine.
///
/// Real processes on real sockets, with their state on a real disk. The measurements can be repeated: every figure of
/// docs/performance.md has its command beside it.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Failover(failover::Failover),
    Idle(idle::Idle),
    Partitions(partitions::Partitions),
    Map(map::Map),
}

/// Runs the verb.
pub(crate) fn bench(args: &Bench) -> Result<Exit, Failure> {
    match &args.what {
        Benchmark::Failover(args) => failover::failover(args),
        Benchmark::Idle(args) => idle::idle(args),
        Benchmark::Partitions(args) => partitions::partitions(args),
        Benchmark::Map(args) => map::map(args),
    }
}

/// Parses `250ms`, `10s`, `1m 30s`.
fn parse_duration(text: &str) -> Result<Duration, jiff::Error> {
    text.parse::<jiff::SignedDuration>()?.try_into()
}

/// The command `primacy`, in the same directory as this one.
///
/// # Errors
/// [`Exit::Unavailable`] if it is not there.
fn primacy() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?.with_file_name("primacy");
    if program.exists() {
        return Ok(program);
    }
    let message =
        format!("there is no {}: build it with cargo build --package primacy-cli", program.display());
    Err(Failure::new(Exit::Unavailable, message))
}

/// A failure of the bench itself.
fn failed(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Failed, message)
}
