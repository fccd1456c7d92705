//! The node or store that an operator's verb is about, and the verb's output.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread::ScopedJoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use primacy::config::{check_election, default_state_dir};
use serde::Serialize;

use crate::control::{self, Answer, Leader, Node, NodeStatus, NodeVerb};
use crate::entry::layers::Sources;
use crate::entry::location::{between_processes, resolve_url};
use crate::exit::{Exit, Failure};
use crate::printable::{printable, printable_json};
use crate::stdout;

/// The most nodes that are asked at once.
const ASKED_AT_ONCE: usize = 32;

/// The options that all operator's verbs share.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// The name of the election
    #[arg(long, value_name = "NAME", env = "PRIMACY_ELECTION")]
    pub(super) election: String,

    /// The node to ask, where several of this election run on this machine
    #[arg(long, value_name = "NAME")]
    pub(super) node: Option<String>,

    /// The state directory of the node [env: PRIMACY_STATE_DIR] [default: $XDG_STATE_HOME/primacy or
    /// ~/.local/state/primacy]
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,

    /// Ask this store, and no node; env:NAME reads the URL from the environment
    #[arg(long, value_name = "URL", conflicts_with_all = ["node", "state_dir"])]
    pub(super) store: Option<String>,

    /// Print JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,
}

impl Target {
    /// Returns the URL of the store, if the verb is about one.
    pub(super) fn url(&self) -> Result<Option<String>, Failure> {
        check_election(&self.election).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        self.store
            .as_deref()
            .map(|url| between_processes(resolve_url("store", url, &Sources::default())?))
            .transpose()
    }

    /// Refuses `--store`, for verbs that only a node can answer.
    ///
    /// # Errors
    /// [`Exit::Usage`] if a store was given.
    pub(super) fn no_store(&self, verb: &str, instead: &str) -> Result<(), Failure> {
        if self.url()?.is_none() {
            return Ok(());
        }
        Err(Failure::new(Exit::Usage, format!("`primacy {verb}` asks a node and not a store: {instead}")))
    }

    /// Returns the state directory of the node.
    pub(super) fn state_dir(&self) -> Result<PathBuf, Failure> {
        self.state_dir.clone().map_or_else(told_state_dir, Ok)
    }

    /// Returns the node of `--node`; or all that run here.
    pub(super) fn nodes(&self) -> Result<Vec<Node>, Failure> {
        let dir = self.state_dir()?;
        match &self.node {
            Some(node) => {
                let named: Result<primacy::NodeId, _> = node.parse();
                named.map_err(|error| Failure::new(Exit::Usage, format!("--node: {error}")))?;
                Ok(vec![control::find(&dir, &self.election, node)])
            }
            None => control::find_all(&dir, Some(&self.election)),
        }
    }

    /// Returns the node of `--node`; or the only one that runs here.
    pub(super) fn the_node(&self) -> Result<Node, Failure> {
        let mut nodes = self.nodes()?;
        match (nodes.pop(), nodes.is_empty()) {
            (Some(node), true) => Ok(node),
            (last, _) => {
                let names: Vec<&str> = nodes.iter().chain(&last).map(|node| node.node.as_str()).collect();
                let message = format!(
                    "several nodes of the election {:?} run here: {}; name one of them with --node",
                    self.election,
                    names.join(", ")
                );
                Err(Failure::new(Exit::Usage, message))
            }
        }
    }

    /// Returns the node of `--node`; or any that runs here.
    pub(super) fn any_node(&self) -> Result<Node, Failure> {
        Ok(self.nodes()?.swap_remove(0))
    }

    /// Returns the node of `--node`; or the leader among the nodes that run here; or the only one.
    pub(super) fn the_leader(&self) -> Result<Node, Failure> {
        let nodes = self.nodes()?;
        if let [node] = nodes.as_slice() {
            return Ok(node.clone()); // If it does not lead, it says who does.
        }
        let (mut ending, mut elsewhere, mut names, mut silent) = (None, None, Vec::new(), Vec::new());
        let mut kept = String::new();
        for (node, who) in nodes.iter().zip(who_all(&nodes)) {
            let who = match who {
                Ok(who) => who,
                // This node may be the leader; but another leader that answers is used instead.
                Err(failure) => {
                    silent.push(failure);
                    continue;
                }
            };
            match leads(&who) {
                Leads::Yes => return Ok(node.clone()),
                Leads::Ending => ending = ending.or(Some(node)),
                Leads::No => {}
            }
            elsewhere = elsewhere.or(who.leader.map(|leader| leader.node));
            kept.extend(who.not_campaigning.map(|why| format!("; {} does not campaign: {why}", node.node)));
            names.push(node.node.as_str());
        }
        if let Some(node) = ending {
            return Ok(node.clone()); // It says why it gives up.
        }
        let leader = elsewhere.map_or_else(
            || "nobody does, as far as they know".to_owned(),
            |leader| format!("{leader} does; ask it on its machine, or name its --state-dir"),
        );
        let Some(first) = silent.first() else {
            let message =
                format!("none of the nodes that run here leads ({}): {leader}{kept}", names.join(", "));
            return Err(Failure::new(Exit::NotElected, message));
        };
        let others: Vec<&str> = silent.iter().map(|failure| failure.message.as_str()).collect();
        let answered = if names.is_empty() { "none" } else { &names.join(", ") };
        let message = format!(
            "of the nodes that run here, those that answer do not lead ({answered}): {leader}{kept}; and {}",
            others.join("; ")
        );
        Err(Failure::new(first.exit, message))
    }
}

/// Returns the state directory that the environment names, or the default one.
pub(super) fn told_state_dir() -> Result<PathBuf, Failure> {
    // Read here and not by clap: in the environment the variable does not contradict `--store`.
    let told = std::env::var_os("PRIMACY_STATE_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let default = || default_state_dir().map_err(|error| Failure::new(Exit::Config, error.to_string()));
    told.map_or_else(default, Ok)
}

/// The result of a check whether a node leads.
enum Leads {
    Yes,
    /// It still leads, but is giving up a leadership that does not expire.
    Ending,
    No,
}

fn leads(who: &NodeStatus) -> Leads {
    // An advisory leadership does not expire, so it reports no validity.
    let is_itself = |leader: &Leader| leader.node == who.node && leader.incarnation == who.incarnation;
    match (&who.valid_for_ms, &who.ending) {
        (Some(_), _) => Leads::Yes,
        (None, ending) if who.leader.as_ref().is_some_and(is_itself) => {
            if ending.is_none() {
                Leads::Yes
            } else {
                Leads::Ending
            }
        }
        (None, _) => Leads::No,
    }
}

/// Asks a node for its status.
pub(super) fn who(node: &Node) -> Result<NodeStatus, Failure> {
    let answer = node.ask(NodeVerb::Status)?;
    let Answer::Status(who) = &answer else { return Err(unexpected(node, answer)) };
    Ok(who.as_ref().clone())
}

/// Asks all nodes for their status, [`ASKED_AT_ONCE`] at a time: a node that does not answer takes the longest time of
/// a request.
pub(super) fn who_all(nodes: &[Node]) -> Vec<Result<NodeStatus, Failure>> {
    let ask_at_once = |nodes: &[Node]| {
        std::thread::scope(|scope| {
            let requests: Vec<_> = nodes.iter().map(|node| scope.spawn(|| who(node))).collect();
            let answer = |request: ScopedJoinHandle<'_, _>| {
                request.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            requests.into_iter().map(answer).collect::<Vec<_>>()
        })
    };
    nodes.chunks(ASKED_AT_ONCE).flat_map(ask_at_once).collect()
}

/// Converts an answer that does not belong to the request, mostly a refusal, to a failure.
pub(super) fn unexpected(node: &Node, answer: Answer) -> Failure {
    match answer {
        Answer::Refused(refused) => refused.into(),
        answer @ (Answer::Status(_)
        | Answer::Leader { .. }
        | Answer::Members { .. }
        | Answer::Missed { .. }
        | Answer::Violation { .. }
        | Answer::Resigning { .. }
        | Answer::Cordoned { .. }
        | Answer::Readmitted { .. }
        | Answer::Downed
        | Answer::Announced { .. }
        | Answer::Partitions(_)
        | Answer::Rearranged
        | Answer::Voters { .. }
        | Answer::Revising { .. }
        | Answer::LossAccepted { .. }) => {
            let message =
                format!("the node {} answers something else than it was asked: {answer:?}", node.node);
            Failure::new(Exit::Protocol, message)
        }
    }
}

/// Prints a line at once, with characters escaped that a terminal would act on.
///
/// # Errors
/// See [`stdout::written`].
pub(super) fn print(line: &str) -> Result<(), Failure> {
    stdout::write(&format!("{}\n", printable(line)))
}

/// Prints an object as a line of JSON, as [`print`] does.
pub(super) fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    let line =
        serde_json::to_string(object).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    stdout::write(&format!("{}\n", printable_json(&line)))
}

/// Prints an object as JSON, or its text for people.
pub(super) fn tell(
    json: bool,
    object: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if json { print_json(object) } else { print(&text()) }
}

/// Returns the time of day, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}
