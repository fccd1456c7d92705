//! Worlds generated from a seed: the nodes, their timers, and their faults.
//!
//! Each seed draws its own mix of faults, and omits some kinds altogether: with every fault at once, the effect of a
//! single one is hidden. A generated world is a [`script`](crate::script), written while it runs, because a fault may
//! target the current leader. So every seed is also a script, which can be read, shortened and kept.
//!
//! A run has three phases: faults, in which only safety is required; then everything is healed, and all nodes must
//! name one leader within the time that the election states; then calm, in which small faults strike one node that
//! does not lead, and the leader must stay.

pub(crate) mod drawn_faults;
pub(crate) mod primaries;
mod reelection;
mod targeted_faults;
mod voters;

use core::fmt;

use primacy_core::rng::Rng;
use primacy_core::{Drift, Duration};

use self::drawn_faults::{Kind, MIXED};
use self::primaries::Sharing;
use self::reelection::Reelection;
use self::voters::Operators;
use crate::algorithm::Algorithm;
use crate::counters::Counters;
use crate::golden_file::ScriptHandler as _;
use crate::invariants::Breach;
use crate::process_slot::ProcessSlot;
use crate::script::{ALARM, Script};
use crate::trace::Trace;
use crate::world::World;
use crate::world::phases::Settled;

/// The number of seeds from which on a search must have incremented all counters of [`Election::must_meet`](crate::elections::Election::must_meet): the
/// rarest one is incremented in one world of a hundred, so one search in some thousands fails by chance.
pub const ENOUGH_SEEDS: u64 = 1_000;

/// An assumption of an election that a world violates, to show which invariant breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beyond {
    /// Clock rates differ by up to three times the bound.
    Drift,
    /// A clock jumps ahead.
    Jump,
    /// A whole machine is frozen together with its clock.
    FrozenMachine,
    /// The newest slot of a disk rots, so that the node uses the one before it.
    RottenDisk,
    /// The store accepts writes whose expected version is not the current one.
    LyingStore,
    /// The store goes back to an earlier state, as after a restore from a backup.
    RestoredStore,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The broken invariants, and panics.
    pub breaches: Vec<Breach>,
    /// The number of violations that a machine itself detected without a fault that explains them.
    pub alarms: u64,
    /// The number of leaderships.
    pub elections: u64,
    /// The number of inputs handled.
    pub handled: u64,
    /// The simulated time.
    pub simulated: Duration,
    /// The counters of the run.
    pub counters: Counters,
    /// The time from the healing until all nodes named one leader; `None` without a healing or such a leader.
    pub settled: Option<Settled>,
    /// A hash over all trace entries, which differs between differing runs; `None` if the trace made none.
    pub digest: Option<u64>,
}

/// A run, with the commands that were drawn for it.
#[derive(Debug)]
pub struct Run {
    /// The outcome.
    pub verdict: Verdict,
    /// The lines that were kept.
    pub trace: Trace,
    /// The commands, one per line.
    pub commands: Vec<String>,
}

impl Beyond {
    /// All assumptions.
    pub const ALL: &[Self] = &[
        Self::Drift,
        Self::Jump,
        Self::FrozenMachine,
        Self::RottenDisk,
        Self::LyingStore,
        Self::RestoredStore,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drift => "drift",
            Self::Jump => "jump",
            Self::FrozenMachine => "frozen-machine",
            Self::RottenDisk => "rotten-disk",
            Self::LyingStore => "lying-store",
            Self::RestoredStore => "restored-store",
        }
    }
}

impl Verdict {
    /// True if no invariant was broken.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failure().is_none()
    }

    /// The failure: the first broken invariant, `panic`, or `alarm` if only a machine detected a violation.
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        let first = self.breaches.first().map(|breach| breach.invariant);
        first.or((self.alarms > 0).then_some(ALARM))
    }

    fn of<A: Algorithm>(world: &World<A>, settled: Option<Settled>) -> Self {
        Self {
            breaches: world.breaches().to_vec(),
            alarms: world.alarms(),
            elections: world.leaderships.count,
            handled: world.handled(),
            simulated: Duration::from_nanos(world.now().as_nanos()),
            counters: world.counters.clone(),
            settled,
            digest: world.trace.digest(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Later breaches are seldom a separate mistake.
        for Breach { at, invariant, what } in self.breaches.iter().take(1) {
            writeln!(f, "{at} {invariant}: {what}")?;
        }
        match self.settled {
            Some(Settled { after, within }) => write!(
                f,
                "{} elections, settled {after} after healing, for which there are {within}",
                self.elections
            ),
            None => write!(f, "{} elections, not settled", self.elections),
        }?;
        if self.alarms > 0 {
            write!(f, ", {} alarms", self.alarms)?;
        }
        Ok(())
    }
}

/// A generated world, with the state of its generator.
#[derive(Debug)]
pub(crate) struct Swarm<A: Algorithm> {
    script: Script<A>,
    told: Vec<String>,
    pub(crate) rng: Rng,
    kinds: Vec<Kind>,
    beyond: Option<Beyond>,
    /// True if delays are short and there are no random packet faults, so that only promises and leases keep leaders
    /// apart.
    pub(crate) tight: bool,
    /// The kinds of messages that packet faults may name.
    pub(crate) words: &'static [&'static str],
    /// True if one node loses its disk in this world.
    wipes: bool,
    /// True if restarted nodes lose their logs. Then no majority may restart, or the election stops.
    pub(crate) forgets: bool,
    /// True if clients send requests to nodes.
    pub(crate) asks: bool,
    /// The operators that change the voters, if this world has any.
    operators: Option<Operators>,
    /// The clients of partitions, if this world has any.
    pub(crate) sharing: Option<Sharing>,
    /// The generator of a re-election by a shorter promise, if this world is set up for it.
    reelection: Option<Reelection>,
    /// True if the leader is cut off now and then without further faults, until another node may lead.
    duels: bool,
    /// True if at the end one node is made deaf or mute, and the others must have a leader.
    pub(crate) wounds: bool,
    /// True if nodes must join, so that all must be back before one is made deaf or mute.
    pub(crate) joins: bool,
    /// The node without faults during the calm, because it founds the cluster that others join.
    pub(crate) spared: Option<&'static str>,
    /// True if the last command has cut off the leader.
    cut_off: bool,
    wiped: Option<ProcessSlot>,
    /// True if the record may be deleted. That requires equal leases, because the creator of a new record may not
    /// know another length; and no delayed requests, because absence has no version.
    pub(crate) deletes: bool,
    /// True if the record was absent at some time.
    pub(crate) was_absent: bool,
    /// True if a fault happened after which alarms are justified.
    alarming: bool,
    /// The maximum difference in rate between the fastest and the slowest clock, in parts per million.
    pub(crate) drift: u32,
    /// The time in which this election replaces a silent leader: the unit of all drawn durations.
    patience: Duration,
}

impl<A: Algorithm> Swarm<A> {
    pub(crate) fn new(rng: Rng, beyond: Option<Beyond>, trace: Trace) -> Self {
        Self {
            script: Script::new(trace),
            told: Vec::new(),
            rng,
            kinds: Vec::new(),
            beyond,
            tight: false,
            words: &[],
            wipes: false,
            forgets: false,
            asks: false,
            operators: None,
            sharing: None,
            reelection: None,
            duels: false,
            wounds: true,
            joins: false,
            spared: None,
            cut_off: false,
            wiped: None,
            deletes: false,
            was_absent: false,
            alarming: beyond == Some(Beyond::RestoredStore) || beyond == Some(Beyond::LyingStore),
            drift: 0,
            patience: Duration::ZERO,
        }
    }

    /// Carries out a command, which must be possible. After a breach, commands are ignored.
    pub(crate) fn tell(&mut self, command: String) {
        if !self.is_good() {
            return;
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        if self.forgets && self.is_spared(&words) {
            return;
        }
        let done = self.script.command(&words);
        assert_eq!(done, Ok(()), "{command}: what is drawn can be carried out");
        self.told.push(command);
    }

    pub(crate) fn world(&self) -> &World<A> {
        self.script.world.as_ref().expect("the nodes are named first")
    }

    /// Increments the counter of a targeted fault that has succeeded.
    fn came_off(&mut self, fault: &'static str) {
        if let Some(world) = &mut self.script.world {
            world.counters.count(fault);
        }
    }

    /// True if a node other than this one leads now.
    fn is_replaced(&self, leader: ProcessSlot) -> bool {
        self.world().leaders().next().is_some_and(|another| another != leader)
    }

    /// Draws the nodes, and the delays.
    pub(crate) fn begin(&mut self, seed: u64, nodes: usize) {
        self.tell(format!("seed {seed}"));
        let names = ["a", "b", "c", "d", "e"];
        self.tell(format!("nodes {}", names[..nodes].join(" ")));
        self.tight = self.one_in(3);
        let (slow_links, slow_disks) = (!self.tight && self.one_in(3), !self.tight && self.one_in(3));
        let delay =
            if slow_links { self.millis(1, 60) } else { self.millis(0, if self.tight { 1 } else { 5 }) };
        self.tell(format!("latency all {}", text(delay)));
        let disk =
            if slow_disks { self.millis(0, 60) } else { self.millis(0, if self.tight { 1 } else { 3 }) };
        self.tell(format!("disk all takes {}", text(disk)));
        let drain = self.millis(0, 400);
        self.tell(format!("drain {}", text(drain)));
        let kill = self.millis(0, 20);
        self.tell(format!("guardian takes {}", text(kill)));
        let reconnect = self.millis(1, 300);
        self.tell(format!("reconnect after {}", text(reconnect)));
        if self.one_in(2) {
            self.tell("deadlines first".to_owned());
        }
        let write = self.millis(0, 400);
        self.tell(format!("work writes within {}", text(write)));
        // The default bound, and wider ones, under which a mistake of one per cent is not hidden by the duration of
        // an election.
        self.drift = [10_000, 100_000, 300_000][self.index(3)];
    }

    /// Draws the probabilities of packet faults, and the kinds of faults.
    fn mix(&mut self) {
        self.patience = self.world().patience();
        // Some worlds have few kinds, because the effect of one kind is often undone by the others.
        let few = self.one_in(2);
        self.kinds = MIXED.iter().copied().filter(|_| few == one_in(&mut self.rng, 3)).collect();
        self.kinds.extend(self.beyond.and_then(Kind::beyond));
        for what in ["lost", "doubled", "delayed"] {
            let most = if self.tight { 0 } else { [0, 0, 100_000, 300_000][self.index(4)] };
            let (share, longest) = (self.rng.up_to(most), self.up_to(self.patience.times(2)));
            match what {
                _ if share == 0 => {}
                "lost" => self.tell(format!("chance lost {share}ppm")),
                _ => self.tell(format!("chance {what} {share}ppm up to {}", text(longest))),
            }
        }
        self.wipes = self.one_in(3);
        self.duels = self.one_in(2);
    }

    pub(crate) fn run(mut self) -> Run {
        self.mix();
        for slot in self.world().slots() {
            let name = self.name(slot);
            let offset = self.up_to(Duration::from_secs(1_000));
            self.tell(format!("jump {name} {}", text(offset)));
            self.draw_clock(slot);
        }
        self.tell("start all".to_owned());
        let end = self.world().now().after(self.patience.times(40));
        while self.world().now() < end && self.is_good() {
            // Usually one fault follows another at once; sometimes there is time for another leader to be elected.
            let waits = if self.cut_off { self.one_in(2) } else { self.one_in(6) };
            let longest = if waits { self.patience.times(3) } else { self.patience.divided_by(2) };
            self.cut_off = false;
            let pause = self.up_to(longest);
            self.tell(format!("advance {}", text(pause)));
            if self.one_in(10) {
                self.relieve();
            }
            let drawn = self.index(self.kinds.len());
            if self.duels && self.one_in(3) {
                self.duel();
            } else if let Some(&kind) = self.kinds.get(drawn) {
                self.befall(kind);
            }
            self.wipe_or_readmit();
            self.ask();
            self.operate();
            self.share();
            self.elect_again();
        }
        if self.is_good() {
            self.tell("heal all".to_owned());
            // A pending change of the voters takes effect when it arrives, and then the loss of fewer nodes may stop
            // the election.
            if self.operators.is_some() {
                self.tell(format!("advance {}", text(self.patience)));
            }
        }
        if self.world().stands_still() {
            self.came_off("too many have lost their logs");
            return self.end();
        }
        if self.is_good() && A::SETTLES {
            self.tell("settle".to_owned());
        }
        // With fewer voters, none may be missing.
        if self.is_good() && A::SETTLES && self.world().newest_voters().len() > 2 {
            self.calm();
            if self.wounds && (self.joins || self.forgets) {
                self.tell("settle".to_owned());
            }
            // With an advisory mandate, a node that hears no other leads by itself.
            if self.wounds && !A::ADVISORY {
                self.wound();
            }
        }
        self.end()
    }

    fn is_good(&self) -> bool {
        self.script.world.as_ref().is_none_or(|world| world.breaches().is_empty())
    }

    fn end(self) -> Run {
        let mut run = end(self.script, self.told);
        if self.alarming {
            run.verdict.alarms = 0;
        }
        run
    }

    // ── drawing ─────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        one_in(&mut self.rng, count)
    }

    /// Draws an index below this number; 0 if there is none.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        let drawn = self.rng.up_to(count.saturating_sub(1) as u64);
        usize::try_from(drawn).unwrap_or(0)
    }

    pub(crate) fn up_to(&mut self, longest: Duration) -> Duration {
        in_micros(self.rng.duration_up_to(longest))
    }

    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least).plus(self.up_to(Duration::from_millis(most - least)))
    }

    /// Lengthens a duration, so that it is long enough on any clock.
    pub(crate) fn lengthen(&self, duration: Duration) -> Duration {
        in_micros(Drift::from_ppm(self.drift).lengthen(duration)).plus(Duration::from_nanos(1_000))
    }
}

fn one_in(rng: &mut Rng, count: u64) -> bool {
    rng.up_to(count - 1) == 0
}

/// Rounds down to whole microseconds, which a script can state.
pub(crate) const fn in_micros(duration: Duration) -> Duration {
    Duration::from_nanos(duration.as_nanos() / 1_000 * 1_000)
}

/// Returns a duration as scripts state it, exactly.
pub(crate) fn text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos.is_multiple_of(1_000_000) {
        format!("{}ms", nanos / 1_000_000)
    } else {
        format!("{}us", nanos / 1_000)
    }
}

pub(crate) fn run_again<A: Algorithm>(commands: &[String], trace: Trace) -> Run {
    let mut script = Script::<A>::new(trace);
    let mut told = Vec::new();
    for command in commands {
        if script.world().is_ok_and(|world| !world.breaches().is_empty()) {
            break;
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        if script.command(&words).is_ok() {
            told.push(command.clone());
        }
    }
    end(script, told)
}

fn end<A: Algorithm>(mut script: Script<A>, commands: Vec<String>) -> Run {
    let settled = script.settled;
    let Ok(world) = script.world() else { panic!("a story without nodes is none") };
    let verdict = Verdict::of(world, settled);
    let trace = core::mem::replace(&mut world.trace, Trace::keeping(&[]));
    Run { verdict, trace, commands }
}
