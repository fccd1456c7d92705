//! What the elections on a ring share: everything but how they find the highest name.
//!
//! A node passes messages to the next one on the ring that is there (see [`neighbours`](crate::neighbours)). Each hop is
//! confirmed; what is not is sent once more, and then to the next but one. Whoever is skipped is knocked at whenever something
//! goes past it, for it may be back. Whoever finds that it has the highest name says so once around the ring, and again with each
//! heartbeat. How the highest name is found is a [`Probing`]: [`ring`](super::ring) or
//! [`ring_bidirectional`](super::ring_bidirectional).
//!
//! Rounds are numbered, and every message carries the highest number that its sender has heard of: what carries a lower one than
//! its receiver knows is late, and whoever it speaks of is told the number. Then a candidate sends its name in that round, too,
//! and a leader shows itself in it. A round that comes to nothing is begun again. Where two lead, the one of the later round
//! stays, or of two in the same the higher name. A higher name that comes back takes over, as the textbooks have it; or, where
//! the election is `sticky`, it waits until there is need: a leader swallows what would replace it, and shows itself.

mod hops;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::hops::{Hop, Hops};
use crate::detector::MissedHeartbeats;
use crate::id::{Identity, Incarnation, NodeId};
use crate::neighbours::{Direction, Neighbours};
use crate::protocol::{
    Command, Endpoint, Event, Evidence, Input, Leader, Mandate, Occasion, Output, Protocol, Reason,
};
use crate::term::Term;
use crate::time::{Duration, Instant};

/// A number of a round above this one is no honest node's.
pub const ROUND_MAX: Term = Term(u64::MAX / 2);

/// How often the same is sent to a node until it is skipped.
const TRIES_MAX: u32 = 2;

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
    /// How long the next node may take to confirm that it has received something. To be longer than any round trip: whoever
    /// answers later is skipped, and may lead beside the others.
    pub hop_timeout: Duration,
    /// Whether a node that comes back leaves the lead to whoever has it. To be the same on all nodes.
    pub sticky: bool,
}

/// How the highest name is found: what is remembered of one round.
pub trait Probing: Clone + Default {
    /// What goes around.
    type Probe: Copy + core::fmt::Debug + Eq + core::hash::Hash;

    /// How many times the way around the ring a round may take, if the highest name begins last.
    const TURNS: u64;

    /// This node sends its own name.
    fn begin(&mut self, me: Identity) -> Vec<(Direction, Self::Probe)>;

    /// Whether nothing is to be gained by sending this node's name: it has left the node in this round, or it cannot win.
    fn takes_part(&self) -> bool;

    /// Whose name is in it.
    fn candidate(probe: &Self::Probe) -> Identity;

    /// A probe has come, on its way in this direction.
    fn take(&mut self, at: Place, direction: Direction, probe: Self::Probe) -> Found<Self::Probe>;
}

/// Where a probe has come to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The node.
    pub me: Identity,
    /// Whether it may win. One that may not passes on what it would have answered.
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

/// What nodes say to each other. Its size is bounded: it has no list, and no text but the names of one node or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message<P> {
    /// The process life of the sender.
    pub incarnation: Incarnation,
    /// The highest number of a round that the sender has heard of; at most [`ROUND_MAX`].
    pub round: Term,
    /// The sender's number of this message, counted from 1 in each of its lives. [`Body::Received`] repeats that of the message
    /// that it confirms; [`Body::Late`] has none, 0.
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
        /// Who, and in which term: the round that it has won; at most [`Message::round`].
        leader: Leader,
        /// How often it has said so.
        beat: u64,
        /// How many have passed it on; below the number of nodes.
        hops: u32,
    },
    /// Onward: "this one leads no more".
    Resigned {
        /// Who, and in which term; at most [`Message::round`].
        leader: Leader,
        /// How many have passed it on; below the number of nodes.
        hops: u32,
    },
    /// To one that was skipped: "are you there?"
    Knock,
    /// To the one before: "I have what you have sent under this number".
    Received,
    /// To a candidate or a leader that has not heard of the latest round: "there was this one meanwhile".
    Late,
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
    /// The last round that this node has won; 0 for none.
    won: Term,
    hops: Hops<Body<P::Probe>>,
    /// When those who are skipped may next be asked whether they are back.
    knocks_at: Instant,
    /// The application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// It does not campaign before then: it has just resigned, or has only just been told to stand.
    yields_until: Instant,
    occasion: Occasion,
    told_leader: Option<Leader>,
    outputs: VecDeque<Output<Message<P::Probe>, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Hears a leader, or waits for one.
    Following { leader: Option<Leader>, beat: u64, detector: MissedHeartbeats },
    /// Has sent its own name in this round; begins another when nothing comes of it.
    Electing { round: Term, until: Instant },
    /// In the term that is the round that it has won. It has shown itself since it heard of round `told`.
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

impl<P: Probing> OnARing<P> {
    /// The machine of `config.me`. It listens first, and does not campaign until it is told to.
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

    /// The same, of a ring that was looked through before: for simulations, whose rings have thousands of nodes, of
    /// [`Neighbours::all`].
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

    /// Whether an honest node can say this.
    fn is_possible(&self, round: Term, body: &Body<P::Probe>) -> bool {
        let said = match body {
            Body::Elected { leader, .. } | Body::Resigned { leader, .. } => {
                leader.term <= round && self.neighbours.knows(leader.identity.node)
            }
            Body::Probe { .. } | Body::Knock | Body::Received | Body::Late => true,
        };
        said && round <= ROUND_MAX
    }

    /// Whoever stands or leads has not heard of the latest round.
    fn tell_late(&mut self, whom: Identity) {
        if whom.node != self.config.me.node && self.neighbours.knows(whom.node) {
            self.transmit(whom.node, 0, self.round, Body::Late);
        }
    }

    /// Whoever stands sends its name in the latest round, and whoever leads shows itself in it.
    fn keep_up(&mut self, now: Instant) {
        match self.role {
            Role::Electing { round, .. } if round < self.round => self.stand(now),
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
                // Whoever has overslept may only have missed what was said: it listens once more.
                if now >= due.after(self.config.hop_timeout) {
                    self.follow(now, leader, beat);
                } else {
                    self.lose_leader(now, Occasion::Silence);
                }
            }
            Role::Electing { until, .. } if now >= *until => self.elect(now),
            // Also while its work drains: nobody else shall lead before that has ended.
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
            // The names decide who is next, and nothing else does.
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
                self.lose_leader(now, Occasion::Died);
            }
            (Evidence::Died(_), _) => {} // Not the leader.
            // It is skipped until it is heard again; but it may live, and lead.
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
        self.stand(now);
    }

    /// Sends its own name in the latest round, unless that is decided already.
    fn stand(&mut self, now: Instant) {
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
        let at = Place { me, stands: !leads && self.may_stand(now), count: self.neighbours.count() };
        match self.probing.take(at, direction, probe) {
            Found::Highest if self.won == self.round => {} // It came by two ways.
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
        self.won = self.round;
        let (term, mandate, valid_until) = (self.round, Mandate::Advisory, Instant::NEVER);
        self.role = Role::Leading { term, told: term, beat: 0, beat_at: now, resigning: None };
        self.tell(Event::Elected { term, mandate, valid_until });
        self.announce(now);
    }

    // ── leading and following ───────────────────────────────────────────────────────────────────────────────

    /// Says once around the ring that this node leads.
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
        let takes_over = leader.identity.node < me && !self.config.sticky && self.may_stand(now);
        if takes_over && matches!(self.role, Role::Electing { .. }) {
            return; // Its name is on the way.
        }
        if matches!(self.role, Role::Leading { .. }) {
            self.tell(Event::Deposed(Reason::HigherTerm(leader.term)));
        }
        self.occasion = Occasion::Silence;
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

    /// What has met as many nodes as there are goes no further: the one that it was to come back to is not there.
    fn pass_on(&mut self, now: Instant, hops: u32, body: impl FnOnce(u32) -> Body<P::Probe>) {
        let hops = hops.saturating_add(1);
        if (hops as usize) < self.neighbours.count() {
            self.send(now, Direction::Onward, body(hops));
        }
    }

    /// A hop was not confirmed in time.
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

    /// Whoever is skipped may be back. It is asked when something goes past it, and not more often than it could answer.
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

    // ── small things ────────────────────────────────────────────────────────────────────────────────────────

    /// The highest number of an election that this node has heard of.
    #[must_use]
    pub const fn round(&self) -> Term {
        self.round
    }

    /// Who leads, as far as this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        match &self.role {
            Role::Following { leader, .. } => *leader,
            Role::Leading { term, .. } => Some(Leader { identity: self.config.me, term: *term }),
            Role::Electing { .. } => None,
        }
    }

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
