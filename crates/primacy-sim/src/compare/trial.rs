//! A trial of a scenario: a world, the nodes cut off in it, and the measurements.

use std::collections::BTreeSet;

use primacy_core::election::lease::Record;
use primacy_core::rng::Rng;
use primacy_core::{Duration, FencingToken, NodeId};

use super::watch::Watch;
use super::{Outcome, Scenario, Setup, names};
use crate::algorithm::{Algorithm, Settings as _};
use crate::clock::Moment;
use crate::counters::Sent;
use crate::network::{Host, STORE};
use crate::process_slot::ProcessSlot;
use crate::trace::Trace;
use crate::world::{Conditions, World};

/// The nodes start within this time.
const START: Duration = Duration::from_secs(1);

/// The time for which the nodes run undisturbed once they agree, and the maximum random time added to it, so that the
/// scenario strikes at any moment between two renewals, heartbeats or probes.
const ALONE: Duration = Duration::from_secs(10);

/// The interval of checking whether they agree.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A run.
pub(super) struct Trial<A: Algorithm> {
    pub(super) world: World<A>,
    pub(super) rng: Rng,
    /// The nodes that are cut off from most of the others.
    aside: BTreeSet<NodeId>,
    /// The number of leaders that the scenario has struck.
    struck: u64,
    watch: Watch,
    /// The beginning of the measurement, and the messages counted until then.
    began: (Moment, Sent),
}

/// Runs a scenario; see [`super::run`].
pub(super) fn run<A: Algorithm>(
    scenario: Scenario,
    setup: &Setup,
    settings: &[(String, String)],
    seed: u64,
) -> Option<Outcome> {
    let mut trial = Trial::<A>::new(setup, settings, seed);
    let leader = trial.settle()?;
    trial.began = (trial.world.now(), trial.world.sent);
    trial.watch = Watch::begin(&trial.world);
    trial.play(scenario, leader);
    Some(trial.outcome())
}

impl<A: Algorithm> Trial<A> {
    fn new(setup: &Setup, settings: &[(String, String)], seed: u64) -> Self {
        let conditions = Conditions { delay: setup.delay, ..Conditions::default() };
        let mut world = World::new(&names(setup.nodes), conditions, Trace::keeping(&[]), seed);
        world.network.chance.lost = setup.lost_ppm;
        let mut set = A::Settings::default();
        for (key, value) in settings {
            set.set(key, value).expect("what is set here can be set");
        }
        for slot in world.slots() {
            world.node_mut(slot).settings = set.clone();
        }
        world.judge_by(&set);
        world.store.tells_changes = true;
        if !set.lease_duration().is_zero() {
            world.store.put(Some(Record::released(FencingToken(0), set.lease_duration())));
        }
        let rng = Rng::new(seed);
        let (aside, watch) = (BTreeSet::new(), Watch::default());
        Self { world, rng, aside, struck: 0, watch, began: (Moment::default(), Sent::default()) }
    }

    /// Starts all nodes, and waits for a leader. Nothing of this is measured.
    fn settle(&mut self) -> Option<ProcessSlot> {
        let mut starts: Vec<(Duration, ProcessSlot)> = Vec::new();
        for slot in self.world.slots() {
            starts.push((self.rng.duration_up_to(START), slot));
        }
        starts.sort_unstable();
        for (after, slot) in starts {
            self.world.run_until(Moment::default().after(after));
            self.world.start(slot);
        }
        self.wait_until(|world| world.agreed(None))?;
        let alone = ALONE.plus(self.rng.duration_up_to(ALONE));
        self.world.run_until(self.world.now().after(alone));
        // The leader may just have lost its lead by chance.
        self.wait_until(|world| world.leaders().count() == 1)?;
        self.world.leaders().next()
    }

    fn wait_until(&mut self, come: impl Fn(&World<A>) -> bool) -> Option<()> {
        let end = self.world.now().after(self.world.settles_within());
        while !come(&self.world) {
            if self.world.now() >= end {
                return None;
            }
            self.world.run_until(self.world.now().after(LOOK_INTERVAL));
        }
        Some(())
    }

    /// Lets time pass, and measures.
    pub(super) fn advance(&mut self, duration: Duration) {
        let until = self.world.now().after(duration);
        while let Some(next) = self.world.next_at().filter(|&at| at <= until) {
            self.watch.add(&self.world, next, &self.aside);
            self.world.step();
        }
        self.watch.add(&self.world, until, &self.aside);
        self.world.run_until(until);
    }

    /// Records that these nodes are about to be struck. If one of them leads, one change of leader is not needless.
    pub(super) fn strike(&mut self, slots: &[ProcessSlot]) {
        let leaders = slots.iter().filter(|&&slot| self.world.believes(slot)).count();
        self.struck += leaders as u64;
    }

    /// Cuts these nodes off from all others, and from the store.
    pub(super) fn cut_off(&mut self, slots: &[ProcessSlot]) {
        self.strike(slots);
        let inside = |host: Host| slots.iter().any(|&slot| self.world.host(slot) == host);
        let hosts: Vec<Host> = self.world.slots().map(|slot| self.world.host(slot)).chain([STORE]).collect();
        let (off, on): (Vec<Host>, Vec<Host>) = hosts.into_iter().partition(|&host| inside(host));
        for &a in &off {
            for &b in &on {
                self.world.network.set_cut(a, b, true);
                self.world.network.set_cut(b, a, true);
            }
        }
        self.aside = slots.iter().map(|&slot| self.world.node(slot).name).collect();
    }

    /// Mends all links.
    pub(super) fn heal(&mut self) {
        self.aside.clear();
        self.world.network.heal();
        self.world.connect_all();
    }

    fn outcome(self) -> Outcome {
        let Self { world, struck, watch, began: (began, sent), .. } = self;
        let told = |breach: &crate::invariants::Breach| format!("{}: {}", breach.invariant, breach.what);
        Outcome {
            leaderless: watch.leaderless,
            leaders_max: watch.leaders_max,
            overlap: watch.overlap,
            changes: watch.changes,
            needless: watch.changes.saturating_sub(struck),
            messages: world.sent.all - sent.all,
            beyond_routine: world.sent.beyond_routine - sent.beyond_routine,
            measured: world.now().since(began),
            breaches: world.breaches().iter().map(told).collect(),
        }
    }
}
