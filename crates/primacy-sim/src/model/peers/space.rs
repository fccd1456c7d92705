//! The bounds of a search among peers.

use primacy_core::election::quorum::Safety;

/// What is searched: how much of everything there may be. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// What is promised.
    pub safety: Safety,
    /// How many nodes vote, three or four. With four, a majority is more than one vote beside one's own.
    pub voters: u8,
    /// How many of them stand; the others only vote.
    pub candidates: u8,
    /// The highest term.
    pub terms: u8,
    /// How many rounds of questions and heartbeats all nodes together may begin.
    pub rounds: u8,
    /// How many ticks may pass; `None` for any number.
    pub ticks: Option<u8>,
    /// How often a process crashes, anywhere between two effects, and starts again with its disk.
    pub crashes: u8,
    /// How often an operator has a leader resign or transfer.
    pub resignations: u8,
    /// Whether these are transfers too.
    pub transfers: bool,
    /// How often a connection is closed, and made again.
    pub closes: u8,
    /// Each node has a guardian, which outlives it and tells of its death, and a job, which outlives it and not the
    /// guardian. Without one the work ends with the process.
    pub guardians: bool,
    /// How often a guardian dies.
    pub guardian_deaths: u8,
    /// How often the job of a leader ends by itself.
    pub job_exits: u8,
    /// By how many ticks of its own each clock may move while one passes: from one to this many.
    pub rate_max: u8,
    /// The bound on drift that the nodes are configured with: one half of the clock's rate is 100 %.
    pub drift_percent: u32,
    /// The timers.
    pub timers: Timers,
    /// For how many ticks the second candidate promises, if not for as long as the others.
    pub short_promise: Option<u8>,
    /// For how many ticks a leader waits until it hands over to another nominee, and everybody until all stand; where one nominates.
    pub patience: u8,
    /// Whether an answer that says no to a candidate may ever come. Without, there is less to search.
    pub refusals: bool,
    /// Whether candidates ask before they take a term. Without, more can happen, and there is less to search.
    pub pre_vote: bool,
}

/// The timers of all nodes, in ticks. A node may be late by any time with all that it does, so there are no random
/// waits: a wait of nothing and a late process are every wait.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// How often a leader shows itself.
    pub heartbeat: u8,
    /// How many heartbeats may be missed.
    pub misses: u8,
    /// For how long an answer binds, or a leader under `safety = fenced` believes.
    pub promise: u8,
    /// How long a candidate waits for answers.
    pub round: u8,
}

impl Space {
    /// Nothing goes wrong but that messages are late or lost and processes are paused.
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
