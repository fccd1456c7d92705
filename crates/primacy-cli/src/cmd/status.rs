//! `primacy status`: the leader, or the reason why there is none.

pub(super) mod text;

use clap::Parser;
use serde::Serialize;

pub(super) use text::over_store;

use super::store;
use super::target::{self, Target, tell};
use crate::exit::{self, Exit, Failure};

/// Show the leader of an election, or why there is none, and what its nodes know of each other.
///
/// Asks every node of the election that runs on this machine, and shows those
/// that do not answer as such; or, with --store, asks the record in the store.
/// The answer may be out of date before you read it.
#[derive(Debug, Parser)]
#[command(name = "status", verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Status {
    #[command(flatten)]
    target: Target,

    /// Over a store: wait until the record is renewed or released, or has been unchanged for so long that another node
    /// may take it; one look cannot tell whether its holder is alive
    #[arg(long, requires = "store")]
    verify: bool,
}

/// Runs the verb.
pub(crate) fn status(args: &Status) -> Result<Exit, Failure> {
    let target = &args.target;
    if let Some(url) = target.url()? {
        let look = || store::who(&url, &target.election, args.verify, target.json);
        // To verify takes as long as the record's duration.
        return if args.verify { look() } else { store::look_apart(&url, look) };
    }
    let nodes = target.nodes()?;
    if let [node] = nodes.as_slice() {
        let who = target::who(node)?;
        tell(target.json, &who, || text::text(&who))?;
        return Ok(if who.leader.is_some() { Exit::Success } else { Exit::NotElected });
    }
    let mut exits = Vec::new();
    for (index, (node, who)) in nodes.iter().zip(target::who_all(&nodes)).enumerate() {
        if index > 0 && !target.json {
            target::print("")?;
        }
        exits.push(match who {
            Ok(who) => {
                tell(target.json, &who, || text::text(&who))?;
                if who.leader.is_some() { Exit::Success } else { Exit::NotElected }
            }
            // It hides none of the others.
            Err(failure) => {
                let silent = Silent { election: &target.election, node: &node.node, error: &failure.message };
                tell(target.json, &silent, || format!("{}: {}", node.node, failure.message))?;
                failure.exit
            }
        });
    }
    let one_says = |wanted: Exit| exits.contains(&wanted).then_some(wanted);
    let silence = exits.first().copied().unwrap_or(Exit::NotElected);
    Ok(one_says(Exit::Success).or_else(|| one_says(Exit::NotElected)).unwrap_or(silence))
}

/// One of several nodes that cannot be asked.
#[derive(Serialize)]
struct Silent<'a> {
    election: &'a str,
    node: &'a str,
    error: &'a str,
}
