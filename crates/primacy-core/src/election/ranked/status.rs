//! What a server of the ranked election can tell of itself.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use super::{Candidate, Elector, Ranked};
use crate::hard_state::HardState;
use crate::id::NodeId;
use crate::protocol::{Leader, Occasion};
use crate::term::{LeaderSequence, Term};
use crate::time::Instant;

/// What a server believes, for people and for judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its role: `follower`, `voting` or `leader`.
    pub role: &'static str,
    /// Its durable state; the term in it is the highest ballot that it has voted in.
    pub hard: HardState,
    /// The highest ballot that it knows of: what it must tell one that has lost its disk. Whoever that one has voted for may know
    /// the ballot by its own proposal only, or by the vote.
    pub known: Term,
    /// The ballot of the round that it is in.
    pub ballot: Option<Term>,
    /// The leader that it hears, or itself if it believes to lead.
    pub leader: Option<Leader>,
    /// The end of its own leadership.
    pub valid_until: Option<Instant>,
    /// The last message of a leader that it has taken, or sent.
    pub seen: Option<LeaderSequence>,
    /// Whose claims it has.
    pub slate: BTreeSet<NodeId>,
    /// Who says to hear a leader that it does not hear.
    pub hearsay: BTreeMap<NodeId, Leader>,
    /// Whether it wants to lead.
    pub campaigning: bool,
    /// Whether it is fit to lead.
    pub healthy: bool,
    /// The other servers that are connected.
    pub connected: BTreeSet<NodeId>,
    /// While it has lost its disk: who has told it their ballot so far.
    pub recovering: Option<BTreeSet<NodeId>>,
}

impl Ranked {
    /// What made this server stand, if it stands or leads.
    #[must_use]
    pub const fn occasion(&self) -> Occasion {
        self.occasion
    }

    /// What the leader has announced last, and with which message; a leader's own while it leads.
    #[must_use]
    pub const fn state(&self) -> Option<(LeaderSequence, &Arc<[u8]>)> {
        match self.seen {
            Some(number) => Some((number, &self.state)),
            None => None,
        }
    }

    /// The highest ballot that it knows of: what it tells another server that has lost its disk, unless it has lost its own.
    #[must_use]
    pub fn known(&self) -> Term {
        self.hard.term.max(self.heard_of).max(self.proposed)
    }

    /// What this server believes.
    #[must_use]
    pub fn status(&self) -> Status {
        let (role, valid_until) = match (&self.candidate, &self.elector) {
            (Candidate::Leader(lead), _) => ("leader", Some(lead.valid_until)),
            (Candidate::Follower, Elector::Voting { .. }) => ("voting", None),
            (Candidate::Follower, Elector::Watching { .. }) => ("follower", None),
        };
        let (ballot, slate) = match &self.elector {
            Elector::Voting { ballot, slate, .. } => (Some(*ballot), slate.keys().copied().collect()),
            Elector::Watching { .. } => (None, BTreeSet::new()),
        };
        Status {
            role,
            hard: self.hard,
            known: self.known(),
            ballot,
            leader: self.leader_or_self(),
            valid_until,
            seen: self.seen,
            slate,
            hearsay: self.hearsay.clone(),
            campaigning: self.campaigning,
            healthy: self.healthy,
            connected: self.connected.keys().copied().collect(),
            recovering: self.has_forgotten().then(|| self.reports.by()),
        }
    }
}
