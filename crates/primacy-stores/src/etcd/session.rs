//! The sessions of one client, which etcd calls leases: elections share one, and one keep-alive is sent for all of them.
//!
//! **A keep-alive counts only if the member that received it was in the same term before it and after a linearizable read that followed
//! it.** In etcd 3.4, a deposed leader that does not know this yet renews leases; its successor measures their time itself, and may have
//! ended the lease. The read is answered only when a majority has confirmed the leader, so it was still the leader after it had renewed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use super::api::{self, method};
use super::client::{Client, RequestError, Tries};
use crate::attempts;
use crate::contained::contain_in;
use crate::mutex::lock;
use crate::runtime::Aborted;
use crate::session_users::SessionUsers;
use crate::sessions::{Begun, SessionError};

/// The time for which the first election that requests a keep-alive waits for others to join, if several share the session: so at most
/// twenty a second are sent, however many elections there are. It is short compared with the shortest session, a second.
const JOIN_DELAY: Duration = Duration::from_millis(50);

/// The time for a session to begin or to end: a cluster without a leader elects one in a second or two.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// The number of a session in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Lease(pub(super) i64);

/// The sessions that this process keeps alive by one client.
#[derive(Debug, Default)]
pub(super) struct Pool {
    sessions: Mutex<Vec<Arc<Session>>>,
    /// Held while a session is granted, so that concurrent calls share one.
    beginning: tokio::sync::Mutex<()>,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) lease: Lease,
    /// The requested time to live, in whole seconds.
    asked: i64,
    /// The TTL that etcd granted.
    pub(super) granted: Duration,
    users: SessionUsers,
    /// The elections that wait for the next keep-alive.
    waiting: Mutex<Vec<Waiting>>,
    ended: AtomicBool,
    /// Tasks that run as long as the session lasts.
    pub(super) chores: Mutex<Vec<Aborted<()>>>,
}

/// An election that waits for a keep-alive: a key that it may read, and the sender of the reply.
type Waiting = (Vec<u8>, oneshot::Sender<Result<Duration, SessionError>>);

/// One election's use of sessions.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) election: String,
    pub(super) handle: u64,
    /// A key that it may read.
    pub(super) key: Vec<u8>,
}

impl Pool {
    pub(super) async fn begin(
        &self,
        client: &Arc<Client>,
        user: &User,
        timeout: Duration,
    ) -> Result<Begun, SessionError> {
        let asked = seconds(timeout);
        loop {
            let session = match self.join(asked, user) {
                Some(session) => session,
                None => {
                    let _first = self.beginning.lock().await;
                    match self.join(asked, user) {
                        Some(session) => session,
                        None => return self.begin_anew(client, user, asked).await,
                    }
                }
            };
            // It may have begun long ago, so its remaining time is requested.
            match self.keep_alive(client, session.lease, user).await {
                Ok(timeout) => return Ok(Begun { session: session.lease.id(), timeout }),
                // It is not in the pool any more.
                Err(SessionError::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn begin_anew(&self, client: &Client, user: &User, asked: i64) -> Result<Begun, SessionError> {
        let session = Arc::new(grant(client, asked).await?);
        session.join(user);
        lock(&self.sessions).push(Arc::clone(&session));
        // Its TTL began after the request was sent.
        Ok(Begun { session: session.lease.id(), timeout: session.granted })
    }

    fn join(&self, asked: i64, user: &User) -> Option<Arc<Session>> {
        let sessions = lock(&self.sessions);
        sessions.iter().find(|session| session.asked == asked && session.join(user)).cloned()
    }

    pub(super) fn find(&self, lease: Lease) -> Option<Arc<Session>> {
        lock(&self.sessions).iter().find(|session| session.lease == lease).cloned()
    }

    /// Keeps it alive; returns the least time that it lasts from now on.
    pub(super) async fn keep_alive(
        &self,
        client: &Arc<Client>,
        lease: Lease,
        user: &User,
    ) -> Result<Duration, SessionError> {
        let result = match self.find(lease) {
            Some(session) => session.keep_alive_with_others(client, user).await,
            None => renew(client, lease, &user.key, REQUEST_MAX).await.map_err(SessionError::from),
        };
        if matches!(result, Err(SessionError::Ended { .. })) {
            // A former leader, or a member that does not know of this session yet, may answer so. An entry that a majority still has proves
            // that the session exists.
            if has_entry(client, lease, &user.key).await? {
                client.move_on().await;
                let why = "a member does not know the session, whose entry is there; another one is asked";
                return Err(SessionError::NoAnswer { why: why.to_owned() });
            }
            self.ended(lease);
        }
        result
    }

    /// Removes this election; ends the session if no other one uses it.
    pub(super) async fn end(&self, client: &Client, lease: Lease, user: &User) -> Result<(), SessionError> {
        let is_used = {
            let mut sessions = lock(&self.sessions);
            let is_used = sessions.iter().any(|session| session.lease == lease && session.leave(user));
            if !is_used {
                sessions.retain(|session| session.lease != lease);
            }
            is_used
        };
        if !is_used {
            revoke(client, lease).await?;
        }
        Ok(())
    }

    /// Removes a dropped handle; returns its sessions that other elections go on using. Its other sessions are not kept alive any more.
    pub(super) fn forget(&self, user: &User) -> Vec<Arc<Session>> {
        let mut left = Vec::new();
        lock(&self.sessions).retain(|session| {
            if !session.users.has(&user.election, user.handle) {
                return true;
            }
            let goes_on = session.leave(user);
            if goes_on {
                left.push(Arc::clone(session));
            }
            goes_on
        });
        left
    }

    /// Removes a session that has ended, by etcd's answer.
    pub(super) fn ended(&self, lease: Lease) {
        if let Some(session) = self.find(lease) {
            session.ended.store(true, Ordering::SeqCst);
        }
        self.remove(lease);
    }

    fn remove(&self, lease: Lease) {
        lock(&self.sessions).retain(|session| session.lease != lease);
    }
}

impl Session {
    /// Sends one keep-alive for all callers that arrived before it is sent.
    async fn keep_alive_with_others(
        self: Arc<Self>,
        client: &Arc<Client>,
        user: &User,
    ) -> Result<Duration, SessionError> {
        let (reply, answer) = oneshot::channel();
        let is_first = {
            let mut waiting = lock(&self.waiting);
            waiting.push((user.key.clone(), reply));
            waiting.len() == 1
        };
        if is_first {
            let client = Arc::clone(client);
            // In a task, because the other callers still wait when the first one has given up.
            tokio::spawn(contain_in(attempts::inherit(async move {
                if self.users.are_many() {
                    tokio::time::sleep(JOIN_DELAY).await;
                }
                let waiting = std::mem::take(&mut *lock(&self.waiting));
                self.answer(&client, waiting).await;
            })));
        }
        answer
            .await
            .unwrap_or_else(|_| Err(SessionError::NoAnswer { why: "the keep-alive was given up".to_owned() }))
    }

    /// Sends a keep-alive, which answers all waiting elections. If the first of them lacks a permission, that does not concern the others,
    /// and a keep-alive of the next one is sent.
    async fn answer(&self, client: &Client, waiting: Vec<Waiting>) {
        let mut waiting = waiting.into_iter();
        while let Some((key, reply)) = waiting.next() {
            // An answer after half of the TTL is useless.
            let result = renew(client, self.lease, &key, self.granted / 2).await.map_err(SessionError::from);
            let _ = reply.send(result.clone());
            if !matches!(result, Err(SessionError::Refused { .. })) {
                for (_, reply) in waiting {
                    let _ = reply.send(result.clone());
                }
                return;
            }
        }
    }

    /// Joins this election to the session; returns whether it may use it.
    fn join(&self, user: &User) -> bool {
        if self.ended.load(Ordering::SeqCst) {
            return false;
        }
        self.users.join(&user.election, user.handle)
    }

    /// Removes this election; returns whether others still use the session.
    fn leave(&self, user: &User) -> bool {
        self.users.leave(&user.election, user.handle)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

impl Lease {
    /// The number as `etcdctl` shows it, and as it is in the key of a candidate.
    pub(super) fn hex(self) -> String {
        format!("{:x}", self.0)
    }

    pub(super) fn id(self) -> primacy_core::election::session::SessionId {
        primacy_core::election::session::SessionId::new(&self.hex())
    }

    /// Parses a number; `None` for a text that is no session of etcd's.
    pub(super) fn parse(session: &primacy_core::election::session::SessionId) -> Option<Self> {
        let number = i64::from_str_radix(session.as_str(), 16).ok()?;
        Some(Self(number)).filter(|lease| number > 0 && lease.hex() == session.as_str())
    }
}

/// Returns the TTL in whole seconds, as etcd requires: rounded up, so that no session ends sooner than requested.
fn seconds(timeout: Duration) -> i64 {
    let whole = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    i64::try_from(whole.max(1)).unwrap_or(i64::MAX)
}

fn granted(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().filter(|ttl| *ttl > 0).map(Duration::from_secs)
}

async fn grant(client: &Client, asked: i64) -> Result<Session, RequestError> {
    let question = api::LeaseGrantRequest { ttl: asked, id: 0 };
    // A lost answer leaves a session that is not kept alive.
    let told = client.call(method::LEASE_GRANT, question, Tries::Many, REQUEST_MAX).await;
    let answer: api::LeaseGrantResponse = told.result?;
    let refused = |why: String| RequestError::Refused { why };
    if !answer.error.is_empty() {
        return Err(refused(answer.error));
    }
    Ok(Session {
        lease: Lease(answer.id),
        asked,
        granted: granted(answer.ttl).ok_or_else(|| refused("it grants leases of no time".to_owned()))?,
        users: SessionUsers::default(),
        waiting: Mutex::default(),
        ended: AtomicBool::new(false),
        chores: Mutex::default(),
    })
}

/// Ends a session; a missing session is no error.
pub(super) async fn revoke(client: &Client, lease: Lease) -> Result<(), RequestError> {
    let question = api::LeaseRevokeRequest { id: lease.0 };
    let told =
        client.call::<_, api::LeaseRevokeResponse>(method::LEASE_REVOKE, question, Tries::Many, REQUEST_MAX);
    match told.await.result {
        Ok(_) | Err(RequestError::NoSession) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether a majority has an entry of the session below this prefix, which proves that the session exists. An election without an
/// entry loses nothing if it begins a new session.
async fn has_entry(client: &Client, lease: Lease, prefix: &[u8]) -> Result<bool, RequestError> {
    let key = [prefix, lease.hex().as_bytes()].concat();
    let question = api::RangeRequest { key, keys_only: true, ..Default::default() };
    let read: api::RangeResponse =
        client.call(method::RANGE, question, Tries::Many, REQUEST_MAX).await.result?;
    Ok(read.kvs.iter().any(|entry| entry.lease == lease.0))
}

async fn renew(
    client: &Client,
    lease: Lease,
    key: &[u8],
    patience: Duration,
) -> Result<Duration, RequestError> {
    let renewing = async {
        loop {
            let answer = client.keep_alive(lease.0, patience).await?;
            let Some(left) = granted(answer.ttl) else { return Err(RequestError::NoSession) };
            let question =
                api::RangeRequest { key: key.to_vec(), limit: 1, count_only: true, ..Default::default() };
            let read = client.call(method::RANGE, question, Tries::Many, patience).await;
            let read: api::RangeResponse = read.result?;
            let (before, after) = (answer.header.unwrap_or_default(), read.header.unwrap_or_default());
            if (before.member_id, before.raft_term) == (after.member_id, after.raft_term) {
                return Ok(left);
            }
            attempts::failed(&"the member that renewed the lease was deposed meanwhile");
        }
    };
    let given_up = |_| RequestError::NoAnswer { why: "the session was not renewed in time".to_owned() };
    tokio::time::timeout(patience, renewing).await.map_err(given_up)?
}

impl From<RequestError> for SessionError {
    fn from(error: RequestError) -> Self {
        let why = error.to_string();
        match error {
            RequestError::NoSession => Self::Ended { why },
            RequestError::NotSent { .. } | RequestError::NoAnswer { .. } => Self::NoAnswer { why },
            RequestError::Refused { .. } => Self::Refused { why },
        }
    }
}

#[cfg(test)]
mod tests;
