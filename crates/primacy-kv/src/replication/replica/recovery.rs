//! The recovery of a node that has lost its log: with [`Durability::Memory`] every node that
//! restarts.
//!
//! It may have held a committed record, and does not know it any more. Until it has a log again that has all it can
//! have held, it takes nothing, answers nothing and counts for nothing; it may vote. If its whole disk was lost, that
//! lasts until all others know the new one. It asks the others (Viewstamped Replication Revisited, section 4.3): of a
//! majority of them one has each committed record that it held itself, and a leader of the highest term among them, or
//! of a higher one, has them all.

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
    /// The leader whose log is taken, and the record up to which that is all that this node can have held.
    pub(super) granted: Option<(Identity, LeaderSequence)>,
    /// True if the log was lost with the whole disk, and some of the others may not know the new one yet.
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
        // The leader may have become a voter only after this node was last sent the voters, and its messages are not
        // taken now.
        if let Role::Follower { leader: Some(leader), .. } = self.role {
            asked.insert(leader.node);
        }
        for node in asked.into_iter().filter(|&node| node != me) {
            self.send(node, Body::Recover);
        }
    }

    /// Handles that another node has lost its log.
    pub(super) fn on_recover(&mut self, now: Instant, from: Identity) {
        if self.recovery.is_some() {
            return; // This one does not know either.
        }
        let leads_up_to = self.is_active().then(|| self.log.last());
        self.send(from.node, Body::RecoverReply { to: from.incarnation, leads_up_to });
        // The records of an earlier incarnation of it are gone; it is asked for the end of its log.
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
        // The records that this node held were counted by the voters that it knew then, which it has not forgotten.
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
        // It may have nothing to send for long, and has to learn that it has to begin at the beginning.
        if !self.hears(leader) {
            return;
        }
        if let Role::Follower { owed, .. } = &mut self.role {
            *owed = Some(Owed { round: 0, gap: true });
        }
        self.flush_at.get_or_insert(now);
    }

    /// Lets the log count again: it has all that this node can have held, or an operator says so. It is written before
    /// that is remembered.
    pub(super) fn is_recovered(&mut self) {
        if self.recovery.take().is_some() {
            self.write();
            self.effects.push_back(Effect::LogLost(false));
            // It has not taken the commit number that it was sent. So an answer that it owes is given as one to an
            // older round, and the leader asks again.
            if let Role::Follower { owed: Some(owed), .. } = &mut self.role {
                owed.round = 0;
            }
        }
    }

    /// Takes this node's log for whole as it is, on an operator's word that no node has more of it: a majority has lost
    /// theirs, and each of them waits for the others. Committed records that only they had are lost by that. Also if
    /// not all others know its disk.
    ///
    /// Returns true if the log was lost.
    pub fn accept_loss(&mut self, now: Instant) -> bool {
        let was_lost = self.recovery.is_some();
        self.is_recovered();
        if was_lost {
            // A leader that waits for it need not wait on.
            self.flush_at.get_or_insert(now);
        }
        was_lost
    }

    /// True if this leader's records may be taken.
    pub(super) fn may_take_from(&self, leader: Identity) -> bool {
        self.recovery
            .as_ref()
            .is_none_or(|recovery| recovery.granted.is_some_and(|(granted, _)| granted == leader))
    }

    /// Sets whether all others know the disk that this node has now. Until they do, a log that was lost with the whole
    /// disk does not count, though it may be whole again: if the former disk came back, a node that does not know the
    /// new one would hear it and take its log for whole, and that lacks the records that this node helps to commit
    /// meanwhile.
    pub fn set_disk_is_known(&mut self, known: bool) {
        if let Some(recovery) = &mut self.recovery {
            recovery.disk_is_unknown = !known;
            self.recovered_up_to_its_leader(); // Nothing is said of it: the leader asks again where this node stands.
        }
    }

    /// Lets the log count again, once it has come to where the leader's was when it answered, and all others know the
    /// disk.
    pub(super) fn recovered_up_to_its_leader(&mut self) {
        let recovery = self.recovery.as_ref().filter(|recovery| !recovery.disk_is_unknown);
        let granted = recovery.and_then(|recovery| recovery.granted);
        if granted.is_some_and(|(_, last)| self.log.last() >= last && self.log.last().term == self.bound) {
            self.is_recovered();
        }
    }
}
