//! Worlds that are drawn from a number: who takes part, with which timers, and what befalls them.
//!
//! Each seed draws its own mix of faults, and leaves some kinds out altogether: a world with every fault at once
//! hides what one of them does alone. A run has two phases: faults, in which only safety is asked for; then
//! everything is healed, and there must be one leader, known to all, within a stated time.

use core::fmt;

use primacy_core::election::lease::{Record, ResignRequest};
use primacy_core::election::quorum::Safety;
use primacy_core::rng::Rng;
use primacy_core::{Command, Drift, Duration, FencingToken, Input, NodeId};

use crate::algorithm::{Algorithm, lease, quorum};
use crate::beliefs::Stage;
use crate::clock::Moment;
use crate::disk::MetByCrash;
use crate::faults::Crash;
use crate::invariants::Breach;
use crate::network::{Chance, STORE};
use crate::node::Seat;
use crate::store::{Mishap, Mood};
use crate::trace::{Level, Trace};
use crate::world::{Conditions, Readmissions, World};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The invariants that were broken.
    pub breaches: Vec<Breach>,
    /// How often a machine itself saw what must never be, and nothing had been done to make it so.
    pub alarms: u64,
    /// How many leaderships there were.
    pub elections: u64,
    /// How many inputs were handled.
    pub handled: u64,
    /// What was done about lost disks.
    pub readmissions: Readmissions,
    /// How long after the healing all knew one leader; `None` if that did not come in time.
    pub settled_after: Option<Duration>,
    /// A number that any difference between two runs would change, if the trace made one.
    pub digest: Option<u64>,
}

impl Verdict {
    /// Whether all that is promised was kept.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.breaches.is_empty() && self.alarms == 0 && self.settled_after.is_some()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What follows the first is seldom a second mistake.
        for Breach { at, invariant, what } in self.breaches.iter().take(1) {
            writeln!(f, "{at} {invariant}: {what}")?;
        }
        match self.settled_after {
            Some(after) => write!(f, "{} elections, settled {after} after healing", self.elections),
            None => write!(f, "{} elections, and not settled after healing", self.elections),
        }?;
        if self.alarms > 0 {
            write!(f, ", {} alarms", self.alarms)?;
        }
        Ok(())
    }
}

/// The kinds of faults of which each world draws a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Crash,
    /// A process is killed and started again at once: what it had in memory is gone, and nobody waited.
    Restart,
    CrashAtWrite,
    Pause,
    Clock,
    Cut,
    /// Whoever leads is cut off, and some of the others may restart in that moment.
    Isolate,
    Close,
    Command,
    Guardian,
    Store,
    /// Somebody deletes the record, or leaves a request in it.
    Record,
    Write,
}

const KINDS: [Kind; 13] = [
    Kind::Crash,
    Kind::Restart,
    Kind::CrashAtWrite,
    Kind::Pause,
    Kind::Clock,
    Kind::Cut,
    Kind::Isolate,
    Kind::Close,
    Kind::Command,
    Kind::Guardian,
    Kind::Store,
    Kind::Record,
    Kind::Write,
];

/// A world with what is drawn for it.
#[derive(Debug)]
struct Swarm<A: Algorithm> {
    world: World<A>,
    rng: Rng,
    /// In some worlds one node loses its disk, perhaps several times, and is readmitted, and disks that it had come back.
    /// Drawn apart, so that worlds in which that does not happen are those that they were.
    wipes: Option<Rng>,
    /// The one that has lost its disk.
    wiped: Option<Seat>,
    kinds: Vec<Kind>,
    /// The record may be deleted: only where all leases are equally long, for who makes a new one may know of no
    /// other length.
    deletes: bool,
    /// Something was done that machines should raise an alarm about.
    alarming: bool,
    /// How much faster than the slowest clock the fastest one may run, in parts per million.
    drift: u32,
    /// The time in which this election would replace a silent leader: the measure of everything else.
    patience: Duration,
}

/// Runs the quorum election with the faults of this seed.
#[must_use]
pub fn quorum(seed: u64, trace: Trace) -> (Verdict, Trace) {
    let mut rng = Rng::new(seed);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][index(&mut rng, 8)];
    let mut world = World::<quorum::Quorum>::new(&names(nodes), conditions(&mut rng), trace, seed);
    let heartbeat = millis(&mut rng, 50, 250).max(world.conditions.delay.times(3));
    let drift = draw_drift(&mut rng);
    let mut patience = Duration::ZERO;
    let fenced = one_in(&mut rng, 5);
    let (one_for_all, hasty) = (one_in(&mut rng, 2), one_in(&mut rng, 2));
    // A promise must outlast a heartbeat and its answer by any clock.
    let least = world.conditions.delay.times(4);
    let draw_promise =
        |rng: &mut Rng| Drift::from_ppm(drift).lengthen(heartbeat.times(2 + rng.up_to(4)).plus(least));
    let mut promise = draw_promise(&mut rng);
    // A round must leave time for the way there and back. How long the others' disks take, no node can know; its
    // patience grows to four times as long while it loses elections.
    let round_trip = world.conditions.delay.times(2).plus(world.conditions.disk_latency.divided_by(3));
    let round_trip = Drift::from_ppm(drift).lengthen(round_trip);
    for seat in world.seats() {
        let settings = &mut world.node_mut(seat).settings;
        if !one_for_all {
            promise = draw_promise(&mut rng);
        }
        settings.heartbeat_interval = heartbeat;
        settings.miss_count = u32::try_from(2 + rng.up_to(3)).unwrap_or(2);
        settings.promise_duration = promise;
        // Short waits are the dangerous ones: they leave nothing but the promises to keep leaders apart.
        settings.initial_wait = if hasty { Duration::ZERO } else { rng.duration_up_to(promise) };
        // But they must be longer than a packet's way, or two candidates split their votes for ever.
        let wait = if hasty { millis(&mut rng, 5, 50) } else { millis(&mut rng, 50, 300) };
        settings.random_wait_max = wait.plus(least);
        settings.round_timeout = round_trip.plus(millis(&mut rng, 10, 500));
        settings.drift_max = Drift::from_ppm(drift);
        settings.priority = u32::try_from(rng.up_to(3)).unwrap_or(0) / 2;
        settings.witness = nodes > 2 && seat.0 > 0 && one_in(&mut rng, 10);
        if fenced {
            settings.safety = Safety::Fenced;
        }
        patience = patience.max(promise);
    }
    let settings = world.node(Seat(0)).settings.clone();
    world.judge_by(&settings);
    Swarm::new(world, rng, patience, drift).run()
}

/// Runs the lease over a store with the faults of this seed.
#[must_use]
pub fn lease(seed: u64, trace: Trace) -> (Verdict, Trace) {
    let mut rng = Rng::new(seed);
    let nodes = 2 + index(&mut rng, 3);
    let mut world = World::<lease::Lease>::new(&names(nodes), conditions(&mut rng), trace, seed);
    let drift = draw_drift(&mut rng);
    let round_trip = Drift::from_ppm(drift).lengthen(world.conditions.delay.times(2));
    let (duration, one_for_all) = (millis(&mut rng, 500, 2_000), one_in(&mut rng, 2));
    for seat in world.seats() {
        let settings = &mut world.node_mut(seat).settings;
        settings.duration = if one_for_all { duration } else { millis(&mut rng, 500, 2_000) };
        settings.renew_interval = settings.duration.divided_by(3);
        settings.drift_max = Drift::from_ppm(drift);
        settings.request_timeout = round_trip.plus(millis(&mut rng, 20, 200));
        settings.poll_interval = millis(&mut rng, 20, 150);
    }
    if !one_in(&mut rng, 3) {
        world.store.put(Some(Record::released(FencingToken(0), duration)));
    }
    world.store.tells_changes = one_in(&mut rng, 2);
    let mut swarm = Swarm::new(world, rng, Duration::from_secs(2), drift);
    swarm.deletes = one_for_all;
    swarm.run()
}

fn names(count: usize) -> Vec<NodeId> {
    ["a", "b", "c", "d", "e", "f", "g"].iter().take(count).filter_map(|name| NodeId::new(name).ok()).collect()
}

fn conditions(rng: &mut Rng) -> Conditions {
    Conditions {
        delay: if one_in(rng, 3) { millis(rng, 1, 60) } else { millis(rng, 0, 5) },
        disk_latency: if one_in(rng, 3) { millis(rng, 0, 60) } else { millis(rng, 0, 3) },
        drain: millis(rng, 0, 400),
        kill: millis(rng, 0, 20),
        reconnect: millis(rng, 1, 300),
        deadline_first: one_in(rng, 2),
    }
}

/// The bound of the defaults, and wider ones, under which a mistake of a per cent is not hidden by the time that an
/// election takes.
fn draw_drift(rng: &mut Rng) -> u32 {
    [10_000, 100_000, 300_000][index(rng, 3)]
}

fn index(rng: &mut Rng, count: usize) -> usize {
    let drawn = rng.up_to(count.saturating_sub(1) as u64);
    usize::try_from(drawn).unwrap_or(0)
}

fn one_in(rng: &mut Rng, count: u64) -> bool {
    rng.up_to(count - 1) == 0
}

fn millis(rng: &mut Rng, least: u64, most: u64) -> Duration {
    Duration::from_millis(least).plus(rng.duration_up_to(Duration::from_millis(most - least)))
}

impl<A: Algorithm> Swarm<A> {
    fn new(mut world: World<A>, mut rng: Rng, patience: Duration, drift: u32) -> Self {
        let kinds = KINDS.into_iter().filter(|_| !one_in(&mut rng, 3)).collect();
        let chance = |rng: &mut Rng| {
            let most = [0, 0, 100_000, 300_000][index(rng, 4)];
            u32::try_from(rng.up_to(most)).unwrap_or(0)
        };
        world.network.chance = Chance {
            lost: chance(&mut rng),
            doubled: chance(&mut rng),
            delayed: chance(&mut rng),
            delay_max: rng.duration_up_to(patience.times(2)),
        };
        let mut apart = Rng::new(rng.clone().next_u64());
        let wipes = one_in(&mut apart, 4).then_some(apart);
        Self { world, rng, wipes, wiped: None, kinds, deletes: false, alarming: false, drift, patience }
    }

    fn run(mut self) -> (Verdict, Trace) {
        for seat in self.world.seats() {
            let offset = self.rng.duration_up_to(Duration::from_secs(1_000));
            self.world.jump(seat, offset);
            self.draw_clock(seat);
            self.world.start(seat);
        }
        let end = self.world.now().after(self.patience.times(40));
        while self.world.now() < end && self.world.breaches().is_empty() {
            let pause = self.rng.duration_up_to(self.patience.divided_by(2));
            self.world.run_until(self.world.now().after(pause));
            if let Some(&kind) = self.kinds.get(index(&mut self.rng, self.kinds.len())) {
                self.befall(kind);
            }
            self.wipe_or_readmit();
        }
        self.heal();
        let settled_after = self.settle();
        let trace = core::mem::replace(&mut self.world.trace, Trace::keeping(&[]));
        let verdict = Verdict {
            breaches: self.world.breaches().to_vec(),
            alarms: if self.alarming { 0 } else { self.world.alarms() },
            elections: self.world.beliefs.count,
            handled: self.world.handled(),
            readmissions: self.world.readmissions,
            settled_after,
            digest: trace.digest(),
        };
        (verdict, trace)
    }

    fn seat(&mut self) -> Seat {
        let count = self.world.seats().count();
        Seat(index(&mut self.rng, count))
    }

    /// A node, and more often than not one that leads.
    fn victim(&mut self) -> Seat {
        let leader = self.world.leaders().next();
        match leader {
            Some(leader) if !one_in(&mut self.rng, 3) => leader,
            Some(_) | None => self.seat(),
        }
    }

    fn befall(&mut self, kind: Kind) {
        let seat = self.victim();
        match kind {
            Kind::Crash => {
                if self.world.process(seat).is_none() {
                    return self.world.restart(seat, false);
                }
                let what = [Crash::Process, Crash::ProcessAndGuardian, Crash::Host][index(&mut self.rng, 3)];
                let met = self.met();
                self.world.crash(seat, what, met);
            }
            Kind::Restart => self.kill_and_start(seat),
            Kind::CrashAtWrite => {
                let met = self.met();
                self.world.node_mut(seat).crash_at_write = Some(met);
                self.restart_somebody();
            }
            Kind::Pause => match self.world.process(seat) {
                Some(process) if process.paused => self.world.resume(seat),
                Some(_) => self.world.pause(seat),
                None => self.world.restart(seat, false),
            },
            Kind::Clock => self.draw_clock(seat),
            Kind::Cut => self.cut(),
            Kind::Isolate => self.isolate(seat),
            Kind::Close => {
                let other = self.seat();
                self.world.close(seat, other);
            }
            Kind::Command => self.command(seat),
            Kind::Guardian => self.world.crash_guardian(seat),
            Kind::Store => self.store(),
            Kind::Record => self.record(),
            Kind::Write => {
                let after = self.rng.duration_up_to(self.patience.times(2));
                let _ = self.world.write(seat, after); // A node that never led has nothing to write.
            }
        }
    }

    /// One node loses its disk at some time, and its operator says so to the others, to one after the other. It may happen
    /// to the same node again, before or after it has recovered; and a disk that it had may be put back.
    fn wipe_or_readmit(&mut self) {
        let count = self.world.seats().count();
        let Some(rng) = &mut self.wipes else { return };
        // Of a voter that is alone nobody would notice.
        if count == 1 || !one_in(rng, 6) {
            return;
        }
        let (seat, host) = (Seat(index(rng, count)), one_in(rng, 2));
        let (again, back) = (one_in(rng, 8), one_in(rng, 6));
        let what = if host { Crash::Host } else { Crash::ProcessAndGuardian };
        match self.wiped {
            Some(wiped) if again => self.wipe(wiped, what),
            Some(wiped) if back => {
                let shelf = &self.world.node(wiped).shelf;
                let number = shelf.get(index(rng, shelf.len())).map_or(1, |disk| disk.number);
                self.world.crash(wiped, what, MetByCrash::Lost);
                self.world.restart_with(wiped, number);
            }
            // It must have presented its disk, and have been refused for it.
            Some(wiped) if self.world.process(wiped).is_some() => {
                self.world.readmit(wiped, seat);
            }
            Some(_) => {}
            // Whoever has never seen the disk that it has now would take the next one at its word.
            None if self.world.is_known_to_all(seat) => {
                self.wiped = Some(seat);
                self.wipe(seat, what);
            }
            None => {}
        }
    }

    fn wipe(&mut self, seat: Seat, what: Crash) {
        self.world.crash(seat, what, MetByCrash::Lost);
        self.world.restart(seat, true);
    }

    fn kill_and_start(&mut self, seat: Seat) {
        let what = if one_in(&mut self.rng, 2) { Crash::Host } else { Crash::ProcessAndGuardian };
        let met = self.met();
        self.world.crash(seat, what, met);
        self.world.restart(seat, false);
    }

    fn isolate(&mut self, seat: Seat) {
        if one_in(&mut self.rng, 3) {
            self.world.network.heal();
            return self.world.connect_all();
        }
        self.cut_off(seat);
        let restarts = one_in(&mut self.rng, 2);
        for other in self.world.seats().filter(|&other| other != seat) {
            if restarts && !one_in(&mut self.rng, 4) {
                self.kill_and_start(other);
            }
        }
    }

    fn cut_off(&mut self, seat: Seat) {
        let alone = self.world.host(seat);
        let others = self.world.seats().filter(|&other| other != seat);
        for host in others.map(|other| self.world.host(other)).collect::<Vec<_>>() {
            self.world.network.set_cut(alone, host, true);
            self.world.network.set_cut(host, alone, true);
        }
    }

    fn met(&mut self) -> MetByCrash {
        if one_in(&mut self.rng, 2) { MetByCrash::Lost } else { MetByCrash::Kept }
    }

    fn restart_somebody(&mut self) {
        let down = self.world.seats().find(|&seat| self.world.process(seat).is_none());
        if let Some(seat) = down {
            self.world.restart(seat, false);
        }
    }

    /// Any two clocks differ by at most what the bound allows, and often by just that.
    fn draw_clock(&mut self, seat: Seat) {
        let most = u64::from(self.drift);
        let drawn = [0, most, self.rng.up_to(most)][index(&mut self.rng, 3)];
        let ppm = i32::try_from(drawn).unwrap_or(0);
        self.world.set_rate(seat, ppm);
    }

    fn cut(&mut self) {
        let (a, b) = (self.seat(), self.seat());
        let (host_a, host_b) = (self.world.host(a), self.world.host(b));
        match self.rng.up_to(6) {
            0 => self.world.network.set_cut(host_a, host_b, true),
            1 => {
                self.world.network.set_cut(host_a, host_b, true);
                self.world.network.set_cut(host_b, host_a, true);
            }
            2 => self.cut_off(a),
            3 => self.world.network.set_cut(host_a, STORE, true),
            4 => self.world.network.set_cut(STORE, host_a, true),
            _ => {
                self.world.network.heal();
                self.world.connect_all();
            }
        }
    }

    fn command(&mut self, seat: Seat) {
        let to = self.seat();
        let to = self.world.node(to).name;
        let command = match self.rng.up_to(6) {
            0 => Command::Resign,
            1 | 2 => Command::Transfer(to),
            3 => Command::Healthy(one_in(&mut self.rng, 2)),
            4 => {
                let busy = one_in(&mut self.rng, 2);
                self.world.node_mut(seat).busy = busy;
                return;
            }
            5 => Command::Withdraw,
            _ => Command::Campaign,
        };
        self.world.give(seat, Input::Command(command));
    }

    fn store(&mut self) {
        let seat = self.victim();
        let name = self.world.node(seat).name;
        match self.rng.up_to(7) {
            0 => self.world.store.mood = Mood::Down,
            1 => self.world.store.mood = Mood::Silent,
            2 => self.world.store.aim(name, Mishap::ReplyLost),
            3 => self.world.store.aim(name, Mishap::UnknownButDone),
            4 => self.world.store.aim(name, Mishap::UnknownNotDone),
            _ => self.world.store.mood = Mood::Up,
        }
    }

    fn record(&mut self) {
        let Some(record) = self.world.store.record().cloned() else { return };
        // Absence has no version: where requests come late, one that makes the first record may come after a
        // deletion, with a token from before it. Nothing can be promised there.
        let Chance { doubled, delayed, .. } = self.world.network.chance;
        if self.deletes && doubled + delayed == 0 && one_in(&mut self.rng, 4) {
            self.world.trace_world(Level::Event, || "the record is deleted".to_owned());
            self.world.store.put(None);
            // A machine that meets this is right to raise the alarm.
            self.alarming = true;
        } else {
            let request = Some(ResignRequest { token: record.token, by: "ops".to_owned() });
            self.world.store.put(Some(Record { resign_request: request, ..record }));
        }
        self.world.tell_change(None);
    }

    fn heal(&mut self) {
        self.world.trace_world(Level::Event, || "everything is healed".to_owned());
        self.world.network.heal();
        self.world.network.chance = Chance::default();
        self.world.store.heal();
        for seat in self.world.seats() {
            let node = self.world.node_mut(seat);
            node.crash_at_write = None;
            node.busy = false;
            self.world.resume(seat);
            self.world.restart(seat, false);
            self.let_drain(seat);
            self.world.give(seat, Input::Command(Command::Healthy(true)));
            self.world.give(seat, Input::Command(Command::Campaign));
        }
        if let Some(wiped) = self.wiped {
            // A disk that was replaced does not come back, so the operator begins with an empty one.
            if self.world.seats().any(|by| self.world.is_former(wiped, by)) {
                self.wipe(wiped, Crash::ProcessAndGuardian);
                self.world.give(wiped, Input::Command(Command::Campaign));
            }
            for by in self.world.seats() {
                self.world.readmit(wiped, by);
            }
        }
        self.world.connect_all();
    }

    /// Work that was too busy to end, ends.
    fn let_drain(&mut self, seat: Seat) {
        let Some(who) = self.world.process(seat).map(|process| process.me) else { return };
        if self.world.beliefs.of(who).is_some_and(|belief| belief.stage == Stage::Resigning) {
            self.world.drained(seat);
        }
    }

    /// How long it takes until one node believes to lead and all others name it. What was under way when the world
    /// was healed may still disturb it, so it must stay so for a while.
    fn settle(&mut self) -> Option<Duration> {
        let healed_at = self.world.now();
        let end = healed_at.after(self.patience.times(30));
        let calm = self.patience.times(4);
        let mut since: Option<Moment> = None;
        while self.world.now() < end {
            self.world.run_until(self.world.now().after(Duration::from_millis(20)));
            let now = self.world.now();
            since = if self.agreed() { Some(since.unwrap_or(now)) } else { None };
            if let Some(since) = since.filter(|&since| now.since(since) >= calm) {
                return Some(since.since(healed_at));
            }
        }
        None
    }

    fn agreed(&self) -> bool {
        let mut leaders = self.world.leaders();
        let (Some(leader), None) = (leaders.next(), leaders.next()) else { return false };
        let name = self.world.node(leader).name;
        self.world
            .seats()
            .all(|seat| self.world.node(seat).leader.is_some_and(|named| named.identity.node == name))
    }
}
