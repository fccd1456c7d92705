//! Bully (Garcia-Molina 1982, in the form of the textbooks): the highest name that is alive leads.
//! Assumes   bounded message delay; every node knows every name; crashes, not partitions.
//! Promises  at most one leader *only while those hold*; a partition elects two, and so does a pause. No token.
//! Costs     n² − n − 1 messages if the lowest name notices that the highest is dead, n − 1 if the second highest does; two
//!           delays after the detection. A heartbeat to every node.   Prefer `quorum`; or let one confirm it.
//!
//! The roles of a node:
//!
//! ```text
//!               silence: Election to all higher names            no higher name is alive: Coordinator to lower names
//!   Following ───────────────────────────────────────► Electing ────────────────────────────────────────► Leading
//!       ▲                                                │ Alive                                             │
//!       │                                                ▼                                                   │
//!       └──────────────── Coordinator ──────────────── Waiting ── no leader: elects again                    │
//!       └──────────────── Coordinator of a later election, or of the same one and a higher name ─────────────┘
//! ```
//!
//! Additions to the textbooks: elections are numbered, and every message carries the highest number that its sender has
//! heard of; a message with a lower number than its receiver knows is late. A leader that hears of an election in which
//! it has not yet announced itself sends heartbeats at once. If two nodes lead, the leader of the later election stays;
//! in the same election, the higher name. A higher name that comes back takes over, as in the textbooks. If the
//! election is `sticky`, it listens first, asks the leader that it has lost as well as the names above it, and leaves a
//! live leader its lead. A closed connection proves nothing, so only silence and a reported death begin an election.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Advisory, AdvisorySettings, ElectionDescriptor};
use crate::detector::MissedHeartbeats;
use crate::id::{Identity, Incarnation, NodeId};
use crate::protocol::{
    Command, ElectionTrigger, Endpoint, Event, Evidence, Input, Leader, Mandate, Output, Protocol, Reason,
};
use crate::term::Term;
use crate::time::{Duration, Instant};

/// The facts about this election.
pub const DESCRIPTOR: ElectionDescriptor = ElectionDescriptor {
    name: "bully",
    choose_when: "to learn, or to nominate",
    guarantee: "advisory: two leaders in a partition, no token",
    is_fenced: false,
};

/// The highest number of an election that an honest node sends.
pub const ROUND_MAX: Term = Term(u64::MAX / 2);

/// A message between nodes, of bounded size: an incarnation, a number, and one of six bodies, three of which carry a
/// second number, at most the first. The connection identifies the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The incarnation of the sender.
    pub incarnation: Incarnation,
    /// The highest number of an election that the sender has heard of; at most [`ROUND_MAX`].
    pub round: Term,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// To all higher names: "Is any of you alive? If not, I lead."
    Election,
    /// The answer: "I am; leave it to me."
    Alive,
    /// To all lower names: "I lead from now on."
    Coordinator {
        /// The number of the election that it has won; at most [`Message::round`].
        term: Term,
    },
    /// To all: "I still lead."
    Heartbeat {
        /// The number of the election that it has won; at most [`Message::round`].
        term: Term,
    },
    /// The answer to a leader that has not heard of the latest election: "This is its number."
    Late,
    /// To all: "I led and do not any more."
    Resigned {
        /// The number of the election that it had won; at most [`Message::round`].
        term: Term,
    },
}

/// The state machine of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bully {
    config: AdvisorySettings,
    role: Role,
    /// The highest number of an election that this node has heard of.
    round: Term,
    /// True if the application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// The time before which it does not campaign, after a resignation or the command to campaign.
    yields_until: Instant,
    /// The leader that fell silent, which is asked once more.
    lost: Option<NodeId>,
    trigger: ElectionTrigger,
    told_leader: Option<Leader>,
    outputs: VecDeque<Output<Message, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Hears a leader, or waits for one.
    Following { leader: Option<Leader>, detector: MissedHeartbeats },
    /// Has asked the higher names whether any of them is alive.
    Electing { until: Instant },
    /// Has heard that a higher name is alive, and waits for it to announce that it leads.
    Waiting { until: Instant },
    /// Leads; `term` is the number of the election that it has won, and `told` the latest election in which it has
    /// announced itself.
    Leading { term: Term, told: Term, beat_at: Instant, resigning: Option<Reason> },
}

impl Protocol for Bully {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Store | Endpoint::Client, .. } => {} // This election knows neither.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.on_command(now, command),
            Input::Evidence(evidence) => self.on_evidence(now, evidence),
        }
        self.show_itself(now);
        self.tell_leader();
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.role {
            Role::Following { leader: None, .. } if !self.wants_to_lead() => None,
            Role::Following { detector, .. } => Some(detector.deadline().max(self.yields_until)),
            Role::Electing { until } | Role::Waiting { until } => Some(*until),
            Role::Leading { beat_at, .. } => Some(*beat_at),
        }
    }
}

impl Advisory for Bully {
    fn begin(config: AdvisorySettings, now: Instant) -> Self {
        assert!(config.nodes.contains(&config.me.node), "a node that is not among the nodes takes no part");
        let detector = MissedHeartbeats::new(config.heartbeat_interval, config.miss_count, now);
        Self {
            config,
            role: Role::Following { leader: None, detector },
            round: Term(0),
            campaigning: false,
            healthy: true,
            yields_until: now,
            lost: None,
            trigger: ElectionTrigger::Silence,
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    fn role(&self) -> &'static str {
        match self.role {
            Role::Following { .. } => "following",
            Role::Electing { .. } => "electing",
            Role::Waiting { .. } => "waiting",
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

impl Bully {
    /// Begins an election now, even if there is a leader: the textbooks' "a process initiates".
    pub fn initiate(&mut self, now: Instant) {
        if self.can_campaign(now) {
            self.elect(now);
        }
        self.tell_leader();
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        let stranger = from == self.config.me.node || !self.config.nodes.contains(&from);
        let impossible = match message.body {
            Body::Coordinator { term } | Body::Heartbeat { term } | Body::Resigned { term } => {
                term > message.round
            }
            Body::Election | Body::Alive | Body::Late => false,
        };
        if stranger || impossible || message.round > ROUND_MAX {
            return;
        }
        let from = Identity::new(from, message.incarnation);
        let is_late = message.round < self.round;
        self.round = self.round.max(message.round);
        match (message.body, &mut self.role) {
            (Body::Election, _) => self.on_election(now, from.node, is_late),
            (Body::Alive, Role::Electing { .. }) if !is_late => {
                let until = now.after(self.config.answer_timeout.times(2));
                self.role = Role::Waiting { until };
            }
            (Body::Alive, Role::Electing { .. }) => {} // Of an earlier election.
            // This node waits already, or knows a leader by now.
            (Body::Alive, Role::Following { .. } | Role::Waiting { .. } | Role::Leading { .. }) => {}
            // The sender, if it still leads, sends a heartbeat again as soon as it has the latest number.
            (Body::Coordinator { .. } | Body::Heartbeat { .. }, _) if is_late => {
                self.send(from.node, Body::Late)
            }
            (Body::Coordinator { term } | Body::Heartbeat { term }, _) => {
                self.on_leader(now, Leader { identity: from, term });
            }
            (Body::Late, _) => {} // Its number is all that it says.
            (Body::Resigned { term }, Role::Following { leader: Some(known), .. })
                if *known == (Leader { identity: from, term }) =>
            {
                self.lose_leader(now, ElectionTrigger::Resigned);
            }
            (Body::Resigned { .. }, _) => {} // It was not heard to lead, or does so again.
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        match &self.role {
            Role::Following { leader, detector, .. }
                if detector.suspects(now) && now >= self.yields_until =>
            {
                let (leader, due) = (*leader, detector.deadline().max(self.yields_until));
                // The timeout is handled late: this node was asleep, and may have missed messages that were sent. It
                // listens once more.
                if now >= due.after(self.config.answer_timeout) {
                    self.follow(now, leader);
                } else {
                    self.lose_leader(now, ElectionTrigger::Silence);
                }
            }
            Role::Electing { until } if now >= until.after(self.config.answer_timeout) => self.elect(now), // Overslept.
            Role::Electing { until } if now >= *until => self.become_leader(now),
            // The higher names that answered have died or are cut off.
            Role::Waiting { until } if now >= *until => self.elect(now),
            // Also while its work drains: no other node may lead before the work has ended.
            Role::Leading { beat_at, .. } if now >= *beat_at => self.beat(now),
            Role::Following { .. } | Role::Electing { .. } | Role::Waiting { .. } | Role::Leading { .. } => {} // Early.
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
                    self.send_to(|_| true, Body::Resigned { term });
                    self.follow(now, None);
                }
            }
        }
    }

    fn on_evidence(&mut self, now: Instant, evidence: Evidence) {
        match evidence {
            Evidence::Died(identity) => {
                let known = match &self.role {
                    Role::Following { leader, .. } => *leader,
                    Role::Electing { .. } | Role::Waiting { .. } | Role::Leading { .. } => None,
                };
                if known.is_some_and(|leader| leader.identity == identity) {
                    self.lose_leader(now, ElectionTrigger::Died);
                }
            }
            Evidence::Disconnected(_) => {} // Its process may live, and then it is heard again.
            Evidence::Connected(_) => {}
            Evidence::Readmitted { .. } | Evidence::DiskRefused { .. } => {} // There is no vote that a disk could lose.
        }
    }

    // ── electing ────────────────────────────────────────────────────────────────────────────────────────────

    /// Asks all higher names, and the leader that it has lost. With no node to ask, it leads at once.
    fn elect(&mut self, now: Instant) {
        self.round = self.round.next();
        let (me, lost) = (self.config.me.node, self.lost);
        if self.config.nodes.last() == Some(&me) && lost.is_none() {
            return self.become_leader(now);
        }
        self.role = Role::Electing { until: now.after(self.config.answer_timeout) };
        self.send_to(|node| node > me || Some(node) == lost, Body::Election);
    }

    /// Handles `Election`: a lower name asks whether this node is alive, or a higher name whether it still leads.
    fn on_election(&mut self, now: Instant, from: NodeId, is_late: bool) {
        if let Role::Leading { term, resigning, .. } = self.role {
            if from < self.config.me.node && resigning.is_none() {
                self.send(from, Body::Alive);
            }
            return self.send(from, Body::Heartbeat { term }); // It asks because it has not heard.
        }
        if from > self.config.me.node || !self.can_campaign(now) {
            return; // It leaves the lead to others.
        }
        self.send(from, Body::Alive);
        match &self.role {
            // It still listens: it hears a leader, if there is one, before its detector suspects.
            Role::Following { leader: None, detector } if self.config.sticky && !detector.suspects(now) => {}
            Role::Following { .. } if is_late => {} // It has been asked before.
            Role::Following { leader, .. } => {
                self.lost = leader.map(|leader| leader.identity.node).filter(|_| self.config.sticky);
                self.elect(now);
            }
            // One election at a time.
            Role::Electing { .. } | Role::Waiting { .. } | Role::Leading { .. } => {}
        }
    }

    fn become_leader(&mut self, now: Instant) {
        let (term, mandate, valid_until) = (self.round, Mandate::Advisory, Instant::NEVER);
        let beat_at = now.after(self.config.heartbeat_interval);
        self.role = Role::Leading { term, told: term, beat_at, resigning: None };
        self.tell(Event::Elected { term, mandate, valid_until });
        let me = self.config.me.node;
        self.send_to(|node| node < me, Body::Coordinator { term });
    }

    fn beat(&mut self, now: Instant) {
        let Role::Leading { term, told, beat_at, .. } = &mut self.role else { return };
        *beat_at = now.after(self.config.heartbeat_interval);
        *told = self.round;
        let term = *term;
        self.send_to(|_| true, Body::Heartbeat { term });
    }

    /// Sends a heartbeat if this leader has not announced itself in the latest election, whose initiator may not hear
    /// it.
    fn show_itself(&mut self, now: Instant) {
        if matches!(self.role, Role::Leading { told, .. } if told < self.round) {
            self.beat(now);
        }
    }

    // ── following ───────────────────────────────────────────────────────────────────────────────────────────

    /// Handles the message of another leader that knows the latest election.
    fn on_leader(&mut self, now: Instant, leader: Leader) {
        let rank = |leader: Leader| (leader.term, leader.identity.node);
        let yields = match &self.role {
            Role::Leading { term, .. } => rank(leader) < (*term, self.config.me.node),
            Role::Following { leader: Some(known), .. } => rank(leader) < rank(*known),
            Role::Following { leader: None, .. } | Role::Electing { .. } | Role::Waiting { .. } => false,
        };
        if yields {
            return; // It hears of the other one itself.
        }
        let takes_over =
            leader.identity.node < self.config.me.node && !self.config.sticky && self.can_campaign(now);
        if takes_over && matches!(self.role, Role::Electing { .. } | Role::Waiting { .. }) {
            return; // It does so already.
        }
        if matches!(self.role, Role::Leading { .. }) {
            self.tell(Event::Deposed(Reason::HigherTerm(leader.term)));
        }
        self.trigger = ElectionTrigger::Silence;
        self.follow(now, Some(leader));
        if takes_over {
            self.elect(now);
        }
    }

    fn lose_leader(&mut self, now: Instant, trigger: ElectionTrigger) {
        self.trigger = trigger;
        self.lost = match &self.role {
            Role::Following { leader: Some(leader), .. }
                if self.config.sticky && trigger == ElectionTrigger::Silence =>
            {
                Some(leader.identity.node)
            }
            Role::Following { .. } | Role::Electing { .. } | Role::Waiting { .. } | Role::Leading { .. } => {
                None
            }
        };
        self.follow(now, None);
        if self.can_campaign(now) {
            self.elect(now);
        }
    }

    fn follow(&mut self, now: Instant, leader: Option<Leader>) {
        let AdvisorySettings { heartbeat_interval, miss_count, .. } = self.config;
        self.role =
            Role::Following { leader, detector: MissedHeartbeats::new(heartbeat_interval, miss_count, now) };
    }

    /// Ends a candidacy, or asks the application to drain.
    fn retire(&mut self, now: Instant, reason: Reason) {
        let wants_to_lead = self.wants_to_lead();
        match &mut self.role {
            Role::Leading { resigning: resigning @ None, .. } => {
                *resigning = Some(reason);
                self.tell(Event::Resigning(reason));
            }
            Role::Leading { resigning: Some(_), .. } => {} // It does so already.
            Role::Electing { .. } | Role::Waiting { .. } if !wants_to_lead => self.follow(now, None),
            Role::Following { .. } | Role::Electing { .. } | Role::Waiting { .. } => {} // It does not lead.
        }
    }

    // ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────

    /// The leader, as far as this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        match &self.role {
            Role::Following { leader, .. } => *leader,
            Role::Leading { term, .. } => Some(Leader { identity: self.config.me, term: *term }),
            Role::Electing { .. } | Role::Waiting { .. } => None,
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
mod tests;
