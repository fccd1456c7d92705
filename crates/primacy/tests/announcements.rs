//! Announcements of leaders of a ranked election, as three real nodes hear them over real
//! connections.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use primacy::{
    ANNOUNCEMENT_MAX, Algorithm, Announcement, Announcements, Elector, LeaderSequence, NodeId, Peers,
    PublishError,
};
use support::{Dir, peers, soon};

async fn ranked(node: &str, peers: &Peers, dir: &Path) -> Elector {
    let builder = Elector::builder().election("announced").node(NodeId::new(node).unwrap());
    builder.algorithm(Algorithm::Ranked).state_dir(dir).peers(peers.clone()).await.unwrap()
}

/// One node's sight of the announcements, which must never go back.
struct Follower {
    elector: Elector,
    announcements: Announcements,
    last: Option<LeaderSequence>,
}

impl Follower {
    async fn begin(node: &str, peers: &Peers, dir: &Path) -> Self {
        let elector = ranked(node, peers, dir).await;
        Self { announcements: elector.announcements(), elector, last: None }
    }

    /// Waits for this state, by a leader of this term at least.
    async fn hears(&mut self, state: &str, term: u64) -> Announcement {
        loop {
            let next = soon(state, self.announcements.changed()).await.expect("the elector lives");
            assert!(Some(next.number) > self.last, "{next:?} after {:?}", self.last);
            self.last = Some(next.number);
            if *next.state == *state.as_bytes() && next.number.term.0 >= term {
                return next;
            }
        }
    }
}

/// The leader of the first term is a process of its own, so that it can be killed.
struct Leader(Child);

impl Leader {
    fn start(peers: &Peers, dir: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["followers_observe_in_order_and_the_next_leader_goes_on", "--exact", "--nocapture"]);
        command.env("ANNOUNCING_PEERS", peers.to_string()).env("ANNOUNCING_DIR", dir);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn announce(&mut self, state: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{state}").unwrap();
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The leader's process: it announces its input, until it is killed.
async fn lead(peers: &str) {
    let dir = PathBuf::from(std::env::var_os("ANNOUNCING_DIR").unwrap());
    let elector = ranked("a", &peers.parse().unwrap(), &dir).await;
    let leadership = elector.campaign().await.unwrap();
    for line in BufReader::new(std::io::stdin()).lines() {
        leadership.publish(line.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn followers_observe_in_order_and_the_next_leader_goes_on() {
    // This test also runs as the leader's process that it starts.
    if let Ok(peers) = std::env::var("ANNOUNCING_PEERS") {
        return lead(&peers).await;
    }
    let (peers, dir) = (peers(&["a", "b", "c"]), Dir::new("announced"));
    let mut leader = Leader::start(&peers, &dir);
    let mut b = Follower::begin("b", &peers, &dir).await;
    let mut c = Follower::begin("c", &peers, &dir).await;
    for state in ["shard 1", "shard 2", "shard 3"] {
        leader.announce(state);
        let (at_b, at_c) = (b.hears(state, 1).await, c.hears(state, 1).await);
        assert_eq!(at_b.number.term, at_c.number.term);
    }
    let first_term = b.announcements.newest().unwrap().number.term.0;
    let refused = b.elector.publish("mine").await;
    let known = b.elector.status().await.unwrap().leader.map(|leader| leader.identity.node);
    assert_eq!(refused, Err(PublishError::NotLeading { node: b.elector.identity().node, leader: known }));

    // The leader dies, and the next one repeats the last announcement that it has heard.
    leader.0.kill().unwrap();
    leader.0.wait().unwrap();
    let next = soon("the next election", b.elector.campaign()).await.unwrap();
    assert!(next.term().0 > first_term);
    let inherited = c.hears("shard 3", next.term().0).await;
    let number = next.publish("shard 4").await.unwrap();
    assert!(number > inherited.number);
    assert!(c.hears("shard 4", next.term().0).await.number >= number);
    // It hears itself, too.
    b.hears("shard 4", next.term().0).await;
    let status = c.elector.status().await.unwrap().announced.unwrap();
    assert_eq!(*status.state, *b"shard 4");

    let too_long = next.publish(vec![0; ANNOUNCEMENT_MAX + 1]).await;
    assert_eq!(too_long, Err(PublishError::TooLong { length: ANNOUNCEMENT_MAX + 1 }));
    let full = "x".repeat(ANNOUNCEMENT_MAX);
    next.publish(&full).await.unwrap();
    c.hears(&full, next.term().0).await;

    // A node that comes back hears the present announcement, though it is not published again.
    let mut a = Follower::begin("a", &peers, &dir).await;
    a.hears(&full, next.term().0).await;
    let elector = b.elector.clone();
    next.resign().await;
    assert!(matches!(elector.publish("late").await, Err(PublishError::NotLeading { .. })));
}

#[tokio::test]
async fn elections_that_carry_no_state_say_so() {
    let elector = Elector::builder().election("test").connect("memory:announced").await.unwrap();
    let leadership = soon("the election", elector.campaign()).await.unwrap();
    assert_eq!(leadership.publish("anything").await, Err(PublishError::NotCarried));
    assert_eq!(elector.announcements().newest(), None);
    drop(leadership);
    let mut announcements = elector.announcements();
    elector.clone().close().await;
    drop(elector);
    assert_eq!(soon("the end", announcements.changed()).await, None);
}
