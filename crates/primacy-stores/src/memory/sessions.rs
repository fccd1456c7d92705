//! Queues of entries in the memory of this process, shared by name: for tests, and to try things out.
//!
//! Promises  linearizable; an entry goes when its session has not been kept alive for its timeout, and not before; tokens
//!           grow as long as the process lasts; [`changed`](Sessions::changed) at once.
//! Lasts     as long as the process. Nothing outside the process sees it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::register::Pending;
use crate::sessions::{Begun, SessionError, Sessions};

/// All servers of this process, by name.
static SERVERS: Mutex<BTreeMap<String, Arc<Server>>> = Mutex::new(BTreeMap::new());

/// A handle on one election in one store in memory that keeps sessions.
#[derive(Debug)]
pub struct MemorySessions {
    server: Arc<Server>,
    election: String,
    own: Mutex<Own>,
}

/// The state of one handle.
#[derive(Debug, Default)]
struct Own {
    session: Option<SessionId>,
    /// The view at the last answer.
    seen: Option<Seen>,
}

/// The part of the queue's state whose changes a handle is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    First {
        token: FencingToken,
        asked_to_resign: bool,
    },
    /// Behind the entry with this token, the next one ahead.
    Behind(FencingToken),
    /// Without an entry.
    Outside {
        first: Option<FencingToken>,
    },
}

#[derive(Debug)]
struct Server {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// The timeout and the end of each live session.
    sessions: BTreeMap<SessionId, (Duration, Instant)>,
    /// Of each election, its entries, in order.
    queues: BTreeMap<String, Vec<Standing>>,
    /// The count of sessions and entries, which never decreases.
    count: u64,
    /// The least and the greatest timeout of a session, if limited.
    timeouts: Option<(Duration, Duration)>,
}

#[derive(Clone, Debug)]
struct Standing {
    session: SessionId,
    entry: Entry,
    asked_to_resign: bool,
}

impl MemorySessions {
    /// A handle on the election `election` in the store `name`; handles of the same names share their queue.
    #[must_use]
    pub fn open(name: &str, election: &str) -> Self {
        let mut servers = lock(&SERVERS);
        let server = servers.entry(name.to_owned()).or_default();
        Self { server: Arc::clone(server), election: election.to_owned(), own: Mutex::default() }
    }

    fn exists(name: &str) -> bool {
        lock(&SERVERS).contains_key(name)
    }

    /// Limits the timeouts of sessions that begin from now on to this range, whatever the client requests, as some servers
    /// do; for tests.
    pub fn limit_timeouts(&self, least: Duration, most: Duration) {
        self.server.change(|state| state.timeouts = Some((least, most)));
    }

    /// Ends a session, as a server does that has not heard from it; for tests.
    pub fn expire(&self, session: &SessionId) {
        self.server.change(|state| state.end(session));
    }

    /// Takes the first entry out of the queue, as an operator could; for tests.
    pub fn remove_first(&self) {
        self.server.change(|state| {
            let queue = state.queues.entry(self.election.clone()).or_default();
            queue.drain(..queue.len().min(1)).for_each(drop);
        });
    }

    /// The entries in the queue, in order; for tests.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.server.change(|state| state.queue(&self.election).iter().map(|it| it.entry.clone()).collect())
    }

    /// The number of live sessions in the store; for tests.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.server.change(|state| state.sessions.len())
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        lock(&self.own)
    }

    /// The present view of this handle.
    fn view(&self, state: &State) -> Seen {
        let queue = state.queue(&self.election);
        let own = self.own();
        let place = queue.iter().position(|it| Some(&it.session) == own.session.as_ref());
        match place.and_then(|place| Some((place, queue.get(place)?))) {
            Some((0, it)) => Seen::First { token: it.entry.token, asked_to_resign: it.asked_to_resign },
            Some((place, it)) => {
                Seen::Behind(queue.get(place - 1).map_or(it.entry.token, |before| before.entry.token))
            }
            None => Seen::Outside { first: queue.first().map(|it| it.entry.token) },
        }
    }

    /// Runs `act` on a live session, which becomes this handle's session.
    fn within<T>(&self, session: &SessionId, act: impl FnOnce(&mut State) -> T) -> Result<T, SessionError> {
        self.server.change(|state| {
            if !state.sessions.contains_key(session) {
                return Err(SessionError::Ended { why: format!("there is no session {}", session.as_str()) });
            }
            self.own().session = Some(session.clone());
            Ok(act(state))
        })
    }

    fn note(&self, state: &State) {
        let seen = self.view(state);
        self.own().seen = Some(seen);
    }
}

impl Default for Server {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Server {
    /// Ends expired sessions, then runs `act`, and wakes all waiters, which check whether the change concerns them.
    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let outcome = {
            let mut state = lock(&self.state);
            state.end_what_has_run_out();
            act(&mut state)
        };
        self.changes.send_modify(|count| *count += 1);
        outcome
    }
}

impl State {
    fn queue(&self, election: &str) -> &[Standing] {
        self.queues.get(election).map_or(&[], Vec::as_slice)
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn end_what_has_run_out(&mut self) {
        let now = Instant::now();
        let over = self.sessions.iter().filter(|(_, (_, end))| *end <= now);
        let over: Vec<SessionId> = over.map(|(session, _)| session.clone()).collect();
        over.iter().for_each(|session| self.end(session));
    }

    fn end(&mut self, session: &SessionId) {
        self.sessions.remove(session);
        self.queues.values_mut().for_each(|queue| queue.retain(|it| it.session != *session));
    }

    fn campaign(&mut self, election: &str, session: &SessionId, holder: &Holder) -> QueuePosition {
        if !self.queue(election).iter().any(|it| it.session == *session) {
            let entry = Entry { holder: holder.clone(), token: FencingToken(self.next()) };
            let standing = Standing { session: session.clone(), entry, asked_to_resign: false };
            self.queues.entry(election.to_owned()).or_default().push(standing);
        }
        let first = self.queue(election).first().expect("it has an entry");
        if first.session == *session {
            return QueuePosition::First { token: first.entry.token, asked_to_resign: first.asked_to_resign };
        }
        QueuePosition::Behind { first: first.entry.clone() }
    }
}

/// Each method acts when it is polled for the first time.
fn now<'a, T>(act: impl FnOnce() -> T + Send + 'a) -> Pending<'a, T> {
    Box::pin(async move { act() })
}

impl Sessions for MemorySessions {
    fn begin(&self, timeout: Duration) -> Pending<'_, Result<Begun, SessionError>> {
        now(move || {
            Ok(self.server.change(|state| {
                let timeout = match state.timeouts {
                    Some((least, most)) => timeout.max(least).min(most),
                    None => timeout,
                };
                let session = SessionId::new(&format!("session-{}", state.next()));
                state.sessions.insert(session.clone(), (timeout, Instant::now() + timeout));
                self.own().session = Some(session.clone());
                Begun { session, timeout }
            }))
        })
    }

    fn keep_alive<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<Duration, SessionError>> {
        now(move || {
            self.within(session, |state| {
                let kept = state.sessions.get_mut(session);
                kept.map_or(Duration::ZERO, |(timeout, end)| {
                    *end = Instant::now() + *timeout;
                    *timeout
                })
            })
        })
    }

    fn campaign<'a>(
        &'a self,
        session: &'a SessionId,
        holder: &'a Holder,
    ) -> Pending<'a, Result<QueuePosition, SessionError>> {
        now(move || {
            self.within(session, |state| {
                let place = state.campaign(&self.election, session, holder);
                self.note(state);
                place
            })
        })
    }

    fn leave<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        now(move || {
            self.within(session, |state| {
                if let Some(queue) = state.queues.get_mut(&self.election) {
                    queue.retain(|it| it.session != *session);
                }
                self.note(state);
            })
        })
    }

    fn end<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        now(move || {
            self.within(session, |state| {
                state.end(session);
                self.note(state);
            })
        })
    }

    fn first(&self) -> Pending<'_, Result<Option<Entry>, SessionError>> {
        now(move || {
            Ok(self.server.change(|state| {
                self.note(state);
                state.queue(&self.election).first().map(|it| it.entry.clone())
            }))
        })
    }

    fn evict<'a>(&'a self, dead: &'a Identity) -> Pending<'a, Result<bool, SessionError>> {
        now(move || {
            Ok(self.server.change(|state| {
                let queue = state.queue(&self.election).iter();
                let theirs = queue.filter(|it| it.entry.holder.identity == *dead);
                let theirs: Vec<SessionId> = theirs.map(|it| it.session.clone()).collect();
                theirs.iter().for_each(|session| state.end(session));
                !theirs.is_empty()
            }))
        })
    }

    fn ask_to_resign<'a>(
        &'a self,
        token: FencingToken,
        _by: &'a str,
    ) -> Pending<'a, Result<bool, SessionError>> {
        now(move || {
            Ok(self.server.change(|state| {
                let first = state.queues.get_mut(&self.election).and_then(|queue| queue.first_mut());
                let asked = first.filter(|it| it.entry.token == token);
                asked.map(|it| it.asked_to_resign = true).is_some()
            }))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let mut changes = self.server.changes.subscribe();
        Box::pin(async move {
            loop {
                changes.borrow_and_update();
                let (is_news, next_end) = {
                    let mut state = lock(&self.server.state);
                    state.end_what_has_run_out();
                    let view = self.view(&state);
                    let is_news = self.own().seen.as_ref().is_some_and(|seen| *seen != view);
                    (is_news, state.sessions.values().map(|(_, end)| *end).min())
                };
                if is_news {
                    return;
                }
                // The server exists as long as `self`, so the wait ends by a change or by a session's end.
                either(changes.changed(), sleep_until(next_end)).await;
            }
        })
    }
}

async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Resolves when the first of the two does.
async fn either(a: impl Future, b: impl Future) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    std::future::poll_fn(|context| {
        let is_over = a.as_mut().poll(context).is_ready() || b.as_mut().poll(context).is_ready();
        if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// Opens `memory-sessions:NAME`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let name = &address.rest;
        if name.trim_start_matches('/').is_empty() {
            let why = "a store in memory needs a name".to_owned();
            return Err(OpenError::Malformed { form: "memory-sessions:NAME", why });
        }
        if !address.create && !MemorySessions::exists(name) {
            // The name is not shown: it may be the whole URL of another store, with its password.
            let why = "this process has no store of this name in its memory".to_owned();
            return Err(OpenError::Unavailable { why });
        }
        Ok(Opened::Sessions(Arc::new(MemorySessions::open(name, &address.election))))
    })
}
