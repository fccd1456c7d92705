//! `primacy partitions`: groups of partitions that the nodes distribute among themselves.

use clap::{Parser, Subcommand};
use primacy::NodeId;
use primacy::kv::partitions::GroupName;
use serde::Serialize;

use super::target::{Target, tell, unexpected};
use crate::control::{Answer, Change, NodeVerb, Shown};
use crate::exit::{self, Exit, Failure};
use crate::printable::one_line;

/// Make groups of partitions, see the primary of each, and move them.
///
/// For clusters whose nodes keep metadata (`primacy node --metadata`). Each
/// partition has one primary among the nodes that have joined with the
/// library, and a token that grows with each primary that it gets. Nodes
/// share the partitions out evenly, and move no more than they must.
///
/// Any node passes the request on to the leader.
#[derive(Debug, Parser)]
#[command(name = "partitions", verbatim_doc_comment)]
pub(crate) struct Partitions {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(Create),
    Show(Show),
    Drain(Drain),
    Undrain(Undrain),
    Move(Move),
    Drop(Drop),
}

/// Make a group of partitions.
///
/// They are shared out at once among the nodes that have joined, and to others
/// as soon as those join. The number of partitions stays as it is.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct Create {
    /// The name of the group: 1 to 63 letters, digits, '.', '_' and '-'
    #[arg(value_name = "GROUP")]
    group: String,

    /// Number of its partitions; they are numbered from 0
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    #[command(flatten)]
    target: Target,
}

/// Show the nodes and the groups; of a group, the primary of each partition.
///
/// Partitions that follow each other and have the same primary under the same
/// token are one line.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct Show {
    /// The group whose partitions are shown
    #[arg(value_name = "GROUP")]
    group: Option<String>,

    #[command(flatten)]
    target: Target,
}

/// Keep a node from being a primary, over its restarts.
///
/// Its partitions are taken back, and when it has finished its work for one,
/// another node gets that. As long as no other node can have them, it keeps
/// them. `show` tells when all have moved.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct Drain {
    /// The node, which need not be up
    #[arg(value_name = "NODE")]
    drained: String,

    #[command(flatten)]
    target: Target,
}

/// Let a node be a primary again.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct Undrain {
    /// The node
    #[arg(value_name = "NODE")]
    drained: String,

    #[command(flatten)]
    target: Target,
}

/// Make a node the primary of a partition.
///
/// The present primary is asked to stop, and when it has, the other one
/// begins. It stays there until loads are made even again, which happens when
/// nodes or groups come or go.
#[derive(Debug, Parser)]
#[command(name = "move", verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct Move {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,

    /// The partition, from 0
    #[arg(value_name = "INDEX")]
    index: u32,

    /// The node that shall have it: it must be up and not drained
    #[arg(value_name = "NODE")]
    to: String,

    #[command(flatten)]
    target: Target,
}

/// Remove a group, once all its primaries have stopped.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct Drop {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,

    #[command(flatten)]
    target: Target,
}

/// Runs the verb.
pub(crate) fn partitions(args: &Partitions) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Show(args) => show(args),
        Verb::Create(Create { group, count, target }) => {
            let change = Change::Create { group: group_name(group)?, count: *count };
            ask(target, change, || format!("the group {group} has {count} partitions"))
        }
        Verb::Drop(Drop { group, target }) => {
            let change = Change::Drop { group: group_name(group)? };
            ask(target, change, || format!("the group {group} goes as soon as its primaries have stopped"))
        }
        Verb::Drain(Drain { drained, target }) => {
            let change = Change::Drain { node: node_name(drained)? };
            ask(target, change, || format!("{drained} is drained; see `primacy partitions show`"))
        }
        Verb::Undrain(Undrain { drained, target }) => {
            let change = Change::Undrain { node: node_name(drained)? };
            ask(target, change, || format!("{drained} may be a primary"))
        }
        Verb::Move(Move { group, index, to, target }) => {
            let change = Change::Move { group: group_name(group)?, index: *index, node: node_name(to)? };
            ask(target, change, || {
                format!("{to} gets partition {index} of {group} when the work of its primary has ended")
            })
        }
    }
}

#[derive(Debug, Serialize)]
struct ChangeReport {
    /// The node that was asked.
    asked: String,
    /// The change that is done.
    #[serde(flatten)]
    change: Change,
}

const INSTEAD: &str = "partitions are shared out among peers";

fn ask(target: &Target, change: Change, text: impl FnOnce() -> String) -> Result<Exit, Failure> {
    target.no_store("partitions", INSTEAD)?;
    let node = target.any_node()?;
    let answer = node.ask(NodeVerb::Rearrange { change: change.clone() })?;
    let Answer::Rearranged = answer else { return Err(unexpected(&node, answer)) };
    tell(target.json, &ChangeReport { asked: node.node.clone(), change }, text)?;
    Ok(Exit::Success)
}

fn show(args: &Show) -> Result<Exit, Failure> {
    let target = &args.target;
    target.no_store("partitions", INSTEAD)?;
    let group = args.group.as_deref().map(group_name).transpose()?;
    let node = target.any_node()?;
    let answer = node.ask(NodeVerb::Partitions { group })?;
    let Answer::Partitions(shown) = answer else { return Err(unexpected(&node, answer)) };
    tell(target.json, &*shown, || text(&shown))?;
    Ok(Exit::Success)
}

fn group_name(name: &str) -> Result<String, Failure> {
    let checked =
        GroupName::new(name).map_err(|error| Failure::new(Exit::Usage, format!("{name:?}: {error}")))?;
    Ok(checked.to_string())
}

fn node_name(name: &str) -> Result<String, Failure> {
    let node: Result<NodeId, _> = name.parse();
    let node = node.map_err(|error| Failure::new(Exit::Usage, format!("{name:?}: {error}")))?;
    Ok(node.to_string())
}

fn text(shown: &Shown) -> String {
    let mut lines = Vec::new();
    if !shown.fresh {
        lines.push("nobody leads now; this is what the node knew last".to_owned());
    }
    if shown.nodes.is_empty() {
        lines.push("no node has joined".to_owned());
    }
    for node in &shown.nodes {
        let state = match (node.up, node.drained) {
            (true, false) => "up",
            (true, true) => "up, drained",
            (false, _) => "down, drained",
        };
        let mut line = format!("{} {state}, primary of {}", node.node, node.primary_of);
        if node.gives_back > 0 {
            line += &format!(", of which it gives back {}", node.gives_back);
        }
        if node.awaits > 0 {
            line += &format!(", awaits {}", node.awaits);
        }
        lines.push(line);
    }
    for group in &shown.groups {
        let ending = if group.ending { ", about to go" } else { "" };
        lines.push(format!(
            "{}: {} partitions, {} without a primary, {} on their way{ending}",
            group.group, group.count, group.free, group.taken
        ));
        for run in &group.partitions {
            let range = match run.last == run.first {
                true => run.first.to_string(),
                false => format!("{}-{}", run.first, run.last),
            };
            let primary = run.primary.as_deref().unwrap_or("nobody");
            let next = match (&run.next, run.taken) {
                (Some(next), _) => format!(", then {next}: waits until the work of {primary} has ended"),
                (None, true) => format!(", taken back: waits until the work of {primary} has ended"),
                (None, false) => String::new(),
            };
            lines.push(format!("  {range} {primary}, token {}{next}", run.token));
        }
        if group.more {
            lines.push("  and more, which are not shown".to_owned());
        }
    }
    lines.iter().map(|line| one_line(line)).collect::<Vec<_>>().join("\n")
}
