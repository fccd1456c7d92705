//! Reasons why there is no leader.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::election::quorum::{self, Refusal, TERM_MAX};
use primacy_core::election::{lease, seniority, session};
use primacy_core::{Duration, Leader, NodeId, majority};

use super::{ConfirmationView, ElectionView, PeersView, Status, View};
use crate::connections::PeerStatus;

/// The reason while the record is in probation: its holder does not lead yet.
pub const NEW_RECORD: &str =
    "the record is new, and its holder, if it lives, waits until the one before it would have stopped";

/// One sentence for each unmet condition.
pub(super) fn no_leader(status: &Status) -> Vec<String> {
    if status.leader.is_some() {
        return Vec::new();
    }
    let mut why = own_part(status);
    why.extend(status.store_troubles.iter().map(|trouble| trouble.text(status.at)));
    match &status.view {
        View::Peers(view) => why.extend(among_peers(status, view)),
        View::Store(view) => why.extend(over_store(status, view)),
        View::Sessions(view) => why.extend(over_sessions(status, view)),
    }
    if why.is_empty() {
        why.push("an election is under way".to_owned());
    }
    why
}

/// Reasons for which this node does not campaign.
fn own_part(status: &Status) -> Vec<String> {
    let me = status.identity.node;
    let mut why = Vec::new();
    if status.cordoned {
        why.push(format!("{me} is cordoned, so it does not campaign; `primacy uncordon` lets it"));
    }
    if !status.healthy {
        why.push(format!("the health check of {me} fails, so it does not campaign"));
    }
    if let Some(lead) = status.lead {
        why.push(format!("{me} led in term {} and is ending its work", lead.term));
    } else if !status.campaigning && !matches!(&status.view, View::Peers(view) if view.witness) {
        why.push(match &status.not_campaigning {
            Some(why) => format!("{me} does not campaign: {why}"),
            None => format!("{me} does not want to lead"),
        });
    }
    why
}

fn among_peers(status: &Status, view: &PeersView) -> Vec<String> {
    let me = status.identity.node;
    let mut why = Vec::new();
    if let Some(hard) = view.election.hard().filter(|hard| hard.term >= TERM_MAX) {
        why.push(format!(
            "the term is {}, and no node takes a higher one: a peer was faulty or an impostor; begin a new election under \
             another name, and its fences anew",
            hard.term
        ));
    }
    if view.witness {
        why.push(format!("{me} is a witness: it votes and does not campaign"));
    }
    why.extend(view.election.recovering().map(|heard| waits_to_be_readmitted(me, view, heard)));
    if let Some(metadata) = view.metadata.filter(|_| !view.voters.contains(me)) {
        why.push(format!(
            "{me} is none of the voters {} of the record {}, so it does not campaign; `primacy member add {me}=HOST:PORT` on \
             one of them makes it one",
            view.voters, metadata.voters_number
        ));
    }
    if view.metadata.is_some_and(|metadata| metadata.recovering) && view.election.recovering().is_none() {
        why.push(lost_log(me, view.voters.iter().eq([me])));
    }
    if let Some(elected) = view.metadata.and_then(|metadata| metadata.elected) {
        why.push(elected_only(me, elected, &view.awaited));
    }
    if view.kind.needs_majority() {
        why.extend(missing_votes(status, view));
    }
    why.extend(view.election.quorum().into_iter().flat_map(|quorum| in_a_quorum(status, quorum)));
    match &view.election {
        ElectionView::Ranked(ranked) => {
            why.extend(ranked.hearsay.iter().map(|(node, leader)| {
                format!("{node} hears {} lead, and {me} does not", leader.identity.node)
            }))
        }
        ElectionView::Confirmed { nominee, nomination, by } => {
            why.extend(
                nomination
                    .seniority()
                    .into_iter()
                    .flat_map(|seniority| in_a_cluster(status, view, seniority)),
            );
            match nominee {
                None => why.push("nobody is nominated".to_owned()),
                Some(nominee) => why.push(format!("{nominee} is nominated, and not confirmed yet")),
            }
            if let ConfirmationView::Store(record) = &**by {
                why.extend(over_store(status, record));
            }
        }
        ElectionView::Seniority(seniority) => why.extend(in_a_cluster(status, view, seniority)),
        ElectionView::Quorum(_) | ElectionView::Advisory { .. } => {}
    }
    why
}

/// The condition for which a node with a lost disk waits.
fn waits_to_be_readmitted(me: NodeId, view: &PeersView, heard: &BTreeSet<NodeId>) -> String {
    let (heard, waits_for) = (names(heard.iter().copied()), view.election.waits_for());
    let have = if waits_for.len() == 1 { "has" } else { "have" };
    let missing = match waits_for.is_empty() {
        true => String::new(),
        false => format!("; {} {have} not", names(waits_for.into_iter())),
    };
    let log = if view.metadata.is_some() { ", and its log counts," } else { "" };
    format!(
        "{me} has lost its disk: others know it with another one; it votes{log} when all others have readmitted it and told it \
         their term, and so far that is {heard}{missing}: `primacy member readmit {me}` on each of the others"
    )
}

/// The condition for which a node with a lost log waits.
fn lost_log(me: NodeId, votes_alone: bool) -> String {
    if votes_alone {
        return format!(
            "{me} has lost its log, and no other node votes that could have it; `primacy log repair --accept-loss` has it go on with what \
             it has of it, and what only the lost log had is gone"
        );
    }
    format!(
        "{me} has lost its log and asks the others for it; until a leader among a majority of them has told it what it may have held, \
         it votes and holds nothing"
    )
}

/// The condition for which an elected leader waits before it leads.
fn elected_only(me: NodeId, elected: Leader, awaited: &BTreeSet<NodeId>) -> String {
    let Leader { identity, term } = elected;
    if identity.node != me {
        return format!(
            "{} was elected in term {term}, and {me} has no record of that term from it, so it may not lead yet; `primacy status` there \
             says what it waits for",
            identity.node
        );
    }
    if awaited.is_empty() {
        return format!(
            "{me} was elected in term {term}, and leads when it has all records that were committed before"
        );
    }
    format!(
        "{me} was elected in term {term}, and leads when a majority of the voters has told it how far their logs are; not told by {}: \
         a voter that has lost its log cannot tell it, and `primacy status` there says so",
        names(awaited.iter().copied())
    )
}

/// The reasons that keep this node out of a cluster, or the cluster without a leader.
fn in_a_cluster(status: &Status, view: &PeersView, seniority: &seniority::Status) -> Vec<String> {
    let (me, connected) = (status.identity.node, &view.connected);
    let mut why = Vec::new();
    if seniority.view.is_none() {
        let stopped = seniority.stopped.as_ref().map(|stopped| format!(": {stopped}")).unwrap_or_default();
        let attempts = seniority.attempts;
        why.push(format!("{me} belongs to no cluster{stopped}; it has asked to join {attempts} times"));
        let founder = seniority.founder.filter(|founder| *founder != me && !connected.contains(founder));
        why.extend(founder.map(|founder| {
            format!(
                "if there is no cluster yet, {founder} founds it, the first of the seeds, and it is not connected: start it, or name \
                 another one first with --seeds, on all nodes"
            )
        }));
        if seniority.founder == Some(me) && !seniority.awaited.is_empty() {
            let awaited = names(seniority.awaited.iter().copied());
            let otherwise = match seniority.has_left {
                true => format!("; for one that is gone for good: `primacy member remove --dead` on {me}"),
                false => "; those that do not answer twice are not waited for".to_owned(),
            };
            why.push(format!(
                "{me}, the first of the seeds, founds a cluster when each of {awaited} has answered that it belongs to none{otherwise}"
            ));
        }
        let silent = silent_peers(status, view);
        let is_missing = |peer: &&PeerStatus| {
            let is_there = connected.contains(&peer.node) && !silent.contains_key(&peer.node);
            seniority.awaited.contains(&peer.node) && !is_there
        };
        why.extend(view.peers.iter().filter(is_missing).map(|peer| missing(peer, &silent)));
    }
    why.extend(seniority.refusal.map(|refusal| format!("it was refused: {refusal}")));
    if !seniority.lost.is_empty() {
        why.push(format!("it has lost {}", names(seniority.lost.iter().copied())));
    }
    why
}

/// The obstacles for this node in a quorum's own rules.
fn in_a_quorum(status: &Status, quorum: &quorum::Status) -> Vec<String> {
    let me = status.identity.node;
    let mut why = Vec::new();
    if status.at < quorum.silent_until {
        let left = quorum.silent_until.since(status.at);
        why.push(format!(
            "{me} has just started and may have promised to support another; it is silent for {left} more"
        ));
    }
    for (by, refusal) in &quorum.refusals {
        why.push(format!("{by} would not vote for {me}: {}", refusal_text(*refusal)));
    }
    if let Some((to, until)) = quorum.promise.filter(|&(to, until)| status.at < until && to.node != me) {
        let left = until.since(status.at);
        why.push(format!(
            "{me} has promised to support {} for {left} more, and votes for nobody else until then",
            to.node
        ));
    }
    if let Some(at) = quorum.campaign_at.filter(|&at| status.at < at) {
        why.push(format!("{me} stands in {}", at.since(status.at)));
    }
    why
}

/// The voters that are missing, and why; and whether a majority remains.
fn missing_votes(status: &Status, view: &PeersView) -> Vec<String> {
    let silent = silent_peers(status, view);
    let there = view.connected.iter().copied().chain([status.identity.node]);
    let there: BTreeSet<NodeId> =
        there.filter(|node| view.voters.contains(*node) && !silent.contains_key(node)).collect();
    let voters = view.voters.iter().count();
    let needed = majority::needed(voters);
    let mut why = Vec::new();
    if there.len() < needed {
        let there = names(there.iter().copied());
        why.push(format!("{needed} of {voters} votes are needed, and only {there} can be heard"));
    }
    let is_missing = |peer: &&PeerStatus| view.voters.contains(peer.node) && !there.contains(&peer.node);
    why.extend(view.peers.iter().filter(is_missing).map(|peer| missing(peer, &silent)));
    why
}

/// The connected peers that do not answer this node's requests, and for how long.
fn silent_peers(status: &Status, view: &PeersView) -> BTreeMap<NodeId, Duration> {
    // A node that is asked for its vote, or to let this node into a cluster, answers at once. A node that does not campaign asks
    // nothing, so silence proves nothing.
    let asks = status.campaigning && !status.cordoned && status.healthy && !view.witness;
    let patience = Duration::from(status.timers.lease.saturating_mul(2));
    let silent = |peer: &PeerStatus| {
        let silent = peer.heard_at.map(|at| status.at.since(at)).filter(|&silent| silent > patience);
        silent.filter(|_| asks && view.connected.contains(&peer.node))
    };
    view.peers.iter().filter_map(|peer| Some((peer.node, silent(peer)?))).collect()
}

/// The reason why a peer is missing.
fn missing(peer: &PeerStatus, silent: &BTreeMap<NodeId, Duration>) -> String {
    let reason = match (silent.get(&peer.node), &peer.refusal, &peer.trouble) {
        (Some(silent), ..) => format!("it is connected, and has said nothing for {silent}"),
        (None, Some(refusal), _) => refusal.text.clone(),
        (None, None, Some(trouble)) => trouble.clone(),
        (None, None, None) => "it has not connected to this node".to_owned(),
    };
    format!("{} at {} is missing: {reason}", peer.node, peer.address)
}

fn refusal_text(refusal: Refusal) -> String {
    match refusal {
        Refusal::Term => "its term is not lower".to_owned(),
        Refusal::HearsLeader(leader) => format!("it hears the leader {leader}"),
        Refusal::Promised { left } => format!("it had promised to support another for {left} more"),
        Refusal::JustStarted { left } => format!("it had just started and was silent for {left} more"),
        Refusal::DiskLost => "it has lost its disk, and has not been readmitted by all others".to_owned(),
    }
}

fn over_store(status: &Status, view: &lease::Status) -> Vec<String> {
    let mut why = Vec::new();
    let is_read = !status.store_troubles.iter().any(|trouble| trouble.operation == "read");
    match &view.record {
        None if status.store_troubles.is_empty() => why.push("the store has shown no record yet".to_owned()),
        None => {} // Why not is said already.
        Some(record) if record.holder.is_none() && !is_read => {
            why.push("when it was read last, the record was released".to_owned());
        }
        Some(record) if record.holder.is_none() => {
            why.push("the record is released; whoever stands may take it".to_owned())
        }
        Some(record) if record.young && is_read => why.push(NEW_RECORD.to_owned()),
        Some(record) => {
            let holder =
                record.holder.as_ref().map_or_else(String::new, |holder| holder.identity.node.to_string());
            let unchanged = view.unchanged_since.map(|since| status.at.since(since));
            why.push(held(&holder, unchanged, record.duration, is_read));
        }
    }
    why
}

fn over_sessions(status: &Status, view: &session::Status) -> Vec<String> {
    let mut why = Vec::new();
    if let Some(given) = view.too_short {
        let needed = Duration::from(status.timers.session_min());
        why.push(format!(
            "the store ends sessions after {given}, and the work needs {needed} to drain in one; shorten the drain, or let the \
             store give longer sessions"
        ));
    }
    match (&view.session, &view.first) {
        (_, Some((entry, at))) => why.push(format!(
            "{} was the first in the queue, and the store has not shown that for {}",
            entry.holder.identity.node,
            status.at.since(*at)
        )),
        (Some(_), None) => {
            why.push("the store has not said yet where this node stands in the queue".to_owned())
        }
        (None, None) if status.campaigning => {
            why.push("the store has given no session yet".to_owned());
        }
        (None, None) => why.push("no node campaigns, as far as the store has shown".to_owned()),
    }
    why
}

/// Describes the holder of the record, as last read if the record cannot be read now.
fn held(holder: &str, unchanged: Option<Duration>, lease: Duration, is_read: bool) -> String {
    if !is_read {
        let ago = unchanged.map_or_else(String::new, |ago| format!(", first seen so {ago} ago"));
        return format!("when it was read last, {holder} held the record{ago}");
    }
    let silent = unchanged.map_or_else(String::new, |silent| format!(" for {silent}"));
    format!("{holder} holds the record and has not renewed it{silent}; others may take it after {lease}")
}

fn names(nodes: impl Iterator<Item = NodeId>) -> String {
    let names: Vec<String> = nodes.map(|node| node.to_string()).collect();
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

#[cfg(feature = "peers")]
#[cfg(test)]
mod tests {
    use primacy_core::Term;
    use primacy_core::election::quorum::HardState;

    use super::*;
    use crate::disk::StateFile;
    use crate::{Elector, Peers};

    async fn why_with(term: Term, name: &str) -> String {
        let dir = std::env::temp_dir().join(format!("primacy-why-{name}-{}", std::process::id()));
        let (mut state, stored) = StateFile::open(&dir, "test", "a".parse().unwrap()).unwrap();
        state.persist(&HardState { term, ..stored.hard_state }).unwrap();
        drop(state);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let peers: Peers = format!("a={free},b=127.0.0.1:1,c=127.0.0.1:2").parse().unwrap();
        let builder = Elector::builder().election("test").cluster("why").node("a".parse().unwrap());
        let elector = builder.state_dir(&dir).peers(peers).await.unwrap();
        let why = elector.status().await.unwrap().why_no_leader().join("; ");
        elector.close().await;
        std::fs::remove_dir_all(&dir).unwrap();
        why
    }

    #[test]
    fn that_the_terms_have_come_to_their_end_is_said() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let why = why_with(TERM_MAX, "last").await;
            assert!(why.contains("begin a new election under another name"), "{why}");
            let why = why_with(Term(7), "early").await;
            assert!(!why.contains("begin a new election") && why.contains("votes are needed"), "{why}");
        });
    }

    #[test]
    fn how_long_a_holder_has_been_silent_is_said_where_it_is_known() {
        let seconds = Duration::from_secs;
        let text = held("a", Some(seconds(3)), seconds(15), true);
        assert_eq!(text, "a holds the record and has not renewed it for 3s; others may take it after 15s");
        assert!(held("a", None, seconds(15), true).contains("has not renewed it; others"));
    }
}
