//! Cases that no script can tell: messages that no honest node sends, and the outputs of the two elections that are
//! passed on.

use alloc::collections::BTreeSet;

use super::*;
use crate::election::{Advisory as _, AdvisorySettings, bully, quorum};
use crate::hard_state::HardState;
use crate::id::{Identity, Incarnation};
use crate::protocol::{Evidence, Peer};
use crate::rng::Rng;
use crate::term::Term;
use crate::time::Drift;

type Machine = Confirmed<bully::Bully, quorum::Quorum>;
type Said = Output<Message<bully::Message, quorum::Message>, HardState>;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn life(name: &str) -> Identity {
    Identity::new(node(name), Incarnation { count: 1, nonce: 1 })
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// One of three, in an incarnation that begins at zero; it is connected to the others, and campaigns.
fn machine(name: &str) -> Machine {
    let millis = Duration::from_millis;
    let nomination = AdvisorySettings {
        me: life(name),
        nodes: NAMES.map(node).into(),
        heartbeat_interval: millis(250),
        miss_count: 4,
        answer_timeout: millis(100),
        sticky: true,
    };
    let confirmation = quorum::Config {
        me: life(name),
        voters: NAMES.map(node).into(),
        safety: quorum::Safety::Lease,
        heartbeat_interval: millis(250),
        miss_count: 4,
        promise_duration: millis(1_000),
        initial_wait: millis(500),
        random_wait_max: millis(300),
        round_timeout: millis(500),
        stagger: millis(5),
        drift_max: Drift::from_ppm(10_000),
        priority: 0,
        witness: false,
        pre_vote: true,
        sticky: true,
        seed: 1,
    };
    let config = Config { me: node(name), damping: millis(1_000), patience: millis(3_000) };
    let nomination = bully::Bully::begin(nomination, at(0));
    let confirmation = quorum::Quorum::new(confirmation, HardState::default(), at(0));
    let mut machine = Confirmed::new(config, nomination, confirmation);
    drain(&mut machine);
    for other in NAMES.iter().filter(|&&other| other != name) {
        let peer = Peer { identity: life(other), priority: 0, witness: false, round_trip: Duration::ZERO };
        machine.handle(at(0), Input::Evidence(Evidence::Connected(peer)));
        drain(&mut machine);
    }
    machine.handle(at(0), Input::Command(Command::Campaign));
    drain(&mut machine);
    machine
}

fn drain(machine: &mut Machine) -> Vec<Said> {
    core::iter::from_fn(|| machine.poll()).collect()
}

fn drawn_life(rng: &mut Rng) -> Incarnation {
    Incarnation { count: 1, nonce: rng.one_of(&[1, 1, 1, 2]) }
}

fn nominates(rng: &mut Rng) -> bully::Message {
    let term = Term(rng.mostly_small());
    let body = rng.one_of(&[
        bully::Body::Election,
        bully::Body::Alive,
        bully::Body::Coordinator { term },
        bully::Body::Heartbeat { term },
        bully::Body::Late,
        bully::Body::Resigned { term },
    ]);
    bully::Message { incarnation: drawn_life(rng), round: Term(rng.mostly_small()), body }
}

/// The honest answer of the others to this, if they have not given it already.
fn agrees(known: &quorum::Quorum, asked: quorum::Body) -> Option<quorum::Message> {
    use quorum::{Answer, Body};
    let (to, term) = (life("a").incarnation, known.status().hard.term);
    let body = match asked {
        Body::PreVote { round, .. } => Body::PreVoteReply { round, to, answer: Answer::Yes },
        Body::Vote { round, .. } => Body::VoteReply { round, to, answer: Answer::Yes },
        Body::Heartbeat { round } => Body::HeartbeatReply { round, to, promise: Duration::from_secs(1) },
        Body::PreVoteReply { .. } | Body::VoteReply { .. } | Body::HeartbeatReply { .. } => return None,
        Body::Resigned { .. } => return None,
    };
    Some(quorum::Message { incarnation: life("b").incarnation, term, body })
}

fn confirms(rng: &mut Rng, known: &quorum::Quorum) -> quorum::Message {
    use quorum::{Answer, Body, Refusal, Resignation, Round};
    let round = Round(rng.mostly_small());
    let (to, node) = (drawn_life(rng), node(rng.one_of(&["a", "b", "c", "stranger"])));
    let left = rng.number();
    let left = rng.one_of(&[Duration::from_secs(1), Duration::from_nanos(left)]);
    let leader = Identity::new(node, drawn_life(rng));
    let led = Resignation { leader, term: Term(rng.mostly_small()) };
    let resignation = rng.one_of(&[None, None, Some(led)]);
    let answer = rng.one_of(&[
        Answer::Yes,
        Answer::Yes,
        Answer::No(Refusal::Term),
        Answer::No(Refusal::HearsLeader(node)),
        Answer::No(Refusal::Promised { left }),
        Answer::No(Refusal::JustStarted { left }),
        Answer::No(Refusal::DiskLost),
    ]);
    let successor = rng.one_of(&[None, Some(node)]);
    let body = rng.one_of(&[
        Body::PreVote { round, resignation },
        Body::PreVoteReply { round, to, answer },
        Body::Vote { round, resignation },
        Body::VoteReply { round, to, answer },
        Body::Heartbeat { round },
        Body::HeartbeatReply { round, to, promise: left },
        Body::Resigned { successor },
    ]);
    let now = known.status().hard.term;
    let other = Term(rng.mostly_small());
    let term = rng.one_of(&[now, now, Term(now.0.saturating_add(1)), other]);
    quorum::Message { incarnation: drawn_life(rng), term, body }
}

fn drawn(
    rng: &mut Rng,
    machine: &Machine,
    asked: quorum::Body,
) -> Input<Message<bully::Message, quorum::Message>> {
    let from = Endpoint::Node(node(rng.one_of(&["a", "b", "b", "c", "c", "stranger"])));
    let heard = |message| Input::Message { from, message };
    let agreed = agrees(machine.confirmation(), asked).map(Message::Confirmation);
    match rng.up_to(9) {
        0 | 1 => Input::Timeout,
        2 => Input::Command(rng.one_of(&[Command::Drained, Command::Resign, Command::Campaign])),
        3 | 4 => heard(Message::Nomination(nominates(rng))),
        5 => heard(Message::Confirmation(confirms(rng, machine.confirmation()))),
        6..=9 => agreed.map_or(Input::Timeout, heard),
        other => unreachable!("{other}"),
    }
}

#[test]
fn whatever_is_said_to_a_node_only_the_confirmation_gives_it_the_lead() {
    let mut rng = Rng::new(1);
    let (mut elections, mut nominations) = (0, 0);
    for _ in 0..400 {
        let (mut machine, mut now) = (machine(rng.one_of(&NAMES)), 0);
        let (mut leads, mut written) = (false, HardState::default());
        let mut asked = quorum::Body::Resigned { successor: None };
        for _ in 0..100 {
            now += rng.one_of(&[0, 0, 0, 1, 20, 100, 500]);
            let input = drawn(&mut rng, &machine, asked);
            machine.handle(at(now), input);
            let said = drain(&mut machine);
            assert!(said.len() <= 12 * NAMES.len(), "{said:?}");
            for output in said {
                match output {
                    Output::Persist(hard) => {
                        assert!(hard.term >= written.term, "{written:?}, then {hard:?}");
                        written = hard;
                    }
                    Output::Event(Event::Elected { term, mandate, .. }) => {
                        assert!(!leads && term == written.term, "{term}, {written:?}");
                        assert!(matches!(mandate, crate::protocol::Mandate::Fenced(_)), "{mandate:?}");
                        (leads, elections) = (true, elections + 1);
                    }
                    Output::Event(Event::Deposed(_)) => {
                        assert!(leads);
                        leads = false;
                    }
                    Output::Send { message: Message::Confirmation(said), .. } => asked = said.body,
                    Output::Send { .. } | Output::Event(_) => {}
                }
            }
            assert_eq!(leads, machine.own.lead != Lead::None);
            nominations += usize::from(machine.nomination().role() == "leading");
            let status = machine.confirmation().status();
            let known: BTreeSet<NodeId> = status.refusals.into_keys().chain(status.connected).collect();
            assert!(known.iter().all(|node| NAMES.contains(&node.as_str())), "{known:?}");
        }
    }
    assert!(
        elections > 10 && nominations > 10,
        "{elections} and {nominations}: what is drawn is to get anywhere"
    );
}

#[test]
fn what_no_honest_node_says_changes_nothing() {
    let mut c = machine("c");
    let before = c.clone();
    let far = Term(u64::MAX);
    let incarnation = life("b").incarnation;
    let nominated = bully::Message { incarnation, round: far, body: bully::Body::Heartbeat { term: far } };
    let confirmed = quorum::Body::Heartbeat { round: quorum::Round(1) };
    let confirmed = quorum::Message { incarnation, term: far, body: confirmed };
    let small = quorum::Message { term: Term(1), ..confirmed.clone() };
    let heard = [
        (Endpoint::Node(node("b")), Message::Nomination(nominated)),
        (Endpoint::Node(node("b")), Message::Confirmation(confirmed)),
        (Endpoint::Node(node("stranger")), Message::Confirmation(small.clone())),
        (Endpoint::Node(node("c")), Message::Confirmation(small.clone())),
        (Endpoint::Store, Message::Confirmation(small)),
    ];
    for (from, message) in heard {
        c.handle(at(1), Input::Message { from, message });
        assert_eq!(drain(&mut c), []);
    }
    assert_eq!(c, before);
}
