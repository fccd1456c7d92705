//! What the elections on a ring share: everything but how they find the highest name.
//!
//! A node passes messages to the next one on the ring that is there (see [`neighbours`](crate::neighbours)), and each hop is
//! confirmed, or the next but one is tried. Whoever finds that it has the highest name says so once around the ring, and again
//! with each heartbeat. Rounds are numbered, so that what comes late is known as such; one that comes to nothing is begun again.
//! How the highest name is found is a [`Probing`]: [`ring`](super::ring) or
//! [`ring_bidirectional`](super::ring_bidirectional).

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::detector::MissedHeartbeats;
use crate::id::{Identity, Incarnation, NodeId};
use crate::neighbours::{Direction, Neighbours};
use crate::protocol::{
    Command, Endpoint, Event, Evidence, Input, Leader, Mandate, Occasion, Output, Protocol, Reason,
};
use crate::term::Term;
use crate::time::{Duration, Instant};

/// A number of a round above this one is no honest node's.
const ROUND_MAX: Term = Term(u64::MAX / 2);

/// Who takes part, and how patient they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, in this life.
    pub me: Identity,
    /// All nodes in the order of the ring, this one among them. Who is elected, the order of the names decides.
    pub ring: Arc<[NodeId]>,
    /// How often the leader shows itself.
    pub heartbeat_interval: Duration,
    /// How many heartbeats in a row must be missed until the leader is taken to be dead.
    pub miss_count: u32,
    /// How long the next node may take to confirm that it has received something.
    pub hop_timeout: Duration,
    /// Whether a node that comes back leaves the lead to whoever has it.
    pub sticky: bool,
}

/// How the highest name is found: what is remembered of one round.
pub trait Probing: Clone + Default {
    /// What goes around.
    type Probe: Copy + core::fmt::Debug + Eq + core::hash::Hash;

    /// This node sends its own name.
    fn begin(&mut self, me: Identity) -> Vec<(Direction, Self::Probe)>;

    /// A probe has come, on its way in this direction.
    fn take(&mut self, at: Place, direction: Direction, probe: Self::Probe) -> Found<Self::Probe>;
}

/// Where a probe has come to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The node.
    pub me: Identity,
    /// Whether it wants to lead. One that does not passes on what it would have answered.
    pub stands: bool,
    /// How many nodes are on the ring, whether they are there or not.
    pub count: usize,
}

/// What a probe has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<P> {
    /// These are to be sent.
    Send(Vec<(Direction, P)>),
    /// This node has the highest name.
    Highest,
}

/// What nodes say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message<P> {
    /// The process life of the sender.
    pub incarnation: Incarnation,
    /// The highest number of a round that the sender has heard of.
    pub round: Term,
    /// The sender's number of this message, which [`Body::Received`] repeats.
    pub number: u64,
    /// What is said.
    pub body: Body<P>,
}

/// The parts of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body<P> {
    /// What the highest name is found by.
    Probe {
        /// On its way in this direction.
        direction: Direction,
        /// What it is.
        probe: P,
    },
    /// Onward: "this one leads", once when it has won, and then with every heartbeat.
    Elected {
        /// Who, and in which term: the round that it has won.
        leader: Leader,
        /// How often it has said so.
        beat: u64,
        /// How many have passed it on.
        hops: u32,
    },
    /// Onward: "this one leads no more".
    Resigned {
        /// Who.
        leader: Leader,
        /// How many have passed it on.
        hops: u32,
    },
    /// To the one before: "I have what you have sent under this number".
    Received,
}

/// The machine of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OnARing<P: Probing> {
    config: Config,
    neighbours: Neighbours,
    role: Role,
    /// The highest number of a round that this node has heard of.
    round: Term,
    /// What is remembered of it.
    probing: P,
    /// The number of the last message that it has sent onward.
    number: u64,
    /// What the next node has not confirmed yet, and when it was sent; the oldest first.
    unconfirmed: VecDeque<Unconfirmed<P::Probe>>,
    /// The application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// One that has just resigned stays silent until then.
    yields_until: Instant,
    occasion: Occasion,
    told_leader: Option<Leader>,
    outputs: VecDeque<Output<Message<P::Probe>, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unconfirmed<P> {
    to: NodeId,
    number: u64,
    direction: Direction,
    body: Body<P>,
    sent_at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Hears a leader, or waits for one.
    Following { leader: Option<Leader>, beat: u64, detector: MissedHeartbeats },
    /// Has sent its own name; begins again when nothing comes of it.
    Electing { until: Instant },
    /// In the term that is the round that it has won.
    Leading { term: Term, beat: u64, beat_at: Instant, resigning: Option<Reason> },
}

impl<P: Probing> Protocol for OnARing<P> {
    type Message = Message<P::Probe>;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message<P::Probe>>) {
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

    fn poll(&mut self) -> Option<Output<Message<P::Probe>, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let role = match &self.role {
            Role::Following { leader: None, .. } if !self.wants_to_lead() => None,
            Role::Following { detector, .. } => Some(detector.deadline().max(self.yields_until)),
            Role::Electing { until } => Some(*until),
            Role::Leading { beat_at, resigning: None, .. } => Some(*beat_at),
            Role::Leading { resigning: Some(_), .. } => None,
        };
        let hop = self.unconfirmed.front().map(|hop| hop.sent_at.after(self.config.hop_timeout));
        [role, hop].into_iter().flatten().min()
    }
}

impl<P: Probing> OnARing<P> {
    /// The machine of `config.me`. It listens first, and does not stand until it is told to.
    ///
    /// # Panics
    /// If this node is not on the ring, or a name is on it twice.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let neighbours = Neighbours::new(Arc::clone(&config.ring), config.me.node);
        let neighbours = neighbours.expect("each name is on the ring once, and this node's among them");
        let detector = MissedHeartbeats::new(config.heartbeat_interval, config.miss_count, now);
        Self {
            config,
            neighbours,
            role: Role::Following { leader: None, beat: 0, detector },
            round: Term(0),
            probing: P::default(),
            number: 0,
            unconfirmed: VecDeque::new(),
            campaigning: false,
            healthy: true,
            yields_until: now,
            occasion: Occasion::Silence,
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    /// Sends its own name now, whether there is a leader or not: what a textbook means by "a process initiates". In the
    /// first round, if it has heard of none.
    pub fn initiate(&mut self, now: Instant) {
        if self.may_stand(now) {
            self.elect(now);
        }
        self.tell_leader();
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message<P::Probe>) {
        let stranger = from == self.config.me.node || !self.neighbours.knows(from);
        if stranger || message.round > ROUND_MAX {
            return;
        }
        self.neighbours.heard(from);
        let Message { round, number, body, .. } = message;
        if body == Body::Received {
            return self.unconfirmed.retain(|hop| (hop.to, hop.number) != (from, number));
        }
        let received = Message { number, ..self.message(Body::Received) };
        self.outputs.push_back(Output::Send { to: Endpoint::Node(from), message: received });
        let is_late = round < self.round;
        if round > self.round {
            self.round = round;
            self.probing = P::default();
        }
        match body {
            Body::Probe { .. } | Body::Elected { .. } if is_late => {} // Of a round that came to nothing.
            Body::Probe { direction, probe } => self.on_probe(now, direction, probe),
            Body::Elected { leader, beat, hops } => self.on_elected(now, leader, beat, hops),
            Body::Resigned { leader, hops } => self.on_resigned(now, leader, hops),
            Body::Received => {} // Taken above.
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        while let Some(hop) =
            self.unconfirmed.pop_front_if(|hop| now >= hop.sent_at.after(self.config.hop_timeout))
        {
            // It is skipped from now on, until it is heard again.
            self.neighbours.suspect(hop.to);
            self.send(now, hop.direction, hop.body);
        }
        match &self.role {
            Role::Following { detector, .. } if detector.suspects(now) && now >= self.yields_until => {
                self.lose_leader(now, Occasion::Silence);
            }
            Role::Electing { until } if now >= *until => self.elect(now),
            Role::Leading { beat_at, resigning: None, .. } if now >= *beat_at => self.announce(now),
            Role::Following { .. } | Role::Electing { .. } | Role::Leading { .. } => {} // Early.
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
                if let Role::Leading { term, resigning: Some(reason), .. } = self.role {
                    self.yields_until = now.after(self.patience());
                    self.tell(Event::Deposed(reason));
                    self.follow(now, None, 0);
                    let leader = Leader { identity: self.config.me, term };
                    self.send(now, Direction::Onward, Body::Resigned { leader, hops: 0 });
                }
            }
        }
    }

    fn on_evidence(&mut self, now: Instant, evidence: Evidence) {
        self.neighbours.learn(evidence);
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

    fn elect(&mut self, now: Instant) {
        self.round = self.round.next();
        self.role = Role::Electing { until: now.after(self.turn().times(2)) };
        self.probing = P::default();
        let probes = self.probing.begin(self.config.me);
        self.send_probes(now, probes);
    }

    fn on_probe(&mut self, now: Instant, direction: Direction, probe: P::Probe) {
        if let Role::Leading { resigning, .. } = &self.role {
            // Whoever asks has not heard of it.
            if resigning.is_none() {
                self.announce(now);
            }
            return;
        }
        let at = Place { me: self.config.me, stands: self.may_stand(now), count: self.neighbours.count() };
        match self.probing.take(at, direction, probe) {
            Found::Highest => self.become_leader(now),
            Found::Send(probes) => self.send_probes(now, probes),
        }
    }

    fn send_probes(&mut self, now: Instant, probes: Vec<(Direction, P::Probe)>) {
        for (direction, probe) in probes {
            self.send(now, direction, Body::Probe { direction, probe });
        }
    }

    fn become_leader(&mut self, now: Instant) {
        let (term, mandate, valid_until) = (self.round, Mandate::Advisory, Instant::NEVER);
        self.role = Role::Leading { term, beat: 0, beat_at: now, resigning: None };
        self.tell(Event::Elected { term, mandate, valid_until });
        self.announce(now);
    }

    // ── leading and following ───────────────────────────────────────────────────────────────────────────────

    /// Says once around the ring that this node leads.
    fn announce(&mut self, now: Instant) {
        let Role::Leading { term, beat, beat_at, .. } = &mut self.role else { return };
        *beat += 1;
        *beat_at = now.after(self.config.heartbeat_interval);
        let (leader, beat) = (Leader { identity: self.config.me, term: *term }, *beat);
        self.send(now, Direction::Onward, Body::Elected { leader, beat, hops: 0 });
    }

    fn on_elected(&mut self, now: Instant, leader: Leader, beat: u64, hops: u32) {
        if leader.identity == self.config.me {
            return; // It has come round.
        }
        if let Role::Following { leader: Some(known), beat: heard, .. } = &self.role
            && *known == leader
            && beat <= *heard
        {
            return; // It came twice.
        }
        if matches!(self.role, Role::Leading { .. }) {
            self.tell(Event::Deposed(Reason::HigherTerm(leader.term)));
        }
        self.occasion = Occasion::Silence;
        self.follow(now, Some(leader), beat);
        self.pass_on(now, hops, |hops| Body::Elected { leader, beat, hops });
        let bullies = leader.identity.node < self.config.me.node && !self.config.sticky;
        if bullies && self.may_stand(now) {
            self.elect(now);
        }
    }

    fn on_resigned(&mut self, now: Instant, leader: Leader, hops: u32) {
        self.pass_on(now, hops, |hops| Body::Resigned { leader, hops });
        if matches!(&self.role, Role::Following { leader: Some(known), .. } if *known == leader) {
            self.lose_leader(now, Occasion::Resigned);
        }
    }

    fn lose_leader(&mut self, now: Instant, occasion: Occasion) {
        self.occasion = occasion;
        self.follow(now, None, 0);
        if self.may_stand(now) {
            self.elect(now);
        }
    }

    fn follow(&mut self, now: Instant, leader: Option<Leader>, beat: u64) {
        let Config { heartbeat_interval, miss_count, .. } = self.config;
        let detector = MissedHeartbeats::new(heartbeat_interval, miss_count, now);
        self.role = Role::Following { leader, beat, detector };
    }

    /// Leaves candidacy, or asks the application to drain.
    fn retire(&mut self, now: Instant, reason: Reason) {
        match &mut self.role {
            Role::Leading { resigning: resigning @ None, .. } => {
                *resigning = Some(reason);
                self.tell(Event::Resigning(reason));
            }
            Role::Leading { resigning: Some(_), .. } => {} // It does so already.
            Role::Electing { .. } => self.follow(now, None, 0),
            Role::Following { .. } => {} // It does not lead.
        }
    }

    // ── the ring ────────────────────────────────────────────────────────────────────────────────────────────

    /// To the next node that is there. If nobody is, this node has the highest name of all.
    fn send(&mut self, now: Instant, direction: Direction, body: Body<P::Probe>) {
        if let Some(to) = self.neighbours.next(direction) {
            self.number += 1;
            self.unconfirmed.push_back(Unconfirmed {
                to,
                number: self.number,
                direction,
                body,
                sent_at: now,
            });
            let message = self.message(body);
            self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
        } else if matches!(self.role, Role::Electing { .. }) {
            self.become_leader(now);
        }
    }

    /// What has met as many nodes as there are goes no further: the one that it was to come back to is not there.
    fn pass_on(&mut self, now: Instant, hops: u32, body: impl FnOnce(u32) -> Body<P::Probe>) {
        if (hops as usize) + 1 < self.neighbours.count() {
            self.send(now, Direction::Onward, body(hops + 1));
        }
    }

    fn message(&self, body: Body<P::Probe>) -> Message<P::Probe> {
        Message { incarnation: self.config.me.incarnation, round: self.round, number: self.number, body }
    }

    /// How long a message takes once around, if every hop takes as long as it may.
    fn turn(&self) -> Duration {
        self.config.hop_timeout.times(self.neighbours.count() as u64)
    }

    // ── small things ────────────────────────────────────────────────────────────────────────────────────────

    /// What made this node stand, if it stands or leads.
    #[must_use]
    pub const fn occasion(&self) -> Occasion {
        self.occasion
    }

    /// The role, for people: `following`, `electing` or `leading`.
    #[must_use]
    pub const fn role(&self) -> &'static str {
        match self.role {
            Role::Following { .. } => "following",
            Role::Electing { .. } => "electing",
            Role::Leading { .. } => "leading",
        }
    }

    const fn wants_to_lead(&self) -> bool {
        self.campaigning && self.healthy
    }

    fn may_stand(&self, now: Instant) -> bool {
        self.wants_to_lead() && now >= self.yields_until
    }

    fn patience(&self) -> Duration {
        self.config.heartbeat_interval.times(u64::from(self.config.miss_count))
    }

    fn tell_leader(&mut self) {
        let leader = match &self.role {
            Role::Following { leader, .. } => *leader,
            Role::Leading { term, .. } => Some(Leader { identity: self.config.me, term: *term }),
            Role::Electing { .. } => None,
        };
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}
