//! `primacy bench`: failover, idle cost, and the map that nodes keep, measured on real processes of this machine.

pub(crate) mod child;
mod cluster;
mod etcd;
mod failover;
mod floor;
mod idle;
mod load;
#[cfg(feature = "etcd")]
mod map;
mod namespaces;
mod over_store;
#[cfg(feature = "sqlite")]
mod partition_guardian;
#[cfg(feature = "sqlite")]
mod partition_node;
#[cfg(feature = "sqlite")]
mod partitions;
mod place;
mod sockets;
pub(super) mod spread;
mod stage;
mod subject;

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Failure};

/// Measure failover, idle cost and the map of the nodes on this machine.
///
/// Real processes on real sockets, with their state on a real disk. What is measured can be repeated: every figure of
/// docs/performance.md stands beside its command.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Failover(failover::Failover),
    Idle(idle::Idle),
    #[cfg(feature = "sqlite")]
    Partitions(partitions::Partitions),
    #[cfg(feature = "etcd")]
    Map(map::Map),
}

/// Runs the verb.
pub(crate) fn bench(args: &Bench) -> Result<Exit, Failure> {
    match &args.what {
        What::Failover(args) => failover::failover(args),
        What::Idle(args) => idle::idle(args),
        #[cfg(feature = "sqlite")]
        What::Partitions(args) => partitions::partitions(args),
        #[cfg(feature = "etcd")]
        What::Map(args) => map::map(args),
    }
}

/// A failure of the bench itself.
fn failed(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Failed, message)
}
