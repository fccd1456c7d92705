//! Ring (Chang and Roberts 1979): a probe that goes round carries the highest name that it has met.
//! Assumes   a ring on which everybody reaches the next one that is alive; crashes, not partitions.
//! Promises  at most one leader *only while that holds*; a partition elects two. No token.
//! Costs     with all n nodes starting, n·Hₙ probes on the average over all rings, 2n − 1 at best, n(n + 1)/2 at worst; and n
//!           messages to announce the leader. Each heartbeat is n messages.   Prefer `quorum`; or let one confirm it.
//!
//! How it goes: whoever misses the leader sends a probe with its own name. A node passes on a probe with a higher name than its
//! own; a lower one it replaces by its own, once, and swallows after that. A node that its own name comes back to has the
//! highest one. It says so once around the ring, and again with each heartbeat.
//!
//! What the textbooks leave out: rounds are numbered; each hop is confirmed, and who does not confirm is skipped; a probe whose
//! node has died meanwhile ends after one turn; a round that comes to nothing is begun again; and a higher name that comes back
//! either takes over, or, where the election is `sticky`, waits until there is need.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

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

/// What nodes say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The process life of the sender.
    pub incarnation: Incarnation,
    /// The highest number of a round that the sender has heard of.
    pub round: Term,
    /// The sender's number of this message, which [`Body::Received`] repeats.
    pub number: u64,
    /// What is said.
    pub body: Body,
}

/// The parts of the conversation. All but the last go onward, to the next node that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// "This is the highest name so far."
    Probe {
        /// Whose name it is.
        candidate: Identity,
        /// How many have passed it on.
        hops: u32,
    },
    /// "This one leads", once when it has won, and then with every heartbeat.
    Elected {
        /// Who, and in which term: the round that it has won.
        leader: Leader,
        /// How often it has said so.
        beat: u64,
        /// How many have passed it on.
        hops: u32,
    },
    /// "This one leads no more."
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
pub struct Ring {
    config: Config,
    neighbours: Neighbours,
    role: Role,
    /// The highest number of a round that this node has heard of.
    round: Term,
    /// In that round, its own name has left this node, or a higher one, against which it cannot win.
    takes_part: bool,
    /// The number of the last message that it has sent onward.
    number: u64,
    /// What the next node has not confirmed yet, and when it was sent; the oldest first.
    unconfirmed: VecDeque<(NodeId, u64, Body, Instant)>,
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
    Following { leader: Option<Leader>, beat: u64, detector: MissedHeartbeats },
    /// Has sent its own name; begins again when nothing comes of it.
    Electing { until: Instant },
    /// In the term that is the round that it has won.
    Leading { term: Term, beat: u64, beat_at: Instant, resigning: Option<Reason> },
}

impl Protocol for Ring {
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
        let role = match &self.role {
            Role::Following { leader: None, .. } if !self.wants_to_lead() => None,
            Role::Following { detector, .. } => Some(detector.deadline().max(self.yields_until)),
            Role::Electing { until } => Some(*until),
            Role::Leading { beat_at, resigning: None, .. } => Some(*beat_at),
            Role::Leading { resigning: Some(_), .. } => None,
        };
        let hop = self.unconfirmed.front().map(|&(_, _, _, at)| at.after(self.config.hop_timeout));
        [role, hop].into_iter().flatten().min()
    }
}

impl Ring {
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
            takes_part: false,
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

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        let stranger = from == self.config.me.node || !self.neighbours.knows(from);
        if stranger || message.round > ROUND_MAX {
            return;
        }
        self.neighbours.heard(from);
        let Message { round, number, body, .. } = message;
        if body == Body::Received {
            return self.unconfirmed.retain(|&(to, sent, ..)| (to, sent) != (from, number));
        }
        let received = Message { number, ..self.message(Body::Received) };
        self.outputs.push_back(Output::Send { to: Endpoint::Node(from), message: received });
        let is_late = round < self.round;
        if round > self.round {
            self.round = round;
            self.takes_part = false;
        }
        match body {
            Body::Probe { .. } | Body::Elected { .. } if is_late => {} // Of a round that came to nothing.
            Body::Probe { candidate, hops } => self.on_probe(now, candidate, hops),
            Body::Elected { leader, beat, hops } => self.on_elected(now, leader, beat, hops),
            Body::Resigned { leader, hops } => self.on_resigned(now, leader, hops),
            Body::Received => {} // Taken above.
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        while let Some(&(to, number, body, at)) = self.unconfirmed.front()
            && now >= at.after(self.config.hop_timeout)
        {
            // It is skipped from now on, until it is heard again.
            self.unconfirmed.retain(|&(_, sent, ..)| sent != number);
            self.neighbours.suspect(to);
            self.send_onward(now, body);
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
            Command::Drained => {
                if let Role::Leading { term, resigning: Some(reason), .. } = self.role {
                    self.yields_until = now.after(self.patience());
                    self.tell(Event::Deposed(reason));
                    self.follow(now, None, 0);
                    let leader = Leader { identity: self.config.me, term };
                    self.send_onward(now, Body::Resigned { leader, hops: 0 });
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
        self.stand(now);
    }

    /// Sends its own name.
    fn stand(&mut self, now: Instant) {
        self.takes_part = true;
        self.send_onward(now, Body::Probe { candidate: self.config.me, hops: 0 });
    }

    fn on_probe(&mut self, now: Instant, candidate: Identity, hops: u32) {
        let me = self.config.me;
        if let Role::Leading { resigning, .. } = &self.role {
            // Whoever asks has not heard of it.
            if resigning.is_none() {
                self.announce(now);
            }
        } else if candidate == me {
            if self.may_stand(now) {
                self.become_leader(now); // Nobody has a higher name.
            }
        } else if candidate.node > me.node || !self.may_stand(now) {
            self.takes_part = true;
            self.pass_on(now, hops, |hops| Body::Probe { candidate, hops });
        } else if candidate.node < me.node && !self.takes_part {
            self.stand(now); // In place of the lower one.
        }
        // A lower name, or that of an earlier life, is swallowed.
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
        self.send_onward(now, Body::Elected { leader, beat, hops: 0 });
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
        self.takes_part = false;
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
    fn send_onward(&mut self, now: Instant, body: Body) {
        if let Some(to) = self.neighbours.next(Direction::Onward) {
            self.number += 1;
            self.unconfirmed.push_back((to, self.number, body, now));
            let message = self.message(body);
            self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
        } else if matches!(self.role, Role::Electing { .. }) {
            self.become_leader(now);
        }
    }

    /// What has met as many nodes as there are goes no further: the one that it was to come back to is not there.
    fn pass_on(&mut self, now: Instant, hops: u32, body: impl FnOnce(u32) -> Body) {
        if (hops as usize) + 1 < self.neighbours.count() {
            self.send_onward(now, body(hops + 1));
        }
    }

    fn message(&self, body: Body) -> Message {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// How many probes and how many announcements it takes if all of this ring start at once.
    fn counted(ring: &[usize]) -> (u64, u64) {
        let names: Arc<[NodeId]> =
            ring.iter().map(|place| NodeId::new(&std::format!("n{place:02}")).unwrap()).collect();
        let now = Instant::default();
        let mut nodes: BTreeMap<NodeId, Ring> = names.iter().map(|&name| (name, machine(&names, name))).collect();
        let mut under_way = VecDeque::new();
        for (&name, node) in &mut nodes {
            node.handle(now, Input::Command(Command::Campaign));
            node.initiate(now);
            take(node, name, &mut under_way);
        }
        let (mut probes, mut announcements) = (0, 0);
        while let Some((from, to, message)) = under_way.pop_front() {
            match message.body {
                Body::Probe { .. } => probes += 1,
                Body::Elected { .. } => announcements += 1,
                Body::Resigned { .. } | Body::Received => {}
            }
            let node = nodes.get_mut(&to).unwrap();
            node.handle(now, Input::Message { from: Endpoint::Node(from), message });
            take(node, to, &mut under_way);
        }
        let leaders: Vec<&NodeId> = nodes.iter().filter(|(_, node)| node.role() == "leading").map(|(name, _)| name).collect();
        assert_eq!(leaders, [names.iter().max().unwrap()]);
        assert!(nodes.values().all(|node| node.unconfirmed.is_empty()));
        (probes, announcements)
    }

    fn machine(ring: &Arc<[NodeId]>, name: NodeId) -> Ring {
        let millis = Duration::from_millis;
        let config = Config {
            me: Identity::new(name, Incarnation { count: 1, nonce: 1 }),
            ring: Arc::clone(ring),
            heartbeat_interval: millis(100),
            miss_count: 3,
            hop_timeout: millis(50),
            sticky: true,
        };
        Ring::new(config, Instant::default())
    }

    fn take(node: &mut Ring, name: NodeId, under_way: &mut VecDeque<(NodeId, NodeId, Message)>) {
        while let Some(output) = node.poll() {
            match output {
                Output::Send { to: Endpoint::Node(to), message } => under_way.push_back((name, to, message)),
                Output::Send { to: Endpoint::Store, .. } | Output::Persist(()) => panic!("it has no store, and no disk"),
                Output::Event(_) => {}
            }
        }
    }

    /// Every order of these, as Heap's algorithm has them.
    fn orders(of: &mut [usize], count: usize, visit: &mut impl FnMut(&[usize])) {
        if count <= 1 {
            return visit(of);
        }
        for place in 0..count {
            orders(of, count - 1, visit);
            of.swap(if count % 2 == 0 { place } else { 0 }, count - 1);
        }
    }

    /// Chang and Roberts 1979: with all starting, 2n − 1 at best, n(n + 1)/2 at worst, and n·Hₙ on the average.
    #[test]
    fn every_ring_of_seven_or_fewer_takes_as_many_probes_as_the_formula_says() {
        for n in 2..=7_usize {
            let (mut sum, mut rings, mut best, mut worst) = (0, 0_u64, u64::MAX, 0);
            orders(&mut (0..n).collect::<Vec<usize>>(), n, &mut |ring| {
                let (probes, announcements) = counted(ring);
                assert_eq!(announcements, n as u64);
                (sum, rings) = (sum + probes, rings + 1);
                (best, worst) = (best.min(probes), worst.max(probes));
            });
            let n = n as u64;
            assert_eq!((best, worst), (2 * n - 1, n * (n + 1) / 2), "{n}");
            // n! · n · Hₙ is a whole number.
            let expected: u64 = (1..=n).map(|k| rings / k * n).sum();
            assert_eq!(sum, expected, "{n}");
        }
    }
}
