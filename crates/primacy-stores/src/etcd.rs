//! Elections in etcd: a queue of keys attached to leases, in the layout of etcd's own clients, so that `etcdctl elect` and all other
//! clients with that layout can take part in the same election.
//!
//! Promises  every decisive answer is linearizable; a token, which is the key's create revision, is higher than all before it; the time
//!           reported for a session is never longer than etcd waits; [`changed`](Sessions::changed) misses no change.
//! Assumes   etcd 3.4 or later, whose clocks run at about the rate of this one.
//! Leaves    all keys but those of its elections as they are.
//!
//! The gRPC client is part of this crate, with messages written by hand ([`api`]). Elections of one process that name the same URL share a
//! connection, a stream of watches, and a session.
//!
//! Lost answers: an entry is put only if its key does not exist, and so at most once, however often the request is sent. But a write that
//! is still in transit when its candidate has left the queue would put the entry back, and the session goes on with other elections. So
//! after a write without an answer the key is watched, and the entry removed again.

pub mod api;
mod client;
mod connect;
mod diagnostics;
mod direct;
mod queue;
mod register;
mod session;
mod url;
mod value;
mod watch;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity};

use self::client::Client;
pub use self::client::RequestError;
pub(crate) use self::diagnostics::examine;
pub use self::direct::EtcdClient;
use self::queue::{EntryPosition, Queue, QueueRank};
use self::session::{Lease, Pool, User};
pub(crate) use self::url::open_url;
use self::watch::{Only, Target, Watch, Watches};
use crate::mutex::lock;
use crate::register::Pending;
use crate::runtime;
use crate::sessions::{Begun, SessionError, Sessions};
use crate::shared_connections::Share;

/// The longest time until [`changed`](crate::Register::changed) resolves, for the record of `?recipe=lease`, if the cluster has a leader
/// and the member with the watch answers. It usually takes a few milliseconds.
pub const CHANGE_BOUND: Duration = Duration::from_secs(1);

/// The state that elections of one process share.
#[derive(Clone, Debug)]
struct Connected {
    client: Arc<Client>,
    pool: Arc<Pool>,
    watches: Arc<Watches>,
}

/// A handle on one election in one etcd.
#[derive(Debug)]
pub struct EtcdSessions {
    share: Share<Connected>,
    queue: Queue,
    user: User,
    state: Arc<Mutex<State>>,
}

/// The state of a handle's election.
#[derive(Debug, Default)]
struct State {
    /// The entry that this handle has in the queue, or may have.
    own: Option<Own>,
    /// The keys that [`Sessions::changed`] watches, and the last revision seen.
    seen: Option<(Target, i64)>,
    watch: Option<Arc<Watch>>,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    lease: Lease,
    entry: u64,
    /// True if a write without an answer may still take effect.
    in_doubt: bool,
    /// The create revision of the entry, if known.
    created: Option<i64>,
}

impl EtcdSessions {
    fn new(share: Share<Connected>, queue: Queue, election: &str) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(0);
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
        let user = User { election: election.to_owned(), handle, key: queue.prefix() };
        Self { share, queue, user, state: Arc::default() }
    }

    /// Runs a request on the stores' thread.
    async fn run<T, F>(&self, request: impl FnOnce(Task) -> F) -> Result<T, SessionError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SessionError>> + Send + 'static,
    {
        let task = Task {
            connected: Connected::clone(&self.share),
            queue: self.queue.clone(),
            user: self.user.clone(),
            state: Arc::clone(&self.state),
        };
        runtime::run(request(task)).await.unwrap_or_else(|why| Err(SessionError::NoAnswer { why }))
    }
}

impl Sessions for EtcdSessions {
    fn begin(&self, timeout: Duration) -> Pending<'_, Result<Begun, SessionError>> {
        Box::pin(self.run(move |task: Task| async move {
            task.connected.pool.begin(&task.connected.client, &task.user, timeout).await
        }))
    }

    fn keep_alive<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<Duration, SessionError>> {
        Box::pin(async move {
            let lease = lease_of(session)?;
            self.run(move |task: Task| async move {
                task.connected.pool.keep_alive(&task.connected.client, lease, &task.user).await
            })
            .await
        })
    }

    fn campaign<'a>(
        &'a self,
        session: &'a SessionId,
        holder: &'a Holder,
    ) -> Pending<'a, Result<QueuePosition, SessionError>> {
        Box::pin(async move {
            let (lease, holder) = (lease_of(session)?, holder.clone());
            self.run(move |task: Task| async move { task.campaign(lease, &holder).await }).await
        })
    }

    fn leave<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let lease = lease_of(session)?;
            self.run(move |task: Task| async move { task.leave(lease).await }).await
        })
    }

    fn end<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let lease = lease_of(session)?;
            self.run(move |task: Task| async move { task.end(lease).await }).await
        })
    }

    fn first(&self) -> Pending<'_, Result<Option<Entry>, SessionError>> {
        Box::pin(self.run(move |task: Task| async move { task.first().await }))
    }

    fn evict<'a>(&'a self, dead: &'a Identity) -> Pending<'a, Result<bool, SessionError>> {
        let dead = *dead;
        Box::pin(
            self.run(
                move |task: Task| async move { Ok(task.queue.evict(&task.connected.client, &dead).await?) },
            ),
        )
    }

    fn ask_to_resign<'a>(
        &'a self,
        token: FencingToken,
        by: &'a str,
    ) -> Pending<'a, Result<bool, SessionError>> {
        let by = by.to_owned();
        Box::pin(self.run(move |task: Task| async move {
            Ok(task.queue.ask_to_resign(&task.connected.client, token, &by).await?)
        }))
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let watch = {
                let mut state = lock(&self.state);
                let whole = || {
                    (Target { key: self.queue.prefix(), range_end: self.queue.end(), only: Only::Any }, -1)
                };
                let (target, revision) = state.seen.clone().unwrap_or_else(whole);
                // A watch that has fired for a revision that was seen since cannot be used again.
                let is_of_use = |watch: &Arc<Watch>| {
                    watch.target == target && watch.has_fired().is_none_or(|fired| fired > revision)
                };
                match state.watch.take().filter(is_of_use) {
                    Some(watch) => Arc::clone(state.watch.insert(watch)),
                    None => {
                        let watch = self.share.watches.watch(target, revision.saturating_add(1));
                        Arc::clone(state.watch.insert(Arc::new(watch)))
                    }
                }
            };
            watch.fired().await;
        })
    }
}

/// A dropped handle may have left an entry in a session that goes on. Its leadership, if it had one, is valid for the TTL of the session,
/// so the entry is removed after that time, as if the session had been the handle's own and had expired.
impl Drop for EtcdSessions {
    fn drop(&mut self) {
        let left = self.share.pool.forget(&self.user);
        let Some(own) = lock(&self.state).own.take() else { return };
        if let Some(session) = left.iter().find(|session| session.lease == own.lease) {
            tidy_up(&self.share, session, self.queue.clone(), own, session.granted);
        }
    }
}

/// A handle's part in a request.
struct Task {
    connected: Connected,
    queue: Queue,
    user: User,
    state: Arc<Mutex<State>>,
}

impl Task {
    async fn campaign(&self, lease: Lease, holder: &Holder) -> Result<QueuePosition, SessionError> {
        let own = {
            let mut state = lock(&self.state);
            let known = state.own.filter(|own| own.lease == lease);
            let own = match known {
                Some(own) => own,
                None => Own { lease, entry: draw()?, in_doubt: false, created: None },
            };
            // In doubt until the answer arrives, also if this future is dropped.
            state.own = Some(Own { in_doubt: true, ..own });
            own
        };
        let is_seen = own.created.is_some();
        let standing = self.queue.campaign(&self.connected.client, lease, (holder, own.entry), is_seen);
        let (result, in_doubt) = standing.await;
        let created = result.as_ref().map_or(own.created, |found| Some(found.created));
        let mut state = lock(&self.state);
        state.own = Some(Own { in_doubt: own.in_doubt || in_doubt, created, ..own });
        match result {
            Ok(found) => {
                state.seen = Some((self.to_watch(lease, &found), found.revision));
                let token = FencingToken(u64::try_from(found.created).unwrap_or(0));
                Ok(match found.standing {
                    QueueRank::First => {
                        QueuePosition::First { token, asked_to_resign: found.asked_to_resign }
                    }
                    QueueRank::Behind { first, .. } => QueuePosition::Behind { first },
                })
            }
            Err(error) => {
                if error == RequestError::NoSession {
                    // The entries are gone with the session.
                    state.own = None;
                    state.seen = None;
                    self.connected.pool.ended(lease);
                }
                Err(error.into())
            }
        }
    }

    fn to_watch(&self, lease: Lease, found: &EntryPosition) -> Target {
        let (key, only) = match &found.standing {
            QueueRank::First => (self.queue.key(lease), Only::Any),
            QueueRank::Behind { before, .. } => (before.clone(), Only::Deleted),
        };
        Target { key, range_end: vec![], only }
    }

    async fn leave(&self, lease: Lease) -> Result<(), SessionError> {
        let Some(own) = lock(&self.state).own.filter(|own| own.lease == lease) else {
            let session = self.connected.pool.find(lease).filter(|session| !session.has_ended());
            return session.map(|_| ()).ok_or_else(|| SessionError::Ended { why: "it was ended".to_owned() });
        };
        self.queue.leave(&self.connected.client, lease, own.entry, own.created).await?;
        {
            let mut state = lock(&self.state);
            if state.own.is_some_and(|now| now.entry == own.entry) {
                state.own = None;
                state.seen = None;
            }
        }
        if own.in_doubt
            && let Some(session) = self.connected.pool.find(lease)
        {
            tidy_up(&self.connected, &session, self.queue.clone(), own, Duration::ZERO);
        }
        Ok(())
    }

    async fn end(&self, lease: Lease) -> Result<(), SessionError> {
        // If other elections go on using the session, the entry must still be removed.
        match self.leave(lease).await {
            Ok(()) | Err(SessionError::Ended { .. }) => {}
            Err(error @ (SessionError::NoAnswer { .. } | SessionError::Refused { .. })) => return Err(error),
        }
        self.connected.pool.end(&self.connected.client, lease, &self.user).await?;
        Ok(())
    }

    async fn first(&self) -> Result<Option<Entry>, SessionError> {
        let (first, revision) = self.queue.first(&self.connected.client).await?;
        let mut state = lock(&self.state);
        // A handle with an entry watches the entry before its own, unless its session is lost or that watch has fired.
        let stands = state.own.is_some_and(|own| self.connected.pool.find(own.lease).is_some());
        let has_changed = state.watch.as_ref().is_some_and(|watch| watch.has_fired().is_some());
        if !stands || has_changed {
            let whole = Target { key: self.queue.prefix(), range_end: self.queue.end(), only: Only::Any };
            let alone =
                |kv: &api::KeyValue| Target { key: kv.key.clone(), range_end: vec![], only: Only::Any };
            state.seen = Some((first.as_ref().map_or(whole, alone), revision));
        }
        Ok(first.as_ref().map(queue::entry_of))
    }
}

/// Keeps this entry out of the queue, from `after` on until the session ends.
fn tidy_up(connected: &Connected, session: &Arc<session::Session>, queue: Queue, own: Own, after: Duration) {
    let (client, watches) = (Arc::downgrade(&connected.client), Arc::downgrade(&connected.watches));
    let alive = Arc::downgrade(session);
    let work = async move {
        tokio::time::sleep(after).await;
        let lives = || alive.upgrade().is_some_and(|session| !session.has_ended());
        while lives() {
            let (Some(client), Some(watches)) = (client.upgrade(), watches.upgrade()) else { return };
            // The watch begins before the key is read, so that no write is missed.
            let target = Target { key: queue.key(own.lease), range_end: vec![], only: Only::Written };
            let watch = watches.watch(target, 0);
            if queue.leave(&client, own.lease, own.entry, None).await.is_err() {
                tokio::time::sleep(TIDY_PAUSE).await;
                continue;
            }
            if !own.in_doubt {
                return;
            }
            drop((client, watches));
            // A watch without a start revision begins when etcd receives it, and a write may come before that. So the key is also read
            // periodically.
            let _ = tokio::time::timeout(TIDY_INTERVAL, watch.fired()).await;
        }
    };
    if let Ok(chore) = runtime::spawn(work) {
        lock(&session.chores).push(chore);
    }
}

/// The pause before the next attempt to remove an entry.
const TIDY_PAUSE: Duration = Duration::from_millis(500);

/// The interval of reading a key that a late write may bring back, beside watching it.
const TIDY_INTERVAL: Duration = Duration::from_secs(10);

fn lease_of(session: &SessionId) -> Result<Lease, SessionError> {
    let unknown = || SessionError::Ended { why: "this is no session of etcd's".to_owned() };
    Lease::parse(session).ok_or_else(unknown)
}

fn draw() -> Result<u64, SessionError> {
    let mut bytes = [0; 8];
    let failed = |error| SessionError::NoAnswer { why: format!("no random number: {error}") };
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(u64::from_ne_bytes(bytes))
}
