//! The replica: one node's copy of a log that one leader at a time writes. A record is committed when a majority holds it.
//!
//! It is the cluster state ledger of BlazingMQ: the elected node leads, however far behind its log is, and catches up
//! before it writes. The election is a separate machine, which sets the term that binds this one, and makes it lead.
//!
//! Assumes   that a term has one leader, elected by a majority that is bound to the term; that written records survive a
//!           restart ([`Durability::Fsync`]), or that fewer than a majority of the voters have lost their logs and not
//!           yet recovered ([`Durability::Memory`]).
//! Promises  that a committed record is never lost or changed, and that all nodes apply the same records in the same
//!           order.
//! Costs     one message to each follower and its answer for all records gathered meanwhile, and one write to each disk,
//!           at the same time. A new leader: one round trip to a majority, the records that it lacks, and one record.
//!
//! The roles of a node:
//!
//! ```text
//!              told to lead                a majority has answered, and what was missing is here
//!   Follower ───────────────► Passive ────────────────────────────────────────────────────────► Leader
//!      ▲                         │                                                                │  its first record is
//!      └── a higher term, or told that it leads no more ──────────────────────────────────────────┘  committed: active
//! ```
//!
//! Why nothing is lost: a committed record is on a majority. The answers to [`Body::Sync`] come from a majority, and
//! each is a promise to take nothing from an earlier leader any more. The two share a node, which took the record
//! before it promised. So the highest number among the answers is that of the record or above it, and a log that is
//! whole up to there has it.
//!
//! Records that were never committed may be in that log. They are kept: no client was told that they failed.

mod committing;
mod leader_sync;
mod reconfiguration;
mod recovery;
mod snapshots;
mod state_reduction;
mod unreadable;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::leader_sync::Sync;
use self::reconfiguration::{Learner, Next};
pub use self::reconfiguration::{Progress, Refusal, VOTERS_MAX, VoterChange};
use self::recovery::Recovery;
pub use self::snapshots::SNAPSHOT_LENGTH_MAX;
use self::snapshots::{Incoming, KEPT_FOR_OFFER, Outgoing, SnapshotChunk};
pub use self::state_reduction::ROUND;
pub use self::unreadable::{PartOfLog, Unreadable};
use primacy_core::hard_state::Durability;
use primacy_core::id::{Identity, Incarnation, NodeId};
use primacy_core::term::{LeaderSequence, Term};
use primacy_core::time::{Duration, Instant};

use super::log::{Log, Record, RecordBody, Stored, Write};
use super::message::Body;
use super::voters::Voters;
use crate::encoding::DecodeError;

/// The most bytes of uncommitted records in memory before others have to wait, and the most payloads that are gathered.
const UNCOMMITTED_MAX: usize = 64 << 20;
const GATHERED_MAX: usize = 16_384;

/// A state that is the same on all nodes, because all apply the same payloads in the same order.
pub trait Replicated: Clone {
    /// The result of applying a payload, returned to its proposer.
    type Outcome: Clone + core::fmt::Debug;
    /// Checks that this program knows the format of a payload. An unknown one is neither taken nor applied.
    ///
    /// # Errors
    /// [`DecodeError::Format`]
    fn check(_payload: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }
    /// Applies a payload. An invalid payload in a known format changes nothing; on all nodes alike, and in all
    /// versions. The result is for clients of this process, `me`.
    fn apply(&mut self, number: LeaderSequence, payload: &[u8], me: Identity) -> Self::Outcome;
    /// Takes the cost of the payloads applied since the last call, as the number of bytes of records that take as long.
    /// A log that takes long to apply is shortened as a long one is.
    fn take_cost(&mut self) -> u64 {
        0
    }
    /// The whole state as bytes.
    fn snapshot(&self) -> Arc<[u8]>;
    /// Restores the bytes that [`snapshot`](Self::snapshot) gave.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no snapshot; [`DecodeError::Format`] if they may be one to another version.
    fn restore(bytes: &[u8]) -> Result<Self, DecodeError>;
    /// The state before the first record.
    fn empty() -> Self;
    /// Becomes another state, which was restored. It may be of records that are not committed, and never will be.
    fn become_other(&mut self, other: Self) {
        *self = other;
    }
    /// Reports that all that is in it is committed. Until then, it should be shown to no client.
    fn settle(&mut self) {}
}

/// The limits and timing of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, with the incarnation of this process.
    pub me: Identity,
    /// The meaning of holding a record. The same for all voters.
    pub durability: Durability,
    /// The time without an answer after which a message is sent again.
    pub resend_after: Duration,
    /// The most bytes of records in one message, if it has more than one record.
    pub append_max: usize,
    /// The most bytes of records that are under way to one follower.
    pub window: usize,
    /// The bytes of a snapshot in one message.
    pub part_max: usize,
    /// The bytes of records after which a snapshot takes their place on the disk, or as many as the last snapshot has,
    /// if that is more.
    pub snapshot_after: usize,
    /// The bytes of applied records that stay in memory, for followers that are a little behind.
    pub kept_max: usize,
    /// The cost of records that are applied in one step, if it is more than one record, in bytes of records that take as long. The
    /// lead is renewed between two steps, so a step takes a small part of the shortest lease.
    pub apply_max: usize,
}

/// An effect that a replica wants, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Write this to the log's disk, and return when it would survive a power cut.
    Write(Write),
    /// Remember these voters, like a vote.
    Voters(Arc<Voters>),
    /// Remember that the log is lost, or that it is not any more.
    LogLost(bool),

    /// Send this.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        body: Body,
    },
    /// Another node leads in the same term, which must never be.
    TwoLeaders {
        /// The leader that was known.
        known: Identity,
        /// The other leader.
        other: Identity,
    },
}

/// The log and the state of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<S: Replicated> {
    config: Config,
    /// The term below which no message is taken or answered. The election has it on its disk.
    bound: Term,
    log: Log,
    /// The last record whose write was handed out, or that was on the disk at the start.
    queued: LeaderSequence,
    /// The last record that this node holds, in the sense of its durability. It follows `queued` when the effects are done.
    written: LeaderSequence,
    /// The last record that counts as committed at this node. All up to here is applied.
    committed: LeaderSequence,
    /// The last record that a leader is known to have committed. It counts from when it is applied.
    known_committed: LeaderSequence,
    state: S,
    /// The last record in the state. Above `committed` only after a snapshot that was above it.
    applied: LeaderSequence,
    /// The voters that the records in the state name.
    applied_voters: Arc<Voters>,
    /// The results of the records that were applied since the last call.
    outcomes: VecDeque<(LeaderSequence, S::Outcome)>,
    /// The voters in force: those of the last record that states some, committed or not.
    voters: Arc<Voters>,
    /// The voters that were last remembered beside the votes.
    remembered: Arc<Voters>,
    role: Role,
    /// The recovery, while this node has lost its log.
    recovery: Option<Recovery>,
    /// A snapshot that is being fetched.
    incoming: Option<Incoming>,
    /// The snapshot that others fetch.
    outgoing: Option<Outgoing>,
    /// The bytes of records applied since the last snapshot on the disk, and the length of that one.
    since_snapshot: usize,
    snapshot_length: usize,
    /// The payloads to be written, with the records and commit numbers to be sent: all at once when nothing else is
    /// waiting to be handled.
    gathered: Vec<Arc<[u8]>>,
    flush_at: Option<Instant>,
    effects: VecDeque<Effect>,
    /// The first payload or snapshot that this replica cannot decode.
    unreadable: Option<Unreadable>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Takes records from the leader of the term.
    Follower { leader: Option<Identity>, owed: Option<Owed> },
    /// Leads, and does not know yet all that was committed before.
    Passive(Sync),
    /// Leads, and writes.
    Leader(Lead),
}

/// An answer that a follower owes its leader when its records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owed {
    round: u64,
    gap: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    /// The first record of the term. Majorities are counted only from it on: a record of an earlier term may be on a
    /// majority and yet be replaced (Raft, section 5.4.2).
    begun: LeaderSequence,
    followers: BTreeMap<NodeId, Follower>,
    /// The followers that do not vote yet.
    learners: BTreeMap<NodeId, Learner>,
    /// The node that has stopped voting last, and its address.
    leaving: BTreeMap<NodeId, Arc<str>>,
    /// The voters that there shall be, as soon as a majority of them holds all that is committed.
    next: Option<Next>,
}

/// A leader's knowledge of one follower.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Follower {
    /// The incarnation that answered last.
    incarnation: Option<Incarnation>,
    /// The incarnation that is connected, if it has connected since this node leads.
    connected: Option<Incarnation>,
    /// The last record that it surely holds in this term. A node counts once, whatever its incarnations: this is one
    /// number.
    match_id: LeaderSequence,
    /// The end of its log, with the records that were sent behind that; `None` if that is not known.
    sent_id: Option<LeaderSequence>,
    /// The messages that were sent and not answered: the last number and the bytes of each.
    in_flight: VecDeque<(LeaderSequence, usize)>,
    /// The commit number that it was last sent, if it could use it.
    commit_sent: LeaderSequence,
    round: u64,
    /// The last round whose answers are old.
    rewound: u64,
    /// The time at which a message is sent again.
    resend_at: Option<Instant>,
    /// The number of the snapshot that it was offered.
    offered: Option<LeaderSequence>,
}

impl<S: Replicated> Replica<S> {
    /// A replica with the durable state of an earlier incarnation: `voters` and `bound` from the election's, `stored`
    /// from the log's. `log_lost` if there was a log, and it is lost.
    ///
    /// # Errors
    /// [`Unreadable`], if the snapshot or a record cannot be decoded: they were whole on the disk, so another version
    /// wrote them.
    pub fn new(
        config: Config,
        bound: Term,
        voters: Arc<Voters>,
        stored: Stored,
        log_lost: bool,
        now: Instant,
    ) -> Result<Self, Unreadable> {
        let (base, state, length) = match &stored.snapshot {
            Some(snapshot) => {
                let number = snapshot.number;
                let state = S::restore(&snapshot.state);
                let state = state.map_err(|why| Unreadable { what: PartOfLog::Snapshot, number, why })?;
                (number, state, snapshot.state.len())
            }
            None => (LeaderSequence::NONE, S::empty(), 0),
        };
        let applied_voters = stored.snapshot.map_or_else(|| Arc::clone(&voters), |it| Arc::clone(&it.voters));
        let remembered = Arc::clone(&voters);
        let voters = if applied_voters.number > voters.number { Arc::clone(&applied_voters) } else { voters };
        let mut replica = Self {
            config,
            bound,
            log: Log::after(base),
            queued: base,
            written: base,
            committed: LeaderSequence::NONE,
            known_committed: LeaderSequence::NONE,
            state,
            applied: base,
            applied_voters,
            outcomes: VecDeque::new(),
            voters,
            remembered,
            role: Role::Follower { leader: None, owed: None },
            recovery: log_lost.then(|| Recovery::new(now)),
            incoming: None,
            outgoing: None,
            since_snapshot: 0,
            snapshot_length: length,
            gathered: Vec::new(),
            flush_at: None,
            effects: VecDeque::new(),
            unreadable: None,
        };
        for record in stored.records {
            if !record.follows(replica.log.last()) {
                let why = DecodeError::Value("the number of a record");
                return Err(Unreadable { what: PartOfLog::Record, number: record.number, why });
            }
            Unreadable::check::<S>(&record)?;
            replica.take_voters(&record);
            replica.log.push(record);
        }
        (replica.queued, replica.written) = (replica.log.last(), replica.log.last());
        replica.remember_voters();
        Ok(replica)
    }

    /// The next effect, in the order in which effects must take place.
    pub fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Handles that all effects that were handed out are done. Only now this node counts the records that it has
    /// written, and applies those that are committed by that: others read the state while the effects are performed.
    /// Returns true if there was anything to count.
    pub fn on_performed(&mut self, now: Instant) -> bool {
        assert!(self.effects.is_empty(), "effects that nobody has taken are not done");
        let has_written = self.written != self.queued;
        if has_written {
            self.written = self.queued;
            self.advance(now);
        }
        has_written
    }

    /// The time to call [`on_timeout`](Self::on_timeout), if nothing else happens before. Work that is due at once
    /// waits until all inputs so far were handled, so that one write to the disk does for all of it.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let resend = match &self.role {
            Role::Follower { .. } => None,
            Role::Passive(sync) => Some(sync.resend_at),
            Role::Leader(lead) => {
                let resends = lead.followers.values().filter_map(|follower| follower.resend_at);
                resends.chain(lead.next.as_ref().map(|next| next.until)).min()
            }
        };
        let recovery = match (&self.recovery, &self.role) {
            (Some(recovery), Role::Follower { .. }) => Some(recovery.ask_at),
            (Some(_), Role::Passive(_) | Role::Leader(_)) | (None, _) => None,
        };
        let incoming = self.incoming.as_ref().map(|incoming| incoming.ask_at);
        let offer = self.outgoing.as_ref().map(|outgoing| outgoing.until);
        [self.flush_at, resend, recovery, incoming, offer].into_iter().flatten().min()
    }

    /// Handles the deadline.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.flush_at.is_some_and(|at| now >= at) {
            self.flush(now);
        }
        self.ask_for_parts_again(now);
        self.drop_old_offer(now);
        match &mut self.role {
            Role::Follower { .. } => self.ask_for_recovery(now),
            Role::Passive(sync) if now >= sync.resend_at => self.sync_again(now),
            Role::Passive(_) => {}
            Role::Leader(lead) => {
                let mut late = Vec::new();
                for (&node, follower) in &mut lead.followers {
                    if follower.resend_at.is_some_and(|at| now >= at) {
                        follower.forget_position();
                        late.push(node);
                    }
                }
                let is_over = lead.next.as_ref().is_some_and(|next| now >= next.until);
                if is_over {
                    lead.next = None;
                }
                for node in late {
                    self.stream(now, node);
                }
                if is_over {
                    self.advance(now);
                }
            }
        }
    }

    /// Handles that this node's log may lack records that it has held: it counts for nothing until it has all again
    /// and, if its whole disk was lost, all others know the new one.
    pub fn lose(&mut self, now: Instant) {
        if self.recovery.is_none() {
            self.follow();
            self.recovery = Some(Recovery::new(now));
            self.effects.push_back(Effect::LogLost(true));
        }
    }

    /// Binds this node to a term: from now on no message of a lower one is taken or answered. The caller has written
    /// the term to its disk.
    pub fn bind(&mut self, term: Term) {
        if term > self.bound {
            self.bound = term;
            self.follow();
        }
    }

    /// Makes this node the leader: it was elected in the term to which it is bound.
    pub fn lead(&mut self, now: Instant) {
        self.follow();
        self.begin_sync(now);
    }

    /// Ends this node's lead.
    pub fn follow(&mut self) {
        self.role = Role::Follower { leader: None, owed: None };
        self.gathered.clear(); // Whoever asked for it asks the next leader.
        self.incoming = None;
        if let Some(recovery) = &mut self.recovery {
            recovery.granted = None;
        }
    }

    /// Handles a connection from this node: it may be another incarnation, or have missed messages.
    pub fn on_connected(&mut self, now: Instant, peer: Identity) {
        let Identity { node, incarnation } = peer;
        match &mut self.role {
            Role::Follower { .. } => {}
            Role::Passive(_) if self.voters.contains(node) => self.send(node, Body::Sync),
            Role::Passive(_) => {}
            Role::Leader(lead) => {
                if let Some(follower) = lead.followers.get_mut(&node) {
                    follower.begin_life(incarnation);
                    follower.connected = Some(incarnation);
                    follower.forget_position();
                    self.stream(now, node);
                }
            }
        }
    }

    /// True if there is room for more proposals of others. A leader that cannot commit keeps all that it writes in
    /// memory, and is sent the same again and again.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let most = self.config.kept_max.saturating_mul(KEPT_FOR_OFFER).saturating_add(UNCOMMITTED_MAX);
        self.log.bytes() <= most && self.gathered.len() < GATHERED_MAX
    }

    /// Proposes this payload. Only an active leader writes it; any other returns `false`.
    pub fn propose(&mut self, now: Instant, payload: Arc<[u8]>) -> bool {
        let active = self.is_active();
        if active {
            self.gathered.push(payload);
            self.flush_at.get_or_insert(now);
        }
        active
    }

    /// Handles a message of another replica in the term to which this one is bound; the caller has bound it to a higher
    /// one before.
    pub fn handle(&mut self, now: Instant, from: Identity, term: Term, body: Body) {
        if self.unreadable.is_some() {
            return;
        }
        if let Body::RecoverReply { to, leads_up_to } = body {
            if to == self.config.me.incarnation {
                self.on_recover_reply(now, from, term, leads_up_to);
            }
            return;
        }
        if let Body::Recover = body {
            return self.on_recover(now, from);
        }
        if term != self.bound {
            return; // Of an earlier leader, or an answer to one.
        }
        match body {
            Body::SyncReply { to, .. }
            | Body::Fetched { to, .. }
            | Body::AppendReply { to, .. }
            | Body::PartReply { to, .. }
                if to != self.config.me.incarnation => {}
            Body::Sync => self.on_sync(from),
            Body::SyncReply { last, .. } => self.on_sync_reply(now, from, last),
            Body::Fetch { after } => self.on_fetch(now, from, after),
            Body::Fetched { after, records, .. } => self.on_fetched(now, from, after, records),
            Body::Append { round, after, records, committed } => {
                self.on_append(now, from, round, after, records, committed)
            }
            Body::AppendReply { round, last, gap, recovering, .. } => {
                self.on_append_reply(now, from, Answer { round, last, gap, recovering });
            }
            Body::Offer { number } => self.on_offer(now, from, number),
            Body::Part { number, offset } => self.on_part(now, from, number, offset),
            Body::PartReply { number, voters, offset, length, bytes, .. } => {
                self.on_part_reply(
                    now,
                    from,
                    SnapshotChunk { number, voters, offset, length, bytes: &bytes },
                );
            }
            Body::Recover | Body::RecoverReply { .. } => {} // Above: those are heard in any term.
        }
    }

    // ── queries ─────────────────────────────────────────────────────────────────────────────────────────────

    /// True if this node leads, and all that was committed before is in its log and committed again.
    #[must_use]
    pub fn is_active(&self) -> bool {
        match &self.role {
            Role::Leader(lead) => self.committed >= lead.begun,
            Role::Follower { .. } | Role::Passive(_) => false,
        }
    }

    /// True if this node was told to lead, and is learning what was committed before.
    #[must_use]
    pub const fn is_catching_up(&self) -> bool {
        matches!(self.role, Role::Passive(_))
    }

    /// True if this node was told to lead, and has not been told otherwise.
    #[must_use]
    pub const fn leads(&self) -> bool {
        matches!(self.role, Role::Passive(_) | Role::Leader(_))
    }

    /// The state, as far as records were applied.
    #[must_use]
    pub const fn state(&self) -> &S {
        &self.state
    }

    /// True if all of the state is committed. It is not after a restart, until a leader has been heard.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.committed >= self.applied
    }

    /// The records that this node has in memory.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// The last record in the state.
    #[must_use]
    pub const fn applied(&self) -> LeaderSequence {
        self.applied
    }

    /// The last record that counts as committed: a majority holds it, and this node has applied it.
    #[must_use]
    pub const fn committed(&self) -> LeaderSequence {
        self.committed
    }

    /// The last record of the log.
    #[must_use]
    pub fn last(&self) -> LeaderSequence {
        self.log.last()
    }

    /// The number of records of this node's log that do not count as committed.
    #[must_use]
    pub fn uncommitted(&self) -> u64 {
        self.log.count_after(self.committed)
    }

    /// At the leader: each other voter and learner, with the number of records that it is not known to hold. For one
    /// that has held none of this term yet, that is all that are in memory.
    pub fn behind(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let lead = match &self.role {
            Role::Leader(lead) => Some(lead),
            Role::Follower { .. } | Role::Passive(_) => None,
        };
        let followers = lead.into_iter().flat_map(|lead| {
            let counts = |node| self.voters.contains(node) || lead.learners.contains_key(&node);
            lead.followers.iter().filter(move |(node, _)| counts(**node))
        });
        followers.map(|(&node, follower)| (node, self.log.count_after(follower.match_id)))
    }

    /// The voters in force.
    #[must_use]
    pub const fn voters(&self) -> &Arc<Voters> {
        &self.voters
    }

    /// The voters by the last record in the state that states some.
    #[must_use]
    pub const fn applied_voters(&self) -> &Arc<Voters> {
        &self.applied_voters
    }

    /// The meaning of holding a record at this node.
    #[must_use]
    pub const fn durability(&self) -> Durability {
        self.config.durability
    }

    /// The term to which it is bound.
    #[must_use]
    pub const fn bound(&self) -> Term {
        self.bound
    }

    /// True if this node leads, and keeps records back from a follower whose window is full.
    #[must_use]
    pub fn keeps_back(&self) -> bool {
        let Role::Leader(lead) = &self.role else { return false };
        let (window, last) = (self.config.window, self.log.last());
        lead.followers
            .values()
            .any(|it| it.window_is_full(window) && it.sent_id.is_some_and(|sent| sent < last))
    }

    /// True if this node has lost its log, and the records that it has do not count yet.
    #[must_use]
    pub const fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// The result of the next record that was applied. Its effects must have been finished before.
    pub fn next_outcome(&mut self) -> Option<(LeaderSequence, S::Outcome)> {
        self.outcomes.pop_front()
    }

    // ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends and writes all that has gathered. The records leave before the own write begins, so that all disks write at the same
    /// time; this node counts itself when its write is [done](Self::on_performed).
    fn flush(&mut self, now: Instant) {
        self.flush_at = None;
        for payload in core::mem::take(&mut self.gathered) {
            let number = self.log.last().next();
            self.push(Record { number, body: RecordBody::Payload(payload) });
        }
        if let Role::Leader(lead) = &self.role {
            for node in lead.followers.keys().copied().collect::<Vec<_>>() {
                self.stream(now, node);
            }
        }
        self.let_go();
        self.write();
        if let Role::Follower { leader: Some(leader), owed } = &mut self.role
            && let Some(Owed { round, gap }) = owed.take()
        {
            let (to, last) = (leader.incarnation, self.log.last());
            let (node, recovering) = (leader.node, self.recovery.is_some());
            self.send(node, Body::AppendReply { to, round, last, gap, recovering });
        }
        // No message rests on a snapshot, and it may take long to write. The write of a new leader's snapshot must not
        // delay its learning that it leads, for its lease may be over by then: a snapshot of records applied from here
        // on is left to the next time.
        self.shorten();
        self.advance(now);
    }

    /// Hands out the write of all records that are not written yet. Messages that rest on it are behind it in the
    /// queue.
    fn write(&mut self) {
        if self.queued == self.log.last() {
            return;
        }
        self.remember_voters();
        if self.config.durability == Durability::Fsync {
            let records =
                self.log.since(self.queued, usize::MAX).expect("what is not written is not forgotten");
            self.effects.push_back(Effect::Write(Write::Append(records)));
        }
        self.queued = self.log.last();
    }

    /// Remembers the voters. A node that has lost its log asks the voters that it knew for its contents. So these must
    /// not be lost with it: they are remembered before the record that states them is written. Each term states the
    /// same voters again under a new number, and to write that down, too, would make a new leader wait for its disk
    /// once more; see [`may_be_newer`](Self::may_be_newer).
    ///
    /// Until the first record states voters there is nothing to be remembered: the configuration may still be changed.
    /// After that a change of it has no effect any more.
    fn remember_voters(&mut self) {
        let (remembered, voters) = (&self.remembered, &self.voters);
        let is_known = match self.config.durability {
            Durability::Fsync if remembered.number == LeaderSequence::NONE => {
                voters.number == remembered.number
            }
            Durability::Fsync => remembered.members == voters.members,
            Durability::Memory => remembered.number >= voters.number,
        };
        if !is_known {
            self.remembered = Arc::clone(&self.voters);
            self.effects.push_back(Effect::Voters(Arc::clone(&self.voters)));
        }
    }

    /// True if a list of voters that another node sends may be newer than that of this node, whose votes are whole.
    ///
    /// If its log was lost, it knows the voters that it has counted, and not under which number they were stated last.
    /// That is of no higher term than the one to which it is bound, and it would remember a list of that term with
    /// other voters. So a list of a lower term may be older. It could be that of a leader that was cut off, and never
    /// have been committed.
    #[must_use]
    pub fn may_be_newer(&self, voters: &Voters) -> bool {
        let has_forgotten = self.recovery.is_some() && self.config.durability == Durability::Fsync;
        voters.number > self.voters.number && !(has_forgotten && voters.number.term < self.bound)
    }

    /// True if an honest node can have written this record. One of a later term could never be replaced again, since a
    /// log never gets shorter.
    fn may_be(&self, record: &Record) -> bool {
        let states_them = record.voters().is_none_or(|voters| voters.number == record.number);
        states_them && record.number.term <= self.bound
    }

    fn push(&mut self, record: Record) {
        self.take_voters(&record);
        self.log.push(record);
    }

    /// Takes the voters of a record, which are in force from when they are in the log, committed or not. Others are
    /// remembered at once: of two lists that are written together the second may name the earlier voters again, and the
    /// first would look newer to a node that has lost its log.
    fn take_voters(&mut self, record: &Record) {
        if let Some(voters) = record.voters().filter(|voters| voters.number > self.voters.number) {
            let are_others = voters.members != self.voters.members;
            self.voters = Arc::clone(voters);
            if are_others {
                self.remember_voters();
            }
        }
    }

    /// Takes these voters, if they are newer than the known ones.
    pub fn tell_voters(&mut self, voters: &Arc<Voters>) {
        if voters.number > self.voters.number {
            self.voters = Arc::clone(voters);
            self.remembered = Arc::clone(voters);
            self.effects.push_back(Effect::Voters(Arc::clone(voters)));
        }
    }

    /// Writes the first record of a new leader, which commits all that is before it. The nodes that have answered need
    /// not be asked how far they are.
    fn begin(&mut self, now: Instant, answers: &BTreeMap<NodeId, (Identity, LeaderSequence)>) {
        let number = LeaderSequence::first(self.bound);
        let voters = Arc::new(self.voters.restated(number));
        let after = self.log.last();
        let others = voters.members.keys().filter(|&&node| node != self.config.me.node);
        let known = |node: &NodeId| match answers.get(node) {
            Some(&(who, last)) => {
                let sent = self.log.position(last).map(|_| last);
                Follower { incarnation: Some(who.incarnation), sent_id: sent, ..Follower::default() }
            }
            None => Follower::default(),
        };
        let followers = others.map(|node| (*node, known(node))).collect();
        self.role = Role::Leader(Lead {
            begun: number,
            followers,
            learners: BTreeMap::new(),
            leaving: BTreeMap::new(),
            next: None,
        });
        self.incoming = None;
        self.push(Record { number, body: RecordBody::Begin { after, voters } });
        self.flush(now);
    }

    // ── leading ─────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends a follower the records that it lacks, as far as the window goes.
    fn stream(&mut self, now: Instant, node: NodeId) {
        let Role::Leader(lead) = &mut self.role else { return };
        let Some(follower) = lead.followers.get_mut(&node) else { return };
        let mut bodies = Vec::new();
        let Some(mut sent) = follower.sent_id else {
            // The end of its log is not known. A gap makes the follower report it.
            if follower.resend_at.is_none() {
                bodies.push(follower.append(self.log.last(), Vec::new(), self.committed));
                follower.resend_at = Some(now.after(self.config.resend_after));
            }
            return self.send_each(node, bodies);
        };
        while !follower.window_is_full(self.config.window) {
            let Some(records) = self.log.since(sent, self.config.append_max) else { break };
            let Some(last) = records.last().map(|record| record.number) else { break };
            follower.in_flight.push_back((last, records.iter().map(Record::size).sum()));
            bodies.push(follower.append(sent, records, self.committed));
            sent = last;
        }
        let needs_snapshot = self.log.position(sent).is_none();
        if bodies.is_empty()
            && !needs_snapshot
            && follower.commit_sent < self.committed
            && sent >= self.committed
        {
            bodies.push(follower.append(sent, Vec::new(), self.committed));
        }
        if !bodies.is_empty() {
            follower.sent_id = Some(sent);
            follower.resend_at.get_or_insert(now.after(self.config.resend_after));
        }
        self.send_each(node, bodies);
        if needs_snapshot {
            self.offer(now, node);
        }
    }

    fn send_each(&mut self, to: NodeId, bodies: Vec<Body>) {
        for body in bodies {
            self.send(to, body);
        }
    }

    fn on_append_reply(&mut self, now: Instant, from: Identity, answer: Answer) {
        let (bound, last) = (self.bound, self.log.last());
        let Role::Leader(lead) = &mut self.role else { return };
        let Some(follower) = lead.followers.get_mut(&from.node) else { return };
        // A lost disk takes the count of incarnations with it; so a connection tells more than the count.
        let is_earlier = match (follower.connected, follower.incarnation) {
            (Some(connected), _) => connected != from.incarnation,
            (None, Some(known)) => known.count > from.incarnation.count,
            (None, None) => false,
        };
        if is_earlier {
            return;
        }
        follower.begin_life(from.incarnation);
        if let Some(learner) = lead.learners.get_mut(&from.node) {
            learner.has_answered = true;
        }
        if answer.last > last || answer.round > follower.round {
            return; // Nobody can have more than was written, or answer what was not asked.
        }
        // Later messages are still to be answered. A follower that has lost its log is asked again later, even if it
        // has all of it: it may not count yet.
        let waits = answer.round < follower.round || answer.recovering;
        follower.resend_at = waits.then(|| now.after(self.config.resend_after));
        while follower.in_flight.front().is_some_and(|&(number, _)| number <= answer.last) {
            follower.in_flight.pop_front();
        }
        if answer.gap || answer.last < follower.commit_sent {
            follower.commit_sent = LeaderSequence::NONE; // It made nothing of that, or not all; so it is told again when it can.
        }
        if answer.gap && answer.round > follower.rewound {
            follower.in_flight.clear();
            follower.sent_id = Some(answer.last);
            follower.rewound = follower.round;
            follower.offered = None;
        } else if follower.sent_id.is_none() || follower.offered.is_some_and(|number| answer.last >= number) {
            follower.sent_id = Some(answer.last);
            follower.offered = None;
        }
        if answer.last.term == bound && !answer.recovering {
            follower.match_id = follower.match_id.max(answer.last);
        }
        if follower.offered.is_some() {
            // An answer to an earlier message tells nothing of the offer, which may be lost.
            follower.resend_at.get_or_insert(now.after(self.config.resend_after));
        }
        self.advance(now);
        self.stream(now, from.node);
    }

    // ── following ───────────────────────────────────────────────────────────────────────────────────────────

    /// True if this node may be heard as the leader of the term.
    fn hears(&mut self, from: Identity) -> bool {
        let known = match &mut self.role {
            Role::Follower { leader, .. } => *leader.get_or_insert(from),
            Role::Passive(_) | Role::Leader(_) => self.config.me,
        };
        if known != from {
            self.effects.push_back(Effect::TwoLeaders { known, other: from });
        }
        known == from
    }

    fn on_append(
        &mut self,
        now: Instant,
        from: Identity,
        round: u64,
        after: LeaderSequence,
        records: Vec<Record>,
        committed: LeaderSequence,
    ) {
        if !self.hears(from) || !self.may_take_from(from) {
            return;
        }
        let mut gap = self.log.position(after).is_none();
        for record in records {
            if self.log.position(record.number).is_some() {
                continue; // It came before.
            }
            gap = !record.follows(self.log.last());
            if gap {
                break;
            }
            if !self.may_be(&record) || !self.can_read(&record) {
                return;
            }
            self.push(record);
        }
        gap |= self.log.last() < after;
        self.recovered_up_to_its_leader();
        // The number is no use to a log that has gone another way.
        if self.log.last().term == self.bound && self.recovery.is_none() {
            self.known_committed = self.known_committed.max(committed.min(self.log.last()));
            self.commit(now, self.known_committed);
        }
        if let Role::Follower { owed, .. } = &mut self.role {
            // Of several messages, the last is answered; but a gap is not forgotten.
            let gap = gap || owed.is_some_and(|owed| owed.gap);
            *owed = Some(Owed { round, gap });
            self.flush_at.get_or_insert(now);
        }
    }

    fn send(&mut self, to: NodeId, body: Body) {
        self.effects.push_back(Effect::Send { to, body });
    }
}

/// A follower's answer.
#[derive(Clone, Copy, Debug)]
struct Answer {
    round: u64,
    last: LeaderSequence,
    gap: bool,
    recovering: bool,
}

impl Follower {
    /// Begins a new incarnation, which may have lost the records of an earlier one, and may have to ask for them again.
    fn begin_life(&mut self, incarnation: Incarnation) {
        if self.incarnation.is_some_and(|known| known != incarnation) {
            *self = Self { connected: self.connected, round: self.round, ..Self::default() };
        }
        self.incarnation = Some(incarnation);
    }

    fn append(&mut self, after: LeaderSequence, records: Vec<Record>, committed: LeaderSequence) -> Body {
        self.round += 1;
        self.commit_sent = committed;
        Body::Append { round: self.round, after, records, committed }
    }

    fn window_is_full(&self, window: usize) -> bool {
        self.in_flight.iter().map(|(_, bytes)| bytes).sum::<usize>() >= window
    }

    /// Forgets the end of its log, so that it is asked for.
    fn forget_position(&mut self) {
        self.sent_id = None;
        self.in_flight.clear();
        self.resend_at = None;
        self.offered = None;
        self.rewound = self.round;
    }
}

#[cfg(test)]
mod tests;
