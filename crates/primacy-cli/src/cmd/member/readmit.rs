//! `primacy member readmit`: takes back a node that has lost its disk.

use clap::Parser;
use serde::Serialize;

use crate::cmd::target::{self, Target, tell, unexpected};
use crate::control::{self, Answer, Kind, NodeVerb, Peers};
use crate::exit::{self, Exit, Failure};

/// Take back a node that has lost its state directory, and with it its votes.
///
/// The others refuse such a node, for it could vote twice in a term. Start it
/// with its new, empty state directory, and give this command for every other
/// node: on each machine once; it reaches all nodes of the election that run
/// there. The node votes again when all of them have told it their term, so that
/// no vote that it has lost can be missed.
///
/// Be sure that no process with the old disk runs any more: its messages are
/// dropped from now on, and that disk never comes back. A node that has not
/// refused the new disk readmits it once the lost node has been readmitted
/// elsewhere, and says itself that it waits.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(super) struct Readmit {
    /// The node to take back
    #[arg(value_name = "NODE")]
    lost: String,

    #[command(flatten)]
    target: Target,
}

/// The outcome of the readmission at one node.
#[derive(Debug, Serialize)]
struct ReadmissionReport {
    node: String,
    readmits: String,
    /// The disk that is valid from now on.
    disk: Option<String>,
    /// The reason why it is not readmitted there.
    refused: Option<String>,
}

/// The readmissions that are still missing.
#[derive(Debug, Serialize)]
struct Missing {
    /// The nodes that have readmitted it now.
    told: Vec<String>,
    /// The other voters. The command must be given on their machines, unless that was done before.
    others: Vec<String>,
}

/// Runs the verb.
pub(super) fn readmit(args: &Readmit) -> Result<Exit, Failure> {
    let target = &args.target;
    target.no_store("member", "over a store no node needs its disk to vote")?;
    let nodes: Vec<control::Node> =
        target.nodes()?.into_iter().filter(|node| node.node != args.lost).collect();
    if nodes.is_empty() {
        let message = format!(
            "only {} itself runs here, and it is for the others to readmit it: say this on their machines, or name \
             their --state-dir",
            args.lost
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    let (mut told, mut trouble, mut peers) = (Vec::new(), None, None);
    for node in &nodes {
        let answer = match node.ask(NodeVerb::Readmit { node: args.lost.clone() }) {
            // This failure hides no other answer. The node is listed among those that are still missing.
            Err(failure) if nodes.len() > 1 => {
                say(target.json, node, &args.lost, Err(&failure.message))?;
                trouble = trouble.or(Some(failure.exit));
                continue;
            }
            answer => answer?,
        };
        if let Answer::Readmitted { disk } = &answer {
            told.push(node.node.clone());
            say(target.json, node, &args.lost, Ok(disk.clone()))?;
        } else if let Answer::Refused(refused) = &answer
            && refused.kind == Kind::NotRefused
            && nodes.len() > 1
        {
            say(target.json, node, &args.lost, Err(&refused.text))?;
            trouble = trouble.or(Some(Failure::from(refused.clone()).exit));
        } else {
            return Err(unexpected(node, answer));
        }
        if peers.is_none() {
            peers = target::who(node).ok().and_then(|who| who.peers);
        }
    }
    if let (true, Some(exit)) = (told.is_empty(), trouble) {
        // The reason of each was printed.
        return Err(Failure::new(exit, ""));
    }
    if let Some(peers) = peers {
        say_what_is_missing(target.json, &args.lost, told, &peers)?;
    }
    Ok(Exit::Success)
}

fn say(json: bool, by: &control::Node, lost: &str, answer: Result<String, &str>) -> Result<(), Failure> {
    let (disk, refused) = match answer {
        Ok(disk) => (Some(disk), None),
        Err(text) => (None, Some(text.to_owned())),
    };
    let report = ReadmissionReport { node: by.node.clone(), readmits: lost.to_owned(), disk, refused };
    tell(json, &report, || match (&report.disk, &report.refused) {
        (Some(disk), _) => format!("{} readmits {lost}, with the disk {disk}", report.node),
        (None, refused) => refused.clone().unwrap_or_default(),
    })
}

fn say_what_is_missing(json: bool, lost: &str, told: Vec<String>, peers: &Peers) -> Result<(), Failure> {
    let others: Vec<String> =
        peers.voters.iter().filter(|voter| *voter != lost && !told.contains(voter)).cloned().collect();
    let missing = Missing { told, others };
    tell(json, &missing, || {
        let told = format!("{lost} votes again when all others have told it their term");
        if missing.others.is_empty() {
            format!("{told}; they do as soon as they reach it")
        } else {
            format!("{told}; unless done before, say this for {} as well", missing.others.join(", "))
        }
    })
}
