//! The simulator's adapter for the quorum election.

use std::collections::BTreeSet;

use primacy_core::election::quorum::{
    Answer, Body, Config, DiskState, HardState, Message, Quorum as Machine, Refusal, Resignation, Safety,
};
use primacy_core::rng::Rng;
use primacy_core::{Drift, Duration, FencingToken, Identity, NodeId, Term};

use crate::algorithm::{
    ATTEMPTS, Algorithm, ProcessStart, Recovery, Settings, Surroundings, drift, duration, unknown_setting,
    value,
};
use crate::invariants::drained_before_released::DrainedBeforeReleased;
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::no_needless_change::NoNeedlessChange;
use crate::invariants::one_leader_at_a_time::OneLeaderAtATime;
use crate::invariants::one_leader_per_term::OneLeaderPerTerm;
use crate::invariants::one_vote_per_term::OneVotePerTerm;
use crate::invariants::tokens_grow::TokensGrow;
use crate::invariants::{Invariant, Meaning};
use crate::process_slot::ProcessSlot;
use crate::swarm::{Beyond, Swarm, in_micros, text};
use crate::trace::Trace;

/// `quorum`.
#[derive(Clone, Copy, Debug)]
pub struct Quorum;

/// Settings of a node: its configuration without the parts that depend on its incarnation.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The promised safety.
    pub safety: Safety,
    /// The time between heartbeats of the leader.
    pub heartbeat_interval: Duration,
    /// The number of heartbeats that may be missed.
    pub miss_count: u32,
    /// The duration of a promise, which an answer to a heartbeat or a vote carries.
    pub promise_duration: Duration,
    /// The time for which a new node listens before it campaigns.
    pub initial_wait: Duration,
    /// The longest random wait.
    pub random_wait_max: Duration,
    /// The time that a candidate waits for answers.
    pub round_timeout: Duration,
    /// The time between two candidates that campaign one after the other.
    pub stagger: Duration,
    /// The bound on drift.
    pub drift_max: Drift,
    /// The priority: nodes with a higher one campaign first.
    pub priority: u32,
    /// True if the node only votes.
    pub witness: bool,
    /// True if a candidate asks for pre-votes before it takes a new term.
    pub pre_vote: bool,
    /// True if a node refuses pre-votes while it hears a leader.
    pub sticky: bool,
}

impl Default for Timers {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            safety: Safety::Lease,
            heartbeat_interval: Duration::from_millis(250),
            miss_count: 4,
            promise_duration: Duration::from_secs(1),
            initial_wait: Duration::from_millis(500),
            random_wait_max: Duration::from_millis(300),
            round_timeout: Duration::from_millis(500),
            stagger: Duration::from_millis(5),
            drift_max: Drift::from_ppm(10_000),
            priority: 0,
            witness: false,
            pre_vote: true,
            sticky: true,
        }
    }
}

impl Timers {
    /// Returns the configuration of one incarnation.
    pub(super) fn config(&self, me: Identity, voters: &BTreeSet<NodeId>, seed: u64) -> Config {
        Config {
            me,
            voters: voters.clone(),
            safety: self.safety,
            heartbeat_interval: self.heartbeat_interval,
            miss_count: self.miss_count,
            promise_duration: self.promise_duration,
            initial_wait: self.initial_wait,
            random_wait_max: self.random_wait_max,
            round_timeout: self.round_timeout,
            stagger: self.stagger,
            drift_max: self.drift_max,
            priority: self.priority,
            witness: self.witness,
            pre_vote: self.pre_vote,
            sticky: self.sticky,
            seed,
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "safety" => {
                self.safety = match text {
                    "lease" => Safety::Lease,
                    "fenced" => Safety::Fenced,
                    _ => return Err("safety is lease or fenced".to_owned()),
                }
            }
            "heartbeat_interval" => self.heartbeat_interval = duration(text)?,
            "miss_count" => self.miss_count = value(text)?,
            "promise_duration" => self.promise_duration = duration(text)?,
            "initial_wait" => self.initial_wait = duration(text)?,
            "random_wait_max" => self.random_wait_max = duration(text)?,
            "round_timeout" => self.round_timeout = duration(text)?,
            "stagger" => self.stagger = duration(text)?,
            "drift_max" => self.drift_max = drift(text)?,
            "priority" => self.priority = value(text)?,
            "witness" => self.witness = value(text)?,
            "pre_vote" => self.pre_vote = value(text)?,
            "sticky" => self.sticky = value(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }

    /// `article`: the values of the BlazingMQ article, with three missed heartbeats and a random wait of 0 to 3 s.
    /// Where the article states none, the defaults of BlazingMQ's code. A promise as long as the three heartbeats.
    fn profile(&mut self, name: &str) -> Result<(), String> {
        if name != "article" {
            return Err(format!("there is no profile {name}; there is article"));
        }
        self.heartbeat_interval = Duration::from_secs(2);
        self.miss_count = 3;
        self.promise_duration = Duration::from_secs(6);
        self.initial_wait = Duration::from_secs(8);
        self.random_wait_max = Duration::from_secs(3);
        self.round_timeout = Duration::from_secs(4);
        Ok(())
    }

    fn priority_and_witness(&self) -> (u32, bool) {
        (self.priority, self.witness)
    }

    fn patience(&self) -> Duration {
        self.promise_duration
    }

    fn terms_of_use(&self) -> String {
        format!("{:?}", self.safety)
    }
}

impl Algorithm for Quorum {
    type Message = Message;
    type Durable = HardState;
    type Kept = HardState;
    type Machine = Machine;
    type Settings = Timers;

    const RECOVERY: Option<Recovery<Self>> = Some(Recovery { term_to_report, has_recovered });

    fn start(settings: &Timers, process: ProcessStart<'_, HardState>) -> Machine {
        let config = settings.config(process.me, process.voters, process.seed);
        Machine::new(config, process.durable.unwrap_or_default(), process.now)
    }

    fn kind(message: &Message) -> &'static str {
        match message.body {
            Body::PreVote { .. } => "PreVote",
            Body::PreVoteReply { .. } => "PreVoteReply",
            Body::Vote { .. } => "Vote",
            Body::VoteReply { .. } => "VoteReply",
            Body::Heartbeat { .. } => "Heartbeat",
            Body::HeartbeatReply { .. } => "HeartbeatReply",
            Body::Resigned { .. } => "Resigned",
        }
    }

    fn is_routine(message: &Message) -> bool {
        match message.body {
            Body::Heartbeat { .. } | Body::HeartbeatReply { .. } => true,
            Body::PreVote { .. } | Body::PreVoteReply { .. } => false,
            Body::Vote { .. } | Body::VoteReply { .. } | Body::Resigned { .. } => false,
        }
    }

    fn text(message: &Message) -> String {
        let term = message.term;
        let kind = Self::kind(message);
        match message.body {
            Body::PreVote { resignation, .. } => {
                format!("{kind} for term {}{}", term.next(), resignation_text(resignation))
            }
            Body::Vote { resignation, .. } => {
                format!("{kind} for term {term}{}", resignation_text(resignation))
            }
            Body::PreVoteReply { answer, .. } | Body::VoteReply { answer, .. } => {
                format!("{kind} {} (its term {term})", answer_text(answer))
            }
            Body::Heartbeat { round } => format!("{kind} in term {term}, round {}", round.0),
            Body::HeartbeatReply { round, promise, .. } => {
                format!("{kind} in term {term}, round {}, promises {promise}", round.0)
            }
            Body::Resigned { successor: None } => format!("{kind} in term {term}"),
            Body::Resigned { successor: Some(to) } => format!("{kind} in term {term}, for {to}"),
        }
    }

    fn meaning(message: &Message, to: Option<NodeId>) -> Meaning {
        let term = message.term;
        match (message.body, to) {
            (Body::VoteReply { answer: Answer::Yes, to: incarnation, .. }, Some(node)) => {
                Meaning::Votes { term, candidate: Identity { node, incarnation } }
            }
            (Body::Heartbeat { .. }, _) => Meaning::Leads { term, by_own_vote: true },
            (Body::Resigned { .. }, _) => Meaning::Releases { token: FencingToken(term.0) },
            (Body::VoteReply { .. } | Body::PreVote { .. } | Body::PreVoteReply { .. }, _)
            | (Body::Vote { .. } | Body::HeartbeatReply { .. }, _) => Meaning::Nothing,
        }
    }

    fn campaigns(machine: &Machine) -> bool {
        let status = machine.status();
        // An elected node that has not yet heard from a majority does not lead.
        matches!(status.role, "pre-candidate" | "candidate" | "leader") && status.valid_until.is_none()
    }

    fn met(message: &Message) -> Option<&'static str> {
        match message.body {
            Body::PreVoteReply { answer: Answer::No(refusal), .. } => Some(match refusal {
                Refusal::Term => "pre-vote refused: term",
                Refusal::HearsLeader(_) => "pre-vote refused: hears a leader",
                Refusal::Promised { .. } => "pre-vote refused: promised",
                Refusal::JustStarted { .. } => "pre-vote refused: just started",
                Refusal::DiskLost => "pre-vote refused: lost its disk",
            }),
            Body::VoteReply { answer: Answer::No(refusal), .. } => Some(match refusal {
                Refusal::Term => "vote refused: term",
                Refusal::HearsLeader(_) => "vote refused: hears a leader",
                Refusal::Promised { .. } => "vote refused: promised",
                Refusal::JustStarted { .. } => "vote refused: just started",
                Refusal::DiskLost => "vote refused: lost its disk",
            }),
            Body::VoteReply { answer: Answer::Yes, .. } => Some("vote given"),
            Body::PreVote { resignation: Some(_), .. } | Body::Vote { resignation: Some(_), .. } => {
                Some("resignation passed on")
            }
            Body::HeartbeatReply { promise: Duration::ZERO, .. } => {
                Some("heartbeat answered without a promise")
            }
            Body::Resigned { successor: Some(_) } => Some("resigned for a successor"),
            Body::Resigned { successor: None } => Some("resigned"),
            Body::PreVoteReply { answer: Answer::Yes, .. } | Body::PreVote { resignation: None, .. } => None,
            Body::Vote { resignation: None, .. } | Body::Heartbeat { .. } | Body::HeartbeatReply { .. } => {
                None
            }
        }
    }

    fn must_meet() -> &'static [&'static str] {
        &[
            "pre-vote refused: term",
            "pre-vote refused: hears a leader",
            "pre-vote refused: promised",
            "pre-vote refused: just started",
            "pre-vote refused: lost its disk",
            "vote refused: term",
            "vote refused: promised",
            "vote refused: just started",
            "vote given",
            "resignation passed on",
            "heartbeat answered without a promise",
            "resigned for a successor",
            "resigned",
            "deposed: resigned",
            "deposed: transferred",
            "deposed: unhealthy",
            "deposed: expired",
            "deposed: higher term",
            "death told",
            "death told: of an earlier life",
            "fault: connection closed",
            "fault: crash before a write is kept",
            "fault: crash after a write is kept",
            "fault: disk full",
            "partition: quorum loss",
            "partition: elected in a quorum loss",
            "partition: constrained election",
            "partition: elected in a constrained election",
            "partition: chained",
            "partition: a leader is kept in a chain",
            "ploy: forget",
            "lost disk: an empty one",
            "lost disk: all others have told their terms",
            "lost disk: the node votes again",
            "lost disk: a former one is put back",
            "lost disk: a former one is refused",
            "lost disk: a former one is not readmitted",
            "packet: not connected",
        ]
    }

    /// First all promises must end: messages under way may renew them once, and nodes that have just started or
    /// recovered from a lost disk stay silent for as long again. Then candidates lose at most [`ATTEMPTS`] rounds by
    /// chance. One attempt takes a random wait behind candidates of higher priority, the time that a voter gives its
    /// candidate, and three round trips, two of them with a write.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let longest =
            |of: fn(&Timers) -> Duration| nodes.iter().map(|node| of(node)).max().unwrap_or_default();
        let Surroundings { lag, delay, disk_latency, reconnect, drain } = *surroundings;
        let promises = longest(|node| node.promise_duration).times(2);
        let bound = lag.plus(reconnect).plus(drain).plus(promises).plus(longest(|node| node.initial_wait));
        let priorities: BTreeSet<u32> = nodes.iter().map(|node| node.priority).collect();
        let rounds = delay.times(6).plus(disk_latency.times(4));
        let wait = longest(|node| node.random_wait_max).times(priorities.len() as u64);
        let attempt = wait.plus(longest(|node| node.round_timeout)).plus(rounds);
        bound.plus(attempt.times(ATTEMPTS))
    }

    fn invariants(settings: &Timers) -> Vec<Box<dyn Invariant>> {
        let mut promised: Vec<Box<dyn Invariant>> = vec![
            Box::new(OneLeaderPerTerm::default()),
            Box::new(OneVotePerTerm::default()),
            Box::new(NoNeedlessChange::default()),
            Box::new(LeaderAfterHealing::default()),
            Box::new(DrainedBeforeReleased),
        ];
        match settings.safety {
            Safety::Lease => {
                promised.push(Box::new(OneLeaderAtATime::default()));
                promised.push(Box::new(TokensGrow::in_order_of_elections()));
            }
            Safety::Fenced => promised.push(Box::new(TokensGrow::at_the_resource())),
        }
        promised
    }
}

pub(super) fn term_to_report(machine: &Machine) -> Option<Term> {
    let status = machine.status();
    status.recovering.is_none().then_some(status.hard.term)
}

pub(super) fn has_recovered(kept: &HardState) -> bool {
    kept.disk_state == DiskState::Recovered
}

fn answer_text(answer: Answer) -> String {
    match answer {
        Answer::Yes => "yes".to_owned(),
        Answer::No(Refusal::Term) => "no: term".to_owned(),
        Answer::No(Refusal::HearsLeader(leader)) => format!("no: hears {leader}"),
        Answer::No(Refusal::Promised { left }) => format!("no: promised for {}", millis(left)),
        Answer::No(Refusal::DiskLost) => "no: lost its disk".to_owned(),
        Answer::No(Refusal::JustStarted { left }) => format!("no: just started, silent for {}", millis(left)),
    }
}

fn millis(duration: Duration) -> String {
    Duration::from_millis(duration.as_millis()).to_string()
}

fn resignation_text(resignation: Option<Resignation>) -> String {
    resignation.map_or_else(String::new, |resignation| {
        format!(" ({} left in term {})", resignation.leader.node, resignation.term)
    })
}

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Quorum> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words =
        &["PreVote", "PreVoteReply", "Vote", "VoteReply", "Heartbeat", "HeartbeatReply", "Resigned", "Died"];
    let least = timers(&mut swarm, nodes, beyond);
    if beyond.is_none() {
        swarm.begin_with_promises_that_differ(seed, nodes, least);
    }
    swarm
}

/// Draws the timers of a quorum that elects or confirms. Returns the shortest allowed promise.
pub(super) fn timers<A: Algorithm>(swarm: &mut Swarm<A>, nodes: usize, beyond: Option<Beyond>) -> Duration {
    // Worlds that violate an assumption of leases always have leases.
    timers_with(swarm, nodes, beyond.is_none(), 0)
}

/// Draws the timers as [`timers`] does, in some worlds without leases, if that is allowed. A leader may make
/// `writes_between` writes to its disk between a heartbeat and the answers to the next one.
pub(super) fn timers_with<A: Algorithm>(
    swarm: &mut Swarm<A>,
    nodes: usize,
    may_be_fenced: bool,
    writes_between: u64,
) -> Duration {
    let delay = swarm.world().conditions.delay;
    let disk_latency = swarm.world().node(ProcessSlot(0)).disk.latency;
    let heartbeat = swarm.millis(50, 250).max(delay.times(3));
    // A promise must outlast a heartbeat and its answer on any clock.
    let least = delay.times(4);
    // The latency of a disk does not depend on a clock, and the leader's clock may be the fastest.
    let busy = swarm.lengthen(disk_latency.times(writes_between));
    let fenced = swarm.one_in(5) && may_be_fenced;
    let (one_for_all, hasty) = (swarm.one_in(2), swarm.tight || swarm.one_in(2));
    swarm.tell(format!("set heartbeat_interval={} drift_max={}ppm", text(heartbeat), swarm.drift));
    if fenced {
        swarm.tell("set safety=fenced".to_owned());
    }
    let mut promise = swarm.promise(heartbeat, busy, least);
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        if !one_for_all {
            promise = swarm.promise(heartbeat, busy, least);
        }
        let misses = 2 + swarm.rng.up_to(3);
        // Short waits are the harder case: then only the promises keep leaders apart.
        let initial_wait = if hasty { Duration::ZERO } else { swarm.up_to(promise) };
        // But they must exceed the delay of a packet, or two candidates split the votes for ever.
        let wait =
            if hasty { swarm.millis(5, if swarm.tight { 10 } else { 50 }) } else { swarm.millis(50, 300) };
        // A round must leave time for the round trip. A node does not know the disk latency of its peers; its round
        // timeout grows to four times as long while it loses elections.
        let round_trip = swarm.lengthen(delay.times(2).plus(in_micros(disk_latency.divided_by(3))));
        let round = round_trip.plus(swarm.millis(10, 500));
        let priority = swarm.rng.up_to(3) / 2;
        let witness = nodes > 2 && name != "a" && swarm.one_in(10);
        swarm.tell(format!(
            "set {name} miss_count={misses} promise_duration={} initial_wait={} random_wait_max={} round_timeout={} \
             priority={priority} witness={witness}",
            text(promise),
            text(initial_wait),
            text(wait.plus(least)),
            text(round),
        ));
    }
    swarm.lengthen(heartbeat.times(2).max(heartbeat.plus(busy)).plus(least))
}

impl<A: Algorithm> Swarm<A> {
    fn promise(&mut self, heartbeat: Duration, busy: Duration, least: Duration) -> Duration {
        let beats = 2 + self.rng.up_to(4);
        self.lengthen(heartbeat.times(beats).max(heartbeat.plus(busy)).plus(least))
    }
}
