//! The durable state of a voter, and the recovery of a voter that has lost it.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::id::{Identity, NodeId};
use crate::protocol::Evidence;
use crate::term::Term;
use crate::time::Duration;

/// The limit on the terms of honest nodes: to exceed it would take a thousand elections a second for 292 million years.
pub const TERM_MAX: Term = Term(u64::MAX / 2);

/// The durable state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HardState {
    /// The highest term that it has adopted.
    pub term: Term,
    /// The candidate that it has voted for in that term.
    pub voted_for: Option<Identity>,
    /// The longest duration for which it may have promised its support.
    pub promise: Duration,
    /// The state of the disk that it was read from.
    pub disk_state: DiskState,
}

/// The durability that a node gives a record of a replicated log before it acknowledges the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The record is on the node's disk.
    #[default]
    Fsync,
    /// The record is in the node's memory, as in BlazingMQ. A node that restarts has lost its log, and fetches it from
    /// the others.
    Memory,
}

/// The completeness of a durable state: whether it includes everything that its node ever wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DiskState {
    /// As far as the node knows, it is complete.
    #[default]
    Intact,
    /// An earlier state is lost. Its votes and promises are not known, so the node grants nothing.
    Lost,
    /// An earlier state was lost. All other voters have reported their terms since, and this state is above them.
    Recovered,
}

impl DiskState {
    /// Returns true if this evidence shows node `me`, which believes its state complete, that it had another disk: it
    /// may have voted and promised with that one. A recovered node ignores refusals by nodes that have not heard of its
    /// recovery.
    #[must_use]
    pub fn is_refuted_by(self, evidence: Evidence, me: NodeId) -> bool {
        match evidence {
            Evidence::Readmitted { by, term } => by != me && term <= TERM_MAX && self == Self::Intact,
            Evidence::DiskRefused { by, replaced } => {
                by != me && (self == Self::Intact || self == Self::Recovered && replaced)
            }
            Evidence::Connected(_) | Evidence::Disconnected(_) | Evidence::Died(_) => false,
        }
    }
}

/// The terms that the other voters have reported to a node that has lost its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TermReports(BTreeMap<NodeId, Term>);

impl TermReports {
    /// Records a report. When all voters other than `me` have reported, returns a state whose term is above all
    /// reports, with which the node votes again.
    ///
    /// Reports from a part of the voters that meets every majority would not suffice: a candidate that holds a lost
    /// vote of this node may need one more vote, and a voter that has reported a lower term may still grant it. Among
    /// all voters is that candidate, which reports the term in which it campaigns.
    pub(crate) fn take(
        &mut self,
        hard: HardState,
        voters: &BTreeSet<NodeId>,
        me: NodeId,
        by: NodeId,
        term: Term,
    ) -> Option<HardState> {
        self.0.insert(by, term);
        // The voters may have changed since earlier reports.
        if self.missing(voters, me).next().is_some() {
            return None;
        }
        let highest = self.0.values().copied().max().unwrap_or_default();
        self.0.clear();
        let voted_for = hard.voted_for.filter(|_| highest <= hard.term);
        Some(HardState { term: highest.max(hard.term), voted_for, disk_state: DiskState::Recovered, ..hard })
    }

    /// The voters, but for `me`, that have not reported.
    pub(crate) fn missing(&self, voters: &BTreeSet<NodeId>, me: NodeId) -> impl Iterator<Item = NodeId> {
        voters.iter().copied().filter(move |&voter| voter != me && !self.0.contains_key(&voter))
    }

    /// The nodes that have reported.
    pub(crate) fn by(&self) -> BTreeSet<NodeId> {
        self.0.keys().copied().collect()
    }
}
