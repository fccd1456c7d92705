//! The simulator's adapter for the bully election.

use primacy_core::election::bully::{Body, Bully as Machine, Message};
use primacy_core::election::{Advisory as _, AdvisorySettings};
use primacy_core::rng::Rng;
use primacy_core::{Duration, FencingToken, NodeId};

use crate::algorithm::{Algorithm, ProcessStart, Settings, Surroundings, duration, unknown_setting, value};
use crate::invariants::drained_before_released::DrainedBeforeReleased;
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::no_needless_change::NoNeedlessChange;
use crate::invariants::{Invariant, Meaning};
use crate::swarm::{Beyond, Swarm, text};
use crate::trace::Trace;

/// `bully`.
#[derive(Clone, Copy, Debug)]
pub struct Bully;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The time between heartbeats of the leader.
    pub heartbeat_interval: Duration,
    /// The number of heartbeats that may be missed.
    pub miss_count: u32,
    /// The time that a node waits for an answer.
    pub answer_timeout: Duration,
    /// True if a returning node with a higher name leaves the lead to the current leader.
    pub sticky: bool,
}

impl Default for Timers {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(250),
            miss_count: 4,
            answer_timeout: Duration::from_millis(100),
            sticky: true,
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "heartbeat_interval" => self.heartbeat_interval = duration(text)?,
            "miss_count" => self.miss_count = value(text)?,
            "answer_timeout" => self.answer_timeout = duration(text)?,
            "sticky" => self.sticky = value(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.heartbeat_interval.times(u64::from(self.miss_count))
    }
}

impl Algorithm for Bully {
    type Message = Message;
    type Durable = ();
    type Kept = ();
    type Machine = Machine;
    type Settings = Timers;

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> Machine {
        let settings = AdvisorySettings {
            me: process.me,
            nodes: process.voters.clone(),
            heartbeat_interval: settings.heartbeat_interval,
            miss_count: settings.miss_count,
            answer_timeout: settings.answer_timeout,
            sticky: settings.sticky,
        };
        Machine::begin(settings, process.now)
    }

    fn kind(message: &Message) -> &'static str {
        match message.body {
            Body::Election => "Election",
            Body::Alive => "Alive",
            Body::Coordinator { .. } => "Coordinator",
            Body::Heartbeat { .. } => "Heartbeat",
            Body::Late => "Late",
            Body::Resigned { .. } => "Resigned",
        }
    }

    fn is_routine(message: &Message) -> bool {
        match message.body {
            Body::Heartbeat { .. } => true,
            Body::Election | Body::Alive | Body::Coordinator { .. } | Body::Late | Body::Resigned { .. } => {
                false
            }
        }
    }

    fn text(message: &Message) -> String {
        let kind = Self::kind(message);
        match message.body {
            Body::Coordinator { term } | Body::Heartbeat { term } | Body::Resigned { term } => {
                format!("{kind} in term {term}")
            }
            Body::Election | Body::Alive | Body::Late => format!("{kind}, round {}", message.round),
        }
    }

    fn campaigns(machine: &Machine) -> bool {
        matches!(machine.role(), "electing" | "waiting")
    }

    fn meaning(message: &Message, _to: Option<NodeId>) -> Meaning {
        match message.body {
            Body::Resigned { term } => Meaning::Releases { token: FencingToken(term.0) },
            // Two nodes may lead in one term, so leadership messages are not judged.
            Body::Election | Body::Alive | Body::Coordinator { .. } | Body::Heartbeat { .. } | Body::Late => {
                Meaning::Nothing
            }
        }
    }

    const ADVISORY: bool = true;

    fn rightful(nodes: &[(NodeId, &Timers)]) -> Option<NodeId> {
        highest_if(nodes, |timers| !timers.sticky)
    }

    fn met(message: &Message) -> Option<&'static str> {
        match message.body {
            Body::Election => Some("election asked for"),
            Body::Alive => Some("alive above"),
            Body::Coordinator { .. } => Some("coordinator"),
            Body::Late => Some("told that it is late"),
            Body::Resigned { .. } => Some("resigned"),
            Body::Heartbeat { .. } => None,
        }
    }

    fn must_meet() -> &'static [&'static str] {
        &[
            "election asked for",
            "alive above",
            "coordinator",
            "told that it is late",
            "resigned",
            "deposed: resigned",
            "deposed: unhealthy",
            "deposed: higher term",
            "death told",
            "fault: connection closed",
        ]
    }

    /// First the missed heartbeats of the old leader, or its drain if it resigns. Then the node with the highest name
    /// wins at once, or the others wait for it and ask again at most once for each name above them.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let longest =
            |of: fn(&Timers) -> Duration| nodes.iter().map(|node| of(node)).max().unwrap_or_default();
        let Surroundings { lag, delay, reconnect, drain, .. } = *surroundings;
        let attempt = longest(|node| node.answer_timeout).times(3).plus(delay.times(3));
        let begins = longest(Timers::patience).times(2).plus(longest(|node| node.heartbeat_interval));
        lag.plus(reconnect).plus(drain).plus(begins).plus(attempt.times(nodes.len() as u64))
    }

    /// Without I1, I2, I3 and I4: an advisory election has two leaders in a partition, has no tokens, and
    /// holds no votes.
    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        vec![
            Box::new(NoNeedlessChange::default()),
            Box::new(LeaderAfterHealing::default()),
            Box::new(DrainedBeforeReleased),
        ]
    }
}

/// Returns the highest name, if all nodes are of this kind.
pub(super) fn highest_if<T>(nodes: &[(NodeId, &T)], of_kind: impl Fn(&T) -> bool) -> Option<NodeId> {
    let all = nodes.iter().all(|(_, settings)| of_kind(settings));
    nodes.iter().map(|&(name, _)| name).max().filter(|_| all)
}

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Bully> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &["Election", "Alive", "Coordinator", "Heartbeat", "Late", "Resigned", "Died"];
    timers(&mut swarm, nodes, "");
    swarm
}

/// Draws the timers of a bully election that elects or nominates; `prefix` precedes their names.
pub(super) fn timers<A: Algorithm>(swarm: &mut Swarm<A>, nodes: usize, prefix: &str) {
    let conditions = swarm.world().conditions;
    // The election assumes bounded delays: answers must arrive in time, and a closed connection must not cost a live
    // leader its lead.
    let round_trip = swarm.lengthen(conditions.delay.times(2));
    let least = swarm.lengthen(conditions.reconnect.plus(conditions.delay.times(2)));
    let heartbeat = swarm.millis(50, 250).max(least);
    let sticky = !swarm.one_in(3);
    swarm.tell(format!("set {prefix}heartbeat_interval={} {prefix}sticky={sticky}", text(heartbeat)));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let misses = 3 + swarm.rng.up_to(2);
        let answer = round_trip.plus(swarm.millis(5, 100));
        swarm.tell(format!("set {name} {prefix}miss_count={misses} {prefix}answer_timeout={}", text(answer)));
    }
}
