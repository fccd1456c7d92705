//! The bounds of a search over a store.

/// What is searched: how much of everything there may be. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// How many stand, up to three.
    pub candidates: u8,
    /// How many writes all together may ask for; where there are sessions, how many of these.
    pub writes: u8,
    /// How many requests of one node may be under way unserved; of more, the oldest is lost.
    pub requests: u8,
    /// How many answers to one node may be under way; of more, the oldest is lost.
    pub replies: u8,
    /// Whether the answer to a request that was given up may still come. Without, there is less to search.
    pub late_answers: bool,
    /// How often the answer to a write is that nobody knows, whether it was done or not.
    pub unknowns: u8,
    /// How often a process crashes and starts again, or with guardians stays away until it starts.
    pub crashes: u8,
    /// How often a holder is asked to resign.
    pub resignations: u8,
    /// How often somebody deletes the record, or takes the first entry out of the queue.
    pub deletions: u8,
    /// Whether there is a record at the beginning, which nobody holds. Of a queue this says nothing.
    pub initialised: bool,
    /// Each node has a guardian, which ends the job of a dead process and then lets go for it.
    pub guardians: bool,
    /// How often a guardian dies, and the job with it.
    pub guardian_deaths: u8,
    /// How often the job of a holder ends by itself.
    pub job_exits: u8,
    /// By how many ticks of its own each clock may move while one passes: from one to this many.
    pub rate_max: u8,
    /// The bound on drift that the nodes are configured with.
    pub drift_percent: u32,
    /// How long a lease is, or a session.
    pub duration: u8,
    /// After how long the holder renews.
    pub renew: u8,
    /// After how long an answer is not waited for any more.
    pub request_timeout: u8,
    /// How long whoever has nothing to write waits before it looks again, and whoever does not know what became of two writes
    /// before it writes again. With 0 the second of these never happens.
    pub poll: u8,
}

impl Space {
    /// Nothing goes wrong but that messages are late or lost and processes are paused.
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

    /// The same where there are sessions, of which so many may be begun.
    pub const CALM_SESSIONS: Self = Self { writes: 2, requests: 1, ..Self::CALM };
}
