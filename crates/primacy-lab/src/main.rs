//! The command `primacy-lab`: runs elections in the simulator, tells what happened there, and compares elections.

mod compare;
mod exit;
mod replay;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Failure};

/// Run elections in a simulator, in which everything goes wrong that may, and compare them.
#[derive(Debug, Parser)]
#[command(name = "primacy-lab", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Sim(sim::Sim),
    Replay(replay::Replay),
    Compare(compare::Compare),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Where nothing can be printed, the exit code must do.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    let result = match &cli.verb {
        Verb::Sim(args) => sim::sim(args),
        Verb::Replay(args) => replay::replay(args),
        Verb::Compare(args) => compare::compare(args),
    };
    result
        .unwrap_or_else(|Failure { exit, message }| {
            eprintln!("primacy-lab: {message}");
            exit
        })
        .into()
}
