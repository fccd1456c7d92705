//! The searched spaces: each with its bounds, the marks to be reached, and the number of states.
//!
//! In every space three things are without a bound: the delay of a process, the time that passes, and, among
//! peers, the number and order of a message's arrivals.

use core::fmt;

use primacy_core::election::quorum::{Quorum, Safety};
use primacy_core::election::ranked::Ranked;
use primacy_core::metadata::replica::Durability;

use super::mark::Marks;
use super::peers::confirmed::AnyConfirmed;
use super::peers::{self, Peers, Timers, ranked};
use super::replicas::{self, Replicas};
use super::search::{Searched, search};
use super::store::{Contenders, Queue, Record};
use super::{membership, store};

/// A space, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name: its subject.
    pub name: &'static str,
    /// True if it is searched with every test run.
    pub small: bool,
    /// Its bounds.
    pub bounds: Bounds,
    /// The marks that must be reached.
    pub sometimes: u64,
    /// The invariant that must be found broken in it, because its bounds break an assumption.
    pub breaks: Option<&'static str>,
    /// The number of states. A search that finds fewer has become blind, one that finds more must be looked
    /// at.
    pub states: u64,
}

/// The bounds of a space.
#[derive(Clone, Copy, Debug)]
pub enum Bounds {
    /// Among peers, by a majority.
    Quorum(peers::Space),
    /// Among peers, by a majority of votes for the best claim.
    Ranked(ranked::Space),
    /// Among peers, by a majority, of candidates that any nomination names.
    Confirmed(peers::Space),
    /// By seniority.
    Seniority(membership::Space),
    /// Over a store, by a record.
    Lease(store::Space),
    /// Over a store, by sessions.
    Session(store::Space),
    /// A log that is replicated.
    Replicated(replicas::Space),
}

impl Bounds {
    /// The bounds without any fault but those that are always searched, against which the others are printed.
    pub const CALM: [(&str, Self); 7] = [
        ("among peers", Self::Quorum(peers::Space::CALM)),
        ("ranked", Self::Ranked(ranked::Space::CALM)),
        ("confirmed", Self::Confirmed(peers::Space::CALM)),
        ("by seniority", Self::Seniority(membership::Space::CALM)),
        ("over a store", Self::Lease(store::Space::CALM)),
        ("by sessions", Self::Session(store::Space::CALM_SESSIONS)),
        ("replicated", Self::Replicated(replicas::Space::CALM)),
    ];

    /// Each bound, as `name: value`, in an order of its own.
    fn each(&self) -> Vec<String> {
        let text = match self {
            Self::Quorum(space) => format!("{space:?}"),
            Self::Ranked(space) => format!("{space:?}"),
            Self::Confirmed(space) => format!("{space:?}"),
            Self::Seniority(space) => format!("{space:?}"),
            Self::Lease(space) | Self::Session(space) => format!("{space:?}"),
            Self::Replicated(space) => format!("{space:?}"),
        };
        // For a bound within another, such as that of a timer, its own name is enough.
        let own =
            |bound: &str| bound.rsplit("{ ").next().unwrap_or_default().trim_end_matches(" }").to_owned();
        text.split(", ").map(own).collect()
    }
}

impl fmt::Display for Bounds {
    /// All bounds of a calm space; otherwise those that differ from it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(_, peers), (_, ranked), (_, confirmed), (_, cluster), (_, store), (_, queue), (_, log)] =
            &Self::CALM;
        let calm = match self {
            Self::Quorum(_) => peers.each(),
            Self::Ranked(_) => ranked.each(),
            Self::Confirmed(_) => confirmed.each(),
            Self::Seniority(_) => cluster.each(),
            Self::Lease(_) => store.each(),
            Self::Session(_) => queue.each(),
            Self::Replicated(_) => log.each(),
        };
        let own = self.each();
        let differ: Vec<&str> =
            own.iter().zip(&calm).filter(|(own, calm)| own != calm).map(|(own, _)| own.as_str()).collect();
        if differ.is_empty() {
            return f.write_str(&own.join(", "));
        }
        f.write_str(&differ.join(", "))
    }
}

impl Row {
    /// Searches it.
    #[must_use]
    pub fn search(&self, states_max: u64) -> Searched {
        match self.bounds {
            Bounds::Quorum(space) => search(&mut Peers::<Quorum>::new(space), states_max),
            Bounds::Ranked(space) => search(&mut Peers::<Ranked>::new(space.among_peers()), states_max),
            Bounds::Confirmed(space) => search(&mut Peers::<AnyConfirmed>::new(space), states_max),
            Bounds::Seniority(space) => search(&mut membership::Members::new(space), states_max),
            Bounds::Lease(space) => search(&mut Contenders::<Record>::new(space), states_max),
            Bounds::Session(space) => search(&mut Contenders::<Queue>::new(space), states_max),
            Bounds::Replicated(space) => search(&mut Replicas::new(space), states_max),
        }
    }

    /// Returns the faults of a result; none, if all is as it should be.
    #[must_use]
    pub fn judge(&self, found: &Searched) -> Vec<String> {
        let mut wrong = Vec::new();
        let broken = found.broken.as_ref().map(|broken| broken.invariant);
        match (broken, self.breaks) {
            (Some(broken), expected) if expected != Some(broken) => wrong.push(format!("{broken} is broken")),
            (None, Some(expected)) => wrong.push(format!("{expected} is not found broken, and must be")),
            (Some(_) | None, _) => {}
        }
        if broken.is_none() && !found.complete {
            wrong.push("the search did not end".to_owned());
        }
        wrong.extend(
            Marks(self.sometimes).missing(found.reached).map(|mark| format!("never reached: {mark}")),
        );
        if found.states != self.states {
            wrong.push(format!("{} states, and there were {}", found.states, self.states));
        }
        wrong
    }
}

const FENCED: peers::Space = peers::Space {
    // Without deadlines everything may happen at any time; only the end of a belief waits for a tick.
    timers: Timers { heartbeat: 0, misses: 1, promise: 1, round: 0 },
    refusals: false,
    ..peers::Space::CALM
};

/// Candidates wait for answers, so that fewer of them are given up, and beliefs end with the one tick that passes.
const TIMED: peers::Space = peers::Space {
    ticks: Some(1),
    timers: Timers { heartbeat: 1, misses: 1, promise: 1, round: 1 },
    ..FENCED
};

/// The first two ticks pass in silence, as after every start.
const LEASED: peers::Space = peers::Space {
    safety: Safety::Lease,
    candidates: 2,
    rounds: 4,
    ticks: Some(4),
    timers: Timers { heartbeat: 1, misses: 1, promise: 2, round: 1 },
    refusals: false,
    ..peers::Space::CALM
};

/// Every lease ends with the next tick, and nothing else waits for one. So little time is needed, and more
/// can happen in it.
const SHORT: peers::Space = peers::Space {
    ticks: Some(2),
    timers: Timers { heartbeat: 6, misses: 1, promise: 1, round: 0 },
    ..LEASED
};

/// Clocks of which one runs up to twice as fast as another, and nodes that know it.
const DRIFTING: peers::Space = peers::Space {
    rate_max: 2,
    drift_percent: 100,
    ticks: Some(6),
    timers: Timers { heartbeat: 1, misses: 1, promise: 4, round: 1 },
    ..LEASED
};

/// With guardians, each of which reports the death of its node, and dies itself.
const GUARDED: peers::Space = peers::Space { crashes: 1, guardians: true, guardian_deaths: 1, ..LEASED };

/// A vote may be given at any time, and a leader believes for a tick.
const RANKED: ranked::Space = ranked::Space::CALM;

/// Two candidates that contend for a record.
const STORE: store::Space = store::Space { writes: 2, ..store::Space::CALM };

/// Two candidates in a queue, for as long as two sessions.
const QUEUE: store::Space = store::Space::CALM_SESSIONS;

/// With guardians that report a death, and die themselves.
const WITNESSED: store::Space = store::Space { crashes: 1, guardians: true, ..STORE };

/// Two leaders, of which one may be behind, and a payload.
const LOG: replicas::Space = replicas::Space::CALM;

/// The same, where a node that restarts has lost its log.
const MEMORY: replicas::Space = replicas::Space { durability: Durability::Memory, ..LOG };

const fn peers(name: &'static str, space: peers::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small: true, bounds: Bounds::Quorum(space), sometimes, breaks: None, states }
}

const fn confirmed(name: &'static str, space: peers::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small: true, bounds: Bounds::Confirmed(space), sometimes, breaks: None, states }
}

const fn by_rank(name: &'static str, space: ranked::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small: true, bounds: Bounds::Ranked(space), sometimes, breaks: None, states }
}

const fn members(name: &'static str, space: membership::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small: true, bounds: Bounds::Seniority(space), sometimes, breaks: None, states }
}

const fn log(name: &'static str, space: replicas::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small: true, bounds: Bounds::Replicated(space), sometimes, breaks: None, states }
}

const fn store(name: &'static str, space: store::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small: true, bounds: Bounds::Lease(space), sometimes, breaks: None, states }
}

const fn sessions(name: &'static str, space: store::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small: true, bounds: Bounds::Session(space), sometimes, breaks: None, states }
}

impl Row {
    /// Marks a space whose search takes longer than a test may.
    const fn large(self) -> Self {
        Self { small: false, ..self }
    }

    /// Marks a space whose bounds break an assumption of the election, so that the violation must be found.
    const fn breaks(self, invariant: &'static str) -> Self {
        Self { breaks: Some(invariant), ..self }
    }
}

const TAKEN_OVER: u64 = Marks::ELECTED | Marks::TAKEN_OVER;
const AFTER_CRASH: u64 = TAKEN_OVER | Marks::CRASHED_BETWEEN | Marks::TAKEN_OVER_AFTER_CRASH;
/// Two servers were voted for in a ballot, so that votes had to be counted.
const SPLIT: u64 = Marks::ELECTED | Marks::VOTES_SPLIT;
/// Another node was elected while the old leader believed.
const RANKED_OVER: u64 = SPLIT | Marks::TAKEN_OVER | Marks::TWO_BELIEVE;

const COMMITTED: u64 = Marks::ELECTED | Marks::COMMITTED_IN_FIRST | Marks::COMMITTED_IN_SECOND;
/// A leader lacked committed or written records, and an earlier one went on.
const BEHIND: u64 = COMMITTED | Marks::FETCHED | Marks::OLD_ANSWER | Marks::DEPOSED_COMMITS;
const THREE: u64 = BEHIND | Marks::KEPT | Marks::DROPPED | Marks::COMMITTED_IN_THIRD;
const RESTARTED: u64 = BEHIND | Marks::CRASHED_BETWEEN | Marks::HEARD_THE_DEAD;
const SNAPSHOTS: u64 = Marks::ELECTED | Marks::SNAPSHOT_INSTALLED | Marks::SNAPSHOT_WRITTEN | Marks::FETCHED;
const RECOVERED: u64 = Marks::RECOVERED | Marks::RECOVERED_AS_LEADER | Marks::HEARD_THE_DEAD;
/// Where no payloads are written, the first records of terms are committed and compared.
const BEGUN: u64 = Marks::ELECTED | Marks::BEGUN | Marks::BEGUN_BEHIND;
const DISK_LOST: u64 = RECOVERED | Marks::DISK_LOST;

/// All of them.
#[rustfmt::skip] // One line each, and a number at its end.
pub const SPACES: &[Row] = &[
    // Among peers, tokens only.
    peers("votes", peers::Space { terms: 3, rounds: 3, ..FENCED }, Marks::ELECTED | Marks::DEPOSED, 46_837),
    peers("votes_refused", peers::Space { candidates: 2, rounds: 3, refusals: true, ..FENCED }, Marks::ELECTED | Marks::REFUSED, 100_800),
    peers("votes_restart", peers::Space { candidates: 2, rounds: 4, crashes: 1, ticks: Some(0), ..TIMED }, AFTER_CRASH, 10_568),
    peers("votes_pre_voted", peers::Space { candidates: 2, rounds: 3, pre_vote: true, ..FENCED }, Marks::ELECTED, 6_211),
    peers("votes_of_four", peers::Space { voters: 4, candidates: 2, terms: 1, rounds: 4, ticks: Some(0), refusals: false, ..peers::Space::CALM }, Marks::ELECTED, 222),
    peers("votes_long", peers::Space { terms: 3, rounds: 4, ..FENCED }, TAKEN_OVER | Marks::TWO_BELIEVE, 1_569_913).large(),
    peers("votes_pre_voted_long", peers::Space { candidates: 2, rounds: 6, pre_vote: true, ..TIMED }, TAKEN_OVER, 446_264).large(),
    peers("votes_restart_long", peers::Space { candidates: 2, rounds: 4, crashes: 1, ..TIMED }, AFTER_CRASH, 395_878).large(),
    peers("votes_restart_three", peers::Space { terms: 3, rounds: 4, crashes: 1, ..TIMED }, AFTER_CRASH, 1_709_568).large(),
    peers("votes_restart_untimed", peers::Space { candidates: 2, rounds: 4, crashes: 1, ..FENCED }, AFTER_CRASH | Marks::TWO_BELIEVE, 8_504_950).large(),
    peers("votes_two_restarts", peers::Space { candidates: 2, rounds: 4, crashes: 2, ..TIMED }, AFTER_CRASH, 6_742_975).large(),
    // Among peers, leases.
    peers("lease", LEASED, TAKEN_OVER | Marks::RENEWED | Marks::EXPIRED, 119_416),
    peers("lease_rounds", peers::Space { rounds: 5, ..LEASED }, TAKEN_OVER | Marks::RENEWED, 361_852),
    peers("lease_pre_voted", peers::Space { rounds: 6, pre_vote: true, ticks: Some(3), ..LEASED }, TAKEN_OVER, 244_384),
    peers("lease_restart", peers::Space { crashes: 1, timers: Timers { round: 1, ..SHORT.timers }, ..SHORT }, AFTER_CRASH, 231_055),
    peers("lease_close", peers::Space { closes: 1, ticks: Some(2), ..LEASED }, Marks::ELECTED, 46_336),
    peers("lease_resign", peers::Space { resignations: 1, transfers: true, job_exits: 1, ticks: Some(2), ..LEASED }, TAKEN_OVER | Marks::RESIGNED | Marks::JOB_EXITED, 59_366),
    peers("lease_resign_again", peers::Space { rounds: 5, terms: 3, resignations: 1, ticks: Some(1), ..SHORT }, TAKEN_OVER | Marks::RESIGNED | Marks::LED_OVER_EARLIER_WORK, 176_030),
    peers("lease_shorter", peers::Space { rounds: 6, terms: 4, ticks: Some(3), short_promise: Some(1), timers: Timers { promise: 2, ..SHORT.timers }, ..SHORT }, TAKEN_OVER | Marks::LED_OVER_EARLIER_WORK, 6_204_301).large(),
    peers("lease_leave", peers::Space { rounds: 6, terms: 3, resignations: 1, ..SHORT }, TAKEN_OVER | Marks::RESIGNED | Marks::LED_OVER_EARLIER_WORK, 13_240_216).large(),
    peers("lease_death", peers::Space { ticks: Some(2), ..GUARDED }, AFTER_CRASH, 232_507),
    peers("lease_exit", peers::Space { ticks: Some(2), guardian_deaths: 0, job_exits: 1, ..GUARDED }, AFTER_CRASH | Marks::JOB_EXITED, 131_854),
    peers("lease_drift_beyond", peers::Space { drift_percent: 0, ticks: None, ..DRIFTING }, Marks::ELECTED, 484_217).breaks("I3"),
    peers("lease_long", peers::Space { rounds: 5, ticks: None, ..LEASED }, TAKEN_OVER | Marks::RENEWED | Marks::EXPIRED, 16_864_585).large(),
    peers("lease_three", peers::Space { candidates: 3, ..LEASED }, TAKEN_OVER, 259_888).large(),
    peers("lease_pre_voted_long", peers::Space { rounds: 6, pre_vote: true, ..LEASED }, TAKEN_OVER | Marks::EXPIRED, 6_256_351).large(),
    peers("lease_pre_voted_restart", peers::Space { rounds: 6, pre_vote: true, crashes: 1, ticks: Some(3), ..LEASED }, AFTER_CRASH, 2_700_541).large(),
    peers("lease_restart_long", peers::Space { crashes: 1, ..LEASED }, AFTER_CRASH, 2_170_201).large(),
    peers("lease_close_long", peers::Space { closes: 1, ticks: Some(3), ..LEASED }, TAKEN_OVER, 2_098_848).large(),
    peers("lease_resign_long", peers::Space { resignations: 1, transfers: true, job_exits: 1, ..LEASED }, TAKEN_OVER | Marks::RESIGNED | Marks::JOB_EXITED, 4_633_116).large(),
    peers("lease_death_long", peers::Space { ticks: Some(3), ..GUARDED }, AFTER_CRASH, 4_952_106).large(),
    peers("lease_death_exit", peers::Space { ticks: Some(2), job_exits: 1, ..GUARDED }, AFTER_CRASH | Marks::JOB_EXITED, 1_575_183).large(),
    peers("lease_exit_long", peers::Space { ticks: Some(3), guardian_deaths: 0, job_exits: 1, ..GUARDED }, AFTER_CRASH | Marks::JOB_EXITED, 2_494_838).large(),
    peers("lease_drift", peers::Space { ticks: Some(4), ..DRIFTING }, TAKEN_OVER, 1_371_472).large(),
    // Among peers, of candidates that any nomination names.
    confirmed("confirmed_votes", peers::Space { candidates: 2, rounds: 3, ..FENCED }, Marks::ELECTED, 282_354),
    confirmed("confirmed_restart", peers::Space { candidates: 2, rounds: 4, crashes: 1, ticks: Some(0), ..TIMED }, AFTER_CRASH, 7_736_897).large(),
    confirmed("confirmed_lease", peers::Space { ticks: Some(3), resignations: 1, transfers: true, ..LEASED }, TAKEN_OVER | Marks::RENEWED | Marks::RESIGNED, 11_339_420).large(),
    confirmed("confirmed_patience", peers::Space { rounds: 5, ticks: Some(3), patience: 1, ..LEASED }, TAKEN_OVER | Marks::RENEWED | Marks::RESIGNED, 834_394),
    confirmed("confirmed_lease_restart", peers::Space { ticks: Some(3), crashes: 1, patience: 1, ..LEASED }, AFTER_CRASH | Marks::RENEWED, 2_400_375).large(),
    // Among peers, by rank.
    by_rank("ranked", ranked::Space { rounds: 5, ..RANKED }, SPLIT | Marks::REFUSED, 258_473),
    by_rank("ranked_of_four", ranked::Space { voters: 4, candidates: 2, ballots: 1, rounds: 4, ..RANKED }, SPLIT, 105_291),
    by_rank("ranked_expired", ranked::Space { candidates: 2, rounds: 4, ticks: Some(1), ..RANKED }, SPLIT | Marks::EXPIRED, 57_940),
    by_rank("ranked_restart", ranked::Space { ballots: 3, rounds: 4, crashes: 1, ..RANKED }, SPLIT | Marks::CRASHED_BETWEEN, 220_076),
    by_rank("ranked_resign", ranked::Space { rounds: 4, resignations: 1, transfers: true, ..RANKED }, SPLIT | Marks::RESIGNED, 62_606),
    by_rank("ranked_long", ranked::Space { rounds: 6, ..RANKED }, RANKED_OVER | Marks::REFUSED | Marks::DEPOSED, 1_440_027).large(),
    by_rank("ranked_expired_long", ranked::Space { candidates: 2, rounds: 6, ticks: Some(1), ..RANKED }, RANKED_OVER | Marks::EXPIRED, 3_778_158).large(),
    by_rank("ranked_resign_long", ranked::Space { candidates: 2, rounds: 6, resignations: 1, ..RANKED }, RANKED_OVER | Marks::RESIGNED, 4_070_639).large(),
    by_rank("ranked_restart_long", ranked::Space { ballots: 3, rounds: 5, crashes: 1, ..RANKED }, SPLIT | AFTER_CRASH | Marks::REFUSED, 2_997_250).large(),
    by_rank("ranked_two_restarts", ranked::Space { ballots: 3, rounds: 4, crashes: 2, ..RANKED }, SPLIT | AFTER_CRASH, 915_819).large(),
    by_rank("ranked_two_restarts_long", ranked::Space { ballots: 3, rounds: 5, crashes: 2, ..RANKED }, SPLIT | AFTER_CRASH | Marks::REFUSED, 14_128_590).large(),
    // By seniority.
    members("members_restart", membership::Space::CALM, Marks::ELECTED | Marks::SETTLED, 223),
    members("members_resign", membership::Space { resignations: 1, restarts: 0, ..membership::Space::CALM }, Marks::ELECTED | Marks::DEPOSED | Marks::RESIGNED | Marks::SETTLED, 240),
    members("members_down", membership::Space { downs: 1, restarts: 0, hears: 8, ..membership::Space::CALM }, Marks::ELECTED | Marks::DEPOSED | Marks::SETTLED, 6_224),
    members("members_downs", membership::Space { downs: 2, restarts: 0, wakes: 0, hears: 6, ..membership::Space::CALM }, Marks::ELECTED | Marks::DEPOSED | Marks::RELEASED | Marks::SETTLED, 66_649),
    members("members_down_restart", membership::Space { downs: 1, wakes: 0, hears: 7, ..membership::Space::CALM }, Marks::ELECTED | Marks::DEPOSED | Marks::SETTLED, 37_002),
    members("members_down_resign", membership::Space { downs: 1, resignations: 1, restarts: 0, wakes: 0, hears: 7 }, Marks::ELECTED | Marks::RESIGNED | Marks::SETTLED, 60_800),
    members("members_down_long", membership::Space { downs: 1, restarts: 0, hears: 11, ..membership::Space::CALM }, Marks::ELECTED | Marks::DEPOSED | Marks::SETTLED, 51_814).large(),
    // Over a store.
    store("store", store::Space { writes: 3, ..STORE }, TAKEN_OVER | Marks::RENEWED, 253_248),
    store("store_unknown", store::Space { unknowns: 2, ..STORE }, TAKEN_OVER, 133_471),
    store("store_unknown_waits", store::Space { unknowns: 2, poll: 1, ..STORE }, TAKEN_OVER, 120_827),
    store("store_restart", store::Space { crashes: 1, ..STORE }, TAKEN_OVER | Marks::TAKEN_OVER_AFTER_CRASH, 193_492),
    store("store_resign", store::Space { resignations: 1, job_exits: 1, ..STORE }, Marks::ELECTED | Marks::RELEASED | Marks::JOB_EXITED, 80_322),
    store("store_deleted", store::Space { deletions: 1, ..STORE }, TAKEN_OVER, 107_706),
    store("store_created", store::Space { writes: 3, initialised: false, ..STORE }, Marks::ELECTED, 210_254),
    store("store_late_answers", store::Space { late_answers: true, ..STORE }, TAKEN_OVER, 217_644),
    store("store_drift", store::Space { rate_max: 2, drift_percent: 100, ..STORE }, TAKEN_OVER, 115_802),
    store("store_drift_beyond", store::Space { rate_max: 2, ..STORE }, Marks::ELECTED, 4_281).breaks("I3"),
    store("store_death", WITNESSED, TAKEN_OVER | Marks::TAKEN_OVER_AFTER_CRASH | Marks::ERRAND_DONE, 484_450),
    store("store_long", store::Space { writes: 4, ..STORE }, TAKEN_OVER | Marks::RENEWED, 1_934_121).large(),
    store("store_three", store::Space { candidates: 3, ..STORE }, TAKEN_OVER, 1_419_286).large(),
    store("store_unknown_long", store::Space { writes: 3, unknowns: 2, ..STORE }, TAKEN_OVER | Marks::RENEWED, 2_046_091).large(),
    store("store_restart_long", store::Space { writes: 3, crashes: 1, ..STORE }, TAKEN_OVER | Marks::TAKEN_OVER_AFTER_CRASH, 2_309_916).large(),
    store("store_resign_long", store::Space { writes: 3, resignations: 1, job_exits: 1, ..STORE }, TAKEN_OVER | Marks::RELEASED | Marks::JOB_EXITED, 1_113_796).large(),
    store("store_deleted_long", store::Space { writes: 3, deletions: 1, resignations: 1, ..STORE }, TAKEN_OVER | Marks::VIOLATION | Marks::RELEASED, 2_472_920).large(),
    store("store_drift_long", store::Space { writes: 3, rate_max: 2, drift_percent: 100, ..STORE }, TAKEN_OVER, 1_157_052).large(),
    store("store_death_long", store::Space { guardian_deaths: 1, job_exits: 1, ..WITNESSED }, TAKEN_OVER | Marks::TAKEN_OVER_AFTER_CRASH | Marks::ERRAND_DONE | Marks::JOB_EXITED, 3_758_540).large(),
    // Over a store, by sessions.
    sessions("session", QUEUE, TAKEN_OVER | Marks::EXPIRED | Marks::RELEASED, 328_088),
    sessions("session_unknown", store::Space { unknowns: 1, ..QUEUE }, TAKEN_OVER, 1_104_855).large(),
    sessions("session_restart", store::Space { crashes: 1, ..QUEUE }, Marks::ELECTED, 1_072_120).large(),
    sessions("session_resign", store::Space { resignations: 1, job_exits: 1, ..QUEUE }, TAKEN_OVER | Marks::RELEASED | Marks::JOB_EXITED, 1_557_188).large(),
    sessions("session_removed", store::Space { deletions: 1, ..QUEUE }, Marks::ELECTED | Marks::DEPOSED, 9_424).breaks("I3"),
    sessions("session_drift", store::Space { rate_max: 2, drift_percent: 100, ..QUEUE }, TAKEN_OVER, 2_423_260).large(),
    sessions("session_drift_beyond", store::Space { rate_max: 2, ..QUEUE }, Marks::ELECTED, 30_810).breaks("I3"),
    sessions("session_death", store::Space { crashes: 1, guardians: true, ..QUEUE }, TAKEN_OVER | Marks::TAKEN_OVER_AFTER_CRASH | Marks::ERRAND_DONE, 2_504_718).large(),
    sessions("session_long", store::Space { requests: 2, ..QUEUE }, TAKEN_OVER | Marks::RENEWED, 4_530_892).large(),
    sessions("session_again", store::Space { writes: 3, ..QUEUE }, TAKEN_OVER, 6_292_091).large(),
    sessions("session_restart_long", store::Space { writes: 3, crashes: 1, ..QUEUE }, TAKEN_OVER | Marks::TAKEN_OVER_AFTER_CRASH, 24_188_521).large(),
    // A log that is replicated.
    log("log", LOG, BEHIND, 32_810),
    log("log_terms", replicas::Space { terms: 3, ..LOG }, THREE, 705_538),
    log("log_records", replicas::Space { records: 2, ..LOG }, BEHIND | Marks::KEPT | Marks::DROPPED, 63_528),
    log("log_late", replicas::Space { resends: 1, ..LOG }, BEHIND, 311_978),
    log("log_restart", replicas::Space { crashes: 1, late: false, ..LOG }, RESTARTED, 1_079_514),
    log("log_gathers", replicas::Space { gathers: true, records: 0, ..LOG }, BEGUN, 59_458),
    log("log_snapshots", replicas::Space { keeps: false, records: 0, ..LOG }, SNAPSHOTS | BEGUN, 17_891),
    log("log_three", replicas::Space { terms: 3, records: 3, ..LOG }, THREE, 2_646_634).large(),
    log("log_records_long", replicas::Space { records: 2, each: 2, ..LOG }, BEHIND | Marks::KEPT | Marks::DROPPED, 3_314_172).large(),
    log("log_late_long", replicas::Space { terms: 3, resends: 1, ..LOG }, THREE, 7_845_065).large(),
    log("log_restart_late", replicas::Space { crashes: 1, ..LOG }, RESTARTED, 1_691_764).large(),
    log("log_restarts", replicas::Space { crashes: 2, late: false, ..LOG }, RESTARTED, 15_716_744).large(),
    log("log_restarts_terms", replicas::Space { terms: 3, records: 0, crashes: 2, late: false, ..LOG }, BEGUN | Marks::CRASHED_BETWEEN, 24_949_842).large(),
    log("log_gathers_long", replicas::Space { gathers: true, ..LOG }, BEHIND, 2_580_064).large(),
    log("log_snapshots_long", replicas::Space { keeps: false, ..LOG }, SNAPSHOTS | BEHIND, 2_052_275).large(),
    log("log_snapshots_restart", replicas::Space { keeps: false, records: 0, crashes: 1, late: false, ..LOG }, SNAPSHOTS | BEGUN | Marks::CRASHED_BETWEEN, 412_433).large(),
    // The same in memory.
    log("log_memory", replicas::Space { records: 0, crashes: 1, late: false, ..MEMORY }, RECOVERED | BEGUN, 1_556_809),
    log("log_memory_majority", replicas::Space { records: 0, pairs: 1, late: false, ..MEMORY }, Marks::STANDS_STILL | BEGUN, 459_074),
    log("log_memory_accepted", replicas::Space { records: 0, pairs: 1, accepts: 1, late: false, ..MEMORY }, Marks::STANDS_STILL | BEGUN, 386_516).breaks("I9"),
    log("log_memory_unaware", replicas::Space { records: 0, crashes: 1, recovers: false, ..MEMORY }, Marks::ELECTED | Marks::BEGUN, 12_887).breaks("I9"),
    log("log_memory_late", replicas::Space { records: 0, crashes: 1, ..MEMORY }, RECOVERED | BEGUN, 1_551_610).large(),
    log("log_memory_records", replicas::Space { crashes: 1, late: false, ..MEMORY }, RECOVERED | COMMITTED, 18_985_403).large(),
    log("log_memory_restarts", replicas::Space { records: 0, crashes: 2, late: false, ..MEMORY }, RECOVERED | BEGUN | Marks::CRASHED_BETWEEN, 5_658_820).large(),
    log("log_memory_terms", replicas::Space { terms: 3, records: 0, crashes: 1, late: false, ..MEMORY }, RECOVERED | BEGUN | Marks::CRASHED_BETWEEN, 102_508_105).large(),
    // The same on a disk that may be lost.
    log("log_disk", replicas::Space { records: 0, disks: 1, late: false, ..LOG }, DISK_LOST | BEGUN, 1_704_496).large(),
    log("log_disk_unaware", replicas::Space { records: 0, disks: 1, recovers: false, late: false, ..LOG }, Marks::BEGUN | Marks::DISK_LOST, 11_831).breaks("I9"),
    log("log_disk_records", replicas::Space { disks: 1, late: false, ..LOG }, DISK_LOST | COMMITTED, 20_767_695).large(),
    log("log_disk_restart", replicas::Space { records: 0, crashes: 1, only_recovering: true, disks: 1, late: false, ..LOG }, DISK_LOST | BEGUN | Marks::CRASHED_BETWEEN, 5_426_480).large(),
    log("log_disk_terms", replicas::Space { terms: 3, records: 0, disks: 1, late: false, ..LOG }, DISK_LOST | BEGUN, 117_043_634).large(),
];
