//! The API for embedding the election in a larger machine, such as that of the replicated map in `primacy-kv`: both
//! share one term, and the voters may change.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{DiskState, Quorum, Role, TERM_MAX};
use crate::id::NodeId;
use crate::majority;
use crate::protocol::Reason;
use crate::term::Term;
use crate::time::Instant;

impl Quorum {
    /// The term of this node.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.hard.term
    }

    /// The state of this node's disk.
    #[must_use]
    pub const fn disk_state(&self) -> DiskState {
        self.hard.disk_state
    }

    /// True if this node has won the election of its term. It does not lead before a majority has answered its first
    /// heartbeat.
    #[must_use]
    pub const fn has_won(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// Adopts the term of a leader that was learned from outside the election. It has the effect of a heartbeat of that
    /// term, without a promise. All outputs must have been drained before.
    pub fn bind(&mut self, now: Instant, term: Term) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        if term <= self.hard.term || term > TERM_MAX {
            return;
        }
        self.step_down(Reason::HigherTerm(term));
        self.role = Role::Follower { leader: None };
        self.adopt_term(term);
        self.campaign_after_random_wait(self.promise_end(now));
        self.tell_leader();
    }

    /// The voters that are certain to support this leader now, itself included if it votes; empty if it does not lead.
    #[must_use]
    pub fn supporters(&self, now: Instant) -> BTreeSet<NodeId> {
        let Role::Leader(lead) = &self.role else { return BTreeSet::new() };
        lead.support.iter().filter(|&(_, &until)| now < until).map(|(&voter, _)| voter).collect()
    }

    /// True if a majority of the current voters supports this leader until its lease ends. After a change of voters, a
    /// lease that the earlier voters gave may last longer than that.
    #[must_use]
    pub fn is_supported_to_the_end(&self) -> bool {
        let Role::Leader(lead) = &self.role else { return false };
        let mut support: Vec<Instant> = lead.support.values().copied().collect();
        let until = majority::reached(self.config.voters.len(), &mut support);
        until.is_some() && until >= lead.valid_until
    }

    /// Replaces the voters. Support by nodes that are no longer voters does not count, and a candidacy under way is
    /// abandoned.
    pub fn set_voters(&mut self, voters: BTreeSet<NodeId>) {
        if voters == self.config.voters {
            return;
        }
        match &mut self.role {
            Role::Leader(lead) => {
                lead.support.retain(|voter, _| voters.contains(voter));
                lead.promises.retain(|voter, _| voters.contains(voter));
            }
            Role::PreCandidate(_) | Role::Candidate(_) => self.role = Role::Follower { leader: None },
            Role::Follower { .. } => {} // It may follow one that is no voter any more, until that one resigns.
        }
        self.may_have_voted(voters.iter().copied());
        self.config.voters = voters;
    }

    /// Adds nodes that are or may have been voters. A node that has lost its disk does not know under which
    /// configuration it voted, so it must hear from the voters of every configuration before it votes again.
    pub fn may_have_voted(&mut self, voters: impl IntoIterator<Item = NodeId>) {
        self.known.extend(voters);
    }
}
