//! The sync of a new leader, by which it gets all records that were committed before it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use primacy_core::id::{Identity, NodeId};
use primacy_core::majority;
use primacy_core::term::LeaderSequence;
use primacy_core::time::Instant;

use super::{Owed, Replica, Replicated, Role};
use crate::replication::log::Record;
use crate::replication::message::Body;

/// The number of times that a source is asked for records before another one is chosen.
const SOURCE_TRIES_MAX: u32 = 5;

/// The state of a new leader's sync.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sync {
    /// The nodes that have promised, and the ends of their logs.
    pub(super) answers: BTreeMap<NodeId, (Identity, LeaderSequence)>,
    /// The node from which the missing records are fetched, and the last record of its log.
    pub(super) source: Option<(Identity, LeaderSequence)>,
    /// The number of requests to the source that were not answered.
    tries: u32,
    pub(super) resend_at: Instant,
}

impl Sync {
    /// Postpones the next request, because an answer has come.
    pub(super) const fn put_off(&mut self, resend_at: Instant) {
        self.tries = 0;
        self.resend_at = resend_at;
    }
}

impl<S: Replicated> Replica<S> {
    pub(super) fn begin_sync(&mut self, now: Instant) {
        // This node's own records count once they are written.
        self.write();
        let resend_at = now.after(self.config.resend_after);
        self.role = Role::Passive(Sync { answers: BTreeMap::new(), source: None, tries: 0, resend_at });
        self.ask_for_promises();
        self.choose_source(now);
    }

    /// Asks nodes again that have not answered in time.
    pub(super) fn sync_again(&mut self, now: Instant) {
        let Role::Passive(sync) = &mut self.role else { return };
        sync.resend_at = now.after(self.config.resend_after);
        if let Some((source, _)) = sync.source {
            sync.tries += 1;
            if sync.tries <= SOURCE_TRIES_MAX {
                if self.incoming.is_none() {
                    self.send(source.node, Body::Fetch { after: self.log.last() });
                }
                return;
            }
            sync.tries = 0;
            sync.source = None;
            sync.answers.remove(&source.node);
            self.incoming = None;
        }
        self.ask_for_promises();
        self.choose_source(now);
    }

    fn ask_for_promises(&mut self) {
        let Role::Passive(sync) = &self.role else { return };
        let silent = |node: &&NodeId| **node != self.config.me.node && !sync.answers.contains_key(node);
        for node in self.voters.members.keys().filter(silent).copied().collect::<Vec<_>>() {
            self.send(node, Body::Sync);
        }
    }

    /// Answers a new leader. This node is bound to the term, so it takes no more records from an earlier leader: the
    /// answer covers all records of earlier terms that it will have, unless the new leader sends more.
    pub(super) fn on_sync(&mut self, from: Identity) {
        if !self.hears(from) || self.recovery.is_some() {
            return; // One that has lost its log does not know how far it was.
        }
        self.write();
        self.send(from.node, Body::SyncReply { to: from.incarnation, last: self.log.last() });
    }

    pub(super) fn on_sync_reply(&mut self, now: Instant, from: Identity, last: LeaderSequence) {
        let Role::Passive(sync) = &mut self.role else { return };
        if !self.voters.contains(from.node) {
            return;
        }
        sync.answers.insert(from.node, (from, last));
        if sync.source.is_none() {
            self.choose_source(now);
        }
    }

    /// The voters that have not reported the ends of their logs, until a majority has.
    #[must_use]
    pub fn awaited(&self) -> BTreeSet<NodeId> {
        let Role::Passive(sync) = &self.role else { return BTreeSet::new() };
        let is_awaited = |node: &&NodeId| **node != self.config.me.node && !sync.answers.contains_key(node);
        self.voters.members.keys().filter(is_awaited).copied().filter(|_| !self.has_promises()).collect()
    }

    /// True if a majority has promised.
    fn has_promises(&self) -> bool {
        let Role::Passive(sync) = &self.role else { return false };
        let promised = sync.answers.keys().filter(|&&node| self.voters.contains(node)).count();
        let votes = self.voters.contains(self.config.me.node);
        // A node that has lost its log needs a majority of the others: one of them holds each committed record that
        // this node held (Viewstamped Replication Revisited, section 4.3).
        let (counted, voters) = match self.recovery {
            None => (promised + usize::from(votes), self.voters.count()),
            Some(_) => (promised, self.voters.count() - usize::from(votes)),
        };
        counted >= majority::needed(voters)
    }

    /// Chooses the source once a majority has promised: the node with the longest log, all of whose records this node
    /// must have.
    fn choose_source(&mut self, now: Instant) {
        if !self.has_promises() {
            return;
        }
        let Role::Passive(sync) = &mut self.role else { return };
        let longest = sync.answers.values().copied().max_by_key(|&(_, last)| last);
        match longest.filter(|&(_, last)| last > self.log.last()) {
            Some((source, last)) => {
                sync.source = Some((source, last));
                self.send(source.node, Body::Fetch { after: self.log.last() });
            }
            None => self.caught_up(now),
        }
    }

    /// Answers the leader of this term, which lacks the records after a number.
    pub(super) fn on_fetch(&mut self, now: Instant, from: Identity, after: LeaderSequence) {
        if !self.hears(from) || self.recovery.is_some() {
            return;
        }
        match self.log.since(after, self.config.append_max) {
            Some(records) => {
                self.send(from.node, Body::Fetched { to: from.incarnation, after, records });
            }
            None => {
                let number = self.snapshot_to_offer(now, after);
                self.send(from.node, Body::Offer { number });
            }
        }
    }

    pub(super) fn on_fetched(
        &mut self,
        now: Instant,
        from: Identity,
        after: LeaderSequence,
        records: Vec<Record>,
    ) {
        let Role::Passive(sync) = &mut self.role else { return };
        if sync.source.is_none_or(|(source, _)| source != from) || after != self.log.last() {
            return; // A copy, or of another one.
        }
        sync.put_off(now.after(self.config.resend_after));
        for record in records {
            if !record.follows(self.log.last()) || !self.may_be(&record) {
                break; // Nothing that an honest node sends; what was asked for is asked for again.
            }
            if !self.can_read(&record) {
                return;
            }
            self.push(record);
        }
        self.write();
        self.fetched_more(now);
    }

    /// Handles the arrival of missing records.
    pub(super) fn fetched_more(&mut self, now: Instant) {
        match &self.role {
            Role::Passive(Sync { source: Some((_, target)), .. }) if self.log.last() >= *target => {
                self.fetched_all(now)
            }
            Role::Passive(Sync { source: Some((source, _)), .. }) => {
                let (node, after) = (source.node, self.log.last());
                self.send(node, Body::Fetch { after });
            }
            Role::Passive(Sync { source: None, .. }) | Role::Leader(_) => {}
            Role::Follower { .. } => {
                self.recovered_up_to_its_leader();
                if let Role::Follower { owed, .. } = &mut self.role {
                    *owed = Some(Owed { round: 0, gap: false });
                }
                self.flush_at.get_or_insert(now);
            }
        }
    }

    /// Handles the arrival of all requested records. If they state other voters, a majority of these must promise too,
    /// and nodes that have promised meanwhile may have longer logs.
    fn fetched_all(&mut self, now: Instant) {
        if self.has_promises() {
            return self.choose_source(now);
        }
        if let Role::Passive(sync) = &mut self.role {
            sync.source = None;
            sync.resend_at = now.after(self.config.resend_after);
        }
        self.ask_for_promises();
    }

    fn caught_up(&mut self, now: Instant) {
        let answers = match &mut self.role {
            Role::Passive(sync) => core::mem::take(&mut sync.answers),
            Role::Follower { .. } | Role::Leader(_) => return,
        };
        self.is_recovered();
        self.begin(now, &answers);
    }
}
