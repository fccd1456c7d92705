//! A queue of ephemeral, sequential znodes in ZooKeeper: the recipe of Curator and kazoo.
//!
//! Promises  the candidate with the oldest entry leads, and no two candidates are first at once; a token that grows with each leadership;
//!           [`changed`](Sessions::changed) as soon as the servers notify the next candidate.
//! Assumes   that all candidates follow the same recipe, with the same `layout`; that the servers' leader asks the others twice a tick
//!           which clients they have heard from, and grants no session less than two ticks, as it does by default.
//! Leaves    all other znodes as they are. The election's own znode and those above it are made, and stay.
//!
//! The first candidate in the queue leads as long as its session lasts. The queue is ordered by ZooKeeper's sequence numbers; the token is
//! the transaction that made the entry (`czxid`), which, unlike the sequence number, is never used again. The search for an entry whose
//! creation was not confirmed, and the overflow of sequence numbers, are described in `layout`; the meaning of a keep-alive is in `link`.
//!
//! All elections that one process holds in the same ZooKeeper with the same timeout share a session. TLS is not supported.

mod client;
mod diagnostics;
mod entry;
mod layout;
mod link;
mod location;
mod queue;
mod rights;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity};

use self::client::ClientError;
pub(crate) use self::diagnostics::examine;
use self::link::{Link, SHARED, told};
use self::location::ZnodeLocation;
use self::queue::{Queue, SharedQueue};
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::register::Pending;
use crate::runtime;
use crate::sessions::{Begun, SessionError, Sessions};

/// A handle on the queue of one election in ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeperSessions {
    queue: SharedQueue,
}

/// Opens `zookeeper://…`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let ZnodeLocation { servers, login, owner, directory, layout } =
            ZnodeLocation::parse(&address.rest, &address.election)?;
        let key = format!("{servers} {}", login.as_deref().unwrap_or_default());
        let open = || Ok::<_, Infallible>(Link::new(servers, login));
        let Ok(link) = SHARED.join(&key, &directory, open);
        let queue = Arc::new(Queue::new(link, directory, layout, owner));
        let probed = Arc::clone(&queue);
        let answer = runtime::run(async move {
            let answer = probed.probe().await;
            // The existing session had expired unnoticed, which is no fault of the servers: a new one is begun.
            if matches!(answer, Err(ClientError::Ended(_))) { probed.probe().await } else { answer }
        })
        .await;
        answer.map_err(|why| OpenError::Unavailable { why })?.map_err(|error| refusal(&error))?;
        Ok(Opened::Sessions(Arc::new(ZooKeeperSessions { queue })))
    })
}

fn refusal(error: &ClientError) -> OpenError {
    match told(error) {
        SessionError::Refused { why } => OpenError::Refused { why: format!("zookeeper: {why}") },
        SessionError::Ended { why } | SessionError::NoAnswer { why } => OpenError::Unavailable {
            why: format!("zookeeper: no server was reached, or none answers: {why}"),
        },
    }
}

/// Removes the entry from a session that other elections go on using.
impl Drop for ZooKeeperSessions {
    fn drop(&mut self) {
        let queue = Arc::clone(&self.queue);
        let used = queue.link().forget(queue.directory());
        // Without the thread no request can be sent, and all sessions end by themselves.
        drop(runtime::detach(async move { queue.tidy_up(used).await }));
    }
}

impl ZooKeeperSessions {
    /// Runs `work` on the stores' thread, to which the connections belong.
    fn run<'a, T, F>(&self, work: impl FnOnce(SharedQueue) -> F) -> Pending<'a, Result<T, SessionError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SessionError>> + Send + 'static,
    {
        let work = runtime::run(work(Arc::clone(&self.queue)));
        Box::pin(async move { work.await.unwrap_or_else(|why| Err(SessionError::NoAnswer { why })) })
    }
}

impl Sessions for ZooKeeperSessions {
    fn begin(&self, timeout: Duration) -> Pending<'_, Result<Begun, SessionError>> {
        self.run(async move |queue| queue.link().begin(timeout, queue.directory()).await)
    }

    fn keep_alive<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<Duration, SessionError>> {
        let session = session.clone();
        self.run(async move |queue| queue.link().keep_alive(&session, queue.directory()).await)
    }

    fn campaign<'a>(
        &'a self,
        session: &'a SessionId,
        holder: &'a Holder,
    ) -> Pending<'a, Result<QueuePosition, SessionError>> {
        let (session, holder) = (session.clone(), holder.clone());
        self.run(async move |queue| queue.campaign(&session, &holder).await)
    }

    fn leave<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        let session = session.clone();
        self.run(async move |queue| queue.leave(&session).await)
    }

    fn end<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        let session = session.clone();
        self.run(async move |queue| queue.end(&session).await)
    }

    fn first(&self) -> Pending<'_, Result<Option<Entry>, SessionError>> {
        self.run(async move |queue| queue.first().await)
    }

    fn evict<'a>(&'a self, dead: &'a Identity) -> Pending<'a, Result<bool, SessionError>> {
        let dead = *dead;
        self.run(async move |queue| queue.evict(&dead).await)
    }

    fn ask_to_resign<'a>(
        &'a self,
        token: FencingToken,
        by: &'a str,
    ) -> Pending<'a, Result<bool, SessionError>> {
        let by = by.to_owned();
        self.run(async move |queue| queue.ask_to_resign(token, &by).await)
    }

    fn changed(&self) -> Pending<'_, ()> {
        let mut stale = self.queue.stale();
        Box::pin(async move {
            if stale.wait_for(|stale| *stale).await.is_err() {
                // Unreachable: the queue holds the sender.
                std::future::pending::<()>().await;
            }
        })
    }
}
