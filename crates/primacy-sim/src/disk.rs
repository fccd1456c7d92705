//! A node's disk: its durable contents, the count of its starts, and its faults.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::Duration;

use crate::process_slot::ProcessSlot;

/// The outcome of a write that is under way when the process crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetByCrash {
    /// The write is lost.
    Lost,
    /// The write is on the disk, although the process never learned that it was done.
    Kept,
}

/// One node's record of another node's disk.
#[derive(Clone, Debug, Default)]
pub struct PeerDisk {
    /// The id of the current disk.
    pub id: u64,
    /// True if an operator has readmitted that node with it.
    pub readmitted: bool,
    /// The replaced disks, which never come back.
    pub former: BTreeSet<u64>,
}

/// The disk of one node.
#[derive(Clone, Debug)]
pub struct Disk<D> {
    /// Its number among the disks that the node has had, from 1 on.
    pub number: usize,
    /// The random number of the state directory, by which peers notice a wiped disk.
    pub id: u64,
    /// The number of processes that have started from it.
    pub starts: u64,
    /// The accumulated contents of all writes.
    pub contents: Option<D>,
    /// The contents before the last write, if each write replaces all contents.
    pub before: Option<D>,
    /// The number of writes.
    pub writes: u64,
    /// This node's records of the other nodes' disks.
    pub peers: BTreeMap<ProcessSlot, PeerDisk>,
    /// The time until a write is durable.
    pub latency: Duration,
    /// True if every write fails, as on a full disk.
    pub failing: bool,
}

impl<D: Clone> Disk<D> {
    /// An empty disk.
    #[must_use]
    pub const fn new(number: usize, id: u64, latency: Duration) -> Self {
        Self {
            number,
            id,
            starts: 0,
            contents: None,
            before: None,
            writes: 0,
            peers: BTreeMap::new(),
            latency,
            failing: false,
        }
    }
}
