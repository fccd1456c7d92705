//! The spaces that are searched: each with its bounds, what must be seen in it, and how many states it has.
//!
//! In every space three things are without a bound: how late a process is with anything, how much time passes, and, among
//! peers, how often and in which order a message comes.

use primacy_core::election::quorum::Safety;

use super::mark::Marks;
use super::search::{Searched, search};
use super::{lease, quorum};
use crate::model::quorum::Timers;

/// A space, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name: what it is about.
    pub name: &'static str,
    /// Whether it is searched with every test run.
    pub small: bool,
    /// Its bounds.
    pub bounds: Bounds,
    /// What must be reached in it.
    pub sometimes: u64,
    /// The invariant that must be found broken in it, because its bounds break an assumption.
    pub breaks: Option<&'static str>,
    /// How many states it has. A search that finds fewer has become blind, one that finds more must be looked at.
    pub states: u64,
}

/// The bounds of a space.
#[derive(Clone, Copy, Debug)]
pub enum Bounds {
    /// Among peers.
    Quorum(quorum::Space),
    /// Over a store.
    Lease(lease::Space),
}

impl Row {
    /// Searches it.
    #[must_use]
    pub fn search(&self, states_max: u64) -> Searched {
        match self.bounds {
            Bounds::Quorum(space) => search(&mut quorum::Peers::new(space), states_max),
            Bounds::Lease(space) => search(&mut lease::Contenders::new(space), states_max),
        }
    }

    /// What is wrong with what was found; nothing, if all is as it should be.
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
        wrong.extend(Marks(self.sometimes).missing(found.reached).map(|mark| format!("never reached: {mark}")));
        if found.states != self.states {
            wrong.push(format!("{} states, and there were {}", found.states, self.states));
        }
        wrong
    }
}

const FENCED: quorum::Space = quorum::Space {
    // Without deadlines everything may happen at any time; only the end of a belief waits for a tick.
    timers: Timers { heartbeat: 0, misses: 1, promise: 1, round: 0 },
    refusals: false,
    ..quorum::Space::CALM
};

const LEASED: quorum::Space = quorum::Space {
    safety: Safety::Lease,
    candidates: 2,
    rounds: 4,
    timers: Timers { heartbeat: 1, misses: 1, promise: 2, round: 1 },
    refusals: false,
    ..quorum::Space::CALM
};

/// Clocks of which one runs up to twice as fast as another, and nodes that know it.
const DRIFTING: quorum::Space = quorum::Space {
    rate_max: 2,
    drift_percent: 100,
    timers: Timers { heartbeat: 1, misses: 1, promise: 4, round: 1 },
    ..LEASED
};

const STORE: lease::Space = lease::Space::CALM;

const fn peers(name: &'static str, small: bool, space: quorum::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small, bounds: Bounds::Quorum(space), sometimes, breaks: None, states }
}

const fn store(name: &'static str, small: bool, space: lease::Space, sometimes: u64, states: u64) -> Row {
    Row { name, small, bounds: Bounds::Lease(space), sometimes, breaks: None, states }
}

/// All of them.
pub const SPACES: &[Row] = &[
    // Among peers, tokens only.
    peers("votes", true, quorum::Space { terms: 3, rounds: 3, ..FENCED }, Marks::ELECTED | Marks::DEPOSED, 0),
    peers(
        "votes_refused",
        true,
        quorum::Space { candidates: 2, rounds: 3, refusals: true, ..FENCED },
        Marks::ELECTED | Marks::REFUSED,
        0,
    ),
    peers(
        "votes_restart",
        true,
        quorum::Space { candidates: 2, terms: 2, rounds: 2, crashes: 1, ..FENCED },
        Marks::ELECTED | Marks::CRASHED_BETWEEN,
        0,
    ),
    peers(
        "votes_pre_voted",
        true,
        quorum::Space { candidates: 2, terms: 2, rounds: 3, pre_vote: true, ..FENCED },
        Marks::ELECTED,
        0,
    ),
    // Among peers, leases.
    peers("lease", true, LEASED, Marks::RENEWED | Marks::TAKEN_OVER | Marks::EXPIRED, 0),
    peers("lease_restart", false, quorum::Space { crashes: 1, ..LEASED }, Marks::TAKEN_OVER, 0),
    peers("lease_drift", false, DRIFTING, Marks::TAKEN_OVER, 0),
    Row {
        breaks: Some("I3"),
        ..peers("lease_drift_beyond", true, quorum::Space { drift_percent: 0, ..DRIFTING }, Marks::ELECTED, 0)
    },
    peers(
        "lease_resign",
        false,
        quorum::Space { resignations: 1, transfers: true, ..LEASED },
        Marks::RESIGNED | Marks::TAKEN_OVER,
        0,
    ),
    peers("lease_close", false, quorum::Space { closes: 1, ..LEASED }, Marks::TAKEN_OVER, 0),
    peers("lease_death", false, quorum::Space { crashes: 1, guardians: true, guardian_deaths: 1, ..LEASED }, Marks::TAKEN_OVER, 0),
    // Over a store.
    store("store", true, STORE, Marks::RENEWED | Marks::TAKEN_OVER, 0),
    store("store_unknown", true, lease::Space { writes: 3, unknowns: 1, ..STORE }, Marks::TAKEN_OVER, 0),
    store("store_restart", false, lease::Space { writes: 3, crashes: 1, ..STORE }, Marks::TAKEN_OVER, 0),
    store("store_resign", true, lease::Space { writes: 3, resignations: 1, ..STORE }, Marks::RELEASED, 0),
    store("store_deleted", false, lease::Space { writes: 3, deletions: 1, ..STORE }, Marks::VIOLATION, 0),
    store("store_created", true, lease::Space { writes: 3, initialised: false, ..STORE }, Marks::ELECTED, 0),
    store("store_late_answers", true, lease::Space { writes: 2, late_answers: true, ..STORE }, Marks::ELECTED, 0),
    store("store_drift", false, lease::Space { writes: 3, rate_max: 2, drift_percent: 100, ..STORE }, Marks::TAKEN_OVER, 0),
    Row {
        breaks: Some("I3"),
        ..store("store_drift_beyond", true, lease::Space { writes: 2, rate_max: 2, ..STORE }, Marks::ELECTED, 0)
    },
    store(
        "store_death",
        false,
        lease::Space { writes: 2, crashes: 1, guardians: true, guardian_deaths: 1, ..STORE },
        Marks::ERRAND_DONE | Marks::TAKEN_OVER,
        0,
    ),
    store("store_three", false, lease::Space { candidates: 3, writes: 3, ..STORE }, Marks::TAKEN_OVER, 0),
];
