//! The status of a node of the quorum election.

use alloc::collections::{BTreeMap, BTreeSet};

use super::{HardState, Quorum, Refusal, Role};
use crate::id::{Identity, NodeId};
use crate::protocol::{ElectionTrigger, Leader};
use crate::time::{Duration, Instant};

/// The state of a node, for people and for invariant checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The role: `follower`, `pre-candidate`, `candidate` or `leader`.
    pub role: &'static str,
    /// The durable state.
    pub hard: HardState,
    /// The leader that it hears, or itself if it believes that it leads.
    pub leader: Option<Leader>,
    /// The end of its own leadership.
    pub valid_until: Option<Instant>,
    /// The node that it supports, and the end of the promise.
    pub promise: Option<(Identity, Instant)>,
    /// The durations of the others' promises where they differ from this node's own, while it leads.
    pub promises: BTreeMap<NodeId, Duration>,
    /// The refusals of the last round, by voter.
    pub refusals: BTreeMap<NodeId, Refusal>,
    /// True if it wants to lead.
    pub campaigning: bool,
    /// True if its health check passes.
    pub healthy: bool,
    /// The other nodes that it hears.
    pub connected: BTreeSet<NodeId>,
    /// The connected nodes that only vote.
    pub witnesses: BTreeSet<NodeId>,
    /// The time of its next campaign, if it hears no leader and may campaign.
    pub campaign_at: Option<Instant>,
    /// The end of the silence after a start: until then it grants nothing, because it does not know what an earlier
    /// incarnation promised.
    pub silent_until: Instant,
    /// The nodes that have reported their term so far, while it has lost its disk.
    pub recovering: Option<BTreeSet<NodeId>>,
    /// The nodes whose terms it still awaits, while it has lost its disk; not necessarily current voters.
    pub waits_for: BTreeSet<NodeId>,
}

impl Quorum {
    /// The event that made this node campaign, if it campaigns or leads.
    #[must_use]
    pub const fn trigger(&self) -> ElectionTrigger {
        self.trigger
    }

    /// The durations of the others' promises where they differ from this node's own, while it leads; empty otherwise.
    #[must_use]
    pub fn promises(&self) -> BTreeMap<NodeId, Duration> {
        match &self.role {
            Role::Leader(lead) => lead.promises.clone(),
            Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) => BTreeMap::new(),
        }
    }

    /// The state of this node.
    #[must_use]
    pub fn status(&self) -> Status {
        let (role, valid_until) = match &self.role {
            Role::Follower { .. } => ("follower", None),
            Role::PreCandidate(_) => ("pre-candidate", None),
            Role::Candidate(_) => ("candidate", None),
            Role::Leader(lead) => ("leader", lead.valid_until),
        };
        Status {
            role,
            hard: self.hard,
            leader: self.leader(),
            valid_until,
            promise: self.promise.map(|promise| (promise.to, promise.until)),
            promises: self.promises(),
            refusals: self.refusals.clone(),
            campaigning: self.campaigning,
            healthy: self.healthy,
            connected: self.connected_voters().map(|peer| peer.identity.node).collect(),
            witnesses: self
                .connected_voters()
                .filter(|peer| peer.witness)
                .map(|peer| peer.identity.node)
                .collect(),
            campaign_at: match self.role {
                Role::Follower { leader: None } if self.can_campaign() => {
                    Some(self.campaign_at.max(self.silent_until))
                }
                Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => None,
            },
            silent_until: self.silent_until,
            recovering: self.has_forgotten().then(|| self.reports.by()),
            waits_for: match self.has_forgotten() {
                true => self.reports.missing(&self.known, self.config.me.node).collect(),
                false => BTreeSet::new(),
            },
        }
    }
}
