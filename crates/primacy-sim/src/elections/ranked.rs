//! The simulator's adapter for the ranked election.

use primacy_core::election::quorum::{DiskState, HardState};
use primacy_core::election::ranked::{Body, Claim, Config, Message, Ranked as Machine};
use primacy_core::rng::Rng;
use primacy_core::{Duration, FencingToken, Identity, NodeId, Term};

use crate::algorithm::{
    ATTEMPTS, Algorithm, ProcessStart, Recovery, Settings, Surroundings, duration, unknown_setting, value,
};
use crate::invariants::drained_before_released::DrainedBeforeReleased;
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::no_needless_change::NoNeedlessChange;
use crate::invariants::one_leader_per_term::OneLeaderPerTerm;
use crate::invariants::one_vote_per_term::OneVotePerTerm;
use crate::invariants::tokens_grow::TokensGrow;
use crate::invariants::{Invariant, Meaning};
use crate::process_slot::ProcessSlot;
use crate::swarm::{Beyond, Swarm, text};
use crate::trace::Trace;

/// `ranked`.
#[derive(Clone, Copy, Debug)]
pub struct Ranked;

/// Settings of a node: its configuration without the parts that depend on its incarnation.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The time between heartbeats of the leader.
    pub heartbeat_interval: Duration,
    /// The number of heartbeats that may be missed.
    pub miss_count: u32,
    /// The number of heartbeat intervals for which a new node listens.
    pub initial_count: u32,
    /// The time for which claims are gathered.
    pub gathering: Duration,
    /// True if the node only votes.
    pub witness: bool,
}

impl Default for Timers {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(250),
            miss_count: 3,
            initial_count: 5,
            gathering: Duration::from_millis(50),
            witness: false,
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "heartbeat_interval" => self.heartbeat_interval = duration(text)?,
            "miss_count" => self.miss_count = value(text)?,
            "initial_count" => self.initial_count = value(text)?,
            "gathering" => self.gathering = duration(text)?,
            "witness" => self.witness = value(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }

    /// `note`: the examples of the note of 2000.
    fn profile(&mut self, name: &str) -> Result<(), String> {
        if name != "note" {
            return Err(format!("there is no profile {name}; there is note"));
        }
        self.heartbeat_interval = Duration::from_secs(5);
        self.miss_count = 3;
        self.initial_count = 5;
        self.gathering = Duration::from_millis(250);
        Ok(())
    }

    fn priority_and_witness(&self) -> (u32, bool) {
        (0, self.witness)
    }

    fn patience(&self) -> Duration {
        self.heartbeat_interval.times(u64::from(self.miss_count))
    }
}

impl Algorithm for Ranked {
    type Message = Message;
    type Durable = HardState;
    type Kept = HardState;
    type Machine = Machine;
    type Settings = Timers;

    const RECOVERY: Option<Recovery<Self>> = Some(Recovery { term_to_report, has_recovered });

    fn start(settings: &Timers, process: ProcessStart<'_, HardState>) -> Machine {
        let config = Config {
            me: process.me,
            voters: process.voters.clone(),
            heartbeat_interval: settings.heartbeat_interval,
            miss_count: settings.miss_count,
            initial_count: settings.initial_count,
            gathering: settings.gathering,
            witness: settings.witness,
            seed: process.seed,
        };
        Machine::new(config, process.durable.unwrap_or_default(), process.now)
    }

    fn kind(message: &Message) -> &'static str {
        match message.body {
            Body::Elect { .. } => "Elect",
            Body::Hears { .. } => "Hears",
            Body::Vote { .. } => "Vote",
            Body::Lead { .. } => "Lead",
            Body::LeadReply { .. } => "LeadReply",
            Body::Resigned { .. } => "Resigned",
        }
    }

    fn is_routine(message: &Message) -> bool {
        match message.body {
            Body::Lead { number, .. } | Body::LeadReply { number, .. } => number.counter > 1,
            Body::Elect { .. } | Body::Hears { .. } | Body::Vote { .. } | Body::Resigned { .. } => false,
        }
    }

    fn text(message: &Message) -> String {
        let kind = Self::kind(message);
        match &message.body {
            Body::Elect { ballot, claim } => format!("{kind} in ballot {ballot}{}", claim_text(claim)),
            Body::Hears { leader, .. } => format!("{kind} {} in term {}", leader.identity.node, leader.term),
            Body::Vote { ballot, .. } => format!("{kind} in ballot {ballot}"),
            Body::Lead { number, state } if state.is_empty() => format!("{kind} {number}"),
            Body::Lead { number, state } => format!("{kind} {number}: {}", String::from_utf8_lossy(state)),
            Body::LeadReply { number, promised, .. } if *promised == number.term => {
                format!("{kind} {number}")
            }
            Body::LeadReply { number, promised, .. } => format!("{kind} {number}: no, ballot {promised}"),
            Body::Resigned { term, successor: None } => format!("{kind} in term {term}"),
            Body::Resigned { term, successor: Some(to) } => format!("{kind} in term {term}, for {to}"),
        }
    }

    fn meaning(message: &Message, to: Option<NodeId>) -> Meaning {
        match (&message.body, to) {
            (&Body::Vote { to: incarnation, ballot }, Some(node)) => {
                Meaning::Votes { term: ballot, candidate: Identity { node, incarnation } }
            }
            // The leader may have voted for another node, whose claim did not reach that node's voters.
            (Body::Lead { number, .. }, _) => Meaning::Leads { term: number.term, by_own_vote: false },
            (Body::Resigned { term, .. }, _) => Meaning::Releases { token: FencingToken(term.0) },
            (Body::Vote { .. } | Body::Elect { .. } | Body::Hears { .. } | Body::LeadReply { .. }, _) => {
                Meaning::Nothing
            }
        }
    }

    fn campaigns(machine: &Machine) -> bool {
        machine.status().role == "voting"
    }

    fn met(message: &Message) -> Option<&'static str> {
        match &message.body {
            Body::Elect { claim: Claim { campaigns: false, .. }, .. } => {
                Some("claim of one that does not stand")
            }
            Body::Elect { claim: Claim { hears: Some(_), .. }, .. } => Some("claim in a later round"),
            Body::Elect { .. } => Some("claim in a first round"),
            Body::Hears { .. } => Some("elect answered: hears a leader"),
            Body::Vote { .. } => Some("vote given"),
            Body::LeadReply { number, promised, .. } if *promised > number.term => Some("lead refused"),
            Body::Resigned { successor: Some(_), .. } => Some("resigned for a successor"),
            Body::Resigned { successor: None, .. } => Some("resigned"),
            Body::Lead { .. } | Body::LeadReply { .. } => None,
        }
    }

    fn must_meet() -> &'static [&'static str] {
        &[
            "claim of one that does not stand",
            "claim in a first round",
            "claim in a later round",
            "elect answered: hears a leader",
            "vote given",
            "lead refused",
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
            "lost disk: an empty one",
            "lost disk: all others have told their terms",
            "lost disk: the node votes again",
            "packet: not connected",
        ]
    }

    /// First the old leader's heartbeats are missed or it drains, and new nodes have listened. Then at most
    /// [`ATTEMPTS`] rounds are lost by chance: each gathers claims for a heartbeat at most, and waits as long again
    /// and up to one heartbeat more; `Elect`, `Vote` and `Lead` are sent in turn, with two writes.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let longest =
            |of: fn(&Timers) -> Duration| nodes.iter().map(|node| of(node)).max().unwrap_or_default();
        let Surroundings { lag, delay, disk_latency, reconnect, drain } = *surroundings;
        let begins = longest(|node| {
            node.patience().times(2).plus(node.heartbeat_interval.times(u64::from(node.initial_count)))
        });
        let round = longest(|node| {
            node.heartbeat_interval.max(node.gathering).times(2).plus(node.heartbeat_interval)
        });
        let attempt = round.plus(delay.times(3)).plus(disk_latency.times(2));
        lag.plus(reconnect).plus(drain).plus(begins).plus(attempt.times(ATTEMPTS))
    }

    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        vec![
            Box::new(OneLeaderPerTerm::default()),
            Box::new(TokensGrow::at_the_resource()),
            Box::new(OneVotePerTerm::default()),
            Box::new(NoNeedlessChange::default()),
            Box::new(LeaderAfterHealing::default()),
            Box::new(DrainedBeforeReleased),
        ]
    }
}

fn term_to_report(machine: &Machine) -> Option<Term> {
    let status = machine.status();
    status.recovering.is_none().then_some(status.known)
}

fn has_recovered(kept: &HardState) -> bool {
    kept.disk_state == DiskState::Recovered
}

fn claim_text(claim: &Claim) -> String {
    let seen = claim.seen.map_or_else(String::new, |seen| format!(", has seen {seen}"));
    let hears = claim.hears.map_or_else(String::new, |hears| format!(", hears {hears}"));
    let campaigns = if claim.campaigns { "" } else { ", does not campaign" };
    format!("{seen}{hears}{campaigns}")
}

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Ranked> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &["Elect", "Hears", "Vote", "Lead", "LeadReply", "Resigned", "Died"];
    let delay = swarm.world().conditions.delay;
    let disk_latency = swarm.world().node(ProcessSlot(0)).disk.latency;
    // Claims are gathered for a heartbeat at most, so a heartbeat must exceed their round trip; and a voter waits as
    // long for the winner, which writes before it sends `Lead`.
    let least = delay.times(3).plus(disk_latency.times(2));
    let heartbeat = swarm.millis(50, 250).max(swarm.lengthen(least));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let misses = 2 + swarm.rng.up_to(3);
        let initial = swarm.rng.up_to(5);
        // Too short a time does no harm: the machine lengthens it.
        let gathering = swarm.millis(1, 100).min(heartbeat);
        let witness = nodes > 2 && name != "a" && swarm.one_in(10);
        swarm.tell(format!(
            "set {name} heartbeat_interval={} miss_count={misses} initial_count={initial} gathering={} witness={witness}",
            text(heartbeat),
            text(gathering),
        ));
    }
    swarm
}
