//! Chaos on real processes: clusters of the real `primacy run`, under the faults of machines, networks and operators;
//! and a judge of the results that uses the simulator's invariants.
//!
//! `cargo xtask chaos --minutes 1 --seed 7` builds `primacy` and runs this. It needs root, for network namespaces and
//! small disks. All arms of the table in `arm.rs` run at the same time, each with its own schedule, determined by the
//! seed:
//!
//! 1. `schedule.rs` draws the faults with their times and targets; `inject.rs` injects them, on the processes of `node.rs`, the
//!    links of `network.rs`, the disks of `disk.rs`, the servers of `server.rs` and the clock of `fake_clock.rs`.
//! 2. The job of every leader (`job.rs`) writes to a ledger that the project's own fence guards, and locks a file.
//! 3. Where the nodes serve clients, `client/` sends requests to their etcd API, and writes down the answers; `replace.rs` has
//!    voters replaced meanwhile.
//! 4. When all is over, the judge (`judge/`) reads the files: the events of the run, the JSON output of the nodes, the ledger,
//!    the journal of the jobs, and the clients' requests and answers.
//!
//! The simulator's invariants hold whatever the machine does. Two of the judge's rules require more: no job acts past
//! its lease, and the lock is free for a leader. They cannot hold while supervisor and guardian are both out of
//! action, a processor does not run a ready process, or the disk answers no request. That much lateness is exempted,
//! and counted; anything beyond it is a violation.
//!
//! Limits: all nodes are on one machine and share its clock, except one whose clock is faked at a constant rate
//! within the drift bound. There are no power cuts: every write survives, flushed or not. No machine is frozen
//! together with its clock. A fault counts when it took effect: the signal reached a live process, packets were
//! dropped, the operator's command was obeyed, a node met the full disk. A fault that this machine cannot inject is
//! NOT RUN, which is not passed, and a fault that does not apply to an arm is n/a. The required coverage of a run is
//! in `judge/coverage.rs`.

mod arm;
mod cleanup;
mod client;
mod clients;
mod disk;
mod event_log;
mod fake_clock;
mod fault;
mod inject;
mod job;
mod judge;
mod ledger;
mod node;
mod processes;
mod replace;
mod report;
mod run;
mod schedule;
mod server;
mod session;
mod stalls;
mod tail;
mod unkillable;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Make faults on real clusters, and judge the result
#[derive(Debug, Parser)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(crate) struct Chaos {
    #[command(subcommand)]
    verb: Option<Verb>,

    #[command(flatten)]
    options: Options,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    every fault was tried, and nothing was broken
  1    something was broken, or the run has met too little to say; its directory is kept
  64   the command line is wrong
  70   the run itself could not go on, or was told to end
  77   NOT RUN: this user is not root, or the machine has no network namespaces, or it cannot
       make some of the faults; 1 if PRIMACY_REQUIRE_LIVE is set";

/// The options of a run.
#[derive(Clone, Debug, Args)]
struct Options {
    /// Minutes of faults
    #[arg(long, default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,

    /// The seed of the schedule; another one each time where none is given
    #[arg(long)]
    seed: Option<u64>,

    /// Only this arm; may be given several times
    #[arg(long, value_name = "ARM", value_parser = arm_named)]
    arm: Vec<arm::Arm>,

    /// The command to try
    #[arg(long, value_name = "FILE", default_value = "target/release/primacy")]
    primacy: PathBuf,

    /// Where to make the directory of the run, on a disk
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,

    /// Keep the directory of the run also if nothing was broken
    #[arg(long)]
    keep: bool,

    /// Print the table as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Judge the directory of a run again
    Judge {
        /// The directory
        dir: PathBuf,
        /// Print the table as JSON
        #[arg(long)]
        json: bool,
    },
    #[command(hide = true)]
    Job(job::Job),
    #[command(hide = true)]
    Client(client::Client),
    #[command(hide = true)]
    Clock,
    #[command(hide = true)]
    Stalls {
        /// The directory of the run
        dir: PathBuf,
        /// Watch the stalls of its disk, and not of a processor
        #[arg(long)]
        disk: bool,
    },
}

/// Runs the verb.
pub(crate) fn chaos(args: Chaos) -> ExitCode {
    let outcome = match args.verb {
        None => session::run(&args.options),
        Some(Verb::Judge { dir, json }) => session::judge_again(&dir, json),
        Some(Verb::Stalls { dir, disk }) => stalls::watch(&dir, disk).map(|()| ExitCode::SUCCESS),
        Some(Verb::Job(job)) => job.run().map(|()| ExitCode::SUCCESS),
        Some(Verb::Client(client)) => client.run().map(|()| ExitCode::SUCCESS),
        Some(Verb::Clock) => {
            fake_clock::keep();
            Ok(ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("primacy-lab chaos: {error}");
        ExitCode::from(70)
    })
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is a number of minutes".to_owned())?;
    if minutes.is_finite() && minutes > 0.0 { Ok(minutes) } else { Err("it is above zero".to_owned()) }
}

fn arm_named(name: &str) -> Result<arm::Arm, String> {
    let names: Vec<&str> = arm::ARMS.iter().map(|arm| arm.name).collect();
    arm::Arm::named(name).ok_or_else(|| format!("the arms are {}", names.join(", ")))
}
