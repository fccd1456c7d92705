//! Nodes that keep a map together, in one process, with real sockets and disks.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::task::{Context, Waker};
use std::time::Duration;

use primacy::kv::command::{
    Answer, Command, Keys, Operation, Outcome, Previous, Read, Replace, Version, Wanted, Write,
};
use primacy::kv::replication::replica::{Progress, Refusal, VoterChange};
use primacy::metadata::{Durability, Map, MapError};
use primacy::status::{PeersView, View};
use primacy::transport::PeerStatus;
use primacy::{Elector, LeaderSequence, NodeId, Peers};
use support::{Dir, peers};

async fn enter(name: &str, peers: &Peers, dir: &Path, durability: Durability) -> Elector {
    Elector::builder()
        .election("meta")
        .node(NodeId::new(name).unwrap())
        .state_dir(dir.join(name))
        .metadata(durability)
        .peers(peers.clone())
        .await
        .unwrap()
}

/// Three nodes, none of which campaigns, and their directory.
async fn enter_three(test: &str) -> (Vec<Elector>, Dir) {
    let names = ["a", "b", "c"];
    let (peers, dir, mut nodes) = (peers(&names), Dir::new(test), Vec::new());
    for name in names {
        nodes.push(enter(name, &peers, &dir, Durability::Fsync).await);
    }
    (nodes, dir)
}

fn put(key: &str, value: &str) -> Command {
    Command::Operate(Operation::Write(Write {
        key: key.as_bytes().into(),
        value: Replace::With(value.as_bytes().into()),
        session: Replace::With(None),
        previous: Previous::Unwanted,
    }))
}

fn all_keys() -> Operation {
    Operation::Read(Box::new(Read::of(Keys::From(b"".as_slice().into()))))
}

async fn get(map: &Map, key: &str) -> Vec<u8> {
    let read = Operation::Read(Box::new(Read::of(Keys::One(key.as_bytes().into()))));
    let Outcome { result: Ok(Answer::Found(found)), .. } = map.read(&read).await.unwrap() else {
        panic!("a read finds")
    };
    found.entries[0].value().to_vec()
}

#[tokio::test]
async fn what_one_node_writes_all_can_read() {
    let (nodes, _dir) = enter_three("metadata-read").await;
    let candidate = nodes[0].clone();
    let lead = tokio::spawn(async move { candidate.campaign().await.unwrap() });
    let maps: Vec<Map> = nodes.iter().map(|node| node.map().unwrap().clone()).collect();
    for (index, map) in maps.iter().enumerate() {
        map.write(put(&format!("key{index}"), "value")).await.unwrap().result.unwrap();
    }
    for map in &maps {
        for index in 0..3 {
            assert_eq!(get(map, &format!("key{index}")).await, b"value");
        }
    }
    let leadership = lead.await.unwrap();
    leadership.resign().await;
    for node in nodes {
        node.close().await;
    }
}

/// A node that campaigns until it is dropped.
struct RunningNode {
    elector: Elector,
    campaigns: tokio::task::JoinHandle<()>,
}

impl RunningNode {
    async fn enter(name: &str, peers: &Peers, dir: &Path, durability: Durability) -> Self {
        Self::begin(enter(name, peers, dir, durability).await)
    }

    /// Campaigns from now on.
    fn begin(elector: Elector) -> Self {
        let candidate = elector.clone();
        let campaigns = tokio::spawn(async move {
            while let Ok(leadership) = candidate.campaign().await {
                leadership.lost().await;
            }
        });
        Self { elector, campaigns }
    }

    fn map(&self) -> &Map {
        self.elector.map().unwrap()
    }

    /// Writes through this node, again and again until it is done.
    async fn writes(&self, key: &str) {
        until(key, async || {
            self.map().write(put(key, "value")).await.is_ok_and(|outcome| outcome.result.is_ok())
        })
        .await;
    }

    /// Asks for this of the voters until it is done.
    async fn revises(&self, change: VoterChange) {
        until(&format!("{change:?}"), async || {
            match self.map().revise(change.clone()).await {
                Ok(Progress::Done) => true,
                Ok(
                    Progress::Committing
                    | Progress::CatchingUp { .. }
                    | Progress::Waiting
                    | Progress::Resigning,
                ) => false,
                // The node to remove may lead; then the next one is asked.
                Ok(Progress::Refused(Refusal::NotLeading)) | Err(MapError::Timeout) => false,
                other => panic!("{change:?}: {other:?}"),
            }
        })
        .await;
    }

    async fn view(&self) -> Box<PeersView> {
        match self.elector.status().await.unwrap().view {
            View::Peers(view) => view,
            view @ (View::Store(_) | View::Sessions(_)) => panic!("{view:?}"),
        }
    }

    /// Waits until this node counts these voters, as a record states them, reaches all others of them, and has its log: without it, it
    /// would be as good as down, and the next removal would be one too many.
    async fn counts(&self, voters: &str) {
        until(voters, async || {
            let view = self.view().await;
            let me = self.elector.identity().node;
            let reached = view.peers.iter().filter(|peer| peer.outbound.is_some()).count();
            let others = view.voters.iter().filter(|voter| *voter != me).count();
            view.voters.to_string() == voters
                && view.metadata.is_some_and(|it| it.voters_number > LeaderSequence::NONE && !it.recovering)
                && view.peers.len() == others
                && reached == others
        })
        .await;
    }

    async fn close(self) {
        self.elector.close().await;
        self.campaigns.await.unwrap();
    }
}

/// Waits until this holds, with a bound.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.unwrap_or_else(|_| panic!("{what} did not come"));
}

async fn voters_come_and_go(durability: Durability, dir: &Path) {
    let all = peers(&["a", "b", "c", "d"]);
    let first: Peers = all.to_string().rsplit_once(',').unwrap().0.parse().unwrap();
    let node = |name: &str| NodeId::new(name).unwrap();
    let a = RunningNode::enter("a", &first, dir, durability).await;
    let b = RunningNode::enter("b", &first, dir, durability).await;
    let c = RunningNode::enter("c", &first, dir, durability).await;
    a.writes("before").await;

    // A node that no voter knows is refused, with advice. Then it is added, and has all that there is.
    let d = RunningNode::enter("d", &all, dir, durability).await;
    until("the refusal of d", async || {
        let view = d.view().await;
        let refused =
            |peer: &PeerStatus| peer.refusal.as_ref().is_some_and(|it| it.text.contains("member add d="));
        view.peers.iter().all(refused)
    })
    .await;
    let address = all.address(node("d")).unwrap();
    let far = VoterChange::Add { node: node("e"), address: "192.0.2.1:7".into() };
    assert!(matches!(b.map().revise(far).await, Err(MapError::Voter { .. })));
    b.revises(VoterChange::Add { node: node("d"), address: address.into() }).await;
    for one in [&a, &b, &c, &d] {
        one.counts("{a, b, c, d}").await;
    }
    assert_eq!(get(d.map(), "before").await, b"value");
    d.writes("of d").await;

    // A removed node learns of it; when it comes back it is refused, whatever its configuration.
    c.revises(VoterChange::Remove { node: node("b") }).await;
    for one in [&a, &c, &d] {
        one.counts("{a, c, d}").await;
    }
    let removed = async |one: &RunningNode| {
        let status = one.elector.status().await.unwrap();
        status.why_no_leader().iter().any(|why| why.contains("b is none of the voters {a, c, d}"))
    };
    until("that b knows it", async || removed(&b).await).await;
    b.close().await;
    let b = RunningNode::enter("b", &first, dir, durability).await;
    assert!(removed(&b).await);
    until("the refusal of b", async || {
        let refused =
            |peer: &PeerStatus| peer.refusal.as_ref().is_some_and(|it| it.text.contains("member add b="));
        b.view().await.peers.iter().all(refused)
    })
    .await;

    // A voter that comes back goes by its record, and not by its configuration; so it does without the nodes that are gone.
    c.close().await;
    let c = RunningNode::enter("c", &first, dir, durability).await;
    c.counts("{a, c, d}").await;
    a.close().await;
    c.writes("without a").await;
    assert_eq!(get(d.map(), "without a").await, b"value");
    for one in [b, c, d] {
        one.close().await;
    }
}

#[tokio::test]
async fn a_leader_that_is_removed_ends_its_work_and_another_one_leads() {
    let (all, dir) = (peers(&["a", "b", "c"]), Dir::new("metadata-leader"));
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(RunningNode::enter(name, &all, &dir, Durability::Fsync).await);
    }
    nodes[0].writes("before").await;
    let leader = nodes[0].elector.status().await.unwrap().leader.unwrap().identity.node;
    let position = nodes.iter().position(|one| one.elector.identity().node == leader).unwrap();
    let removed = nodes.remove(position);
    nodes[0].revises(VoterChange::Remove { node: leader }).await;
    let left: Vec<String> = nodes.iter().map(|one| one.elector.identity().node.to_string()).collect();
    let voters = format!("{{{}}}", left.join(", "));
    for one in &nodes {
        one.counts(&voters).await;
    }
    nodes[1].writes("after").await;
    assert_eq!(get(nodes[0].map(), "after").await, b"value");
    until("that it knows it", async || {
        let status = removed.elector.status().await.unwrap();
        status.lead.is_none() && status.why_no_leader().iter().any(|why| why.contains("none of the voters"))
    })
    .await;
    for one in nodes.into_iter().chain([removed]) {
        one.close().await;
    }
}

/// The others remember the requests of its clients in its earlier incarnations, and tell a new request from those.
#[tokio::test]
async fn a_node_that_has_lost_its_disk_gets_all_again_and_its_clients_are_served() {
    let (all, dir) = (peers(&["a", "b", "c"]), Dir::new("metadata-lost"));
    let a = RunningNode::enter("a", &all, &dir, Durability::Fsync).await;
    let b = RunningNode::enter("b", &all, &dir, Durability::Fsync).await;
    for life in 0..3 {
        let c = RunningNode::enter("c", &all, &dir, Durability::Fsync).await;
        c.writes(&format!("of life {life}")).await;
        c.close().await;
    }
    std::fs::remove_dir_all(dir.join("c")).unwrap();
    // The first of two disks is put away at once, and comes back when the second has been in use.
    let away = dir.join("away");
    RunningNode::enter("c", &all, &dir, Durability::Fsync).await.close().await;
    std::fs::rename(dir.join("c"), &away).unwrap();
    let readmitted = async || {
        let c = RunningNode::enter("c", &all, &dir, Durability::Fsync).await;
        let lost = NodeId::new("c").unwrap();
        // Before, it would be the disk that it had then which is readmitted.
        until("the refusals", async || c.view().await.peers.iter().all(|peer| peer.refusal.is_some())).await;
        for one in [&a, &b] {
            until("that it is readmitted", async || one.elector.readmit(lost).await.is_ok()).await;
        }
        until("its log", async || c.view().await.metadata.is_some_and(|it| !it.recovering)).await;
        c
    };
    let c = readmitted().await;
    c.writes("of the new disk").await;
    c.close().await;
    std::fs::remove_dir_all(dir.join("c")).unwrap();
    std::fs::rename(&away, dir.join("c")).unwrap();
    let c = readmitted().await;
    c.writes("of the disk from before").await;
    for key in ["of life 0", "of life 2", "of the new disk", "of the disk from before"] {
        assert_eq!(get(c.map(), key).await, b"value");
    }
    for one in [a, b, c] {
        one.close().await;
    }
}

/// It may have voted while that one did, so it waits for that node's knowledge. The list that it is sent does not name that node, and a
/// restart must not make it forget that node's address.
#[tokio::test]
async fn who_has_lost_its_disk_hears_who_votes_no_more_also_after_a_restart() {
    let (all, dir) = (peers(&["a", "b", "c", "d"]), Dir::new("metadata-lost-and-removed"));
    let first: Peers = all.to_string().rsplit_once(',').unwrap().0.parse().unwrap();
    let node = |name: &str| NodeId::new(name).unwrap();
    let enter =
        async |name: &str, peers: &Peers| RunningNode::enter(name, peers, &dir, Durability::Fsync).await;
    let (a, b, c) = (enter("a", &first).await, enter("b", &first).await, enter("c", &first).await);
    a.writes("before").await;
    let d = enter("d", &all).await;
    b.revises(VoterChange::Add { node: node("d"), address: all.address(node("d")).unwrap().into() }).await;
    a.counts("{a, b, c, d}").await;
    b.revises(VoterChange::Remove { node: node("c") }).await;
    for one in [&a, &b, &d] {
        one.counts("{a, b, d}").await;
    }
    a.close().await;
    std::fs::remove_dir_all(dir.join("a")).unwrap();

    let readmits = async |one: &RunningNode| {
        until("that it is readmitted", async || one.elector.readmit(node("a")).await.is_ok()).await;
    };
    let a = enter("a", &first).await;
    until("the refusals", async || a.view().await.peers.iter().all(|peer| peer.refusal.is_some())).await;
    readmits(&b).await;
    until("the list of now", async || a.view().await.voters.to_string() == "{a, b, d}").await;
    a.close().await;
    let a = enter("a", &first).await;
    readmits(&d).await;
    until("that it waits for c alone", async || {
        a.view().await.election.waits_for().into_iter().eq([node("c")])
    })
    .await;
    readmits(&c).await;
    until("its log", async || a.view().await.metadata.is_some_and(|it| !it.recovering)).await;
    assert_eq!(get(a.map(), "before").await, b"value");
    for one in [a, b, c, d] {
        one.close().await;
    }
}

/// Records that were only in their memories are lost when a majority restarts at once. They know that, and stand still until an operator
/// confirms it. The third node's records stay.
#[tokio::test]
async fn a_majority_that_has_lost_its_logs_goes_on_only_when_it_is_told_to() {
    let (all, dir) = (peers(&["a", "b", "c"]), Dir::new("metadata-loss"));
    let enter = async |name: &str| RunningNode::enter(name, &all, &dir, Durability::Memory).await;
    let (a, b, c) = (enter("a").await, enter("b").await, enter("c").await);
    a.writes("before").await;
    until("that c has it", async || c.map().state().version() > Version::FIRST).await;
    a.close().await;
    b.close().await;
    let (a, b) = (enter("a").await, enter("b").await);
    for one in [&a, &b] {
        until("that it knows it", async || has_lost_its_log(one).await).await;
    }
    // A node is elected, and reports what it waits for, unless it has led before: then it leads on. No other one is named as the leader.
    until("what it waits for", async || {
        let (mut named, mut leads, mut says) = (Vec::new(), None, false);
        for one in [&a, &b, &c] {
            let status = one.elector.status().await.unwrap();
            leads = leads.or(status.lead.map(|_| status.identity));
            named.extend(status.leader.map(|leader| leader.identity));
            let why = status.why_no_leader().join("; ");
            says |= why.contains("was elected in term") && why.contains("not told by");
        }
        named.iter().all(|&leader| leads == Some(leader)) && (leads.is_some() || says)
    })
    .await;
    assert_eq!(c.map().write(put("lost", "value")).await, Err(MapError::Timeout));
    assert!(!c.map().accept_loss().await.unwrap(), "c has lost nothing");
    assert!(b.map().accept_loss().await.unwrap());
    a.writes("after").await;
    for key in ["before", "after"] {
        assert_eq!(get(b.map(), key).await, b"value");
    }
    until("that a has its log from the others", async || {
        a.view().await.metadata.is_some_and(|it| !it.recovering)
    })
    .await;
    for one in [a, b, c] {
        one.close().await;
    }
}

/// Another node may have been elected, and wait for the log as well; then it is not asked why there is no leader.
async fn has_lost_its_log(one: &RunningNode) -> bool {
    one.view().await.metadata.is_some_and(|it| it.recovering)
}

/// An election that kept nothing goes on with a map. What was in the nodes' memories is known to be lost when they are to keep it
/// on their disks.
#[tokio::test]
async fn an_election_may_begin_to_keep_a_map_and_does_not_take_an_empty_one_for_whole() {
    let (all, dir) = (peers(&["a"]), Dir::new("metadata-begins"));
    let kept_nothing = Elector::builder()
        .election("meta")
        .node(NodeId::new("a").unwrap())
        .state_dir(dir.join("a"))
        .peers(all.clone())
        .await
        .unwrap();
    kept_nothing.campaign().await.unwrap().resign().await;
    kept_nothing.close().await;
    let a = RunningNode::enter("a", &all, &dir, Durability::Memory).await;
    a.writes("in memory").await;
    a.close().await;
    let a = RunningNode::enter("a", &all, &dir, Durability::Fsync).await;
    until("that it knows it", async || has_lost_its_log(&a).await).await;
    a.close().await;
    // Nor is the empty log that was made then.
    let a = RunningNode::enter("a", &all, &dir, Durability::Fsync).await;
    until("that it knows it", async || has_lost_its_log(&a).await).await;
    assert!(a.map().accept_loss().await.unwrap());
    a.writes("on the disk").await;
    a.close().await;
    let a = RunningNode::enter("a", &all, &dir, Durability::Fsync).await;
    until("the lead", async || a.map().read(&all_keys()).await.is_ok()).await;
    assert_eq!(get(a.map(), "on the disk").await, b"value");
    a.close().await;
}

#[tokio::test]
async fn voters_come_and_go_on_disks() {
    voters_come_and_go(Durability::Fsync, &Dir::new("metadata-fsync")).await;
}

#[tokio::test]
async fn voters_come_and_go_in_memory() {
    voters_come_and_go(Durability::Memory, &Dir::new("metadata-memory")).await;
}

/// While there is no leader, writes wait, and no more than there is room for; those are all done when there is one, though their callers
/// have stopped waiting.
async fn writes_wait_for_a_leader(test: &str, value: &str, most: usize) {
    let (nodes, _dir) = enter_three(&format!("metadata-{test}")).await;
    let map = nodes[0].map().unwrap();
    let mut waiting = Vec::new();
    for index in 0..most {
        let mut write = Box::pin(map.write(put(&format!("key{index:05}"), value)));
        let asked = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(asked.is_pending(), "write {index}: {asked:?}");
        waiting.push(write);
    }
    drop(waiting); // That takes nothing back.
    until("that there is no room", async || {
        let more = tokio::time::timeout(Duration::from_secs(1), map.write(put("more", value))).await;
        matches!(more, Ok(Err(MapError::Busy)))
    })
    .await;

    // Not the node that was asked: they come to it before it is active.
    let leader = RunningNode::begin(nodes[1].clone());
    let keys = Keys::Between(b"key".as_slice().into(), b"kez".as_slice().into());
    let read = Operation::Read(Box::new(Read { wanted: Wanted::Count, ..Read::of(keys) }));
    until("that all are done", async || match nodes[2].map().unwrap().read(&read).await {
        Ok(Outcome { result: Ok(Answer::Found(found)), .. }) => found.count == most as u64,
        Ok(other) => panic!("{other:?}"),
        Err(_) => false,
    })
    .await;
    until("that there is room again", async || {
        map.write(put("more", value)).await.is_ok_and(|outcome| outcome.result.is_ok())
    })
    .await;
    leader.close().await;
    for node in nodes {
        node.close().await;
    }
}

/// As many as `REQUESTS_MAX`.
#[tokio::test]
async fn writes_that_wait_for_a_leader_are_limited_in_number_and_all_are_done() {
    writes_wait_for_a_leader("number", "value", 8_192).await;
}

/// As many as `OPEN_BYTES_MAX`, which is more than the leader keeps of them until it is active: `EARLY_MAX`.
#[tokio::test]
async fn writes_that_wait_for_a_leader_are_limited_in_bytes_and_all_are_done() {
    writes_wait_for_a_leader("bytes", &"v".repeat(1 << 20), 64).await;
}
