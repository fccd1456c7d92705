//! The bounds of a search among replicas.

use primacy_core::metadata::replica::Durability;

/// What is searched: how much of everything there may be.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// What it means that a node holds a record.
    pub durability: Durability,
    /// The highest term.
    pub terms: u8,
    /// How many payloads are to be written, in all terms together.
    pub records: u8,
    /// How many of them one leader writes.
    pub each: u8,
    /// How often a process crashes, anywhere between two effects or in the middle of a write, and starts again.
    pub crashes: u8,
    /// Whether only those processes crash that have lost their log, and have not recovered.
    pub only_recovering: bool,
    /// How often two processes crash at once. With their logs in memory that is more than is assumed.
    pub pairs: u8,
    /// How often a process ends and another one starts without the log that was on its disk. It knows that its log is lost, until it
    /// has written down that it is whole again.
    pub disks: u8,
    /// How often something is said again because no answer has come in time.
    pub resends: u8,
    /// Whether what is to be sent and written waits for whatever else may come. Without, it is sent and written at once.
    pub gathers: bool,
    /// Whether applied records stay in memory for those who are behind. Without, whoever is behind needs a snapshot.
    pub keeps: bool,
    /// Whether what one process has taken may come again to the next one of its node, which has lost it.
    pub late: bool,
    /// How many nodes may be without their logs at a time, else. More than one of three is more than is assumed.
    pub lost: u8,
    /// Whether a node that has lost its log knows it, and so recovers before it counts.
    pub recovers: bool,
    /// How often an operator has a node go on with what it has, after a majority has lost its logs at once.
    pub accepts: u8,
}

impl Space {
    /// Nothing goes wrong but that messages are late, doubled or lost, and processes are paused.
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
