//! The naive election with which the BlazingMQ article begins, so that its four problems can be watched.
//!
//! Assumes   what no network gives: one proposal at a time, and no late messages or nodes.
//! Promises  nothing. Its faults, in the article's order:
//!           1. concurrent proposals: nothing tells a node that it has already said yes to another;
//!           2. unneeded proposals: nothing tells it that the leader it follows is the one to keep;
//!           3. stale leaders: of two that show themselves, nothing tells which one is the old one;
//!           4. ordering: of two updates, nothing tells which one comes from the old leader.
//!           A number that only grows, the term, cures all four.
//! Costs     a round trip. Never use it.

use std::collections::{BTreeSet, VecDeque};

use primacy_core::detector::MissedHeartbeats;
use primacy_core::majority::needed;
use primacy_core::rng::Rng;
use primacy_core::{
    Command, Duration, Endpoint, Event, Identity, Input, Instant, Leader, Mandate, NodeId, Output, Protocol,
    Reason, Term,
};

/// A node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub me: Identity,
    /// All nodes.
    pub voters: BTreeSet<NodeId>,
    /// The time between heartbeats of a leader.
    pub heartbeat_interval: Duration,
    /// The number of missed heartbeats after which a node takes the leader to be gone.
    pub miss_count: u32,
    /// The time for which a new node listens for a leader.
    pub initial_wait: Duration,
    /// The longest random wait before a proposal.
    pub random_wait_max: Duration,
    /// The time that a candidate waits for answers.
    pub round_timeout: Duration,
    /// The seed of the random waits.
    pub seed: u64,
}

/// A message between nodes. It carries no term, which is the cause of all four problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// A request for support.
    Proposal,
    /// The answer to a proposal.
    ProposalReply {
        /// Yes or no.
        yes: bool,
    },
    /// The sender's claim to lead.
    Heartbeat,
}

/// The machine of one node.
#[derive(Clone, Debug)]
pub struct BlazingmqNaive {
    config: Config,
    campaigning: bool,
    role: Role,
    told_leader: Option<NodeId>,
    rng: Rng,
    outputs: VecDeque<Output<Message, ()>>,
}

#[derive(Clone, Debug)]
enum Role {
    Waiting { propose_at: Instant },
    Following { detector: MissedHeartbeats },
    Candidate { yes: BTreeSet<NodeId>, until: Instant },
    Leader { beat_at: Instant, resigning: bool },
}

impl Protocol for BlazingmqNaive {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Store | Endpoint::Client, .. } => {} // It knows no store.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.on_command(now, command),
            Input::Evidence(_) => {} // It believes heartbeats only.
        }
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.role {
            Role::Waiting { propose_at } => self.campaigning.then_some(*propose_at),
            Role::Following { detector } => Some(detector.deadline()),
            Role::Candidate { until, .. } => Some(*until),
            Role::Leader { beat_at, resigning } => (!resigning).then_some(*beat_at),
        }
    }
}

impl BlazingmqNaive {
    /// The machine of `config.me`. It campaigns only on command.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let mut rng = Rng::new(config.seed);
        let propose_at = now.after(config.initial_wait).after(rng.duration_up_to(config.random_wait_max));
        let (role, outputs) = (Role::Waiting { propose_at }, VecDeque::new());
        Self { config, campaigning: false, role, told_leader: None, rng, outputs }
    }

    /// True if it has proposed itself, and waits for the answers.
    #[must_use]
    pub const fn campaigns(&self) -> bool {
        matches!(self.role, Role::Candidate { .. })
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        match (&mut self.role, message) {
            // A node accepts every proposal: nothing distinguishes one proposal from another.
            (Role::Waiting { .. } | Role::Following { .. }, Message::Proposal) => {
                self.send(from, Message::ProposalReply { yes: true });
            }
            (Role::Candidate { .. } | Role::Leader { .. }, Message::Proposal) => {
                self.send(from, Message::ProposalReply { yes: false });
            }
            (Role::Candidate { yes, .. }, Message::ProposalReply { yes: true }) => {
                yes.insert(from);
                self.count(now);
            }
            (Role::Candidate { .. }, Message::ProposalReply { yes: false }) => {} // Perhaps others say yes.
            (
                Role::Waiting { .. } | Role::Following { .. } | Role::Leader { .. },
                Message::ProposalReply { .. },
            ) => {} // Late.
            (Role::Waiting { .. } | Role::Following { .. } | Role::Candidate { .. }, Message::Heartbeat) => {
                // The latest heartbeat wins: nothing shows which leader is the older one.
                let (interval, misses) = (self.config.heartbeat_interval, self.config.miss_count);
                let detector = MissedHeartbeats::new(interval, misses, now);
                self.role = Role::Following { detector };
                self.tell_leader(Some(from));
            }
            (Role::Leader { .. }, Message::Heartbeat) => {} // "I lead", they both say.
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        match &mut self.role {
            Role::Waiting { propose_at } if self.campaigning && now >= *propose_at => self.propose(now),
            Role::Following { detector } if detector.suspects(now) => self.wait(now),
            Role::Candidate { until, .. } if now >= *until => self.wait(now),
            Role::Leader { beat_at, resigning: false } if now >= *beat_at => self.beat(now),
            Role::Waiting { .. } | Role::Following { .. } => {} // Early.
            Role::Candidate { .. } | Role::Leader { .. } => {}  // Early.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match (&mut self.role, command) {
            (_, Command::Campaign) => self.campaigning = true,
            (Role::Leader { resigning, .. }, Command::Resign | Command::Withdraw) => {
                *resigning = true;
                self.outputs.push_back(Output::Event(Event::Resigning(Reason::Resigned)));
            }
            (Role::Leader { resigning: true, .. }, Command::Drained) => {
                self.outputs.push_back(Output::Event(Event::Deposed(Reason::Resigned)));
                self.wait(now);
            }
            (
                Role::Waiting { .. } | Role::Following { .. } | Role::Candidate { .. } | Role::Leader { .. },
                Command::Withdraw
                | Command::Resign
                | Command::Drained
                | Command::Transfer(_)
                | Command::Down(_)
                | Command::Healthy(_),
            ) => {} // It knows nothing of these.
        }
    }

    fn wait(&mut self, now: Instant) {
        let propose_at = now.after(self.rng.duration_up_to(self.config.random_wait_max));
        self.role = Role::Waiting { propose_at };
        self.tell_leader(None);
    }

    fn propose(&mut self, now: Instant) {
        let until = now.after(self.config.round_timeout);
        self.role = Role::Candidate { yes: BTreeSet::from([self.config.me.node]), until };
        self.send_all(Message::Proposal);
        self.count(now);
    }

    fn count(&mut self, now: Instant) {
        let Role::Candidate { yes, .. } = &self.role else { return };
        if yes.len() < needed(self.config.voters.len()) {
            return;
        }
        let (term, mandate, valid_until) = (Term(0), Mandate::Advisory, Instant::NEVER);
        self.outputs.push_back(Output::Event(Event::Elected { term, mandate, valid_until }));
        self.beat(now);
        self.tell_leader(Some(self.config.me.node));
    }

    fn beat(&mut self, now: Instant) {
        let beat_at = now.after(self.config.heartbeat_interval);
        self.role = Role::Leader { beat_at, resigning: false };
        self.send_all(Message::Heartbeat);
    }

    fn tell_leader(&mut self, node: Option<NodeId>) {
        if self.told_leader == node {
            return;
        }
        self.told_leader = node;
        // The incarnation of the leader is not known here.
        let incarnation = self.config.me.incarnation;
        let leader = node.map(|node| Leader { identity: Identity { node, incarnation }, term: Term(0) });
        self.outputs.push_back(Output::Event(Event::LeaderChanged(leader)));
    }

    fn send(&mut self, to: NodeId, message: Message) {
        self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
    }

    fn send_all(&mut self, message: Message) {
        let me = self.config.me.node;
        let peers = self.config.voters.iter().copied().filter(|&voter| voter != me);
        let sends = peers.map(|peer| Output::Send { to: Endpoint::Node(peer), message });
        self.outputs.extend(sends);
    }
}
