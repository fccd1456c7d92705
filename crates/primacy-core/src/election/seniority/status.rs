//! The status of a node and of the cluster that it belongs to.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use super::{Membership, Refusal, Seniority, Stopped};
use crate::id::NodeId;
use crate::membership::{TooFewMembers, View};
use crate::protocol::{ElectionTrigger, Leader};
use crate::term::Term;

/// The state of a node, for people and for invariant checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The role: `outside`, `member` or `coordinator`.
    pub role: &'static str,
    /// The view that it has, if it belongs to a cluster.
    pub view: Option<Arc<View>>,
    /// The coordinator.
    pub leader: Option<Leader>,
    /// The members that it suspects itself.
    pub suspects: BTreeSet<NodeId>,
    /// The members that all their watchers suspect, and that will be removed, or stop this part.
    pub lost: BTreeSet<NodeId>,
    /// The first seed, which founds the cluster if there is none.
    pub founder: Option<NodeId>,
    /// Whether the cluster is large enough here to serve a request; see [`Seniority::admit`].
    pub enough_members: Result<(), TooFewMembers>,
    /// The number of its attempts to join since it began to campaign or left a cluster.
    pub attempts: u32,
    /// The nodes whose answers it awaits, while it belongs to no cluster: the seeds and, at the first seed, the members
    /// of its last cluster.
    pub awaited: BTreeSet<NodeId>,
    /// True if it belongs to no cluster, and has belonged to one in this process.
    pub has_left: bool,
    /// The reason why its part of the cluster has stopped, if it has.
    pub stopped: Option<Stopped>,
    /// The reason of its last refusal.
    pub refusal: Option<Refusal>,
    /// True if it wants to belong to the cluster.
    pub campaigning: bool,
    /// True if its health check passes.
    pub healthy: bool,
}

impl Seniority {
    /// Checks that this part of the cluster has enough members to serve a request. The check passes until the node has
    /// detected a split.
    ///
    /// # Errors
    /// [`TooFewMembers`] if it is not.
    pub fn admit(&self) -> Result<(), TooFewMembers> {
        let (minimum, members) = (self.config.minimum, self.view().map_or(0, |view| view.members().len()));
        if members == 0 || members < minimum { Err(TooFewMembers { members, minimum }) } else { Ok(()) }
    }

    /// The view that this node has, if it belongs to a cluster.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<View>> {
        match &self.membership {
            Membership::Member(member) => Some(&member.view),
            Membership::Outside(_) => None,
        }
    }

    /// The highest term in which this node has become coordinator, or that it has heard of in its cluster.
    #[must_use]
    pub fn term(&self) -> Term {
        let heard_of = match &self.membership {
            Membership::Member(member) => member.heard_of,
            Membership::Outside(_) => Term(0),
        };
        self.claimed.max(heard_of)
    }

    /// The number of its current joining, counted from 1.
    #[must_use]
    pub const fn joining(&self) -> u64 {
        self.joining
    }

    /// The event that made this node campaign: always silence, because it takes over when the oldest member is lost.
    #[must_use]
    pub const fn trigger(&self) -> ElectionTrigger {
        ElectionTrigger::Silence
    }

    /// The state of this node.
    #[must_use]
    pub fn status(&self) -> Status {
        let common = Status {
            role: "outside",
            view: self.view().cloned(),
            leader: self.leader(),
            suspects: BTreeSet::new(),
            lost: BTreeSet::new(),
            enough_members: self.admit(),
            founder: self.config.seeds.first().copied(),
            attempts: 0,
            awaited: self.awaited(),
            has_left: false,
            stopped: self.stopped().cloned(),
            refusal: None,
            campaigning: self.campaigning,
            healthy: self.healthy,
        };
        match &self.membership {
            Membership::Outside(outside) => {
                let (attempts, refusal) = (outside.attempts, outside.refusal);
                Status { attempts, refusal, has_left: outside.last.is_some(), ..common }
            }
            Membership::Member(member) => Status {
                role: if member.lead.is_some() { "coordinator" } else { "member" },
                suspects: member.watch.suspects().clone(),
                lost: member.watch.lost().clone(),
                ..common
            },
        }
    }
}
