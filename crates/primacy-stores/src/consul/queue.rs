//! The election's key, in place of a queue: its holder is the first, and no other candidate has an entry.
//!
//! The token is computed before the lock is taken, from the last read: one more than the index of the key's last change. The transaction
//! that takes the lock also writes the token into the value, and fails if the key has changed. So
//!
//! - the token is there as soon as the lock is held, and stays while it is held, whatever happens to the index of the key;
//! - it is higher than every token before it: the index of a change is higher than that of every earlier change of any key, also
//!   of one that was deleted since, and a token is at most the index of the change that wrote it. The token of another program
//!   is the index of its key, and so in the same order.
//!
//! If the key is held and its value is not the one written with the lock, another program has overwritten it. It is not known what happened
//! meanwhile, so the lock is taken again with a new token: a new leadership.

use std::sync::{Arc, Mutex, MutexGuard};

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry as Candidate, QueuePosition};
use primacy_core::{FencingToken, Identity};

use super::api::{Api, Entry, KeyRead, LOCK_FLAG, Written, no_answer};
use super::session::User;
use super::url::not_a_lock;
use super::value::{Value, stranger};
use super::watch::{KeyObservation, Watch};
use crate::mutex::lock;
use crate::sessions::SessionError;

/// The maximum number of attempts of an operation when other clients change the key. In each failed attempt, another client has won.
const ROUNDS_MAX: usize = 8;

/// The name shown for the last holder during a lock-delay, if the key does not name it.
const DELAYED: &str = "lock-delay";

/// One handle's view of one election.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) api: Arc<Api>,
    pub(super) user: User,
    pub(super) watch: Watch,
    own: Mutex<Own>,
}

/// The state of a handle.
#[derive(Debug, Default)]
struct Own {
    /// The state of the key at the last answer.
    told: Option<KeyObservation>,
    /// True if that was a lock-delay.
    is_delayed: bool,
    /// The session with which it holds the lock, and the index of the key's last change.
    held: Option<(String, u64)>,
    /// The index in a pending or unanswered lock request.
    unanswered: Option<u64>,
    /// The session with which it has requested the lock, and may still hold it.
    stands_by: Option<String>,
    /// The session and the description of the last holder that was another program.
    stranger: Option<(String, Holder)>,
}

impl Queue {
    pub(super) fn new(api: Arc<Api>, user: User) -> Self {
        Self { api, user, watch: Watch::new(), own: Mutex::default() }
    }

    pub(super) async fn campaign(
        &self,
        session: &str,
        holder: &Holder,
    ) -> Result<QueuePosition, SessionError> {
        let mut guess = self.guess_free();
        for _ in 0..ROUNDS_MAX {
            let index = match guess.take() {
                Some(index) => index,
                None => {
                    let found = self.read().await?;
                    let Some(entry) = found.entry else {
                        if let Written::Done(index) = self.api.make(&self.user.key).await? {
                            guess = Some(index);
                        }
                        continue;
                    };
                    if entry.session.as_deref().is_some_and(|other| other != session) {
                        self.note(found.index, Some(&entry));
                        return Ok(QueuePosition::Behind { first: self.describe(&entry).await });
                    }
                    if let Some(value) = own_value(&entry, session, holder) {
                        self.note(found.index, Some(&entry));
                        let mut own = self.own();
                        own.held = Some((session.to_owned(), entry.modified));
                        own.stands_by = Some(session.to_owned());
                        drop(own);
                        return Ok(QueuePosition::First {
                            token: value.token,
                            asked_to_resign: value.asked_by.is_some(),
                        });
                    }
                    entry.modified
                }
            };
            match self.claim(index, session, holder).await? {
                Some(place) => return Ok(place),
                None => continue,
            }
        }
        Err(no_answer("others changed the key each time that the lock was tried"))
    }

    /// Takes the lock if the key has this index; `None` if it has not.
    async fn claim(
        &self,
        index: u64,
        session: &str,
        holder: &Holder,
    ) -> Result<Option<QueuePosition>, SessionError> {
        let token = next_token(index)?;
        let value =
            Value { holder: holder.clone(), token, session: session.to_owned(), asked_by: None }.encode();
        {
            let mut own = self.own();
            (own.unanswered, own.stands_by) = (Some(index), Some(session.to_owned()));
        }
        let written = self.api.lock(&self.user.key, index, session, &value).await;
        match written {
            Ok(Written::Done(modified)) => {
                let mut own = self.own();
                own.unanswered = None;
                own.held = Some((session.to_owned(), modified));
                drop(own);
                self.note_written(modified, false);
                Ok(Some(QueuePosition::First { token, asked_to_resign: false }))
            }
            Ok(Written::Stale) => {
                // An earlier request that is still in progress will fail in the same way.
                self.own().unanswered = None;
                Ok(None)
            }
            Ok(Written::Delayed) => self.delayed().await,
            Err(error) => {
                if matches!(error, SessionError::Ended { .. }) {
                    self.own().unanswered = None;
                }
                Err(error)
            }
        }
    }

    /// Returns the position during a lock-delay: the last holder's session has ended, and Consul gives the lock to no session for a while,
    /// because that holder may not know yet. So it still counts as the first.
    async fn delayed(&self) -> Result<Option<QueuePosition>, SessionError> {
        let found = self.read().await?;
        let Some(entry) = found.entry.filter(|entry| entry.session.is_none()) else { return Ok(None) };
        self.note(found.index, Some(&entry));
        self.own().is_delayed = true;
        let first = match Value::decode(&entry.value) {
            Some(value) => Candidate { holder: value.holder, token: value.token },
            None => Candidate { holder: stranger(&[DELAYED], ""), token: FencingToken(entry.modified) },
        };
        Ok(Some(QueuePosition::Behind { first }))
    }

    /// Returns whether this session may hold the lock, by the requests of this handle.
    pub(super) fn may_hold(&self, session: &str) -> bool {
        self.own().stands_by.as_deref() == Some(session)
    }

    pub(super) async fn leave(&self, session: &str) -> Result<(), SessionError> {
        let left = self.free(session).await;
        if matches!(left, Ok(()) | Err(SessionError::Ended { .. })) {
            self.own().stands_by.take_if(|by| by == session);
        }
        left
    }

    /// Makes sure that this session does not hold the lock, and that no earlier request gives it to it.
    async fn free(&self, session: &str) -> Result<(), SessionError> {
        let held = self.own().held.take_if(|(holding, _)| holding == session);
        let mut guess = held.map(|(_, index)| index);
        for _ in 0..ROUNDS_MAX {
            if let Some(index) = guess.take() {
                if let Written::Done(modified) = self.api.unlock(&self.user.key, index, session).await? {
                    self.own().unanswered = None;
                    self.note_written(modified, true);
                    return Ok(());
                }
                continue;
            }
            let found = self.read().await?;
            let holder = found.entry.as_ref().and_then(|entry| entry.session.as_deref());
            if holder == Some(session) {
                guess = found.entry.as_ref().map(|entry| entry.modified);
                continue;
            }
            // The session does not hold the key; but if it has ended, that must be reported.
            self.api.renew(session).await?;
            // A lock request that may still be in progress succeeds only if the key still has the index that it names.
            let unanswered = self.own().unanswered;
            let index = found.entry.as_ref().filter(|_| holder.is_none()).map(|entry| entry.modified);
            match index.filter(|index| Some(*index) == unanswered) {
                Some(index) if !self.outrun(index, session).await? => continue,
                Some(_) => {}
                None => self.note(found.index, found.entry.as_ref()),
            }
            self.own().unanswered = None;
            return Ok(());
        }
        Err(no_answer("others changed the key each time that it was to be left"))
    }

    /// Changes the index of the key, so that an earlier request that names the old one fails; `false` if it has changed already.
    async fn outrun(&self, index: u64, session: &str) -> Result<bool, SessionError> {
        match self.api.touch(&self.user.key, index, session).await? {
            Written::Done(modified) => {
                self.note_written(modified, true);
                Ok(true)
            }
            Written::Stale => Ok(false),
            Written::Delayed => {
                Err(no_answer("a lock that was asked for may still come, and a lock-delay holds"))
            }
        }
    }

    pub(super) async fn first(&self) -> Result<Option<Candidate>, SessionError> {
        let found = self.read().await?;
        self.note(found.index, found.entry.as_ref());
        match found.entry.filter(|entry| entry.session.is_some()) {
            Some(entry) => Ok(Some(self.describe(&entry).await)),
            None => Ok(None),
        }
    }

    /// Releases the lock of this incarnation in the name of its own session, so that no lock-delay follows; returns the session to be
    /// destroyed.
    pub(super) async fn evict(&self, dead: &Identity) -> Result<Option<String>, SessionError> {
        for _ in 0..ROUNDS_MAX {
            let Some((entry, value)) = self.held_by_ours().await? else { return Ok(None) };
            if value.holder.identity != *dead {
                return Ok(None);
            }
            match self.api.unlock(&self.user.key, entry.modified, &value.session).await {
                Ok(Written::Done(_)) => return Ok(Some(value.session)),
                Ok(Written::Stale | Written::Delayed) => {}
                Err(error) => return Err(error),
            }
        }
        Err(no_answer("others changed the key each time that it was to be freed"))
    }

    /// Releases all locks of a dead session below the prefix of this election, so that no lock-delay follows for those keys either. Without
    /// a prefix, all keys of Consul would have to be read, and nothing is done.
    pub(super) async fn free_others(&self, session: &str) -> Result<(), SessionError> {
        // After the prefix come the election, in which slashes are encoded, and the name of the lock.
        let Some(prefix) = self.user.key.rsplitn(3, '/').nth(2) else { return Ok(()) };
        for _ in 0..ROUNDS_MAX {
            let held = self.api.held_by(prefix, session).await?;
            if held.is_empty() {
                break;
            }
            for (key, index) in held {
                // A key that has changed meanwhile is found again if it is still held.
                self.api.unlock(&key, index, session).await?;
            }
        }
        Ok(())
    }

    /// Writes the request into the value, in the name of the session that holds the lock, and only while it does.
    pub(super) async fn ask_to_resign(&self, token: FencingToken, by: &str) -> Result<bool, SessionError> {
        for _ in 0..ROUNDS_MAX {
            let Some((entry, mut value)) = self.held_by_ours().await? else { return Ok(false) };
            if value.token != token {
                return Ok(false);
            }
            value.asked_by = Some(by.to_owned());
            let session = value.session.clone();
            match self.api.lock(&self.user.key, entry.modified, &session, &value.encode()).await {
                Ok(Written::Done(_)) => return Ok(true),
                // The session has just ended: another candidate is first, or none.
                Ok(Written::Stale | Written::Delayed) | Err(SessionError::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(no_answer("others changed the key each time that the request was to be written"))
    }

    /// Returns the state of the key at the last answer, and whether that was a lock-delay.
    pub(super) fn told(&self) -> (Option<KeyObservation>, bool) {
        let own = self.own();
        (own.told, own.is_delayed)
    }

    /// Returns the key, if a Primacy node holds it.
    async fn held_by_ours(&self) -> Result<Option<(Entry, Value)>, SessionError> {
        let Some(entry) = self.read().await?.entry else { return Ok(None) };
        let value =
            Value::decode(&entry.value).filter(|value| entry.session.as_ref() == Some(&value.session));
        Ok(value.map(|value| (entry, value)))
    }

    async fn read(&self) -> Result<KeyRead, SessionError> {
        let found = self.api.read(&self.user.key).await?;
        match &found.entry {
            Some(entry) if entry.flags != LOCK_FLAG => Err(not_a_lock(&self.user.key)),
            Some(_) | None => Ok(found),
        }
    }

    /// Returns the index of the key, if it had no holder at the last read. The transaction checks whether that is still so.
    fn guess_free(&self) -> Option<u64> {
        let (latest, told) = (self.watch.latest(), self.own().told);
        let is_later = told.is_none_or(|told| latest.index >= told.index && latest.resets == told.resets);
        latest.modified.filter(|_| latest.is_free && is_later)
    }

    /// Describes the holder of the key.
    async fn describe(&self, entry: &Entry) -> Candidate {
        let session = entry.session.as_deref().unwrap_or_default();
        if let Some(value) = Value::decode(&entry.value).filter(|value| value.session == session) {
            return Candidate { holder: value.holder, token: value.token };
        }
        let token = FencingToken(entry.modified);
        let known = self.own().stranger.clone().filter(|(known, _)| known == session);
        if let Some((_, holder)) = known {
            return Candidate { holder, token };
        }
        let text = String::from_utf8_lossy(&entry.value);
        // A holder without a name is shown by its session.
        let name = if text.trim().is_empty() {
            self.api.name(session).await.unwrap_or_default()
        } else {
            String::new()
        };
        let holder = stranger(&[&text, &name], session);
        self.own().stranger = Some((session.to_owned(), holder.clone()));
        Candidate { holder, token }
    }

    fn note(&self, index: u64, entry: Option<&Entry>) {
        let seen = KeyObservation::new(index, entry, self.watch.latest().resets);
        let mut own = self.own();
        own.told = Some(seen);
        own.is_delayed = false;
    }

    /// Notes the state after a write of this handle.
    fn note_written(&self, modified: u64, is_free: bool) {
        let resets = self.watch.latest().resets;
        let mut own = self.own();
        own.told = Some(KeyObservation { index: modified, modified: Some(modified), is_free, resets });
        own.is_delayed = false;
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        lock(&self.own)
    }
}

/// Returns the value that this holder wrote in this session, if it is still there.
fn own_value(entry: &Entry, session: &str, holder: &Holder) -> Option<Value> {
    let value = Value::decode(&entry.value).filter(|_| entry.session.as_deref() == Some(session))?;
    Some(value).filter(|value| value.session == session && value.holder == *holder)
}

/// The token of the leadership that takes a key with this index, which the server has named.
fn next_token(index: u64) -> Result<FencingToken, SessionError> {
    let next = index.checked_add(1).map(FencingToken);
    next.ok_or_else(|| no_answer(format!("the key has the index {index}, which no key of Consul has")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_no_key_has_gives_no_token() {
        assert_eq!(next_token(41), Ok(FencingToken(42)));
        assert!(next_token(u64::MAX).is_err());
    }
}
