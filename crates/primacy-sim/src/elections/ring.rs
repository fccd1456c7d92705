//! The simulator's adapter for the elections on a ring.

use core::marker::PhantomData;
use std::sync::Arc;

use primacy_core::election::Advisory as _;
use primacy_core::election::on_a_ring::{Body, Config, Message, OnARing, Probing};
use primacy_core::election::ring::{ChangRoberts, Probe as Onward};
use primacy_core::election::ring_bidirectional::{HirschbergSinclair, Probe as BothWays};
use primacy_core::neighbours::Direction;
use primacy_core::rng::Rng;
use primacy_core::{Duration, FencingToken, NodeId};

use super::bully::highest_if;
use crate::algorithm::{Algorithm, ProcessStart, Settings, Surroundings, duration, unknown_setting, value};
use crate::invariants::drained_before_released::DrainedBeforeReleased;
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::no_needless_change::NoNeedlessChange;
use crate::invariants::{Invariant, Meaning};
use crate::swarm::{Beyond, Swarm, text};
use crate::trace::Trace;

/// `ring`.
pub type Ring = OfProbing<ChangRoberts>;

/// `ring_bidirectional`.
pub type RingBidirectional = OfProbing<HirschbergSinclair>;

/// An election on a ring that finds its leader by probes of kind `P`.
#[derive(Clone, Copy, Debug)]
pub struct OfProbing<P>(PhantomData<P>);

/// The names and texts of one kind of probe.
pub trait ProbeText: Probing + core::fmt::Debug + 'static {
    /// The kind of a probe.
    fn kind(probe: &Self::Probe) -> &'static str;

    /// Returns the probe as text.
    fn text(probe: &Self::Probe) -> String;
}

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The order of the ring; the order of names, if none is given.
    pub order: Vec<NodeId>,
    /// The time between heartbeats of the leader.
    pub heartbeat_interval: Duration,
    /// The number of heartbeats that may be missed.
    pub miss_count: u32,
    /// The time that the next node has to confirm a hop.
    pub hop_timeout: Duration,
    /// True if a returning node with a higher name leaves the lead to the current leader.
    pub sticky: bool,
}

impl Default for Timers {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            order: Vec::new(),
            heartbeat_interval: Duration::from_millis(250),
            miss_count: 4,
            hop_timeout: Duration::from_millis(50),
            sticky: true,
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "order" => self.order = order(text)?,
            "heartbeat_interval" => self.heartbeat_interval = duration(text)?,
            "miss_count" => self.miss_count = value(text)?,
            "hop_timeout" => self.hop_timeout = duration(text)?,
            "sticky" => self.sticky = value(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.heartbeat_interval.times(u64::from(self.miss_count))
    }
}

fn order(text: &str) -> Result<Vec<NodeId>, String> {
    let order: Vec<NodeId> = text.split(',').map(value).collect::<Result<_, _>>()?;
    let twice = order.iter().enumerate().find(|(place, node)| order[..*place].contains(node));
    twice.map_or_else(|| Ok(order.clone()), |(_, node)| Err(format!("{node} is on the ring twice")))
}

impl<P: ProbeText> Algorithm for OfProbing<P> {
    type Message = Message<P::Probe>;
    type Durable = ();
    type Kept = ();
    type Machine = OnARing<P>;
    type Settings = Timers;

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> OnARing<P> {
        let by_name: Arc<[NodeId]> = process.voters.iter().copied().collect();
        let ring = if settings.order.is_empty() { by_name } else { settings.order.clone().into() };
        let config = Config {
            me: process.me,
            ring,
            heartbeat_interval: settings.heartbeat_interval,
            miss_count: settings.miss_count,
            hop_timeout: settings.hop_timeout,
            sticky: settings.sticky,
        };
        OnARing::new(config, process.now)
    }

    fn kind(message: &Self::Message) -> &'static str {
        match &message.body {
            Body::Probe { probe, .. } => P::kind(probe),
            Body::Elected { .. } => "Elected",
            Body::Resigned { .. } => "Resigned",
            Body::Knock => "Knock",
            Body::Received => "Received",
            Body::Late => "Late",
        }
    }

    fn is_routine(message: &Self::Message) -> bool {
        match &message.body {
            Body::Elected { beat, .. } => *beat > 1,
            Body::Received | Body::Knock => true,
            Body::Probe { .. } | Body::Resigned { .. } | Body::Late => false,
        }
    }

    fn text(message: &Self::Message) -> String {
        let kind = Self::kind(message);
        match &message.body {
            Body::Probe { probe, direction } => {
                let way = if *direction == Direction::Onward { "onward" } else { "back" };
                format!("{} {way}, round {}", P::text(probe), message.round)
            }
            Body::Elected { leader, .. } | Body::Resigned { leader, .. } => {
                format!("{kind}: {} in term {}", leader.identity.node, leader.term)
            }
            Body::Late => format!("{kind}, round {}", message.round),
            Body::Knock | Body::Received => kind.to_owned(),
        }
    }

    fn campaigns(machine: &OnARing<P>) -> bool {
        machine.role() == "electing"
    }

    fn meaning(message: &Self::Message, _to: Option<NodeId>) -> Meaning {
        match &message.body {
            // Only a message with no hop left counts; other nodes pass it on.
            Body::Resigned { leader, hops: 0 } => Meaning::Releases { token: FencingToken(leader.term.0) },
            // Two nodes may lead in one term, so leadership messages are not judged.
            Body::Probe { .. }
            | Body::Elected { .. }
            | Body::Resigned { .. }
            | Body::Knock
            | Body::Received
            | Body::Late => Meaning::Nothing,
        }
    }

    const ADVISORY: bool = true;

    fn rightful(nodes: &[(NodeId, &Timers)]) -> Option<NodeId> {
        highest_if(nodes, |timers| !timers.sticky)
    }

    fn met(message: &Self::Message) -> Option<&'static str> {
        match &message.body {
            Body::Probe { .. } => Some("probe"),
            Body::Elected { beat: 1, .. } => Some("leader announced"),
            Body::Resigned { .. } => Some("resigned"),
            Body::Late => Some("told that it is late"),
            Body::Knock => Some("knocked at one that was skipped"),
            Body::Elected { .. } | Body::Received => None,
        }
    }

    fn must_meet() -> &'static [&'static str] {
        &[
            "probe",
            "leader announced",
            "told that it is late",
            "knocked at one that was skipped",
            "resigned",
            "deposed: resigned",
            "deposed: unhealthy",
            "deposed: higher term",
            "death told",
            "fault: connection closed",
        ]
    }

    /// First the missed heartbeats of the old leader, or its drain if it resigns. A skipped node is contacted again
    /// and answers. Then each node may begin one round in vain.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let longest =
            |of: fn(&Timers) -> Duration| nodes.iter().map(|node| of(node)).max().unwrap_or_default();
        let Surroundings { lag, delay, reconnect, drain, .. } = *surroundings;
        let count = nodes.len() as u64;
        let turn = longest(|node| node.hop_timeout).plus(delay).times(count);
        let begins =
            longest(Timers::patience).times(3).plus(longest(|node| node.heartbeat_interval).times(2));
        lag.plus(reconnect).plus(drain).plus(begins).plus(turn.times(P::TURNS * count))
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

impl ProbeText for ChangRoberts {
    fn kind(_probe: &Onward) -> &'static str {
        "Probe"
    }

    fn text(probe: &Onward) -> String {
        format!("Probe {}", probe.candidate.node)
    }
}

impl ProbeText for HirschbergSinclair {
    fn kind(probe: &BothWays) -> &'static str {
        match probe {
            BothWays::Out { .. } => "Probe",
            BothWays::Back { .. } => "ProbeReply",
        }
    }

    fn text(probe: &BothWays) -> String {
        let kind = Self::kind(probe);
        match probe {
            BothWays::Out { candidate, phase, .. } | BothWays::Back { candidate, phase, .. } => {
                format!("{kind} {}, phase {phase}", candidate.node)
            }
        }
    }
}

/// Draws the nodes, their order and their timers.
pub(super) fn draw<A>(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<A>
where
    A: Algorithm<Settings = Timers>,
{
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &["Probe", "ProbeReply", "Elected", "Knock", "Received", "Late", "Resigned", "Died"];
    let conditions = swarm.world().conditions;
    // The election assumes bounded delays: hops must be confirmed in time, and neither a closed connection nor one
    // skipped node must cost a live leader its lead.
    let round_trip = swarm.lengthen(conditions.delay.times(2));
    let hop = round_trip.plus(swarm.millis(5, 50));
    let once_around = conditions.delay.times(nodes as u64).plus(hop.times(2));
    let least = swarm.lengthen(conditions.reconnect.plus(once_around));
    let heartbeat = swarm.millis(50, 250).max(least);
    let sticky = !swarm.one_in(3);
    let mut order = ["a", "b", "c", "d", "e"][..nodes].to_vec();
    for place in (1..nodes).rev() {
        let other = swarm.index(place + 1);
        order.swap(place, other);
    }
    swarm.tell(format!(
        "set order={} heartbeat_interval={} sticky={sticky} hop_timeout={}",
        order.join(","),
        text(heartbeat),
        text(hop),
    ));
    for name in order {
        let misses = 3 + swarm.rng.up_to(2);
        swarm.tell(format!("set {name} miss_count={misses}"));
    }
    swarm
}
