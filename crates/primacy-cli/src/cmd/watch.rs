//! `primacy watch`: shows every change of leader, in order.

use std::time::Duration;

use clap::Parser;
use serde::Serialize;

use super::status::text;
use super::store;
use super::target::{Target, now_ms, tell, unexpected};
use crate::control::{Answer, Leader, Members, Next, Node};
use crate::exit::{self, Exit, Failure};
use crate::printable::one_line;

/// Show every change of leader that a node learns, in order, as long as the node runs.
///
/// By seniority it shows the members as well, whenever one comes or goes: the
/// oldest first, each with its age.
///
/// The first line names the leader, if there is one. Where changes came faster
/// than they were read, a line says that some are missing. It ends with exit code
/// 69 when the node ends; with --follow it waits for the node instead.
///
/// With --store it watches the record in the store, and takes no part in the
/// election. When the store fails, and when it answers again, a line says so.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Watch {
    #[command(flatten)]
    target: Target,

    /// When the node ends, wait until it runs again; changes in between are not shown, and a line says so
    #[arg(long, conflicts_with = "store")]
    follow: bool,
}

/// The interval at which a node that has ended is asked again.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// One line of the output.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum WatchLine {
    /// The leader, or that there is none.
    Leader { leader: Option<Leader> },
    /// The members of the node's cluster, or that it belongs to none.
    Members { members: Option<Members> },
    /// Changes were missed; their number, if it is known.
    Missed { changes: Option<u64> },
    /// A violation: a state that must never occur.
    Violation { violation: String },
    /// Over a store: its present failures, a sentence each; none when it answers again.
    Store { troubles: Vec<String> },
    /// The node has ended, and its view of the election with it.
    Ended,
}

/// Runs the verb.
pub(crate) fn watch(args: &Watch) -> Result<Exit, Failure> {
    let target = &args.target;
    if let Some(url) = target.url()? {
        return store::watch(&url, &target.election, target.json);
    }
    let node = target.the_node()?;
    let mut answers = Some(node.watch()?);
    loop {
        let mut was_late = false;
        if let Some(answers) = &mut answers {
            loop {
                match answers.next()? {
                    Next::Answer(answer) => show(target.json, &node.node, seen(&node, answer)?)?,
                    Next::Late if !args.follow => return Err(answers.late("it told nothing yet")),
                    late_or_ended @ (Next::Late | Next::Ended) => {
                        was_late = matches!(late_or_ended, Next::Late);
                        break;
                    }
                }
            }
        }
        answers = match node.watch() {
            Ok(again) if was_late => Some(again),
            // The node runs, and has closed the connection, since this process was too slow to read.
            Ok(again) => {
                show(target.json, &node.node, WatchLine::Missed { changes: None })?;
                Some(again)
            }
            Err(failure) if failure.exit != Exit::Unavailable => return Err(failure),
            Err(_) => {
                if answers.is_some() {
                    show(target.json, &node.node, WatchLine::Ended)?;
                }
                if !args.follow {
                    return Ok(Exit::Unavailable);
                }
                std::thread::sleep(LOOK_INTERVAL);
                None
            }
        };
    }
}

fn seen(node: &Node, answer: Answer) -> Result<WatchLine, Failure> {
    match answer {
        Answer::Leader { leader } => Ok(WatchLine::Leader { leader }),
        Answer::Members { members } => Ok(WatchLine::Members { members }),
        Answer::Missed { changes } => Ok(WatchLine::Missed { changes: Some(changes) }),
        Answer::Violation { violation } => Ok(WatchLine::Violation { violation }),
        answer @ (Answer::Status(_)
        | Answer::Resigning { .. }
        | Answer::Cordoned { .. }
        | Answer::Readmitted { .. }
        | Answer::Downed
        | Answer::Announced { .. }
        | Answer::Partitions(_)
        | Answer::Rearranged
        | Answer::Voters { .. }
        | Answer::Revising { .. }
        | Answer::LossAccepted { .. }
        | Answer::Refused(_)) => Err(unexpected(node, answer)),
    }
}

/// Prints a line about an event that `node` has seen.
pub(super) fn show(json: bool, node: &str, line: WatchLine) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        /// Milliseconds since 1970.
        at_ms: u64,
        node: &'a str,
        #[serde(flatten)]
        seen: &'a WatchLine,
    }
    tell(json, &Line { at_ms: now_ms(), node, seen: &line }, || match &line {
        WatchLine::Leader { leader: Some(leader) } => {
            format!("{} leads, {}", leader.node, leader.number())
        }
        WatchLine::Members { members: Some(members) } => one_line(&text::members(members)),
        WatchLine::Members { members: None } => format!("{node} belongs to no cluster"),
        WatchLine::Leader { leader: None } => "nobody leads".to_owned(),
        WatchLine::Missed { changes: Some(changes) } => {
            format!("… {changes} changes came too fast and are not shown …")
        }
        WatchLine::Missed { changes: None } => "… changes may be missing here …".to_owned(),
        WatchLine::Violation { violation } => {
            format!("THIS MUST NEVER BE, and an operator should look: {violation}")
        }
        WatchLine::Store { troubles } if troubles.is_empty() => "the store answers again".to_owned(),
        WatchLine::Store { troubles } => {
            one_line(&format!("the store fails, and changes are not seen meanwhile: {}", troubles.join("; ")))
        }
        WatchLine::Ended => format!("the node {node} has ended"),
    })
}
