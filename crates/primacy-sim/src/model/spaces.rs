//! The searched spaces: each with its bounds, the required marks, and the expected number of states.
//!
//! Three things are unbounded in every space: the delay of a process, the time that passes, and, among peers, the
//! number and order of a message's arrivals.

use core::fmt;

use primacy_core::election::quorum::{Quorum, Safety};
use primacy_core::election::ranked::Ranked;
use primacy_core::hard_state::Durability;

use super::coverage::Coverage;
use super::peers::confirmed::AnyConfirmed;
use super::peers::{self, Peers, Timers, ranked};
use super::replicas::{self, Replicas};
use super::search::{Searched, search};
use super::store::{Contenders, Queue, Record};
use super::{membership, store};

/// A named space.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// The name, which states the subject.
    pub name: &'static str,
    /// True if it is searched with every test run.
    pub small: bool,
    /// Its bounds.
    pub bounds: Bounds,
    /// The marks that the search must reach.
    pub sometimes: u64,
    /// The invariant that the search must find broken, because the bounds violate an assumption.
    pub breaks: Option<&'static str>,
    /// The expected number of states. A search that finds fewer misses behaviour; if it finds more, the reason must
    /// be known.
    pub states: u64,
}

/// The bounds of a space.
#[derive(Clone, Copy, Debug)]
pub enum Bounds {
    /// Among peers, by a majority.
    Quorum(peers::PeerBounds),
    /// Among peers, by a majority of votes for the best claim.
    Ranked(ranked::RankedBounds),
    /// Among peers, by a majority, with arbitrary nominations.
    Confirmed(peers::PeerBounds),
    /// By seniority.
    Seniority(membership::MembershipBounds),
    /// Over a store, by a record.
    Lease(store::StoreBounds),
    /// Over a store, by sessions.
    Session(store::StoreBounds),
    /// A log that is replicated.
    Replicated(replicas::ReplicaBounds),
}

impl Bounds {
    /// The bounds without optional faults; other bounds are printed as their difference from these.
    pub const CALM: [(&str, Self); 7] = [
        ("among peers", Self::Quorum(peers::PeerBounds::CALM)),
        ("ranked", Self::Ranked(ranked::RankedBounds::CALM)),
        ("confirmed", Self::Confirmed(peers::PeerBounds::CALM)),
        ("by seniority", Self::Seniority(membership::MembershipBounds::CALM)),
        ("over a store", Self::Lease(store::StoreBounds::CALM)),
        ("by sessions", Self::Session(store::StoreBounds::CALM_SESSIONS)),
        ("replicated", Self::Replicated(replicas::ReplicaBounds::CALM)),
    ];

    /// Returns each bound as `name: value`, in a fixed order.
    fn each(&self) -> Vec<String> {
        let text = match self {
            Self::Quorum(bounds) => format!("{bounds:?}"),
            Self::Ranked(bounds) => format!("{bounds:?}"),
            Self::Confirmed(bounds) => format!("{bounds:?}"),
            Self::Seniority(bounds) => format!("{bounds:?}"),
            Self::Lease(bounds) | Self::Session(bounds) => format!("{bounds:?}"),
            Self::Replicated(bounds) => format!("{bounds:?}"),
        };
        // For a nested bound, such as that of a timer, its own name is enough.
        let own =
            |bound: &str| bound.rsplit("{ ").next().unwrap_or_default().trim_end_matches(" }").to_owned();
        text.split(", ").map(own).collect()
    }
}

impl fmt::Display for Bounds {
    /// Prints all bounds of a calm space; of any other, the bounds that differ from the calm ones.
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

impl Space {
    /// Searches it.
    #[must_use]
    pub fn search(&self, states_max: u64) -> Searched {
        match self.bounds {
            Bounds::Quorum(bounds) => search(&mut Peers::<Quorum>::new(bounds), states_max),
            Bounds::Ranked(bounds) => search(&mut Peers::<Ranked>::new(bounds.among_peers()), states_max),
            Bounds::Confirmed(bounds) => search(&mut Peers::<AnyConfirmed>::new(bounds), states_max),
            Bounds::Seniority(bounds) => search(&mut membership::Members::new(bounds), states_max),
            Bounds::Lease(bounds) => search(&mut Contenders::<Record>::new(bounds), states_max),
            Bounds::Session(bounds) => search(&mut Contenders::<Queue>::new(bounds), states_max),
            Bounds::Replicated(bounds) => search(&mut Replicas::new(bounds), states_max),
        }
    }

    /// Returns the errors of a result; none if it is as expected.
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
            Coverage(self.sometimes).missing(found.reached).map(|mark| format!("never reached: {mark}")),
        );
        if found.states != self.states {
            wrong.push(format!("{} states, and there were {}", found.states, self.states));
        }
        wrong
    }
}

const FENCED: peers::PeerBounds = peers::PeerBounds {
    // Without deadlines every event may happen at any time; only the end of a leader's belief waits for a tick.
    timers: Timers { heartbeat: 0, misses: 1, promise: 1, round: 0 },
    refusals: false,
    ..peers::PeerBounds::CALM
};

/// Candidates wait for answers, so that fewer rounds are abandoned; a leader's belief ends with the one tick that
/// passes.
const TIMED: peers::PeerBounds = peers::PeerBounds {
    ticks: Some(1),
    timers: Timers { heartbeat: 1, misses: 1, promise: 1, round: 1 },
    ..FENCED
};

/// The first two ticks pass in silence, as after every start.
const LEASED: peers::PeerBounds = peers::PeerBounds {
    safety: Safety::Lease,
    candidates: 2,
    rounds: 4,
    ticks: Some(4),
    timers: Timers { heartbeat: 1, misses: 1, promise: 2, round: 1 },
    refusals: false,
    ..peers::PeerBounds::CALM
};

/// Every lease ends at the next tick, and nothing else waits for one. So few ticks are needed, and other bounds can
/// be larger.
const SHORT: peers::PeerBounds = peers::PeerBounds {
    ticks: Some(2),
    timers: Timers { heartbeat: 6, misses: 1, promise: 1, round: 0 },
    ..LEASED
};

/// Clocks may run up to twice as fast as each other, within the configured bound on drift.
const DRIFTING: peers::PeerBounds = peers::PeerBounds {
    rate_max: 2,
    drift_percent: 100,
    ticks: Some(6),
    timers: Timers { heartbeat: 1, misses: 1, promise: 4, round: 1 },
    ..LEASED
};

/// With guardians, each of which may report the death of its node's process, or die itself.
const GUARDED: peers::PeerBounds =
    peers::PeerBounds { crashes: 1, guardians: true, guardian_deaths: 1, ..LEASED };

/// A vote may be given at any time, and a leader's belief ends after one tick.
const RANKED: ranked::RankedBounds = ranked::RankedBounds::CALM;

/// Two candidates contend for a record.
const STORE: store::StoreBounds = store::StoreBounds { writes: 2, ..store::StoreBounds::CALM };

/// Two candidates in a queue, for two sessions in all.
const QUEUE: store::StoreBounds = store::StoreBounds::CALM_SESSIONS;

/// With guardians that report a death, or die themselves.
const WITNESSED: store::StoreBounds = store::StoreBounds { crashes: 1, guardians: true, ..STORE };

/// Two leaders, of which one may lag, and one payload.
const LOG: replicas::ReplicaBounds = replicas::ReplicaBounds::CALM;

/// The same, where a node that restarts has lost its log.
const MEMORY: replicas::ReplicaBounds = replicas::ReplicaBounds { durability: Durability::Memory, ..LOG };

const fn peers(name: &'static str, bounds: peers::PeerBounds, sometimes: u64, states: u64) -> Space {
    Space { name, small: true, bounds: Bounds::Quorum(bounds), sometimes, breaks: None, states }
}

const fn confirmed(name: &'static str, bounds: peers::PeerBounds, sometimes: u64, states: u64) -> Space {
    Space { name, small: true, bounds: Bounds::Confirmed(bounds), sometimes, breaks: None, states }
}

const fn by_rank(name: &'static str, bounds: ranked::RankedBounds, sometimes: u64, states: u64) -> Space {
    Space { name, small: true, bounds: Bounds::Ranked(bounds), sometimes, breaks: None, states }
}

const fn members(
    name: &'static str,
    bounds: membership::MembershipBounds,
    sometimes: u64,
    states: u64,
) -> Space {
    Space { name, small: true, bounds: Bounds::Seniority(bounds), sometimes, breaks: None, states }
}

const fn log(name: &'static str, bounds: replicas::ReplicaBounds, sometimes: u64, states: u64) -> Space {
    Space { name, small: true, bounds: Bounds::Replicated(bounds), sometimes, breaks: None, states }
}

const fn store(name: &'static str, bounds: store::StoreBounds, sometimes: u64, states: u64) -> Space {
    Space { name, small: true, bounds: Bounds::Lease(bounds), sometimes, breaks: None, states }
}

const fn sessions(name: &'static str, bounds: store::StoreBounds, sometimes: u64, states: u64) -> Space {
    Space { name, small: true, bounds: Bounds::Session(bounds), sometimes, breaks: None, states }
}

impl Space {
    /// Marks a space whose search takes too long for a normal test run.
    const fn large(self) -> Self {
        Self { small: false, ..self }
    }

    /// Marks a space whose bounds violate an assumption of the election, so that the search must find the violation.
    const fn breaks(self, invariant: &'static str) -> Self {
        Self { breaks: Some(invariant), ..self }
    }
}

const TAKEN_OVER: u64 = Coverage::ELECTED | Coverage::TAKEN_OVER;
const AFTER_CRASH: u64 = TAKEN_OVER | Coverage::CRASHED_BETWEEN | Coverage::TAKEN_OVER_AFTER_CRASH;
/// Two servers received votes in one ballot, so that votes had to be counted.
const SPLIT: u64 = Coverage::ELECTED | Coverage::VOTES_SPLIT;
/// Another node was elected while the old leader still believed that it led.
const RANKED_OVER: u64 = SPLIT | Coverage::TAKEN_OVER | Coverage::TWO_BELIEVE;

const COMMITTED: u64 = Coverage::ELECTED | Coverage::COMMITTED_IN_FIRST | Coverage::COMMITTED_IN_SECOND;
/// A leader lacked committed or written records, and an earlier leader went on.
const BEHIND: u64 = COMMITTED | Coverage::FETCHED | Coverage::OLD_ANSWER | Coverage::DEPOSED_COMMITS;
const THREE: u64 = BEHIND | Coverage::KEPT | Coverage::DROPPED | Coverage::COMMITTED_IN_THIRD;
const RESTARTED: u64 = BEHIND | Coverage::CRASHED_BETWEEN | Coverage::HEARD_THE_DEAD;
const SNAPSHOTS: u64 =
    Coverage::ELECTED | Coverage::SNAPSHOT_INSTALLED | Coverage::SNAPSHOT_WRITTEN | Coverage::FETCHED;
const RECOVERED: u64 = Coverage::RECOVERED | Coverage::RECOVERED_AS_LEADER | Coverage::HEARD_THE_DEAD;
/// Without payloads, the first records of terms are committed and compared.
const BEGUN: u64 = Coverage::ELECTED | Coverage::BEGUN | Coverage::BEGUN_BEHIND;
const DISK_LOST: u64 = RECOVERED | Coverage::DISK_LOST;

/// All spaces.
#[rustfmt::skip] // One line each, and a number at its end.
pub const SPACES: &[Space] = &[
    // Among peers, tokens only.
    peers("votes", peers::PeerBounds { terms: 3, rounds: 3, ..FENCED }, Coverage::ELECTED | Coverage::DEPOSED, 46_837),
    peers("votes_refused", peers::PeerBounds { candidates: 2, rounds: 3, refusals: true, ..FENCED }, Coverage::ELECTED | Coverage::REFUSED, 100_800),
    peers("votes_restart", peers::PeerBounds { candidates: 2, rounds: 4, crashes: 1, ticks: Some(0), ..TIMED }, AFTER_CRASH, 10_568),
    peers("votes_pre_voted", peers::PeerBounds { candidates: 2, rounds: 3, pre_vote: true, ..FENCED }, Coverage::ELECTED, 6_211),
    peers("votes_of_four", peers::PeerBounds { voters: 4, candidates: 2, terms: 1, rounds: 4, ticks: Some(0), refusals: false, ..peers::PeerBounds::CALM }, Coverage::ELECTED, 222),
    peers("votes_long", peers::PeerBounds { terms: 3, rounds: 4, ..FENCED }, TAKEN_OVER | Coverage::TWO_BELIEVE, 1_569_913).large(),
    peers("votes_pre_voted_long", peers::PeerBounds { candidates: 2, rounds: 6, pre_vote: true, ..TIMED }, TAKEN_OVER, 446_264).large(),
    peers("votes_restart_long", peers::PeerBounds { candidates: 2, rounds: 4, crashes: 1, ..TIMED }, AFTER_CRASH, 395_878).large(),
    peers("votes_restart_three", peers::PeerBounds { terms: 3, rounds: 4, crashes: 1, ..TIMED }, AFTER_CRASH, 1_709_568).large(),
    peers("votes_restart_untimed", peers::PeerBounds { candidates: 2, rounds: 4, crashes: 1, ..FENCED }, AFTER_CRASH | Coverage::TWO_BELIEVE, 8_504_950).large(),
    peers("votes_two_restarts", peers::PeerBounds { candidates: 2, rounds: 4, crashes: 2, ..TIMED }, AFTER_CRASH, 6_742_975).large(),
    // Among peers, leases.
    peers("lease", LEASED, TAKEN_OVER | Coverage::RENEWED | Coverage::EXPIRED, 119_416),
    peers("lease_rounds", peers::PeerBounds { rounds: 5, ..LEASED }, TAKEN_OVER | Coverage::RENEWED, 361_852),
    peers("lease_pre_voted", peers::PeerBounds { rounds: 6, pre_vote: true, ticks: Some(3), ..LEASED }, TAKEN_OVER, 244_384),
    peers("lease_restart", peers::PeerBounds { crashes: 1, timers: Timers { round: 1, ..SHORT.timers }, ..SHORT }, AFTER_CRASH, 231_055),
    peers("lease_close", peers::PeerBounds { closes: 1, ticks: Some(2), ..LEASED }, Coverage::ELECTED, 46_336),
    peers("lease_resign", peers::PeerBounds { resignations: 1, transfers: true, job_exits: 1, ticks: Some(2), ..LEASED }, TAKEN_OVER | Coverage::RESIGNED | Coverage::JOB_EXITED, 59_366),
    peers("lease_resign_again", peers::PeerBounds { rounds: 5, terms: 3, resignations: 1, ticks: Some(1), ..SHORT }, TAKEN_OVER | Coverage::RESIGNED | Coverage::LED_OVER_EARLIER_WORK, 176_030),
    peers("lease_shorter", peers::PeerBounds { rounds: 6, terms: 4, ticks: Some(3), short_promise: Some(1), timers: Timers { promise: 2, ..SHORT.timers }, ..SHORT }, TAKEN_OVER | Coverage::LED_OVER_EARLIER_WORK, 6_204_301).large(),
    peers("lease_leave", peers::PeerBounds { rounds: 6, terms: 3, resignations: 1, ..SHORT }, TAKEN_OVER | Coverage::RESIGNED | Coverage::LED_OVER_EARLIER_WORK, 13_240_216).large(),
    peers("lease_death", peers::PeerBounds { ticks: Some(2), ..GUARDED }, AFTER_CRASH, 232_507),
    peers("lease_exit", peers::PeerBounds { ticks: Some(2), guardian_deaths: 0, job_exits: 1, ..GUARDED }, AFTER_CRASH | Coverage::JOB_EXITED, 131_854),
    peers("lease_drift_beyond", peers::PeerBounds { drift_percent: 0, ticks: None, ..DRIFTING }, Coverage::ELECTED, 484_217).breaks("I3"),
    peers("lease_long", peers::PeerBounds { rounds: 5, ticks: None, ..LEASED }, TAKEN_OVER | Coverage::RENEWED | Coverage::EXPIRED, 16_864_585).large(),
    peers("lease_three", peers::PeerBounds { candidates: 3, ..LEASED }, TAKEN_OVER, 259_888).large(),
    peers("lease_pre_voted_long", peers::PeerBounds { rounds: 6, pre_vote: true, ..LEASED }, TAKEN_OVER | Coverage::EXPIRED, 6_256_351).large(),
    peers("lease_pre_voted_restart", peers::PeerBounds { rounds: 6, pre_vote: true, crashes: 1, ticks: Some(3), ..LEASED }, AFTER_CRASH, 2_700_541).large(),
    peers("lease_restart_long", peers::PeerBounds { crashes: 1, ..LEASED }, AFTER_CRASH, 2_170_201).large(),
    peers("lease_close_long", peers::PeerBounds { closes: 1, ticks: Some(3), ..LEASED }, TAKEN_OVER, 2_098_848).large(),
    peers("lease_resign_long", peers::PeerBounds { resignations: 1, transfers: true, job_exits: 1, ..LEASED }, TAKEN_OVER | Coverage::RESIGNED | Coverage::JOB_EXITED, 4_633_116).large(),
    peers("lease_death_long", peers::PeerBounds { ticks: Some(3), ..GUARDED }, AFTER_CRASH, 4_952_106).large(),
    peers("lease_death_exit", peers::PeerBounds { ticks: Some(2), job_exits: 1, ..GUARDED }, AFTER_CRASH | Coverage::JOB_EXITED, 1_575_183).large(),
    peers("lease_exit_long", peers::PeerBounds { ticks: Some(3), guardian_deaths: 0, job_exits: 1, ..GUARDED }, AFTER_CRASH | Coverage::JOB_EXITED, 2_494_838).large(),
    peers("lease_drift", peers::PeerBounds { ticks: Some(4), ..DRIFTING }, TAKEN_OVER, 1_371_472).large(),
    // Among peers, by a majority, with arbitrary nominations.
    confirmed("confirmed_votes", peers::PeerBounds { candidates: 2, rounds: 3, ..FENCED }, Coverage::ELECTED, 282_354),
    confirmed("confirmed_restart", peers::PeerBounds { candidates: 2, rounds: 4, crashes: 1, ticks: Some(0), ..TIMED }, AFTER_CRASH, 7_736_897).large(),
    confirmed("confirmed_lease", peers::PeerBounds { ticks: Some(3), resignations: 1, transfers: true, ..LEASED }, TAKEN_OVER | Coverage::RENEWED | Coverage::RESIGNED, 11_339_420).large(),
    confirmed("confirmed_patience", peers::PeerBounds { rounds: 5, ticks: Some(3), patience: 1, ..LEASED }, TAKEN_OVER | Coverage::RENEWED | Coverage::RESIGNED, 834_394),
    confirmed("confirmed_lease_restart", peers::PeerBounds { ticks: Some(3), crashes: 1, patience: 1, ..LEASED }, AFTER_CRASH | Coverage::RENEWED, 2_400_375).large(),
    // Among peers, by rank.
    by_rank("ranked", ranked::RankedBounds { rounds: 5, ..RANKED }, SPLIT | Coverage::REFUSED, 258_473),
    by_rank("ranked_of_four", ranked::RankedBounds { voters: 4, candidates: 2, ballots: 1, rounds: 4, ..RANKED }, SPLIT, 105_291),
    by_rank("ranked_expired", ranked::RankedBounds { candidates: 2, rounds: 4, ticks: Some(1), ..RANKED }, SPLIT | Coverage::EXPIRED, 57_940),
    by_rank("ranked_restart", ranked::RankedBounds { ballots: 3, rounds: 4, crashes: 1, ..RANKED }, SPLIT | Coverage::CRASHED_BETWEEN, 220_076),
    by_rank("ranked_resign", ranked::RankedBounds { rounds: 4, resignations: 1, transfers: true, ..RANKED }, SPLIT | Coverage::RESIGNED, 62_606),
    by_rank("ranked_long", ranked::RankedBounds { rounds: 6, ..RANKED }, RANKED_OVER | Coverage::REFUSED | Coverage::DEPOSED, 1_440_027).large(),
    by_rank("ranked_expired_long", ranked::RankedBounds { candidates: 2, rounds: 6, ticks: Some(1), ..RANKED }, RANKED_OVER | Coverage::EXPIRED, 3_778_158).large(),
    by_rank("ranked_resign_long", ranked::RankedBounds { candidates: 2, rounds: 6, resignations: 1, ..RANKED }, RANKED_OVER | Coverage::RESIGNED, 4_070_639).large(),
    by_rank("ranked_restart_long", ranked::RankedBounds { ballots: 3, rounds: 5, crashes: 1, ..RANKED }, SPLIT | AFTER_CRASH | Coverage::REFUSED, 2_997_250).large(),
    by_rank("ranked_two_restarts", ranked::RankedBounds { ballots: 3, rounds: 4, crashes: 2, ..RANKED }, SPLIT | AFTER_CRASH, 915_819).large(),
    by_rank("ranked_two_restarts_long", ranked::RankedBounds { ballots: 3, rounds: 5, crashes: 2, ..RANKED }, SPLIT | AFTER_CRASH | Coverage::REFUSED, 14_128_590).large(),
    // By seniority.
    members("members_restart", membership::MembershipBounds::CALM, Coverage::ELECTED | Coverage::SETTLED, 223),
    members("members_resign", membership::MembershipBounds { resignations: 1, restarts: 0, ..membership::MembershipBounds::CALM }, Coverage::ELECTED | Coverage::DEPOSED | Coverage::RESIGNED | Coverage::SETTLED, 240),
    members("members_down", membership::MembershipBounds { downs: 1, restarts: 0, hears: 8, ..membership::MembershipBounds::CALM }, Coverage::ELECTED | Coverage::DEPOSED | Coverage::SETTLED, 6_224),
    members("members_downs", membership::MembershipBounds { downs: 2, restarts: 0, wakes: 0, hears: 6, ..membership::MembershipBounds::CALM }, Coverage::ELECTED | Coverage::DEPOSED | Coverage::RELEASED | Coverage::SETTLED, 66_649),
    members("members_down_restart", membership::MembershipBounds { downs: 1, wakes: 0, hears: 7, ..membership::MembershipBounds::CALM }, Coverage::ELECTED | Coverage::DEPOSED | Coverage::SETTLED, 37_002),
    members("members_down_resign", membership::MembershipBounds { downs: 1, resignations: 1, restarts: 0, wakes: 0, hears: 7 }, Coverage::ELECTED | Coverage::RESIGNED | Coverage::SETTLED, 60_800),
    members("members_down_long", membership::MembershipBounds { downs: 1, restarts: 0, hears: 11, ..membership::MembershipBounds::CALM }, Coverage::ELECTED | Coverage::DEPOSED | Coverage::SETTLED, 51_814).large(),
    // Over a store.
    store("store", store::StoreBounds { writes: 3, ..STORE }, TAKEN_OVER | Coverage::RENEWED, 253_248),
    store("store_unknown", store::StoreBounds { unknowns: 2, ..STORE }, TAKEN_OVER, 133_471),
    store("store_unknown_waits", store::StoreBounds { unknowns: 2, poll: 1, ..STORE }, TAKEN_OVER, 120_827),
    store("store_restart", store::StoreBounds { crashes: 1, ..STORE }, TAKEN_OVER | Coverage::TAKEN_OVER_AFTER_CRASH, 193_492),
    store("store_resign", store::StoreBounds { resignations: 1, job_exits: 1, ..STORE }, Coverage::ELECTED | Coverage::RELEASED | Coverage::JOB_EXITED, 80_322),
    store("store_deleted", store::StoreBounds { deletions: 1, ..STORE }, TAKEN_OVER, 107_706),
    store("store_created", store::StoreBounds { writes: 3, initialised: false, ..STORE }, Coverage::ELECTED, 210_254),
    store("store_late_answers", store::StoreBounds { late_answers: true, ..STORE }, TAKEN_OVER, 217_644),
    store("store_drift", store::StoreBounds { rate_max: 2, drift_percent: 100, ..STORE }, TAKEN_OVER, 115_802),
    store("store_drift_beyond", store::StoreBounds { rate_max: 2, ..STORE }, Coverage::ELECTED, 4_281).breaks("I3"),
    store("store_death", WITNESSED, TAKEN_OVER | Coverage::TAKEN_OVER_AFTER_CRASH | Coverage::GUARDIAN_DONE, 484_450),
    store("store_long", store::StoreBounds { writes: 4, ..STORE }, TAKEN_OVER | Coverage::RENEWED, 1_934_121).large(),
    store("store_three", store::StoreBounds { candidates: 3, ..STORE }, TAKEN_OVER, 1_419_286).large(),
    store("store_unknown_long", store::StoreBounds { writes: 3, unknowns: 2, ..STORE }, TAKEN_OVER | Coverage::RENEWED, 2_046_091).large(),
    store("store_restart_long", store::StoreBounds { writes: 3, crashes: 1, ..STORE }, TAKEN_OVER | Coverage::TAKEN_OVER_AFTER_CRASH, 2_309_916).large(),
    store("store_resign_long", store::StoreBounds { writes: 3, resignations: 1, job_exits: 1, ..STORE }, TAKEN_OVER | Coverage::RELEASED | Coverage::JOB_EXITED, 1_113_796).large(),
    store("store_deleted_long", store::StoreBounds { writes: 3, deletions: 1, resignations: 1, ..STORE }, TAKEN_OVER | Coverage::VIOLATION | Coverage::RELEASED, 2_472_920).large(),
    store("store_drift_long", store::StoreBounds { writes: 3, rate_max: 2, drift_percent: 100, ..STORE }, TAKEN_OVER, 1_157_052).large(),
    store("store_death_long", store::StoreBounds { guardian_deaths: 1, job_exits: 1, ..WITNESSED }, TAKEN_OVER | Coverage::TAKEN_OVER_AFTER_CRASH | Coverage::GUARDIAN_DONE | Coverage::JOB_EXITED, 3_758_540).large(),
    // Over a store, by sessions.
    sessions("session", QUEUE, TAKEN_OVER | Coverage::EXPIRED | Coverage::RELEASED, 328_088),
    sessions("session_unknown", store::StoreBounds { unknowns: 1, ..QUEUE }, TAKEN_OVER, 1_104_855).large(),
    sessions("session_restart", store::StoreBounds { crashes: 1, ..QUEUE }, Coverage::ELECTED, 1_072_120).large(),
    sessions("session_resign", store::StoreBounds { resignations: 1, job_exits: 1, ..QUEUE }, TAKEN_OVER | Coverage::RELEASED | Coverage::JOB_EXITED, 1_557_188).large(),
    sessions("session_removed", store::StoreBounds { deletions: 1, ..QUEUE }, Coverage::ELECTED | Coverage::DEPOSED, 9_424).breaks("I3"),
    sessions("session_drift", store::StoreBounds { rate_max: 2, drift_percent: 100, ..QUEUE }, TAKEN_OVER, 2_423_260).large(),
    sessions("session_drift_beyond", store::StoreBounds { rate_max: 2, ..QUEUE }, Coverage::ELECTED, 30_810).breaks("I3"),
    sessions("session_death", store::StoreBounds { crashes: 1, guardians: true, ..QUEUE }, TAKEN_OVER | Coverage::TAKEN_OVER_AFTER_CRASH | Coverage::GUARDIAN_DONE, 2_504_718).large(),
    sessions("session_long", store::StoreBounds { requests: 2, ..QUEUE }, TAKEN_OVER | Coverage::RENEWED, 4_530_892).large(),
    sessions("session_again", store::StoreBounds { writes: 3, ..QUEUE }, TAKEN_OVER, 6_292_091).large(),
    sessions("session_restart_long", store::StoreBounds { writes: 3, crashes: 1, ..QUEUE }, TAKEN_OVER | Coverage::TAKEN_OVER_AFTER_CRASH, 24_188_521).large(),
    // A log that is replicated.
    log("log", LOG, BEHIND, 32_810),
    log("log_terms", replicas::ReplicaBounds { terms: 3, ..LOG }, THREE, 705_538),
    log("log_records", replicas::ReplicaBounds { records: 2, ..LOG }, BEHIND | Coverage::KEPT | Coverage::DROPPED, 63_528),
    log("log_late", replicas::ReplicaBounds { resends: 1, ..LOG }, BEHIND, 311_978),
    log("log_restart", replicas::ReplicaBounds { crashes: 1, late: false, ..LOG }, RESTARTED, 1_079_514),
    log("log_gathers", replicas::ReplicaBounds { gathers: true, records: 0, ..LOG }, BEGUN, 59_458),
    log("log_snapshots", replicas::ReplicaBounds { keeps: false, records: 0, ..LOG }, SNAPSHOTS | BEGUN, 17_891),
    log("log_three", replicas::ReplicaBounds { terms: 3, records: 3, ..LOG }, THREE, 2_646_634).large(),
    log("log_records_long", replicas::ReplicaBounds { records: 2, each: 2, ..LOG }, BEHIND | Coverage::KEPT | Coverage::DROPPED, 3_314_172).large(),
    log("log_late_long", replicas::ReplicaBounds { terms: 3, resends: 1, ..LOG }, THREE, 7_845_065).large(),
    log("log_restart_late", replicas::ReplicaBounds { crashes: 1, ..LOG }, RESTARTED, 1_691_764).large(),
    log("log_restarts", replicas::ReplicaBounds { crashes: 2, late: false, ..LOG }, RESTARTED, 15_716_744).large(),
    log("log_restarts_terms", replicas::ReplicaBounds { terms: 3, records: 0, crashes: 2, late: false, ..LOG }, BEGUN | Coverage::CRASHED_BETWEEN, 24_949_842).large(),
    log("log_gathers_long", replicas::ReplicaBounds { gathers: true, ..LOG }, BEHIND, 2_580_064).large(),
    log("log_snapshots_long", replicas::ReplicaBounds { keeps: false, ..LOG }, SNAPSHOTS | BEHIND, 2_052_275).large(),
    log("log_snapshots_restart", replicas::ReplicaBounds { keeps: false, records: 0, crashes: 1, late: false, ..LOG }, SNAPSHOTS | BEGUN | Coverage::CRASHED_BETWEEN, 412_433).large(),
    // The same in memory.
    log("log_memory", replicas::ReplicaBounds { records: 0, crashes: 1, late: false, ..MEMORY }, RECOVERED | BEGUN, 1_556_809),
    log("log_memory_majority", replicas::ReplicaBounds { records: 0, pairs: 1, late: false, ..MEMORY }, Coverage::STANDS_STILL | BEGUN, 459_074),
    log("log_memory_accepted", replicas::ReplicaBounds { records: 0, pairs: 1, accepts: 1, late: false, ..MEMORY }, Coverage::STANDS_STILL | BEGUN, 386_516).breaks("I9"),
    log("log_memory_unaware", replicas::ReplicaBounds { records: 0, crashes: 1, recovers: false, ..MEMORY }, Coverage::ELECTED | Coverage::BEGUN, 12_887).breaks("I9"),
    log("log_memory_late", replicas::ReplicaBounds { records: 0, crashes: 1, ..MEMORY }, RECOVERED | BEGUN, 1_551_610).large(),
    log("log_memory_records", replicas::ReplicaBounds { crashes: 1, late: false, ..MEMORY }, RECOVERED | COMMITTED, 18_985_403).large(),
    log("log_memory_restarts", replicas::ReplicaBounds { records: 0, crashes: 2, late: false, ..MEMORY }, RECOVERED | BEGUN | Coverage::CRASHED_BETWEEN, 5_658_820).large(),
    log("log_memory_terms", replicas::ReplicaBounds { terms: 3, records: 0, crashes: 1, late: false, ..MEMORY }, RECOVERED | BEGUN | Coverage::CRASHED_BETWEEN, 102_508_105).large(),
    // The same on a disk that may be lost.
    log("log_disk", replicas::ReplicaBounds { records: 0, disks: 1, late: false, ..LOG }, DISK_LOST | BEGUN, 1_704_496).large(),
    log("log_disk_unaware", replicas::ReplicaBounds { records: 0, disks: 1, recovers: false, late: false, ..LOG }, Coverage::BEGUN | Coverage::DISK_LOST, 11_831).breaks("I9"),
    log("log_disk_records", replicas::ReplicaBounds { disks: 1, late: false, ..LOG }, DISK_LOST | COMMITTED, 20_767_695).large(),
    log("log_disk_restart", replicas::ReplicaBounds { records: 0, crashes: 1, only_recovering: true, disks: 1, late: false, ..LOG }, DISK_LOST | BEGUN | Coverage::CRASHED_BETWEEN, 5_426_480).large(),
    log("log_disk_terms", replicas::ReplicaBounds { terms: 3, records: 0, disks: 1, late: false, ..LOG }, DISK_LOST | BEGUN, 117_043_634).large(),
];
