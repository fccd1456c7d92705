//! A node: the part of it that survives a crash, and the process that does not.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use primacy_core::membership::View;
use primacy_core::{Identity, Input, Leader, Mandate, NodeId};

use crate::algorithm::Algorithm;
use crate::clock::{Clock, Moment};
use crate::disk::{Disk, MetByCrash};

/// One node.
#[derive(Debug)]
pub struct Node<A: Algorithm> {
    /// Its name.
    pub name: NodeId,
    /// Its settings; a running process keeps those with which it was started.
    pub settings: A::Settings,
    /// The voters that its configuration names.
    pub voters: BTreeSet<NodeId>,
    /// Its disk.
    pub disk: Disk<A::Kept>,
    /// Its former disks.
    pub shelf: Vec<Disk<A::Kept>>,
    /// The clock of its host, which goes on while the process is down.
    pub clock: Clock,
    /// True if its process campaigns as soon as it starts.
    pub campaigns: bool,
    /// The mandate of its latest leadership, and the number of that leadership in the world. Its work writes with
    /// these, even after the leadership.
    pub mandate: Option<(Mandate, u64)>,
    /// The leader that it last named.
    pub leader: Option<Leader>,
    /// True if its work does not end when told to drain.
    pub busy: bool,
    /// True if its guardian is alive.
    pub guarded: bool,
    /// The fate of the write at which it will crash: the next one.
    pub crash_at_write: Option<MetByCrash>,
}

/// A process.
#[derive(Debug)]
pub struct Process<A: Algorithm> {
    /// Its identity.
    pub me: Identity,
    /// Its number in the world, which no other process of the run has.
    pub life: u64,
    /// Its machine.
    pub machine: A::Machine,
    /// The inputs that it has not handled yet.
    pub inbox: VecDeque<Input<A::Message>>,
    /// True if it is handling pending inputs, which come before its deadline.
    pub taking: bool,
    /// The write under way. No input is handled and no later effect begins until it is done.
    pub writing: Option<A::Durable>,
    /// True if it is paused, and handles no input.
    pub paused: bool,
    /// Its view of the members when last checked.
    pub view: Option<Arc<View>>,
    /// The moment of its next wake-up for its deadline.
    pub wake_at: Option<Moment>,
}
