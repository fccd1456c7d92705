//! Drives the machines without any runtime: three quorum machines, with a queue for a network and a number for a clock.
//!
//! The daemon, the simulator and the script runner are the same loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primacy_core::election::quorum::{Config, HardState, Message, Quorum, Safety};
use primacy_core::{
    Command, Drift, Duration, Endpoint, Event, Identity, Incarnation, Input, Instant, NodeId, Output,
    Protocol,
};

type Wire = VecDeque<(NodeId, NodeId, Message)>;

fn machine(me: NodeId, voters: &BTreeSet<NodeId>, seed: u64) -> Quorum {
    let incarnation = Incarnation { count: 1, nonce: seed };
    let config = Config {
        me: Identity::new(me, incarnation),
        voters: voters.clone(),
        safety: Safety::Lease,
        heartbeat_interval: Duration::from_millis(250),
        miss_count: 4,
        promise_duration: Duration::from_secs(1),
        initial_wait: Duration::from_secs(1),
        random_wait_max: Duration::from_millis(300),
        round_timeout: Duration::from_millis(250),
        stagger: Duration::from_millis(5),
        drift_max: Drift::from_ppm(10_000),
        priority: 0,
        witness: false,
        pre_vote: true,
        sticky: true,
        seed,
    };
    Quorum::new(config, HardState::default(), Instant::default())
}

/// Performs the effects of one machine, in order. Returns whether it was elected.
fn drain(now: Instant, me: NodeId, machine: &mut Quorum, wire: &mut Wire) -> bool {
    let mut elected = false;
    while let Some(output) = machine.poll() {
        match output {
            Output::Persist(hard) => println!("{now:?} {me} writes {hard:?}"), // A real one returns when it is on disk.
            Output::Send { to: Endpoint::Node(to), message } => wire.push_back((me, to, message)),
            Output::Send { to: Endpoint::Store | Endpoint::Client, .. } => {
                unreachable!("this election has neither")
            }
            Output::Event(event) => {
                println!("{now:?} {me} says {event:?}");
                elected |= matches!(event, Event::Elected { .. });
            }
        }
    }
    elected
}

/// Runs the example.
pub fn main() {
    let voters: BTreeSet<NodeId> =
        ["a", "b", "c"].into_iter().map(|name| name.parse().expect("a name")).collect();
    let mut nodes: BTreeMap<NodeId, Quorum> =
        voters.iter().zip(1..).map(|(&node, seed)| (node, machine(node, &voters, seed))).collect();
    let (mut wire, mut now, mut elected) = (Wire::new(), Instant::default(), Vec::new());
    for (&node, machine) in &mut nodes {
        drain(now, node, machine, &mut wire);
        machine.handle(now, Input::Command(Command::Campaign));
        drain(now, node, machine, &mut wire);
    }
    while elected.is_empty() {
        let (node, input) = match wire.pop_front() {
            Some((from, to, message)) => (to, Input::Message { from: Endpoint::Node(from), message }),
            None => {
                // No message is in flight: time passes until the next deadline.
                let deadline = |machine: &Quorum| machine.deadline().unwrap_or(Instant::NEVER);
                let (&node, machine) =
                    nodes.iter().min_by_key(|(_, machine)| deadline(machine)).expect("three of them");
                now = now.max(deadline(machine));
                (node, Input::Timeout)
            }
        };
        let machine = nodes.get_mut(&node).expect("it is one of the three");
        machine.handle(now, input);
        if drain(now, node, machine, &mut wire) {
            elected.push(node);
        }
    }
    assert_eq!(elected.len(), 1);
}
