//! `primacy config check` and `primacy config print`: the settings of a node, without running it.

use clap::{Parser, Subcommand};

use crate::entry::Entry;
use crate::entry::effective::Effective;
use crate::entry::layers::{Source, Sources};
use crate::exit::{self, Exit, Failure};
use crate::stdout;

/// Check or print settings as `primacy run` and `primacy node` would read them.
#[derive(Debug, Parser)]
pub(crate) struct Config {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Report all errors of the settings at once, with file, line and column. Exit code 0, or 78. Outside the
    /// settings, it looks at the peers' names and the files of TLS; not at the state directory, the store, or whether
    /// a port is free
    Check(Box<Check>),
    /// Print the settings in force, the defaults too, and the source of each: in TOML, which --config takes, or with
    /// --json as an object
    Print(Box<Print>),
}

#[derive(Debug, Parser)]
#[command(after_help = exit::CONFIG_HELP)]
struct Check {
    #[command(flatten)]
    entry: Entry,
}

#[derive(Debug, Parser)]
#[command(after_help = exit::CONFIG_HELP)]
struct Print {
    #[command(flatten)]
    entry: Entry,
}

/// Runs the verb.
pub(crate) fn config(args: &Config, sources: &Sources) -> Result<Exit, Failure> {
    // Every error of these verbs is an error of the settings.
    let wrong = |failure: Failure| Failure::new(Exit::Config, failure.message);
    match &args.action {
        Action::Check(check) => {
            let entrance = check.entry.check(sources).map_err(wrong)?;
            entrance.look(sources)?;
        }
        Action::Print(print) => {
            // In other sources `json` is a setting of the node.
            let json = sources.of("json").is_some_and(|given| given.source == Source::CommandLine);
            let effective = Effective::of(&print.entry, sources).map_err(wrong)?;
            let text = if json { effective.json() } else { effective.toml() };
            stdout::write(&text)?;
        }
    }
    Ok(Exit::Success)
}
