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
//! each is a promise to take no more records of an earlier term. The two majorities share a node, which took the record
//! before it promised. So the highest number among the answers is not below the record's, and a log that is complete up
//! to that number contains the record.
//!
//! That log may also contain records that were never committed. They are kept, because no client was told that they
//! failed.

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

/// The limits on the bytes of uncommitted records in memory, and on gathered payloads, beyond which proposals have to
/// wait.
const UNCOMMITTED_MAX: usize = 64 << 20;
const GATHERED_MAX: usize = 16_384;

/// A state that is the same on all nodes, because all apply the same payloads in the same order.
pub trait Replicated: Clone {
    /// The result of applying a payload, returned to its proposer.
    type Outcome: Clone + core::fmt::Debug;
    /// Checks that this program knows the format of a payload. A record in an unknown format is neither taken nor
    /// applied.
    ///
    /// # Errors
    /// [`DecodeError::Format`]
    fn check(_payload: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }
    /// Applies a payload. An invalid payload in a known format changes nothing, on all nodes and in all versions. The
    /// result is for clients of this process, `me`.
    fn apply(&mut self, number: LeaderSequence, payload: &[u8], me: Identity) -> Self::Outcome;
    /// Returns and resets the cost of the payloads applied since the last call, in addition to their bytes. The unit is
    /// the time to apply one byte of records. The cost counts toward the next snapshot.
    fn take_cost(&mut self) -> u64 {
        0
    }
    /// The whole state as bytes.
    fn snapshot(&self) -> Arc<[u8]>;
    /// Restores the bytes that [`snapshot`](Self::snapshot) gave.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a snapshot; [`DecodeError::Format`] if another version may be able to
    /// decode them.
    fn restore(bytes: &[u8]) -> Result<Self, DecodeError>;
    /// The state before the first record.
    fn empty() -> Self;
    /// Replaces this state by a restored one, which may include records that are not committed, and never will be.
    fn become_other(&mut self, other: Self) {
        *self = other;
    }
    /// Handles that the whole state is committed. Until then, no client may read it.
    fn settle(&mut self) {}
}

/// The limits and timing of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, with the incarnation of this process.
    pub me: Identity,
    /// The durability of a record before it is acknowledged. The same for all voters.
    pub durability: Durability,
    /// The time without an answer after which a message is sent again.
    pub resend_after: Duration,
    /// The limit on the bytes of records in one message, if it has more than one record.
    pub append_max: usize,
    /// The limit on the bytes of unanswered records to one follower.
    pub window: usize,
    /// The bytes of a snapshot in one message.
    pub part_max: usize,
    /// The bytes of records after which a snapshot replaces them on the disk; the length of the last snapshot, if that
    /// is more.
    pub snapshot_after: usize,
    /// The bytes of applied records that are kept in memory, for followers that are slightly behind.
    pub kept_max: usize,
    /// The limit on the cost of records that are applied in one step, if it is more than one record, in bytes of
    /// records. The lead is renewed between steps, so a step must take a small part of the shortest lease.
    pub apply_max: usize,
}

/// An effect to perform, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Write this to the log's disk, and return when it would survive a power cut.
    Write(Write),
    /// Persist these voters, beside the vote.
    Voters(Arc<Voters>),
    /// Persist whether the log is lost.
    LogLost(bool),

    /// Send this.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        body: Body,
    },
    /// A violation: another node leads in the same term.
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
    /// The term to which this node is bound: no message of a lower one is taken or answered. The election persists it.
    bound: Term,
    log: Log,
    /// The last record with a write among the effects so far, or on the disk at the start.
    queued: LeaderSequence,
    /// The last record that this node holds with its [`Durability`]. It reaches `queued` when the effects are
    /// performed.
    written: LeaderSequence,
    /// The last record that counts as committed at this node. All records up to it are applied.
    committed: LeaderSequence,
    /// The last record that a leader is known to have committed. It counts as committed here once it is applied.
    known_committed: LeaderSequence,
    state: S,
    /// The last record in the state. Above `committed` only after the restoration of a snapshot.
    applied: LeaderSequence,
    /// The voters by the last applied record that states any.
    applied_voters: Arc<Voters>,
    /// The results of applied records that are not yet taken.
    outcomes: VecDeque<(LeaderSequence, S::Outcome)>,
    /// The voters in force: those of the last record that states any, committed or not.
    voters: Arc<Voters>,
    /// The voters that were last persisted beside the vote.
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
    /// The gathered payloads. They are written and sent together, when all pending inputs are handled.
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
    /// Leads, and does not yet have all committed records of earlier terms.
    Passive(Sync),
    /// Leads, and writes.
    Leader(Lead),
}

/// An answer to the leader, due when the records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owed {
    round: u64,
    gap: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    /// The first record of the term. Majorities count only from this record on: a record of an earlier term may be on a
    /// majority and yet be replaced (Raft, section 5.4.2).
    begun: LeaderSequence,
    followers: BTreeMap<NodeId, Follower>,
    /// The nodes that are brought up to date before they vote.
    learners: BTreeMap<NodeId, Learner>,
    /// The voter that was removed last, and its address.
    leaving: BTreeMap<NodeId, Arc<str>>,
    /// The next voters, which take over as soon as a majority of them holds all committed records.
    next: Option<Next>,
}

/// A leader's knowledge of one follower.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Follower {
    /// The incarnation that answered last.
    incarnation: Option<Incarnation>,
    /// The incarnation that has connected since this node leads, if any.
    connected: Option<Incarnation>,
    /// The last record that it is certain to hold in this term, for all its incarnations together.
    match_id: LeaderSequence,
    /// The last record sent to it, or the known end of its log; `None` if the end is not known.
    sent_id: Option<LeaderSequence>,
    /// The unanswered messages: the last number and the bytes of each.
    in_flight: VecDeque<(LeaderSequence, usize)>,
    /// The commit number that it was last sent, unless it could not apply it.
    commit_sent: LeaderSequence,
    round: u64,
    /// The last round before the latest rewind: a gap in answers up to it is outdated.
    rewound: u64,
    /// The time at which a message is sent again.
    resend_at: Option<Instant>,
    /// The number of the snapshot that it was offered.
    offered: Option<LeaderSequence>,
}

impl<S: Replicated> Replica<S> {
    /// A replica with the durable state of an earlier incarnation: `voters` and `bound` from the election's disk state,
    /// `stored` from the log's. `log_lost` is true if there was a log, and it is lost.
    ///
    /// # Errors
    /// [`Unreadable`], if the snapshot or a record cannot be decoded: they are intact on the disk, so another version
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

    /// Handles that all effects so far are performed. Only now this node counts its written records, and applies
    /// records that become committed by that, because the driver reads the state while it performs effects. Returns
    /// true if anything changed.
    pub fn on_performed(&mut self, now: Instant) -> bool {
        assert!(self.effects.is_empty(), "effects that nobody has taken are not done");
        let has_written = self.written != self.queued;
        if has_written {
            self.written = self.queued;
            self.advance(now);
        }
        has_written
    }

    /// The time to call [`on_timeout`](Self::on_timeout), if no other input comes first. Gathered work is due at once,
    /// but after all pending inputs, so that one write to the disk suffices for all of it.
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

    /// Handles the loss of the log. It counts for nothing until it has all records again that it can have held and, if
    /// the whole disk was lost, all other nodes know the new disk.
    pub fn lose(&mut self, now: Instant) {
        if self.recovery.is_none() {
            self.follow();
            self.recovery = Some(Recovery::new(now));
            self.effects.push_back(Effect::LogLost(true));
        }
    }

    /// Binds this node to a term: from now on no message of a lower one is taken or answered. The caller must have
    /// persisted the term.
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

    /// Handles a new connection from a node: it may be another incarnation, or have missed messages.
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

    /// True if there is room for more proposals of other nodes. The limit is needed because a leader that cannot commit
    /// keeps its records in memory, while the same requests are sent to it repeatedly.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let most = self.config.kept_max.saturating_mul(KEPT_FOR_OFFER).saturating_add(UNCOMMITTED_MAX);
        self.log.bytes() <= most && self.gathered.len() < GATHERED_MAX
    }

    /// Proposes a payload. Returns `false` and ignores it, unless this node is the active leader.
    pub fn propose(&mut self, now: Instant, payload: Arc<[u8]>) -> bool {
        let active = self.is_active();
        if active {
            self.gathered.push(payload);
            self.flush_at.get_or_insert(now);
        }
        active
    }

    /// Handles a message of another replica. Before it, the caller binds this replica to the term of a leader's
    /// message.
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

    /// True if this node leads, and the first record of its term is committed, and with it all records before.
    #[must_use]
    pub fn is_active(&self) -> bool {
        match &self.role {
            Role::Leader(lead) => self.committed >= lead.begun,
            Role::Follower { .. } | Role::Passive(_) => false,
        }
    }

    /// True if this node was elected, and is fetching records of earlier terms.
    #[must_use]
    pub const fn is_catching_up(&self) -> bool {
        matches!(self.role, Role::Passive(_))
    }

    /// True if this node was elected in its term, passive or active.
    #[must_use]
    pub const fn leads(&self) -> bool {
        matches!(self.role, Role::Passive(_) | Role::Leader(_))
    }

    /// The state after all applied records.
    #[must_use]
    pub const fn state(&self) -> &S {
        &self.state
    }

    /// True if the whole state is committed. After a restart that is not known before a leader is heard.
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

    /// The last record that counts as committed: it is committed, and this node has applied it.
    #[must_use]
    pub const fn committed(&self) -> LeaderSequence {
        self.committed
    }

    /// The last record of the log.
    #[must_use]
    pub fn last(&self) -> LeaderSequence {
        self.log.last()
    }

    /// The number of records in this node's log that do not count as committed.
    #[must_use]
    pub fn uncommitted(&self) -> u64 {
        self.log.count_after(self.committed)
    }

    /// On the leader: each other voter and learner, with the number of records that it is not known to hold. For a node
    /// without any record of this term, that is all records in memory.
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

    /// The voters by the last applied record that states any.
    #[must_use]
    pub const fn applied_voters(&self) -> &Arc<Voters> {
        &self.applied_voters
    }

    /// The durability of this node's records.
    #[must_use]
    pub const fn durability(&self) -> Durability {
        self.config.durability
    }

    /// The term to which it is bound.
    #[must_use]
    pub const fn bound(&self) -> Term {
        self.bound
    }

    /// True if this node leads, and the window of a follower is full.
    #[must_use]
    pub fn keeps_back(&self) -> bool {
        let Role::Leader(lead) = &self.role else { return false };
        let (window, last) = (self.config.window, self.log.last());
        lead.followers
            .values()
            .any(|it| it.window_is_full(window) && it.sent_id.is_some_and(|sent| sent < last))
    }

    /// True if this node has lost its log, and its records do not count yet.
    #[must_use]
    pub const fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// The result of the next record that was applied. Its effects must have been finished before.
    pub fn next_outcome(&mut self) -> Option<(LeaderSequence, S::Outcome)> {
        self.outcomes.pop_front()
    }

    // ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends and writes all gathered payloads. The records are sent before the own write begins, so that all disks
    /// write at the same time; this node counts itself when its write is [performed](Self::on_performed).
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
        // No message depends on a snapshot, and it may take long to write. A new leader's snapshot must not delay its
        // becoming active, or its lease might end first; so records that are applied from here on go into the next
        // snapshot.
        self.shorten();
        self.advance(now);
    }

    /// Queues the write of all records that are not written yet. Messages that depend on it are queued after it.
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

    /// Persists the voters beside the vote, before the record that states them is written. A node that has lost its log
    /// recovers it from the voters that it knew, so these must not be lost with the log. A term restates the same
    /// voters under a new number, which is not persisted, because a new leader would have to wait for its disk once
    /// more; see [`may_be_newer`](Self::may_be_newer).
    ///
    /// Before the first record states voters, nothing is persisted, and the configuration may still be changed. After
    /// that, changing the configuration has no effect.
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

    /// True if another node's list of voters may be newer than the list of this node, which has not lost its votes.
    ///
    /// If its log was lost, this node still knows the voters that it has counted, but not the last number under which
    /// they were stated. That number's term is at most the bound term, and this node would have persisted other voters
    /// of that term. So a list of a lower term may be older than its own: it could be the uncommitted list of a leader
    /// that was cut off.
    #[must_use]
    pub fn may_be_newer(&self, voters: &Voters) -> bool {
        let has_forgotten = self.recovery.is_some() && self.config.durability == Durability::Fsync;
        voters.number > self.voters.number && !(has_forgotten && voters.number.term < self.bound)
    }

    /// True if an honest node can have written this record. A record of a later term is refused, because it could never
    /// be replaced: a log never gets shorter.
    fn may_be(&self, record: &Record) -> bool {
        let states_them = record.voters().is_none_or(|voters| voters.number == record.number);
        states_them && record.number.term <= self.bound
    }

    fn push(&mut self, record: Record) {
        self.take_voters(&record);
        self.log.push(record);
    }

    /// Adopts the voters of a record, which are in force once they are in the log, committed or not. Different voters
    /// are persisted at once: of two lists that are written together, the second may restate the earlier voters, and
    /// the first would then look newer to a node that has lost its log.
    fn take_voters(&mut self, record: &Record) {
        if let Some(voters) = record.voters().filter(|voters| voters.number > self.voters.number) {
            let are_others = voters.members != self.voters.members;
            self.voters = Arc::clone(voters);
            if are_others {
                self.remember_voters();
            }
        }
    }

    /// Adopts voters from another node's message, if they are newer than the known ones.
    pub fn tell_voters(&mut self, voters: &Arc<Voters>) {
        if voters.number > self.voters.number {
            self.voters = Arc::clone(voters);
            self.remembered = Arc::clone(voters);
            self.effects.push_back(Effect::Voters(Arc::clone(voters)));
        }
    }

    /// Writes the first record of a new leader, whose commitment commits all records before it. The ends of the logs of
    /// the nodes that have answered are known.
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

    /// Sends a follower the records that it lacks, up to its window.
    fn stream(&mut self, now: Instant, node: NodeId) {
        let Role::Leader(lead) = &mut self.role else { return };
        let Some(follower) = lead.followers.get_mut(&node) else { return };
        let mut bodies = Vec::new();
        let Some(mut sent) = follower.sent_id else {
            // The end of its log is not known: an empty append makes the follower report it.
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
        // A connection identifies the incarnation better than the count, which is lost with a disk.
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
        // Later messages are still unanswered. A recovering follower is asked again later, even if it has the whole
        // log, because it may not count yet.
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
            // An answer to an earlier message does not confirm the offer, which may be lost.
            follower.resend_at.get_or_insert(now.after(self.config.resend_after));
        }
        self.advance(now);
        self.stream(now, from.node);
    }

    // ── following ───────────────────────────────────────────────────────────────────────────────────────────

    /// Accepts `from` as the leader of the term and returns true, unless another leader of the term is known, which is
    /// reported as [`Effect::TwoLeaders`].
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
        // The commit number applies only to a log that agrees with the leader's.
        if self.log.last().term == self.bound && self.recovery.is_none() {
            self.known_committed = self.known_committed.max(committed.min(self.log.last()));
            self.commit(now, self.known_committed);
        }
        if let Role::Follower { owed, .. } = &mut self.role {
            // Of several messages only the last is answered, but the answer reports a gap of any of them.
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
    /// Resets the state of a follower with a new incarnation, which may have lost records of the earlier one.
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

    /// Forgets the end of its log, so that the leader asks for it.
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
