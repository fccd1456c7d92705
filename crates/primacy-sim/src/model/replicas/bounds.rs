//! The bounds of a search among replicas.

use primacy_core::hard_state::Durability;

/// The bounds of a search.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaBounds {
    /// The durability of a record that a node holds.
    pub durability: Durability,
    /// The highest term.
    pub terms: u8,
    /// The number of payloads to be written, in all terms together.
    pub records: u8,
    /// The number of payloads that one leader writes.
    pub each: u8,
    /// The number of times that a process crashes, between any two effects or in the middle of a write, and restarts.
    pub crashes: u8,
    /// True if only processes crash that have lost their log and have not recovered yet.
    pub only_recovering: bool,
    /// The number of times that two processes crash at once. With logs in memory this violates the assumptions.
    pub pairs: u8,
    /// The number of times that a process ends and the next one starts without the log on its disk. The node knows
    /// that its log is lost, until it has recorded its recovery.
    pub disks: u8,
    /// The number of resends after an overdue answer.
    pub resends: u8,
    /// True if messages and writes are batched with later ones. Otherwise, they are sent and written at once.
    pub gathers: bool,
    /// True if applied records stay in memory for followers that lag. Otherwise, such a follower needs a snapshot.
    pub keeps: bool,
    /// True if a message may arrive at a process whose predecessor has received it before.
    pub late: bool,
    /// The maximum number of nodes without their logs at a time, until a pair has crashed. More than one of three
    /// violates the assumptions.
    pub lost: u8,
    /// True if a node that has lost its log knows that, and recovers before its acknowledgements count.
    pub recovers: bool,
    /// The number of times that an operator lets a node go on with its log, after a majority has lost its logs at
    /// once.
    pub accepts: u8,
}

impl ReplicaBounds {
    /// Message delay, doubling and loss and process pauses, but no other faults.
    pub const CALM: Self = Self {
        durability: Durability::Fsync,
        terms: 2,
        records: 1,
        each: 1,
        crashes: 0,
        only_recovering: false,
        pairs: 0,
        disks: 0,
        resends: 0,
        gathers: false,
        keeps: true,
        late: true,
        lost: 1,
        recovers: true,
        accepts: 0,
    };
}
