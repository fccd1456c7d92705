//! Elections in Consul: a session, and a key that it locks, as with `consul lock`, so that Primacy and `consul lock` can take part in the
//! same election.
//!
//! Promises  every decisive answer is linearizable; a token is higher than all before it, even if the key was deleted; the time reported
//!           for a session is never longer than Consul waits; [`changed`](Sessions::changed) within a round trip, for up to a hundred
//!           elections of a process.
//! Assumes   Consul 1.7 or later, whose clocks run at about the rate of this one, and which is not restored from a snapshot.
//! Leaves    all keys but those of its elections as they are.
//!
//! There is no queue in Consul: the first is the holder of the key, and the other candidates have no entry. The fastest of them is next.
//! The HTTP client is part of this crate.

mod agent;
mod api;
mod diagnostics;
mod duration;
mod queue;
mod session;
mod url;
mod value;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity};

use self::agent::there;
use self::api::{Api, no_answer};
pub(crate) use self::diagnostics::examine;
use self::queue::Queue;
use self::session::Pool;
pub(crate) use self::url::open_url;
use self::watch::{KeyObservation, Watches};
use crate::clock;
use crate::register::Pending;
use crate::runtime;
use crate::sessions::{Begun, SessionError, Sessions};
use crate::shared_connections::Share;

/// The longest time until [`changed`](Sessions::changed) resolves, while an agent answers.
pub const CHANGE_BOUND: Duration = Duration::from_secs(1);

/// The interval of attempts after a lock-delay: Consul does not notify of its end.
const DELAY_POLL: Duration = Duration::from_millis(500);

/// The pause between attempts to free the lock of a dropped handle.
const TIDY_PAUSE: Duration = Duration::from_millis(500);

/// The state that elections of one process share.
#[derive(Debug)]
struct Connected {
    api: Arc<Api>,
    pool: Arc<Pool>,
    watches: Arc<Watches>,
}

/// A handle on one election in one Consul.
#[derive(Debug)]
pub struct ConsulSessions {
    share: Share<Connected>,
    queue: Arc<Queue>,
}

/// Returns a number for a handle, unique in this process.
fn next_handle() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

impl ConsulSessions {
    fn new(share: Share<Connected>, queue: Arc<Queue>) -> Self {
        Self { share, queue }
    }

    /// Runs a request for the key on the stores' thread.
    fn ask<'a, T, F>(
        &'a self,
        work: impl FnOnce(Arc<Queue>) -> F + Send + 'a,
    ) -> Pending<'a, Result<T, SessionError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SessionError>> + Send + 'static,
    {
        Box::pin(async move { there(work(Arc::clone(&self.queue)), no_answer).await })
    }
}

impl Sessions for ConsulSessions {
    fn begin(&self, timeout: Duration) -> Pending<'_, Result<Begun, SessionError>> {
        let pool = Arc::clone(&self.share.pool);
        self.ask(move |queue| async move { pool.begin(&queue.api, &queue.user, timeout).await })
    }

    fn keep_alive<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<Duration, SessionError>> {
        let (pool, session) = (Arc::clone(&self.share.pool), session.as_str().to_owned());
        self.ask(move |queue| async move { pool.keep_alive(&queue.api, &session).await })
    }

    fn campaign<'a>(
        &'a self,
        session: &'a SessionId,
        holder: &'a Holder,
    ) -> Pending<'a, Result<QueuePosition, SessionError>> {
        let (pool, session, holder) =
            (Arc::clone(&self.share.pool), session.as_str().to_owned(), holder.clone());
        self.ask(move |queue| async move {
            let place = queue.campaign(&session, &holder).await;
            if matches!(place, Err(SessionError::Ended { .. })) {
                pool.forget(&session);
            }
            place
        })
    }

    fn leave<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        let session = session.as_str().to_owned();
        self.ask(move |queue| async move { queue.leave(&session).await })
    }

    fn end<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        let (pool, session) = (Arc::clone(&self.share.pool), session.as_str().to_owned());
        self.ask(move |queue| async move { end(&pool, &queue, &session).await })
    }

    fn first(&self) -> Pending<'_, Result<Option<Entry>, SessionError>> {
        self.ask(move |queue| async move { queue.first().await })
    }

    fn evict<'a>(&'a self, dead: &'a Identity) -> Pending<'a, Result<bool, SessionError>> {
        let (dead, pool) = (*dead, Arc::clone(&self.share.pool));
        self.ask(move |queue| async move {
            let Some(session) = queue.evict(&dead).await? else { return Ok(false) };
            if !pool.lock_delay.is_zero() {
                queue.free_others(&session).await?;
            }
            queue.api.destroy(&session).await.map(|()| true)
        })
    }

    fn ask_to_resign<'a>(
        &'a self,
        token: FencingToken,
        by: &'a str,
    ) -> Pending<'a, Result<bool, SessionError>> {
        let by = by.to_owned();
        self.ask(move |queue| async move { queue.ask_to_resign(token, &by).await })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let (queue, watches) = (Arc::clone(&self.queue), Arc::clone(&self.share.watches));
        Box::pin(async move {
            let waiting = runtime::run(async move {
                queue.watch.start(&queue.api, &watches, &queue.user.key);
                let mut latest = queue.watch.subscribe();
                // Another request may update the last answer while this waits. Before the first answer, any state is news.
                let is_news = |latest: &KeyObservation| match queue.told() {
                    (Some(told), _) => latest.is_news_to(&told),
                    (None, _) => latest.index > 0,
                };
                loop {
                    let news = tokio::time::timeout(DELAY_POLL, latest.wait_for(is_news)).await;
                    let (_, is_delayed) = queue.told();
                    if news.is_ok() || is_delayed {
                        return;
                    }
                }
            });
            if waiting.await.is_err() {
                // No change can be noticed here; the caller's periodic checks find it.
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Frees the lock, and destroys the session unless other elections use it: then the session goes on, so the lock must be freed separately.
async fn end(pool: &Pool, queue: &Queue, session: &str) -> Result<(), SessionError> {
    if queue.may_hold(session) {
        match queue.leave(session).await {
            Ok(()) | Err(SessionError::Ended { .. }) => {}
            Err(error @ (SessionError::NoAnswer { .. } | SessionError::Refused { .. })) => return Err(error),
        }
    }
    if pool.leave(session, &queue.user) { queue.api.destroy(session).await } else { Ok(()) }
}

/// A dropped handle may hold its key with a session that other elections go on using. Its leadership, if it had one, is valid for the
/// timeout of the session, so the key is freed after that time, with attempts as long as the session lasts.
impl Drop for ConsulSessions {
    fn drop(&mut self) {
        let (pool, queue) = (Arc::clone(&self.share.pool), Arc::clone(&self.queue));
        let used = pool.forget_user(&queue.user);
        if used.is_empty() {
            return;
        }
        // Without the thread no request can be sent, and all sessions end by themselves.
        drop(runtime::detach(async move {
            for (session, ttl) in used {
                // Consul ends a session that is not kept alive within twice its TTL, whether or not this process can reach it.
                let gone_by = clock::now().after((2 * ttl).into());
                tokio::time::sleep(ttl).await;
                let may_last = || pool.is_used(&session) || clock::now() < gone_by;
                while end(&pool, &queue, &session).await.is_err() && may_last() {
                    tokio::time::sleep(TIDY_PAUSE).await;
                }
            }
        }));
    }
}
