//! Omega (Chandra, Hadzilacos and Toueg 1996, with heartbeats of the leader alone): the lowest name that is alive leads.
//! Intuition Only the leader sends. A node that hears no leader waits one turn for each lower name, and then it leads and sends
//!           itself. If two lead, the one with the higher name hears the other and stops.
//! Assumes   bounded message delay; every node knows every name; crashes, not partitions.
//! Promises  at most one leader *only while those hold*; a partition elects two, and so does a pause. No token.
//! Costs     n − 1 messages, and one delay after the detection; one `answer_timeout` more for each lower name that is dead or does
//!           not campaign. A heartbeat to every node.   Prefer `quorum`; or let one confirm it.
//!
//! The roles of a node:
//!
//! ```text
//!               silence                        its turn: no lower name was heard
//!   Following ───────────────────► Waiting ──────────────────────────────────────► Leading
//!       ▲                             │ Heartbeat                                    │
//!       └─────────────────────────────┴────────── Heartbeat of a lower name ─────────┘
//! ```
//!
//! A node that comes back leaves a live leader its lead if the election is `sticky`; otherwise the lowest name takes over. A closed
//! connection proves nothing, so only silence, a resignation and a reported death begin an election.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Advisory, AdvisorySettings, ElectionDescriptor};
use crate::detector::MissedHeartbeats;
use crate::id::{Identity, Incarnation, NodeId};
use crate::protocol::{
    Command, ElectionTrigger, Endpoint, Event, Evidence, Input, Leader, Mandate, Output, Protocol, Reason,
};
use crate::term::Term;
use crate::time::Instant;

/// The facts about this election.
pub const DESCRIPTOR: ElectionDescriptor = ElectionDescriptor {
    name: "omega",
    choose_when: "to learn, or to nominate with the fewest messages",
    guarantee: "advisory: two leaders in a partition, no token",
    is_fenced: false,
};

/// The highest term that an honest node sends.
pub const TERM_MAX: Term = Term(u64::MAX / 2);

/// A message between nodes, of bounded size. The connection identifies the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The incarnation of the sender.
    pub incarnation: Incarnation,
    /// The term in which the sender leads or led; at most [`TERM_MAX`].
    pub term: Term,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// To all: "I lead."
    Heartbeat,
    /// To all: "I led and do not any more."
    Resigned,
}

/// The state machine of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Omega {
    settings: AdvisorySettings,
    role: Role,
    /// The highest term of which this node has heard.
    term: Term,
    /// True if the application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// The time before which it does not campaign, after a resignation or the command to campaign.
    yields_until: Instant,
    trigger: ElectionTrigger,
    told_leader: Option<Leader>,
    outputs: VecDeque<Output<Message, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Hears a leader, or listens for one. `other` is a leader with a higher name that was heard since the last heartbeat.
    Following { leader: Option<Leader>, other: Option<Leader>, detector: MissedHeartbeats },
    /// Waits for the heartbeat of a lower name.
    Waiting { until: Instant },
    /// Leads.
    Leading { term: Term, beat_at: Instant, resigning: Option<Reason> },
}

impl Protocol for Omega {
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
        let leader = self.leader();
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.role {
            Role::Following { leader: None, .. } if !self.wants_to_lead() => None,
            Role::Following { detector, .. } => Some(detector.deadline().max(self.yields_until)),
            Role::Waiting { until } => Some(*until),
            Role::Leading { beat_at, .. } => Some(*beat_at),
        }
    }
}

impl Advisory for Omega {
    fn begin(settings: AdvisorySettings, now: Instant) -> Self {
        assert!(
            settings.nodes.contains(&settings.me.node),
            "a node that is not among the nodes takes no part"
        );
        let detector = MissedHeartbeats::new(settings.heartbeat_interval, settings.miss_count, now);
        Self {
            settings,
            role: Role::Following { leader: None, other: None, detector },
            term: Term(0),
            campaigning: false,
            healthy: true,
            yields_until: now,
            trigger: ElectionTrigger::Silence,
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    fn role(&self) -> &'static str {
        match self.role {
            Role::Following { .. } => "following",
            Role::Waiting { .. } => "waiting",
            Role::Leading { .. } => "leading",
        }
    }

    fn round(&self) -> Term {
        self.term
    }

    fn trigger(&self) -> ElectionTrigger {
        self.trigger
    }
}

impl Omega {
    fn on_message(&mut self, now: Instant, from: NodeId, Message { incarnation, term, body }: Message) {
        let me = self.settings.me.node;
        if from == me || !self.settings.nodes.contains(&from) || term > TERM_MAX {
            return;
        }
        let sender = Leader { identity: Identity::new(from, incarnation), term };
        self.term = self.term.max(term);
        let known = match &self.role {
            Role::Following { leader, .. } => *leader,
            Role::Waiting { .. } | Role::Leading { .. } => None,
        };
        match body {
            Body::Resigned if known == Some(sender) => self.lose_leader(now, ElectionTrigger::Resigned),
            Body::Resigned => {} // It was not heard to lead, or leads again.
            Body::Heartbeat => self.on_heartbeat(now, sender, known),
        }
    }

    fn on_heartbeat(&mut self, now: Instant, sender: Leader, known: Option<Leader>) {
        let (me, from) = (self.settings.me.node, sender.identity.node);
        let rank = |leader: Leader| (leader.identity.node, core::cmp::Reverse(leader.term));
        let takes_over = me < from && !self.settings.sticky && self.can_campaign(now);
        match &mut self.role {
            Role::Leading { .. } if me < from => return self.beat(now), // It stops when it hears this.
            Role::Leading { .. } => self.tell(Event::Deposed(Reason::HigherTerm(sender.term))),
            // It is late, or that leader will hear of the lower one, unless the lower one has ended.
            Role::Following { other, .. } if known.is_some_and(|known| rank(known) < rank(sender)) => {
                *other = Some(sender)
                    .filter(|sender| Some(sender.identity.node) != known.map(|known| known.identity.node));
                return;
            }
            Role::Following { .. } | Role::Waiting { .. } if takes_over => return self.become_leader(now),
            Role::Following { .. } | Role::Waiting { .. } => {}
        }
        self.follow(now, Some(sender));
    }

    fn on_timeout(&mut self, now: Instant) {
        // A timeout that is handled late: this node was asleep, and may have missed a heartbeat that was sent.
        let overslept = |due: Instant| now >= due.after(self.settings.answer_timeout);
        match &self.role {
            Role::Following { leader, detector, .. }
                if detector.suspects(now) && now >= self.yields_until =>
            {
                if overslept(detector.deadline().max(self.yields_until)) {
                    self.follow(now, *leader);
                } else {
                    self.lose_leader(now, ElectionTrigger::Silence);
                }
            }
            Role::Waiting { until } if overslept(*until) => self.follow(now, None),
            Role::Waiting { until } if now >= *until => self.become_leader(now),
            // Also while its work drains: no other node may lead before the work has ended.
            Role::Leading { beat_at, .. } if now >= *beat_at => self.beat(now),
            Role::Following { .. } | Role::Waiting { .. } | Role::Leading { .. } => {} // Early.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign | Command::Healthy(true) => {
                self.campaigning |= command == Command::Campaign;
                self.healthy |= command == Command::Healthy(true);
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
                    let AdvisorySettings { heartbeat_interval, miss_count, .. } = self.settings;
                    self.yields_until = now.after(heartbeat_interval.times(u64::from(miss_count)));
                    self.tell(Event::Deposed(reason));
                    self.send(term, Body::Resigned);
                    self.follow(now, None);
                }
            }
        }
    }

    fn on_evidence(&mut self, now: Instant, evidence: Evidence) {
        match evidence {
            Evidence::Died(dead) if matches!(self.role, Role::Following { leader: Some(Leader { identity, .. }), .. } if identity == dead) =>
            {
                self.lose_leader(now, ElectionTrigger::Died);
            }
            // Its process may live, and then it is heard again.
            Evidence::Died(_) | Evidence::Disconnected(_) | Evidence::Connected(_) => {}
            Evidence::Readmitted { .. } | Evidence::DiskRefused { .. } => {} // There is no vote that a disk could lose.
        }
    }

    /// Follows the other leader that was heard. Without one, it waits one turn for each lower name, but not for the leader that was lost;
    /// the lowest leads at once.
    fn lose_leader(&mut self, now: Instant, trigger: ElectionTrigger) {
        self.trigger = trigger;
        if let Role::Following { other: Some(other), .. } = self.role {
            return self.follow(now, Some(other));
        }
        let lost = self.leader().map(|leader| leader.identity.node);
        self.follow(now, None);
        if !self.can_campaign(now) {
            return;
        }
        let lower =
            self.settings.nodes.range(..self.settings.me.node).filter(|&&node| Some(node) != lost).count();
        match lower {
            0 => self.become_leader(now),
            turns => {
                self.role =
                    Role::Waiting { until: now.after(self.settings.answer_timeout.times(turns as u64)) }
            }
        }
    }

    fn become_leader(&mut self, now: Instant) {
        self.term = self.term.next();
        let (term, mandate, valid_until) = (self.term, Mandate::Advisory, Instant::NEVER);
        self.role = Role::Leading { term, beat_at: now, resigning: None };
        self.tell(Event::Elected { term, mandate, valid_until });
        self.beat(now);
    }

    fn beat(&mut self, now: Instant) {
        if let Role::Leading { term, beat_at, .. } = &mut self.role {
            *beat_at = now.after(self.settings.heartbeat_interval);
            let term = *term;
            self.send(term, Body::Heartbeat);
        }
    }

    fn follow(&mut self, now: Instant, leader: Option<Leader>) {
        let AdvisorySettings { heartbeat_interval, miss_count, .. } = self.settings;
        let detector = MissedHeartbeats::new(heartbeat_interval, miss_count, now);
        self.role = Role::Following { leader, other: None, detector };
    }

    /// Ends a candidacy, or asks the application to drain.
    fn retire(&mut self, now: Instant, reason: Reason) {
        let wants_to_lead = self.wants_to_lead();
        match &mut self.role {
            Role::Leading { resigning: resigning @ None, .. } => {
                *resigning = Some(reason);
                self.tell(Event::Resigning(reason));
            }
            Role::Waiting { .. } if !wants_to_lead => self.follow(now, None),
            Role::Leading { .. } | Role::Following { .. } | Role::Waiting { .. } => {} // It does so already, or does not lead.
        }
    }

    fn leader(&self) -> Option<Leader> {
        match &self.role {
            Role::Following { leader, .. } => *leader,
            Role::Leading { term, .. } => Some(Leader { identity: self.settings.me, term: *term }),
            Role::Waiting { .. } => None,
        }
    }

    const fn wants_to_lead(&self) -> bool {
        self.campaigning && self.healthy
    }

    fn can_campaign(&self, now: Instant) -> bool {
        self.wants_to_lead() && now >= self.yields_until
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn send(&mut self, term: Term, body: Body) {
        let message = Message { incarnation: self.settings.me.incarnation, term, body };
        let others: Vec<NodeId> =
            self.settings.nodes.iter().copied().filter(|&node| node != self.settings.me.node).collect();
        self.outputs
            .extend(others.into_iter().map(|node| Output::Send { to: Endpoint::Node(node), message }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn messages_that_no_honest_node_sends_change_nothing() {
        let [a, b, stranger] = ["a", "b", "x"].map(|name| NodeId::new(name).unwrap());
        let incarnation = Incarnation { count: 1, nonce: 1 };
        let second = Duration::from_millis(1_000);
        let settings = AdvisorySettings {
            me: Identity::new(b, incarnation),
            nodes: [a, b].into(),
            heartbeat_interval: second,
            miss_count: 3,
            answer_timeout: second,
            sticky: true,
        };
        let fresh = Omega::begin(settings, Instant::default());
        let heartbeat = |term| Message { incarnation, term, body: Body::Heartbeat };
        for (from, message) in [
            (stranger, heartbeat(Term(1))),
            (b, heartbeat(Term(1))),
            (a, heartbeat(TERM_MAX.next())),
            (a, Message { body: Body::Resigned, ..heartbeat(Term(0)) }),
        ] {
            let mut node = fresh.clone();
            node.handle(Instant::default(), Input::Message { from: Endpoint::Node(from), message });
            assert_eq!(node, fresh, "{from} {message:?}");
        }
    }
}
