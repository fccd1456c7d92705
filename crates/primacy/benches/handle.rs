//! The cost of a heartbeat in the machine, without the network: the follower's answer, and the leader's counting of it.
//! `cargo bench -p primacy --bench handle`

use std::collections::BTreeSet;
use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use primacy::config::{Timers, Venue};
use primacy::core::election::quorum::{Answer, Body, Config, HardState, Message, Quorum, Round};
use primacy::core::{
    Command, Endpoint, Event, Identity, Incarnation, Input, Instant, NodeId, Output, Protocol as _, Term,
};

/// The time between heartbeats: less than a promise, so that the leader stays.
const STEP_NANOS: u64 = 1_000_000;

fn node(name: &str) -> Identity {
    let node = NodeId::new(name).expect("a short name");
    Identity::new(node, Incarnation { count: 1, nonce: 1 })
}

fn machine(me: Identity) -> Quorum {
    let timers = Timers::new(Venue::Peers, None);
    let voters: BTreeSet<NodeId> = ["a", "b", "c"].map(|name| node(name).node).into_iter().collect();
    let config = Config {
        me,
        voters,
        safety: primacy::Safety::Lease,
        heartbeat_interval: timers.renewal.into(),
        miss_count: timers.miss_count,
        promise_duration: timers.lease.into(),
        initial_wait: timers.initial_wait.into(),
        random_wait_max: timers.random_wait_max.into(),
        round_timeout: timers.answer_timeout.into(),
        stagger: timers.stagger.into(),
        drift_max: timers.drift_max,
        priority: 0,
        witness: false,
        pre_vote: true,
        sticky: true,
        seed: 1,
    };
    Quorum::new(config, HardState::default(), Instant::from_nanos(0))
}

fn message(from: Identity, term: u64, body: Body) -> Input<Message> {
    let message = Message { incarnation: from.incarnation, term: Term(term), body };
    Input::Message { from: Endpoint::Node(from.node), message }
}

/// Drains all outputs, so that the next input may come.
fn drain(machine: &mut Quorum) -> Vec<Message> {
    let mut sent = Vec::new();
    while let Some(output) = machine.poll() {
        if let Output::Send { message, .. } = output {
            sent.push(message);
        }
    }
    sent
}

fn follower(criterion: &mut Criterion) {
    let (mut follower, leader) = (machine(node("b")), node("a"));
    drain(&mut follower);
    let (mut now, mut round) = (0, 0);
    criterion.bench_function("handle a heartbeat, and answer it", |bencher| {
        bencher.iter(|| {
            (now, round) = (now + STEP_NANOS, round + 1);
            let heartbeat = message(leader, 1, Body::Heartbeat { round: Round(round) });
            follower.handle(Instant::from_nanos(now), black_box(heartbeat));
            while let Some(output) = follower.poll() {
                black_box(output);
            }
        });
    });
}

fn leader(criterion: &mut Criterion) {
    let (mut leader, me, voter) = (machine(node("a")), node("a"), node("b"));
    drain(&mut leader);
    leader.handle(Instant::from_nanos(0), Input::Command(Command::Campaign));
    drain(&mut leader);
    let mut now = Instant::from_nanos(0);
    let to = me.incarnation;
    // It asks, and is granted all that it asks for, until it shows itself.
    let (mut round, mut term) = (Round(0), 0);
    for _ in 0..100 {
        now = leader.deadline().expect("it stands at some time").max(now);
        leader.handle(now, Input::Timeout);
        let mut said = drain(&mut leader);
        while let Some(last) = said.pop() {
            let answer = match last.body {
                Body::PreVote { round, .. } => Body::PreVoteReply { round, to, answer: Answer::Yes },
                Body::Vote { round, .. } => Body::VoteReply { round, to, answer: Answer::Yes },
                Body::Heartbeat { round: sent } => {
                    (round, term) = (sent, last.term.0);
                    break;
                }
                Body::PreVoteReply { .. }
                | Body::VoteReply { .. }
                | Body::HeartbeatReply { .. }
                | Body::Resigned { .. } => {
                    continue;
                }
            };
            leader.handle(now, message(voter, last.term.0, answer));
            said = drain(&mut leader);
        }
        if term > 0 {
            break;
        }
    }
    assert!(term > 0, "it was granted everything and leads");
    let promise = Timers::new(Venue::Peers, None).lease.into();
    // The first answer makes it the leader. Each that is measured is to a later round, and so prolongs the lease.
    leader.handle(now, message(voter, term, Body::HeartbeatReply { round, to, promise }));
    drain(&mut leader);
    now = leader.deadline().expect("it shows itself again").max(now);
    leader.handle(now, Input::Timeout);
    let beat = drain(&mut leader).pop().expect("a leader's deadline is the next heartbeat");
    let Body::Heartbeat { round } = beat.body else { panic!("a leader says nothing else: {beat:?}") };
    let reply = message(voter, term, Body::HeartbeatReply { round, to, promise });
    let mut renewed = leader.clone();
    renewed.handle(now, reply.clone());
    assert!(matches!(renewed.poll(), Some(Output::Event(Event::Renewed { .. }))), "it prolongs the lease");
    criterion.bench_function("handle the answer to a heartbeat", |bencher| {
        bencher.iter_batched_ref(
            || (leader.clone(), Some(reply.clone())),
            |(leader, reply)| {
                leader.handle(now, black_box(reply.take().expect("one for each")));
                while let Some(output) = leader.poll() {
                    black_box(output);
                }
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, follower, leader);
criterion_main!(benches);
