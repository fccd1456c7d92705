//! The command `primacy-lab`: runs elections in the simulator and shows their events, compares elections, and measures nodes.

mod bench;
#[cfg(feature = "chaos")]
mod chaos;
mod compare;
mod exit;
mod processes;
mod replay;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Failure};

/// Simulate, compare and measure elections.
#[derive(Debug, Parser)]
#[command(name = "primacy-lab", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Bench(Box<bench::Bench>),
    #[cfg(feature = "chaos")]
    Chaos(Box<chaos::Chaos>),
    Sim(sim::Sim),
    Replay(replay::Replay),
    Compare(compare::Compare),
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|verb| verb == "bench-child") {
        return bench::child::main(args);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // If nothing can be printed, the exit code must suffice.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    let result = match cli.verb {
        Verb::Bench(args) => bench::bench(&args),
        #[cfg(feature = "chaos")]
        Verb::Chaos(args) => return chaos::chaos(*args),
        Verb::Sim(args) => sim::sim(&args),
        Verb::Replay(args) => replay::replay(&args),
        Verb::Compare(args) => compare::compare(&args),
    };
    result
        .unwrap_or_else(|Failure { exit, message }| {
            eprintln!("primacy-lab: {message}");
            exit
        })
        .into()
}
