//! Messages of the other elections: golden bytes, and drawn ones.

use std::sync::Arc;

use primacy_core::election::on_a_ring::{self, Body as Around};
use primacy_core::election::ranked::{self, Claim, STATE_MAX};
use primacy_core::election::seniority::{self, JoinAnswer};
use primacy_core::election::{bully, ring, ring_bidirectional};
use primacy_core::membership::{
    Age, AgesRunOut, Attributes, Cluster, Member, Sight, View, ViewParts, ViewVersion,
};
use primacy_core::neighbours::Direction;
use primacy_core::{FencingToken, LeaderSequence};
use primacy_fuzz::Draw;

use super::fuzz::{identity, life, name};
use super::*;

fn leader() -> Leader {
    Leader { identity: Identity::new(node("b"), incarnation()), term: Term(4) }
}

/// Each kind of message, with its bytes on the wire.
pub(super) fn golden() -> Vec<(Frame, &'static str)> {
    let (to, incarnation, number) =
        (incarnation(), incarnation(), LeaderSequence { term: Term(4), counter: 9 });
    let ranked = |body| Frame::Message(Word::Ranked(ranked::Message { incarnation, body }));
    let claim = Claim { seen: Some(number), hears: Some(2), campaigns: true };
    let bully = |body| Frame::Message(Word::Bully(bully::Message { incarnation, round: Term(5), body }));
    let ring = |body| {
        Frame::Message(Word::Ring(on_a_ring::Message { incarnation, round: Term(5), number: 6, body }))
    };
    let both_ways = |body| {
        let message = on_a_ring::Message { incarnation, round: Term(5), number: 6, body };
        Frame::Message(Word::RingBidirectional(message))
    };
    let (candidate, direction) = (leader().identity, Direction::Back);
    let out = ring_bidirectional::Probe::Out { candidate, phase: 2, left: 3 };
    let back = ring_bidirectional::Probe::Back { candidate, phase: 2, left: 3 };
    let sight = Sight { cluster: cluster(), version: version(), members: 2, decision: FencingToken(3) };
    let seniority = |body| Frame::Message(Word::Seniority(seniority::Message { incarnation, body }));
    let labels = [("rack".to_owned(), "7".to_owned())].into();
    let attributes = Attributes::new("h:1".into(), "z".into(), "0.1.0".into(), labels).unwrap();
    let attributes = Arc::new(attributes);
    let refused = |refusal| seniority::Body::JoinReply { joining: 2, answer: JoinAnswer::Refused(refusal) };
    let ages = seniority::Refusal::AgesRunOut(AgesRunOut { last: Age(9) });
    let mut frames = vec![
        (seniority(seniority::Body::Join { joining: 2, attributes: Arc::clone(&attributes) }), GOLDEN[20]),
        (seniority(seniority::Body::JoinReply { joining: 2, answer: JoinAnswer::NotJoined }), GOLDEN[21]),
        (
            seniority(seniority::Body::JoinReply { joining: 2, answer: JoinAnswer::Ask(node("c")) }),
            GOLDEN[22],
        ),
        (seniority(refused(seniority::Refusal::Full)), GOLDEN[23]),
        (seniority(refused(ages)), GOLDEN[24]),
        (seniority(refused(seniority::Refusal::NameTaken)), GOLDEN[25]),
        (seniority(seniority::Body::View(Arc::new(view(&attributes)))), GOLDEN[26]),
        (seniority(seniority::Body::ViewReply(sight)), GOLDEN[27]),
        (seniority(seniority::Body::Heartbeat { sight, suspects: [node("c")].into() }), GOLDEN[28]),
        (seniority(seniority::Body::Ask(sight)), GOLDEN[29]),
        (seniority(seniority::Body::Leave { joining: 3 }), GOLDEN[30]),
        (seniority(seniority::Body::Down { identity: leader().identity, joining: 3 }), GOLDEN[31]),
        (seniority(seniority::Body::Probe(sight)), GOLDEN[32]),
        (seniority(seniority::Body::ProbeReply(sight)), GOLDEN[33]),
        (seniority(seniority::Body::MergeAsk(sight)), GOLDEN[34]),
        (seniority(seniority::Body::MergeReply(sight)), GOLDEN[35]),
        (seniority(seniority::Body::Merge { into: node("c"), sight }), GOLDEN[36]),
    ];
    frames.extend([
        (ranked(ranked::Body::Elect { ballot: Term(7), claim }), GOLDEN[0]),
        (ranked(ranked::Body::Hears { to, leader: leader() }), GOLDEN[1]),
        (ranked(ranked::Body::Vote { to, ballot: Term(7) }), GOLDEN[2]),
        (ranked(ranked::Body::Lead { number, state: [1, 2, 3].into() }), GOLDEN[3]),
        (ranked(ranked::Body::LeadReply { to, number, promised: Term(4) }), GOLDEN[4]),
        (ranked(ranked::Body::Resigned { term: Term(4), successor: Some(node("c")) }), GOLDEN[5]),
        (bully(bully::Body::Election), GOLDEN[6]),
        (bully(bully::Body::Alive), GOLDEN[7]),
        (bully(bully::Body::Coordinator { term: Term(5) }), GOLDEN[8]),
        (bully(bully::Body::Heartbeat { term: Term(5) }), GOLDEN[9]),
        (bully(bully::Body::Resigned { term: Term(5) }), GOLDEN[10]),
        (bully(bully::Body::Late), GOLDEN[17]),
        (ring(Around::Probe { direction, probe: ring::Probe { candidate, hops: 2 } }), GOLDEN[11]),
        (ring(Around::Elected { leader: leader(), beat: 8, hops: 1 }), GOLDEN[12]),
        (ring(Around::Resigned { leader: leader(), hops: 1 }), GOLDEN[13]),
        (ring(Around::Received), GOLDEN[14]),
        (ring(Around::Knock), GOLDEN[18]),
        (ring(Around::Late), GOLDEN[19]),
        (both_ways(Around::Probe { direction, probe: out }), GOLDEN[15]),
        (both_ways(Around::Probe { direction: Direction::Onward, probe: back }), GOLDEN[16]),
    ]);
    frames
}

const GOLDEN: [&str; 37] = [
    "0a046d61696e5a1b0a0b0807110807060504030201120c080712040804100918022001",
    "0a046d61696e5a320a0b08071108070605040302011a230a0b080711080706050403020112140a100a0162120b08071108070605040302011004",
    "0a046d61696e5a1e0a0b0807110807060504030201220f0a0b08071108070605040302011007",
    "0a046d61696e5a1a0a0b08071108070605040302012a0b0a04080410091203010203",
    "0a046d61696e5a240a0b080711080706050403020132150a0b08071108070605040302011204080410091804",
    "0a046d61696e5a140a0b08071108070605040302013a050804120163",
    "0a046d61696e62110a0b080711080706050403020110051a00",
    "0a046d61696e62110a0b080711080706050403020110052200",
    "0a046d61696e62110a0b080711080706050403020110052805",
    "0a046d61696e62110a0b080711080706050403020110053005",
    "0a046d61696e62110a0b080711080706050403020110053805",
    "0a046d61696e6a290a0b08071108070605040302011005180622160a100a0162120b080711080706050403020110021801",
    "0a046d61696e6a2d0a0b0807110807060504030201100518063a1a0a140a100a0162120b0807110807060504030201100410011808",
    "0a046d61696e6a2b0a0b08071108070605040302011005180642180a140a100a0162120b080711080706050403020110041001",
    "0a046d61696e6a130a0b0807110807060504030201100518064a00",
    "0a046d61696e722b0a0b0807110807060504030201100518062a180a100a0162120b0807110807060504030201100218032001",
    "0a046d61696e72290a0b08071108070605040302011005180632160a100a0162120b080711080706050403020110021803",
    "0a046d61696e62110a0b080711080706050403020110054200",
    "0a046d61696e6a130a0b0807110807060504030201100518065200",
    "0a046d61696e6a130a0b0807110807060504030201100518065a00",
    "0a046d61696e7a2d0a0b0807110807060504030201121e0802121a0a03683a3112017a1a05302e312e3022090a047261636b120137",
    "0a046d61696e7a130a0b08071108070605040302011a0408021200",
    "0a046d61696e7a140a0b08071108070605040302011a0508021a0163",
    "0a046d61696e7a130a0b08071108070605040302011a0408022200",
    "0a046d61696e7a130a0b08071108070605040302011a0408022809",
    "0a046d61696e7a130a0b08071108070605040302011a0408023200",
    "0a046d61696e7aad010a0b0807110807060504030201229d010a140a100a0162120b080711080706050403020110011216080412100a0162120b080711080706050403020118061a32080112100a0162120b08071108070605040302011801221a0a03683a3112017a1a05302e312e3022090a047261636b1201371a32080312100a0161120b08071108070605040302011801221a0a03683a3112017a1a05302e312e3022090a047261636b12013722016328043003",
    "0a046d61696e7a410a0b08071108070605040302012a320a140a100a0162120b080711080706050403020110011216080412100a0162120b0807110807060504030201180618022003",
    "0a046d61696e7a460a0b080711080706050403020132370a320a140a100a0162120b080711080706050403020110011216080412100a0162120b0807110807060504030201180618022003120163",
    "0a046d61696e7a410a0b08071108070605040302013a320a140a100a0162120b080711080706050403020110011216080412100a0162120b0807110807060504030201180618022003",
    "0a046d61696e7a0f0a0b08071108070605040302014003",
    "0a046d61696e7a230a0b08071108070605040302014a140a100a0162120b08071108070605040302011003",
    "0a046d61696e7a410a0b080711080706050403020152320a140a100a0162120b080711080706050403020110011216080412100a0162120b0807110807060504030201180618022003",
    "0a046d61696e7a410a0b08071108070605040302015a320a140a100a0162120b080711080706050403020110011216080412100a0162120b0807110807060504030201180618022003",
    "0a046d61696e7a410a0b080711080706050403020162320a140a100a0162120b080711080706050403020110011216080412100a0162120b0807110807060504030201180618022003",
    "0a046d61696e7a410a0b08071108070605040302016a320a140a100a0162120b080711080706050403020110011216080412100a0162120b0807110807060504030201180618022003",
    "0a046d61696e7a460a0b080711080706050403020172370a016312320a140a100a0162120b080711080706050403020110011216080412100a0162120b0807110807060504030201180618022003",
];

fn cluster() -> Cluster {
    Cluster { founder: leader().identity, joining: 1 }
}

fn version() -> ViewVersion {
    ViewVersion { term: Term(4), coordinator: leader().identity, number: 6 }
}

fn view(attributes: &Arc<Attributes>) -> View {
    let member =
        |age, identity| Member { age: Age(age), identity, joining: 1, attributes: Arc::clone(attributes) };
    let other = Identity::new(node("a"), incarnation());
    View::new(ViewParts {
        cluster: cluster(),
        version: version(),
        members: vec![member(1, leader().identity), member(3, other)],
        removed: [node("c")].into(),
        next_age: Age(4),
        decision: FencingToken(3),
    })
    .unwrap()
}

#[test]
fn a_view_that_cannot_be_and_an_election_that_nobody_knows_are_refused() {
    let frames = golden();
    let bytes = body(&frames[6].0);
    let Ok((_, Frame::Message(Word::Seniority(_)))) = decode(&bytes) else { panic!("it is a view") };
    let mut hello = wire::Hello::from(&hello("a", &["a", "b"]));
    hello.algorithm = 99;
    let said = |hello: &wire::Hello| {
        let frame = Some(envelope::Frame::Hello(hello.clone()));
        wire::Envelope { election: "main".into(), frame }.encode_to_vec()
    };
    assert_eq!(decode(&said(&hello)), Err(DecodeError::Invalid("hello.algorithm")));
    hello.algorithm = 0;
    hello.confirmation = 3;
    assert_eq!(decode(&said(&hello)), Err(DecodeError::Invalid("hello.confirmation")));
    // Every algorithm has its own number.
    for &algorithm in Algorithm::ALL {
        let number = number_of(ALGORITHMS, &algorithm);
        assert_eq!(numbered(ALGORITHMS, number, "algorithm"), Ok(algorithm));
    }
    let parts = ViewParts { next_age: Age(2), ..view(&Arc::default()).parts() };
    assert!(View::new(parts).is_err());
}

/// Any message of these elections.
pub(super) fn drawn(draw: &mut Draw<'_>) -> Word {
    let incarnation = life(draw);
    match draw.byte() % 5 {
        4 => Word::Seniority(seniority::Message { incarnation, body: drawn_seniority(draw) }),
        0 => Word::Ranked(ranked::Message { incarnation, body: drawn_ranked(draw) }),
        1 => Word::Bully(bully::Message { incarnation, round: Term(draw.number()), body: drawn_bully(draw) }),
        2 => Word::Ring(around(incarnation, draw, |draw| ring::Probe {
            candidate: identity(draw),
            hops: u32::from(draw.short()),
        })),
        _ => Word::RingBidirectional(around(incarnation, draw, |draw| {
            let (candidate, phase, left) = (identity(draw), u32::from(draw.short()), u32::from(draw.short()));
            match draw.byte() % 2 {
                0 => ring_bidirectional::Probe::Out { candidate, phase, left },
                _ => ring_bidirectional::Probe::Back { candidate, phase, left },
            }
        })),
    }
}

fn drawn_ranked(draw: &mut Draw<'_>) -> ranked::Body {
    let (ballot, to) = (Term(draw.number()), life(draw));
    let number = LeaderSequence { term: Term(draw.number()), counter: draw.number() };
    let coin = draw.byte() % 2 == 1;
    match draw.byte() % 6 {
        0 => {
            let claim = Claim {
                seen: coin.then_some(number),
                hears: coin.then(|| u32::from(draw.short())),
                campaigns: draw.one_of(&[false, true]),
            };
            ranked::Body::Elect { ballot, claim }
        }
        1 => ranked::Body::Hears { to, leader: drawn_leader(draw) },
        2 => ranked::Body::Vote { to, ballot },
        3 => ranked::Body::Lead {
            number,
            state: vec![draw.byte(); usize::from(draw.short()) % (STATE_MAX + 1)].into(),
        },
        4 => ranked::Body::LeadReply { to, number, promised: ballot },
        _ => ranked::Body::Resigned { term: ballot, successor: coin.then(|| name(draw)) },
    }
}

fn drawn_seniority(draw: &mut Draw<'_>) -> seniority::Body {
    let joining = draw.number();
    let sight = Sight {
        cluster: Cluster { founder: identity(draw), joining: draw.number() },
        version: ViewVersion {
            term: Term(draw.number()),
            coordinator: identity(draw),
            number: draw.number(),
        },
        members: u32::from(draw.short()),
        decision: FencingToken(draw.number()),
    };
    let answers = [
        JoinAnswer::NotJoined,
        JoinAnswer::Ask(name(draw)),
        JoinAnswer::Refused(seniority::Refusal::Full),
        JoinAnswer::Refused(seniority::Refusal::NameTaken),
    ];
    match draw.byte() % 11 {
        0 => seniority::Body::Join { joining, attributes: Arc::default() },
        1 => seniority::Body::JoinReply { joining, answer: draw.one_of(&answers) },
        2 => seniority::Body::View(Arc::new(view(&Arc::default()))),
        3 => seniority::Body::ViewReply(sight),
        4 => {
            seniority::Body::Heartbeat { sight, suspects: (0..draw.byte() % 5).map(|_| name(draw)).collect() }
        }
        5 => seniority::Body::Ask(sight),
        6 => seniority::Body::Leave { joining },
        7 => seniority::Body::Down { identity: identity(draw), joining },
        8 => seniority::Body::Probe(sight),
        9 => seniority::Body::MergeAsk(sight),
        _ => seniority::Body::Merge { into: name(draw), sight },
    }
}

fn drawn_bully(draw: &mut Draw<'_>) -> bully::Body {
    let term = Term(draw.number());
    match draw.byte() % 6 {
        0 => bully::Body::Election,
        1 => bully::Body::Alive,
        2 => bully::Body::Coordinator { term },
        3 => bully::Body::Heartbeat { term },
        4 => bully::Body::Late,
        _ => bully::Body::Resigned { term },
    }
}

fn around<P>(
    incarnation: Incarnation,
    draw: &mut Draw<'_>,
    probe: impl Fn(&mut Draw<'_>) -> P,
) -> on_a_ring::Message<P> {
    let (round, number) = (Term(draw.number()), draw.number());
    let body = match draw.byte() % 6 {
        0 => {
            let direction = draw.one_of(&[Direction::Onward, Direction::Back]);
            Around::Probe { direction, probe: probe(draw) }
        }
        1 => {
            Around::Elected { leader: drawn_leader(draw), beat: draw.number(), hops: u32::from(draw.short()) }
        }
        2 => Around::Resigned { leader: drawn_leader(draw), hops: u32::from(draw.short()) },
        3 => Around::Knock,
        4 => Around::Late,
        _ => Around::Received,
    };
    on_a_ring::Message { incarnation, round, number, body }
}

fn drawn_leader(draw: &mut Draw<'_>) -> Leader {
    Leader { identity: identity(draw), term: Term(draw.number()) }
}

#[test]
fn an_announced_state_that_is_too_long_and_probes_of_the_other_kind_are_refused() {
    let mut frames = golden();
    let Frame::Message(Word::Ranked(lead)) = &mut frames[20].0 else { unreachable!("it is a lead") };
    let number = LeaderSequence { term: Term(4), counter: 9 };
    lead.body = ranked::Body::Lead { number, state: vec![0; STATE_MAX + 1].into() };
    assert_eq!(decode(&body(&frames[20].0)), Err(DecodeError::Invalid("lead.state")));
    // Fields 13 and 14 of the envelope, with the wire type "length-delimited".
    let (ring, both_ways) = (0x6a, 0x72);
    let mut probe = body(&frames[35].0);
    let at = probe.iter().position(|&byte| byte == both_ways).unwrap();
    probe[at] = ring;
    assert_eq!(decode(&probe), Err(DecodeError::Invalid("ring.probe")));
}
