//! A node's disk: one durable slot, the count of its starts, and what can go wrong with them.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::Duration;

use crate::node::Seat;

/// What becomes of a write that a crash meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetByCrash {
    /// Nothing of it is found afterwards.
    Lost,
    /// It is found afterwards, though nobody was told.
    Kept,
}

/// What a node remembers of the disk of another one.
#[derive(Clone, Debug, Default)]
pub struct PeerDisk {
    /// The id of the one that counts.
    pub id: u64,
    /// An operator has readmitted that node with it.
    pub readmitted: bool,
    /// Those that were replaced, which never come back.
    pub former: BTreeSet<u64>,
}

/// The disk of one node.
#[derive(Clone, Debug)]
pub struct Disk<D> {
    /// Its place among the disks that the node has had, from 1 on.
    pub number: usize,
    /// The random number that was made with the state directory, by which a wiped disk is noticed.
    pub id: u64,
    /// How often a process has started from it.
    pub starts: u64,
    /// What all that was written comes to.
    pub slot: Option<D>,
    /// What that was before the last write, where that would replace it as a whole.
    pub before: Option<D>,
    /// How often something was written.
    pub writes: u64,
    /// The disks of the other nodes, as this node knows them.
    pub peers: BTreeMap<Seat, PeerDisk>,
    /// How long a write takes until it would survive a power cut.
    pub latency: Duration,
    /// Every write fails, as on a full disk.
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
            slot: None,
            before: None,
            writes: 0,
            peers: BTreeMap::new(),
            latency,
            failing: false,
        }
    }
}
