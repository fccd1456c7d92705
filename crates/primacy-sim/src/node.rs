//! A node: the part of it that survives a crash, and the process that does not.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use primacy_core::membership::View;
use primacy_core::{Identity, Input, Leader, Mandate, NodeId};

use crate::algorithm::Algorithm;
use crate::clock::{Clock, Moment};
use crate::disk::{Disk, MetByCrash};

/// The number of a place where a process runs: a node, or the guardian of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(pub usize);

/// One node.
#[derive(Debug)]
pub struct Node<A: Algorithm> {
    /// Its name.
    pub name: NodeId,
    /// What is set for it; a running process keeps what it was started with.
    pub settings: A::Settings,
    /// The voters that its configuration names.
    pub voters: BTreeSet<NodeId>,
    /// Its disk.
    pub disk: Disk<A::Kept>,
    /// The disks that it has had and that are not in place.
    pub shelf: Vec<Disk<A::Kept>>,
    /// Its clock, which is the host's: it goes on while the process is down.
    pub clock: Clock,
    /// Whether its process is told to stand as soon as it starts.
    pub campaigns: bool,
    /// What its latest leadership was given, and which leadership of the world that was: what its work would write
    /// with, also when it is a leader no more.
    pub mandate: Option<(Mandate, u64)>,
    /// Whom it has named as leader.
    pub leader: Option<Leader>,
    /// Its work does not end when it is told to drain.
    pub busy: bool,
    /// Its guardian is alive.
    pub guarded: bool,
    /// It crashes when it next begins a write.
    pub crash_at_write: Option<MetByCrash>,
}

/// A process.
#[derive(Debug)]
pub struct Process<A: Algorithm> {
    /// Who it is to others.
    pub me: Identity,
    /// Who it is to the world: no two processes of a run have the same number.
    pub life: u64,
    /// Its machine.
    pub machine: A::Machine,
    /// What has come and was not taken yet.
    pub inbox: VecDeque<Input<A::Message>>,
    /// It takes what has come, and its deadline waits.
    pub taking: bool,
    /// The write that is under way. No input is taken and no later effect is begun until it is done.
    pub writing: Option<A::Durable>,
    /// It was stopped, and takes nothing.
    pub paused: bool,
    /// The view that it had when that was last looked at.
    pub view: Option<Arc<View>>,
    /// When it is to be woken for its deadline.
    pub wake_at: Option<Moment>,
}
