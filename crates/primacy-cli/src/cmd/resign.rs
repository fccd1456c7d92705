//! `primacy resign`: has the leader give up its lead, in order.

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::{Args, Parser};
use serde::Serialize;
use serde_json::json;

use super::store;
use super::target::{self, Target, tell, unexpected};
use crate::control::{Answer, Answers, Leader, Next, Node, NodeVerb};
use crate::duration;
use crate::exit::{self, Exit, Failure};
use crate::printable::{printable, printable_json};

/// Have the leader give up its lead, in order: its work is drained, then another node is elected.
///
/// Asks the node of the election that leads on this machine; or, with --store,
/// leaves the request in the record of the store, where any node's is found.
/// The node leads until nothing of its work is left: this waits for that,
/// and says what keeps the lead, such as a process that cannot be killed.
/// The node campaigns again; `primacy cordon` keeps it from leading.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Resign {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    patience: Patience,
}

/// The time to wait for the outcome.
#[derive(Debug, Args)]
pub(super) struct Patience {
    /// Time to wait until it is done; exit code 75 if it is not by then
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "60s", conflicts_with = "no_wait")]
    pub(super) wait: Duration,

    /// Return as soon as the leader has heard
    #[arg(long)]
    pub(super) no_wait: bool,
}

/// The outcome of a resignation.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The leader was asked, and the command does not wait.
    Asked { node: String, term: u64 },
    /// The lead was given up.
    Resigned { node: String, term: u64 },
    /// Another node leads.
    Elected { leader: Leader },
}

/// Runs the verb.
pub(crate) fn resign(args: &Resign) -> Result<Exit, Failure> {
    let target = &args.target;
    let patience = (!args.patience.no_wait).then_some(args.patience.wait);
    if let Some(url) = target.url()? {
        return store::resign(&url, target, patience);
    }
    let node = target.the_leader()?;
    let mut giving_up = GivingUp::ask(&node, NodeVerb::Resign, &args.patience, target.json)?;
    let (name, term) = (node.node.clone(), giving_up.term);
    let outcome = if args.patience.no_wait {
        Outcome::Asked { node: name, term }
    } else {
        giving_up.next_leader()?;
        Outcome::Resigned { node: name, term }
    };
    outcome.tell(target.json)?;
    Ok(Exit::Success)
}

impl Outcome {
    pub(super) fn tell(&self, json: bool) -> Result<(), Failure> {
        tell(json, self, || match self {
            Self::Asked { node, term } => {
                format!("{node} gives up the lead of term {term} when its work has drained")
            }
            Self::Resigned { node, term } => format!("{node} has given up the lead of term {term}"),
            Self::Elected { leader } => {
                format!("{} leads, {}", leader.node, leader.number())
            }
        })
    }
}

/// The interval at which a node that gives up its lead is asked for the reason that keeps it.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Prints on standard error the reason that keeps the lead at this node, if it differs from `known`.
pub(super) fn tell_what_keeps(node: &Node, known: &mut Option<String>, json: bool) -> Result<(), Failure> {
    let kept_by = target::who(node)?.kept_by;
    if let Some(kept_by) = kept_by.filter(|kept_by| known.as_ref() != Some(kept_by)) {
        let node = &node.node;
        let line = if json {
            let line = json!({ "event": "still_leading", "node": node, "reason": kept_by });
            printable_json(&line.to_string()).into_owned()
        } else {
            printable(&format!("{node} is still leading: {kept_by}")).into_owned()
        };
        // Without a reader, the exit code still reports the outcome.
        let _ = writeln!(std::io::stderr(), "{line}");
        *known = Some(kept_by);
    }
    Ok(())
}

/// A leadership that its node was asked to give up.
pub(super) struct GivingUp {
    node: Node,
    pub(super) term: u64,
    changes: Answers,
    patient_until: Instant,
    wait: Duration,
    /// The reason that keeps the lead, as the node has last reported it.
    kept_by: Option<String>,
    json: bool,
}

impl GivingUp {
    /// Sends the node the request to give up the lead.
    pub(super) fn ask(node: &Node, verb: NodeVerb, patience: &Patience, json: bool) -> Result<Self, Failure> {
        // Subscribes to the changes first, so that none is missed.
        let mut changes = node.watch()?;
        let answer = changes.first()?;
        if matches!(answer, Answer::Refused(_)) {
            return Err(unexpected(node, answer));
        }
        let answer = node.ask(verb)?;
        let Answer::Resigning { term } = answer else { return Err(unexpected(node, answer)) };
        Ok(Self::new(node, term, changes, patience, json))
    }

    /// Follows the end of a leadership, of this term, whose node was cordoned.
    pub(super) fn follow(node: &Node, term: u64, patience: &Patience, json: bool) -> Result<Self, Failure> {
        Ok(Self::new(node, term, node.watch()?, patience, json))
    }

    fn new(node: &Node, term: u64, changes: Answers, patience: &Patience, json: bool) -> Self {
        let patient_until = Instant::now() + patience.wait;
        Self { node: node.clone(), term, changes, patient_until, wait: patience.wait, kept_by: None, json }
    }

    /// Waits until that leadership is over, as far as its node knows. Returns the next leader, if one is known then.
    pub(super) fn next_leader(&mut self) -> Result<Option<Leader>, Failure> {
        loop {
            let left = self.patient_until.saturating_duration_since(Instant::now());
            self.changes.set_patience(left.min(LOOK_INTERVAL));
            match self.changes.next()? {
                Next::Answer(Answer::Leader { leader: Some(leader) }) if leader.term <= self.term => {}
                Next::Answer(Answer::Leader { leader }) => return Ok(leader),
                Next::Answer(Answer::Missed { .. } | Answer::Violation { .. } | Answer::Members { .. }) => {}
                Next::Answer(
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
                    | Answer::Refused(_)),
                ) => return Err(unexpected(&self.node, answer)),
                Next::Late if left > LOOK_INTERVAL => {
                    tell_what_keeps(&self.node, &mut self.kept_by, self.json)?
                }
                Next::Late => {
                    // The whole wait may be shorter than [`LOOK_INTERVAL`], so the reason is requested here, too.
                    tell_what_keeps(&self.node, &mut self.kept_by, self.json)?;
                    let kept = self.kept_by.as_ref();
                    let kept = kept.map(|it| format!("; it is still leading: {it}")).unwrap_or_default();
                    let message = format!(
                        "{} gives up the lead of term {}, and that has not led to what was asked for within {:?}{kept}; see \
                         `primacy status`",
                        self.node.node, self.term, self.wait
                    );
                    return Err(Failure::new(Exit::NotElected, message));
                }
                Next::Ended => {
                    let message =
                        format!("{} ended while it gave up the lead; see `primacy status`", self.node.node);
                    return Err(Failure::new(Exit::Unavailable, message));
                }
            }
        }
    }
}
