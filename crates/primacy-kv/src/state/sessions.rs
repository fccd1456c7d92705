//! Sessions of clients, with the keys of their entries.
//!
//! There is no clock here: the leader measures the time of sessions, and proposes their end.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use primacy_core::time::Duration;

use super::map::Map;
use crate::command::{Bytes, Keys, SessionId};
use crate::encoding::{DecodeError, Reader, duration, push_number, session, unsigned};

/// The size of a session without the keys of its entries, in bytes.
pub(super) const SESSION_BYTES: u64 = 64;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    time_to_live: Duration,
    keys: BTreeSet<Bytes>,
}

impl Session {
    /// The time after which it expires unless it is kept alive.
    #[must_use]
    pub fn time_to_live(&self) -> Duration {
        self.time_to_live
    }

    /// True if the entry of this key belongs to it.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// The keys of its entries, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.keys.iter()
    }
}

/// All sessions that have begun and not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sessions(BTreeMap<SessionId, Session>);

impl Sessions {
    pub(super) fn find(&self, id: SessionId) -> Option<&Session> {
        self.0.get(&id)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (SessionId, &Session)> {
        self.0.iter().map(|(&id, session)| (id, session))
    }

    /// The size of the sessions in bytes, without the keys of their entries, which count with the entries.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.0.len()).expect("a length fits") * SESSION_BYTES
    }

    /// Begins a session. It must not exist.
    pub(super) fn begin(&mut self, id: SessionId, time_to_live: Duration) {
        let former = self.0.insert(id, Session { time_to_live, keys: BTreeSet::new() });
        assert_eq!(former, None, "a session begins once");
    }

    /// Ends a session, and returns the keys of its entries for deletion; `None` if there is no such session.
    pub(super) fn end(&mut self, id: SessionId) -> Option<BTreeSet<Bytes>> {
        Some(self.0.remove(&id)?.keys)
    }

    /// Moves the entry of a key to another session, or to none.
    pub(super) fn move_key(&mut self, key: &[u8], from: Option<SessionId>, to: Option<SessionId>) {
        if from == to {
            return;
        }
        if let Some(session) = from.and_then(|id| self.0.get_mut(&id)) {
            session.keys.remove(key);
        }
        if let Some(session) = to.and_then(|id| self.0.get_mut(&id)) {
            session.keys.insert(key.into());
        }
    }

    /// Appends the sessions, without their keys: the entries name their sessions.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        push_number(to, u64::try_from(self.0.len()).expect("a length fits"));
        for (id, session) in &self.0 {
            push_number(to, unsigned(id.get()));
            push_number(to, session.time_to_live.as_nanos());
        }
    }

    /// Decodes sessions, and takes the keys of their entries from `map`.
    pub(super) fn decode(from: &mut Reader<'_>, map: &Map) -> Result<Self, DecodeError> {
        let list = from.list(|from| Ok((session(from)?, duration(from)?)))?;
        if !list.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err(DecodeError::Value("the order of the sessions"));
        }
        let empty = |time_to_live| Session { time_to_live, keys: BTreeSet::new() };
        let mut sessions = Self(list.into_iter().map(|(id, live)| (id, empty(live))).collect());
        for entry in map.entries(&Keys::From(Bytes::from([]))) {
            let Some(id) = entry.session() else { continue };
            let session = sessions.0.get_mut(&id).ok_or(DecodeError::Value("the session of an entry"))?;
            session.keys.insert(entry.key().into());
        }
        Ok(sessions)
    }
}
