//! Sessions of clients, with the entries that go with them.
//!
//! The expiry of a session is not known here, because there is no clock: a leader that has one proposes its end.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use primacy_core::time::Duration;

use super::map::Map;
use crate::command::{Bytes, Keys, SessionId};
use crate::encoding::{DecodeError, Reader, duration, push_number, session, unsigned};

/// The size of a session besides the keys of its entries, in bytes.
pub(super) const SESSION_BYTES: u64 = 64;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    time_to_live: Duration,
    keys: BTreeSet<Bytes>,
}

impl Session {
    /// The time for which it lives without being kept alive.
    #[must_use]
    pub fn time_to_live(&self) -> Duration {
        self.time_to_live
    }

    /// Returns whether the entry of this key goes with it.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// The keys of the entries that go with it, in order.
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

    /// Their size in bytes, besides the keys of their entries, which count with those.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.0.len()).expect("a length fits") * SESSION_BYTES
    }

    /// Begins a session that is not there.
    pub(super) fn begin(&mut self, id: SessionId, time_to_live: Duration) {
        let former = self.0.insert(id, Session { time_to_live, keys: BTreeSet::new() });
        assert_eq!(former, None, "a session begins once");
    }

    /// Ends a session; returns the keys of its entries, which are to be deleted. `None` if there is no such session.
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

    /// The sessions that were appended, with the keys of this map's entries.
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
