//! Nodes of several versions, over real connections. The content of version 2 does not exist yet; these nodes only
//! claim to speak versions 1 and 2.

use std::sync::Arc;

use primacy_kv::command::REQUEST_FORMAT;
use primacy_kv::machine;
use primacy_kv::replication::log::{Record, RecordBody};
use primacy_kv::replication::message;
use primacy_kv::replication::voters;

use crate::CampaignError;
use crate::log_file::LogError;
use crate::log_file::{Bounds, Limits, LogFile};
use crate::metadata::Durability;

use super::*;

const THIS: Versions = Versions { lowest: 1, highest: 1 };
const NEXT: Versions = Versions { lowest: 1, highest: 2 };
const AFTER_NEXT: Versions = Versions { lowest: 2, highest: 3 };

/// A message that only a later version knows: a frame with the tag 100.
const LATER_WORD: [u8; 7] = [0, 0, 0, 3, 0xa2, 0x06, 0];

/// A hello of version 9: the fields that keep their places in every version, and a role that is no longer a number. The lengths are
/// those of the frame, of the election's name, of the hello, of the identity, of the name and of the incarnation.
const HELLO_OF_VERSION_9: &[u8] = b"\0\0\0\x24\x0a\x04main\x12\x1c\x08\x09\x1a\x10\x0a\x01b\x12\x0b\x08\x01\x11\0\0\0\0\0\0\0\x62\x20\x63\xf8\x3f\x01\x90\x01\x08";

#[test]
fn nodes_of_neighbouring_versions_talk_in_the_older_one() {
    run(async {
        for (of_a, of_b, common) in
            [(THIS, THIS, 1), (THIS, NEXT, 1), (NEXT, THIS, 1), (NEXT, NEXT, 2), (NEXT, AFTER_NEXT, 2)]
        {
            let (mut a, mut b) = pair(|a| a.versions = of_a, |b| b.versions = of_b).await;
            a.link_to("b").await;
            b.link_to("a").await;
            assert_eq!((a.peer("b").version, b.peer("a").version), (Some(common), Some(common)));
            for round in 0..3 {
                let (question, answer) =
                    (heartbeat(&hello("a", &[]), round), heartbeat(&hello("b", &[]), round));
                a.mesh.send(node("b"), Word::Quorum(question.clone()));
                assert_eq!(b.message().await, (node("a"), question));
                b.mesh.send(node("a"), Word::Quorum(answer.clone()));
                assert_eq!(a.message().await, (node("b"), answer));
            }
            let counters = a.mesh.counters();
            assert!(counters.refused.is_empty() && counters.refused_by_peers.is_empty(), "{counters:?}");
        }
    });
}

#[test]
fn what_only_a_newer_peer_knows_is_counted_and_what_both_know_is_heard() {
    run(async {
        let [place] = places();
        let mut a = start(place, config(hello("a", &["a", "b"]), &[])).await;
        let mut b = ScriptedPeer::enter(&a, Hello { versions: NEXT, ..hello("b", &["a", "b"]) }).await;
        a.connected("b").await;
        b.0.stream.write_all(&LATER_WORD).await.unwrap();
        let message = heartbeat(&hello("b", &[]), 1);
        b.say(Frame::Message(Word::Quorum(message.clone()))).await;
        assert_eq!(a.message().await, (node("b"), message));
        let counters = a.mesh.counters();
        assert_eq!((counters.frames_unknown, counters.frames_malformed), (1, 0));
    });
}

/// The refusal that `one` has recorded of `other`, whichever side refused.
async fn refusal(one: &Node, other: &str) -> PeerRefusal {
    until(|| one.peer(other).refusal.is_some()).await;
    one.peer(other).refusal.unwrap()
}

#[test]
fn a_node_without_a_common_version_is_refused_by_both_sides_and_the_others_go_on() {
    let (later, earlier) = (AFTER_NEXT, Versions { lowest: 0, highest: 0 });
    for (of_c, says, older) in [
        (later, "c speaks versions 2 to 3 of the protocol, a speaks version 1", "a"),
        (earlier, "c speaks version 0 of the protocol, a speaks version 1", "c"),
    ] {
        run(async {
            let (voters, [place_a, place_b, place_c]) = (["a", "b", "c"], places());
            let peers = [("a", at(&place_a)), ("b", at(&place_b)), ("c", at(&place_c))];
            let mut a = start(place_a, config(hello("a", &voters), &others(&peers, "a"))).await;
            let b = start(place_b, config(hello("b", &voters), &others(&peers, "b"))).await;
            let me = Hello { versions: of_c, ..hello("c", &voters) };
            let c = start(place_c, config(me, &others(&peers, "c"))).await;
            let (by_a, by_c) = (refusal(&a, "c").await, refusal(&c, "a").await);
            assert_eq!((by_a.kind, by_c.kind), (RefusalKind::ProtocolVersion, RefusalKind::ProtocolVersion));
            // Either side may have refused.
            for text in [&by_a.text, &by_c.text] {
                let advice = format!("none in common; upgrade {older}, one version after the other");
                let both = text.contains("c speaks version") && text.contains("a speaks version 1");
                assert!(both && text.contains(&advice), "{text}");
            }
            a.until(|counters| counters.refused.contains_key(&RefusalKind::ProtocolVersion)).await;
            a.until(|counters| counters.refused_by_peers.contains_key(&RefusalKind::ProtocolVersion)).await;
            let refused = shaken(&a, Hello { versions: of_c, ..hello("c", &voters) }).await;
            assert!(refused.starts_with("a refuses c: ") && refused.contains(says), "{refused}");
            assert_eq!((a.peer("c").inbound, a.peer("c").outbound, a.peer("c").version), (None, None, None));
            b.link_to("a").await;
            let message = heartbeat(&hello("b", &[]), 1);
            b.mesh.send(node("a"), Word::Quorum(message.clone()));
            assert_eq!(a.message().await, (node("b"), message));
        });
    }
}

/// Returns the text with which a node refuses a client with this hello.
async fn shaken(target: &Node, me: Hello) -> String {
    let mut scripted = ScriptedPeer::dial(target).await;
    scripted.say(Frame::Hello(me)).await;
    let Frame::Refused(refused) = scripted.hear().await else { panic!("it is let in") };
    refused.text
}

#[test]
fn a_hello_of_which_only_the_version_can_be_read_is_refused_for_that() {
    run(async {
        let [place] = places();
        let a = start(place, config(hello("a", &["a", "b"]), &[("b", "127.0.0.1:1".to_owned())])).await;
        let mut scripted = ScriptedPeer::dial(&a).await;
        scripted.0.stream.write_all(HELLO_OF_VERSION_9).await.unwrap();
        let Frame::Refused(refused) = scripted.hear().await else { panic!("it is let in") };
        assert_eq!(refused.kind, RefusalKind::ProtocolVersion);
        assert!(refused.text.contains("b speaks versions 8 to 9 of the protocol"), "{}", refused.text);
        assert!(refused.text.contains("upgrade a"), "{}", refused.text);
        assert_eq!(a.peer("b").refusal.unwrap().text, refused.text);
        assert_eq!(a.mesh.counters().refused[&RefusalKind::ProtocolVersion], 1);
        scripted.closed().await;
    });
}

/// The frame of a leader: the beginning of a term, and a record in a later format.
fn later_record(leader: &Hello) -> Frame {
    let (first, incarnation) = (LeaderSequence::first(Term(7)), leader.identity.incarnation);
    let members = leader.voters.iter().map(|voter| (voter, Arc::from("127.0.0.1:1"))).collect();
    let voters = Arc::new(voters::Voters { number: first, members });
    let begin = RecordBody::Begin { after: LeaderSequence::NONE, voters };
    let later = RecordBody::Payload([REQUEST_FORMAT + 1, 1, b'b'].into());
    let records = vec![Record { number: first, body: begin }, Record { number: first.next(), body: later }];
    let body = message::Body::Append {
        round: 1,
        after: LeaderSequence::NONE,
        records,
        committed: LeaderSequence::NONE,
    };
    Frame::Message(Word::Metadata(Box::new(machine::Message::Log { incarnation, term: Term(7), body })))
}

/// Otherwise it would have another state than the other nodes from then on, without knowing it.
#[test]
fn a_node_that_is_sent_a_record_of_a_later_version_ends_and_says_so_and_has_taken_nothing() {
    run(async {
        let dir = std::env::temp_dir().join(format!("primacy-later-{}", std::process::id()));
        let [place_a, place_b] = places();
        let at_a = at(&place_a);
        let peers: crate::Peers = format!("a={at_a},b={}", at(&place_b)).parse().unwrap();
        drop(place_a);
        let entered = crate::Elector::builder().election("main").node(node("a")).state_dir(&dir);
        let elector = entered.metadata(Durability::Fsync).peers(peers).await.unwrap();

        // This node has the hello of `a`, under another name.
        let listener = tokio::net::TcpListener::from_std(place_b).unwrap();
        let mut dialled = ScriptedPeer::on(listener.accept().await.unwrap().0);
        let Frame::Hello(of_a) = dialled.hear().await else { panic!("it introduces itself") };
        let b = hello("b", &[]);
        let me = Hello { identity: b.identity, disk: b.disk, ..of_a };
        let mut leader = ScriptedPeer::on(TcpStream::connect(&at_a).await.unwrap());
        leader.say(Frame::Hello(me.clone())).await;
        assert!(matches!(leader.hear().await, Frame::Welcome(_)));
        leader.say(Frame::Ready).await;
        leader.say(later_record(&me)).await;

        let Err(CampaignError::Halted { why }) = elector.campaign().await else { panic!("it goes on") };
        let says = format!(
            "the record {} cannot be read: the format 2 is not known",
            LeaderSequence::first(Term(7)).next()
        );
        assert!(why.contains(&says) && why.contains("start the newer Primacy here"), "{why}");
        drop(elector);
        let opened = loop {
            match LogFile::open_within(Limits::default(), &dir, "main", node("a"), &Bounds::none()) {
                Err(LogError::Locked { .. }) => tokio::task::yield_now().await,
                opened => break opened,
            }
        };
        let (_, stored, found) = opened.unwrap();
        let taken = |record: &Record| matches!(record.body, RecordBody::Payload(_));
        assert!(!stored.records.iter().any(taken) && found.is_empty(), "{stored:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    });
}
