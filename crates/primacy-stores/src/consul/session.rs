//! The sessions of this process in one Consul: elections share one, and one keep-alive answers for all of them.
//!
//! Consul's leader counts the time of a session in its memory, from the last keep-alive that it has taken, and waits twice as
//! long as the session was begun for. A new leader counts anew. The second half is what covers a keep-alive that a leader has
//! taken which did not know yet that it was none any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy_core::Instant;
use primacy_core::election::session::SessionId;

use super::api::Api;
use crate::clock;
use crate::sessions::{Begun, SessionError};

/// The shortest and the longest time that Consul gives a session, where its `session_ttl_min` says nothing else.
const TTL: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(24 * 60 * 60));

/// The sessions that elections of this process use.
#[derive(Debug)]
pub(super) struct Pool {
    /// For how long Consul gives a key to nobody when its holder's session ended with it.
    pub(super) lock_delay: Duration,
    sessions: Mutex<Vec<Arc<Session>>>,
    /// So that of many that begin at once, the first one asks Consul.
    beginning: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Session {
    id: String,
    /// For how long it was asked for.
    asked: Duration,
    /// The handle that uses it, of each election; `None` where one has used it before. No other handle on that election may:
    /// what the first one left undone has the same key.
    users: Mutex<HashMap<String, Option<u64>>>,
    renewals: Renewals,
}

/// The keep-alives of a session, where each answers all who asked before it was sent.
#[derive(Debug)]
struct Renewals {
    /// How many have asked.
    asked: AtomicU64,
    /// How many of those the last one answered, and what.
    answered: tokio::sync::Mutex<Option<(u64, Result<Duration, SessionError>)>>,
    /// When the last one was asked for that was answered, or the session itself.
    kept_at: Mutex<Instant>,
}

/// One election's use of sessions.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) key: String,
    pub(super) handle: u64,
}

impl Pool {
    pub(super) fn new(lock_delay: Duration) -> Self {
        Self { lock_delay, sessions: Mutex::default(), beginning: tokio::sync::Mutex::default() }
    }

    pub(super) async fn begin(
        &self,
        api: &Api,
        user: &User,
        timeout: Duration,
    ) -> Result<Begun, SessionError> {
        let asked = granted(timeout);
        loop {
            let beginning = self.beginning.lock().await;
            let Some(session) = self.join(asked, user) else {
                let began = clock::now();
                let id = api.create(asked, self.lock_delay).await?;
                let session = Session { id, asked, users: Mutex::default(), renewals: Renewals::new(began) };
                session.join(user);
                let begun = Begun { session: SessionId::new(&session.id), timeout: asked };
                self.lock().push(Arc::new(session));
                // It began after it was asked for.
                return Ok(begun);
            };
            drop(beginning);
            // It began long ago, so what it has from now on is to be asked.
            match self.keep_alive(api, &session.id).await {
                Ok(timeout) => return Ok(Begun { session: SessionId::new(&session.id), timeout }),
                // It is in the pool no more.
                Err(SessionError::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) async fn keep_alive(&self, api: &Api, id: &str) -> Result<Duration, SessionError> {
        let Some(session) = self.find(id) else { return api.renew(id).await };
        let result = session.renewals.renew(api, &session).await;
        if matches!(result, Err(SessionError::Ended { .. })) {
            self.forget(id);
        }
        result
    }

    /// This election uses it no more; whether it was the last one, and the session is to be destroyed.
    pub(super) fn leave(&self, id: &str, user: &User) -> bool {
        let Some(session) = self.find(id) else { return true };
        let is_used = session.leave(user);
        if !is_used {
            self.forget(id);
        }
        !is_used
    }

    /// This handle is gone: the sessions that it has used, and for how long each was asked for. Those that no other election
    /// uses are shared no more.
    pub(super) fn forget_user(&self, user: &User) -> Vec<(String, Duration)> {
        let mut used = Vec::new();
        self.lock().retain(|session| {
            if lock(&session.users).get(&user.key) != Some(&Some(user.handle)) {
                return true;
            }
            used.push((session.id.clone(), session.asked));
            session.leave(user)
        });
        used
    }

    /// Consul says that it has ended, or is told so.
    pub(super) fn forget(&self, id: &str) {
        self.lock().retain(|session| session.id != id);
    }

    fn join(&self, asked: Duration, user: &User) -> Option<Arc<Session>> {
        let sessions = self.lock();
        sessions.iter().find(|session| session.asked == asked && session.join(user)).cloned()
    }

    /// Whether elections of this process use it.
    pub(super) fn is_used(&self, id: &str) -> bool {
        self.find(id).is_some()
    }

    fn find(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().iter().find(|session| session.id == id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        lock(&self.sessions)
    }
}

impl Session {
    /// Whether this election may use it; it does now.
    fn join(&self, user: &User) -> bool {
        let mut users = lock(&self.users);
        *users.entry(user.key.clone()).or_insert(Some(user.handle)) == Some(user.handle)
    }

    /// Whether others use it still.
    fn leave(&self, user: &User) -> bool {
        let mut users = lock(&self.users);
        if let Some(used) = users.get_mut(&user.key).filter(|used| **used == Some(user.handle)) {
            *used = None;
        }
        users.values().any(Option::is_some)
    }
}

impl Renewals {
    fn new(began: Instant) -> Self {
        Self { asked: AtomicU64::new(0), answered: tokio::sync::Mutex::default(), kept_at: Mutex::new(began) }
    }

    async fn renew(&self, api: &Api, session: &Session) -> Result<Duration, SessionError> {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        // Whoever has it sends a keep-alive; the others wait here, and the next one of them answers for all.
        let mut answered = self.answered.lock().await;
        if let Some((asked_before, result)) = &*answered
            && *asked_before >= mine
        {
            return result.clone();
        }
        let asked_before = self.asked.load(Ordering::SeqCst);
        let began = clock::now();
        // A leader of the servers that was deposed and does not know it may take a keep-alive. Its successor gives the session twice its
        // time, which covers one such answer after one that counted; after a longer silence it may have ended the session.
        let is_late = began.since(*lock(&self.kept_at)) > session.asked.into();
        let result = match is_late {
            true => Err(SessionError::Ended { why: "it was not kept alive in time".to_owned() }),
            false => api.renew(&session.id).await.map(|ttl| ttl.min(session.asked)),
        };
        if result.is_ok() {
            *lock(&self.kept_at) = began;
        }
        *answered = Some((asked_before, result.clone()));
        result
    }
}

/// What Consul is asked for: no less than was asked for, if it gives that, and in the milliseconds that it understands.
fn granted(timeout: Duration) -> Duration {
    let (least, most) = TTL;
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX)).clamp(least, most)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_asked_for_within_what_consul_gives() {
        let (seconds, nanoseconds) = (Duration::from_secs, Duration::from_nanos);
        assert_eq!([seconds(1), seconds(15), seconds(1 << 40)].map(granted), [TTL.0, seconds(15), TTL.1]);
        assert_eq!(granted(nanoseconds(10_000_000_001)), Duration::from_millis(10_001));
    }

    #[test]
    fn a_second_handle_on_an_election_uses_no_session_of_the_first() {
        let session = Session {
            id: "s".to_owned(),
            asked: TTL.0,
            users: Mutex::default(),
            renewals: Renewals::new(clock::now()),
        };
        let user = |key: &str, handle| User { key: key.to_owned(), handle };
        assert!(session.join(&user("a", 1)) && session.join(&user("a", 1)) && session.join(&user("b", 2)));
        assert!(!session.join(&user("a", 3)));
        assert!(session.leave(&user("a", 1)), "b uses it");
        assert!(!session.join(&user("a", 3)), "what the first one left undone");
        assert!(session.leave(&user("a", 3)), "it had none");
        assert!(!session.leave(&user("b", 2)));
    }
}
