//! `primacy node`: a node without a command.

use clap::Parser;

use crate::entry::Entry;
use crate::entry::layers::Sources;
use crate::exit::{Exit, Failure};
use crate::node_main::{Work, run_node};
use crate::supervisor::Wait;

/// Take part in an election without running a command.
///
/// The node campaigns, holds the lead and its token when it is
/// elected, and campaigns again when it has lost them; --on-elected and
/// --on-deposed are run at both ends. With --witness it votes and never
/// leads, so that two machines and a small third one make a majority.
///
/// A guardian process beside it notifies the others at once when this process
/// dies, so that they need not wait for its silence. A witness has none:
/// nothing hangs on its death.
///
/// Under systemd (Type=notify) it says when it takes part and which node leads,
/// and serves the watchdog; contrib/primacy@.service is an example.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = HELP)]
pub(crate) struct Node {
    #[command(flatten)]
    pub(crate) entry: Entry,
}

const HELP: &str = "\
Signals: SIGTERM, SIGINT and SIGHUP give up the lead in order, and end.

Exit codes: those of `primacy run`; 129, 130 or 143 after one of these signals.";

/// Runs the verb.
pub(crate) fn node(args: &Node, sources: &Sources) -> Result<Exit, Failure> {
    run_node(&args.entry, sources, || Ok(Work { job: None, wait: Wait::Forever, restart: true }))
}
