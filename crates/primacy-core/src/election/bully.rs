//! Bully (Garcia-Molina 1982, in the form of the textbooks): the highest name that is alive leads.
//! Assumes   bounded message delay; every node knows every name; crashes, not partitions.
//! Promises  at most one leader *only while those hold*; a partition elects two, and so does a pause. No token.
//! Costs     n² − n − 1 messages if the lowest name notices that the highest is dead, n − 1 if the second highest does; two
//!           delays after the detection. A heartbeat to every node.   Prefer `quorum`; or let one confirm it.
//!
//! How it goes:
//!
//! ```text
//!               silence: Election to all higher names            nobody is alive above: Coordinator to all lower names
//!   Following ───────────────────────────────────────► Electing ────────────────────────────────────────► Leading
//!       ▲                                                │ Alive                                             │
//!       │                                                ▼                                                   │
//!       └──────────────── Coordinator ──────────────── Waiting ── nobody comes: elects again                 │
//!       └──────────────── Coordinator of a higher name, or of a later round ─────────────────────────────────┘
//! ```
//!
//! What the textbooks leave out: elections are numbered, so that what comes late is known as such; the leader goes on to show
//! itself, which is how its end is noticed; and a higher name that comes back either takes over, as they have it, or, where the
//! election is `sticky`, waits until there is need.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::detector::MissedHeartbeats;
use crate::id::{Identity, Incarnation, NodeId};
use crate::protocol::{
    Command, Endpoint, Event, Evidence, Input, Leader, Mandate, Occasion, Output, Protocol, Reason,
};
use crate::term::Term;
use crate::time::{Duration, Instant};

/// A number of an election above this one is no honest node's.
const ROUND_MAX: Term = Term(u64::MAX / 2);

/// Who takes part, and how patient they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, in this life.
    pub me: Identity,
    /// All nodes, this one among them. The order of their names decides.
    pub nodes: BTreeSet<NodeId>,
    /// How often the leader shows itself.
    pub heartbeat_interval: Duration,
    /// How many heartbeats in a row must be missed until the leader is taken to be dead.
    pub miss_count: u32,
    /// How long is waited for somebody above to say that it is alive, and then for a leader: a bound on the round trip.
    pub answer_timeout: Duration,
    /// Whether a node that comes back leaves the lead to whoever has it.
    pub sticky: bool,
}

/// What nodes say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The process life of the sender.
    pub incarnation: Incarnation,
    /// The highest number of an election that the sender has heard of.
    pub round: Term,
    /// What is said.
    pub body: Body,
}

/// The parts of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// To all higher names: "is any of you alive? If not, I lead".
    Election,
    /// The answer: "I am, leave it to me".
    Alive,
    /// To all lower names: "I lead from now on".
    Coordinator {
        /// The number of the election that it has won.
        term: Term,
    },
    /// To all: "I still lead".
    Heartbeat {
        /// The number of the election that it has won.
        term: Term,
    },
    /// To all: "I led and do not any more".
    Resigned,
}

/// The machine of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bully {
    config: Config,
    role: Role,
    /// The highest number of an election that this node has heard of.
    round: Term,
    /// The application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// One that has just resigned stays silent until then.
    yields_until: Instant,
    occasion: Occasion,
    told_leader: Option<Leader>,
    outputs: VecDeque<Output<Message, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Hears a leader, or waits for one.
    Following { leader: Option<Leader>, detector: MissedHeartbeats },
    /// Has asked whether anybody above is alive.
    Electing { until: Instant },
    /// Somebody above is, and will say that it leads.
    Waiting { until: Instant },
    /// In the term that is the number of the election that it has won.
    Leading { term: Term, beat_at: Instant, resigning: Option<Reason> },
}

impl Protocol for Bully {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Store, .. } => {} // This election knows no store.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.on_command(now, command),
            Input::Evidence(evidence) => self.on_evidence(now, evidence),
        }
        self.tell_leader();
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.role {
            Role::Following { leader: None, .. } if !self.may_stand() => None,
            Role::Following { detector, .. } => Some(detector.deadline().max(self.yields_until)),
            Role::Electing { until } | Role::Waiting { until } => Some(*until),
            Role::Leading { beat_at, resigning: None, .. } => Some(*beat_at),
            Role::Leading { resigning: Some(_), .. } => None,
        }
    }
}

impl Bully {
    /// The machine of `config.me`. It listens first, and does not stand until it is told to.
    ///
    /// # Panics
    /// If this node is not among the nodes.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        assert!(config.nodes.contains(&config.me.node), "a node that is not among the nodes takes no part");
        let detector = MissedHeartbeats::new(config.heartbeat_interval, config.miss_count, now);
        Self {
            config,
            role: Role::Following { leader: None, detector },
            round: Term(0),
            campaigning: false,
            healthy: true,
            yields_until: now,
            occasion: Occasion::Silence,
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    /// Begins an election now, whether there is a leader or not: what a textbook means by "a process initiates".
    pub fn initiate(&mut self, now: Instant) {
        if self.may_stand() {
            self.elect(now);
        }
        self.tell_leader();
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        let stranger = from == self.config.me.node || !self.config.nodes.contains(&from);
        if stranger || message.round > ROUND_MAX {
            return;
        }
        let from = Identity::new(from, message.incarnation);
        let is_late = message.round < self.round;
        self.round = self.round.max(message.round);
        match (message.body, &mut self.role) {
            (Body::Election, _) => self.on_election(now, from.node),
            (Body::Alive, Role::Electing { .. }) if !is_late => {
                let until = now.after(self.config.answer_timeout.times(2));
                self.role = Role::Waiting { until };
            }
            (Body::Alive, Role::Electing { .. }) => {} // Of an earlier election.
            // It waits already, or there is a leader by now.
            (Body::Alive, Role::Following { .. } | Role::Waiting { .. } | Role::Leading { .. }) => {}
            // Of an earlier election. Who leads since then shows itself to that leader, too.
            (Body::Coordinator { .. } | Body::Heartbeat { .. }, _) if is_late => {}
            (Body::Coordinator { term } | Body::Heartbeat { term }, _) => {
                self.on_leader(now, Leader { identity: from, term });
            }
            (Body::Resigned, Role::Following { leader: Some(known), .. }) if known.identity == from => {
                self.lose_leader(now, Occasion::Resigned);
            }
            (Body::Resigned, _) => {} // It was not heard to lead.
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        match &self.role {
            Role::Following { detector, .. } if detector.suspects(now) && now >= self.yields_until => {
                self.lose_leader(now, Occasion::Silence);
            }
            Role::Electing { until } if now >= *until => self.become_leader(now),
            // Whoever was alive above is not any more, or does not hear.
            Role::Waiting { until } if now >= *until => self.elect(now),
            Role::Leading { beat_at, resigning: None, .. } if now >= *beat_at => self.beat(now),
            Role::Following { .. } | Role::Electing { .. } | Role::Waiting { .. } | Role::Leading { .. } => {} // Early.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign => self.campaigning = true,
            Command::Healthy(true) => self.healthy = true,
            Command::Withdraw => {
                self.campaigning = false;
                self.retire(now, Reason::Resigned);
            }
            Command::Healthy(false) => {
                self.healthy = false;
                self.retire(now, Reason::Unhealthy);
            }
            // The names decide who is next, and nothing else does.
            Command::Resign | Command::Transfer(_) => self.retire(now, Reason::Resigned),
            Command::Down(_) => {} // Its members are in the configuration.
            Command::Drained => {
                if let Role::Leading { resigning: Some(reason), .. } = self.role {
                    self.yields_until = now.after(self.patience());
                    self.tell(Event::Deposed(reason));
                    self.send_to(|_| true, Body::Resigned);
                    self.follow(now, None);
                }
            }
        }
    }

    fn on_evidence(&mut self, now: Instant, evidence: Evidence) {
        let Role::Following { leader: Some(leader), .. } = &self.role else { return };
        match evidence {
            Evidence::Died(identity) if leader.identity == identity => self.lose_leader(now, Occasion::Died),
            Evidence::Disconnected(node) if leader.identity.node == node => {
                self.lose_leader(now, Occasion::Disconnected);
            }
            Evidence::Died(_) | Evidence::Disconnected(_) => {} // Not the leader.
            Evidence::Connected(_) | Evidence::Readmitted { .. } => {} // There is no vote that a disk could lose.
        }
    }

    // ── electing ────────────────────────────────────────────────────────────────────────────────────────────

    /// Asks all higher names. The highest of all need ask nobody.
    fn elect(&mut self, now: Instant) {
        self.round = self.round.next();
        let me = self.config.me.node;
        if self.config.nodes.last() == Some(&me) {
            return self.become_leader(now);
        }
        self.role = Role::Electing { until: now.after(self.config.answer_timeout) };
        self.send_to(|node| node > me, Body::Election);
    }

    /// Somebody lower, or somebody who does not stand, asks whether this node is alive.
    fn on_election(&mut self, now: Instant, from: NodeId) {
        if from > self.config.me.node || !self.may_stand() || now < self.yields_until {
            return; // It leaves the lead to others.
        }
        self.send(from, Body::Alive);
        match &self.role {
            Role::Following { .. } => self.elect(now),
            Role::Electing { .. } | Role::Waiting { .. } => {} // One election at a time.
            // It asks because it has not heard.
            Role::Leading { resigning: None, .. } => self.beat(now),
            Role::Leading { resigning: Some(_), .. } => {}
        }
    }

    fn become_leader(&mut self, now: Instant) {
        let (term, mandate, valid_until) = (self.round, Mandate::Advisory, Instant::NEVER);
        let beat_at = now.after(self.config.heartbeat_interval);
        self.role = Role::Leading { term, beat_at, resigning: None };
        self.tell(Event::Elected { term, mandate, valid_until });
        let me = self.config.me.node;
        self.send_to(|node| node < me, Body::Coordinator { term });
    }

    fn beat(&mut self, now: Instant) {
        let Role::Leading { term, beat_at, .. } = &mut self.role else { return };
        *beat_at = now.after(self.config.heartbeat_interval);
        let term = *term;
        self.send_to(|_| true, Body::Heartbeat { term });
    }

    // ── following ───────────────────────────────────────────────────────────────────────────────────────────

    /// Another says that it leads, in the latest election that is known of.
    fn on_leader(&mut self, now: Instant, leader: Leader) {
        if matches!(self.role, Role::Leading { .. }) {
            self.tell(Event::Deposed(Reason::HigherTerm(leader.term)));
        }
        self.occasion = Occasion::Silence;
        self.follow(now, Some(leader));
        let bullies = leader.identity.node < self.config.me.node && !self.config.sticky;
        if bullies && self.may_stand() && now >= self.yields_until {
            self.elect(now);
        }
    }

    fn lose_leader(&mut self, now: Instant, occasion: Occasion) {
        self.occasion = occasion;
        self.follow(now, None);
        if self.may_stand() && now >= self.yields_until {
            self.elect(now);
        }
    }

    fn follow(&mut self, now: Instant, leader: Option<Leader>) {
        let Config { heartbeat_interval, miss_count, .. } = self.config;
        self.role =
            Role::Following { leader, detector: MissedHeartbeats::new(heartbeat_interval, miss_count, now) };
    }

    /// Leaves candidacy, or asks the application to drain.
    fn retire(&mut self, now: Instant, reason: Reason) {
        let may_stand = self.may_stand();
        match &mut self.role {
            Role::Leading { resigning: resigning @ None, .. } => {
                *resigning = Some(reason);
                self.tell(Event::Resigning(reason));
            }
            Role::Leading { resigning: Some(_), .. } => {} // It does so already.
            Role::Electing { .. } | Role::Waiting { .. } if !may_stand => self.follow(now, None),
            Role::Following { .. } | Role::Electing { .. } | Role::Waiting { .. } => {} // It does not lead.
        }
    }

    // ── small things ────────────────────────────────────────────────────────────────────────────────────────

    /// What made this node stand, if it stands or leads.
    #[must_use]
    pub const fn occasion(&self) -> Occasion {
        self.occasion
    }

    /// The role, for people: `following`, `electing`, `waiting` or `leading`.
    #[must_use]
    pub const fn role(&self) -> &'static str {
        match self.role {
            Role::Following { .. } => "following",
            Role::Electing { .. } => "electing",
            Role::Waiting { .. } => "waiting",
            Role::Leading { .. } => "leading",
        }
    }

    const fn may_stand(&self) -> bool {
        self.campaigning && self.healthy
    }

    fn patience(&self) -> Duration {
        self.config.heartbeat_interval.times(u64::from(self.config.miss_count))
    }

    fn tell_leader(&mut self) {
        let leader = match &self.role {
            Role::Following { leader, .. } => *leader,
            Role::Leading { term, .. } => Some(Leader { identity: self.config.me, term: *term }),
            Role::Electing { .. } | Role::Waiting { .. } => None,
        };
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn send(&mut self, to: NodeId, body: Body) {
        let message = Message { incarnation: self.config.me.incarnation, round: self.round, body };
        self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
    }

    fn send_to(&mut self, wanted: impl Fn(NodeId) -> bool, body: Body) {
        let me = self.config.me.node;
        let to: Vec<NodeId> =
            self.config.nodes.iter().copied().filter(|&node| node != me && wanted(node)).collect();
        for node in to {
            self.send(node, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// How many messages it takes among so many nodes of which the highest is dead, if the node of this place starts.
    fn counted(count: usize, starts: usize) -> usize {
        let names: Vec<NodeId> =
            (0..count).map(|place| NodeId::new(&std::format!("n{place:02}")).unwrap()).collect();
        let mut now = Instant::default();
        let mut nodes: BTreeMap<NodeId, Bully> = BTreeMap::new();
        for &name in &names[..count - 1] {
            let millis = Duration::from_millis;
            let config = Config {
                me: Identity::new(name, Incarnation { count: 1, nonce: 1 }),
                nodes: names.iter().copied().collect(),
                heartbeat_interval: millis(1_000),
                miss_count: 3,
                answer_timeout: millis(50),
                sticky: true,
            };
            let mut node = Bully::new(config, now);
            node.handle(now, Input::Command(Command::Campaign));
            nodes.insert(name, node);
        }
        let mut under_way = VecDeque::new();
        let first = nodes.get_mut(&names[starts]).unwrap();
        first.initiate(now);
        take(first, names[starts], &mut under_way);
        let mut messages = 0;
        // Until somebody leads, and all know it; before the first heartbeat.
        while nodes.values().any(|node| !matches!(node.role(), "following" | "leading"))
            || !under_way.is_empty()
        {
            if let Some((from, to, message)) = under_way.pop_front() {
                messages += 1;
                let Some(node) = nodes.get_mut(&to) else { continue };
                node.handle(now, Input::Message { from: Endpoint::Node(from), message });
                take(node, to, &mut under_way);
            } else {
                now = nodes.values().filter_map(Bully::deadline).min().unwrap();
                for (&name, node) in &mut nodes {
                    node.handle(now, Input::Timeout);
                    take(node, name, &mut under_way);
                }
            }
        }
        assert_eq!(nodes[&names[count - 2]].role(), "leading");
        messages
    }

    fn take(node: &mut Bully, name: NodeId, under_way: &mut VecDeque<(NodeId, NodeId, Message)>) {
        while let Some(output) = node.poll() {
            match output {
                Output::Send { to: Endpoint::Node(to), message } => under_way.push_back((name, to, message)),
                Output::Send { to: Endpoint::Store, .. } | Output::Persist(()) => {
                    panic!("it has no store, and no disk")
                }
                Output::Event(_) => {}
            }
        }
    }

    #[test]
    fn it_takes_as_many_messages_as_the_formula_says() {
        for n in 2..=40 {
            assert_eq!(counted(n, 0), if n == 2 { 1 } else { n * n - n - 1 }, "the lowest of {n} starts");
            assert_eq!(counted(n, n - 2), n - 1, "the second highest of {n} starts");
        }
    }
}
