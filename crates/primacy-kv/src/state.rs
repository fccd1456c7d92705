//! The state that replicas keep: the map, the sessions, and the applied requests.
//!
//! It depends only on the applied requests and their order, so it is the same on all nodes that have applied the same
//! requests.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use primacy_core::id::Identity;
use primacy_core::time::Duration;

use self::map::Map;
use self::requests::Requests;
use self::sessions::{SESSION_BYTES, Session, Sessions};
use super::command::encoding::{limits, push_limits};
use super::command::{
    Answer, Applied, Change, Command, Found, Keys, Limits, Operation, Outcome, Previous, Read, Refusal,
    Request, Secret, SessionId, Version,
};
use super::encoding::{DecodeError, Reader, push_number};
use super::partitions::assign::CommandRefusal;
use super::partitions::{self, Partitions};

pub mod cost;
mod history;
mod map;
mod operate;
pub mod requests;
pub mod sessions;

/// The format of a snapshot that this program writes, and the only one that it reads.
pub const FORMAT: u64 = 1;

/// The state.
#[derive(Clone, Debug)]
pub struct State {
    map: Map,
    sessions: Sessions,
    partitions: Partitions,
    requests: Requests,
    limits: Limits,
    secret: Option<Secret>,
    /// See [`take_cost`](Self::take_cost). It is not replicated.
    cost: u64,
}

/// Whether operations produce answers. They do only for a client that awaits them, because answers may be much larger
/// than requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// A client of this node awaits the answers.
    Wanted,
    /// No client awaits them: an operation is answered with [`Answer::Done`].
    Unwanted,
}

/// The size of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The number of keys that have an entry.
    pub entries: u64,
    /// The bytes of entries, sessions and partitions, which [`Limits::quota`] limits.
    pub bytes: u64,
    /// The number of changes in the history.
    pub history_changes: u64,
    /// The bytes of the history.
    pub history_bytes: u64,
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// The empty state, at [`Version::FIRST`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            map: Map::new(),
            sessions: Sessions::default(),
            partitions: Partitions::default(),
            requests: Requests::default(),
            limits: Limits::default(),
            secret: None,
            cost: 0,
        }
    }

    /// Applies a request, unless it was applied before. A refused request counts as applied, unless the state cannot
    /// remember it: [`Refusal::TooManyRequests`], [`Refusal::TooManyClients`] and [`Refusal::FormerLife`].
    pub fn apply(&mut self, request: &Request) -> Applied {
        self.apply_for(request, Answers::Wanted)
    }

    /// Like [`Self::apply`], with or without answers. The effect and the refusals are the same in both cases.
    pub fn apply_for(&mut self, request: &Request, answers: Answers) -> Applied {
        let result = match self.requests.admit(request) {
            Ok(true) => self.execute(request.client, &request.command, answers),
            Ok(false) => return Applied::Duplicate,
            Err(refusal) => Err(refusal),
        };
        self.map.close(self.limits);
        Applied::First(Outcome { version: self.map.version(), result })
    }

    /// True if a request was applied, or its sender does not await it any more.
    #[must_use]
    pub fn has_applied(&self, client: &Identity, sequence: u64) -> bool {
        self.requests.has(client, sequence)
    }

    /// Returns and resets the cost of the requests applied since the last call, in addition to their bytes. The unit is
    /// the time to apply one byte of records.
    pub fn take_cost(&mut self) -> u64 {
        core::mem::take(&mut self.cost)
    }

    fn execute(&mut self, sender: Identity, command: &Command, answers: Answers) -> Result<Answer, Refusal> {
        match command {
            Command::Operate(operation) => self.operate(operation, answers),
            Command::Compact(version) => self.map.compact(*version).map(|()| Answer::Done),
            Command::Begin { session, time_to_live } => self.begin(*session, *time_to_live),
            Command::End { session } => self.end(*session),
            // Only the leader or the node itself ends the session of a node.
            Command::Expire { session } if self.partitions.end(*session) => Ok(Answer::Ended { count: 0 }),
            Command::Expire { session } => self.end(*session),
            Command::Partitions(command) => self.obey(sender, command),
            Command::Forget { node } => {
                self.requests.forget(*node);
                Ok(Answer::Done)
            }
            Command::Limit(limits) => {
                self.limits = *limits;
                Ok(Answer::Done)
            }
            Command::Share(secret) => {
                self.secret.get_or_insert(*secret);
                Ok(Answer::Done)
            }
        }
    }

    fn begin(&mut self, session: SessionId, time_to_live: Duration) -> Result<Answer, Refusal> {
        if self.time_to_live(session).is_some() {
            return Err(Refusal::SessionExists);
        }
        if self.bytes().saturating_add(SESSION_BYTES) > self.limits.quota {
            return Err(Refusal::NoSpace);
        }
        self.sessions.begin(session, time_to_live);
        Ok(Answer::Done)
    }

    fn end(&mut self, session: SessionId) -> Result<Answer, Refusal> {
        let keys = self.sessions.end(session).ok_or(Refusal::SessionNotFound)?;
        self.cost = self.cost.saturating_add(cost::of_changes(keys.len()));
        let mut count = 0;
        for key in keys {
            self.map.delete(&key).expect("a session has only keys with entries");
            count += 1;
        }
        Ok(Answer::Ended { count })
    }

    fn obey(&mut self, sender: Identity, command: &partitions::Command) -> Result<Answer, Refusal> {
        if let partitions::Command::Join { session, .. } = command
            && self.time_to_live(*session).is_some()
        {
            return Err(Refusal::SessionExists);
        }
        let more = Partitions::bytes_of(command);
        if more > 0 && self.bytes().saturating_add(more) > self.limits.quota {
            return Err(Refusal::NoSpace);
        }
        self.partitions.obey(sender, command).map(|()| Answer::Done).map_err(|refusal| match refusal {
            CommandRefusal::SessionNotFound => Refusal::SessionNotFound,
            CommandRefusal::Partitions(refusal) => Refusal::Partitions(refusal),
        })
    }

    /// Reads entries, as of now or as of a version that is not compacted away.
    ///
    /// # Errors
    /// [`Refusal::Compacted`] or [`Refusal::Future`], if the version cannot be read.
    pub fn read(&self, read: &Read) -> Result<Found, Refusal> {
        self.map.read(read)
    }

    /// Performs an operation that [only reads](Operation::only_reads); `None` for any other operation.
    #[must_use]
    pub fn observe(&self, operation: &Operation) -> Option<Outcome> {
        self.observe_within(operation, u64::MAX)
    }

    /// Like [`Self::observe`], but refuses an operation that would read more entries than `looks` with
    /// [`Refusal::TooManyEntries`].
    #[must_use]
    pub fn observe_within(&self, operation: &Operation, looks: u64) -> Option<Outcome> {
        operation
            .only_reads()
            .then(|| Outcome { version: self.map.version(), result: self.only_read(operation, looks) })
    }

    /// The changes of some keys from a version on, in order; none for a future version. A key may occur more than once
    /// in one version.
    ///
    /// The time is proportional to the number of such changes of the key, if there is one key, and otherwise of all
    /// keys.
    ///
    /// # Errors
    /// [`Refusal::Compacted`], if some of them are no longer known.
    pub fn changes<'a>(
        &'a self,
        keys: &'a Keys,
        from: Version,
        previous: Previous,
    ) -> Result<Box<dyn Iterator<Item = Change> + 'a>, Refusal> {
        self.changes_in(keys, from..self.version().next(), previous)
    }

    /// Like [`Self::changes`], for a range of versions. The time depends only on the changes in that range, not on the
    /// length of the history.
    ///
    /// # Errors
    /// [`Refusal::Compacted`], if some of them are no longer known.
    pub fn changes_in<'a>(
        &'a self,
        keys: &'a Keys,
        versions: Range<Version>,
        previous: Previous,
    ) -> Result<Box<dyn Iterator<Item = Change> + 'a>, Refusal> {
        self.map.changes(keys, versions, previous)
    }

    /// The changes of all keys from a version on, in order, for a watcher that has been sent all earlier ones. It
    /// includes compacted changes that this process still has, a few thousand at most, which differ from node to node.
    ///
    /// # Errors
    /// [`Refusal::Compacted`], if some of them are no longer known.
    pub fn news(
        &self,
        from: Version,
        previous: Previous,
    ) -> Result<impl Iterator<Item = Change> + '_, Refusal> {
        self.map.news(from, previous)
    }

    /// The version of the last change.
    #[must_use]
    pub fn version(&self) -> Version {
        self.map.version()
    }

    /// The first version that can be read; `None` as long as nothing was compacted.
    #[must_use]
    pub fn compacted(&self) -> Option<Version> {
        self.map.compacted()
    }

    /// The partitions, and the nodes that may be a primary.
    #[must_use]
    pub const fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// The time to live of a session, of a client or of a node; `None` if there is no such session.
    #[must_use]
    pub fn time_to_live(&self, id: SessionId) -> Option<Duration> {
        let of_client = self.sessions.find(id).map(Session::time_to_live);
        of_client.or_else(|| self.partitions.time_to_live(id))
    }

    /// A session of a client.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.find(id)
    }

    /// All sessions of clients, in the order of their numbers.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = (SessionId, &Session)> {
        self.sessions.iter()
    }

    /// The current limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The secret that all nodes share, if one was set.
    #[must_use]
    pub const fn secret(&self) -> Option<Secret> {
        self.secret
    }

    /// The size of the state.
    #[must_use]
    pub fn size(&self) -> Size {
        Size {
            entries: self.map.count(),
            bytes: self.bytes(),
            history_changes: self.map.history().changes(),
            history_bytes: self.map.history().bytes(),
        }
    }

    fn bytes(&self) -> u64 {
        self.map.bytes() + self.sessions.bytes() + self.partitions.bytes()
    }

    /// The whole state as bytes. Equal states have equal bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let Size { bytes, history_bytes, .. } = self.size();
        // More than needed, so that it is never reallocated.
        let mut to = Vec::with_capacity(usize::try_from(bytes + history_bytes).unwrap_or_default());
        push_number(&mut to, FORMAT);
        push_limits(&mut to, self.limits);
        self.map.encode(&mut to);
        self.sessions.encode(&mut to);
        self.partitions.encode(&mut to);
        self.requests.encode(&mut to);
        to.extend(self.secret.iter().flat_map(|secret| secret.0));
        to
    }

    /// The state that these bytes encode. It behaves like the state of which they are a snapshot.
    ///
    /// # Errors
    /// [`DecodeError`] if they are none.
    pub fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let format = from.number()?;
        if format != FORMAT {
            return Err(DecodeError::Format(format));
        }
        let limits = limits(&mut from)?;
        let map = Map::decode(&mut from)?;
        let sessions = Sessions::decode(&mut from, &map)?;
        let partitions = Partitions::decode(&mut from)?;
        if partitions.sessions().any(|(session, _)| sessions.find(session).is_some()) {
            return Err(DecodeError::Value("the session of a node"));
        }
        let requests = Requests::decode(&mut from)?;
        let secret = <[u8; 32]>::try_from(from.rest()).ok().map(Secret);
        if secret.is_none() {
            from.end()?;
        }
        Ok(Self { map, sessions, partitions, requests, limits, secret, cost: 0 })
    }

    /// A hash of the state. It takes as long as a snapshot.
    #[must_use]
    pub fn digest(&self) -> u64 {
        // FNV-1a.
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        self.snapshot().iter().fold(0xCBF2_9CE4_8422_2325, step)
    }
}

#[cfg(test)]
mod tests;
