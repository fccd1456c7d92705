//! Lease: the node that holds an expiring record in a compare-and-set store leads.
//!
//! Assumes   the store's compare-and-set is linearizable; the rates of any two clocks differ by at most
//!           `drift_max`. No clocks are compared, and the store's clock plays no part.
//! Promises  at most one node at a time believes that it leads; each leadership has a higher token.
//! Costs     one write per renewal, some six in a lease; a take-over after silence costs the whole lease, after a release
//!           or a reported death a read and a write.
//!
//! The roles of a node:
//!
//! ```text
//!            released, or unchanged for its whole duration          written
//!   Waiting ──────────────────────────────────────────────► Claiming ─────► Holding ──┐ renews in time
//!      ▲                                                       │               │  ▲───┘
//!      ├──────────────── another was first ────────────────────┘               │
//!      ├──────────────── overwritten, or not renewed in time ──────────────────┤
//!      └──────────────── the record says so ◄── Releasing ◄── drained ─────────┘
//! ```
//!
//! Why two nodes never lead: a rival starts its wait when it *sees* the record, waits for the whole duration plus the
//! drift, and then writes with the version that it saw, so a renewal in between makes the write fail. The holder counts
//! from before it *asked* for the renewal, less the drift, so its leadership ends before any rival may take the record.
//!
//! A write has three outcomes: done, not done, and unknown. In the third case the node reads the record and recognises
//! its own write by the nonce; it neither repeats the write blindly nor assumes that it failed.

mod state_reduction;
mod status;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;

pub use self::status::Status;
use crate::fence::FencingToken;
use crate::id::Identity;
use crate::protocol::{
    Command, Endpoint, Event, Input, Leader, Mandate, Output, Protocol, Reason, Violation,
};
use crate::rng::Rng;
use crate::term::Term;
use crate::time::{Drift, Duration, Instant};

/// The limit on remembered own writes of unknown outcome. A forgotten one that lands gives no leadership, and does no
/// other harm.
const PENDING_MAX: usize = 16;

/// The highest token that is accepted. No honest election reaches a higher one; a record with a higher one is never
/// taken.
pub const TOKEN_MAX: FencingToken = FencingToken(u64::MAX / 2);

/// The node and the timing of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, with the incarnation of this process.
    pub me: Identity,
    /// The address of this node, which goes into the record.
    pub address: String,
    /// The time for which a rival must see the record unchanged before it takes it. Fixed for an incarnation.
    pub duration: Duration,
    /// The largest difference between the rates of two clocks.
    pub drift_max: Drift,
    /// The interval at which the holder renews: a third of the duration, or less.
    pub renew_interval: Duration,
    /// The time after which the outcome of a request counts as unknown.
    pub request_timeout: Duration,
    /// The interval at which a candidate reads a store that does not report changes, and the time before it asks an
    /// unreachable store again.
    pub poll_interval: Duration,
    /// The seed of the nonces. Different for each incarnation.
    pub seed: u64,
}

/// The record that the store keeps for one election.
///
/// It contains no timestamp: a rival measures by its own clock for how long the record has not changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The leader, or `None` when the lead was released.
    pub holder: Option<Holder>,
    /// The token of the holder's leadership; after a release, of the last one. It never decreases, and Primacy never
    /// deletes the record.
    pub token: FencingToken,
    /// The time for which the record must stay unchanged before a rival may take it.
    pub duration: Duration,
    /// The number of renewals by the holder.
    pub renewal: u64,
    /// Drawn anew for every write, so that a writer whose reply was lost recognises its own write.
    pub nonce: u64,
    /// A request that the holder resign, if there is one.
    pub resign_request: Option<ResignRequest>,
    /// True while the creator of the record waits until the holder of a deleted record must have stopped. Until then no
    /// process may release the record, because the next holder would lead at once.
    pub young: bool,
    /// Fields of a later version of Primacy; every write keeps them as they are.
    pub unknown: Box<[u8]>,
}

/// The holder of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The node and its incarnation.
    pub identity: Identity,
    /// The address of the holder, for people and for clients; may be empty.
    pub address: String,
}

/// A request that any process may leave in the record by compare-and-set, all other fields kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResignRequest {
    /// The token of the leadership that is to end; a request with another token is void.
    pub token: FencingToken,
    /// The name of the requester, for people.
    pub by: String,
}

/// The store's own counter of writes. Only compared, and only with versions of the same store.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Box<[u8]>);

/// The number of a request to the store. The reply carries it, so a late reply is not mistaken for the reply to a newer
/// request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A message between a candidate and the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To the store: read the record.
    Read {
        /// The number of this request.
        request: RequestId,
    },
    /// The answer; `None` if the store was not reached.
    ReadReply {
        /// The request that is answered.
        request: RequestId,
        /// The record, or its absence.
        found: Option<Found>,
    },
    /// To the store: write this record if the version is still this one.
    CompareAndSet {
        /// The number of this request.
        request: RequestId,
        /// The version seen; `None` if there was no record.
        expect: Option<Version>,
        /// The record to write.
        record: Record,
    },
    /// The answer.
    CompareAndSetReply {
        /// The request that is answered.
        request: RequestId,
        /// The new version, or the reason why there is none.
        result: Result<Version, SetError>,
    },
    /// From the store: the record may have changed.
    Changed,
}

/// The outcome of a compare-and-set that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetError {
    /// The version has changed; nothing was written.
    Conflict,
    /// The record may have been written, or may yet be: read it before concluding anything.
    Unknown,
    /// The store was not reached; nothing was written.
    Unavailable,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// A record.
    Record {
        /// The record.
        record: Record,
        /// Its version.
        version: Version,
    },
    /// No record. A first record has this token, the milliseconds since 1970, which is above any token of a deleted
    /// record.
    Absent {
        /// The token for a first record.
        first_token: FencingToken,
    },
}

impl Found {
    /// The version of the record; `None` where there is none.
    #[must_use]
    pub const fn version(&self) -> Option<&Version> {
        match self {
            Self::Record { version, .. } => Some(version),
            Self::Absent { .. } => None,
        }
    }
}

impl Version {
    /// Makes a version of the bytes by which the store knows it.
    #[must_use]
    pub fn new(opaque: &[u8]) -> Self {
        Self(opaque.into())
    }

    /// The bytes by which the store knows it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The number that the version was made [`From`], if it was made from one.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.0.as_ref().try_into().ok()?))
    }
}

impl From<u64> for Version {
    fn from(number: u64) -> Self {
        Self::new(&number.to_be_bytes())
    }
}

impl core::fmt::Debug for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(number) = self.as_u64() {
            return write!(f, "{number}");
        }
        match core::str::from_utf8(&self.0) {
            Ok(text) => f.write_str(text),
            Err(_) => write!(f, "{:02x?}", &self.0),
        }
    }
}

impl Record {
    /// True if the resign request is for the current token.
    #[must_use]
    pub fn is_asked_to_resign(&self) -> bool {
        self.resign_request.as_ref().is_some_and(|request| request.token == self.token)
    }

    /// The holder, unless the record is young: the holder of a young record does not lead yet, and may never.
    #[must_use]
    pub fn believing_holder(&self) -> Option<&Holder> {
        self.holder.as_ref().filter(|_| !self.young)
    }

    /// A record without a holder, as `primacy init` writes it, with `token` above any that was given before.
    #[must_use]
    pub fn released(token: FencingToken, duration: Duration) -> Self {
        Self {
            holder: None,
            token,
            duration,
            renewal: 0,
            nonce: 0,
            resign_request: None,
            young: false,
            unknown: Box::default(),
        }
    }
}

/// The state machine of one candidate, or of one observer that does not campaign.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    config: Config,
    role: Role,
    /// True if the application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// The record or absence that the store showed last.
    seen: Option<Seen>,
    /// The highest token that the store has ever shown.
    highest: FencingToken,
    /// The own writes of unknown outcome.
    pending: VecDeque<Write>,
    /// True if the outcome of the last own write was unknown. After a second such answer in a row the next write waits;
    /// otherwise a store that fails at once, on a full disk for example, would be asked as fast as it can answer.
    unknown_before: bool,
    /// The end of that wait. Until then nothing is written, even if the store reports a change.
    waits_until: Instant,
    asked: Option<Asked>,
    last_request: RequestId,
    /// True if the store has reported a change during a request.
    changed: bool,
    /// The time of the next action, while no request is under way.
    act_at: Instant,
    /// The time from which this node may campaign: after a resignation it lets others go first.
    campaign_from: Instant,
    /// The time since which the record is known to be this node's, and young. Its creator does not lead until the
    /// holder of a deleted record must have stopped, because that holder may not know of the deletion yet.
    young_since: Option<Instant>,
    /// The longest lease that this node knows to have been given to any node.
    longest: Duration,
    told_leader: Option<Leader>,
    rng: Rng,
    outputs: VecDeque<Output<Message, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Watches the record.
    Waiting,
    /// Has asked for the record, with this token.
    Claiming,
    Holding(Hold),
    /// Has given up for good the record that it held or claimed. The record may still name this node, or a late write
    /// may make it do so.
    Releasing {
        until: Instant,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    token: FencingToken,
    /// The end of the lease by this node's clock, also while the record is young.
    valid_until: Instant,
    /// The time from which the holder leads, while the record is young and it does not lead yet.
    believes_from: Option<Instant>,
    renew_at: Instant,
    /// The reason for resigning, while the work is being drained. The lease is renewed until it has drained.
    resigning: Option<Reason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    found: Found,
    /// The time, on this clock, since which the record has not changed.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Write {
    nonce: u64,
    asked_at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    request: RequestId,
    at: Instant,
    /// The record, where the request is a write.
    record: Option<Record>,
}

impl Protocol for Lease {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        self.expire(now);
        match input {
            Input::Message { from: Endpoint::Store, message } => self.on_message(now, message),
            Input::Message { from: Endpoint::Node(_) | Endpoint::Client, .. } => {} // The candidates do not talk to each other.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.on_command(now, command),
            Input::Evidence(_) => {} // Only the record counts; a guardian writes what it knows into it.
        }
        self.tell_leader(now);
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let end = match &self.role {
            Role::Holding(hold) => hold.valid_until.min(hold.believes_from.unwrap_or(Instant::NEVER)),
            Role::Releasing { until } => *until,
            Role::Waiting | Role::Claiming => {
                self.told_leader.and(self.free_from()).unwrap_or(Instant::NEVER)
            }
        };
        let next = match &self.asked {
            Some(asked) => asked.at.after(self.config.request_timeout),
            None => self.act_at,
        };
        Some(next.min(end))
    }
}

impl Lease {
    /// The state machine of `config.me`. It watches from the start, and campaigns when commanded to.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let (rng, longest) = (Rng::new(config.seed), config.duration);
        Self {
            config,
            role: Role::Waiting,
            campaigning: false,
            healthy: true,
            seen: None,
            highest: FencingToken(0),
            pending: VecDeque::new(),
            unknown_before: false,
            waits_until: now,
            asked: None,
            last_request: RequestId(0),
            changed: false,
            act_at: now,
            campaign_from: now,
            young_since: None,
            longest,
            told_leader: None,
            rng,
            outputs: VecDeque::new(),
        }
    }

    /// True if a withdrawn node has nothing left to do: it neither holds the record nor has a write under way that
    /// could make it the holder.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let writes = self.asked.as_ref().is_some_and(|asked| asked.record.is_some());
        matches!(self.role, Role::Waiting) && self.pending.is_empty() && !writes
    }

    /// The role, for people: `waiting`, `claiming`, `holding` or `releasing`.
    #[must_use]
    pub const fn role(&self) -> &'static str {
        match self.role {
            Role::Waiting => "waiting",
            Role::Claiming => "claiming",
            Role::Holding(_) => "holding",
            Role::Releasing { .. } => "releasing",
        }
    }

    // ── inputs ──────────────────────────────────────────────────────────────────────────────────────────────

    fn on_message(&mut self, now: Instant, message: Message) {
        match message {
            Message::Changed => match self.asked {
                Some(_) => self.changed = true,
                None => self.read(now),
            },
            Message::ReadReply { request, found } => {
                if self.take_asked(request).is_some() {
                    self.on_read(now, found);
                }
            }
            Message::CompareAndSetReply { request, result } => {
                if let Some(Asked { at, record: Some(record), .. }) = self.take_asked(request) {
                    self.on_set(now, at, record, result);
                }
            }
            Message::Read { .. } | Message::CompareAndSet { .. } => {} // The store asks nothing.
        }
        if self.changed && self.asked.is_none() {
            self.read(now);
        }
    }

    /// Takes the request under way, if the answer is to it; `None` if the answer is to an earlier request, whose
    /// outcome was read since.
    fn take_asked(&mut self, request: RequestId) -> Option<Asked> {
        self.asked.take_if(|asked| asked.request == request)
    }

    fn on_timeout(&mut self, now: Instant) {
        if let Role::Holding(hold) = &mut self.role
            && hold.believes_from.is_some_and(|from| now >= from)
        {
            hold.believes_from = None;
            // The next renewal, due at once, clears the record's `young` mark.
            hold.renew_at = now;
            self.act_at = now;
            self.elected();
        }
        match &self.asked {
            // No answer: for a write that means "unknown", and for a read nothing at all.
            Some(asked) if now >= asked.at.after(self.config.request_timeout) => self.read(now),
            None if now >= self.act_at => self.act(now),
            Some(_) | None => {} // Early.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign => {
                self.campaigning = true;
                self.consider_soon(now);
            }
            Command::Withdraw => {
                self.campaigning = false;
                self.retire(now, Reason::Resigned);
            }
            Command::Healthy(true) => {
                self.healthy = true;
                self.consider_soon(now);
            }
            Command::Healthy(false) => {
                self.healthy = false;
                self.retire(now, Reason::Unhealthy);
            }
            Command::Resign => self.resign(now, Reason::Resigned),
            // The record cannot choose its next holder.
            Command::Transfer(_) => self.resign(now, Reason::Resigned),
            Command::Down(_) => {} // It has no members.
            Command::Drained => {
                if let Role::Holding(Hold { resigning: Some(reason), .. }) = self.role {
                    self.give_up(now, reason);
                }
            }
        }
    }

    // ── answers of the store ────────────────────────────────────────────────────────────────────────────────

    fn on_read(&mut self, now: Instant, found: Option<Found>) {
        let Some(found) = found else {
            // The store was not reached. To ask again at once does not help, nor does a reported change that could not
            // be read.
            self.changed = false;
            self.act_at = now.after(self.config.poll_interval);
            return;
        };
        let landed = self.see(now, found);
        match self.role.clone() {
            Role::Waiting | Role::Claiming => self.on_read_while_waiting(now, landed),
            Role::Holding(hold) => self.on_read_while_holding(now, &hold, landed),
            Role::Releasing { until } => self.on_read_while_releasing(now, until),
        }
    }

    /// Records the result of a read; returns this node's own write if the read shows that it has landed.
    fn see(&mut self, now: Instant, found: Found) -> Option<Write> {
        let same = match (&self.seen, &found) {
            (Some(Seen { found: Found::Record { record: old, .. }, .. }), Found::Record { record, .. }) => {
                // A request to resign is not a sign of life.
                (&old.holder, old.token, old.renewal, old.nonce)
                    == (&record.holder, record.token, record.renewal, record.nonce)
            }
            (_, Found::Record { .. } | Found::Absent { .. }) => false,
        };
        let since = self.seen.as_ref().filter(|_| same).map_or(now, |seen| seen.since);
        let landed = match &found {
            Found::Record { record, .. } => {
                self.pending.iter().copied().find(|write| self.is_mine(record) && write.nonce == record.nonce)
            }
            Found::Absent { .. } => None,
        };
        let version_moved = self.seen.as_ref().is_none_or(|seen| seen.found.version() != found.version());
        if version_moved {
            // A write that expects an earlier version can no longer land.
            self.pending.clear();
        }
        let young = matches!(&found, Found::Record { record, .. } if record.young && self.is_mine(record));
        self.young_since = young.then(|| self.young_since.unwrap_or(now));
        if let Found::Record { record, .. } = &found {
            self.longest = self.longest.max(record.duration);
        }
        self.seen = Some(Seen { found, since });
        landed
    }

    fn on_read_while_waiting(&mut self, now: Instant, landed: Option<Write>) {
        self.role = Role::Waiting;
        if self.distrusts(now) {
            return;
        }
        let campaigns = self.campaigning && self.healthy;
        match landed {
            Some(write) => self.become_holder(now, write),
            // The record names this node, which does not campaign: a leftover of a claim that keeps others waiting.
            // Release it.
            None if self.names_me() && !campaigns && !self.is_young(now) => self.release(now),
            None => self.consider(now),
        }
    }

    /// Compares the result of a read with the lease that this node holds: still held, overwritten, or a violation.
    fn on_read_while_holding(&mut self, now: Instant, hold: &Hold, landed: Option<Write>) {
        let Some(Seen { found, .. }) = &self.seen else { return };
        let Found::Record { record, .. } = found else {
            self.step_down(Reason::Removed);
            self.tell(Event::Violation(Violation::RecordVanished { held: hold.token }));
            return self.consider(now);
        };
        if self.is_mine(record) && record.token == hold.token {
            let asked_to_resign = record.is_asked_to_resign();
            if let Some(write) = landed {
                self.extend_lease(now, write.asked_at);
            }
            if asked_to_resign {
                self.resign(now, Reason::Resigned);
            }
            return self.renew_if_due(now);
        }
        let reason = match record {
            _ if record.token < hold.token => Reason::Violation,
            // A young record is created only where there is none, so the former one was deleted.
            Record { young: true, .. } => Reason::Removed,
            _ => Reason::Overwritten,
        };
        self.step_down(reason);
        self.on_read_while_waiting(now, None);
    }

    fn on_read_while_releasing(&mut self, now: Instant, until: Instant) {
        let Some(Seen { found, .. }) = &self.seen else { return };
        match found {
            // A young record is not released; it runs out.
            Found::Record { record, version } if self.is_mine(record) && !self.is_young(now) => {
                let (record, version) = (record.clone(), version.clone());
                if self.backs_off(now) {
                    return;
                }
                let released = Record { holder: None, resign_request: None, young: false, ..record };
                self.write(now, Some(version), released);
            }
            // A claim that was withdrawn may still land.
            Found::Record { .. } | Found::Absent { .. } if !self.pending.is_empty() && now < until => {
                self.act_at = now.after(self.config.poll_interval);
            }
            Found::Record { .. } | Found::Absent { .. } => self.settle(now),
        }
    }

    fn on_set(&mut self, now: Instant, asked_at: Instant, record: Record, result: Result<Version, SetError>) {
        let nonce = record.nonce;
        let is_unknown = result == Err(SetError::Unknown);
        if core::mem::replace(&mut self.unknown_before, is_unknown) && is_unknown {
            self.waits_until = now.after(self.config.poll_interval);
        }
        match result {
            Ok(version) => {
                let write = Write { nonce, asked_at };
                self.see(now, Found::Record { record, version });
                self.highest = self.highest.max(self.record_token());
                match self.role {
                    Role::Waiting => self.consider(now),
                    Role::Claiming => self.become_holder(now, write),
                    Role::Holding(_) => self.extend_lease(now, asked_at),
                    Role::Releasing { until } => self.on_read_while_releasing(now, until),
                }
            }
            // A conflict may be with this node's own write, sent twice by the store's client: read to find out.
            Err(SetError::Conflict | SetError::Unknown) => self.read(now),
            Err(SetError::Unavailable) => {
                self.pending.retain(|write| write.nonce != nonce);
                self.act_at = now.after(self.config.poll_interval);
                if matches!(self.role, Role::Claiming) {
                    self.role = Role::Waiting;
                }
            }
        }
    }

    /// True if the next write must wait, because the outcomes of the last two are unknown. Checked after reported
    /// changes too, because such a store may report a change after each write.
    fn backs_off(&mut self, now: Instant) -> bool {
        let waits = now < self.waits_until;
        if waits {
            self.act_at = self.waits_until;
        }
        waits
    }

    /// Checks for a token below one that was seen, the sign of a store that was restored from a backup. A new leader's
    /// token would be stale to resources, or even repeat one; so this node does not lead until an operator has looked.
    fn distrusts(&mut self, now: Instant) -> bool {
        let Some(Seen { found: Found::Record { record, .. }, since }) = &self.seen else { return false };
        let (seen, found, new) = (self.highest, record.token, *since == now);
        if (seen..=TOKEN_MAX).contains(&found) {
            self.highest = found;
            return false;
        }
        if new && found < seen {
            self.tell(Event::Violation(Violation::TokenWentDown { seen, found }));
        }
        self.act_at = now.after(self.config.poll_interval);
        true
    }

    // ── taking ──────────────────────────────────────────────────────────────────────────────────────────────

    fn act(&mut self, now: Instant) {
        match &self.role {
            Role::Holding(hold) if now >= hold.renew_at => self.renew(now),
            // If the record is absent, a fresh read is needed for the first token.
            Role::Waiting if self.can_campaign(now) && self.knows_record() && self.is_free(now) => {
                self.consider(now)
            }
            Role::Waiting | Role::Claiming | Role::Holding(_) | Role::Releasing { .. } => self.read(now),
        }
    }

    fn can_campaign(&self, now: Instant) -> bool {
        self.campaigning && self.healthy && now >= self.campaign_from
    }

    fn consider_soon(&mut self, now: Instant) {
        if matches!(self.role, Role::Waiting) {
            self.act_at = now;
        }
    }

    /// Takes the record if it is free and this node campaigns; waits otherwise.
    fn consider(&mut self, now: Instant) {
        if self.seen.is_none() {
            return self.read(now);
        }
        let free_from = self.free_from().unwrap_or(Instant::NEVER);
        if !self.can_campaign(now) || now < free_from {
            let campaigns = self.campaigning && self.healthy;
            let next = if campaigns { free_from.max(self.campaign_from) } else { Instant::NEVER };
            self.act_at = now.after(self.config.poll_interval).min(next);
            return;
        }
        if self.backs_off(now) {
            return;
        }
        let Some(Seen { found, .. }) = &self.seen else { return };
        let holder = Some(Holder { identity: self.config.me, address: self.config.address.clone() });
        let (expect, record) = match found {
            Found::Record { record, version } => {
                // A young record that stayed unchanged for its whole duration is no longer young; one that is taken
                // earlier stays young.
                let young = record.young && (record.holder.is_none() || self.is_mine(record));
                let (token, expect) = (record.token.next(), Some(version.clone()));
                (expect, Record { holder, token, renewal: 0, resign_request: None, young, ..record.clone() })
            }
            Found::Absent { first_token } => {
                let token = self.highest.next().max(*first_token);
                (None, Record { holder, young: true, ..Record::released(token, self.config.duration) })
            }
        };
        self.role = Role::Claiming;
        self.write(now, expect, Record { duration: self.config.duration, ..record });
    }

    /// The time, by this clock, from which the record may be taken; `None` if it is not known.
    fn free_from(&self) -> Option<Instant> {
        let seen = self.seen.as_ref()?;
        match &seen.found {
            // The token is below one that was seen, or above the limit.
            Found::Record { record, .. } if !(self.highest..=TOKEN_MAX).contains(&record.token) => None,
            Found::Record { record, .. } => match &record.holder {
                // A record that names this node, which does not hold it, is left from an ended leadership, and free.
                Some(holder) if holder.identity != self.config.me => {
                    Some(seen.since.after(self.config.drift_max.lengthen(record.duration)))
                }
                Some(_) | None => Some(seen.since),
            },
            Found::Absent { .. } => Some(seen.since),
        }
    }

    fn become_holder(&mut self, now: Instant, write: Write) {
        let valid_until = self.valid_until(write.asked_at);
        if now >= valid_until || !self.campaigning || !self.healthy {
            // The answer took longer than the lease, or this node has withdrawn. The application was not elected.
            self.role = Role::Waiting;
            return if self.campaigning && self.healthy { self.consider(now) } else { self.release(now) };
        }
        self.highest = self.highest.max(self.record_token());
        let (token, believes_from) = (self.record_token(), self.grows_up_at().filter(|&at| now < at));
        let renew_at = write.asked_at.after(self.config.renew_interval);
        self.act_at = renew_at;
        self.role = Role::Holding(Hold { token, valid_until, believes_from, renew_at, resigning: None });
        if believes_from.is_none() {
            self.elected();
        }
    }

    /// The time by which the holder of a deleted record must have stopped; `None` if the record is not young.
    fn grows_up_at(&self) -> Option<Instant> {
        Some(self.young_since?.after(self.config.drift_max.lengthen(self.longest)))
    }

    fn elected(&mut self) {
        let Role::Holding(Hold { token, valid_until, .. }) = self.role else { return };
        let mandate = Mandate::Fenced(token);
        self.tell(Event::Elected { term: Term(token.0), mandate, valid_until });
    }

    // ── holding ─────────────────────────────────────────────────────────────────────────────────────────────

    /// The end of a lease that was asked for at `asked_at`.
    fn valid_until(&self, asked_at: Instant) -> Instant {
        asked_at.after(self.config.drift_max.shorten(self.config.duration))
    }

    fn extend_lease(&mut self, now: Instant, asked_at: Instant) {
        let until = self.valid_until(asked_at);
        let Role::Holding(hold) = &mut self.role else { return };
        hold.renew_at = hold.renew_at.max(asked_at.after(self.config.renew_interval));
        self.act_at = hold.renew_at.max(now);
        if until > hold.valid_until {
            hold.valid_until = until;
            if hold.believes_from.is_none() {
                self.tell(Event::Renewed { valid_until: until });
            }
        }
    }

    fn renew_if_due(&mut self, now: Instant) {
        let Role::Holding(hold) = &self.role else { return };
        if now < hold.renew_at {
            self.act_at = hold.renew_at;
        } else if !self.backs_off(now) {
            self.renew(now);
        }
    }

    fn renew(&mut self, now: Instant) {
        let Some(Seen { found: Found::Record { record, version }, .. }) = &self.seen else {
            return self.read(now);
        };
        let (record, version) = (record.clone(), version.clone());
        let (young, renewal) = (self.is_young(now), record.renewal.wrapping_add(1));
        // This node's own duration, whatever another process has written: rivals wait for it if this node dies.
        let duration = self.config.duration;
        self.write(now, Some(version), Record { renewal, young, duration, ..record });
    }

    fn expire(&mut self, now: Instant) {
        match &self.role {
            Role::Holding(hold) if now >= hold.valid_until => {
                self.step_down(Reason::Expired);
                self.act_at = now;
            }
            // The release failed for a whole lease, after which no candidate waits for it any more.
            Role::Releasing { until } if now >= *until => {
                self.role = Role::Waiting;
                self.pending.clear();
                self.act_at = now;
            }
            Role::Holding(_) | Role::Releasing { .. } | Role::Waiting | Role::Claiming => {}
        }
    }

    // ── the end of a leadership ─────────────────────────────────────────────────────────────────────────────

    /// Ends a candidacy, or resigns the lead in order.
    fn retire(&mut self, now: Instant, reason: Reason) {
        match &self.role {
            Role::Holding(_) => self.resign(now, reason),
            // The claim may land, or may have landed; then it is released.
            Role::Claiming => self.release(now),
            Role::Waiting | Role::Releasing { .. } => {} // It does not lead.
        }
    }

    fn resign(&mut self, now: Instant, reason: Reason) {
        let Role::Holding(hold) = &mut self.role else { return };
        if hold.believes_from.is_some() {
            return self.give_up(now, reason); // Nobody was told to work, so there is nothing to drain.
        }
        if hold.resigning.is_none() {
            hold.resigning = Some(reason);
            self.tell(Event::Resigning(reason));
        }
    }

    /// Ends the leadership for good, and only then releases the record.
    fn give_up(&mut self, now: Instant, reason: Reason) {
        self.step_down(reason);
        // Let the others campaign first: by then each of them has read the record, even if the store does not report
        // changes.
        self.campaign_from = now.after(self.config.poll_interval.times(2));
        self.release(now);
    }

    fn release(&mut self, now: Instant) {
        let until = now.after(self.config.duration);
        self.role = Role::Releasing { until };
        if self.asked.is_none() {
            match &self.seen {
                Some(_) if self.pending.is_empty() => self.on_read_while_releasing(now, until),
                Some(_) | None => self.read(now),
            }
        }
    }

    fn settle(&mut self, now: Instant) {
        self.role = Role::Waiting;
        self.pending.clear();
        self.consider(now);
    }

    fn step_down(&mut self, reason: Reason) {
        let Role::Holding(hold) = &self.role else { return };
        if hold.believes_from.is_none() {
            self.tell(Event::Deposed(reason));
        }
        // A renewal that landed unnoticed belongs to the ended leadership, and must not revive it.
        self.pending.clear();
        self.role = Role::Waiting;
    }

    // ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────

    fn is_mine(&self, record: &Record) -> bool {
        record.holder.as_ref().is_some_and(|holder| holder.identity == self.config.me)
    }

    fn is_free(&self, now: Instant) -> bool {
        self.free_from().is_some_and(|free| now >= free)
    }

    fn names_me(&self) -> bool {
        matches!(&self.seen, Some(Seen { found: Found::Record { record, .. }, .. }) if self.is_mine(record))
    }

    fn is_young(&self, now: Instant) -> bool {
        self.grows_up_at().is_some_and(|at| now < at)
    }

    fn knows_record(&self) -> bool {
        matches!(&self.seen, Some(Seen { found: Found::Record { .. }, .. }))
    }

    fn record_token(&self) -> FencingToken {
        match &self.seen {
            Some(Seen { found: Found::Record { record, .. }, .. }) => record.token,
            Some(Seen { found: Found::Absent { .. }, .. }) | None => FencingToken(0),
        }
    }

    fn ask(&mut self, now: Instant, record: Option<Record>) -> RequestId {
        self.last_request = RequestId(self.last_request.0 + 1);
        self.asked = Some(Asked { request: self.last_request, at: now, record });
        self.last_request
    }

    fn read(&mut self, now: Instant) {
        self.changed = false;
        let request = self.ask(now, None);
        self.outputs.push_back(Output::Send { to: Endpoint::Store, message: Message::Read { request } });
    }

    fn write(&mut self, now: Instant, expect: Option<Version>, record: Record) {
        let record = Record { nonce: self.rng.next_u64(), ..record };
        self.pending.push_back(Write { nonce: record.nonce, asked_at: now });
        if self.pending.len() > PENDING_MAX {
            self.pending.pop_front();
        }
        let request = self.ask(now, Some(record.clone()));
        let message = Message::CompareAndSet { request, expect, record };
        self.outputs.push_back(Output::Send { to: Endpoint::Store, message });
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn leader(&self, now: Instant) -> Option<Leader> {
        let me = |token: FencingToken| Leader { identity: self.config.me, term: Term(token.0) };
        if let Role::Holding(hold) = &self.role {
            return hold.believes_from.is_none().then(|| me(hold.token));
        }
        let Found::Record { record, .. } = &self.seen.as_ref()?.found else { return None };
        let holder = record.believing_holder().filter(|holder| holder.identity != self.config.me)?;
        let running = self.free_from().is_some_and(|free| now < free);
        running.then_some(Leader { identity: holder.identity, term: Term(record.token.0) })
    }

    fn tell_leader(&mut self, now: Instant) {
        let leader = self.leader(now);
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }
}
