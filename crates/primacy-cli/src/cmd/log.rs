//! `primacy log`: the replicated log that a node keeps on its disk.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use primacy::NodeId;
use primacy::log_file::{LogError, Repair, repair};
use serde::Serialize;

use super::target::{Target, tell, unexpected};
use crate::control::{Answer, NodeVerb};
use crate::exit::{self, Exit, Failure};

/// Repair the log that a node keeps.
#[derive(Debug, Parser)]
#[command(name = "log", after_help = exit::VERBS_HELP)]
pub(crate) struct Log {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Repair(LogRepair),
}

/// Runs the verb.
pub(crate) fn log(args: &Log) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Repair(args) => repair_log(args),
    }
}

/// Rebuild a damaged log from the logs of the other nodes
///
/// For nodes that keep metadata together (`primacy node --metadata`, or
/// --etcd-api). A node whose log is damaged does not start. This puts the log out
/// of the way, under another name, while the node is stopped; when it is
/// started again it asks the others, and counts for no majority until it has
/// all that it can have held. Name the node with --node. Where no other node
/// votes there is none to ask, and nothing is changed (exit code 74).
///
/// If the state file of a node is lost, which has its votes, and no other node
/// votes, this makes it again from the log. Where others vote, start the node
/// and have them readmit it (`primacy member readmit`).
///
/// With --accept-loss it tells a running node that its log is lost, and so are
/// those of so many others that no majority is left which could tell what was
/// in them (with --metadata memory: all of them were restarted at once). The
/// node then takes what it has for the whole. **What only the lost logs had is
/// gone.** Give it to as few nodes as are needed for a majority together with
/// those whose logs are not lost; `primacy status` tells which they are. With
/// --metadata fsync, first stop nodes that count older voters (see
/// docs/metadata.md, "A majority that was lost"): else more may be lost, and
/// two nodes may lead.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct LogRepair {
    /// Have the node go on without what it has lost
    #[arg(long)]
    accept_loss: bool,

    #[command(flatten)]
    target: Target,
}

/// The outcome of the repair.
#[derive(Debug, Serialize)]
struct Recovered<'a> {
    node: &'a str,
    /// The new path of the damaged log.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<PathBuf>,
    /// True if the state of the only voter was restored from its log.
    state_made: bool,
    loss_accepted: bool,
}

fn repair_log(args: &LogRepair) -> Result<Exit, Failure> {
    args.target.no_store("log", "over a store no node has a log")?;
    if args.accept_loss { accept_loss(&args.target) } else { set_aside(&args.target) }
}

fn accept_loss(target: &Target) -> Result<Exit, Failure> {
    let node = target.the_node()?;
    let answer = node.ask(NodeVerb::AcceptLoss)?;
    let Answer::LossAccepted { was_lost } = answer else { return Err(unexpected(&node, answer)) };
    if !was_lost {
        let message = format!("{} has not lost its log, or has it again; nothing has changed", node.node);
        return Err(Failure::new(Exit::NotElected, message));
    }
    let recovered = Recovered { node: &node.node, set_aside: None, state_made: false, loss_accepted: true };
    tell(target.json, &recovered, || format!("{} goes on with what it has of its log", node.node))?;
    Ok(Exit::Success)
}

fn set_aside(target: &Target) -> Result<Exit, Failure> {
    let Some(name) = &target.node else {
        let message = "name the node whose log is damaged with --node; it must not run meanwhile";
        return Err(Failure::new(Exit::Usage, message));
    };
    let node: Result<NodeId, _> = name.parse();
    let node = node.map_err(|error| Failure::new(Exit::Usage, format!("--node: {error}")))?;
    match repair(&target.state_dir()?, &target.election, node) {
        Ok(Repair::SetAside(path)) => {
            let text = format!(
                "the damaged log of {name} is now {}; start {name}, and it gets its log from the others",
                path.display()
            );
            let recovered =
                Recovered { node: name, set_aside: Some(path), state_made: false, loss_accepted: false };
            tell(target.json, &recovered, || text)?;
            Ok(Exit::Success)
        }
        Ok(Repair::StateMade) => {
            let recovered = Recovered { node: name, set_aside: None, state_made: true, loss_accepted: false };
            tell(target.json, &recovered, || {
                format!(
                    "the state of {name} was made again from its log; start {name}, and it leads again after a minute"
                )
            })?;
            Ok(Exit::Success)
        }
        Ok(Repair::NoLog) => {
            let message = format!(
                "{name} has no log that could be put out of the way; start {name}, and it gets its log from the others"
            );
            Err(Failure::new(Exit::NotElected, message))
        }
        Ok(Repair::NoNode) => {
            let dir = target.state_dir()?;
            let message =
                format!("no node {name} of the election {} has run in {}", target.election, dir.display());
            Err(Failure::new(Exit::Unavailable, message))
        }
        Ok(Repair::Nothing) => {
            let message = format!("the log of {name} is not damaged; nothing has changed");
            Err(Failure::new(Exit::NotElected, message))
        }
        Err(error @ LogError::Locked { .. }) => Err(Failure::new(Exit::NotElected, error.to_string())),
        Err(error) => Err(Failure::new(Exit::State, error.to_string())),
    }
}
