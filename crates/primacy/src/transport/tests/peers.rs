//! Meshes of nodes with metadata: peers are added, removed and moved.

use primacy_kv::machine;

use super::*;
use crate::handshake::tests::keeper;

/// The voters in the record `(term, 1)`.
fn stated(term: u64, members: &[(&str, &str)]) -> Arc<voters::Voters> {
    let members = members.iter().map(|(name, address)| (node(name), (*address).into())).collect();
    Arc::new(voters::Voters { number: LeaderSequence::first(Term(term)), members })
}

impl Node {
    /// Sets these voters as the voters and the peers.
    fn goes_by(&self, voters: &Arc<voters::Voters>) {
        self.mesh.set_peers(&voters.members, voters).unwrap();
    }

    /// Waits until an unidentified connection is refused, and returns the refusal.
    async fn refused(&self) -> PeerRefusal {
        until(|| self.mesh.unidentified_refused().is_some()).await;
        self.mesh.unidentified_refused().unwrap()
    }

    /// Returns the next voters that a node sends, and that node.
    async fn told(&mut self) -> (NodeId, Arc<voters::Voters>) {
        loop {
            if let Arrival::Message { from, message: Word::Metadata(message) } = self.next().await
                && let machine::Message::Voters { voters, .. } = *message
            {
                return (from, voters);
            }
        }
    }
}

/// A test message from `from`, of a kind that its mesh never sends by itself.
fn word(from: &Hello, round: u64) -> Word {
    let body = primacy_kv::replication::message::Body::Offer { number: LeaderSequence::first(Term(round)) };
    let incarnation = from.identity.incarnation;
    Word::Metadata(Box::new(machine::Message::Log { incarnation, term: Term(round), body }))
}

/// Waits for this message; any other of its kind fails the test.
async fn hears(to: &mut Node, from: &Hello, round: u64) {
    loop {
        if let Arrival::Message { from: speaker, message } = to.next().await {
            assert_eq!((speaker, message), (from.identity.node, word(from, round)));
            return;
        }
    }
}

#[test]
fn one_that_is_added_is_let_in_and_dialled_and_one_that_was_not_is_told_what_to_do() {
    run(async {
        let [place_a, place_b, place_x] = places();
        let (at_a, at_b, at_x) = (at(&place_a), at(&place_b), at(&place_x));
        let (old, with_x) = ([("a", at_a.as_str()), ("b", &at_b)], ["a", "b", "x"]);
        let mut a = start(place_a, config(keeper("a", 0, &["a", "b"]), &[("b", at_b.clone())])).await;
        let mut b = start(place_b, config(keeper("b", 0, &["a", "b"]), &[("a", at_a.clone())])).await;
        a.connected("b").await;
        b.connected("a").await;
        let before = stated(3, &old);
        a.goes_by(&before);
        b.goes_by(&before);
        // By its configuration, the new node is a voter.
        let me = keeper("x", 0, &with_x);
        let mut x = start(place_x, config(me.clone(), &[("a", at_a.clone()), ("b", at_b.clone())])).await;
        let refusal = a.refused().await;
        assert_eq!(refusal.kind, RefusalKind::NotAVoter);
        assert!(refusal.text.contains("{a, b} of the record (3, 1)"), "{}", refusal.text);
        assert!(refusal.text.contains("`primacy member add x=HOST:PORT`"), "{}", refusal.text);
        until(|| x.peer("a").refusal.is_some_and(|refusal| refusal.by_peer)).await;
        // At first only the leader connects to it; it votes for no candidate yet.
        let mut reached = before.members.clone();
        reached.insert(node("x"), at_x.as_str().into());
        a.mesh.set_peers(&reached, &before).unwrap();
        a.connected("x").await;
        a.link_to("x").await;
        x.connected("a").await;
        assert_eq!(a.mesh.voters(), (Voters::new([node("a"), node("b")]), before.number));
        assert_eq!(x.told().await, (node("a"), Arc::clone(&before)));
        assert_eq!(a.mesh.send(node("x"), word(&keeper("a", 0, &[]), 1)), Delivery::Written);
        hears(&mut x, &keeper("a", 0, &[]), 1).await;
        assert!(b.mesh.peers().iter().all(|peer| peer.node != node("x")));
        // Then it is a voter for all nodes.
        let after = stated(4, &[old[0], old[1], ("x", &at_x)]);
        for node in [&a, &b, &x] {
            node.goes_by(&after);
        }
        b.connected("x").await;
        b.link_to("x").await;
        x.link_to("b").await;
        assert_eq!(x.mesh.send(node("b"), word(&me, 2)), Delivery::Written);
        hears(&mut b, &me, 2).await;
        // The connections between the other nodes were not disturbed.
        assert_eq!(a.peer("b").inbound, Some(keeper("b", 0, &[]).identity));
        while let Ok(arrival) = a.inbox.try_recv() {
            assert!(!matches!(arrival, Arrival::Evidence(Evidence::Disconnected(_))), "{arrival:?}");
        }
    });
}

#[test]
fn one_that_is_removed_hears_what_was_said_before_and_nothing_after_and_is_refused() {
    run(async {
        let [place_a, place_b] = places();
        let (at_a, at_b) = (at(&place_a), at(&place_b));
        let me = keeper("b", 0, &["a", "b"]);
        let mut a = start(place_a, config(keeper("a", 0, &["a", "b"]), &[("b", at_b.clone())])).await;
        let mut b = accept(place_b, me.clone()).await;
        a.link_to("b").await;
        let mut said = ScriptedPeer::enter(&a, me.clone()).await;
        let mut guardian = ScriptedPeer::enter(&a, me.of_guardian()).await;
        a.connected("b").await;
        // More than the kernel takes: waiting bytes must be sent, too.
        let (mut sent, mut buffered) = (0, 0);
        while buffered < 100 {
            match a.mesh.send(node("b"), word(&keeper("a", 0, &[]), sent)) {
                Delivery::Written => {}
                Delivery::Buffered => buffered += 1,
                Delivery::Dropped => panic!("there is room"),
            }
            sent += 1;
        }
        a.goes_by(&stated(2, &[("a", &at_a)]));
        assert!(a.mesh.peers().is_empty());
        assert_eq!(a.mesh.send(node("b"), word(&keeper("a", 0, &[]), sent)), Delivery::Dropped);
        for round in 0..sent {
            assert_eq!(b.hear().await, Frame::Message(word(&keeper("a", 0, &[]), round)));
        }
        b.closed().await;
        said.closed().await;
        guardian.closed().await;
        a.evidence(|found| *found == Evidence::Disconnected(node("b"))).await;
        // It comes back with its former knowledge.
        for hello in [me.clone(), me.of_guardian()] {
            let mut again = ScriptedPeer::dial(&a).await;
            again.say(Frame::Hello(hello)).await;
            let Frame::Refused(refused) = again.hear().await else { panic!("it is refused") };
            assert_eq!(refused.kind, RefusalKind::NotAVoter);
            assert!(refused.text.contains("member add b="), "{}", refused.text);
        }
        assert_eq!(a.refused().await.kind, RefusalKind::NotAVoter);
        assert_eq!((a.mesh.peers(), a.mesh.disk_to_readmit(node("b"))), (Vec::new(), None));
    });
}

#[test]
fn one_that_has_moved_is_dialled_where_it_is_and_what_still_listens_elsewhere_is_left() {
    run(async {
        let [place_a, place_b, moved_b] = places();
        let (at_a, at_b, at_moved) = (at(&place_a), at(&place_b), at(&moved_b));
        let me = keeper("b", 0, &["a", "b"]);
        let a = start(place_a, config(keeper("a", 0, &["a", "b"]), &[("b", at_b.clone())])).await;
        let mut before = accept(place_b, me.clone()).await;
        a.link_to("b").await;
        let moved = stated(2, &[("a", &at_a), ("b", &at_moved)]);
        a.goes_by(&moved);
        before.closed().await;
        let mut after = accept(moved_b, me).await;
        a.link_to("b").await;
        assert_eq!(a.peer("b").address, at_moved);
        // The same voters again change nothing.
        a.goes_by(&moved);
        assert_eq!(a.mesh.send(node("b"), word(&keeper("a", 0, &[]), 7)), Delivery::Written);
        assert_eq!(after.hear().await, Frame::Message(word(&keeper("a", 0, &[]), 7)));
    });
}

#[test]
fn an_address_that_may_not_be_used_is_said_and_holds_up_nobody_else() {
    run(async {
        let [place_a, place_b] = places();
        let (at_a, at_b) = (at(&place_a), at(&place_b));
        let mut a = start(place_a, config(keeper("a", 0, &["a"]), &[])).await;
        let b = start(place_b, config(keeper("b", 0, &["a", "b"]), &[("a", at_a.clone())])).await;
        let voters = stated(2, &[("a", &at_a), ("b", &at_b), ("c", "192.0.2.1:7"), ("d", "nowhere")]);
        a.goes_by(&voters);
        a.connected("b").await;
        a.link_to("b").await;
        for (name, part) in [("c", "which is not a loopback address"), ("d", "is not of the form host:port")]
        {
            until(|| a.peer(name).trouble.is_some()).await;
            let trouble = a.peer(name).trouble.unwrap();
            assert!(trouble.contains(part), "{trouble}");
        }
        // The same check is made before a node is added.
        for (address, fits) in [("192.0.2.1:7", false), ("h", false), ("[::1]:7", true), ("host:7", true)] {
            assert_eq!(a.mesh.may_add(node("e"), address).is_ok(), fits, "{address}");
        }
        // If there are more voters than fit into a frame, nothing changes.
        let names: Vec<String> = (0..4000).map(|number| format!("voter-with-a-long-name-{number}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "[::1]:7")).collect();
        let many = stated(3, &many);
        assert!(matches!(a.mesh.set_peers(&many.members, &many), Err(TransportError::TooLong { .. })));
        assert_eq!((a.mesh.voters().1, a.mesh.peers().len()), (voters.number, 3));
        drop(b);
    });
}

#[test]
fn one_that_was_away_while_all_others_were_replaced_is_told_who_they_are() {
    run(async {
        let [place_c, place_d] = places();
        let (at_c, at_d) = (at(&place_c), at(&place_d));
        // It knows `a` and `b`, and both are gone.
        let mut c = start(place_c, config(keeper("c", 1, &["a", "b", "c"]), &[])).await;
        let d = start(place_d, config(keeper("d", 0, &["c", "d"]), &[])).await;
        let voters = stated(9, &[("c", &at_c), ("d", &at_d), ("e", "127.0.0.1:9")]);
        d.goes_by(&voters);
        assert_eq!(c.told().await, (node("d"), Arc::clone(&voters)));
        c.goes_by(&voters);
        c.link_to("d").await;
        // The voters of `c` were older until then; now both have the same.
        let mut guardian = ScriptedPeer::dial(&c).await;
        guardian.say(Frame::Hello(keeper("d", 9, &["c", "d", "e"]).of_guardian())).await;
        let Frame::Welcome(theirs) = guardian.hear().await else { panic!("it is let in") };
        assert_eq!(
            (theirs.voters_number, theirs.voters),
            (voters.number, keeper("c", 9, &["c", "d", "e"]).voters)
        );
    });
}

#[test]
fn under_tls_a_node_that_is_added_needs_nothing_but_its_name_in_its_certificate() {
    use crate::transport::tls::tests::{Authority, NOW};
    run(async {
        let authority = Authority::new();
        let [place_a, place_x] = places();
        let (at_a, at_x) = (at(&place_a), at(&place_x));
        let secured = |name: &str, me: Hello, peers: &[(&str, String)]| MeshConfig {
            security: Security::Tls(authority.issue(name, NOW)),
            ..config(me, peers)
        };
        let mut a = start(place_a, secured("a", keeper("a", 0, &["a"]), &[])).await;
        let peers = [("a", at_a.clone())];
        let mut x = start(place_x, secured("x", keeper("x", 0, &["a", "x"]), &peers)).await;
        a.goes_by(&stated(2, &[("a", &at_a), ("x", &at_x)]));
        a.connected("x").await;
        a.link_to("x").await;
        x.connected("a").await;
        // Names that certificates cannot contain or distinguish are refused before they are in any list.
        for (name, fits) in [("y", true), ("7", false), ("X", false), ("A", false), ("y.", false)] {
            assert_eq!(a.mesh.may_add(node(name), "192.0.2.1:7").is_ok(), fits, "{name}");
        }
    });
}
