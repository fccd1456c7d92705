//! Nodes that share partitions out among them, in one process, with real sockets and disks.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use primacy::kv::command::Command;
use primacy::kv::partitions::{Command as About, GroupName, Plan};
use primacy::metadata::Durability;
use primacy::partitions::{End, Partitions, PartitionsError, Primary};
use primacy::{Elector, NodeId, Peers};
use support::{Dir, PATIENCE, peers};

/// Long enough that no session ends on a busy machine unless it shall.
const TIME_TO_LIVE: Duration = Duration::from_secs(20);

fn name(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

/// Nodes that all campaign, and their state.
struct Nodes {
    electors: Vec<Elector>,
    /// Until the last of them has ended.
    _dir: Dir,
}

impl Nodes {
    async fn start(test: &str, names: &[&str]) -> Self {
        let (dir, peers) = (Dir::new(&format!("partitions-{test}")), peers(names));
        let mut electors = Vec::new();
        for node in names {
            let elector = enter(node, &peers, &dir).await;
            let candidate = elector.clone();
            tokio::spawn(async move {
                while let Ok(leadership) = candidate.campaign().await {
                    leadership.lost().await;
                }
            });
            electors.push(elector);
        }
        Self { electors, _dir: dir }
    }

    async fn join(&self, index: usize) -> Partitions {
        within(self.electors[index].partitions().time_to_live(TIME_TO_LIVE).join()).await.unwrap()
    }

    async fn tell(&self, about: About) {
        let map = self.electors[0].map().unwrap();
        within(map.write(Command::Partitions(about))).await.unwrap().result.unwrap();
    }

    async fn end(self) {
        for elector in self.electors {
            elector.close().await;
        }
    }
}

async fn enter(node: &str, peers: &Peers, dir: &Path) -> Elector {
    let builder = Elector::builder().election("parts").node(name(node)).state_dir(dir.join(node));
    builder.metadata(Durability::Fsync).peers(peers.clone()).await.unwrap()
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// So many partitions, by their indices.
async fn take(partitions: &mut Partitions, count: usize) -> BTreeMap<u32, Primary> {
    let mut taken = BTreeMap::new();
    for _ in 0..count {
        let primary = within(partitions.next()).await.unwrap();
        assert_eq!(primary.check(), Ok(()));
        taken.insert(primary.index(), primary);
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_handed_over_in_order() {
    let nodes = Nodes::start("order", &["a", "b", "c"]).await;
    let mut a = nodes.join(0).await;
    nodes.tell(About::Create { group: group(), count: 6 }).await;
    let mut of_a = take(&mut a, 6).await;

    // Another node joins. Its future partitions are taken back, and until they are dropped, it has none.
    let mut b = nodes.join(1).await;
    let mut moved = Vec::new();
    for index in of_a.keys().copied().collect::<Vec<u32>>() {
        let ended = tokio::time::timeout(Duration::from_millis(500), of_a[&index].ended()).await;
        if ended.is_ok() {
            assert_eq!(ended, Ok(End::TakenBack));
            assert!(of_a[&index].check().is_err());
            moved.push(index);
        }
    }
    assert_eq!(moved.len(), 3, "no more than must");
    assert!(tokio::time::timeout(Duration::from_millis(300), b.next()).await.is_err());
    let mut tokens = BTreeMap::new();
    for index in &moved {
        let primary = of_a.remove(index).unwrap();
        tokens.insert(*index, primary.token());
    }
    let of_b = take(&mut b, 3).await;
    for (index, primary) in &of_b {
        assert!(primary.token() > tokens[index]);
    }
    assert!(of_a.values().all(|primary| primary.check().is_ok()));

    // A node that leaves tells its work first.
    let leaving = tokio::spawn(b.leave());
    for primary in of_b.values() {
        assert_eq!(within(primary.ended()).await, End::Left);
    }
    assert!(
        tokio::time::timeout(Duration::from_millis(300), a.next()).await.is_err(),
        "it is not dropped yet"
    );
    drop(of_b);
    within(leaving).await.unwrap();
    of_a.extend(take(&mut a, 3).await);
    assert_eq!(of_a.len(), 6);

    // A partition that is dropped unasked comes back, for there is no other node.
    let token = of_a.remove(&0).unwrap().token();
    let again = take(&mut a, 1).await.remove(&0).unwrap();
    assert!(again.token() > token);
    drop((of_a, again, a));
    nodes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_that_is_dropped_leaves_nothing_behind() {
    let nodes = Nodes::start("cancel", &["a", "b", "c"]).await;
    let mut a = nodes.join(0).await;
    assert_eq!(nodes.electors[0].partitions().join().await.unwrap_err(), PartitionsError::Joined);
    // A node that gives up waiting is not up for long, if ever.
    let joining = nodes.electors[1].partitions().time_to_live(TIME_TO_LIVE).join();
    let _ = tokio::time::timeout(Duration::from_millis(1), joining).await;
    nodes.tell(About::Create { group: group(), count: 20 }).await;
    let mut primaries = BTreeMap::new();
    // Each wait is given up at some point; nothing is lost with it. The other node may have had some, and gives them back.
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut wait = 0_u64;
    while primaries.values().filter(|primary: &&Primary| primary.check().is_ok()).count() < 20 {
        assert!(tokio::time::Instant::now() < until, "{primaries:?}");
        wait = (wait + 7) % 50;
        if let Ok(primary) = tokio::time::timeout(Duration::from_micros(wait * 20), a.next()).await {
            let primary = primary.unwrap();
            primaries.insert(primary.index(), primary);
        }
    }
    // The same node may join again when it has left.
    drop((a, primaries));
    let again = nodes.electors[0].partitions().time_to_live(TIME_TO_LIVE);
    let joined = within(async {
        loop {
            match again.clone().join().await {
                Ok(joined) => break joined,
                Err(error) => assert_eq!(error, PartitionsError::Joined),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    drop(joined);
    nodes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_does_not_end_keeps_its_partition_until_it_has_or_its_node_is_gone() {
    let nodes = Nodes::start("stuck", &["a", "b", "c"]).await;
    let short = Duration::from_millis(100);
    let mut a =
        within(nodes.electors[0].partitions().time_to_live(TIME_TO_LIVE).drain(short).join()).await.unwrap();
    nodes.tell(About::Create { group: group(), count: 1 }).await;
    let stuck = take(&mut a, 1).await.remove(&0).unwrap();
    let mut b =
        within(nodes.electors[1].partitions().time_to_live(short * 60).drain(short).join()).await.unwrap();
    nodes.tell(About::Drain { node: name("a") }).await;
    assert_eq!(within(stuck.ended()).await, End::TakenBack);
    // It is renewed for many times its time to drain, and is shown as the reason why the move waits.
    assert!(tokio::time::timeout(short * 10, b.next()).await.is_err(), "its work has not ended");
    let known = nodes.electors[2].map().unwrap().state().partitions().partition(&group(), 0).unwrap();
    assert_eq!((known.primary, known.plan), (Some(name("a")), Plan::Taken(Some(name("b")))));
    let token = stuck.token();
    drop(stuck);
    let next = take(&mut b, 1).await.remove(&0).unwrap();
    assert!(next.token() > token);

    // A dead node loses its partitions with its session, also while it drains.
    nodes.tell(About::Undrain { node: name("a") }).await;
    nodes.tell(About::Move { group: group(), index: 0, node: name("a") }).await;
    assert_eq!(within(next.ended()).await, End::TakenBack);
    nodes.electors[1].clone().close().await;
    assert_eq!(within(next.lost()).await, End::TakenBack);
    let last = take(&mut a, 1).await.remove(&0).unwrap();
    assert!(last.token() > next.token());
    drop((next, last, a, b));
    nodes.end().await;
}

#[tokio::test]
async fn who_keeps_no_metadata_has_no_partitions() {
    let elector = Elector::builder().election("none").connect("memory:partitions").await.unwrap();
    assert_eq!(elector.partitions().join().await.unwrap_err(), PartitionsError::NoMetadata);
}
