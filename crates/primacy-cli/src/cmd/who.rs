//! `primacy who`: who leads, or why nobody does.

mod text;

use clap::Parser;

pub(super) use text::over_store;

use super::store;
use super::target::{self, Target, tell};
use crate::exit::{self, Exit, Failure};

/// Show who leads an election, or why nobody does, and what its nodes know of each other.
///
/// Asks every node of the election that runs on this machine; or, with --on,
/// the record in the store. What it shows may be over before you read it.
#[derive(Debug, Parser)]
#[command(name = "who", verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct WhoArgs {
    #[command(flatten)]
    target: Target,

    /// Over a store: wait until the record is renewed or released, or has stood unchanged for so long that another may
    /// take it; one look cannot tell whether its holder is alive
    #[arg(long, requires = "on")]
    verify: bool,
}

/// Runs the verb.
pub(crate) fn who(args: &WhoArgs) -> Result<Exit, Failure> {
    let target = &args.target;
    if let Some(url) = target.url()? {
        return store::who(&url, &target.election, args.verify, target.json);
    }
    let mut exit = Exit::NotElected;
    for (index, node) in target.nodes()?.iter().enumerate() {
        let who = target::who(node)?;
        if who.leader.is_some() {
            exit = Exit::Success;
        }
        if index > 0 && !target.json {
            target::print("")?;
        }
        tell(target.json, &who, || text::text(&who))?;
    }
    Ok(exit)
}
