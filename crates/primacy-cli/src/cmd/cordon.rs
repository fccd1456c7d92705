//! `primacy uncordon` and `primacy cordon`: whether a node may lead.

use clap::Parser;
use serde::Serialize;

use super::resign::{GivingUp, Patience};
use super::target::{self, Target, tell, unexpected};
use crate::control::{Answer, Node, NodeVerb};
use crate::exit::{self, Exit, Failure};

/// Let a node lead again, after `primacy cordon`.
#[derive(Debug, Parser)]
#[command(after_help = exit::VERBS_HELP)]
pub(crate) struct Uncordon {
    #[command(flatten)]
    target: Target,
}

/// Keep a node from leading: it does not campaign, and gives up the lead in order if it has it.
///
/// Among peers the node goes on voting. The cordon survives a restart where the
/// node has a state directory; the answer says so. A leader goes on until
/// nothing of its work is left: this command waits for that, and says what keeps
/// the lead, such as a process that cannot be killed.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Cordon {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    patience: Patience,
}

/// Runs the verb.
pub(crate) fn uncordon(args: &Uncordon) -> Result<Exit, Failure> {
    set(&args.target, "uncordon", NodeVerb::Uncordon).map(|_| Exit::Success)
}

/// Runs the verb.
pub(crate) fn cordon(args: &Cordon) -> Result<Exit, Failure> {
    let node = set(&args.target, "cordon", NodeVerb::Cordon)?;
    let who = target::who(&node)?;
    let led = who.leader.filter(|leader| who.ending.is_some() && leader.node == who.node);
    if let Some(led) = led.filter(|_| !args.patience.no_wait) {
        GivingUp::follow(&node, led.term, &args.patience, args.target.json)?.next_leader()?;
    }
    Ok(Exit::Success)
}

/// Sends the request to the node, prints its answer, and returns the node.
fn set(target: &Target, name: &str, verb: NodeVerb) -> Result<Node, Failure> {
    #[derive(Serialize)]
    struct CordonReport<'a> {
        node: &'a str,
        cordoned: bool,
        kept: bool,
        /// The reason why the node still does not campaign after `uncordon`.
        #[serde(skip_serializing_if = "Option::is_none")]
        not_campaigning: Option<String>,
    }
    target.no_store(name, "name the node with --node, on its machine")?;
    let node = target.the_node()?;
    let answer = node.ask(verb)?;
    let Answer::Cordoned { cordoned, kept } = answer else { return Err(unexpected(&node, answer)) };
    let not_campaigning = if cordoned { None } else { target::who(&node)?.not_campaigning };
    let report = CordonReport { node: &node.node, cordoned, kept, not_campaigning };
    tell(target.json, &report, || {
        let name = &node.node;
        let said = if !cordoned {
            format!("{name} may lead")
        } else {
            format!("{name} is cordoned: it does not campaign, and gives up the lead if it has it")
        };
        let lasts =
            if kept { "also after a restart" } else { "until it is restarted; it has no state directory" };
        let yet = report.not_campaigning.as_ref();
        let yet = yet.map(|why| format!("; yet it does not campaign: {why}")).unwrap_or_default();
        format!("{said}, {lasts}{yet}")
    })?;
    Ok(node)
}
