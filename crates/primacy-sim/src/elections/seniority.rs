//! The simulator's adapter for the election by seniority.

use std::collections::BTreeMap;
use std::sync::Arc;

use primacy_core::detector::Detection;
use primacy_core::election::lease;
use primacy_core::election::seniority::{Body, Config, JoinAnswer, Message, Seniority as Machine};
use primacy_core::membership::{Age, Attributes, Policy, Sight};
use primacy_core::rng::Rng;
use primacy_core::{Duration, NodeId};

use super::lease::Lease;
use crate::algorithm::{
    Algorithm, KnownView, NODES_MAX, ProcessStart, Serves, Settings, StoreUse, Surroundings, duration,
    unknown_setting, value,
};
use crate::display::views::{list, names_text, version_text};
use crate::invariants::drained_before_released::DrainedBeforeReleased;
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::no_needless_change::NoNeedlessChange;
use crate::invariants::views_agree::ViewsAgree;
use crate::invariants::{Invariant, Meaning};
use crate::swarm::{Beyond, Swarm, text};
use crate::trace::Trace;

/// `seniority`.
#[derive(Clone, Copy, Debug)]
pub struct Seniority;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The seeds, which a node asks to join; the first two nodes, if none are named.
    pub seeds: Vec<NodeId>,
    /// The time between heartbeats of a member.
    pub heartbeat_interval: Duration,
    /// The number of neighbours to which a member sends heartbeats; all members, if not given.
    pub neighbours: Option<u32>,
    /// The failure detector.
    pub detection: Detection,
    /// The time for which the same members must be lost before the policy decides.
    pub stable_after: Duration,
    /// The policy that decides which parts go on.
    pub policy: Policy,
    /// The time for which the smaller part lets the larger one be first at the store.
    pub store_wait: Duration,
    /// The minimum number of members to serve requests.
    pub minimum: usize,
    /// The time between requests to join.
    pub join_interval: Duration,
    /// The time to wait for answers.
    pub answer_wait: Duration,
    /// The time between probes for missing nodes.
    pub probe_interval: Duration,
    /// The highest age that may be given.
    pub last_age: Age,
    /// The zone of the node.
    pub zone: String,
}

impl Default for Timers {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            seeds: Vec::new(),
            heartbeat_interval: Duration::from_millis(250),
            neighbours: None,
            detection: Detection::Missed { count: 4 },
            stable_after: Duration::from_secs(2),
            policy: Policy::KeepMajority,
            store_wait: Duration::from_secs(2),
            minimum: 1,
            join_interval: Duration::from_secs(1),
            answer_wait: Duration::from_millis(500),
            probe_interval: Duration::from_secs(1),
            last_age: Age::MAX,
            zone: String::new(),
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "seeds" => {
                let seeds: Result<Vec<NodeId>, _> = text.split(',').map(NodeId::new).collect();
                self.seeds = seeds.map_err(|error| error.to_string())?;
            }
            "heartbeat_interval" => self.heartbeat_interval = duration(text)?,
            "neighbours" => self.neighbours = Some(value(text)?),
            "miss_count" => self.detection = Detection::Missed { count: value(text)? },
            "timeout" => self.detection = Detection::Deadline { timeout: duration(text)? },
            "phi" => {
                self.detection = Detection::PhiAccrual {
                    threshold_tenths: value::<u32>(text)?.saturating_mul(10),
                    acceptable_pause: self.heartbeat_interval,
                    deviation_min: self.heartbeat_interval.divided_by(10),
                };
            }
            "stable_after" => self.stable_after = duration(text)?,
            "policy" => self.policy = policy(text)?,
            "store_wait" => self.store_wait = duration(text)?,
            "minimum" => self.minimum = value(text)?,
            "join_interval" => self.join_interval = duration(text)?,
            "answer_wait" => self.answer_wait = duration(text)?,
            "probe_interval" => self.probe_interval = duration(text)?,
            "last_age" => self.last_age = Age(value(text)?),
            "zone" => text.clone_into(&mut self.zone),
            _ => return unknown_setting(key),
        }
        Ok(())
    }

    /// The article's numbers: heartbeats and checks each second; a suspicion takes effect at the next check.
    fn profile(&mut self, name: &str) -> Result<(), String> {
        if name != "article" {
            return Err(format!("there is no profile {name} here"));
        }
        let second = Duration::from_secs(1);
        self.heartbeat_interval = second;
        self.detection = Detection::Deadline { timeout: second.times(2) };
        self.stable_after = second;
        self.join_interval = second.times(5);
        self.answer_wait = second.times(2);
        self.probe_interval = second;
        Ok(())
    }

    fn patience(&self) -> Duration {
        let patience = self.detection.patience(self.heartbeat_interval);
        patience.plus(self.stable_after.max(patience))
    }
}

fn policy(text: &str) -> Result<Policy, String> {
    match text.split_once(':') {
        Some(("static-quorum", size)) => Ok(Policy::StaticQuorum(value(size)?)),
        None if text == "keep-majority" => Ok(Policy::KeepMajority),
        None if text == "keep-oldest" => Ok(Policy::KeepOldest),
        None if text == "lease" => Ok(Policy::Lease),
        None if text == "available" => Ok(Policy::Available),
        Some(_) | None => Err(format!("{text:?} is no policy")),
    }
}

impl Algorithm for Seniority {
    type Message = Message;
    type Durable = ();
    type Kept = ();
    type Machine = Machine;
    type Settings = Timers;

    const STORE: Option<StoreUse<Self>> = Some(StoreUse { request, reply });
    const VIEW: Option<fn(&Machine) -> KnownView<'_>> = Some(|machine| (machine.joining(), machine.view()));
    const SERVES: Option<Serves<Self>> = Some(|machine| machine.admit().map_err(|error| error.to_string()));

    const FENCED: bool = false;

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> Machine {
        let first_two = || process.voters.iter().copied().take(2).collect();
        let zone = settings.zone.clone();
        let attributes = Attributes::new(String::new(), zone, String::new(), BTreeMap::new());
        let config = Config {
            me: process.me,
            seeds: if settings.seeds.is_empty() { first_two() } else { settings.seeds.clone() },
            attributes: Arc::new(attributes.expect("a zone is short")),
            heartbeat_interval: settings.heartbeat_interval,
            neighbours: settings.neighbours,
            detection: settings.detection,
            stable_after: settings.stable_after,
            policy: settings.policy,
            store_wait: settings.store_wait,
            minimum: settings.minimum,
            join_interval: settings.join_interval,
            answer_wait: settings.answer_wait,
            probe_interval: settings.probe_interval,
            last_age: settings.last_age,
        };
        Machine::new(config, process.now)
    }

    fn kind(message: &Message) -> &'static str {
        match &message.body {
            Body::Join { .. } => "Join",
            Body::JoinReply { .. } => "JoinReply",
            Body::View(_) => "View",
            Body::ViewReply(_) => "ViewReply",
            Body::Heartbeat { .. } => "Heartbeat",
            Body::Ask(_) => "Ask",
            Body::Leave { .. } => "Leave",
            Body::Down { .. } => "Down",
            Body::Probe(_) => "Probe",
            Body::ProbeReply(_) => "ProbeReply",
            Body::MergeAsk(_) => "MergeAsk",
            Body::MergeReply(_) => "MergeReply",
            Body::Merge { .. } => "Merge",
            Body::Store(message) => Lease::kind(message),
        }
    }

    fn is_routine(message: &Message) -> bool {
        match &message.body {
            Body::Heartbeat { .. } | Body::Probe(_) => true,
            Body::Join { .. }
            | Body::JoinReply { .. }
            | Body::View(_)
            | Body::ViewReply(_)
            | Body::Ask(_) => false,
            Body::Leave { .. }
            | Body::Down { .. }
            | Body::ProbeReply(_)
            | Body::MergeAsk(_)
            | Body::MergeReply(_) => false,
            Body::Merge { .. } | Body::Store(_) => false,
        }
    }

    fn text(message: &Message) -> String {
        let kind = Self::kind(message);
        match &message.body {
            Body::Join { joining: 1, .. } => kind.to_owned(),
            Body::Join { joining, .. } => format!("{kind}, for the {joining}. time"),
            Body::JoinReply { answer, .. } => match answer {
                JoinAnswer::NotJoined => format!("{kind}: has not joined either"),
                JoinAnswer::Ask(node) => format!("{kind}: ask {node}"),
                JoinAnswer::Refused(refusal) => format!("{kind}: no, {refusal}"),
            },
            Body::View(view) => format!("{kind} {}: {}", version_text(view.version()), names_text(view)),
            Body::Heartbeat { sight, suspects } if suspects.is_empty() => {
                format!("{kind} in {}", version_text(sight.version))
            }
            Body::Heartbeat { sight, suspects } => {
                format!("{kind} in {}, suspects {}", version_text(sight.version), list(suspects))
            }
            Body::ViewReply(sight) | Body::Ask(sight) => format!("{kind} {}", version_text(sight.version)),
            Body::Probe(sight)
            | Body::ProbeReply(sight)
            | Body::MergeAsk(sight)
            | Body::MergeReply(sight) => {
                format!("{kind} {}", sight_text(sight))
            }
            Body::Leave { .. } => kind.to_owned(),
            Body::Down { identity, .. } => format!("{kind} {}", identity.node),
            Body::Merge { into, .. } => format!("{kind} into {into}"),
            Body::Store(message) => Lease::text(message),
        }
    }

    fn meaning(_message: &Message, _to: Option<NodeId>) -> Meaning {
        Meaning::Nothing // It promises nothing of what invariants of terms ask for: two parts may have one term.
    }

    fn campaigns(machine: &Machine) -> bool {
        machine.status().attempts > 0
    }

    fn met(message: &Message) -> Option<&'static str> {
        match &message.body {
            Body::Join { joining, .. } if *joining > 1 => Some("join once more"),
            Body::Join { .. } => Some("join"),
            Body::JoinReply { answer: JoinAnswer::NotJoined, .. } => {
                Some("join answered: has not joined either")
            }
            Body::JoinReply { answer: JoinAnswer::Ask(_), .. } => Some("join answered: ask another"),
            Body::JoinReply { answer: JoinAnswer::Refused(_), .. } => Some("join refused"),
            Body::Ask(_) => Some("view asked for"),
            Body::Leave { .. } => Some("leave"),
            Body::ProbeReply(_) => Some("probe answered"),
            Body::MergeAsk(_) => Some("merge asked for"),
            Body::MergeReply(_) => Some("merge granted"),
            Body::Merge { .. } => Some("merge"),
            Body::Heartbeat { suspects, .. } if !suspects.is_empty() => Some("suspicion told"),
            Body::Store(lease::Message::CompareAndSet { .. }) => Some("decision written"),
            Body::Heartbeat { .. } => Some("heartbeat"),
            Body::View(_) | Body::ViewReply(_) | Body::Down { .. } | Body::Probe(_) | Body::Store(_) => None,
        }
    }

    fn must_meet() -> &'static [&'static str] {
        &[
            "join",
            "join once more",
            "join answered: has not joined either",
            "join answered: ask another",
            "view asked for",
            "leave",
            "probe answered",
            "merge asked for",
            "merge granted",
            "merge",
            "suspicion told",
            "decision written",
            "deposed: resigned",
            "deposed: transferred",
            "deposed: unhealthy",
            "deposed: expired",
            "deposed: undecided",
            "death told",
            "fault: connection closed",
        ]
    }

    /// First lost members are detected, and parts stop or go on. If no cluster is left, the first seed founds one.
    /// Then nodes ask to join, one view after another. Parts find each other and merge, in as many rounds as there
    /// can be parts.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let longest =
            |of: fn(&Timers) -> Duration| nodes.iter().map(|node| of(node)).max().unwrap_or_default();
        let Surroundings { lag, delay, reconnect, drain, .. } = *surroundings;
        let finds =
            longest(|node| node.patience().plus(node.heartbeat_interval.times(4)).plus(node.store_wait));
        let joins = longest(|node| node.join_interval.plus(node.answer_wait.times(2)));
        let meets = longest(|node| node.probe_interval.plus(node.answer_wait.times(3)));
        let round = finds.plus(joins).plus(meets).plus(drain).plus(delay.times(8));
        lag.plus(reconnect).plus(round.times(nodes.len().max(2) as u64))
    }

    fn invariants(settings: &Timers) -> Vec<Box<dyn Invariant>> {
        let mut invariants: Vec<Box<dyn Invariant>> = vec![
            Box::new(ViewsAgree::default()),
            Box::new(LeaderAfterHealing::default()),
            Box::new(DrainedBeforeReleased),
        ];
        // A lone seed founds a new cluster when it restarts. And if a store chose a part that then failed entirely,
        // the other parts stop at their next loss.
        let is_steady = settings.seeds.len() != 1 && settings.policy != Policy::Lease;
        if !settings.policy.allows_two(NODES_MAX) && is_steady {
            invariants.push(Box::new(NoNeedlessChange::default()));
        }
        invariants
    }
}

fn request(message: &Message) -> Option<&lease::Message> {
    match &message.body {
        Body::Store(request) => Some(request),
        Body::Join { .. }
        | Body::JoinReply { .. }
        | Body::View(_)
        | Body::ViewReply(_)
        | Body::Heartbeat { .. } => None,
        Body::Ask(_) | Body::Leave { .. } | Body::Down { .. } | Body::Probe(_) | Body::ProbeReply(_) => None,
        Body::MergeAsk(_) | Body::MergeReply(_) | Body::Merge { .. } => None,
    }
}

fn reply(message: lease::Message) -> Message {
    let incarnation = primacy_core::Incarnation { count: 0, nonce: 0 }; // The store has no life.
    Message { incarnation, body: Body::Store(message) }
}

fn sight_text(sight: &Sight) -> String {
    format!("{} of {}", version_text(sight.version), sight.members)
}

/// The policies that need no store.
pub(super) const WITHOUT_A_STORE: &[&str] =
    &["keep-majority", "keep-majority", "static-quorum:2", "keep-oldest", "available"];

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Seniority> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &[
        "Join",
        "JoinReply",
        "View",
        "ViewReply",
        "Heartbeat",
        "Leave",
        "Probe",
        "MergeAsk",
        "Merge",
        "Died",
    ];
    let policies =
        &["keep-majority", "keep-majority", "static-quorum:2", "keep-oldest", "lease", "available"];
    let Cluster { heartbeat, policy, seeds } = cluster(&mut swarm, nodes, "", policies);
    // If two parts may go on, a deaf or mute node is one of them; so is a lone seed that has restarted. If a store
    // chose a part that gave up before it heard of that, the other parts stop at their next loss.
    swarm.wounds = matches!(policy, "keep-majority" | "keep-oldest") && seeds != "a";
    swarm.joins = true;
    swarm.spared = seeds.split(',').next(); // Where it restarts and is cut off, it founds a second cluster.
    if policy == "lease" && swarm.one_in(2) {
        swarm.tell("store init".to_owned());
    }
    timers(&mut swarm, nodes, "", heartbeat);
    if nodes > 2 && swarm.one_in(4) {
        let neighbours = 1 + swarm.rng.up_to(1);
        swarm.tell(format!("set neighbours={neighbours}"));
        swarm.wounds = false; // A deaf one takes those few to be silent that it watches.
    }
    swarm
}

/// The settings that are the same for all nodes of a cluster.
pub(super) struct Cluster {
    pub(super) heartbeat: Duration,
    policy: &'static str,
    seeds: &'static str,
}

/// Draws one of these policies, and the seeds, of a cluster that elects or nominates; `prefix` precedes their names.
pub(super) fn cluster<A: Algorithm>(
    swarm: &mut Swarm<A>,
    nodes: usize,
    prefix: &str,
    policies: &[&'static str],
) -> Cluster {
    let delay = swarm.world().conditions.delay;
    let heartbeat = swarm.millis(50, 250).max(delay.times(2));
    let policy = policies[swarm.index(policies.len())];
    let seeds = ["a", "a,b", "b,a", "a,b,c"][swarm.index(if nodes > 2 {
        4
    } else if nodes > 1 {
        3
    } else {
        1
    })];
    swarm.tell(format!("set {prefix}policy={policy} {prefix}seeds={seeds}"));
    Cluster { heartbeat, policy, seeds }
}

/// Draws the timers of each node.
pub(super) fn timers<A: Algorithm>(swarm: &mut Swarm<A>, nodes: usize, prefix: &str, heartbeat: Duration) {
    let delay = swarm.world().conditions.delay;
    // A request to another node must have time for its round trip.
    let answer = delay.times(3).plus(swarm.millis(20, 500));
    let stable = heartbeat.times(2).plus(swarm.millis(0, 1_000));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let misses = 3 + swarm.rng.up_to(3);
        let join = answer.plus(swarm.millis(50, 1_000));
        let probe = answer.plus(swarm.millis(50, 500));
        let detection = if swarm.one_in(4) { "phi=8".to_owned() } else { format!("miss_count={misses}") };
        let settings = [
            format!("heartbeat_interval={}", text(heartbeat)),
            detection,
            format!("stable_after={}", text(stable)),
            format!("answer_wait={}", text(answer)),
            format!("join_interval={}", text(join)),
            format!("probe_interval={}", text(probe)),
        ];
        let settings: String = settings.iter().map(|setting| format!(" {prefix}{setting}")).collect();
        swarm.tell(format!("set {name}{settings}"));
    }
}
