//! The counting loop: real machines and one queue, with equal delays for all messages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use primacy_core::election::bully::Bully;
use primacy_core::election::on_a_ring::{Config, OnARing, Probing};
use primacy_core::election::ring::ChangRoberts;
use primacy_core::election::ring_bidirectional::HirschbergSinclair;
use primacy_core::election::{Advisory, AdvisorySettings};
use primacy_core::neighbours::Neighbours;
use primacy_core::{
    Command, Duration, Endpoint, Identity, Incarnation, Input, Instant, Leader, NodeId, Output, Protocol,
};

use super::Begins;
use crate::algorithm::Algorithm;
use crate::elections::bully::Bully as OfBully;
use crate::elections::ring::{OfProbing, ProbeText};

/// A heartbeat interval longer than any count, so that no heartbeat is counted.
const HEARTBEAT: Duration = Duration::from_secs(1_000_000);

/// The time to wait for an answer, and for the confirmation of a hop. Messages are delivered without delay here.
const PATIENCE: Duration = Duration::from_secs(1);

/// The numbers of messages of an election.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Messages until a node was elected; including announcements, where the two cannot be distinguished.
    pub(super) elect: u64,
    /// Messages that announce the leader.
    pub(super) announce: u64,
}

/// The interface of a machine whose messages are counted.
trait Initiates: Protocol {
    fn begin(&mut self, now: Instant);
    fn named(&self) -> Option<Leader>;
}

impl Initiates for Bully {
    fn begin(&mut self, now: Instant) {
        self.initiate(now);
    }

    fn named(&self) -> Option<Leader> {
        self.leader()
    }
}

impl<P: Probing> Initiates for OnARing<P> {
    fn begin(&mut self, now: Instant) {
        self.initiate(now);
    }

    fn named(&self) -> Option<Leader> {
        self.leader()
    }
}

/// Counts a bully election in which the highest of `nodes` nodes is dead.
pub(super) fn bully(nodes: usize, begins: Begins) -> Counted {
    let names: Vec<NodeId> = (0..nodes).map(name).collect();
    let machine = |&me: &NodeId| {
        let config = AdvisorySettings {
            me: identity(me),
            nodes: names.iter().copied().collect(),
            heartbeat_interval: HEARTBEAT,
            miss_count: 1,
            answer_timeout: PATIENCE,
            sticky: false,
        };
        <Bully as Advisory>::begin(config, Instant::default())
    };
    let machines = names[..nodes - 1].iter().map(machine).collect();
    Bench::<OfBully>::new(&names[..nodes - 1], machines).run(begins)
}

pub(super) fn ring(ring: &[usize], begins: Begins) -> Counted {
    on_a_ring::<ChangRoberts>(ring, begins)
}

pub(super) fn ring_bidirectional(ring: &[usize], begins: Begins) -> Counted {
    on_a_ring::<HirschbergSinclair>(ring, begins)
}

fn on_a_ring<P: ProbeText>(ring: &[usize], begins: Begins) -> Counted {
    let names: Arc<[NodeId]> = ring.iter().map(|&place| name(place)).collect();
    let places = Neighbours::all(&names).expect("each name is there once");
    let machine = |(&me, neighbours): (&NodeId, Neighbours)| {
        let config = Config {
            me: identity(me),
            ring: Arc::clone(&names),
            heartbeat_interval: HEARTBEAT,
            miss_count: 1,
            hop_timeout: PATIENCE,
            sticky: true,
        };
        OnARing::<P>::among(config, neighbours, Instant::default())
    };
    let machines = names.iter().zip(places).map(machine).collect();
    Bench::<OfProbing<P>>::new(&names, machines).run(begins)
}

/// Returns a name for each rank, in the same order.
fn name(place: usize) -> NodeId {
    NodeId::new(&format!("n{place:06}")).expect("letters and digits")
}

const fn identity(node: NodeId) -> Identity {
    Identity::new(node, Incarnation { count: 1, nonce: 1 })
}

struct Bench<A: Algorithm> {
    places: BTreeMap<NodeId, usize>,
    names: Vec<NodeId>,
    machines: Vec<A::Machine>,
    under_way: VecDeque<(NodeId, NodeId, A::Message)>,
    now: Instant,
    counted: Counted,
}

impl<A: Algorithm> Bench<A>
where
    A::Machine: Initiates,
{
    fn new(names: &[NodeId], machines: Vec<A::Machine>) -> Self {
        let places = names.iter().enumerate().map(|(place, &name)| (name, place)).collect();
        let (under_way, now) = (VecDeque::new(), Instant::default());
        Self { places, names: names.to_vec(), machines, under_way, now, counted: Counted::default() }
    }

    /// Runs until all nodes name one leader, and no message is under way.
    fn run(mut self, begins: Begins) -> Counted {
        for place in 0..self.machines.len() {
            self.machines[place].handle(self.now, Input::Command(Command::Campaign));
            self.take(place);
        }
        for place in 0..self.machines.len() {
            let begins = match begins {
                Begins::All => true,
                Begins::Only(rank) => self.names[place] == name(rank),
            };
            if begins {
                self.machines[place].begin(self.now);
                self.take(place);
            }
        }
        loop {
            while let Some((from, to, message)) = self.under_way.pop_front() {
                self.count(&message);
                let Some(&place) = self.places.get(&to) else { continue }; // It is dead.
                self.machines[place].handle(self.now, Input::Message { from: Endpoint::Node(from), message });
                self.take(place);
            }
            if self.is_over() {
                return self.counted;
            }
            self.wait();
        }
    }

    fn is_over(&self) -> bool {
        let mut named = self.machines.iter().map(Initiates::named);
        let first = named.next().flatten();
        first.is_some() && named.all(|leader| leader == first)
    }

    /// Advances the time by [`PATIENCE`], so that waiting nodes time out. Called when no message is under way.
    fn wait(&mut self) {
        self.now = self.now.after(PATIENCE);
        assert!(self.now < Instant::default().after(HEARTBEAT), "it does not come to its end");
        for place in 0..self.machines.len() {
            if self.machines[place].deadline().is_some_and(|deadline| deadline <= self.now) {
                self.machines[place].handle(self.now, Input::Timeout);
                self.take(place);
            }
        }
    }

    fn take(&mut self, place: usize) {
        while let Some(output) = self.machines[place].poll() {
            match output {
                Output::Send { to: Endpoint::Node(to), message } => {
                    self.under_way.push_back((self.names[place], to, message));
                }
                // These elections have no store and persist nothing; events are no messages.
                Output::Send { to: Endpoint::Store | Endpoint::Client, .. } => {}
                Output::Persist(_) | Output::Event(_) => {}
            }
        }
    }

    /// Counts a message by its kind. Confirmations are left out: there is one for each hop.
    fn count(&mut self, message: &A::Message) {
        match A::kind(message) {
            "Received" => {}
            "Elected" => self.counted.announce += 1,
            _ => self.counted.elect += 1,
        }
    }
}
