//! `primacy run`: runs the command on the one node that is elected.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use crate::duration;
use crate::entry::Entry;
use crate::entry::layers::Sources;
use crate::exit::{self, Exit, Failure};
use crate::node_main::{Work, run_node};
use crate::program::find_program;
use crate::supervisor::Wait;

/// Run a command on the one node that is elected.
///
/// Start the same line on as many machines or terminals as you like. One of
/// them is elected and runs COMMAND; when that one dies, hangs or is cut off,
/// another takes over. The command gets its fencing token, a number that
/// is higher than that of every earlier leader; resources that check it
/// refuse what a late leader still writes.
///
/// The command is started in a process group of its own. Its environment has
/// PRIMACY_ELECTION, PRIMACY_ID, PRIMACY_TERM and PRIMACY_TOKEN. When the
/// lead is lost or given up it gets SIGTERM, and after the drain time
/// SIGKILL, with everything that it has started; all of it is gone before
/// another node may lead.
///
/// Where the election is held:
///   (nothing)     in a file of your state directory: the terminals of one
///                 machine compete
///   --store URL      in a store, for example sqlite:/var/lib/app/election.db
///   --peers LIST  among the nodes themselves, with no service beside them;
///                 more than half of them must be there
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::HELP, after_long_help = LONG_HELP.to_owned() + exit::HELP)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) entry: Entry,

    /// Give up with exit code 75 when not elected within this time of the start
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "no_wait")]
    wait: Option<Duration>,

    /// Give up with exit code 75 when another node leads
    #[arg(long)]
    no_wait: bool,

    /// When the command ends by itself, campaign again instead of ending with its exit code
    #[arg(long)]
    restart: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const LONG_HELP: &str = "\
Examples:
  primacy run --election nightly --no-wait -- ./backup.sh
      In any number of crontabs of one machine: whoever is first runs it, the
      others end at once.

  primacy run --election billing --restart --node a \\
      --peers a=127.0.0.1:7401,b=127.0.0.1:7402,c=127.0.0.1:7403 -- ./worker
      Three times, each with its own --node. One worker runs as long as two
      nodes are there.

Signals: SIGTERM, SIGINT and SIGHUP end the command in order, give up the
lead, and end. A second one kills the command at once.

PRIMACY_LOG=debug shows what the election does.

What can outlast its lead, unless --watchdog resets the machine: a process that
the kernel cannot kill; where this process and its guardian are killed together,
or the guardian while this process is stopped, all but the command's first
process (and that, too, if it has changed its user), until this process goes on
or the next start of the same node ends them; where both are stopped together,
the whole command, until one goes on.
Work that others do for the command (docker run, systemd-run, ssh, kubectl
exec) is ended by --stop-command only; where this process and its guardian are
killed together, by the next start of the same node.

";

/// Runs the verb.
pub(crate) fn run(args: &Run, sources: &Sources) -> Result<Exit, Failure> {
    let wait = match (args.wait, args.no_wait) {
        (_, true) => Wait::AtOnce,
        (Some(time), false) => Wait::For(time),
        (None, false) => Wait::Forever,
    };
    run_node(&args.entry, sources, || {
        if args.entry.is_witness() {
            let message = format!(
                "{} votes and never leads, so it would never run the command; use `primacy node`",
                sources.describe("witness")
            );
            return Err(Failure::new(Exit::Usage, message));
        }
        Ok(Work { job: Some(find_program(&args.command)?), wait, restart: args.restart })
    })
}
