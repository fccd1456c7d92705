//! The bounds of a search over a store.

/// The bounds of a search. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct StoreBounds {
    /// The number of candidates, up to three.
    pub candidates: u8,
    /// The number of writes that all together may request; where there are sessions, the number of these.
    pub writes: u8,
    /// The number of requests of one node that may be under way unserved; of more, the oldest is lost.
    pub requests: u8,
    /// The number of answers to one node that may be under way; of more, the oldest is lost.
    pub replies: u8,
    /// True if the answer to a request that was given up may still come. Otherwise, there is less to search.
    pub late_answers: bool,
    /// The number of writes whose answer is that the outcome is unknown, whether it was done or not.
    pub unknowns: u8,
    /// The number of times that a process crashes and starts again, or with guardians stays away until it
    /// starts.
    pub crashes: u8,
    /// The number of times that a holder is asked to resign.
    pub resignations: u8,
    /// The number of times that an operator deletes the record, or takes the first entry out of the queue.
    pub deletions: u8,
    /// True if there is a record without a holder at the beginning. Not used for a queue.
    pub initialised: bool,
    /// True if each node has a guardian, which ends the job of a dead process and then releases its lead.
    pub guardians: bool,
    /// The number of times that a guardian dies, and the job with it.
    pub guardian_deaths: u8,
    /// The number of times that the job of a holder ends by itself.
    pub job_exits: u8,
    /// The maximum number of its own ticks by which a clock may move while one passes; at least one.
    pub rate_max: u8,
    /// The bound on drift that the nodes are configured with.
    pub drift_percent: u32,
    /// The duration of a lease, or of a session.
    pub duration: u8,
    /// The time after which the holder renews.
    pub renew: u8,
    /// The time after which an answer is not waited for any more.
    pub request_timeout: u8,
    /// The time that a node without anything to write waits before it reads again, and that a node with two
    /// unknown writes waits before it writes again. With 0 the second of these never happens.
    pub poll: u8,
}

impl StoreBounds {
    /// No faults but late or lost messages and paused processes.
    pub const CALM: Self = Self {
        candidates: 2,
        writes: 4,
        requests: 2,
        replies: 1,
        late_answers: false,
        unknowns: 0,
        crashes: 0,
        resignations: 0,
        deletions: 0,
        initialised: true,
        guardians: false,
        guardian_deaths: 0,
        job_exits: 0,
        rate_max: 1,
        drift_percent: 0,
        duration: 2,
        renew: 1,
        request_timeout: 1,
        poll: 0,
    };

    /// The same for sessions, of which so many may be begun.
    pub const CALM_SESSIONS: Self = Self { writes: 2, requests: 1, ..Self::CALM };
}
