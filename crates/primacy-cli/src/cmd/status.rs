//! `primacy status`: the leader, or the reason why there is none.

pub(super) mod text;

use clap::Parser;
use serde::Serialize;

pub(super) use text::over_store;

use super::store;
use super::target::{self, Target, tell};
use crate::control::{self, Node, NodeStatus};
use crate::exit::{self, Exit, Failure};

/// Show the leader of an election, or why there is none, and what its nodes know of each other.
///
/// Asks every node of the election that runs on this machine, and shows those
/// that do not answer as such; or, with --store, asks the record in the store.
/// Without --election it asks the nodes of every election on this machine.
/// The answer may be out of date before you read it.
#[derive(Debug, Parser)]
#[command(name = "status", verbatim_doc_comment, after_help = exit::VERBS_HELP)]
#[command(mut_arg("election", |election| {
    let help = "The name of the election; without it, all elections that have a node on this machine";
    election.required(false).default_value("").hide_default_value(true).help(help)
}))]
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
    if target.election.is_empty() {
        return of_all_elections(target);
    }
    if let Some(url) = target.url()? {
        let look = || store::who(&url, &target.election, args.verify, target.json);
        // Verifying takes as long as the record's duration.
        return if args.verify { look() } else { store::look_apart(&url, look) };
    }
    let nodes = target.nodes()?;
    if let [node] = nodes.as_slice() {
        let who = target::who(node)?;
        tell(target.json, &who, || text::text(&who))?;
        return Ok(exit_of(&who));
    }
    let exits = of_nodes(&nodes, target.json)?;
    Ok(exit_of_election(&exits))
}

/// Shows every node of every election on this machine. Succeeds if each election has a leader.
fn of_all_elections(target: &Target) -> Result<Exit, Failure> {
    if target.store.is_some() || target.node.is_some() {
        let message =
            "--store and --node need --election NAME: without it, the nodes of this machine are asked";
        return Err(Failure::new(Exit::Usage, message.to_owned()));
    }
    let nodes = control::find_all(&target.state_dir()?, None)?;
    let exits = of_nodes(&nodes, target.json)?;
    let nodes_and_exits: Vec<_> = nodes.iter().zip(exits).collect();
    let elections = nodes_and_exits.chunk_by(|(a, _), (b, _)| a.election == b.election);
    let mut exits =
        elections.map(|nodes| exit_of_election(&nodes.iter().map(|(_, exit)| *exit).collect::<Vec<_>>()));
    Ok(exits.find(|exit| *exit != Exit::Success).unwrap_or(Exit::Success))
}

/// Shows the answers of several nodes. A node that does not answer does not hide the others.
fn of_nodes(nodes: &[Node], json: bool) -> Result<Vec<Exit>, Failure> {
    let mut exits = Vec::new();
    for (index, (node, who)) in nodes.iter().zip(target::who_all(nodes)).enumerate() {
        if index > 0 && !json {
            target::print("")?;
        }
        exits.push(match who {
            Ok(who) => {
                tell(json, &who, || text::text(&who))?;
                exit_of(&who)
            }
            Err(failure) => {
                let silent = Silent { election: &node.election, node: &node.node, error: &failure.message };
                tell(json, &silent, || format!("{}: {}: {}", node.election, node.node, failure.message))?;
                failure.exit
            }
        });
    }
    Ok(exits)
}

fn exit_of(who: &NodeStatus) -> Exit {
    if who.leader.is_some() { Exit::Success } else { Exit::NotElected }
}

/// Returns the exit code for one election, from those of its nodes.
fn exit_of_election(exits: &[Exit]) -> Exit {
    let one_says = |wanted: Exit| exits.contains(&wanted).then_some(wanted);
    let silence = exits.first().copied().unwrap_or(Exit::NotElected);
    one_says(Exit::Success).or_else(|| one_says(Exit::NotElected)).unwrap_or(silence)
}

/// A node that does not answer.
#[derive(Serialize)]
struct Silent<'a> {
    election: &'a str,
    node: &'a str,
    error: &'a str,
}
