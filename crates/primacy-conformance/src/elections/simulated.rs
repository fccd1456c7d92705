//! The simulated arm: the simulator's world, with the machines of real nodes.
//!
//! Its clock is exact, so that bounds documented in round trips can be checked in round trips.

use std::collections::VecDeque;
use std::time::Duration;

use primacy_core::election::lease::Record;
use primacy_core::{Command, Drift, FencingToken, Input, Mandate, NodeId};
use primacy_sim::algorithm::Algorithm;
use primacy_sim::clock::Moment;
use primacy_sim::disk::MetByCrash;
use primacy_sim::elections::{lease, quorum, session};
use primacy_sim::network::STORE;
use primacy_sim::process_slot::ProcessSlot;
use primacy_sim::trace::Trace;
use primacy_sim::world::faults::Crash;
use primacy_sim::world::{Conditions, World};

use super::harness::{
    Bounds, ElectionHarness, NAMES, NODES, Need, NodeCommand, NodeEvent, NodeEventKind, Pace, Waiting,
};

/// The delay of a packet.
const DELAY: Duration = Duration::from_millis(10);
/// The delay of a request and its answer.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// The duration of a write to a disk.
const DISK: Duration = Duration::from_millis(5);
/// The maximum difference in rate of the clocks: above the default, so that a mistake in its handling is not hidden
/// by the duration of an election.
const DRIFT_PPM: u32 = 100_000;
/// The longest simulated time without an event.
const PATIENCE: Duration = Duration::from_secs(600);

/// An election in the simulator's world.
#[derive(Debug)]
pub struct SimulatedElection<A: Algorithm> {
    name: &'static str,
    seed: u64,
    world: World<A>,
    bounds: fn(Pace) -> Bounds,
    /// The function that applies the election's parameters to a new world.
    set: fn(&mut World<A>, Pace),
    pace: Pace,
    nodes: [Watched; NODES],
    seen: VecDeque<NodeEvent>,
    /// Writes on their way to the resource: the node, and the token.
    writes: VecDeque<(usize, u64)>,
    /// The numbers of writes that the resource had accepted and refused at the last check.
    answers: (u64, u64),
}

/// The state of a node at the last check.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// The leadership that it believes to have, by its number in the world, and its end.
    lead: Option<(u64, Moment)>,
    leader: Option<u64>,
}

/// The quorum election, of three voters.
#[must_use]
pub fn quorum(seed: u64) -> SimulatedElection<quorum::Quorum> {
    let set = |world: &mut World<quorum::Quorum>, pace| {
        for slot in world.slots() {
            let settings = &mut world.node_mut(slot).settings;
            settings.drift_max = Drift::from_ppm(DRIFT_PPM);
            settings.promise_duration = promise(pace).into();
            settings.heartbeat_interval = (promise(pace) / 4).into();
            settings.initial_wait = promise(pace).into();
        }
        let settings = world.node(ProcessSlot(0)).settings.clone();
        world.judge_by(&settings);
    };
    // docs/algorithms/quorum.md, "What it costs"; half a round trip more until the others hear of it.
    let bounds = |pace| Bounds {
        release: ROUND_TRIP / 2 + 2 * ROUND_TRIP + DISK,
        expiry: ROUND_TRIP / 2 + lengthen(promise(pace)) + Duration::from_millis(300) + 3 * ROUND_TRIP + DISK,
    };
    SimulatedElection::new("simulated quorum", seed, bounds, set)
}

/// The lease over a store, of three candidates.
#[must_use]
pub fn lease(seed: u64) -> SimulatedElection<lease::Lease> {
    let set = |world: &mut World<lease::Lease>, pace| {
        for slot in world.slots() {
            let settings = &mut world.node_mut(slot).settings;
            settings.drift_max = Drift::from_ppm(DRIFT_PPM);
            settings.duration = held(pace).into();
            settings.renew_interval = (held(pace) / 3).into();
        }
        world.store.put(Some(Record::released(FencingToken(1), held(pace).into())));
        world.store.tells_changes = true;
    };
    // docs/algorithms/lease.md, "What it costs"; half a round trip more until the store has it, and half for the
    // event.
    let bounds = |pace| Bounds {
        release: ROUND_TRIP + 2 * ROUND_TRIP,
        expiry: ROUND_TRIP + lengthen(held(pace)) + 2 * ROUND_TRIP,
    };
    SimulatedElection::new("simulated lease", seed, bounds, set)
}

/// The queue of a store's sessions, of three candidates.
#[must_use]
pub fn session(seed: u64) -> SimulatedElection<session::Session> {
    let set = |world: &mut World<session::Session>, pace| {
        for slot in world.slots() {
            let settings = &mut world.node_mut(slot).settings;
            settings.drift_max = Drift::from_ppm(DRIFT_PPM);
            settings.timeout = held(pace).into();
            settings.timeout_min = (held(pace) / 2).into();
            settings.keep_alive_interval = (held(pace) / 3).into();
            settings.look_interval = (held(pace) / 3).into();
        }
        world.store.tells_changes = true;
    };
    // docs/algorithms/session.md, "What it costs"; half a round trip more until the store has it, and half for the
    // event. A candidate whose session is due for a keep-alive waits for that first.
    let bounds = |pace| Bounds {
        release: ROUND_TRIP + 2 * ROUND_TRIP,
        expiry: ROUND_TRIP + lengthen(held(pace)) + 2 * ROUND_TRIP,
    };
    SimulatedElection::new("simulated session", seed, bounds, set)
}

const fn promise(pace: Pace) -> Duration {
    match pace {
        Pace::Quick => Duration::from_secs(1),
        Pace::Patient => Duration::from_secs(8),
    }
}

const fn held(pace: Pace) -> Duration {
    match pace {
        Pace::Quick => Duration::from_secs(2),
        Pace::Patient => Duration::from_secs(60),
    }
}

fn lengthen(duration: Duration) -> Duration {
    Drift::from_ppm(DRIFT_PPM).lengthen(duration.into()).into()
}

impl<A: Algorithm> SimulatedElection<A> {
    /// An election whose parameters `set` applies, and whose leader changes must be within `bounds`.
    #[must_use]
    pub fn new(
        name: &'static str,
        seed: u64,
        bounds: fn(Pace) -> Bounds,
        set: fn(&mut World<A>, Pace),
    ) -> Self {
        let (pace, world) = (Pace::Quick, new_world(seed));
        let (nodes, seen, writes) = ([Watched::default(); NODES], VecDeque::new(), VecDeque::new());
        Self { name, seed, world, bounds, set, pace, nodes, seen, writes, answers: (0, 0) }
    }

    /// Replaces the parameters, so that a law can be shown to fail.
    #[must_use]
    pub fn set_otherwise(mut self, set: fn(&mut World<A>, Pace)) -> Self {
        self.set = set;
        self
    }

    fn see(&mut self, node: usize, what: NodeEventKind) {
        self.seen.push_back(NodeEvent { at: self.world.now().as_nanos(), node, what });
    }

    /// Checks for new events.
    fn look(&mut self) {
        for node in 0..NODES {
            let slot = ProcessSlot(node);
            let who = self.world.process(slot).map(|process| process.me);
            let interval = who.and_then(|who| self.world.leaderships.of(who));
            let interval = interval.filter(|interval| interval.in_force(self.world.now()));
            let lead = interval.map(|interval| (interval.ordinal, interval.until()));
            let (term, mandate) =
                interval.map_or((0, Mandate::Advisory), |interval| (interval.term.0, interval.mandate));
            self.look_at_lead(node, lead, term, mandate);
            let leader = who.and_then(|_| self.world.node(slot).leader).map(|leader| leader.term.0);
            if leader != std::mem::replace(&mut self.nodes[node].leader, leader) {
                self.see(node, NodeEventKind::Saw { term: leader });
            }
        }
        self.look_at_resource();
    }

    fn look_at_lead(&mut self, node: usize, lead: Option<(u64, Moment)>, term: u64, mandate: Mandate) {
        let before = std::mem::replace(&mut self.nodes[node].lead, lead);
        let is_same = before.map(|(ordinal, _)| ordinal) == lead.map(|(ordinal, _)| ordinal);
        if before.is_some() && !is_same {
            self.see(node, NodeEventKind::Ended);
            // A deposed node campaigns again only on command.
            self.world.give(ProcessSlot(node), Input::Command(Command::Withdraw));
        }
        let Some((_, until)) = lead else { return };
        let until = until.as_nanos();
        if !is_same {
            let token = match mandate {
                Mandate::Fenced(token) => token.0,
                Mandate::Advisory => 0,
            };
            self.see(node, NodeEventKind::Elected { term, token, until });
        } else if before != lead {
            self.see(node, NodeEventKind::Renewed { until });
        }
    }

    fn look_at_resource(&mut self) {
        let answers = (self.world.resource.accepted, self.world.resource.refused);
        let before = std::mem::replace(&mut self.answers, answers);
        if answers != before
            && let Some((node, token)) = self.writes.pop_front()
        {
            self.see(node, NodeEventKind::Wrote { token, is_accepted: answers.0 > before.0 });
        }
    }

    fn run_command(&mut self, node: usize, command: NodeCommand) {
        let (slot, world) = (ProcessSlot(node), &mut self.world);
        match command {
            NodeCommand::Start => {
                world.node_mut(slot).campaigns = false;
                world.restart(slot, false);
            }
            NodeCommand::Campaign => world.give(slot, Input::Command(Command::Campaign)),
            NodeCommand::Cancel | NodeCommand::Resign => world.give(slot, Input::Command(Command::Withdraw)),
            NodeCommand::Check => {
                let may_act = world.believes(slot);
                self.see(node, NodeEventKind::Checked { may_act });
            }
            NodeCommand::Write => {
                let given = world.node(slot).mandate.map(|(mandate, _)| mandate);
                let Some(Mandate::Fenced(token)) = given else { panic!("it has never led") };
                world.write(slot, primacy_core::Duration::ZERO).expect("it has led");
                self.writes.push_back((node, token.0));
            }
            NodeCommand::Stop => world.crash(slot, Crash::Host, MetByCrash::Lost),
            NodeCommand::Pause => world.pause(slot),
            NodeCommand::Resume => world.resume(slot),
            NodeCommand::Silence => self.cut(slot, true),
            NodeCommand::Heal => {
                self.cut(slot, false);
                self.world.connect_all();
            }
            NodeCommand::SlowestClock => self.slow_down(slot),
        }
    }

    fn cut(&mut self, slot: ProcessSlot, is_cut: bool) {
        let alone = self.world.host(slot);
        let others = self.world.slots().filter(|&other| other != slot).map(|other| self.world.host(other));
        let hosts: Vec<_> = others.chain([STORE]).collect();
        for host in hosts {
            self.world.network.set_cut(alone, host, is_cut);
            self.world.network.set_cut(host, alone, is_cut);
        }
    }

    fn slow_down(&mut self, slowest: ProcessSlot) {
        let bound = i64::from(DRIFT_PPM);
        let slow = -bound / 2;
        // Exactly as much faster as the bound allows.
        let fast = (1_000_000 + bound) * (1_000_000 + slow) / 1_000_000 - 1_000_000;
        for slot in self.world.slots() {
            let ppm = if slot == slowest { slow } else { fast };
            self.world.set_rate(slot, i32::try_from(ppm).expect("a share of a million"));
        }
    }
}

fn new_world<A: Algorithm>(seed: u64) -> World<A> {
    let names = NAMES.map(|name| NodeId::new(name).expect("a name"));
    let conditions = Conditions {
        delay: DELAY.into(),
        disk_latency: DISK.into(),
        drain: primacy_core::Duration::ZERO,
        ..Conditions::default()
    };
    World::new(&names, conditions, Trace::keeping(&[]), seed)
}

impl<A: Algorithm> ElectionHarness for SimulatedElection<A> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Pause | Need::Silence | Need::Drift => None,
        }
    }

    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()> {
        // Each election gets another world.
        let number =
            election.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        *self = Self { pace, ..Self::new(self.name, self.seed, self.bounds, self.set) };
        self.world = new_world(number);
        (self.set)(&mut self.world, pace);
        Box::pin(async {})
    }

    fn command(&mut self, node: usize, command: NodeCommand) -> Waiting<'_, ()> {
        self.run_command(node, command);
        self.look();
        Box::pin(async {})
    }

    fn next(&mut self) -> Waiting<'_, Option<NodeEvent>> {
        let end = self.world.now().after(PATIENCE.into());
        while self.seen.is_empty() && self.world.now() < end && self.world.step() {
            self.look();
        }
        let seen = self.seen.pop_front();
        Box::pin(async move { seen })
    }

    fn now(&self) -> u64 {
        self.world.now().as_nanos()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn bounds(&self) -> Bounds {
        (self.bounds)(self.pace)
    }

    fn breaches(&self) -> Vec<String> {
        self.world.breaches().iter().map(|breach| format!("{breach:?}")).collect()
    }
}
