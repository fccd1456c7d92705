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
    /// The number of them that one leader writes.
    pub each: u8,
    /// The number of times that a process crashes, anywhere between two effects or in the middle of a write,
    /// and starts again.
    pub crashes: u8,
    /// True if only processes crash that have lost their log, and have not recovered.
    pub only_recovering: bool,
    /// The number of times that two processes crash at once. With logs in memory that breaks the assumptions.
    pub pairs: u8,
    /// The number of times that a process ends and another one starts without the log on its disk. It knows
    /// that its log is lost, until it has written down that it is whole again.
    pub disks: u8,
    /// The number of resends for want of an answer in time.
    pub resends: u8,
    /// True if messages and writes wait to be gathered with later ones. Otherwise, they are sent and written
    /// at once.
    pub gathers: bool,
    /// True if applied records stay in memory for followers that are behind. Otherwise, such a follower needs
    /// a snapshot.
    pub keeps: bool,
    /// True if a message that one process has taken may arrive again at the next one of its node, which has
    /// lost it.
    pub late: bool,
    /// The number of nodes that may be without their logs at a time, until a pair has crashed. More than one
    /// of three breaks the assumptions.
    pub lost: u8,
    /// True if a node that has lost its log knows it, and so recovers before it counts.
    pub recovers: bool,
    /// The number of times that an operator has a node go on with its log, after a majority has lost its logs
    /// at once.
    pub accepts: u8,
}

impl ReplicaBounds {
    /// No faults but late, doubled or lost messages and paused processes.
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
