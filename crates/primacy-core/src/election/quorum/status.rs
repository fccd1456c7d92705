//! What a node of the quorum election can tell of itself.

use alloc::collections::{BTreeMap, BTreeSet};

use super::{HardState, Quorum, Refusal, Role};
use crate::id::{Identity, NodeId};
use crate::protocol::{Leader, Occasion};
use crate::time::{Duration, Instant};

/// What a node believes, for people and for judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its role: `follower`, `pre-candidate`, `candidate` or `leader`.
    pub role: &'static str,
    /// Its durable state.
    pub hard: HardState,
    /// The leader that it hears, or itself if it believes to lead.
    pub leader: Option<Leader>,
    /// The end of its own leadership.
    pub valid_until: Option<Instant>,
    /// Whom it supports, and until when.
    pub promise: Option<(Identity, Instant)>,
    /// While it leads: for how long others promise their support, where that is not this node's own duration.
    pub promises: BTreeMap<NodeId, Duration>,
    /// Why its last round failed: who refused, and with what words.
    pub refusals: BTreeMap<NodeId, Refusal>,
    /// Whether it wants to lead.
    pub campaigning: bool,
    /// Whether it is fit to lead.
    pub healthy: bool,
    /// The other nodes that it hears.
    pub connected: BTreeSet<NodeId>,
    /// Those among them that only vote.
    pub witnesses: BTreeSet<NodeId>,
    /// When it will stand, if it hears no leader and may stand.
    pub stand_at: Option<Instant>,
    /// Until when it grants nothing, because it does not know what an earlier life promised.
    pub silent_until: Instant,
    /// While it has lost its disk: who has told it their term so far.
    pub recovering: Option<BTreeSet<NodeId>>,
    /// While it has lost its disk: who has still to tell it. They need not all be voters of now.
    pub waits_for: BTreeSet<NodeId>,
}

impl Quorum {
    /// What made this node stand, if it stands or leads.
    #[must_use]
    pub const fn occasion(&self) -> Occasion {
        self.occasion
    }

    /// For how long others promise their support, where that is not this node's own duration; while it leads, and empty otherwise.
    #[must_use]
    pub fn promises(&self) -> BTreeMap<NodeId, Duration> {
        match &self.role {
            Role::Leader(lead) => lead.promises.clone(),
            Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) => BTreeMap::new(),
        }
    }

    /// What this node believes.
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
            stand_at: match self.role {
                Role::Follower { leader: None } if self.may_stand() => {
                    Some(self.stand_at.max(self.silent_until))
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
