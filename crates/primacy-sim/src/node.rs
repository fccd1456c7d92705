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
    /// Its settings; a running process keeps those that it was started with.
    pub settings: A::Settings,
    /// The voters that its configuration names.
    pub voters: BTreeSet<NodeId>,
    /// Its disk.
    pub disk: Disk<A::Kept>,
    /// The disks that it has had before.
    pub shelf: Vec<Disk<A::Kept>>,
    /// Its clock, which is the host's: it goes on while the process is down.
    pub clock: Clock,
    /// True if its process is told to campaign as soon as it starts.
    pub campaigns: bool,
    /// The mandate of its latest leadership, and its number in the world: its work writes with these, also
    /// when it does not lead any more.
    pub mandate: Option<(Mandate, u64)>,
    /// The leader that it has named.
    pub leader: Option<Leader>,
    /// True if its work does not end when it is told to drain.
    pub busy: bool,
    /// True if its guardian is alive.
    pub guarded: bool,
    /// Set if it crashes when it next begins a write.
    pub crash_at_write: Option<MetByCrash>,
}

/// A process.
#[derive(Debug)]
pub struct Process<A: Algorithm> {
    /// Its identity to others.
    pub me: Identity,
    /// Its number in the world: no two processes of a run have the same number.
    pub life: u64,
    /// Its machine.
    pub machine: A::Machine,
    /// The inputs that it has not taken yet.
    pub inbox: VecDeque<Input<A::Message>>,
    /// True if it takes pending inputs, and its deadline waits.
    pub taking: bool,
    /// The write that is under way. No input is taken and no later effect is begun until it is done.
    pub writing: Option<A::Durable>,
    /// True if it was stopped, and takes nothing.
    pub paused: bool,
    /// Its view when that was last checked.
    pub view: Option<Arc<View>>,
    /// The moment at which it is to be woken for its deadline.
    pub wake_at: Option<Moment>,
}
