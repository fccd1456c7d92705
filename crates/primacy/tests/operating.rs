//! Operators' requests to running nodes, in the library: on three electors on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use primacy::disk::DiskError;
use primacy::status::View;
use primacy::{AdminError, Elector, Kept, NodeId, Peers, Reason, Status};
use support::{Dir, PATIENCE};
use tokio::task::JoinHandle;

const LOOK_INTERVAL: Duration = Duration::from_millis(10);

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// Three nodes, each with its own directory.
struct Cluster {
    peers: Peers,
    dir: Dir,
}

/// A node that campaigns, and does so again whenever its lead has ended; it reports the reason of each end.
struct Member {
    elector: Elector,
    ends: tokio::sync::mpsc::UnboundedReceiver<Reason>,
    campaigning: JoinHandle<()>,
}

impl Cluster {
    fn new(name: &str) -> Self {
        Self { peers: support::peers(&["a", "b", "c"]), dir: Dir::new(&format!("operating-{name}")) }
    }

    async fn start(&self, name: &str) -> Member {
        let builder = Elector::builder().election("test").node(node(name)).lease(Duration::from_millis(400));
        let elector = builder.state_dir(self.dir.join(name)).peers(self.peers.clone()).await.unwrap();
        let (told, ends) = tokio::sync::mpsc::unbounded_channel();
        let candidate = elector.clone();
        let campaigning = tokio::spawn(async move {
            while let Ok(leadership) = candidate.campaign().await {
                let _ = told.send(leadership.lost().await);
            }
        });
        Member { elector, ends, campaigning }
    }

    fn wipe(&self, name: &str) {
        std::fs::remove_dir_all(self.dir.join(name)).unwrap();
    }
}

impl Member {
    /// Waits until the node's status is as wanted.
    async fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let looking = async {
            loop {
                let status = self.elector.status().await.unwrap();
                if wanted(&status) {
                    return status;
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        match tokio::time::timeout(PATIENCE, looking).await {
            Ok(status) => status,
            Err(_) => panic!("{what} did not come: {:#?}", self.elector.status().await),
        }
    }

    async fn follows(&self, leader: &str) {
        let follows =
            |status: &Status| status.leader.is_some_and(|known| known.identity.node == node(leader));
        self.until(&format!("{leader} as the leader"), follows).await;
    }

    async fn stop(self) {
        self.campaigning.abort();
        self.elector.close().await;
    }
}

#[tokio::test]
async fn the_lead_goes_where_the_operator_wants_it() {
    let cluster = Cluster::new("lead");
    let mut a = cluster.start("a").await;
    let (b, c) = (cluster.start("b").await, cluster.start("c").await);
    let first = a.until("a leader", |status| status.leader.is_some()).await.leader.unwrap().identity.node;
    let follower = if first == node("b") { &c } else { &b };
    follower.follows(first.as_str()).await;
    let refused = follower.elector.resign().await.unwrap_err();
    assert!(
        matches!(refused, AdminError::NotLeading { leader: Some(leader), .. } if leader == first),
        "{refused}"
    );
    for member in [&b, &c].into_iter().filter(|member| member.elector.identity().node == first) {
        member.elector.transfer(node("a")).await.unwrap();
    }
    let leading = a.until("the lead of a", |status| status.lead.is_some()).await;

    // Refused, and nothing has changed.
    assert!(matches!(a.elector.transfer(node("a")).await, Err(AdminError::ToItself { .. })));
    assert!(matches!(a.elector.transfer(node("z")).await, Err(AdminError::NotAVoter { .. })));
    assert!(matches!(a.elector.readmit(node("b")).await, Err(AdminError::NotRefused { .. })));

    assert_eq!(a.elector.transfer(node("b")).await.unwrap(), leading.lead.unwrap().term);
    while a.ends.recv().await.unwrap() != Reason::Transferred(node("b")) {}
    b.until("the lead of b", |status| status.lead.is_some()).await;

    // Cordoned, it resigns, and stays a voter that does not lead: also after a restart.
    assert_eq!(b.elector.cordon().await.unwrap(), Kept::Durably);
    b.until("another leader", |status| status.leader.is_some_and(|leader| leader.identity.node != node("b")))
        .await;
    b.stop().await;
    let b = cluster.start("b").await;
    let status = b.until("a leader", |status| status.leader.is_some()).await;
    assert!(status.cordoned && status.campaigning);
    let leader = status.leader.unwrap().identity.node;
    let (leader, other) = if leader == node("a") { (a, c) } else { (c, a) };
    leader.stop().await;
    let name = other.elector.identity().node;
    b.follows(name.as_str()).await;
    other.elector.resign().await.unwrap();
    // Only b is left to lead, and b is not to.
    b.until("no leader", |status| status.leader.is_none()).await;
    assert!(b.elector.status().await.unwrap().why_no_leader().join(";").contains("cordoned"));
    other.elector.cordon().await.unwrap();
    b.elector.uncordon().await.unwrap();
    b.until("the lead of b", |status| status.lead.is_some()).await;
}

#[tokio::test]
async fn a_wiped_disk_is_refused_until_all_others_readmit_it() {
    let cluster = Cluster::new("wiped");
    let (a, b, c) = (cluster.start("a").await, cluster.start("b").await, cluster.start("c").await);
    c.until("a leader", |status| status.leader.is_some()).await;
    c.stop().await;
    cluster.wipe("c");
    let c = cluster.start("c").await;
    let refused = |status: &Status| status.why_no_leader().join(";").contains("comes with the disk");
    c.until("the refusal", refused).await;

    // One of two is not enough: the other may know of a vote that the first does not.
    a.until("the refusal of c", |status| peers(status).iter().any(|peer| peer.refusal.is_some())).await;
    a.elector.readmit(node("c")).await.unwrap();
    let told = |status: &Status| recovering(status).is_some_and(|heard| heard.contains(&node("a")));
    c.until("a's term", told).await;
    assert!(c.elector.status().await.unwrap().why_no_leader().join(";").contains("so far that is a"));
    b.elector.readmit(node("c")).await.unwrap();
    c.until("a leader", |status| status.leader.is_some() && recovering(status).is_none()).await;

    // It votes again, above all that it may have forgotten, and after a restart it still knows that it does.
    let before = a.until("a leader", |status| status.leader.is_some()).await.leader.unwrap();
    let (leader, other) = if before.identity.node == node("a") { (a, b) } else { (b, a) };
    leader.stop().await;
    c.until("a higher term", |status| status.leader.is_some_and(|leader| leader.term > before.term)).await;
    c.stop().await;
    let c = cluster.start("c").await;
    c.until("a leader", |status| status.leader.is_some() && recovering(status).is_none()).await;
    drop(other);
}

#[tokio::test]
async fn a_lost_disk_is_remembered_and_readmitted_also_where_it_was_taken_at_its_word() {
    let cluster = Cluster::new("word");
    let (a, c) = (cluster.start("a").await, cluster.start("c").await);
    c.until("a leader", |status| status.leader.is_some()).await;
    c.stop().await;
    cluster.wipe("c");
    // `b` has never met the `c` that was.
    let (b, c) = (cluster.start("b").await, cluster.start("c").await);
    c.until("b", |status| connected(status, "b")).await;
    a.until("the refusal of c", |status| peers(status).iter().any(|peer| peer.refusal.is_some())).await;
    a.elector.readmit(node("c")).await.unwrap();
    let told = |status: &Status| recovering(status).is_some_and(|heard| heard.contains(&node("a")));
    c.until("a's term", told).await;

    // It knows so after a restart as well, though there is no node to tell it.
    a.stop().await;
    c.stop().await;
    let c = cluster.start("c").await;
    let waits = c.until("b", |status| connected(status, "b")).await;
    assert_eq!(recovering(&waits), Some(&BTreeSet::new()));
    assert!(matches!(c.elector.readmit(node("b")).await, Err(AdminError::Recovering { .. })));
    let a = cluster.start("a").await;
    c.until("a's term", told).await;
    let readmitting = async {
        while let Err(error) = b.elector.readmit(node("c")).await {
            assert!(matches!(error, AdminError::NotRefused { .. }), "{error}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::time::timeout(PATIENCE, readmitting).await.expect("c tells b that it waits");
    c.until("a leader", |status| status.leader.is_some() && recovering(status).is_none()).await;
    drop(a);
}

#[tokio::test]
async fn a_disk_that_was_replaced_votes_never_again() {
    let cluster = Cluster::new("replaced");
    let (a, b, c) = (cluster.start("a").await, cluster.start("b").await, cluster.start("c").await);
    c.until("a leader", |status| status.leader.is_some()).await;
    let kept = cluster.dir.join("kept");
    let readmitted = async |c: Member| {
        for other in [&a, &b] {
            other.until("the refusal of c", |status| refuses(status, "c")).await;
            other.elector.readmit(node("c")).await.unwrap();
        }
        c.until("a leader", |status| status.leader.is_some() && recovering(status).is_none()).await;
        c.stop().await;
    };
    c.stop().await;
    cluster.wipe("c");
    readmitted(cluster.start("c").await).await;
    // This node has recovered, and does not know votes that are cast with the next one's disk.
    std::fs::rename(cluster.dir.join("c"), &kept).unwrap();
    readmitted(cluster.start("c").await).await;
    cluster.wipe("c");
    std::fs::rename(&kept, cluster.dir.join("c")).unwrap();
    let c = cluster.start("c").await;
    a.until("the refusal of c", |status| refuses(status, "c")).await;
    let refused = a.elector.readmit(node("c")).await.unwrap_err();
    assert!(matches!(refused, AdminError::Disk(DiskError::Replaced { .. })), "{refused}");
    c.until("the reason", |status| status.why_no_leader().join(";").contains("was replaced by")).await;
    assert_eq!(c.elector.status().await.unwrap().leader, None);
}

fn connected(status: &Status, name: &str) -> bool {
    match &status.view {
        View::Peers(view) => view.connected.contains(&node(name)),
        View::Store(_) | View::Sessions(_) => panic!("these are peers"),
    }
}

fn refuses(status: &Status, name: &str) -> bool {
    peers(status).iter().any(|peer| peer.node == node(name) && peer.refusal.is_some())
}

fn peers(status: &Status) -> &[primacy::transport::PeerStatus] {
    match &status.view {
        View::Peers(view) => &view.peers,
        View::Store(_) | View::Sessions(_) => panic!("these are peers"),
    }
}

fn recovering(status: &Status) -> Option<&BTreeSet<NodeId>> {
    match &status.view {
        View::Peers(view) => view.election.recovering(),
        View::Store(_) | View::Sessions(_) => panic!("these are peers"),
    }
}
