//! The library as its users meet it: over a store, and among peers on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::time::Duration;

use primacy::{CampaignError, Change, Elector, NodeId, Peers, Reason, Safety};
use support::{Dir, peers, soon};

async fn over_memory(name: &str, lease: Duration) -> Elector {
    let builder = Elector::builder().election("test").lease(lease);
    builder.connect(&format!("memory:{name}")).await.unwrap()
}

#[tokio::test]
async fn over_a_store_one_leads_and_resigns_to_the_other_with_a_higher_token() {
    let lease = Duration::from_secs(2);
    let (one, two) = (over_memory("resign", lease).await, over_memory("resign", lease).await);
    let first = soon("the first election", one.campaign()).await.unwrap();
    first.check().unwrap();
    let token = first.token();

    let waiting = tokio::spawn(async move { two.campaign().await });
    let guard = first.guard().unwrap();
    let resigned = tokio::spawn(first.resign());
    // While the work has not ended, no other node may begin.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(guard.check().is_err());
    assert!(!waiting.is_finished());
    drop(guard);
    assert_eq!(soon("the release", resigned).await.unwrap(), Reason::Resigned);
    let second = soon("the second election", waiting).await.unwrap().unwrap();
    assert!(second.token() > token);
}

#[tokio::test]
async fn a_campaign_that_is_dropped_leaves_nothing_behind() {
    let lease = Duration::from_secs(2);
    let (one, two) = (over_memory("dropped", lease).await, over_memory("dropped", lease).await);
    let leader = soon("the election", one.campaign()).await.unwrap();
    let campaign = tokio::time::timeout(Duration::from_millis(50), two.campaign()).await;
    assert!(campaign.is_err(), "another leads");
    leader.resign().await;
    // There is no candidate now; so the lead is free, and stays so until there is one.
    let mut observer = two.observe();
    while observer.leader().is_some() {
        soon("the release to be seen", observer.changed()).await;
    }
    let again = soon("the election of the first one again", one.campaign()).await.unwrap();
    again.check().unwrap();
}

#[tokio::test]
async fn one_elector_stands_once_at_a_time() {
    let one = over_memory("once", Duration::from_secs(2)).await;
    let leader = soon("the election", one.campaign()).await.unwrap();
    assert_eq!(one.campaign().await.unwrap_err(), CampaignError::AlreadyLeading);
    leader.resign().await;
    one.clone().close().await;
    assert_eq!(one.campaign().await.unwrap_err(), CampaignError::Closed);
}

/// The lease is kept by a thread of its own: a runtime that is blocked for longer than the lease loses nothing.
#[tokio::test]
async fn a_blocked_runtime_loses_nothing() {
    let lease = Duration::from_millis(600);
    let one = over_memory("blocked", lease).await;
    let leader = soon("the election", one.campaign()).await.unwrap();
    std::thread::sleep(lease * 3);
    leader.check().unwrap();
    assert_eq!(leader.renewed(leader.valid_until()).await.map(|_| ()), Some(()));
}

#[tokio::test]
async fn observers_see_every_change_in_order() {
    let one = over_memory("observed", Duration::from_secs(2)).await;
    let mut observer = over_memory("observed", Duration::from_secs(2)).await.observe_forever();
    for _ in 0..3 {
        let leader = soon("an election", one.campaign()).await.unwrap();
        let seen = soon("the leader to be seen", observer.next_leader()).await;
        assert_eq!(seen, leader.leader());
        leader.resign().await;
    }
}

/// An observer that keeps its elector.
struct Watch {
    _elector: Elector,
    observer: primacy::Observer,
}

trait ObserveForever {
    fn observe_forever(self) -> Watch;
}

impl ObserveForever for Elector {
    fn observe_forever(self) -> Watch {
        let observer = self.observe();
        Watch { _elector: self, observer }
    }
}

impl Watch {
    async fn next_leader(&mut self) -> primacy::Leader {
        loop {
            match self.observer.changed().await.expect("the elector lives") {
                Change::Leader(Some(leader)) => return leader,
                Change::Leader(None) => {}
                change @ (Change::Violation(_) | Change::Missed(_)) => panic!("{change:?}"),
            }
        }
    }
}

async fn peer(node: &str, peers: &Peers, dir: &Path, safety: Safety) -> Elector {
    let builder = Elector::builder().election("test").node(NodeId::new(node).unwrap()).safety(safety);
    builder.lease(Duration::from_millis(600)).state_dir(dir.join(node)).peers(peers.clone()).await.unwrap()
}

/// Once `close` has returned, nothing of the node is left: neither its address nor the lock of its state.
#[tokio::test]
async fn a_node_that_was_closed_enters_again_at_once() {
    let (dir, peers) = (Dir::new("again"), peers(&["a", "b", "c"]));
    for _ in 0..20 {
        soon("the end", peer("a", &peers, &dir, Safety::Lease).await.close()).await;
    }
}

async fn three_nodes_elect_hand_over_and_survive(safety: Safety) {
    let dir = Dir::new(&format!("three-{safety:?}"));
    let peers = peers(&["a", "b", "c"]);
    let mut electors = Vec::new();
    for node in ["a", "b", "c"] {
        electors.push(peer(node, &peers, &dir, safety).await);
    }
    let (elected, mut leaders) = tokio::sync::mpsc::unbounded_channel();
    let campaign = |elector: &Elector| {
        let (elector, elected) = (elector.clone(), elected.clone());
        tokio::spawn(async move { elected.send(elector.campaign().await.unwrap()) });
    };
    electors.iter().for_each(campaign);
    let first = soon("the first election", leaders.recv()).await.unwrap();
    first.check().unwrap();
    let token = first.token();
    let former = first.leader().identity;
    first.resign().await;
    electors.iter().filter(|elector| elector.identity() == former).for_each(campaign);
    let second = soon("the election after a resignation", leaders.recv()).await.unwrap();
    assert!(second.token() > token);

    let token = second.token();
    let holder = second.leader().identity.node;
    let target = electors.iter().map(|elector| elector.identity().node).find(|&node| node != holder).unwrap();
    assert_eq!(second.transfer(target).await, Reason::Transferred(target));
    electors.iter().filter(|elector| elector.identity().node == holder).for_each(campaign);
    let third = soon("the election after a transfer", leaders.recv()).await.unwrap();
    assert_eq!(third.leader().identity.node, target);
    assert!(third.token() > token);

    // The leader's process ends without a word to the application.
    let token = third.token();
    let position = electors.iter().position(|elector| elector.identity().node == target).unwrap();
    let gone = electors.remove(position);
    drop(third);
    gone.close().await;
    let fourth = soon("the election among the two that are left", leaders.recv()).await.unwrap();
    assert!(fourth.token() > token);
}

#[tokio::test]
async fn among_peers_with_leases() {
    three_nodes_elect_hand_over_and_survive(Safety::Lease).await;
}

#[tokio::test]
async fn among_peers_with_tokens_only() {
    three_nodes_elect_hand_over_and_survive(Safety::Fenced).await;
}

#[tokio::test]
async fn a_leader_whose_work_makes_no_progress_gives_up_the_lead_in_order() {
    let lease = Duration::from_secs(60);
    let one = over_memory("progress", lease).await;
    let leader = soon("the election", one.campaign()).await.unwrap();
    // Kept, and never called; a dropped promise does not bind.
    drop(leader.progress(Duration::from_millis(1)));
    let patient = leader.progress(lease);
    let progress = leader.progress(Duration::from_millis(20));
    let guard = leader.guard().unwrap();
    let since = std::time::Instant::now();
    assert_eq!(soon("the end", leader.ended()).await, Reason::Unhealthy);
    assert!(since.elapsed() >= Duration::from_millis(20) && guard.check().is_err());
    drop(guard);
    assert_eq!(soon("the release", leader.lost()).await, Reason::Unhealthy);
    drop((patient, progress));
    soon("the next election", one.campaign()).await.unwrap().check().unwrap();
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn figures_say_who_leads_and_how_leaderships_ended() {
    use primacy::metrics::{self, prometheus_client::registry::Registry};

    let one = over_memory("figures", Duration::from_secs(60)).await;
    let mut registry = Registry::default();
    metrics::register(&mut registry, [&one]);
    let leader = soon("the election", one.campaign()).await.unwrap();
    let text = metrics::text(&registry);
    let labels = format!("election=\"test\",node=\"{}\"", one.identity().node);
    for line in [
        format!("primacy_role{{{labels},role=\"leader\"}} 1\n"),
        format!("primacy_token{{{labels}}} {}\n", leader.token()),
        format!("primacy_term{{{labels}}} {}\n", leader.term()),
        format!("primacy_elections_won_total{{{labels}}} 1\n"),
        format!("primacy_leaderships_ended_total{{{labels},reason=\"resigned\"}} 0\n"),
        "# UNIT primacy_valid_for_seconds seconds\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line:?} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    leader.resign().await;
    let text = metrics::text(&registry);
    assert!(
        text.contains(&format!("primacy_leaderships_ended_total{{{labels},reason=\"resigned\"}} 1\n")),
        "{text}"
    );
    assert!(text.contains(&format!("primacy_token{{{labels}}} 0\n")), "{text}");
}
