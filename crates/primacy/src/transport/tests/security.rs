//! Meshes under TLS, and their answers to clients without a valid certificate.

use crate::handshake::TlsProblem;
use crate::transport::session::Session;
use crate::transport::tls::explain;
use crate::transport::tls::tests::{Authority, FUTURE, NOW, PAST, Valid, anonymous, credentials, replace};

use super::*;

const VOTERS: [&str; 3] = ["a", "b", "c"];

fn tls_of(problem: TlsProblem) -> RefusalKind {
    RefusalKind::Tls(problem)
}

/// Starts `name` as one of [`VOTERS`], with this security.
async fn secured(
    listener: TcpListener,
    name: &str,
    peers: &[(&str, String)],
    security: Security,
    limits: Limits,
) -> Node {
    start(listener, MeshConfig { security, limits, ..config(hello(name, &VOTERS), peers) }).await
}

/// `a` and `b` with certificates of one authority, and a listener for `c`, which both dial.
struct Pair {
    authority: Authority,
    a: Node,
    b: Node,
    place_c: Option<TcpListener>,
}

impl Pair {
    async fn start(limits: Limits) -> Self {
        let authority = Authority::new();
        let [place_a, place_b, place_c] = places();
        let (at_a, at_b, at_c) = (at(&place_a), at(&place_b), at(&place_c));
        let of = |name| Security::Tls(authority.issue(name, NOW));
        let peers = [("b", at_b), ("c", at_c.clone())];
        let mut a = secured(place_a, "a", &peers, of("a"), limits).await;
        let mut b = secured(place_b, "b", &[("a", at_a), ("c", at_c)], of("b"), limits).await;
        a.connected("b").await;
        b.connected("a").await;
        a.link_to("b").await;
        b.link_to("a").await;
        Self { authority, a, b, place_c: Some(place_c) }
    }

    /// Starts `c` with any certificates.
    async fn with_c(&mut self, security: Security) -> Node {
        let [(_, at_a), (_, at_b)] = [&self.a, &self.b].map(|node| ("", node.mesh.local_addr().to_string()));
        let place = self.place_c.take().unwrap();
        secured(place, "c", &[("a", at_a), ("b", at_b)], security, Limits::default()).await
    }

    /// Checks that the two nodes are still connected, with no other arrivals since the start.
    async fn still_talk(&mut self, round: u64) {
        for (name, other) in [("a", "b"), ("b", "a")] {
            let (from, to) = if name == "a" { (&self.a, &mut self.b) } else { (&self.b, &mut self.a) };
            let message = heartbeat(&hello(name, &[]), round);
            assert_eq!(from.mesh.send(node(other), Word::Quorum(message.clone())), Delivery::Written);
            loop {
                match to.next().await {
                    Arrival::Message { message: heard, .. } => {
                        break assert_eq!(heard, Word::Quorum(message));
                    }
                    Arrival::Evidence(Evidence::Disconnected(gone)) => assert_eq!(gone, node("c")),
                    Arrival::Evidence(_) | Arrival::PeerDisk { .. } => {}
                }
            }
        }
    }
}

/// Connects a client that sends frames by hand, under TLS.
async fn dial_under_tls(target: &Node, authority: &Authority, certificate_of: &str) -> ScriptedPeer {
    let tcp =
        prepare(TcpStream::connect(target.mesh.local_addr()).await.unwrap(), &Limits::default()).unwrap();
    let mine = credentials(&authority.issue(certificate_of, NOW), certificate_of);
    let session = Session::dial(tcp, &mine, target.mesh.shared.node).unwrap();
    session.shake_hands().await.unwrap();
    ScriptedPeer(Connection::new(Rc::new(Stream::Tls(Box::new(session)))))
}

#[test]
fn two_nodes_talk_under_tls_and_what_is_sent_has_left_at_once() {
    run(async {
        let Pair { authority, mut a, mut b, place_c } = Pair::start(Limits::default()).await;
        for round in 0..200 {
            let (question, answer) = (heartbeat(&hello("a", &[]), round), heartbeat(&hello("b", &[]), round));
            assert_eq!(a.mesh.send(node("b"), Word::Quorum(question.clone())), Delivery::Written);
            assert_eq!(b.message().await, (node("a"), question));
            assert_eq!(b.mesh.send(node("a"), Word::Quorum(answer.clone())), Delivery::Written);
            assert_eq!(a.message().await, (node("b"), answer));
        }
        let certificate = a.mesh.certificate().unwrap();
        assert_eq!((certificate.replaced, certificate.trouble), (0, None));

        // Both have dialled `c`. The message to it is in its kernel though this thread has not yielded, and is
        // unreadable on the network.
        let listener = tokio::net::TcpListener::from_std(place_c.unwrap()).unwrap();
        let mine = credentials(&authority.issue("c", NOW), "c");
        let raw = loop {
            let tcp = prepare(listener.accept().await.unwrap().0, &Limits::default()).unwrap();
            let session = Session::answer(Rc::clone(&tcp), &mine).unwrap();
            session.shake_hands().await.unwrap();
            let mut c = ScriptedPeer(Connection::new(Rc::new(Stream::Tls(Box::new(session)))));
            let Frame::Hello(theirs) = c.hear().await else { panic!("it says who it is") };
            c.say(Frame::Welcome(hello("c", &VOTERS))).await;
            assert_eq!(c.hear().await, Frame::Ready);
            if theirs.identity.node == node("a") {
                break (tcp, c);
            }
        };
        a.link_to("c").await;
        assert_eq!(a.mesh.send(node("c"), Word::Quorum(heartbeat(&hello("a", &[]), 1))), Delivery::Written);
        let mut bytes = [0; 256];
        raw.0.readable().await.unwrap();
        let count = raw.0.try_read(&mut bytes).unwrap();
        let name = b"main";
        assert!(count > 0 && !bytes[..count].windows(name.len()).any(|seen| seen == name));
    });
}

#[test]
fn a_peer_that_does_not_read_costs_a_bounded_buffer_under_tls_and_breaks_no_frame() {
    run(async {
        let authority = Authority::new();
        let [place_a, place_b] = places();
        let security = Security::Tls(authority.issue("a", NOW));
        let a = secured(place_a, "a", &[("b", at(&place_b))], security, Limits::default()).await;
        let listener = tokio::net::TcpListener::from_std(place_b).unwrap();
        let tcp = prepare(listener.accept().await.unwrap().0, &Limits::default()).unwrap();
        let session = Session::answer(tcp, &credentials(&authority.issue("b", NOW), "b")).unwrap();
        session.shake_hands().await.unwrap();
        let mut b = ScriptedPeer(Connection::new(Rc::new(Stream::Tls(Box::new(session)))));
        assert!(matches!(b.hear().await, Frame::Hello(_)));
        b.say(Frame::Welcome(hello("b", &VOTERS))).await;
        assert_eq!(b.hear().await, Frame::Ready);
        a.link_to("b").await;
        let message = |round| heartbeat(&hello("a", &[]), round);
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
    });
}

/// Checks the refusals when `c` uses these certificates, on its side and on the others': the counters, and a part of
/// each text.
async fn refused_certificate(
    security_of_c: impl FnOnce(&Authority) -> Security,
    (found, found_text): (TlsProblem, &str),
    (heard, heard_text): (TlsProblem, &str),
) {
    let mut pair = Pair::start(Limits::default()).await;
    let c = pair.with_c(security_of_c(&pair.authority)).await;
    let (found, heard) = (tls_of(found), tls_of(heard));
    // They have dialled `c`, and `c` has dialled them; both times the certificate of `c` was refused.
    pair.a.until(|counters| counters.refused.get(&found).is_some_and(|&count| count >= 2)).await;
    until(|| pair.a.peer("c").refusal.is_some() && pair.a.mesh.unidentified_refused().is_some()).await;
    let refusal = pair.a.peer("c").refusal.unwrap();
    assert!(
        refusal.text.starts_with("a refuses c: ") && refusal.text.contains(found_text),
        "{}",
        refusal.text
    );
    assert_eq!((refusal.by_peer, refusal.kind), (false, found));
    assert!(pair.a.peer("c").trouble.unwrap().contains(found_text));
    let refused = pair.a.mesh.unidentified_refused().unwrap();
    assert!(refused.text.starts_with("a refuses an unidentified peer at 127.0.0.1: "), "{}", refused.text);
    c.until(|counters| counters.refused_by_peers.get(&heard).is_some_and(|&count| count >= 2)).await;
    until(|| c.peer("a").refusal.is_some_and(|refusal| refusal.by_peer && refusal.kind == heard)).await;
    let text = c.peer("a").refusal.unwrap().text;
    assert!(text.starts_with("a refuses c: ") && text.contains(heard_text), "{text}");
    assert!(text.contains("c.pem"), "it names the file: {text}");
    assert_eq!((c.peer("a").inbound, c.peer("a").outbound), (None, None));
    pair.still_talk(1).await;
}

#[test]
fn an_expired_certificate_is_refused_and_both_sides_say_so() {
    run(refused_certificate(
        |authority| Security::Tls(authority.issue("c", PAST)),
        (TlsProblem::Expired, "its certificate expired at 20"),
        (TlsProblem::Expired, "that is over or to come by the clock of a"),
    ));
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_refused_and_both_sides_say_so() {
    run(refused_certificate(
        |authority| Security::Tls(authority.issue("c", FUTURE)),
        (TlsProblem::NotYetValid, "its certificate is valid only from 20"),
        (TlsProblem::NotYetValid, "correct the clocks"),
    ));
}

#[test]
fn a_certificate_of_another_authority_is_refused_and_both_sides_say_so() {
    for name in ["test", "another"] {
        run(async {
            let other = Authority::named(name);
            refused_certificate(
                // It accepts the other nodes' certificates; only they refuse its own.
                |authority| {
                    let files = TlsFiles { ca: authority.dir.join("ca.pem"), ..other.issue("c", NOW) };
                    Security::Tls(files)
                },
                (TlsProblem::UnknownIssuer, "was issued by none of the authorities in a's"),
                (TlsProblem::UnknownIssuer, "was issued by none of the authorities of a"),
            )
            .await;
        });
    }
}

#[test]
fn a_certificate_of_another_node_is_refused_whoever_dials() {
    run(async {
        let mut pair = Pair::start(Limits::default()).await;
        // A valid certificate of another node than the client claims to be.
        let mut liar = dial_under_tls(&pair.a, &pair.authority, "c").await;
        liar.say(Frame::Hello(hello("b", &VOTERS))).await;
        let Frame::Refused(refused) = liar.hear().await else { panic!("it is refused") };
        assert_eq!(refused.kind, tls_of(TlsProblem::OtherName));
        assert!(refused.text.contains("a refuses b: its certificate is for c;"), "{}", refused.text);
        assert!(refused.text.contains("DNS:b"), "{}", refused.text);
        liar.closed().await;
        assert_eq!(pair.a.mesh.counters().refused[&tls_of(TlsProblem::OtherName)], 1);
        let mut guardian = dial_under_tls(&pair.a, &pair.authority, "c").await;
        guardian.say(Frame::Hello(hello("b", &VOTERS).of_guardian())).await;
        assert!(matches!(guardian.hear().await, Frame::Refused(_)));
        // A client without a certificate claims to be `b`, too. An unproved claim is not shown with `b`.
        let mut clear = ScriptedPeer::dial(&pair.a).await;
        clear.say(Frame::Hello(hello("b", &VOTERS))).await;
        assert!(matches!(clear.hear().await, Frame::Refused(_)));
        let refused = pair.a.mesh.unidentified_refused().unwrap();
        assert!(refused.text.contains("a refuses b: it speaks cleartext"), "{}", refused.text);
        assert_eq!(pair.a.peer("b").refusal, None);
        // At the address of `c`, `b` answers as itself.
        let place = pair.place_c.take().unwrap();
        let security = Security::Tls(pair.authority.issue("b", NOW));
        let impostor = secured(place, "b", &[], security, Limits::default()).await;
        until(|| pair.a.peer("c").refusal.is_some()).await;
        let refusal = pair.a.peer("c").refusal.unwrap();
        assert!(
            refusal.text.contains("a refuses c: its certificate is for b; give it one"),
            "{}",
            refusal.text
        );
        let heard =
            |counters: &Counters| counters.refused_by_peers.contains_key(&tls_of(TlsProblem::OtherName));
        impostor.until(heard).await;
        let text = impostor.mesh.unidentified_refused().unwrap().text;
        assert!(
            text.contains("an unidentified peer at 127.0.0.1 refuses b") && text.contains("b.pem"),
            "{text}"
        );
        pair.still_talk(1).await;
    });
}

#[test]
fn a_certificate_for_one_side_only_is_refused_on_the_other() {
    run(async {
        let mut pair = Pair::start(Limits::default()).await;
        let c = pair.with_c(Security::Tls(pair.authority.issue_for_one_side("c"))).await;
        let trouble = c.mesh.certificate().unwrap().trouble.unwrap();
        assert!(trouble.contains("c.pem is not accepted by this node itself"), "{trouble}");
        let purpose = tls_of(TlsProblem::Purpose);
        c.until(|counters| counters.refused_by_peers.contains_key(&purpose)).await;
        assert!(
            c.peer("a")
                .refusal
                .unwrap()
                .text
                .contains("issue it with extendedKeyUsage = serverAuth, clientAuth")
        );
        pair.a.until(|counters| counters.refused.contains_key(&purpose)).await;
        let text = pair.a.mesh.unidentified_refused().unwrap().text;
        assert!(text.contains("issue it with extendedKeyUsage = serverAuth, clientAuth"), "{text}");
        pair.still_talk(1).await;
    });
}

#[test]
fn one_without_a_certificate_is_refused_and_told_so() {
    run(async {
        let mut pair = Pair::start(Limits::default()).await;
        let address = pair.a.mesh.local_addr();
        let tcp = prepare(TcpStream::connect(address).await.unwrap(), &Limits::default()).unwrap();
        let mine = anonymous(&pair.authority.issue("c", NOW), "c");
        let session = Session::dial(tcp, &mine, node("a")).unwrap();
        // On the dialling side the handshake seems to have succeeded; then it receives the alert.
        session.shake_hands().await.unwrap();
        let mut nobody = Connection::new(Rc::new(Stream::Tls(Box::new(session))));
        let error = nobody.read().await.unwrap_err();
        let heard = explain(error.tls().unwrap(), node("c"), "a", &mine);
        assert_eq!((heard.problem, heard.by_peer), (TlsProblem::NoCertificate, true), "{}", heard.text);
        assert_eq!(pair.a.mesh.counters().refused[&tls_of(TlsProblem::NoCertificate)], 1);
        let text = pair.a.mesh.unidentified_refused().unwrap().text;
        assert!(
            text.contains("an unidentified peer at 127.0.0.1: it presents no certificate; give it one"),
            "{text}"
        );
        pair.still_talk(1).await;
    });
}

#[test]
fn one_that_speaks_cleartext_and_one_that_speaks_tls_tell_each_other() {
    run(async {
        let mut pair = Pair::start(Limits::default()).await;
        let c = pair.with_c(Security::Loopback).await;
        // `c` has dialled `a`, and gets the refusal in cleartext.
        until(|| c.peer("a").refusal.is_some()).await;
        let refusal = c.peer("a").refusal.unwrap();
        assert_eq!((refusal.by_peer, refusal.kind), (true, tls_of(TlsProblem::Cleartext)));
        assert!(
            refusal.text.contains("a refuses c: it speaks cleartext where TLS is expected; give it --tls")
        );
        // `a` has dialled `c`, and each knows it from its own side.
        pair.a.until(|counters| counters.refused.contains_key(&tls_of(TlsProblem::Cleartext))).await;
        until(|| pair.a.peer("c").trouble.is_some_and(|text| text.contains("speaks cleartext"))).await;
        c.until(|counters| counters.refused.contains_key(&tls_of(TlsProblem::NotCleartext))).await;
        let text = c.mesh.unidentified_refused().unwrap().text;
        assert!(
            text.contains("it speaks TLS where cleartext is expected; give c --tls-certificate"),
            "{text}"
        );
        pair.still_talk(1).await;
    });
}

#[test]
fn certificates_are_replaced_under_load_and_nobody_is_disconnected() {
    run(async {
        let limits = Limits { certificate_check: Duration::from_millis(20), ..Limits::default() };
        let mut pair = Pair::start(limits).await;
        for round in 0..5 {
            for name in ["a", "b"] {
                pair.authority.issue(name, Valid(-60, 7200 + i64::try_from(round).unwrap()));
            }
            // Both make a new connection, and close the old one when the new one is established.
            let replaced = |node: &Node| node.mesh.certificate().unwrap().replaced > round;
            until(|| replaced(&pair.a) && replaced(&pair.b)).await;
            for (one, other) in [(&mut pair.b, "a"), (&mut pair.a, "b")] {
                loop {
                    match one.next().await {
                        Arrival::Evidence(Evidence::Connected(peer)) if peer.identity.node == node(other) => {
                            break;
                        }
                        Arrival::Evidence(Evidence::Disconnected(gone)) => panic!("{gone} was disconnected"),
                        Arrival::Evidence(_) | Arrival::Message { .. } | Arrival::PeerDisk { .. } => {}
                    }
                }
            }
            pair.still_talk(round).await;
        }
    });
}

#[test]
fn a_connection_does_not_outlive_the_trust_in_its_certificate_for_long() {
    run(async {
        let brief = Duration::from_millis(20);
        let limits = Limits { certificate_check: brief, certificate_grace: brief, ..Limits::default() };
        let mut pair = Pair::start(limits).await;
        // From now on `a` accepts another authority, which has issued its own certificate.
        let other = Authority::named("another");
        let Security::Tls(files) = pair.a.mesh.shared.security.clone() else { panic!("it has files") };
        replace(&files.ca, &other.pem);
        other.issue_into(&files, "a", NOW);
        pair.a.evidence(|found| *found == Evidence::Disconnected(node("b"))).await;
        pair.a.until(|counters| counters.refused.contains_key(&tls_of(TlsProblem::UnknownIssuer))).await;
        until(|| pair.a.peer("b").outbound.is_none()).await;
    });
}

#[test]
fn a_connection_does_not_outlive_its_certificate_for_long() {
    run(async {
        let brief = Duration::from_millis(20);
        let limits = Limits { certificate_check: brief, certificate_grace: brief, ..Limits::default() };
        let authority = Authority::new();
        let [place_a, place_b] = places();
        let (at_a, at_b) = (at(&place_a), at(&place_b));
        let short = Security::Tls(authority.issue("a", Valid(-60, 4)));
        let mut b =
            secured(place_b, "b", &[("a", at_a)], Security::Tls(authority.issue("b", NOW)), limits).await;
        let _a = secured(place_a, "a", &[("b", at_b)], short, limits).await;
        b.connected("a").await;
        b.link_to("a").await;
        b.evidence(|found| *found == Evidence::Disconnected(node("a"))).await;
        until(|| b.peer("a").outbound.is_none()).await;
        b.until(|counters| counters.refused.contains_key(&tls_of(TlsProblem::Expired))).await;
        assert!(b.peer("a").refusal.unwrap().text.contains("expired at"));
    });
}

#[test]
fn tls_may_be_spoken_beyond_loopback_and_must_have_its_files() {
    run(async {
        let authority = Authority::new();
        let security = Security::Tls(authority.issue("a", NOW));
        let everywhere = "0.0.0.0:0".parse().unwrap();
        let listener = Mesh::bind(everywhere, &security).unwrap();
        let far = [("b", "192.0.2.1:7".to_owned())];
        let a = secured(listener, "a", &far, security.clone(), Limits::default()).await;
        assert!(!a.mesh.local_addr().ip().is_loopback());
        let missing = TlsFiles { ca: authority.dir.join("none"), ..authority.issue("a", NOW) };
        let me = MeshConfig { security: Security::Tls(missing), ..config(hello("a", &VOTERS), &[]) };
        let error = start_error(me).await;
        assert!(matches!(error, TransportError::Tls(TlsError::Read { .. })), "{error}");
    });
}
