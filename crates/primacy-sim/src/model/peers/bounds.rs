//! The bounds of a search among peers.

use primacy_core::election::quorum::Safety;

/// The bounds of a search. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct PeerBounds {
    /// The promised safety.
    pub safety: Safety,
    /// The number of voters, three or four. With four, a candidate needs more than one vote beside its own.
    pub voters: u8,
    /// The number of voters that campaign; the others only vote.
    pub candidates: u8,
    /// The highest term.
    pub terms: u8,
    /// The number of vote rounds and heartbeats that all nodes together may begin.
    pub rounds: u8,
    /// The number of ticks that may pass; `None` for any number.
    pub ticks: Option<u8>,
    /// The number of times that a process crashes, between any two effects, and restarts with its disk.
    pub crashes: u8,
    /// The number of times that an operator makes a leader resign or transfer.
    pub resignations: u8,
    /// True if transfers are searched in addition to resignations.
    pub transfers: bool,
    /// The number of times that a connection closes and reopens.
    pub closes: u8,
    /// True if each node has a guardian, which outlives the process and reports its death, and a job, which ends with
    /// the guardian at the latest. Without guardians the work ends with the process.
    pub guardians: bool,
    /// The number of times that a guardian dies.
    pub guardian_deaths: u8,
    /// The number of times that the job of a leader ends by itself.
    pub job_exits: u8,
    /// The maximum number of its own ticks by which a clock may advance during one tick of true time; at least one.
    pub rate_max: u8,
    /// The bound on drift in the nodes' configuration: half the rate of true time is 100 %.
    pub drift_percent: u32,
    /// The timers.
    pub timers: Timers,
    /// The promise of the second candidate in ticks, if it differs from the others'.
    pub short_promise: Option<u8>,
    /// For elections with a nomination: the number of ticks until a leader hands over to another nominee, and until
    /// all nodes campaign without one.
    pub patience: u8,
    /// True if refusals of a candidate may arrive. Without them, there are fewer states.
    pub refusals: bool,
    /// True if candidates ask for pre-votes before they take a term. Without pre-votes, more behaviour is possible,
    /// and there are fewer states.
    pub pre_vote: bool,
}

/// The timers of all nodes, in ticks. A node may delay any action for any time, so there are no random waits: a zero
/// wait and a late process together produce every wait.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// The time between heartbeats of a leader.
    pub heartbeat: u8,
    /// The number of heartbeats that may be missed.
    pub misses: u8,
    /// The duration of a promise, or of a leader's belief under `safety = fenced`.
    pub promise: u8,
    /// The time that a candidate waits for answers.
    pub round: u8,
}

impl PeerBounds {
    /// Message delay and loss and process pauses, but no other faults.
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
