//! The sessions of this process in one Consul: elections share one, and one keep-alive answers for all of them.
//!
//! Consul's leader measures the time of a session in memory, from the last keep-alive that it has received, and waits for twice the TTL of
//! the session. A new leader starts from zero. The second half covers a keep-alive that was received by a deposed leader that did not know
//! this yet.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy_core::Instant;
use primacy_core::election::session::SessionId;

use super::api::Api;
use crate::clock;
use crate::mutex::lock;
use crate::session_users::SessionUsers;
use crate::sessions::{Begun, SessionError};
use crate::singleflight::SingleFlight;

/// The shortest and the longest TTL that Consul accepts, unless its `session_ttl_min` is different.
const TTL: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(24 * 60 * 60));

/// The sessions that elections of this process use.
#[derive(Debug)]
pub(super) struct Pool {
    /// The time for which Consul gives a key to no session after the session of its holder has ended.
    pub(super) lock_delay: Duration,
    sessions: Mutex<Vec<Arc<Session>>>,
    /// Held while a session is created, so that concurrent calls share one.
    beginning: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Session {
    id: String,
    /// The requested time to live.
    asked: Duration,
    users: SessionUsers,
    keep_alives: SingleFlight<Result<Duration, SessionError>>,
    /// The time at which the last answered keep-alive, or the session itself, was requested.
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
                let session = Session::new(id, asked, began);
                session.join(user);
                let begun = Begun { session: SessionId::new(&session.id), timeout: asked };
                lock(&self.sessions).push(Arc::new(session));
                // Its TTL began after the request was sent.
                return Ok(begun);
            };
            drop(beginning);
            // It may have begun long ago, so its remaining time is requested.
            match self.keep_alive(api, &session.id).await {
                Ok(timeout) => return Ok(Begun { session: SessionId::new(&session.id), timeout }),
                // It is not in the pool any more.
                Err(SessionError::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) async fn keep_alive(&self, api: &Api, id: &str) -> Result<Duration, SessionError> {
        let Some(session) = self.find(id) else { return api.renew(id).await };
        let result = session.keep_alives.ask(|| session.keep_alive(api)).await;
        if matches!(result, Err(SessionError::Ended { .. })) {
            self.forget(id);
        }
        result
    }

    /// Removes this election from the session; returns whether it was the last one, so that the session is to be destroyed.
    pub(super) fn leave(&self, id: &str, user: &User) -> bool {
        let Some(session) = self.find(id) else { return true };
        let is_used = session.leave(user);
        if !is_used {
            self.forget(id);
        }
        !is_used
    }

    /// Removes a dropped handle; returns the sessions that it has used, with the requested time to live of each. Sessions that no other
    /// election uses are removed from the pool.
    pub(super) fn forget_user(&self, user: &User) -> Vec<(String, Duration)> {
        let mut used = Vec::new();
        lock(&self.sessions).retain(|session| {
            if !session.users.has(&user.key, user.handle) {
                return true;
            }
            used.push((session.id.clone(), session.asked));
            session.leave(user)
        });
        used
    }

    /// Removes a session from the pool: it has ended, or is to be destroyed.
    pub(super) fn forget(&self, id: &str) {
        lock(&self.sessions).retain(|session| session.id != id);
    }

    fn join(&self, asked: Duration, user: &User) -> Option<Arc<Session>> {
        let sessions = lock(&self.sessions);
        sessions.iter().find(|session| session.asked == asked && session.join(user)).cloned()
    }

    /// Returns whether elections of this process use it.
    pub(super) fn is_used(&self, id: &str) -> bool {
        self.find(id).is_some()
    }

    fn find(&self, id: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).iter().find(|session| session.id == id).cloned()
    }
}

impl Session {
    fn new(id: String, asked: Duration, began: Instant) -> Self {
        Self {
            id,
            asked,
            users: SessionUsers::default(),
            keep_alives: SingleFlight::default(),
            kept_at: Mutex::new(began),
        }
    }

    /// Joins this election to the session; returns whether it may use it.
    fn join(&self, user: &User) -> bool {
        self.users.join(&user.key, user.handle)
    }

    /// Removes this election; returns whether others still use the session.
    fn leave(&self, user: &User) -> bool {
        self.users.leave(&user.key, user.handle)
    }

    async fn keep_alive(&self, api: &Api) -> Result<Duration, SessionError> {
        let began = clock::now();
        // A leader of the servers that was deposed and does not know it may take a keep-alive. Its successor gives the session twice its
        // time, which covers one such answer after one that counted; after a longer silence it may have ended the session.
        if began.since(*lock(&self.kept_at)) > self.asked.into() {
            return Err(SessionError::Ended { why: "it was not kept alive in time".to_owned() });
        }
        let ttl = api.renew(&self.id).await?;
        *lock(&self.kept_at) = began;
        Ok(ttl.min(self.asked))
    }
}

/// Returns the TTL to request: at least `timeout`, within Consul's limits, in whole milliseconds.
fn granted(timeout: Duration) -> Duration {
    let (least, most) = TTL;
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX)).clamp(least, most)
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
}
