//! The bounds of a search among peers.

use primacy_core::election::quorum::Safety;

/// The bounds of a search. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct PeerBounds {
    /// The promised safety.
    pub safety: Safety,
    /// The number of nodes that vote, three or four. With four, a majority is more than one vote beside one's
    /// own.
    pub voters: u8,
    /// The number of them that campaign; the others only vote.
    pub candidates: u8,
    /// The highest term.
    pub terms: u8,
    /// The number of rounds of questions and heartbeats that all nodes together may begin.
    pub rounds: u8,
    /// The number of ticks that may pass; `None` for any number.
    pub ticks: Option<u8>,
    /// The number of times that a process crashes, anywhere between two effects, and starts again with its
    /// disk.
    pub crashes: u8,
    /// The number of times that an operator has a leader resign or transfer.
    pub resignations: u8,
    /// True if these are transfers too.
    pub transfers: bool,
    /// The number of times that a connection is closed, and made again.
    pub closes: u8,
    /// True if each node has a guardian, which outlives it and reports its death, and a job, which outlives
    /// it and not the guardian. Without one the work ends with the process.
    pub guardians: bool,
    /// The number of times that a guardian dies.
    pub guardian_deaths: u8,
    /// The number of times that the job of a leader ends by itself.
    pub job_exits: u8,
    /// The maximum number of its own ticks by which a clock may move while one passes; at least one.
    pub rate_max: u8,
    /// The bound on drift that the nodes are configured with: one half of the clock's rate is 100 %.
    pub drift_percent: u32,
    /// The timers.
    pub timers: Timers,
    /// The promise of the second candidate in ticks, if it differs from the others'.
    pub short_promise: Option<u8>,
    /// The number of ticks that a leader waits until it hands over to another nominee, and all nodes until
    /// all campaign; for elections with a nomination.
    pub patience: u8,
    /// True if refusals of a candidate may ever arrive. Without them, there is less to search.
    pub refusals: bool,
    /// True if candidates ask for pre-votes before they take a term. Without, more can happen, and there is
    /// less to search.
    pub pre_vote: bool,
}

/// The timers of all nodes, in ticks. A node may be late by any time with all that it does, so there are no random
/// waits: a wait of nothing and a late process are every wait.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// The time between heartbeats of a leader.
    pub heartbeat: u8,
    /// The number of heartbeats that may be missed.
    pub misses: u8,
    /// The time for which an answer binds, or a leader under `safety = fenced` believes.
    pub promise: u8,
    /// The time that a candidate waits for answers.
    pub round: u8,
}

impl PeerBounds {
    /// No faults but late or lost messages and paused processes.
    pub const CALM: Self = Self {
        safety: Safety::Fenced,
        voters: 3,
        candidates: 3,
        terms: 2,
        rounds: 2,
        ticks: None,
        crashes: 0,
        resignations: 0,
        transfers: false,
        closes: 0,
        guardians: false,
        guardian_deaths: 0,
        job_exits: 0,
        rate_max: 1,
        drift_percent: 0,
        timers: Timers { heartbeat: 1, misses: 1, promise: 1, round: 1 },
        short_promise: None,
        patience: 0,
        refusals: true,
        pre_vote: false,
    };
}
