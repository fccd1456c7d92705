//! A notifier against real meshes, each on a thread of its own, as in a node process.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use primacy_core::{Evidence, Term};

use super::*;
use crate::death_notice::DeathNoticeSpec;
use crate::handshake::tests::{hello, node};
use crate::transport::tls::tests::{Authority, NOW, PAST, replace};
use crate::transport::{Arrival, Mesh, MeshConfig, TlsFiles};

const BOUND: StdDuration = StdDuration::from_secs(20);
const VOTERS: [&str; 3] = ["a", "b", "c"];

/// A mesh on its own thread, which reports its arrivals, until it is dropped.
struct Node {
    address: SocketAddr,
    arrivals: mpsc::Receiver<Arrival>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    fn start(me: Hello, listen: SocketAddr) -> Self {
        Self::start_with(me, listen, Security::Loopback)
    }

    fn start_with(me: Hello, listen: SocketAddr, security: Security) -> Self {
        let (told, address) = mpsc::channel();
        let (tell, arrivals) = mpsc::channel();
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async {
                let (sender, mut inbox) = tokio::sync::mpsc::channel(16);
                let (peers, peer_disks, limits) = (Vec::new(), BTreeMap::new(), Limits::default());
                let term = Some(Term(0));
                let config = MeshConfig { me, listen, peers, peer_disks, term, security, limits };
                let mesh = Mesh::start(config, sender).await.unwrap();
                told.send(mesh.local_addr()).unwrap();
                loop {
                    tokio::select! {
                        Some(arrival) = inbox.recv() => { let _ = tell.send(arrival); }
                        _ = &mut stopped => break,
                    }
                }
                mesh.shutdown().await;
            });
        });
        let address = address.recv_timeout(BOUND).unwrap();
        Self { address, arrivals, stop: Some(stop), thread: Some(thread) }
    }

    fn hears_of(&self, identity: Identity) {
        let arrival = self.arrivals.recv_timeout(BOUND).unwrap();
        assert_eq!(arrival, Arrival::Evidence(Evidence::Died(identity)));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn notifier(me: &Hello, peers: &[(&str, SocketAddr)]) -> PeersNotifier {
    notifier_with(me, peers, &Security::Loopback)
}

fn notifier_with(me: &Hello, peers: &[(&str, SocketAddr)], security: &Security) -> PeersNotifier {
    let peers = peers.iter().map(|(name, address)| (node(name), address.to_string())).collect();
    let spec = DeathNoticeSpec::peers(me, peers, security);
    // The specification is serialized on its way to another process.
    let spec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    let DeathNoticeSpec::Peers { hello, peers, security, .. } = spec else { panic!("it names peers") };
    PeersNotifier::new(&hello, &peers, &security, Limits::default()).unwrap()
}

impl PeersNotifier {
    /// Waits until there are `count` connections.
    fn ready(&self, count: usize) {
        let state = self.shared.lock();
        let connected = |state: &State| state.links.values().filter(|link| link.wire.is_some()).count();
        let missing = |state: &mut State| connected(state) != count;
        let (_state, waited) = self.shared.changed.wait_timeout_while(state, BOUND, missing).unwrap();
        assert!(!waited.timed_out(), "the connections do not come");
    }
}

impl PeersNotifier {
    /// Waits until the connection to the only peer has failed, and returns the reason.
    fn trouble(&self) -> String {
        let state = self.shared.lock();
        let fine = |state: &mut State| state.links.values().any(|link| link.trouble.is_none());
        let (state, waited) = self.shared.changed.wait_timeout_while(state, BOUND, fine).unwrap();
        assert!(!waited.timed_out(), "nothing is wrong");
        state.links.values().find_map(|link| link.trouble.clone()).unwrap()
    }
}

#[test]
fn a_death_is_told_to_every_peer_and_confirmed() {
    let (b, c) = (Node::start(hello("b", &VOTERS), anywhere()), Node::start(hello("c", &VOTERS), anywhere()));
    let a = hello("a", &VOTERS);
    let mut notifier = notifier(&a, &[("b", b.address), ("c", c.address)]);
    notifier.ready(2);
    assert_eq!(notifier.connected(), [node("b"), node("c")]);
    let receipt = notifier.notify(BOUND);
    assert_eq!(receipt, Receipt { heard: vec![node("b"), node("c")], ..Receipt::default() });
    b.hears_of(a.identity);
    c.hears_of(a.identity);
    // Called again: the peers have confirmed it, and get no second notice.
    assert_eq!(notifier.notify(BOUND), receipt);
}

#[test]
fn a_peer_that_cannot_be_reached_is_reported_after_the_bound() {
    let b = Node::start(hello("b", &VOTERS), anywhere());
    let gone = std::net::TcpListener::bind(anywhere()).unwrap().local_addr().unwrap();
    let mut notifier = notifier(&hello("a", &VOTERS), &[("b", b.address), ("c", gone)]);
    notifier.ready(1);
    let started = StdInstant::now();
    let receipt = notifier.notify(StdDuration::from_millis(200));
    assert!(started.elapsed() >= StdDuration::from_millis(200));
    assert_eq!(receipt.heard, [node("b")]);
    let [(unheard, why)] = &receipt.unheard[..] else { panic!("{receipt:?}") };
    assert_eq!(*unheard, node("c"));
    assert!(why.contains("not reachable"), "{why}");
}

#[test]
fn a_peer_that_comes_back_while_the_death_is_told_still_hears_of_it() {
    let b = Node::start(hello("b", &VOTERS), anywhere());
    let (a, address) = (hello("a", &VOTERS), b.address);
    let mut notifier = notifier(&a, &[("b", address)]);
    notifier.ready(1);
    drop(b);
    notifier.ready(0);
    let teller = std::thread::spawn(move || notifier.notify(BOUND));
    let b = Node::start(hello("b", &VOTERS), address);
    b.hears_of(a.identity);
    assert_eq!(teller.join().unwrap().heard, [node("b")]);
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let b = Node::start(hello("b", &VOTERS), anywhere());
    let address = b.address;
    let notifier = notifier(&hello("a", &VOTERS), &[("b", address)]);
    notifier.ready(1);
    drop(b);
    notifier.ready(0);
    let _b = Node::start(hello("b", &VOTERS), address);
    notifier.ready(1);
}

/// A peer with another address is disconnected and dialled like a new one.
#[test]
fn peers_come_and_go_and_who_stays_notices_nothing() {
    let start = |name| Node::start(hello(name, &VOTERS), anywhere());
    let (b, c, elsewhere) = (start("b"), start("c"), start("c"));
    let a = hello("a", &VOTERS);
    let mut notifier = notifier(&a, &[("b", b.address), ("c", c.address)]);
    notifier.ready(2);
    let of_b = |notifier: &PeersNotifier| notifier.shared.lock().links[&node("b")].wire.clone().unwrap();
    let before = of_b(&notifier);
    let reach = |notifier: &PeersNotifier, peers: &[(&str, &Node)]| {
        let peers: Vec<_> =
            peers.iter().map(|(name, at)| (name.to_string(), at.address.to_string())).collect();
        notifier.reach(&peers).unwrap();
    };
    for peers in [&[("b", &b), ("c", &elsewhere)][..], &[("b", &b)], &[("b", &b), ("c", &elsewhere)]] {
        reach(&notifier, peers);
        notifier.ready(peers.len());
    }
    assert!(Arc::ptr_eq(&of_b(&notifier), &before));
    assert_eq!(notifier.notify(BOUND).heard, [node("b"), node("c")]);
    b.hears_of(a.identity);
    elsewhere.hears_of(a.identity);
    assert!(c.arrivals.try_recv().is_err(), "it was left");
    // A peer that is added after the report gets the notice too.
    reach(&notifier, &[("b", &b), ("c", &c)]);
    c.hears_of(a.identity);
}

#[test]
fn a_peer_that_refuses_says_why() {
    let b = Node::start(hello("b", &["a", "b"]), anywhere());
    let mut notifier = notifier(&hello("a", &VOTERS), &[("b", b.address)]);
    let receipt = notifier.notify(StdDuration::from_millis(500));
    assert!(receipt.unheard[0].1.contains("their voters differ"), "{receipt:?}");
}

#[test]
fn a_spec_that_was_not_made_by_a_node_is_refused() {
    let spec = DeathNoticeSpec::peers(&hello("a", &VOTERS), Vec::new(), &Security::Loopback);
    let DeathNoticeSpec::Peers { hello, security, .. } = spec else { panic!("it names peers") };
    let nameless = [(String::new(), "x:1".into())];
    let error = PeersNotifier::new(&hello, &nameless, &security, Limits::default()).unwrap_err();
    assert!(error.to_string().contains("same version"), "{error}");
}

#[test]
fn a_death_is_told_under_tls_with_the_certificate_of_the_moment() {
    let authority = Authority::new();
    let of = |name: &str| Security::Tls(authority.issue(name, NOW));
    let start = |name: &str, listen| Node::start_with(hello(name, &VOTERS), listen, of(name));
    let (b, c) = (start("b", anywhere()), start("c", anywhere()));
    let a = hello("a", &VOTERS);
    let peers = [("b", b.address), ("c", c.address)];
    let mut notifier = notifier_with(&a, &peers, &of("a"));
    notifier.ready(2);
    // Its certificate and the authority are replaced, so that the certificate from the start is no longer accepted.
    let address = c.address;
    drop(c);
    notifier.ready(1);
    let other = Authority::named("other");
    let Security::Tls(files) = of("a") else { unreachable!("it has files") };
    replace(&files.ca, &format!("{}{}", authority.pem, other.pem));
    other.issue_into(&files, "a", NOW);
    let files = TlsFiles { ca: files.ca.clone(), ..other.issue("c", NOW) };
    let c = Node::start_with(hello("c", &VOTERS), address, Security::Tls(files));
    notifier.ready(2);
    let receipt = notifier.notify(BOUND);
    assert_eq!(receipt, Receipt { heard: vec![node("b"), node("c")], ..Receipt::default() });
    b.hears_of(a.identity);
    c.hears_of(a.identity);
}

#[test]
fn a_guardian_without_a_good_certificate_is_told_so() {
    let authority = Authority::new();
    let files = authority.issue("b", NOW);
    let b = Node::start_with(hello("b", &VOTERS), anywhere(), Security::Tls(files));
    let a = hello("a", &VOTERS);
    for (security, why) in [
        (Security::Loopback, "b refuses a: it speaks cleartext where TLS is expected"),
        (Security::Tls(authority.issue("a", PAST)), "b refuses a: a's certificate"),
    ] {
        let trouble = notifier_with(&a, &[("b", b.address)], &security).trouble();
        assert!(trouble.contains(why), "{trouble}");
    }
    // If another node answers, nothing is sent to it.
    let trouble = notifier_with(&a, &[("c", b.address)], &Security::Tls(authority.issue("a", NOW))).trouble();
    assert!(trouble.contains("a refuses c: its certificate is for b"), "{trouble}");
    // A notifier with TLS dials a node without TLS.
    let clear = Node::start(hello("c", &VOTERS), anywhere());
    let trouble =
        notifier_with(&a, &[("c", clear.address)], &Security::Tls(authority.issue("a", NOW))).trouble();
    assert!(trouble.contains("speaks cleartext where TLS is expected"), "{trouble}");
}
