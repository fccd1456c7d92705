//! Committing: determines the records that a majority holds, and applies them in steps.
//!
//! A node counts a record as committed only when it has applied it, so its state shows all records that it reports as
//! committed. To count a committed record later is always safe. A node applies records in steps of a limited cost: a
//! thousand large requests may take longer to apply than a lease lasts, and the same thread renews the lead. A snapshot
//! for a follower is the exception: all records that it needs are applied in one step.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::id::NodeId;
use primacy_core::majority;
use primacy_core::term::LeaderSequence;
use primacy_core::time::Instant;

use super::{Lead, Replica, Replicated, Role};
use crate::replication::log::RecordBody;

impl<S: Replicated> Replica<S> {
    /// Commits one step: on a leader, of the records that a majority holds; on other nodes, of the records that a
    /// leader is known to have committed.
    ///
    /// A majority must also hold the list of voters by which it is counted. Otherwise a node that has lost its log, and
    /// recovers it from the earlier voters that it knew, may miss records that the later voters have committed.
    pub(super) fn advance(&mut self, now: Instant) {
        match &self.role {
            Role::Follower { .. } | Role::Passive(_) => {
                if self.known_committed > self.committed {
                    self.commit(now, self.known_committed);
                }
            }
            Role::Leader(lead) => {
                let by_next = lead.next.as_ref().map(|next| self.held_by_most(lead, &next.members));
                let by_present = self.held_by_most(lead, &self.voters.members);
                let reached = by_next.map_or(by_present, |by_next| by_next.min(by_present));
                if reached > self.committed && reached >= self.voters.number {
                    assert!(reached >= lead.begun, "only records of this term are counted");
                    self.commit(now, reached);
                    self.let_go();
                    self.flush_at.get_or_insert(now); // The followers want to know.
                }
            }
        }
    }

    /// Returns the last record that a majority of these voters holds.
    pub(super) fn held_by_most(&self, lead: &Lead, voters: &BTreeMap<NodeId, Arc<str>>) -> LeaderSequence {
        // A leader that is no longer a voter does not count itself.
        let own = voters.contains_key(&self.config.me.node).then_some(self.written);
        let others = lead.followers.iter().filter(|(node, _)| voters.contains_key(node));
        let mut held: Vec<LeaderSequence> =
            own.into_iter().chain(others.map(|(_, follower)| follower.match_id)).collect();
        majority::reached(voters.len(), &mut held).unwrap_or_default()
    }

    /// Applies and counts records up to `reached`, one step of them. The rest is due at once, after other pending
    /// inputs.
    pub(super) fn commit(&mut self, now: Instant, reached: LeaderSequence) {
        let mut cost: usize = 0;
        let mut counted = reached;
        while self.applied < reached {
            if cost >= self.config.apply_max.max(1) {
                counted = self.applied;
                self.flush_at.get_or_insert(now);
                break;
            }
            let Some(record) = self.log.next_after(self.applied) else { break };
            let number = record.number;
            cost = cost.saturating_add(record.size());
            match &record.body {
                RecordBody::Payload(payload) => {
                    let outcome = self.state.apply(number, payload, self.config.me);
                    let more = usize::try_from(self.state.take_cost()).unwrap_or(usize::MAX);
                    cost = cost.saturating_add(more);
                    self.outcomes.push_back((number, outcome));
                }
                RecordBody::Begin { voters, .. } | RecordBody::Voters(voters) => {
                    self.applied_voters = Arc::clone(voters); // In force since they were written.
                }
            }
            self.applied = number;
        }
        self.since_snapshot = self.since_snapshot.saturating_add(cost);
        self.committed = self.committed.max(counted);
        self.known_committed = self.known_committed.max(self.committed);
        if self.is_current() {
            self.state.settle();
        }
    }
}
