//! A custom election algorithm: one type that implements `Protocol`.
//!
//! Here the node with the first name leads, among those that were heard lately. It is advisory: in a partition, each
//! side has a leader. The simulator can run it without any further code.

use std::collections::{BTreeMap, VecDeque};

use primacy_core::{
    Duration, Endpoint, Event, Evidence, Identity, Incarnation, Input, Instant, Leader, Mandate, NodeId,
    Output, Protocol, Reason, Term,
};

const INTERVAL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_millis(300);

/// "I am here."
#[derive(Clone, Copy, Debug)]
struct Here;

struct FirstName {
    me: Identity,
    others: Vec<NodeId>,
    heard: BTreeMap<NodeId, Instant>,
    leads: bool,
    next: Instant,
    outputs: VecDeque<Output<Here, ()>>,
}

impl FirstName {
    fn new(me: &str, others: &[&str]) -> Self {
        let id = |name: &str| NodeId::new(name).expect("a name");
        Self {
            me: Identity::new(id(me), Incarnation { count: 1, nonce: 0 }),
            others: others.iter().map(|name| id(name)).collect(),
            heard: BTreeMap::new(),
            leads: false,
            next: Instant::default().after(PATIENCE),
            outputs: VecDeque::new(),
        }
    }

    fn decide(&mut self, now: Instant) {
        self.heard.retain(|_, at| now < at.after(PATIENCE));
        let first = self.heard.keys().all(|&other| self.me.node < other);
        if first != self.leads {
            self.leads = first;
            let leader = Leader { identity: self.me, term: Term(1) };
            let elected = Event::Elected {
                term: leader.term,
                mandate: Mandate::Advisory, // The type says that no token can be had here.
                valid_until: Instant::NEVER,
            };
            self.outputs.push_back(Output::Event(if first {
                elected
            } else {
                Event::Deposed(Reason::Overwritten)
            }));
        }
    }
}

impl Protocol for FirstName {
    type Message = Here;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Here>) {
        match input {
            Input::Message { from: Endpoint::Node(from), message: Here } => {
                self.heard.insert(from, now);
            }
            Input::Timeout if now >= self.next => {
                self.next = now.after(INTERVAL);
                for &to in &self.others {
                    self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message: Here });
                }
            }
            Input::Evidence(Evidence::Died(dead)) => {
                self.heard.remove(&dead.node);
            }
            Input::Timeout | Input::Command(_) => {}
            Input::Message { from: Endpoint::Store | Endpoint::Client, .. } => {}
            Input::Evidence(Evidence::Connected(_) | Evidence::Disconnected(_)) => {}
            Input::Evidence(Evidence::Readmitted { .. } | Evidence::DiskRefused { .. }) => {} // It keeps nothing on a disk.
        }
        self.decide(now);
    }

    fn poll(&mut self) -> Option<Output<Here, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.next)
    }
}

/// Runs the example.
pub fn main() {
    let mut nodes = [FirstName::new("a", &["b"]), FirstName::new("b", &["a"])];
    let mut now = Instant::default();
    for _ in 0..10 {
        now = now.after(INTERVAL);
        let mut sent = Vec::new();
        for node in &mut nodes {
            node.handle(now, Input::Timeout);
            while let Some(output) = node.poll() {
                match output {
                    Output::Send { message, .. } => sent.push((node.me.node, message)),
                    Output::Event(event) => println!("{now:?} {}: {event:?}", node.me.node),
                    Output::Persist(()) => {}
                }
            }
        }
        for (from, message) in sent {
            let other = nodes.iter_mut().find(|node| node.me.node != from).expect("the other one");
            other.handle(now, Input::Message { from: Endpoint::Node(from), message });
            while let Some(output) = other.poll() {
                println!("{now:?} {}: {output:?}", other.me.node);
            }
        }
    }
    assert!(nodes[0].leads && !nodes[1].leads);
}
