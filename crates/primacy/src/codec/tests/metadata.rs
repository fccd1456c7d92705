//! Messages of nodes with metadata: golden bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use primacy_core::Duration;
use primacy_core::election::quorum;
use primacy_kv::command::{Command, Request, SessionId};
use primacy_kv::machine::Message;
use primacy_kv::machine::clients::{Keep, Ticket};
use primacy_kv::replication::log::{Record, RecordBody};
use primacy_kv::replication::message::Body;
use primacy_kv::replication::replica::{Progress, Refusal, VOTERS_MAX, VoterChange};
use primacy_kv::replication::voters;

use super::*;

fn number(term: u64, counter: u64) -> LeaderSequence {
    LeaderSequence { term: Term(term), counter }
}

fn voters() -> Arc<voters::Voters> {
    let members = BTreeMap::from([(node("a"), Arc::from("h:1")), (node("b"), Arc::from("[::1]:2"))]);
    Arc::new(voters::Voters { number: number(5, 1), members })
}

/// Every kind of message, with its bytes.
pub(super) fn golden() -> Vec<(Frame, &'static str)> {
    let words = words();
    assert_eq!(words.len(), GOLDEN.len());
    let frame = |message| Frame::Message(Word::Metadata(Box::new(message)));
    words.into_iter().map(frame).zip(GOLDEN).collect()
}

fn words() -> Vec<Message> {
    let (incarnation, to) = (incarnation(), Incarnation { count: 1, nonce: 2 });
    let (session, ticket) = (SessionId::new(-3).expect("not zero"), Ticket(300));
    let client = Identity::new(node("a"), to);
    let request = Request { client, sequence: 2, done_below: 1, command: Command::End { session } };
    let vote = quorum::Body::Vote { round: Round(5), resignation: None };
    let vote = quorum::Message { incarnation, term: Term(6), body: vote };
    let left = Some(Duration::from_nanos(1000));
    let revised = |progress| Message::Revised { incarnation, to, ticket, progress };
    let words = [
        Message::Election { message: vote, voters: Some(voters()) },
        Message::Voters { incarnation, voters: voters() },
        Message::Propose {
            incarnation,
            requests: vec![request.encode().into()],
            read: Some(4),
            sessions: vec![(session, Keep::Alive)],
        },
        Message::Told {
            incarnation,
            to,
            read: Some((4, number(5, 300))),
            sessions: vec![(session, Keep::Alive, left), (session, Keep::Look, None)],
            unreadable: vec![2, 300],
        },
        Message::Revise {
            incarnation,
            ticket,
            change: VoterChange::Add { node: node("c"), address: "h:3".into() },
        },
        Message::Revise { incarnation, ticket, change: VoterChange::Remove { node: node("c") } },
        revised(Progress::Done),
        revised(Progress::Committing),
        revised(Progress::CatchingUp { held: number(5, 2), last: number(5, 300) }),
        revised(Progress::Waiting),
        revised(Progress::Resigning),
        revised(Progress::Refused(Refusal::NotLeading)),
        revised(Progress::Refused(Refusal::Last)),
        revised(Progress::Refused(Refusal::TooMany)),
        revised(Progress::Refused(Refusal::NoMajority { heard: 1, voters: 3 })),
        revised(Progress::Refused(Refusal::OtherAddress)),
        revised(Progress::Refused(Refusal::NoOtherLeader)),
    ];
    let log = |body| Message::Log { incarnation, term: Term(6), body };
    words.into_iter().chain(of_the_log(to).into_iter().map(log)).collect()
}

fn of_the_log(to: Incarnation) -> Vec<Body> {
    let (after, last) = (number(5, 1), number(5, 300));
    let records = vec![
        Record { number: number(6, 1), body: RecordBody::Begin { after: last, voters: voters() } },
        Record { number: number(6, 2), body: RecordBody::Voters(voters()) },
        Record { number: number(6, 3), body: RecordBody::Payload([1, 2, 3].into()) },
    ];
    let (offset, length, bytes) = (300, 303, [1, 2, 3].into());
    vec![
        Body::Sync,
        Body::SyncReply { to, last },
        Body::Fetch { after },
        Body::Fetched { to, after, records: records.clone() },
        Body::Append { round: 7, after: last, records, committed: after },
        Body::AppendReply { to, round: 7, last, gap: true, recovering: true },
        Body::Offer { number: last },
        Body::Part { number: last, offset },
        Body::PartReply { to, number: last, voters: voters(), offset, length, bytes },
        Body::Recover,
        Body::RecoverReply { to, leads_up_to: Some(last) },
    ]
}

const GOLDEN: [&str; 28] = [
    "0a046d61696e82013712350a130a0b080711080706050403020110062a020805121e0a040805100112080a01611203683a31120c0a016212075b3a3a315d3a32",
    "0a046d61696e82012d0a0b08071108070605040302011a1e0a040805100112080a01611203683a31120c0a016212075b3a3a315d3a32",
    "0a046d61696e8201300a0b08071108070605040302012a210a100101610100000000000000020201040510041a0b09fdffffffffffffff1001",
    "0a046d61696e8201450a0b080711080706050403020132360a0b080111020000000000000010041a05080510ac02220e09fdffffffffffffff100118e807220909fdffffffffffffff2a0302ac02",
    "0a046d61696e82011a0a0b08071108070605040302013a0b08ac021201631a03683a33",
    "0a046d61696e8201150a0b08071108070605040302013a0608ac02120163",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac021801",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac021802",
    "0a046d61696e82012e0a0b0807110807060504030201421f0a0b080111020000000000000010ac0218032204080510022a05080510ac02",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac021804",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac02180a",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac021805",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac021806",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac021807",
    "0a046d61696e8201250a0b080711080706050403020142160a0b080111020000000000000010ac02180830013803",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac021809",
    "0a046d61696e8201210a0b080711080706050403020142120a0b080111020000000000000010ac02180b",
    "0a046d61696e8201130a0b0807110807060504030201220408061200",
    "0a046d61696e8201270a0b0807110807060504030201221808061a140a0b08011102000000000000001205080510ac02",
    "0a046d61696e8201170a0b080711080706050403020122080806220408051001",
    "0a046d61696e82018c010a0b0807110807060504030201227d08062a790a0b08011102000000000000001204080510011a2f0a040806100112270a05080510ac02121e0a040805100112080a01611203683a31120c0a016212075b3a3a315d3a321a260a04080610021a1e0a040805100112080a01611203683a31120c0a016212075b3a3a315d3a321a0b0a04080610032203010203",
    "0a046d61696e820188010a0b080711080706050403020122790806327508071205080510ac021a2f0a040806100112270a05080510ac02121e0a040805100112080a01611203683a31120c0a016212075b3a3a315d3a321a260a04080610021a1e0a040805100112080a01611203683a31120c0a016212075b3a3a315d3a321a0b0a04080610032203010203220408051001",
    "0a046d61696e82012d0a0b0807110807060504030201221e08063a1a0a0b080111020000000000000010071a05080510ac0220012801",
    "0a046d61696e8201180a0b0807110807060504030201220908064205080510ac02",
    "0a046d61696e82011d0a0b0807110807060504030201220e08064a0a0a05080510ac0210ac02",
    "0a046d61696e8201520a0b080711080706050403020122430806523f0a0b08011102000000000000001205080510ac021a1e0a040805100112080a01611203683a31120c0a016212075b3a3a315d3a3220ac0228af023203010203",
    "0a046d61696e8201130a0b0807110807060504030201220408065a00",
    "0a046d61696e8201270a0b08071108070605040302012218080662140a0b08011102000000000000001205080510ac02",
];

/// The transport must drop voters of a term that no honest node reaches, whichever message carries them.
#[test]
fn the_highest_term_of_a_message_is_also_that_of_the_voters_it_names() {
    let vote = quorum::Body::Vote { round: Round(5), resignation: None };
    let message = quorum::Message { incarnation: incarnation(), term: Term(3), body: vote };
    let highest = |voters| {
        Word::Metadata(Box::new(Message::Election { message: message.clone(), voters })).highest_term()
    };
    assert_eq!(highest(None), Term(3));
    assert_eq!(highest(Some(voters())), Term(5));
}

/// A node writes received voters to its state file, and halts if they do not fit.
#[test]
fn a_list_of_voters_that_no_node_can_keep_is_refused() {
    let list = |count: usize, address: &str| {
        let members = (0..count).map(|index| (node(&format!("n{index}")), address.into())).collect();
        let voters = Arc::new(voters::Voters { number: number(4, 1), members });
        let message = Message::Voters { incarnation: incarnation(), voters };
        decode(&body(&Frame::Message(Word::Metadata(Box::new(message)))))
    };
    assert!(list(1, "h:1").is_ok() && list(VOTERS_MAX, "h:1").is_ok());
    for refused in [list(0, ""), list(VOTERS_MAX + 1, "h:1"), list(VOTERS_MAX, &"h".repeat(200))] {
        assert_eq!(refused, Err(DecodeError::Invalid("voters.members")));
    }
}
