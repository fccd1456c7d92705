//! The status of a server of the ranked election.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use super::{Candidate, Elector, Ranked};
use crate::hard_state::HardState;
use crate::id::NodeId;
use crate::protocol::{ElectionTrigger, Leader};
use crate::term::{LeaderSequence, Term};
use crate::time::Instant;

/// The state of a server, for people and for invariant checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The role: `follower`, `voting` or `leader`.
    pub role: &'static str,
    /// The durable state; the term in it is the highest ballot that it has voted in.
    pub hard: HardState,
    /// The highest ballot that it knows of, which it reports to a server that has lost its disk. It includes ballots
    /// that only this server has proposed or received a vote in, because the lost disk may have held a vote in one of
    /// them.
    pub known: Term,
    /// The ballot of the round that it is in.
    pub ballot: Option<Term>,
    /// The leader that it hears, or itself if it believes that it leads.
    pub leader: Option<Leader>,
    /// The end of its own leadership.
    pub valid_until: Option<Instant>,
    /// The last message of a leader that it has taken, or sent.
    pub seen: Option<LeaderSequence>,
    /// The servers whose claims it has.
    pub slate: BTreeSet<NodeId>,
    /// The servers that report a leader that this one does not hear.
    pub hearsay: BTreeMap<NodeId, Leader>,
    /// True if it wants to lead.
    pub campaigning: bool,
    /// True if its health check passes.
    pub healthy: bool,
    /// The other servers that are connected.
    pub connected: BTreeSet<NodeId>,
    /// The servers that have reported their ballot so far, while it has lost its disk.
    pub recovering: Option<BTreeSet<NodeId>>,
}

impl Ranked {
    /// The event that made this server campaign, if it campaigns or leads.
    #[must_use]
    pub const fn trigger(&self) -> ElectionTrigger {
        self.trigger
    }

    /// The state that was announced last, by the leader or by this server as the leader, and the number of the message.
    #[must_use]
    pub const fn state(&self) -> Option<(LeaderSequence, &Arc<[u8]>)> {
        match self.seen {
            Some(number) => Some((number, &self.state)),
            None => None,
        }
    }

    /// The highest ballot that it knows of. A server reports it to a server that has lost its disk, unless its own disk
    /// is lost.
    #[must_use]
    pub fn known(&self) -> Term {
        self.hard.term.max(self.heard_of).max(self.proposed)
    }

    /// The state of this server.
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
