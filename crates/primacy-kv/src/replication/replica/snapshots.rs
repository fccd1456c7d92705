//! Snapshots: they replace the oldest records on the disk, and are sent to nodes whose logs cannot be completed from
//! the leader's records.

use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::hard_state::Durability;
use primacy_core::id::Identity;
use primacy_core::term::LeaderSequence;
use primacy_core::time::Instant;

use super::{Effect, PartOfLog, Replica, Replicated, Role, Unreadable};
use crate::encoding::DecodeError;
use crate::replication::log::{Log, RecordBody, Snapshot, Write};
use crate::replication::message::Body;
use crate::replication::voters::Voters;

/// The number of times that a chunk is requested before the snapshot is abandoned.
const PART_TRIES_MAX: u32 = 10;

/// The time for which a snapshot is kept for the nodes that fetch it, in multiples of `Config::resend_after`.
const OFFER_LASTS: u64 = 20;

/// The factor on `Config::kept_max` while a snapshot is offered, because the nodes that fetch it need the records
/// after it.
pub(super) const KEPT_FOR_OFFER: usize = 8;

/// The limit on the length of a received snapshot, in bytes.
pub const SNAPSHOT_LENGTH_MAX: u64 = 8 << 30;

/// A snapshot that this node fetches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Incoming {
    from: Identity,
    number: LeaderSequence,
    bytes: Vec<u8>,
    tries: u32,
    pub(super) ask_at: Instant,
}

/// A snapshot that other nodes fetch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outgoing {
    snapshot: Arc<Snapshot>,
    pub(super) until: Instant,
}

impl<S: Replicated> Replica<S> {
    /// Shortens the log: on the disk a snapshot replaces the applied records, once they are long enough; in memory the
    /// oldest records are dropped.
    pub(super) fn shorten(&mut self) {
        let enough = self.config.snapshot_after.max(self.snapshot_length);
        // A state with uncommitted records is not written, because they may never be committed.
        if self.config.durability == Durability::Fsync && self.since_snapshot > enough && self.is_current() {
            self.write();
            let (number, voters) = (self.applied, Arc::clone(&self.applied_voters));
            let snapshot = Snapshot { number, voters, state: self.state.snapshot() };
            self.since_snapshot = 0;
            self.snapshot_length = snapshot.state.len();
            self.effects.push_back(Effect::Write(Write::Snapshot(Arc::new(snapshot))));
        }
        let written = self.applied.min(self.queued);
        match &self.outgoing {
            Some(outgoing) if self.log.bytes() <= self.config.kept_max * KEPT_FOR_OFFER => {
                let number = written.min(outgoing.snapshot.number);
                self.log.forget(number, self.config.kept_max);
            }
            Some(_) | None => {
                self.outgoing = None;
                self.log.forget(written, self.config.kept_max);
            }
        }
    }

    /// Drops a snapshot from which no node has fetched for long.
    pub(super) fn drop_old_offer(&mut self, now: Instant) {
        if self.outgoing.as_ref().is_some_and(|outgoing| now >= outgoing.until) {
            self.outgoing = None;
        }
    }

    /// Returns the number of a snapshot for a log that ends with `last`: the offered one, if this node's log contains
    /// its number and it is above `last`, or else a new one up to the end of this node's log. A snapshot that is not
    /// above `last` would be refused, because a log never gets shorter.
    ///
    /// It may include uncommitted records, which the receiver takes as if they had been sent one by one.
    pub(super) fn snapshot_to_offer(&mut self, now: Instant, last: LeaderSequence) -> LeaderSequence {
        let until = now.after(self.config.resend_after.times(OFFER_LASTS));
        // A snapshot that was offered to an earlier leader may have voters that this node only learned from a message,
        // stated by no record of its log, while others are in force now.
        let are_of_now =
            |voters: &Voters, number| voters.number <= number || voters.number == self.voters.number;
        if let Some(outgoing) = &mut self.outgoing
            && outgoing.snapshot.number > last
            && self.log.position(outgoing.snapshot.number).is_some()
            && are_of_now(&outgoing.snapshot.voters, outgoing.snapshot.number)
        {
            outgoing.until = until;
            return outgoing.snapshot.number;
        }
        let (mut state, number) = (self.state.clone(), self.log.last());
        let tail = self.log.since(self.applied, usize::MAX).expect("what is not applied is not forgotten");
        for record in tail {
            match &record.body {
                RecordBody::Payload(payload) => drop(state.apply(record.number, payload, self.config.me)),
                RecordBody::Begin { .. } | RecordBody::Voters(_) => {}
            }
        }
        let snapshot = Snapshot { number, voters: Arc::clone(&self.voters), state: state.snapshot() };
        self.outgoing = Some(Outgoing { snapshot: Arc::new(snapshot), until });
        number
    }

    /// Offers a snapshot to a follower whose log has diverged, or is too far behind.
    pub(super) fn offer(&mut self, now: Instant, to: primacy_core::NodeId) {
        let Role::Leader(lead) = &mut self.role else { return };
        let Some(follower) = lead.followers.get_mut(&to) else { return };
        if follower.offered.is_some() {
            return;
        }
        let last = follower.sent_id.unwrap_or_default();
        let number = self.snapshot_to_offer(now, last);
        if let Role::Leader(lead) = &mut self.role
            && let Some(follower) = lead.followers.get_mut(&to)
        {
            follower.offered = Some(number);
            follower.resend_at = Some(now.after(self.config.resend_after));
        }
        self.send(to, Body::Offer { number });
    }

    pub(super) fn on_offer(&mut self, now: Instant, from: Identity, number: LeaderSequence) {
        let wanted = match &self.role {
            // A new leader's source makes offers too, which must not make it count as a leader. The offer may come
            // late, to another incarnation of the node that asked.
            Role::Follower { leader, .. } => *leader == Some(from) && self.may_take_from(from),
            Role::Passive(sync) => sync.source.is_some_and(|(source, _)| source == from),
            Role::Leader(_) => false,
        };
        let under_way =
            self.incoming.as_ref().is_some_and(|incoming| incoming.from == from && incoming.number == number);
        if !wanted || under_way || number <= self.log.last() || number.term > self.bound {
            return; // A log never gets shorter, and nobody honest has what a later term wrote.
        }
        let ask_at = now.after(self.config.resend_after);
        self.incoming = Some(Incoming { from, number, bytes: Vec::new(), tries: 0, ask_at });
        self.send(from.node, Body::Part { number, offset: 0 });
    }

    pub(super) fn ask_for_parts_again(&mut self, now: Instant) {
        let Some(incoming) = self.incoming.as_mut().filter(|incoming| now >= incoming.ask_at) else { return };
        incoming.tries += 1;
        incoming.ask_at = now.after(self.config.resend_after);
        if incoming.tries > PART_TRIES_MAX {
            self.incoming = None;
            return;
        }
        let (node, number, offset) = (incoming.from.node, incoming.number, incoming.bytes.len() as u64);
        self.send(node, Body::Part { number, offset });
    }

    pub(super) fn on_part(&mut self, now: Instant, from: Identity, number: LeaderSequence, offset: u64) {
        let until = now.after(self.config.resend_after.times(OFFER_LASTS));
        let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.snapshot.number == number)
        else {
            return; // Another one is offered instead, when the leader notices.
        };
        outgoing.until = until;
        let Snapshot { voters, state, .. } = &*outgoing.snapshot;
        let Some(rest) = usize::try_from(offset).ok().and_then(|offset| state.get(offset..)) else { return };
        let bytes = Arc::from(&rest[..rest.len().min(self.config.part_max)]);
        let (voters, length) = (Arc::clone(voters), state.len() as u64);
        self.send(from.node, Body::PartReply { to: from.incarnation, number, voters, offset, length, bytes });
    }

    pub(super) fn on_part_reply(&mut self, now: Instant, from: Identity, part: SnapshotChunk<'_>) {
        let Some(incoming) = &mut self.incoming else { return };
        let fits = incoming.from == from
            && incoming.number == part.number
            && incoming.bytes.len() as u64 == part.offset;
        if !fits || part.length > SNAPSHOT_LENGTH_MAX {
            return; // A copy, or of another one.
        }
        incoming.bytes.extend_from_slice(part.bytes);
        incoming.tries = 0;
        incoming.ask_at = now.after(self.config.resend_after);
        let have = incoming.bytes.len() as u64;
        if let Role::Passive(sync) = &mut self.role {
            // The source is kept while chunks arrive, however long the snapshot is.
            sync.put_off(now.after(self.config.resend_after));
        }
        if have < part.length && !part.bytes.is_empty() {
            let number = part.number;
            return self.send(from.node, Body::Part { number, offset: have });
        }
        let bytes = core::mem::take(&mut incoming.bytes);
        self.incoming = None;
        // The voters may be newer than the snapshot: its sender may have learned them from a message.
        if have != part.length || part.number <= self.log.last() || part.voters.number.term > self.bound {
            return;
        }
        let number = part.number;
        match S::restore(&bytes) {
            Ok(state) => {
                self.install(state, Snapshot { number, voters: part.voters, state: bytes.into() });
                self.fetched_more(now);
            }
            // Stop here: the snapshot would be fetched again and again.
            Err(why @ DecodeError::Format(_)) => {
                self.unreadable = Some(Unreadable { what: PartOfLog::Snapshot, number, why });
            }
            Err(_) => {} // Nothing that an honest node sends.
        }
    }

    /// Replaces the log and the state.
    fn install(&mut self, state: S, snapshot: Snapshot) {
        self.state.become_other(state);
        self.log = Log::after(snapshot.number);
        self.queued = snapshot.number;
        self.applied = snapshot.number;
        self.applied_voters = Arc::clone(&snapshot.voters);
        self.since_snapshot = 0;
        self.snapshot_length = snapshot.state.len();
        self.outgoing = None;
        self.tell_voters(&snapshot.voters);
        self.remember_voters();
        if self.config.durability == Durability::Fsync {
            self.effects.push_back(Effect::Write(Write::Snapshot(Arc::new(snapshot))));
        }
    }
}

/// A part of a snapshot.
#[derive(Debug)]
pub(super) struct SnapshotChunk<'a> {
    pub(super) number: LeaderSequence,
    pub(super) voters: Arc<Voters>,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) bytes: &'a [u8],
}
