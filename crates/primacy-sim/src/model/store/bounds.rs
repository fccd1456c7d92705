//! The bounds of a search over a store.

/// The bounds of a search. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct StoreBounds {
    /// The number of candidates, up to three.
    pub candidates: u8,
    /// The number of writes that all nodes together may request; with sessions, the number of sessions.
    pub writes: u8,
    /// The maximum number of a node's requests that wait to be served; further ones displace the oldest.
    pub requests: u8,
    /// The maximum number of answers under way to a node; further ones displace the oldest.
    pub replies: u8,
    /// True if the answer to an abandoned request may still arrive. Without such answers, there are fewer states.
    pub late_answers: bool,
    /// The number of writes that are answered with an unknown outcome, whether they were done or not.
    pub unknowns: u8,
    /// The number of times that a process crashes. It restarts at once, or with guardians at any later time.
    pub crashes: u8,
    /// The number of times that a holder is told to resign.
    pub resignations: u8,
    /// The number of times that an operator deletes the record, or removes the first entry from the queue.
    pub deletions: u8,
    /// True if the store begins with a record without a holder. Not used for a queue.
    pub initialised: bool,
    /// True if each node has a guardian, which ends the job of a dead process and then releases its lead.
    pub guardians: bool,
    /// The number of times that a guardian dies, and the job with it.
    pub guardian_deaths: u8,
    /// The number of times that the job of a holder ends by itself.
    pub job_exits: u8,
    /// The maximum number of its own ticks by which a clock may advance during one tick of true time; at least one.
    pub rate_max: u8,
    /// The bound on drift in the nodes' configuration.
    pub drift_percent: u32,
    /// The duration of a lease, or of a session.
    pub duration: u8,
    /// The time after which the holder renews.
    pub renew: u8,
    /// The time after which a node abandons a request.
    pub request_timeout: u8,
    /// The time that a node with nothing to write waits before it reads again, and that a node with two unknown
    /// writes waits before it writes again. With 0 the second wait never happens.
    pub poll: u8,
}

impl StoreBounds {
    /// Message delay and loss and process pauses, but no other faults.
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

    /// The same for sessions; `writes` bounds the number of sessions.
    pub const CALM_SESSIONS: Self = Self { writes: 2, requests: 1, ..Self::CALM };
}
