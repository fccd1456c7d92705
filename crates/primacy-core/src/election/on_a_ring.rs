//! The shared part of the elections on a ring: everything except the search for the highest name.
//!
//! A node passes messages to the next present node on the ring (see [`neighbours`](crate::neighbours)). Each hop is
//! confirmed; an unconfirmed message is sent once more, and then to the node after that. When a message skips a node,
//! the node is sent a knock, because it may be back. The node with the highest name announces itself once around the
//! ring, and again with each heartbeat. A [`Probing`] finds the highest name: [`ring`](super::ring) or
//! [`ring_bidirectional`](super::ring_bidirectional).
//!
//! Rounds are numbered, and every message carries the highest number that its sender has heard of. A message with a
//! lower number than its receiver knows is late, and the node that it names is sent the latest number: a candidate then
//! sends its name in that round too, and a leader announces itself in it. A round without a result is followed by
//! another one. If two nodes lead, the leader of the later round stays; in the same round, the higher name. A higher
//! name that comes back takes over, as in the textbooks. If the election is `sticky`, it does not: a live leader drops
//! the probes that would replace it, and announces itself.

mod hops;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::hops::{Hop, Hops};
use super::{Advisory, AdvisorySettings};
use crate::detector::MissedHeartbeats;
use crate::id::{Identity, Incarnation, NodeId};
use crate::neighbours::{Direction, Neighbours};
use crate::protocol::{
    Command, ElectionTrigger, Endpoint, Event, Evidence, Input, Leader, Mandate, Output, Protocol, Reason,
};
use crate::term::Term;
use crate::time::{Duration, Instant};

/// The highest number of a round that an honest node sends.
pub const ROUND_MAX: Term = Term(u64::MAX / 2);

/// The number of times a message is sent to a node before the node is skipped.
const TRIES_MAX: u32 = 2;

/// The nodes and the timing of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, with the incarnation of this process.
    pub me: Identity,
    /// All nodes in the order of the ring, this one among them. The order of the names decides the election.
    pub ring: Arc<[NodeId]>,
    /// The interval at which the leader sends heartbeats.
    pub heartbeat_interval: Duration,
    /// The number of consecutive heartbeats missed before the leader is taken to be dead.
    pub miss_count: u32,
    /// The time in which the next node has to confirm a message. Must be longer than any round trip: a node that
    /// confirms later is skipped, and may lead beside another leader.
    pub hop_timeout: Duration,
    /// True if a node that comes back leaves the lead to the current leader. Must be the same on all nodes.
    pub sticky: bool,
}

/// A search for the highest name: the state of a node in one round.
pub trait Probing: Clone + Default {
    /// The message that is passed around the ring.
    type Probe: Copy + core::fmt::Debug + Eq + core::hash::Hash;

    /// The number of times that messages may travel around the ring in a round, if the highest name begins last.
    const TURNS: u64;

    /// Sends this node's own name.
    fn begin(&mut self, me: Identity) -> Vec<(Direction, Self::Probe)>;

    /// True if this node need not send its name any more: it has sent it in this round, or cannot win the round.
    fn takes_part(&self) -> bool;

    /// The node whose name is in the probe.
    fn candidate(probe: &Self::Probe) -> Identity;

    /// Handles a probe that has arrived, travelling in `direction`.
    fn take(
        &mut self,
        at: RingPosition,
        direction: Direction,
        probe: Self::Probe,
    ) -> ProbeOutcome<Self::Probe>;
}

/// The node that handles a probe, and its ring.
#[derive(Clone, Copy, Debug)]
pub struct RingPosition {
    /// The node.
    pub me: Identity,
    /// True if the node campaigns. A node that does not passes on the probes that it would have answered.
    pub campaigns: bool,
    /// The number of nodes on the ring, present or gone.
    pub count: usize,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome<P> {
    /// Send these probes.
    Send(Vec<(Direction, P)>),
    /// This node has the highest name.
    Highest,
}

/// A message between nodes, of bounded size: it has no lists, and no text except the names of at most two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message<P> {
    /// The incarnation of the sender.
    pub incarnation: Incarnation,
    /// The highest number of a round that the sender has heard of; at most [`ROUND_MAX`].
    pub round: Term,
    /// The sender's number of this message, counted from 1 in each incarnation. [`Body::Received`] repeats the number
    /// of the message that it confirms; [`Body::Late`] has the number 0.
    pub number: u64,
    /// The content.
    pub body: Body<P>,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body<P> {
    /// The search for the highest name.
    Probe {
        /// The direction in which it travels.
        direction: Direction,
        /// The probe.
        probe: P,
    },
    /// Onward: "This node leads", sent when it has won, and then with every heartbeat.
    Elected {
        /// The leader, and its term: the round that it has won; at most [`Message::round`].
        leader: Leader,
        /// The number of times it has announced itself.
        beat: u64,
        /// The number of nodes that have passed it on; below the number of nodes.
        hops: u32,
    },
    /// Onward: "This node no longer leads."
    Resigned {
        /// The former leader, and its term; at most [`Message::round`].
        leader: Leader,
        /// The number of nodes that have passed it on; below the number of nodes.
        hops: u32,
    },
    /// To a skipped node: "Are you there?"
    Knock,
    /// To the node that sent a message: "I have your message with this number."
    Received,
    /// To a candidate or a leader that has not heard of the latest round: "This is its number."
    Late,
}

/// The state machine of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OnARing<P: Probing> {
    config: Config,
    neighbours: Neighbours,
    role: Role,
    /// The highest number of a round that this node has heard of.
    round: Term,
    /// The state of the search in that round.
    probing: P,
    /// The last round that this node has won; 0 for none.
    won: Term,
    hops: Hops<Body<P::Probe>>,
    /// The time of the next knock to skipped nodes.
    knocks_at: Instant,
    /// True if the application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// The time before which it does not campaign, after a resignation or the command to campaign.
    yields_until: Instant,
    trigger: ElectionTrigger,
    told_leader: Option<Leader>,
    outputs: VecDeque<Output<Message<P::Probe>, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Hears a leader, or waits for one.
    Following { leader: Option<Leader>, beat: u64, detector: MissedHeartbeats },
    /// Has sent its own name in this round; begins another round if this one has no result in time.
    Electing { round: Term, until: Instant },
    /// Leads; `term` is the round that it has won, and `told` the latest round in which it has announced itself.
    Leading { term: Term, told: Term, beat: u64, beat_at: Instant, resigning: Option<Reason> },
}

impl<P: Probing> Protocol for OnARing<P> {
    type Message = Message<P::Probe>;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message<P::Probe>>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Store | Endpoint::Client, .. } => {} // This election knows neither.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.on_command(now, command),
            Input::Evidence(evidence) => self.on_evidence(now, evidence),
        }
        self.keep_up(now);
        self.tell_leader();
    }

    fn poll(&mut self) -> Option<Output<Message<P::Probe>, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let role = match &self.role {
            Role::Following { leader: None, .. } if !self.wants_to_lead() => None,
            Role::Following { detector, .. } => Some(detector.deadline().max(self.yields_until)),
            Role::Electing { until, .. } => Some(*until),
            Role::Leading { beat_at, .. } => Some(*beat_at),
        };
        [role, self.hops.deadline(self.config.hop_timeout)].into_iter().flatten().min()
    }
}

impl<P: Probing> Advisory for OnARing<P> {
    /// Creates the machine on the ring in the order of the names, which every node knows.
    fn begin(settings: AdvisorySettings, now: Instant) -> Self {
        let AdvisorySettings { me, nodes, heartbeat_interval, miss_count, answer_timeout, sticky } = settings;
        let ring = nodes.into_iter().collect();
        Self::new(
            Config { me, ring, heartbeat_interval, miss_count, hop_timeout: answer_timeout, sticky },
            now,
        )
    }

    fn role(&self) -> &'static str {
        match self.role {
            Role::Following { .. } => "following",
            Role::Electing { .. } => "electing",
            Role::Leading { .. } => "leading",
        }
    }

    fn round(&self) -> Term {
        self.round
    }

    fn trigger(&self) -> ElectionTrigger {
        self.trigger
    }
}

impl<P: Probing> OnARing<P> {
    /// The state machine of `config.me`. It listens first, and does not campaign until commanded to.
    ///
    /// # Panics
    /// If this node is not on the ring, or a name is on it twice.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let neighbours = Neighbours::new(Arc::clone(&config.ring), config.me.node);
        Self::among(
            config,
            neighbours.expect("each name is on the ring once, and this node's among them"),
            now,
        )
    }

    /// Like [`OnARing::new`], with neighbours that [`Neighbours::all`] has already checked: for simulated rings of
    /// thousands of nodes.
    #[must_use]
    pub fn among(config: Config, neighbours: Neighbours, now: Instant) -> Self {
        let detector = MissedHeartbeats::new(config.heartbeat_interval, config.miss_count, now);
        Self {
            config,
            neighbours,
            role: Role::Following { leader: None, beat: 0, detector },
            round: Term(0),
            probing: P::default(),
            won: Term(0),
            hops: Hops::new(),
            knocks_at: now,
            campaigning: false,
            healthy: true,
            yields_until: now,
            trigger: ElectionTrigger::Silence,
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    /// Sends its own name now, even if there is a leader: the textbooks' "a process initiates". In the first round, if
    /// it knows of none.
    pub fn initiate(&mut self, now: Instant) {
        if self.can_campaign(now) {
            self.elect(now);
        }
        self.tell_leader();
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message<P::Probe>) {
        let Message { incarnation, round, number, body } = message;
        if from == self.config.me.node || !self.neighbours.knows(from) || !self.is_possible(round, &body) {
            return;
        }
        self.neighbours.heard(Identity::new(from, incarnation));
        let is_late = round < self.round;
        if round > self.round {
            self.round = round;
            self.probing = P::default();
        }
        match body {
            Body::Received => return self.hops.confirmed(from, number),
            Body::Late => return, // Its round is all that it says.
            Body::Probe { .. } | Body::Elected { .. } | Body::Resigned { .. } | Body::Knock => {}
        }
        self.transmit(from, number, self.round, Body::Received);
        if !self.hops.take(Identity::new(from, incarnation), number) {
            return; // It came twice.
        }
        match body {
            Body::Probe { probe, .. } if is_late => self.tell_late(P::candidate(&probe)),
            Body::Elected { leader, .. } if is_late => self.tell_late(leader.identity),
            Body::Probe { direction, probe } => self.on_probe(now, direction, probe),
            Body::Elected { leader, beat, hops } => self.on_elected(now, leader, beat, hops),
            Body::Resigned { leader, hops } => self.on_resigned(now, leader, hops),
            Body::Knock | Body::Received | Body::Late => {} // Taken above.
        }
    }

    /// True if an honest node can send this.
    fn is_possible(&self, round: Term, body: &Body<P::Probe>) -> bool {
        let said = match body {
            Body::Elected { leader, .. } | Body::Resigned { leader, .. } => {
                leader.term <= round && self.neighbours.knows(leader.identity.node)
            }
            Body::Probe { .. } | Body::Knock | Body::Received | Body::Late => true,
        };
        said && round <= ROUND_MAX
    }

    /// Sends the number of the latest round to a candidate or a leader that has not heard of it.
    fn tell_late(&mut self, whom: Identity) {
        if whom.node != self.config.me.node && self.neighbours.knows(whom.node) {
            self.transmit(whom.node, 0, self.round, Body::Late);
        }
    }

    /// Brings this node into the latest round: a candidate sends its name in it, and a leader announces itself.
    fn keep_up(&mut self, now: Instant) {
        match self.role {
            Role::Electing { round, .. } if round < self.round => self.campaign(now),
            Role::Leading { told, .. } if told < self.round => self.announce(now),
            Role::Following { .. } | Role::Electing { .. } | Role::Leading { .. } => {}
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        for _ in 0..self.hops.waiting() {
            if let Some(hop) = self.hops.overdue(now, self.config.hop_timeout) {
                self.on_overdue(now, hop);
            }
        }
        match &self.role {
            Role::Following { leader, beat, detector }
                if detector.suspects(now) && now >= self.yields_until =>
            {
                let (leader, beat, due) = (*leader, *beat, detector.deadline().max(self.yields_until));
                // The timeout is handled late: this node was asleep, and may have missed messages that were sent. It
                // listens once more.
                if now >= due.after(self.config.hop_timeout) {
                    self.follow(now, leader, beat);
                } else {
                    self.lose_leader(now, ElectionTrigger::Silence);
                }
            }
            Role::Electing { until, .. } if now >= *until => self.elect(now),
            // Also while its work drains: no other node may lead before the work has ended.
            Role::Leading { beat_at, .. } if now >= *beat_at => self.announce(now),
            Role::Following { .. } | Role::Electing { .. } | Role::Leading { .. } => {} // Early.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign => {
                self.campaigning = true;
                self.yields_until = self.yields_until.max(now);
            }
            Command::Healthy(true) => {
                self.healthy = true;
                self.yields_until = self.yields_until.max(now);
            }
            Command::Withdraw => {
                self.campaigning = false;
                self.retire(now, Reason::Resigned);
            }
            Command::Healthy(false) => {
                self.healthy = false;
                self.retire(now, Reason::Unhealthy);
            }
            // The names alone decide which node is next.
            Command::Resign | Command::Transfer(_) => self.retire(now, Reason::Resigned),
            Command::Down(_) => {} // There is no membership.
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
        match (evidence, &self.role) {
            (Evidence::Died(identity), Role::Following { leader: Some(leader), .. })
                if leader.identity == identity =>
            {
                self.lose_leader(now, ElectionTrigger::Died);
            }
            (Evidence::Died(_), _) => {} // Not the leader.
            // The node is skipped until it is heard again, but it may be alive, and lead.
            (Evidence::Disconnected(_), _) => {}
            (Evidence::Connected(_), _) => {}
            // There is no vote that a disk could lose.
            (Evidence::Readmitted { .. } | Evidence::DiskRefused { .. }, _) => {}
        }
    }

    // ── electing ────────────────────────────────────────────────────────────────────────────────────────────

    /// Begins another round.
    fn elect(&mut self, now: Instant) {
        self.round = self.round.next();
        self.probing = P::default();
        self.campaign(now);
    }

    /// Sends its own name in the latest round, unless it has sent it or cannot win.
    fn campaign(&mut self, now: Instant) {
        let turn = self.config.hop_timeout.times(self.neighbours.count() as u64);
        self.role = Role::Electing { round: self.round, until: now.after(turn.times(P::TURNS)) };
        if !self.probing.takes_part() {
            let probes = self.probing.begin(self.config.me);
            self.send_probes(now, probes);
        }
    }

    fn on_probe(&mut self, now: Instant, direction: Direction, probe: P::Probe) {
        let (candidate, me) = (P::candidate(&probe), self.config.me);
        let leads = match &mut self.role {
            Role::Leading { .. } => true,
            Role::Following { leader: None, detector, .. } => {
                detector.heard(now); // There will be a leader soon.
                false
            }
            Role::Following { leader: Some(_), .. } | Role::Electing { .. } => false,
        };
        if leads && (self.config.sticky || candidate.node <= me.node) {
            return; // It hears of this leader, which shows itself in each new round.
        }
        let at =
            RingPosition { me, campaigns: !leads && self.can_campaign(now), count: self.neighbours.count() };
        match self.probing.take(at, direction, probe) {
            ProbeOutcome::Highest if self.won == self.round => {} // It came by two ways.
            ProbeOutcome::Highest => self.become_leader(now),
            ProbeOutcome::Send(probes) => self.send_probes(now, probes),
        }
    }

    fn send_probes(&mut self, now: Instant, probes: Vec<(Direction, P::Probe)>) {
        for (direction, probe) in probes {
            self.send(now, direction, Body::Probe { direction, probe });
        }
    }

    fn become_leader(&mut self, now: Instant) {
        self.won = self.round;
        let (term, mandate, valid_until) = (self.round, Mandate::Advisory, Instant::NEVER);
        self.role = Role::Leading { term, told: term, beat: 0, beat_at: now, resigning: None };
        self.tell(Event::Elected { term, mandate, valid_until });
        self.announce(now);
    }

    // ── leading and following ───────────────────────────────────────────────────────────────────────────────

    /// Announces once around the ring that this node leads.
    fn announce(&mut self, now: Instant) {
        let Role::Leading { term, told, beat, beat_at, .. } = &mut self.role else { return };
        *beat += 1;
        *told = self.round;
        *beat_at = now.after(self.config.heartbeat_interval);
        let (leader, beat) = (Leader { identity: self.config.me, term: *term }, *beat);
        self.send(now, Direction::Onward, Body::Elected { leader, beat, hops: 0 });
    }

    fn on_elected(&mut self, now: Instant, leader: Leader, beat: u64, hops: u32) {
        let me = self.config.me.node;
        if leader.identity.node == me {
            return; // It has come round, or is of an earlier life.
        }
        let rank = |leader: Leader| (leader.term, leader.identity.node);
        let yields = match &self.role {
            Role::Leading { term, .. } => rank(leader) < (*term, me),
            Role::Following { leader: Some(known), beat: heard, .. } => {
                rank(leader) < rank(*known) || (*known == leader && beat <= *heard)
            }
            Role::Following { leader: None, .. } | Role::Electing { .. } => false,
        };
        if yields {
            return; // It hears of the other one itself; or this came twice.
        }
        self.pass_on(now, hops, |hops| Body::Elected { leader, beat, hops });
        let takes_over = leader.identity.node < me && !self.config.sticky && self.can_campaign(now);
        if takes_over && matches!(self.role, Role::Electing { .. }) {
            return; // Its name is on the way.
        }
        if matches!(self.role, Role::Leading { .. }) {
            self.tell(Event::Deposed(Reason::HigherTerm(leader.term)));
        }
        self.trigger = ElectionTrigger::Silence;
        self.follow(now, Some(leader), beat);
        if takes_over {
            self.elect(now);
        }
    }

    fn on_resigned(&mut self, now: Instant, leader: Leader, hops: u32) {
        if leader.identity.node == self.config.me.node {
            return; // It has come round, or is of an earlier life.
        }
        self.pass_on(now, hops, |hops| Body::Resigned { leader, hops });
        if matches!(&self.role, Role::Following { leader: Some(known), .. } if *known == leader) {
            self.lose_leader(now, ElectionTrigger::Resigned);
        }
    }

    fn lose_leader(&mut self, now: Instant, trigger: ElectionTrigger) {
        self.trigger = trigger;
        self.follow(now, None, 0);
        if self.can_campaign(now) {
            self.elect(now);
        }
    }

    fn follow(&mut self, now: Instant, leader: Option<Leader>, beat: u64) {
        let Config { heartbeat_interval, miss_count, .. } = self.config;
        let detector = MissedHeartbeats::new(heartbeat_interval, miss_count, now);
        self.role = Role::Following { leader, beat, detector };
    }

    /// Ends a candidacy, or asks the application to drain.
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

    /// Sends to the next present node. If there is none, this node has the highest name of all.
    fn send(&mut self, now: Instant, direction: Direction, body: Body<P::Probe>) {
        self.send_of_round(now, direction, self.round, body);
    }

    fn send_of_round(&mut self, now: Instant, direction: Direction, round: Term, body: Body<P::Probe>) {
        self.knock(now);
        if let Some(to) = self.neighbours.next(direction) {
            let number = self.hops.sent(now, to, direction, round, body);
            self.transmit(to, number, round, body);
        } else if matches!(self.role, Role::Electing { .. }) {
            self.become_leader(now);
        }
    }

    /// Passes on a message, unless it has passed as many nodes as the ring has: then the node at which it should end is
    /// gone.
    fn pass_on(&mut self, now: Instant, hops: u32, body: impl FnOnce(u32) -> Body<P::Probe>) {
        let hops = hops.saturating_add(1);
        if (hops as usize) < self.neighbours.count() {
            self.send(now, Direction::Onward, body(hops));
        }
    }

    /// Handles a hop that was not confirmed in time.
    fn on_overdue(&mut self, now: Instant, hop: Hop<Body<P::Probe>>) {
        let Hop { to, number, direction, round, body, tries, .. } = hop;
        let skips = tries >= TRIES_MAX || self.neighbours.is_gone(to);
        if skips {
            self.neighbours.suspect(to);
        }
        if matches!(body, Body::Probe { .. }) && round < self.round {
            return; // That round has come to nothing.
        }
        if !skips {
            self.hops.sent_again(now, hop);
            return self.transmit(to, number, round, body);
        }
        self.send_of_round(now, direction, round, body); // The round that it was first sent in.
    }

    /// Asks skipped nodes whether they are back, no more often than they can answer.
    fn knock(&mut self, now: Instant) {
        let skipped: BTreeSet<NodeId> = self.neighbours.skipped().collect();
        if skipped.is_empty() || now < self.knocks_at {
            return;
        }
        self.knocks_at = now.after(self.config.hop_timeout);
        for to in skipped {
            let number = self.hops.next_number();
            self.transmit(to, number, self.round, Body::Knock);
        }
    }

    fn transmit(&mut self, to: NodeId, number: u64, round: Term, body: Body<P::Probe>) {
        let message = Message { incarnation: self.config.me.incarnation, round, number, body };
        self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
    }

    // ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────

    /// The leader, as far as this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        match &self.role {
            Role::Following { leader, .. } => *leader,
            Role::Leading { term, .. } => Some(Leader { identity: self.config.me, term: *term }),
            Role::Electing { .. } => None,
        }
    }

    const fn wants_to_lead(&self) -> bool {
        self.campaigning && self.healthy
    }

    fn can_campaign(&self, now: Instant) -> bool {
        self.wants_to_lead() && now >= self.yields_until
    }

    fn patience(&self) -> Duration {
        self.config.heartbeat_interval.times(u64::from(self.config.miss_count))
    }

    fn tell_leader(&mut self) {
        let leader = self.leader();
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}

#[cfg(test)]
pub(crate) mod tests;
