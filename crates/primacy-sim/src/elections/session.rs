//! The simulator's adapter for the queue of a store with sessions, and for the guardian's eviction from it.

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{
    Config, Eviction, Message, QueuePosition, RequestFailure, Session as Candidate,
};
use primacy_core::rng::Rng;
use primacy_core::{Drift, Duration, Identity, Input, Instant, NodeId, Output, Protocol};

use crate::algorithm::{
    Algorithm, ProcessStart, SessionsUse, Settings, StartGuardian, Surroundings, drift, duration,
    unknown_setting,
};
use crate::invariants::drained_before_released::DrainedBeforeReleased;
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::no_needless_change::NoNeedlessChange;
use crate::invariants::one_leader_at_a_time::OneLeaderAtATime;
use crate::invariants::one_leader_per_term::OneLeaderPerTerm;
use crate::invariants::tokens_grow::TokensGrow;
use crate::invariants::{Invariant, Meaning};
use crate::swarm::{Beyond, Swarm, text};
use crate::trace::Trace;

/// `session`.
#[derive(Clone, Copy, Debug)]
pub struct Session;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The session duration that a candidate asks for.
    pub timeout: Duration,
    /// The shortest session that a candidate accepts.
    pub timeout_min: Duration,
    /// The bound on drift.
    pub drift_max: Drift,
    /// The time between keep-alives of its session.
    pub keep_alive_interval: Duration,
    /// The time between reads of the queue when the store announces no change.
    pub look_interval: Duration,
    /// The time after which a request is taken to be lost.
    pub request_timeout: Duration,
    /// The time that a candidate waits before it retries.
    pub poll_interval: Duration,
}

impl Default for Timers {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            timeout_min: Duration::from_secs(5),
            drift_max: Drift::from_ppm(10_000),
            keep_alive_interval: Duration::from_millis(3_333),
            look_interval: Duration::from_millis(3_333),
            request_timeout: Duration::from_secs(1),
            poll_interval: Duration::from_secs(1),
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "timeout" => {
                self.timeout = duration(text)?;
                self.timeout_min = self.timeout.divided_by(2);
                self.keep_alive_interval = self.timeout.divided_by(3);
                self.look_interval = self.keep_alive_interval;
            }
            "timeout_min" => self.timeout_min = duration(text)?,
            "drift_max" => self.drift_max = drift(text)?,
            "keep_alive_interval" => self.keep_alive_interval = duration(text)?,
            "look_interval" => self.look_interval = duration(text)?,
            "request_timeout" => self.request_timeout = duration(text)?,
            "poll_interval" => self.poll_interval = duration(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }

    fn lease_duration(&self) -> Duration {
        self.timeout
    }

    fn patience(&self) -> Duration {
        self.timeout
    }
}

/// A client of the store: a candidate, or the guardian of a dead node, which evicts the node's entry.
#[derive(Clone, Debug)]
pub enum Machine {
    /// A candidate.
    Candidate(Box<Candidate>),
    /// The guardian of a dead node, which evicts the node's entry.
    Eviction(Box<Eviction>),
}

impl Protocol for Machine {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        match self {
            Self::Candidate(machine) => machine.handle(now, input),
            Self::Eviction(machine) => machine.handle(now, input),
        }
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        match self {
            Self::Candidate(machine) => machine.poll(),
            Self::Eviction(machine) => machine.poll(),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Candidate(machine) => machine.deadline(),
            Self::Eviction(machine) => machine.deadline(),
        }
    }
}

impl Algorithm for Session {
    type Message = Message;
    type Durable = ();
    type Kept = ();
    type Machine = Machine;
    type Settings = Timers;

    const GUARDIAN: Option<StartGuardian<Self>> = Some(guardian);
    const SESSIONS: Option<SessionsUse<Self>> =
        Some(SessionsUse { request: |message| Some(message), reply: core::convert::identity });

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> Machine {
        let config = Config {
            me: Holder { identity: process.me, address: String::new() },
            timeout: settings.timeout,
            timeout_min: settings.timeout_min,
            drift_max: settings.drift_max,
            keep_alive_interval: settings.keep_alive_interval,
            look_interval: settings.look_interval,
            request_timeout: settings.request_timeout,
            poll_interval: settings.poll_interval,
        };
        Machine::Candidate(Box::new(Candidate::new(config, process.now)))
    }

    fn kind(message: &Message) -> &'static str {
        match message {
            Message::Begin { .. } => "Begin",
            Message::BeginReply { .. } => "BeginReply",
            Message::KeepAlive { .. } => "KeepAlive",
            Message::KeepAliveReply { .. } => "KeepAliveReply",
            Message::Campaign { .. } => "Campaign",
            Message::CampaignReply { .. } => "CampaignReply",
            Message::Leave { .. } => "Leave",
            Message::LeaveReply { .. } => "LeaveReply",
            Message::End { .. } => "End",
            Message::EndReply { .. } => "EndReply",
            Message::First { .. } => "First",
            Message::FirstReply { .. } => "FirstReply",
            Message::Evict { .. } => "Evict",
            Message::EvictReply { .. } => "EvictReply",
            Message::Changed => "Changed",
        }
    }

    /// Queue reads and keep-alives are sent all the time, and so are their successful replies.
    fn is_routine(message: &Message) -> bool {
        match message {
            Message::KeepAlive { .. } | Message::Campaign { .. } | Message::First { .. } => true,
            Message::KeepAliveReply { result, .. } => result.is_ok(),
            Message::CampaignReply { result, .. } => result.is_ok(),
            Message::FirstReply { result, .. } => result.is_ok(),
            Message::Begin { .. } | Message::Leave { .. } | Message::End { .. } => false,
            Message::BeginReply { .. } | Message::LeaveReply { .. } | Message::EndReply { .. } => false,
            Message::Evict { .. } | Message::EvictReply { .. } | Message::Changed => false,
        }
    }

    fn text(message: &Message) -> String {
        let kind = Self::kind(message);
        match message {
            Message::Begin { timeout, .. } => format!("Begin a session of {timeout}"),
            Message::KeepAlive { session, .. }
            | Message::Campaign { session, .. }
            | Message::Leave { session, .. }
            | Message::End { session, .. } => format!("{kind} {}", session.as_str()),
            Message::Evict { dead, .. } => format!("Evict {}, life {}", dead.node, dead.incarnation.count),
            Message::First { .. } | Message::Changed => kind.to_owned(),
            Message::BeginReply { result: Ok((session, timeout)), .. } => {
                format!("BeginReply {} of {timeout}", session.as_str())
            }
            Message::KeepAliveReply { result: Ok(timeout), .. } => format!("KeepAliveReply for {timeout}"),
            Message::CampaignReply {
                result: Ok(QueuePosition::First { token, asked_to_resign }), ..
            } => {
                let asked = if *asked_to_resign { ", asked to resign" } else { "" };
                format!("CampaignReply first, token {token}{asked}")
            }
            Message::CampaignReply { result: Ok(QueuePosition::Behind { first }), .. } => {
                format!("CampaignReply behind {}, token {}", first.holder.identity.node, first.token)
            }
            Message::FirstReply { result: Ok(Some(first)), .. } => {
                format!("FirstReply {}, token {}", first.holder.identity.node, first.token)
            }
            Message::FirstReply { result: Ok(None), .. } => "FirstReply nobody".to_owned(),
            Message::EvictReply { result: Ok(found), .. } => {
                format!("EvictReply {}", if *found { "done" } else { "nothing" })
            }
            Message::LeaveReply { result: Ok(()), .. } | Message::EndReply { result: Ok(()), .. } => {
                format!("{kind} done")
            }
            Message::BeginReply { result: Err(failure), .. } => with(kind, *failure),
            Message::KeepAliveReply { result: Err(failure), .. } => with(kind, *failure),
            Message::CampaignReply { result: Err(failure), .. } => with(kind, *failure),
            Message::FirstReply { result: Err(failure), .. } => with(kind, *failure),
            Message::EvictReply { result: Err(failure), .. } => with(kind, *failure),
            Message::LeaveReply { result: Err(failure), .. }
            | Message::EndReply { result: Err(failure), .. } => with(kind, *failure),
        }
    }

    fn meaning(_message: &Message, _to: Option<NodeId>) -> Meaning {
        Meaning::Nothing // What a request lets go of, the store knows.
    }

    fn met(message: &Message) -> Option<&'static str> {
        let failure = match message {
            Message::CampaignReply {
                result: Ok(QueuePosition::First { asked_to_resign: true, .. }), ..
            } => {
                return Some("place: asked to resign");
            }
            Message::CampaignReply { result: Ok(QueuePosition::Behind { .. }), .. } => {
                return Some("place: behind another");
            }
            Message::Changed => return Some("change told"),
            Message::EvictReply { result: Ok(true), .. } => return Some("dead evicted"),
            Message::Leave { .. } => return Some("entry given up"),
            Message::BeginReply { result, .. } => result.as_ref().err(),
            Message::KeepAliveReply { result, .. } => result.as_ref().err(),
            Message::CampaignReply { result, .. } => result.as_ref().err(),
            Message::FirstReply { result, .. } => result.as_ref().err(),
            Message::EvictReply { result, .. } => result.as_ref().err(),
            Message::LeaveReply { result, .. } | Message::EndReply { result, .. } => result.as_ref().err(),
            Message::Begin { .. } | Message::KeepAlive { .. } | Message::Campaign { .. } => None,
            Message::End { .. } | Message::First { .. } | Message::Evict { .. } => None,
        };
        failure.map(|failure| match failure {
            RequestFailure::Ended => "answer: the session has ended",
            RequestFailure::NoAnswer => "answer: store not reached",
        })
    }

    fn must_meet() -> &'static [&'static str] {
        &[
            "place: asked to resign",
            "place: behind another",
            "change told",
            "dead evicted",
            "entry given up",
            "answer: the session has ended",
            "answer: store not reached",
            "deposed: resigned",
            "deposed: unhealthy",
            "deposed: expired",
            "death told",
            "store: silent",
            "store: done, and the reply lost",
            "store: done, and said to be unknown",
            "store: not done, and said to be unknown",
            "store: done twice",
        ]
    }

    /// An abandoned session expires. The next entry may belong to another abandoned session, created by requests
    /// under way. A node that has given up an entry waits until its own session has certainly ended.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let longest =
            |of: fn(&Timers) -> Duration| nodes.iter().map(|node| of(node)).max().unwrap_or_default();
        let Surroundings { lag, delay, disk_latency: _, reconnect: _, drain } = *surroundings;
        let sessions = longest(|node| node.drift_max.lengthen(node.timeout)).times(4);
        let looks =
            longest(|node| node.request_timeout.plus(node.poll_interval.times(2)).plus(node.look_interval));
        lag.plus(drain).plus(sessions).plus(looks.plus(delay.times(4)).times(4))
    }

    fn campaigns(machine: &Machine) -> bool {
        match machine {
            Machine::Candidate(machine) => machine.status().role == "waiting",
            Machine::Eviction(_) => false,
        }
    }

    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        vec![
            Box::new(OneLeaderPerTerm::default()),
            Box::new(OneLeaderAtATime::default()),
            Box::new(TokensGrow::in_order_of_elections()),
            Box::new(NoNeedlessChange::default()),
            Box::new(LeaderAfterHealing::default()),
            Box::new(DrainedBeforeReleased),
        ]
    }
}

fn guardian(settings: &Timers, dead: Identity, _seed: u64, now: Instant) -> Machine {
    let eviction = Eviction::new(dead, settings.timeout, settings.poll_interval, now);
    Machine::Eviction(Box::new(eviction))
}

fn with(kind: &str, failure: RequestFailure) -> String {
    match failure {
        RequestFailure::Ended => format!("{kind} the session has ended"),
        RequestFailure::NoAnswer => format!("{kind} not reached"),
    }
}

/// Draws the candidates, their sessions, and the store's delays and timeouts.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Session> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = 2 + swarm.index(3);
    swarm.begin(seed, nodes);
    swarm.words = &[
        "Begin",
        "KeepAlive",
        "KeepAliveReply",
        "Campaign",
        "CampaignReply",
        "Leave",
        "LeaveReply",
        "End",
        "Died",
    ];
    let round_trip = swarm.world().conditions.delay.times(2);
    let round_trip = swarm.lengthen(round_trip);
    swarm.tell(format!("set drift_max={}ppm", swarm.drift));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let timeout = swarm.millis(500, 2_000);
        let request_timeout = round_trip.plus(swarm.millis(20, 200));
        // A read of the queue is evidence of the leader for no longer than a session.
        let look_interval = swarm.up_to(timeout.divided_by(3)).plus(swarm.millis(1, 20));
        let poll_interval = swarm.millis(20, 150);
        swarm.tell(format!(
            "set {name} timeout={} timeout_min=1ms look_interval={} request_timeout={} poll_interval={}",
            text(timeout),
            text(look_interval),
            text(request_timeout),
            text(poll_interval),
        ));
    }
    if swarm.one_in(3) {
        let lateness = swarm.millis(0, 500);
        swarm.tell(format!("store ends sessions late {}", text(lateness)));
    }
    if swarm.one_in(4) {
        let timeout = swarm.millis(500, 2_000);
        swarm.tell(format!("store gives sessions {}", text(timeout)));
    }
    if swarm.one_in(2) {
        swarm.tell("store tells changes".to_owned());
    }
    swarm
}
