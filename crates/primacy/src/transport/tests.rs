//! Meshes over loopback, and unauthenticated connections. Every wait is for an event, with a time limit.

mod fuzz;
mod peers;
mod robustness;
mod security;
mod versions;

use std::cell::Cell;
use std::time::Duration as StdDuration;

use primacy_core::election::quorum::{Body, Message, Resignation, Round, Safety};
use primacy_core::election::{Algorithm, ranked};
use primacy_core::{Duration, Identity, Incarnation, Term};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::stream::{Connection, Stream, prepare};
use super::*;
use crate::codec;
use crate::handshake::tests::{hello, node};
use crate::handshake::{ElectionKind, RefusalKind, Voters};
use crate::versions::Versions;

const BOUND: StdDuration = StdDuration::from_secs(20);

/// Runs a test on one thread, as the driver runs a mesh.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(BOUND, test).await.expect("the test waits for something that does not come");
    });
}

struct Node {
    mesh: Mesh,
    inbox: mpsc::Receiver<Arrival>,
}

/// Listeners for these nodes, bound already, so that no other process gets the addresses.
fn places<const N: usize>() -> [TcpListener; N] {
    std::array::from_fn(|_| Mesh::bind("127.0.0.1:0".parse().unwrap(), &Security::Loopback).unwrap())
}

fn at(listener: &TcpListener) -> String {
    listener.local_addr().unwrap().to_string()
}

fn config(me: Hello, peers: &[(&str, String)]) -> MeshConfig {
    MeshConfig {
        me,
        listen: "127.0.0.1:0".parse().unwrap(),
        peers: peers.iter().map(|(name, address)| (node(name), address.clone())).collect(),
        peer_disks: BTreeMap::new(),
        term: Some(Term(0)),
        security: Security::Loopback,
        limits: Limits::default(),
    }
}

async fn start(listener: TcpListener, config: MeshConfig) -> Node {
    let (sender, inbox) = mpsc::channel(64);
    Node { mesh: Mesh::start_on(listener, config, sender).await.unwrap(), inbox }
}

/// Starts `a` and `b`, each with a change of its hello.
async fn pair(change_a: impl FnOnce(&mut Hello), change_b: impl FnOnce(&mut Hello)) -> (Node, Node) {
    let [place_a, place_b] = places();
    let (at_a, at_b) = (at(&place_a), at(&place_b));
    let (mut a, mut b) = (hello("a", &["a", "b"]), hello("b", &["a", "b"]));
    change_a(&mut a);
    change_b(&mut b);
    (start(place_a, config(a, &[("b", at_b)])).await, start(place_b, config(b, &[("a", at_a)])).await)
}

impl Node {
    async fn next(&mut self) -> Arrival {
        self.inbox.recv().await.expect("the mesh lives")
    }

    /// Returns the next message; skips other arrivals.
    async fn message(&mut self) -> (NodeId, Message) {
        loop {
            if let Arrival::Message { from, message: Word::Quorum(message) } = self.next().await {
                return (from, message);
            }
        }
    }

    /// Returns the next evidence that fits; skips other arrivals.
    async fn evidence(&mut self, fits: impl Fn(&Evidence) -> bool) -> Evidence {
        loop {
            match self.next().await {
                Arrival::Evidence(evidence) if fits(&evidence) => return evidence,
                Arrival::Evidence(_) | Arrival::Message { .. } | Arrival::PeerDisk { .. } => {}
            }
        }
    }

    async fn connected(&mut self, name: &str) -> primacy_core::Peer {
        let fits =
            |found: &Evidence| matches!(found, Evidence::Connected(peer) if peer.identity.node == node(name));
        let Evidence::Connected(peer) = self.evidence(fits).await else { unreachable!("it fits") };
        peer
    }

    /// Waits until the counters fit. They change when tasks run, for which there is no event.
    async fn until(&self, fits: impl Fn(&Counters) -> bool) -> Counters {
        until(|| fits(&self.mesh.counters())).await;
        self.mesh.counters()
    }

    async fn link_to(&self, name: &str) {
        let up = |peer: &PeerStatus| peer.node == node(name) && peer.outbound.is_some();
        until(|| self.mesh.peers().iter().any(up)).await;
    }

    fn peer(&self, name: &str) -> PeerStatus {
        self.mesh.peers().into_iter().find(|peer| peer.node == node(name)).unwrap()
    }
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

fn heartbeat(from: &Hello, round: u64) -> Message {
    let body = Body::Heartbeat { round: Round(round) };
    Message { incarnation: from.identity.incarnation, term: Term(1), body }
}

/// A client that sends frames by hand.
struct ScriptedPeer(Connection<Rc<Stream>>);

impl ScriptedPeer {
    async fn dial(target: &Node) -> Self {
        let stream = TcpStream::connect(target.mesh.local_addr()).await.unwrap();
        Self::on(stream)
    }

    fn on(stream: TcpStream) -> Self {
        Self(Connection::new(Rc::new(Stream::Clear(prepare(stream, &Limits::default()).unwrap()))))
    }

    async fn say(&mut self, frame: Frame) {
        self.0.stream.write_all(&codec::encode("main", &frame).unwrap()).await.unwrap();
    }

    async fn hear(&mut self) -> Frame {
        self.0.read().await.unwrap().1
    }

    /// Completes the handshake.
    async fn enter(target: &Node, me: Hello) -> Self {
        let mut scripted = Self::dial(target).await;
        scripted.say(Frame::Hello(me)).await;
        assert!(matches!(scripted.hear().await, Frame::Welcome(_)));
        scripted.say(Frame::Ready).await;
        scripted
    }

    /// Waits until the other side has closed the connection.
    async fn closed(&mut self) {
        assert!(self.0.read().await.is_err());
    }
}

#[test]
fn two_nodes_talk_in_both_directions() {
    run(async {
        let (mut a, mut b) = pair(|a| a.priority = 7, |b| b.witness = true).await;
        // A peer's disk is reported before any of its messages, whichever direction connects first.
        assert_eq!(b.next().await, Arrival::PeerDisk { node: node("a"), disk: hello("a", &[]).disk });
        assert_eq!(a.next().await, Arrival::PeerDisk { node: node("b"), disk: hello("b", &[]).disk });
        let (seen_a, seen_b) = (b.connected("a").await, a.connected("b").await);
        assert_eq!((seen_a.identity, seen_a.priority), (hello("a", &[]).identity, 7));
        assert!(seen_b.witness && !seen_a.witness);
        assert!(!seen_a.round_trip.is_zero());
        a.link_to("b").await;
        b.link_to("a").await;
        for round in 0..100 {
            let (question, answer) = (heartbeat(&hello("a", &[]), round), heartbeat(&hello("b", &[]), round));
            assert_eq!(a.mesh.send(node("b"), Word::Quorum(question.clone())), Delivery::Written);
            assert_eq!(b.message().await, (node("a"), question));
            assert_eq!(b.mesh.send(node("a"), Word::Quorum(answer.clone())), Delivery::Written);
            assert_eq!(a.message().await, (node("b"), answer));
        }
        assert_eq!(b.mesh.counters().frames_received, 100);
        assert_eq!(a.peer("b").inbound, Some(hello("b", &[]).identity));
    });
}

#[test]
fn what_is_sent_has_left_before_the_sender_goes_on() {
    run(async {
        let [place] = places();
        let a = start(places::<1>().into_iter().next().unwrap(), {
            config(hello("a", &["a", "b"]), &[("b", at(&place))])
        })
        .await;
        let b = accept(place, hello("b", &["a", "b"])).await;
        a.link_to("b").await;
        let message = heartbeat(&hello("a", &[]), 1);
        assert_eq!(a.mesh.send(node("b"), Word::Quorum(message.clone())), Delivery::Written);
        // This thread has not yielded since then: the bytes are in the receiver's kernel already.
        let mut bytes = [0; 256];
        b.0.stream.readable().await.unwrap();
        assert!(b.0.stream.try_read(&mut bytes).unwrap() > 4);
    });
}

/// Accepts a connection from a dialling node, as the node `me`.
async fn accept(listener: TcpListener, me: Hello) -> ScriptedPeer {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let mut scripted = ScriptedPeer::on(listener.accept().await.unwrap().0);
    assert!(matches!(scripted.hear().await, Frame::Hello(_)));
    scripted.say(Frame::Welcome(me)).await;
    assert_eq!(scripted.hear().await, Frame::Ready);
    scripted
}

#[test]
fn a_peer_that_does_not_read_costs_a_bounded_buffer_and_breaks_no_frame() {
    run(async {
        let [place_a, place_b] = places();
        let a = start(place_a, config(hello("a", &["a", "b"]), &[("b", at(&place_b))])).await;
        let message = |round| heartbeat(&hello("a", &[]), round);
        assert_eq!(
            a.mesh.send(node("b"), Word::Quorum(message(0))),
            Delivery::Dropped,
            "there is no connection yet"
        );
        assert_eq!(a.mesh.send(node("nobody"), Word::Quorum(message(0))), Delivery::Dropped);
        let mut b = accept(place_b, hello("b", &["a", "b"])).await;
        a.link_to("b").await;
        let (mut sent, mut buffered) = (0, 0);
        loop {
            match a.mesh.send(node("b"), Word::Quorum(message(sent))) {
                Delivery::Written => assert_eq!(buffered, 0, "nothing overtakes what waits"),
                Delivery::Buffered => buffered += 1,
                Delivery::Dropped => break,
            }
            sent += 1;
        }
        assert!(buffered > 1000, "{buffered}");
        for round in 0..sent {
            assert_eq!(b.hear().await, Frame::Message(Word::Quorum(message(round))));
        }
        assert_eq!(a.mesh.send(node("b"), Word::Quorum(message(sent))), Delivery::Written);
        assert_eq!(b.hear().await, Frame::Message(Word::Quorum(message(sent))));
        assert_eq!(a.mesh.counters().frames_dropped, 3);
    });
}

#[test]
fn a_message_that_is_too_long_is_counted_apart_and_stops_no_other() {
    run(async {
        let (mut a, mut b) = pair(|_| {}, |_| {}).await;
        a.link_to("b").await;
        a.connected("b").await;
        let lead = |length: usize| {
            let number = LeaderSequence::first(Term(1));
            let body = ranked::Body::Lead { number, state: vec![0; length].into() };
            Word::Ranked(ranked::Message { incarnation: Incarnation { count: 1, nonce: 1 }, body })
        };
        for _ in 0..3 {
            assert_eq!(a.mesh.send(node("b"), lead(70_000)), Delivery::Dropped);
        }
        let round = heartbeat(&hello("a", &["a", "b"]), 7);
        assert_eq!(a.mesh.send(node("b"), Word::Quorum(round.clone())), Delivery::Written);
        assert_eq!(b.message().await, (node("a"), round));
        let counters = a.mesh.counters();
        assert_eq!((counters.frames_oversized, counters.frames_dropped), (3, 0));
    });
}

/// All of these except the one of this name.
fn others<'a>(peers: &[(&'a str, String)], name: &str) -> Vec<(&'a str, String)> {
    peers.iter().filter(|(other, _)| *other != name).cloned().collect()
}

#[test]
fn three_nodes_reach_each_other_and_one_that_restarts() {
    run(async {
        let (voters, [place_a, place_b, place_c]) = (["a", "b", "c"], places());
        let peers = [("a", at(&place_a)), ("b", at(&place_b)), ("c", at(&place_c))];
        let mut a = start(place_a, config(hello("a", &voters), &others(&peers, "a"))).await;
        let mut b = start(place_b, config(hello("b", &voters), &others(&peers, "b"))).await;
        let c = start(place_c, config(hello("c", &voters), &others(&peers, "c"))).await;
        for name in ["b", "c"] {
            a.link_to(name).await;
        }
        b.link_to("c").await;
        let place = c.mesh.local_addr();
        c.mesh.shutdown().await;
        for node_of in [&mut a, &mut b] {
            node_of.evidence(|found| *found == Evidence::Disconnected(node("c"))).await;
        }
        let mut again = hello("c", &voters);
        again.identity.incarnation = Incarnation { count: 2, nonce: 4 };
        let mut c = start(
            Mesh::bind(place, &Security::Loopback).unwrap(),
            config(again.clone(), &others(&peers, "c")),
        )
        .await;
        assert_eq!(a.connected("c").await.identity, again.identity);
        assert_eq!(b.connected("c").await.identity, again.identity);
        until(|| a.peer("c").outbound == Some(again.identity)).await;
        let message = heartbeat(&hello("a", &[]), 1);
        a.mesh.send(node("c"), Word::Quorum(message.clone()));
        assert_eq!(c.message().await, (node("a"), message));
    });
}

#[test]
fn nodes_whose_voters_differ_refuse_each_other_and_both_say_why() {
    run(async {
        let (a, b) =
            pair(|a| a.voters = [node("a"), node("b"), node("c")].into_iter().collect(), |_| {}).await;
        for (one, other) in [(&a, "b"), (&b, "a")] {
            until(|| one.mesh.peers()[0].refusal.is_some()).await;
            let refusal = one.peer(other).refusal.unwrap();
            assert_eq!(refusal.kind, RefusalKind::Voters);
            assert!(
                refusal.text.contains("{a, b, c}") && refusal.text.contains("{a, b}"),
                "{}",
                refusal.text
            );
            assert_eq!((one.peer(other).inbound, one.peer(other).outbound), (None, None));
        }
        b.until(|counters| counters.refused.contains_key(&RefusalKind::Voters)).await;
        b.until(|counters| counters.refused_by_peers.contains_key(&RefusalKind::Voters)).await;
        assert!(a.peer("b").trouble.unwrap().contains("their voters differ"));
    });
}

#[test]
fn a_refusal_that_only_the_dialler_sees_is_told_to_the_acceptor() {
    run(async {
        // Both answer as `b`, so `a` does not find `c` at its address.
        let [place_a, place_b] = places();
        let voters = ["a", "b", "c"];
        let b = start(place_b, config(hello("b", &voters), &[])).await;
        let peers = [("c", b.mesh.local_addr().to_string())];
        let a = start(place_a, config(hello("a", &voters), &peers)).await;
        b.until(|counters| counters.refused_by_peers.contains_key(&RefusalKind::OtherNode)).await;
        assert!(b.mesh.unidentified_refused().unwrap().text.contains("b answers where c should be"));
        assert!(!a.peer("c").refusal.unwrap().by_peer);
    });
}

#[test]
fn a_wiped_disk_is_refused_until_it_is_readmitted() {
    run(async {
        let [place_a, place_b] = places();
        let (old, new) = (DiskId([1; 16]), hello("b", &[]).disk);
        let at_a = at(&place_a);
        let peer_disks = BTreeMap::from([(node("b"), PeerDisk::first(old))]);
        let config_a = MeshConfig { peer_disks, ..config(hello("a", &["a", "b"]), &[("b", at(&place_b))]) };
        let mut a = start(place_a, config_a).await;
        let mut b = start(place_b, config(hello("b", &["a", "b"]), &[("a", at_a)])).await;
        until(|| a.peer("b").refusal.is_some()).await;
        let text = a.peer("b").refusal.unwrap().text;
        assert!(text.contains(&old.to_string()) && text.contains(&new.to_string()), "{text}");
        assert_eq!(a.mesh.disk_to_readmit(node("b")), Some(new));
        b.evidence(|found| *found == Evidence::DiskRefused { by: node("a"), replaced: false }).await;
        a.mesh.set_term(Some(Term(7)));
        a.mesh.readmit(node("b"), new);
        a.connected("b").await;
        a.link_to("b").await;
        // The first message is the one that it must have before it votes.
        b.evidence(|found| *found == Evidence::Readmitted { by: node("a"), term: Term(7) }).await;
        // A node that has lost its own disk reports no term until it has recovered.
        a.mesh.set_term(None);
        a.mesh.set_term(Some(Term(9)));
        b.evidence(|found| *found == Evidence::Readmitted { by: node("a"), term: Term(9) }).await;
        assert_eq!(a.peer("b").refusal, None);
        // Readmitted again, `b` is told again, because it may have restarted since.
        a.mesh.readmit(node("b"), new);
        b.evidence(|found| *found == Evidence::Readmitted { by: node("a"), term: Term(9) }).await;
        // Messages of another disk are dropped now, and connections with it are closed.
        a.mesh.readmit(node("b"), DiskId([2; 16]));
        a.evidence(|found| *found == Evidence::Disconnected(node("b"))).await;
        // Its present disk was replaced, and is never offered for readmission in place of one that was not.
        until(|| a.peer("b").refusal.is_some()).await;
        let text = a.peer("b").refusal.unwrap().text;
        assert!(text.contains("was replaced by") && text.contains(&new.to_string()), "{text}");
        b.evidence(|found| *found == Evidence::DiskRefused { by: node("a"), replaced: true }).await;
    });
}

/// It has begun a cluster alone, so it refuses the others for their voters. They tell it of the disk before that.
#[test]
fn a_node_that_refuses_those_who_know_it_with_another_disk_is_told() {
    run(async {
        let [place_a, place_b] = places();
        let old = DiskId([1; 16]);
        let mut b = start(place_b, config(hello("b", &["b"]), &[])).await;
        let peer_disks = BTreeMap::from([(node("b"), PeerDisk::first(old))]);
        let peers = [("b", b.mesh.local_addr().to_string())];
        let a = MeshConfig { peer_disks, ..config(hello("a", &["a", "b"]), &peers) };
        let a = start(place_a, a).await;
        b.evidence(|found| *found == Evidence::DiskRefused { by: node("a"), replaced: false }).await;
        a.until(|counters| counters.refused_by_peers.contains_key(&RefusalKind::Voters)).await;
        // Where no vote counts, a lost disk has lost no votes; and guardians know no disks.
        let mine = hello("b", &["b"]);
        let theirs = Hello { known_disk: Some((node("b"), old)), ..hello("a", &["a", "b"]) };
        assert!(mine.is_known_otherwise_by(&theirs));
        let bully = ElectionKind { algorithm: Algorithm::Bully, confirmation: None };
        for (mine, theirs) in [
            (Hello { kind: bully, ..mine.clone() }, Hello { kind: bully, ..theirs.clone() }),
            (mine.clone(), theirs.of_guardian()),
            (mine.clone(), Hello { election: "other".into(), ..theirs.clone() }),
            (mine.clone(), Hello { cluster: "other".into(), ..theirs.clone() }),
            (mine.clone(), Hello { known_disk: Some((node("b"), mine.disk)), ..theirs.clone() }),
            // It has the address of a node that is gone.
            (mine.clone(), Hello { known_disk: Some((node("c"), old)), ..theirs.clone() }),
            (mine.clone(), Hello { voters: Voters::new([node("a")]), ..theirs.clone() }),
        ] {
            assert!(!mine.is_known_otherwise_by(&theirs), "{theirs:?}");
        }
    });
}

#[test]
fn a_disk_that_was_refused_once_does_not_cut_off_the_node_that_is_back_with_its_own() {
    run(async {
        let [place] = places();
        let mut a = start(place, config(hello("a", &["a", "b"]), &[])).await;
        let own = hello("b", &["a", "b"]);
        let other = Hello { disk: DiskId([7; 16]), ..own.clone() };
        let former = Hello { disk: DiskId([6; 16]), ..own.clone() };
        drop(ScriptedPeer::enter(&a, own.clone()).await);
        a.evidence(|found| *found == Evidence::Disconnected(node("b"))).await;
        let refused = async |with: &Hello| {
            let mut b = ScriptedPeer::dial(&a).await;
            b.say(Frame::Hello(with.clone())).await;
            assert!(matches!(b.hear().await, Frame::Refused(_)));
        };
        // A guardian's disk is not offered for readmission.
        refused(&other.of_guardian()).await;
        assert_eq!(a.mesh.disk_to_readmit(node("b")), None);
        refused(&other).await;
        assert_eq!(a.mesh.disk_to_readmit(node("b")), Some(other.disk));
        let mut b = ScriptedPeer::enter(&a, own.clone()).await;
        until(|| a.mesh.disk_to_readmit(node("b")).is_none()).await;
        // It reports the loss of a disk that `a` has never seen.
        b.say(Frame::Lost).await;
        until(|| a.mesh.disk_to_readmit(node("b")) == Some(own.disk)).await;
        // A replaced disk does not hide the one that waits.
        a.mesh.readmit(node("b"), former.disk);
        a.mesh.readmit(node("b"), own.disk);
        refused(&other).await;
        refused(&former).await;
        assert_eq!(a.mesh.disk_to_readmit(node("b")), Some(other.disk));
    });
}

#[test]
fn strangers_are_dropped_and_counted_while_peers_talk() {
    run(async {
        let [place_a, place_b] = places();
        let (at_a, at_b) = (at(&place_a), at(&place_b));
        let limits = Limits { handshake_timeout: Duration::from_millis(300), ..Limits::default() };
        let mut a =
            start(place_a, MeshConfig { limits, ..config(hello("a", &["a", "b"]), &[("b", at_b)]) }).await;
        let b = start(place_b, config(hello("b", &["a", "b"]), &[("a", at_a)])).await;
        b.link_to("a").await;
        let dial = || async { TcpStream::connect(a.mesh.local_addr()).await.unwrap() };
        // Garbage with a great length prefix, and with a small one.
        let mut long = dial().await;
        long.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(long.read(&mut [0; 1]).await.unwrap_or(0), 0, "closed, and nothing was said");
        let mut claim = dial().await;
        claim.write_all(&[0xff; 4]).await.unwrap();
        assert_eq!(claim.read(&mut [0; 1]).await.unwrap_or(0), 0);
        let mut short = dial().await;
        short.write_all(&[0, 0, 0, 3, 0xff, 0xff, 0xff]).await.unwrap();
        assert_eq!(short.read(&mut [0; 1]).await.unwrap_or(0), 0);
        // A frame that does not belong to a handshake.
        let mut rude = ScriptedPeer::dial(&a).await;
        rude.say(Frame::Ready).await;
        rude.closed().await;
        // A client that sends nothing, and a client that sends a frame byte by byte without an end.
        let mut silent = dial().await;
        let mut slow = dial().await;
        let frame = codec::encode("main", &Frame::Hello(hello("b", &["a", "b"]))).unwrap();
        for byte in &frame[..frame.len() - 1] {
            slow.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(slow.read(&mut [0; 1]).await.unwrap_or(0), 0);
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
        let counters = a.until(|counters| counters.handshakes_timed_out == 2).await;
        assert_eq!((counters.frames_too_long, counters.handshakes_broken), (2, 2));
        let message = heartbeat(&hello("b", &[]), 1);
        assert_eq!(b.mesh.send(node("a"), Word::Quorum(message.clone())), Delivery::Written);
        assert_eq!(a.message().await, (node("b"), message));
    });
}

#[test]
fn a_refusal_is_cut_before_it_is_kept() {
    run(async {
        let [place_a, place_b] = places();
        let a = start(place_a, config(hello("a", &["a", "b"]), &[("b", at(&place_b))])).await;
        let long = Hello { cluster: "\u{1b}".repeat(60_000), ..hello("b", &["a", "b"]) };
        let listener = tokio::net::TcpListener::from_std(place_b).unwrap();
        let mut answers = ScriptedPeer::on(listener.accept().await.unwrap().0);
        assert!(matches!(answers.hear().await, Frame::Hello(_)));
        answers.say(Frame::Welcome(long.clone())).await;
        let Frame::Refused(refused) = answers.hear().await else { panic!("it is refused") };
        until(|| a.peer("b").trouble.is_some()).await;
        let kept = [a.peer("b").refusal.unwrap().text, a.peer("b").trouble.unwrap(), refused.text];
        let mut dials = ScriptedPeer::dial(&a).await;
        dials.say(Frame::Hello(long)).await;
        let Frame::Refused(refused) = dials.hear().await else { panic!("it is refused") };
        for text in kept.into_iter().chain([a.peer("b").refusal.unwrap().text, refused.text]) {
            assert_eq!(text.chars().count(), codec::REFUSAL_TEXT_MAX);
            assert!(text.contains("cluster") && !text.contains('\u{1b}'), "{text}");
        }
    });
}

#[test]
fn a_mesh_one_of_whose_tasks_panics_is_at_its_end() {
    run(async {
        let (mut a, b) = pair(|_| {}, |_| {}).await;
        a.link_to("b").await;
        a.mesh.shared.spawn(async { panic!("as intended") });
        while a.inbox.recv().await.is_some() {}
        drop(b);
    });
}

#[test]
fn being_refused_is_no_way_to_stay_for_longer() {
    run(async {
        let [place] = places();
        let limits = Limits { handshake_timeout: Duration::from_millis(2000), ..Limits::default() };
        let a = start(place, MeshConfig { limits, ..config(hello("a", &["a", "b"]), &[]) }).await;
        let mut third = tokio::time::interval(StdDuration::from(limits.handshake_timeout) / 3);
        third.tick().await;
        let mut refused = TcpStream::connect(a.mesh.local_addr()).await.unwrap();
        refused.write_all(&[0]).await.unwrap();
        third.tick().await;
        let mut silent = TcpStream::connect(a.mesh.local_addr()).await.unwrap();
        third.tick().await;
        // It is refused at its deadline, and does not close the connection. With another full deadline it would stay
        // longer than the other one.
        let body = codec::encode("main", &Frame::Hello(hello("a", &["a", "b"]))).unwrap();
        refused.write_all(&body[1..]).await.unwrap();
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
        assert_eq!(a.mesh.counters().handshakes_timed_out, 1);
        assert_eq!(a.mesh.counters().refused.len(), 1);
        refused.read_to_end(&mut Vec::new()).await.unwrap();
        let mut closed = false;
        for _ in 0..1000 {
            // Bytes to a closed connection are answered with a reset.
            closed |= refused.try_write(&[0]).is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
            tokio::task::yield_now().await;
        }
        assert!(closed, "it has been given another full time");
    });
}

#[test]
fn a_hello_may_come_a_byte_at_a_time() {
    run(async {
        let (mut a, _b) = pair(|_| {}, |_| {}).await;
        let mut slow = ScriptedPeer::dial(&a).await;
        let mut guardian = hello("b", &["a", "b"]).of_guardian();
        guardian.identity.incarnation.count = 77;
        for byte in codec::encode("main", &Frame::Hello(guardian)).unwrap() {
            slow.0.stream.write_all(&[byte]).await.unwrap();
        }
        assert!(matches!(slow.hear().await, Frame::Welcome(_)));
        a.connected("b").await;
    });
}

#[test]
fn no_more_strangers_are_taken_in_than_the_limit_says_and_the_silent_make_room() {
    run(async {
        let [place] = places();
        let limits = Limits { pending_max: 3, ..Limits::default() };
        let a = start(place, MeshConfig { limits, ..config(hello("a", &["a", "b"]), &[]) }).await;
        // A client that has sent something outlives later ones that have not.
        let mut slow = ScriptedPeer::dial(&a).await;
        let hello_of_b = codec::encode("main", &Frame::Hello(hello("b", &["a", "b"]))).unwrap();
        slow.0.stream.write_all(&hello_of_b[..1]).await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..10 {
            silent.push(TcpStream::connect(a.mesh.local_addr()).await.unwrap());
        }
        for first in &mut silent[..8] {
            assert_eq!(first.read(&mut [0; 1]).await.unwrap_or(0), 0);
        }
        assert_eq!(a.mesh.counters().pending_over_limit, 8);
        slow.0.stream.write_all(&hello_of_b[1..]).await.unwrap();
        assert!(matches!(slow.hear().await, Frame::Welcome(_)));
        slow.say(Frame::Ready).await;
        drop(silent);
        a.until(|counters| counters.handshakes_broken == 2).await;
    });
}

#[test]
fn only_what_its_connection_vouches_for_counts() {
    run(async {
        let [place] = places();
        let mut a = start(place, config(hello("a", &["a", "b"]), &[])).await;
        let me = hello("b", &["a", "b"]);
        let mut b = ScriptedPeer::enter(&a, me.clone()).await;
        let other_life = Incarnation { count: 9, nonce: 9 };
        b.say(Frame::Message(Word::Quorum(Message { incarnation: other_life, ..heartbeat(&me, 1) }))).await;
        let elsewhere = codec::encode("other", &Frame::Message(Word::Quorum(heartbeat(&me, 2)))).unwrap();
        b.0.stream.write_all(&elsewhere).await.unwrap();
        b.say(Frame::Ready).await;
        // An unknown field only, and bytes that are no envelope; neither closes the connection.
        b.0.stream.write_all(&[0, 0, 0, 9, 0x0a, 4, b'm', b'a', b'i', b'n', 0xa2, 6, 0]).await.unwrap();
        b.0.stream.write_all(&[0, 0, 0, 1, 0xff]).await.unwrap();
        // A node cannot report a death, and a guardian cannot send a node's messages.
        b.say(Frame::Died(me.identity)).await;
        let mut guardian = ScriptedPeer::enter(&a, me.of_guardian()).await;
        guardian.say(Frame::Message(Word::Quorum(heartbeat(&me, 3)))).await;
        a.until(|counters| counters.frames_misattributed == 2).await;
        b.say(Frame::Message(Word::Quorum(heartbeat(&me, 4)))).await;
        assert_eq!(a.message().await, (node("b"), heartbeat(&me, 4)));
        let counters = a.mesh.counters();
        assert_eq!((counters.frames_of_other_elections, counters.deaths_refused), (1, 1));
        assert_eq!((counters.frames_unknown, counters.frames_malformed), (1, 2));
    });
}

#[test]
fn a_term_that_no_election_leads_to_is_dropped_and_counted() {
    run(async {
        let [place] = places();
        let mut a = start(place, config(hello("a", &["a", "b"]), &[])).await;
        let me = hello("b", &["a", "b"]);
        let mut b = ScriptedPeer::enter(&a, me.clone()).await;
        let reach = 1 << 32;
        let at = |term| Message { term: Term(term), ..heartbeat(&me, term) };
        let passing_on = |term| {
            let resignation = Some(Resignation { leader: me.identity, term: Term(term) });
            Message { body: Body::PreVote { round: Round(1), resignation }, ..at(1) }
        };
        for message in [at(u64::MAX / 2), at(reach + 1), passing_on(reach + 1)] {
            b.say(Frame::Message(Word::Quorum(message))).await;
        }
        b.say(Frame::Readmitted(Term(reach + 1))).await;
        // A node that knows no term yet takes part in an old election.
        b.say(Frame::Readmitted(Term(reach))).await;
        b.say(Frame::Message(Word::Quorum(at(reach)))).await;
        let told = a.evidence(|found| matches!(found, Evidence::Readmitted { .. })).await;
        assert_eq!(told, Evidence::Readmitted { by: node("b"), term: Term(reach) });
        assert_eq!(a.message().await, (node("b"), at(reach)));
        let counters = a.mesh.counters();
        assert_eq!((counters.frames_term_too_high, counters.frames_received), (4, 1));
        // The limit grows with the node's own term, whether or not the node may report that.
        a.mesh.set_term(Some(Term(reach)));
        a.mesh.set_term(None);
        b.say(Frame::Message(Word::Quorum(passing_on(2 * reach)))).await;
        assert_eq!(a.message().await, (node("b"), passing_on(2 * reach)));
        // An election without durable terms goes by the terms that it has heard, and must accept the next ones.
        a.mesh.set_reached(Term(2 * reach));
        b.say(Frame::Message(Word::Quorum(passing_on(3 * reach)))).await;
        assert_eq!(a.message().await, (node("b"), passing_on(3 * reach)));
    });
}

#[test]
fn a_death_is_believed_from_the_guardian_of_that_very_life_only() {
    run(async {
        let [place] = places();
        let mut a = start(place, config(hello("a", &["a", "b", "c"]), &[])).await;
        let b = hello("b", &["a", "b", "c"]);
        let mut guardian = ScriptedPeer::enter(&a, b.of_guardian()).await;
        let other_life = Identity::new(node("b"), Incarnation { count: 2, nonce: 2 });
        let other_node = Identity::new(node("c"), b.identity.incarnation);
        for wrong in [other_life, other_node] {
            guardian.say(Frame::Died(wrong)).await;
        }
        a.until(|counters| counters.deaths_refused == 2).await;
        guardian.say(Frame::Died(b.identity)).await;
        assert_eq!(a.next().await, Arrival::Evidence(Evidence::Died(b.identity)));
        assert_eq!(guardian.hear().await, Frame::DiedHeard(b.identity));
        // A guardian's connection is not the node's: its end is no evidence.
        drop(guardian);
        let b = ScriptedPeer::enter(&a, b).await;
        assert!(matches!(a.next().await, Arrival::PeerDisk { .. }));
        a.connected("b").await;
        drop(b);
        a.evidence(|found| *found == Evidence::Disconnected(node("b"))).await;
    });
}

#[test]
fn a_process_that_dials_again_replaces_its_own_connection_and_nobody_elses() {
    run(async {
        let [place] = places();
        let mut a = start(place, config(hello("a", &["a", "b"]), &[])).await;
        let me = hello("b", &["a", "b"]);
        let mut first = ScriptedPeer::enter(&a, me.clone()).await;
        a.connected("b").await;
        let mut second = ScriptedPeer::enter(&a, me.clone()).await;
        first.closed().await;
        a.connected("b").await;
        let mut other = me.clone();
        other.identity.incarnation.count = 2;
        let third = ScriptedPeer::enter(&a, other).await;
        assert_eq!(a.connected("b").await.identity.incarnation.count, 2);
        second.say(Frame::Message(Word::Quorum(heartbeat(&me, 1)))).await;
        assert_eq!(a.message().await, (node("b"), heartbeat(&me, 1)));
        // Only the end of the last connection is evidence.
        drop(third);
        second.say(Frame::Message(Word::Quorum(heartbeat(&me, 2)))).await;
        assert!(matches!(a.next().await, Arrival::Message { .. }));
        drop(second);
        assert_eq!(a.next().await, Arrival::Evidence(Evidence::Disconnected(node("b"))));
    });
}

#[test]
fn what_cannot_work_is_refused_at_the_start() {
    run(async {
        let [place] = places();
        let taken = place.local_addr().unwrap();
        let error = Mesh::bind(taken, &Security::Loopback).unwrap_err();
        assert!(
            matches!(error, TransportError::InUse { .. }) && error.to_string().contains(&taken.to_string())
        );
        let error = Mesh::bind("0.0.0.0:0".parse().unwrap(), &Security::Loopback).unwrap_err();
        assert!(error.to_string().contains("0.0.0.0:0, which is not a loopback address"), "{error}");
        let refused = |peers: &'static [(&'static str, &'static str)]| async {
            let peers: Vec<(&str, String)> =
                peers.iter().map(|(name, at)| (*name, (*at).to_owned())).collect();
            let config = config(hello("a", &["a", "b"]), &peers);
            Mesh::start(config, mpsc::channel(1).0).await.unwrap_err()
        };
        Mesh::bind("0.0.0.0:0".parse().unwrap(), &Security::InsecureCleartext).unwrap();
        let alone = config(hello("a", &["a", "b"]), &[]);
        for far in ["10.1.2.3:4", "[2001:db8::1]:4", "[::ffff:8.8.8.8]:4"] {
            let error = check_peer(node("b"), far, &alone).await.unwrap_err();
            assert!(matches!(error, TransportError::NotLoopback { .. }), "{error}");
        }
        for near in ["127.9.9.9:1", "[::1]:1", "localhost:1", "[::ffff:127.0.0.1]:1"] {
            check_peer(node("b"), near, &alone).await.unwrap();
        }
        for broken in [&[("b", "localhost")], &[("b", ":1")], &[("b", "localhost:x")], &[("b", "[::1]:0")]] {
            assert!(matches!(refused(broken).await, TransportError::Address { .. }));
        }
        assert!(matches!(refused(&[("a", "[::1]:1")]).await, TransportError::PeerIsSelf { .. }));
        let twice = &[("b", "[::1]:1"), ("b", "[::1]:2")];
        assert!(matches!(refused(twice).await, TransportError::PeerTwice { .. }));
        let long = Hello { cluster: "x".repeat(1 << 17), ..hello("a", &["a"]) };
        let error = start_error(config(long, &[])).await;
        assert!(matches!(error, TransportError::TooLong { .. }), "{error}");
    });
}

async fn start_error(config: MeshConfig) -> TransportError {
    Mesh::start(config, mpsc::channel(1).0).await.unwrap_err()
}

#[test]
fn a_slow_driver_holds_up_its_peers_and_loses_nothing() {
    run(async {
        let (sender, mut inbox) = mpsc::channel(1);
        let me = config(hello("a", &["a", "b"]), &[]);
        let mesh = Mesh::start(me, sender).await.unwrap();
        let a = Node { mesh, inbox: mpsc::channel(1).1 };
        let b = hello("b", &["a", "b"]);
        let mut said = ScriptedPeer::enter(&a, b.clone()).await;
        for round in 0..500 {
            said.say(Frame::Message(Word::Quorum(heartbeat(&b, round)))).await;
        }
        let next = Cell::new(0);
        while next.get() < 500 {
            if let Some(Arrival::Message { message, .. }) = inbox.recv().await {
                assert_eq!(message, Word::Quorum(heartbeat(&b, next.get())));
                next.set(next.get() + 1);
            }
        }
    });
}

#[test]
fn safety_and_cluster_are_part_of_the_agreement() {
    run(async {
        let (a, _b) = pair(|_| {}, |b| b.safety = Safety::Fenced).await;
        a.until(|counters| counters.refused.contains_key(&RefusalKind::Safety)).await;
        let (a, _b) = pair(|_| {}, |b| b.cluster = "other".into()).await;
        a.until(|counters| counters.refused.contains_key(&RefusalKind::Cluster)).await;
        let mut twin = ScriptedPeer::dial(&a).await;
        let mut me = hello("a", &["a", "b"]);
        me.identity.incarnation.count = 2;
        twin.say(Frame::Hello(me)).await;
        let Frame::Refused(refused) = twin.hear().await else { panic!("it is refused") };
        assert_eq!(refused.kind, RefusalKind::MyOwnName);
    });
}

#[test]
fn the_last_word_of_a_dead_process_does_not_make_it_the_latest() {
    run(async {
        let [place] = places();
        let mut a = start(place, config(hello("a", &["a", "b"]), &[])).await;
        let dead = hello("b", &["a", "b"]);
        let mut living = dead.clone();
        living.identity.incarnation.count += 1;
        let mut late = ScriptedPeer::dial(&a).await;
        late.say(Frame::Hello(dead.clone())).await;
        assert!(matches!(late.hear().await, Frame::Welcome(_)));
        let mut latest = ScriptedPeer::enter(&a, living.clone()).await;
        assert_eq!(a.connected("b").await.identity, living.identity);
        late.say(Frame::Ready).await;
        late.closed().await;
        latest.say(Frame::Message(Word::Quorum(heartbeat(&living, 1)))).await;
        let next = Arrival::Message { from: node("b"), message: Word::Quorum(heartbeat(&living, 1)) };
        assert_eq!(a.next().await, next, "nothing was said of the other one");
        // A running process dials again, whatever the number of its hello.
        let _again = ScriptedPeer::enter(&a, dead.clone()).await;
        assert_eq!(a.connected("b").await.identity, dead.identity);
    });
}
