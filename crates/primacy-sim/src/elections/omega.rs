//! The simulator's adapter for the election `omega`, and its worlds.

use primacy_core::election::omega::{Body, Message, Omega as Machine};
use primacy_core::election::{Advisory as _, AdvisorySettings};
use primacy_core::rng::Rng;
use primacy_core::{Duration, FencingToken, NodeId};

use super::bully::{Timers, timers};
use crate::algorithm::{Algorithm, ProcessStart, Settings as _, Surroundings};
use crate::invariants::drained_before_released::DrainedBeforeReleased;
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::no_needless_change::NoNeedlessChange;
use crate::invariants::{Invariant, Meaning};
use crate::swarm::{Beyond, Swarm};
use crate::trace::Trace;

/// `omega`.
#[derive(Clone, Copy, Debug)]
pub struct Omega;

impl Algorithm for Omega {
    type Message = Message;
    type Durable = ();
    type Kept = ();
    type Machine = Machine;
    type Settings = Timers;

    const ADVISORY: bool = true;

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
            Body::Heartbeat => "Heartbeat",
            Body::Resigned => "Resigned",
        }
    }

    fn is_routine(message: &Message) -> bool {
        message.body == Body::Heartbeat
    }

    fn text(message: &Message) -> String {
        format!("{} in term {}", Self::kind(message), message.term)
    }

    fn campaigns(machine: &Machine) -> bool {
        machine.role() == "waiting"
    }

    fn meaning(message: &Message, _to: Option<NodeId>) -> Meaning {
        match message.body {
            Body::Resigned => Meaning::Releases { token: FencingToken(message.term.0) },
            // Two nodes may lead in one term, so leadership messages are not judged.
            Body::Heartbeat => Meaning::Nothing,
        }
    }

    fn rightful(nodes: &[(NodeId, &Timers)]) -> Option<NodeId> {
        let takes_over = nodes.iter().all(|(_, timers)| !timers.sticky);
        nodes.iter().map(|&(name, _)| name).min().filter(|_| takes_over)
    }

    fn met(message: &Message) -> Option<&'static str> {
        (message.body == Body::Resigned).then_some("resigned")
    }

    fn must_meet() -> &'static [&'static str] {
        &[
            "resigned",
            "deposed: resigned",
            "deposed: unhealthy",
            "deposed: higher term",
            "death told",
            "fault: connection closed",
        ]
    }

    /// First the missed heartbeats of the old leader, or its drain if it resigns. Then each node waits one turn for each lower
    /// name, at most twice: it may have waited already when a lower name gave up.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let longest =
            |of: fn(&Timers) -> Duration| nodes.iter().map(|node| of(node)).max().unwrap_or_default();
        let Surroundings { lag, delay, reconnect, drain, .. } = *surroundings;
        let turn = longest(|node| node.answer_timeout).plus(delay);
        let begins = longest(Timers::patience).times(2).plus(longest(|node| node.heartbeat_interval));
        lag.plus(reconnect).plus(drain).plus(begins).plus(turn.times(2 * nodes.len() as u64))
    }

    /// Without I1, I2, I3 and I4: an advisory election has two leaders in a partition, has no tokens, and holds no votes.
    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        vec![
            Box::new(NoNeedlessChange::default()),
            Box::new(LeaderAfterHealing::default()),
            Box::new(DrainedBeforeReleased),
        ]
    }
}

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Omega> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &["Heartbeat", "Resigned", "Died"];
    timers(&mut swarm, nodes, "");
    swarm
}
