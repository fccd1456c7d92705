//! `primacy member`: the voters and members of an election, listed and changed while the nodes run.

mod dead;
mod readmit;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use primacy::{NodeId, Peers};
use serde::Serialize;

use super::resign::tell_what_keeps;
use super::target::{Target, tell, unexpected};
use crate::control::{self, Answer, NodeVerb, Progress};
use crate::duration;
use crate::exit::{self, Exit, Failure};
use crate::printable::one_line;

/// List, add, remove, replace and readmit the nodes of an election among peers.
///
/// Voters change where nodes keep metadata together (`primacy node --metadata`,
/// or --etcd-api). A change is a record in the log: it is in force when a
/// majority has written it. One voter changes at a time.
#[derive(Debug, Parser)]
#[command(name = "member", verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Member {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(List),
    Add(Add),
    Remove(Remove),
    Replace(Replace),
    Readmit(readmit::Readmit),
}

/// List the voters, and the record that states them
#[derive(Debug, Parser)]
#[command(after_help = exit::VERBS_HELP)]
struct List {
    #[command(flatten)]
    target: Target,
}

/// Add a voter, once it is up to date
///
/// Start the new node first, with the addresses of all and its own in --peers.
/// The leader brings it up to date, and only then does its vote count: until
/// then it delays no decision. It is refused if too few of the new voters are
/// heard for a majority.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct Add {
    /// The new voter, and its address for the others: NAME=HOST:PORT
    #[arg(value_name = "NAME=HOST:PORT")]
    voter: String,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

/// Remove a voter; with --dead, a member that the cluster waits for
///
/// The leader refuses to remove a voter while it hears too few of the others for
/// a majority. A leader that is removed ends its work and resigns first, and the
/// next leader removes it. The node keeps its data, and the others refuse it.
///
/// --dead is for a cluster by seniority. The cluster removes a silent member by
/// itself, if its policy lets the rest go on. With --dead the operator vouches
/// for what the cluster cannot know: that the member is dead and stays so, or
/// that its machine is off. Be sure of it: a member that lives leads on beside
/// the others until it hears from them again; then it joins as the youngest.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
struct Remove {
    /// The node to remove
    #[arg(value_name = "NODE")]
    voter: String,
    /// Vouch that this member of a cluster by seniority is dead
    #[arg(long, conflicts_with = "wait")]
    dead: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

/// Add a voter, then remove another one
#[derive(Debug, Parser)]
#[command(after_help = exit::VERBS_HELP)]
struct Replace {
    /// The voter to remove
    #[arg(value_name = "OLD")]
    old: String,
    /// The new voter, and its address for the others: NAME=HOST:PORT
    #[arg(value_name = "NEW=HOST:PORT")]
    new: String,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
struct Patience {
    /// Time to wait for it; given again, the command goes on from there [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,
}

/// The default of `--wait`.
const WAIT: Duration = Duration::from_secs(300);
/// The interval at which the progress is requested.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The time for which there may be no leader meanwhile: the change itself may cause an election.
const LEADERLESS_MAX: Duration = Duration::from_secs(10);

/// The progress of a change, printed whenever it has changed.
#[derive(Debug, Serialize)]
struct Step<'a> {
    node: &'a str,
    change: &'static str,
    #[serde(flatten)]
    progress: &'a Progress,
}

/// Runs the verb.
pub(crate) fn member(args: &Member) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::List(List { target }) => list(target),
        Verb::Add(Add { voter, patience, target }) => {
            let (node, address) = named(voter)?;
            change(target, patience, "add", &node, Some(&address))
        }
        Verb::Remove(Remove { voter, dead: true, target, .. }) => dead::remove(voter, target),
        Verb::Remove(Remove { voter, patience, target, .. }) => {
            change(target, patience, "remove", &name(voter)?, None)
        }
        Verb::Readmit(args) => readmit::readmit(args),
        Verb::Replace(Replace { old, new, patience, target }) => {
            let (old, (node, address)) = (name(old)?, named(new)?);
            may_be_replaced(target, &old, &node)?;
            change(target, patience, "add", &node, Some(&address))?;
            change(target, patience, "remove", &old, None)
        }
    }
}

fn name(text: &str) -> Result<String, Failure> {
    let parsed: Result<NodeId, _> = text.parse();
    parsed
        .map(|node| node.to_string())
        .map_err(|error| Failure::new(Exit::Usage, format!("{text:?} is no node's name: {error}")))
}

fn named(text: &str) -> Result<(String, String), Failure> {
    let parsed: Peers =
        text.parse().map_err(|error: primacy::ConfigError| Failure::new(Exit::Usage, error.to_string()))?;
    let mut all = parsed.iter().map(|(node, address)| (node.to_string(), address.to_owned()));
    match (all.next(), all.next()) {
        (Some(one), None) => Ok(one),
        (_, _) => Err(Failure::new(Exit::Usage, format!("{text:?} is not one voter, as in d=host:port"))),
    }
}

/// Checks the two names of a replacement. If neither node votes, a name is wrong: the new node would be added, and none
/// removed. If only the new node votes, the command was given before, and goes on.
fn may_be_replaced(target: &Target, old: &str, new: &str) -> Result<(), Failure> {
    not_over_a_store(target)?;
    if old == new {
        let message = format!("{old} cannot take its own place: name another node");
        return Err(Failure::new(Exit::Usage, message));
    }
    let mut nodes = target.nodes()?;
    nodes.sort_by_key(|node| node.node == new);
    let (node, answer) = first_answer(nodes, |_| NodeVerb::Voters)?;
    let Answer::Voters { term, number, voters } = &answer else { return Err(unexpected(&node, answer)) };
    // A new node that was not added yet knows only its own configuration, which lists it among the voters.
    let is_configured = node.node == new && (*term, *number) == (0, 0);
    if voters.contains_key(old) || (voters.contains_key(new) && !is_configured) {
        return Ok(());
    }
    let voters: Vec<&str> = voters.keys().map(String::as_str).collect();
    let message = format!(
        "{old} is none of the voters ({}), as {} knows them, so {new} cannot take its place; nothing has changed",
        voters.join(", "),
        node.node
    );
    Err(Failure::new(Exit::NotElected, message))
}

fn not_over_a_store(target: &Target) -> Result<(), Failure> {
    target.no_store("member", "an election over a store has no voters")
}

fn list(target: &Target) -> Result<Exit, Failure> {
    not_over_a_store(target)?;
    let node = target.the_node()?;
    let answer = node.ask(NodeVerb::Voters)?;
    let Answer::Voters { term, number, voters } = &answer else { return Err(unexpected(&node, answer)) };
    tell(target.json, &answer, || lines(*term, *number, voters))?;
    Ok(Exit::Success)
}

fn lines(term: u64, number: u64, voters: &BTreeMap<String, String>) -> String {
    let since = if (term, number) == (0, 0) {
        "as configured".to_owned()
    } else {
        format!("stated by record ({term}, {number})")
    };
    let voters: Vec<String> =
        voters.iter().map(|(node, address)| one_line(&format!("{node}={address}"))).collect();
    format!("{} voters, {since}\n{}", voters.len(), voters.join("\n"))
}

fn change(
    target: &Target,
    patience: &Patience,
    change: &'static str,
    node: &str,
    address: Option<&str>,
) -> Result<Exit, Failure> {
    not_over_a_store(target)?;
    let until = Instant::now() + patience.wait.unwrap_or(WAIT);
    let (mut told, mut leaderless_since, mut kept_by) = (None, None, None);
    let mut known = BTreeSet::new();
    loop {
        let (asked, answer) = ask(target, node, address, &known)?;
        known.insert(asked.node.clone());
        let Answer::Revising { progress } = &answer else { return Err(unexpected(&asked, answer)) };
        if told.as_ref() != Some(progress) {
            tell(target.json, &Step { node, change, progress }, || match (change, progress, &told) {
                // A misspelt name also ends here.
                ("remove", Progress::Done, None) => format!("{node} does not vote, nor did it before"),
                (_, _, _) => line(change, node, progress),
            })?;
            told = Some(progress.clone());
        }
        if *progress == Progress::Resigning
            && let Some(leader) = target.nodes()?.iter().find(|it| it.node == node)
        {
            tell_what_keeps(leader, &mut kept_by, target.json)?;
        }
        match progress {
            Progress::Done => return Ok(Exit::Success),
            Progress::NotLed
                if *leaderless_since.get_or_insert_with(Instant::now) + LEADERLESS_MAX < Instant::now() =>
            {
                let message = removed_by_its_own_list(&asked, change, node).unwrap_or_else(|| {
                    let election = &target.election;
                    format!(
                        "nobody leads, so nothing can be changed; see `primacy status --election {election}`"
                    )
                });
                return Err(Failure::new(Exit::NotElected, message));
            }
            Progress::NotLed => {}
            Progress::Committing | Progress::CatchingUp { .. } | Progress::Waiting | Progress::Resigning => {
                leaderless_since = None
            }
            Progress::Refused { why } => return Err(Failure::new(Exit::NotElected, why.clone())),
        }
        if Instant::now() >= until {
            let kept = kept_by.map(|it| format!("; it is still leading: {it}")).unwrap_or_default();
            let message =
                format!("it is not done yet: {}{kept}; {}", line(change, node, progress), rest(progress));
            return Err(Failure::new(Exit::NotElected, message));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Returns the outcome, as far as it is known, for a node that was asked to remove itself and no longer hears any peer:
/// its peers drop it as soon as they have the new list of voters, and it may not learn that a majority has that list.
fn removed_by_its_own_list(asked: &control::Node, change: &str, node: &str) -> Option<String> {
    if change != "remove" || asked.node != node {
        return None;
    }
    let Ok(Answer::Voters { term, number, voters }) = asked.ask(NodeVerb::Voters) else { return None };
    (!voters.contains_key(node)).then(|| {
        format!(
            "{node} is none of the voters by the record ({term}, {number}), and hears no leader any more, so it cannot know whether a \
             majority has that record; ask one of the voters: `primacy member list`"
        )
    })
}

/// Describes what happens to a change when the command stops waiting. The leader takes the next step only on request,
/// so that a node that is no longer wanted does not become a voter later.
fn rest(progress: &Progress) -> &'static str {
    match progress {
        Progress::Committing => "that goes on; give this command again to wait for it",
        Progress::CatchingUp { .. } => {
            "that goes on, and it does not vote before this command is given again"
        }
        Progress::Waiting | Progress::Resigning | Progress::NotLed => {
            "the change may still be made; give this command again to go on"
        }
        Progress::Done | Progress::Refused { .. } => "nothing is left to be done",
    }
}

/// Asks a node, which passes the request on to the leader. The node to be changed is asked last. The `known` nodes have
/// answered before.
fn ask(
    target: &Target,
    about: &str,
    address: Option<&str>,
    known: &BTreeSet<String>,
) -> Result<(control::Node, Answer), Failure> {
    let mut nodes = target.nodes()?;
    nodes.sort_by_key(|node| node.node == about);
    first_answer(nodes, |node| NodeVerb::Revise {
        node: about.to_owned(),
        address: address.map(ToOwned::to_owned),
        again: known.contains(&node.node),
    })
}

/// Returns the answer of the first node that answers.
fn first_answer(
    nodes: Vec<control::Node>,
    what: impl Fn(&control::Node) -> NodeVerb,
) -> Result<(control::Node, Answer), Failure> {
    let mut first = None;
    for node in nodes {
        match node.ask(what(&node)) {
            Ok(answer) => return Ok((node, answer)),
            Err(failure) => first = first.or(Some(failure)),
        }
    }
    Err(first.unwrap_or_else(|| Failure::new(Exit::Unavailable, "no node of that election runs here")))
}

fn line(change: &str, node: &str, progress: &Progress) -> String {
    match progress {
        Progress::Done if change == "add" => format!("{node} votes"),
        Progress::Done => format!("{node} does not vote"),
        Progress::Committing => "written, and not yet on a majority".to_owned(),
        Progress::CatchingUp { held: Some((term, number)), last } => {
            format!("{node} is being brought up to date: at ({term}, {number}) of ({}, {})", last.0, last.1)
        }
        Progress::CatchingUp { held: None, .. } => {
            format!("{node} has not been heard yet, or takes a snapshot; is it started?")
        }
        Progress::Waiting => "what was written before comes first".to_owned(),
        Progress::Resigning => {
            format!("{node} leads, and is removed when its work has ended and another node leads")
        }
        Progress::NotLed => "nobody leads at present".to_owned(),
        Progress::Refused { why } => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_new_node_is_is_said_by_its_last_record_and_the_leaders() {
        let said = |held| line("add", "d", &Progress::CatchingUp { held, last: (1, 9) });
        assert_eq!(said(None), "d has not been heard yet, or takes a snapshot; is it started?");
        assert_eq!(said(Some((1, 5))), "d is being brought up to date: at (1, 5) of (1, 9)");
    }
}
