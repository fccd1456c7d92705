//! The recovery of a node that has lost its log. With [`Durability::Memory`] that is every node that restarts.
//!
//! The node may have held committed records that it no longer has. Until its log has all records again that it can have
//! held, it takes no records, answers no sync and is not counted; it may vote. If its whole disk was lost, this lasts
//! until all other nodes know the new disk. It asks the other voters (Viewstamped Replication Revisited, section 4.3):
//! in a majority of them, one holds each committed record that it held itself, and a leader of at least the highest
//! term among them has all of these records.

use alloc::collections::{BTreeMap, BTreeSet};

use super::{Effect, Owed, Replica, Replicated, Role};

use primacy_core::id::{Identity, NodeId};
use primacy_core::majority;
use primacy_core::term::{LeaderSequence, Term};
use primacy_core::time::Instant;

use crate::replication::message::Body;

/// A node that has lost its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    /// The answers: the term of each node, and the end of its log if it leads.
    answers: BTreeMap<NodeId, (Identity, Term, Option<LeaderSequence>)>,
    pub(super) ask_at: Instant,
    /// The leader from which records are taken, and the record up to which the log must reach to be recovered.
    pub(super) granted: Option<(Identity, LeaderSequence)>,
    /// True if the whole disk was lost, and some of the other nodes may not know the new one yet.
    disk_is_unknown: bool,
}

impl Recovery {
    pub(super) const fn new(now: Instant) -> Self {
        Self { answers: BTreeMap::new(), ask_at: now, granted: None, disk_is_unknown: false }
    }
}

impl<S: Replicated> Replica<S> {
    pub(super) fn ask_for_recovery(&mut self, now: Instant) {
        let Some(recovery) = self.recovery.as_mut().filter(|recovery| now >= recovery.ask_at) else { return };
        recovery.ask_at = now.after(self.config.resend_after);
        if recovery.granted.is_some() {
            return; // The leader sends what is missing, and says it again if need be.
        }
        recovery.answers.clear();
        let me = self.config.me.node;
        let mut asked: BTreeSet<NodeId> = self.voters.members.keys().copied().collect();
        // The leader may be a voter that this node does not know yet: it takes no records that would state the voters.
        if let Role::Follower { leader: Some(leader), .. } = self.role {
            asked.insert(leader.node);
        }
        for node in asked.into_iter().filter(|&node| node != me) {
            self.send(node, Body::Recover);
        }
    }

    /// Handles the message of another node that it has lost its log.
    pub(super) fn on_recover(&mut self, now: Instant, from: Identity) {
        if self.recovery.is_some() {
            return; // This one does not know either.
        }
        let leads_up_to = self.is_active().then(|| self.log.last());
        self.send(from.node, Body::RecoverReply { to: from.incarnation, leads_up_to });
        // The records of its earlier incarnation are lost: ask for the end of its log.
        if let Role::Leader(lead) = &mut self.role
            && let Some(follower) = lead.followers.get_mut(&from.node)
            && follower.incarnation != Some(from.incarnation)
        {
            follower.begin_life(from.incarnation);
            follower.forget_position();
            self.flush_at.get_or_insert(now);
        }
    }

    pub(super) fn on_recover_reply(
        &mut self,
        now: Instant,
        from: Identity,
        term: Term,
        leads_up_to: Option<LeaderSequence>,
    ) {
        let (me, follows) = (self.config.me.node, matches!(self.role, Role::Follower { .. }));
        let others = self.voters.count() - usize::from(self.voters.contains(me));
        let Some(recovery) = self.recovery.as_mut().filter(|recovery| recovery.granted.is_none()) else {
            return;
        };
        if !follows || !(self.voters.contains(from.node) || leads_up_to.is_some()) {
            return;
        }
        recovery.answers.insert(from.node, (from, term, leads_up_to));
        // Only voters that this node knows count: by these its lost records were counted, and it has persisted them.
        if recovery.answers.keys().filter(|&&node| self.voters.contains(node)).count()
            < majority::needed(others)
        {
            return;
        }
        let highest = recovery.answers.values().map(|&(_, term, _)| term).max().unwrap_or_default();
        let leader = recovery.answers.values().find_map(|&(who, term, last)| {
            last.filter(|_| term == highest && term >= self.bound).map(|last| (who, last))
        });
        let Some((leader, last)) = leader else { return };
        recovery.granted = Some((leader, last));
        if highest > self.bound {
            return; // It is bound when the leader is heard.
        }
        // Report a gap at once: the leader may have nothing to send for long, and must learn to send its log from the
        // beginning.
        if !self.hears(leader) {
            return;
        }
        if let Role::Follower { owed, .. } = &mut self.role {
            *owed = Some(Owed { round: 0, gap: true });
        }
        self.flush_at.get_or_insert(now);
    }

    /// Ends the recovery: the log has all records that this node can have held, or an operator accepts the loss. The
    /// log is written before the end of the recovery is persisted.
    pub(super) fn is_recovered(&mut self) {
        if self.recovery.take().is_some() {
            self.write();
            self.effects.push_back(Effect::LogLost(false));
            // This node has ignored the last commit number. So its pending answer is for an older round, which makes
            // the leader send again.
            if let Role::Follower { owed: Some(owed), .. } = &mut self.role {
                owed.round = 0;
            }
        }
    }

    /// Ends the recovery with the log as it is, because an operator states that no node has more of it: a majority has
    /// lost their logs, and each of them waits for the others. Committed records that only these nodes held are lost.
    /// It applies even if not all other nodes know this node's disk.
    ///
    /// Returns true if the log was lost.
    pub fn accept_loss(&mut self, now: Instant) -> bool {
        let was_lost = self.recovery.is_some();
        self.is_recovered();
        if was_lost {
            // Answer a leader that waits for this node.
            self.flush_at.get_or_insert(now);
        }
        was_lost
    }

    /// True if this node may take records from this leader.
    pub(super) fn may_take_from(&self, leader: Identity) -> bool {
        self.recovery
            .as_ref()
            .is_none_or(|recovery| recovery.granted.is_some_and(|(granted, _)| granted == leader))
    }

    /// Sets whether all other nodes know this node's present disk. Until they do, a log that was lost with the whole
    /// disk does not count, even if it is complete again. Otherwise, if the former disk came back, a node that does not
    /// know the new one would accept it with its old log, which lacks the records that this node has helped to commit.
    pub fn set_disk_is_known(&mut self, known: bool) {
        if let Some(recovery) = &mut self.recovery {
            recovery.disk_is_unknown = !known;
            self.recovered_up_to_its_leader(); // Nothing is said of it: the leader asks again where this node stands.
        }
    }

    /// Ends the recovery once the log has reached the end that the leader reported, and all other nodes know the disk.
    pub(super) fn recovered_up_to_its_leader(&mut self) {
        let recovery = self.recovery.as_ref().filter(|recovery| !recovery.disk_is_unknown);
        let granted = recovery.and_then(|recovery| recovery.granted);
        if granted.is_some_and(|(_, last)| self.log.last() >= last && self.log.last().term == self.bound) {
            self.is_recovered();
        }
    }
}
