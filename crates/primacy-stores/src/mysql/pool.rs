//! [`ConnectionPool`]: a few connections for the requests of all elections of a process that were opened with one URL.
//!
//! A connection answers one request at a time. With several, a request that waits for a locked row does not hold up the other elections. A
//! connection that has failed, or whose request was abandoned, is closed: the server rolls back what was not committed.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::connection::{Answer, Connection, QueryError};
use super::inspection;
use super::refusal::{self, Failure};
use super::settings::{Settings, authority};
use super::table;
use crate::attempts;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::runtime;

/// The maximum number of connections of a process to a server.
const CONNECTIONS_MAX: usize = 4;

/// The time limit of a connection to one server, with the login and the first queries: half a dozen round trips.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);

/// The time limit of a request, including the time to connect. It is a fraction of a usual lease, and above the second for which the server
/// waits for a lock.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The connections to the server of one URL.
#[derive(Clone)]
pub(super) struct ConnectionPool {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    turns: Semaphore,
    idle: Mutex<Vec<Connection>>,
    /// The time from which the next attempt to connect may begin.
    next_at: Mutex<Option<Instant>>,
    has_table: AtomicBool,
    /// The index of the server that is tried first.
    first: AtomicUsize,
}

impl ConnectionPool {
    pub(super) fn new(settings: Settings) -> Self {
        let inner = Inner {
            settings,
            turns: Semaphore::new(CONNECTIONS_MAX),
            idle: Mutex::default(),
            next_at: Mutex::default(),
            has_table: AtomicBool::new(false),
            first: AtomicUsize::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Connects, and checks that the table exists, which is made if `create` is set.
    pub(super) async fn open(&self, create: bool) -> Result<(), OpenError> {
        let inner = Arc::clone(&self.inner);
        let opening = runtime::run(async move {
            let until = Instant::now() + inner.open_patience();
            let opening = async {
                let _turn = inner.turns.acquire().await;
                let mut connection = inner.take().await?;
                inner.ensure_table(&mut connection, create).await?;
                inner.keep(connection);
                Ok(())
            };
            timeout_at(until, opening).await.unwrap_or_else(|_| {
                inner.forget_idle();
                Err(OpenError::Unavailable { why: inner.silence("answer") })
            })
        });
        opening.await.map_err(|why| OpenError::Unavailable { why })?
    }

    /// Sends a request, and waits for its answers. `commit` is the index of the statement that commits it; a request that the server
    /// refuses before that was not done.
    pub(super) async fn request(
        &self,
        statements: String,
        commit: Option<usize>,
    ) -> Result<Vec<Answer>, Failure> {
        let pool = self.clone();
        let answers = runtime::run(async move { pool.request_here(&statements, commit).await });
        // It may have been sent.
        answers.await.map_err(Failure::Unknown)?
    }

    /// Like [`request`](Self::request); to be called on the stores' thread.
    pub(super) async fn request_here(
        &self,
        statements: &str,
        commit: Option<usize>,
    ) -> Result<Vec<Answer>, Failure> {
        let inner = &self.inner;
        let until = Instant::now() + REQUEST_PATIENCE;
        // Nothing has been sent before there is a connection.
        let taking = timeout_at(until, async {
            let turn = inner.turns.acquire().await;
            Ok::<_, OpenError>((turn, inner.take().await?))
        });
        let (_turn, mut connection) = match taking.await {
            Err(_) => return Err(Failure::NotDone(inner.silence("connect"))),
            Ok(taken) => taken.map_err(|error| Failure::NotDone(error.to_string()))?,
        };
        let Ok(answered) = timeout_at(until, connection.query(statements)).await else {
            inner.forget_idle();
            return Err(Failure::Unknown(inner.silence("answer")));
        };
        match answered {
            Ok(answers) => {
                inner.keep(connection);
                Ok(answers)
            }
            Err(QueryError::Broken(why)) => {
                // The server may have ended, and the other connections with it.
                inner.forget_idle();
                Err(Failure::Unknown(format!("{}: {why}", inner.settings.names().join(", "))))
            }
            Err(QueryError::Server { answered, error }) => {
                let failure = match commit {
                    Some(commit) if answered >= commit => Failure::Unknown(refusal::told(&error)),
                    Some(_) | None => Failure::before_commit(&error),
                };
                if refusal::is_elsewhere(&error) {
                    inner.forget_idle();
                } else if let Ok(Ok(_)) = timeout_at(until, connection.query("ROLLBACK")).await {
                    inner.keep(connection);
                }
                if failure == Failure::NoTable {
                    inner.has_table.store(false, Ordering::SeqCst);
                }
                Err(failure)
            }
        }
    }

    /// Closes the idle connections, for example when their server does not take writes any more.
    pub(super) fn forget_idle(&self) {
        self.inner.forget_idle();
    }
}

impl Inner {
    /// Returns an idle connection, or a new one.
    async fn take(&self) -> Result<Connection, OpenError> {
        loop {
            let Some(mut connection) = lock(&self.idle).pop() else { return self.connect().await };
            if connection.is_quiet().await {
                return Ok(connection);
            }
        }
    }

    fn keep(&self, connection: Connection) {
        let mut idle = lock(&self.idle);
        if idle.len() < CONNECTIONS_MAX {
            idle.push(connection);
        }
    }

    fn forget_idle(&self) {
        lock(&self.idle).clear();
    }

    /// Tries one server after another.
    async fn connect(&self) -> Result<Connection, OpenError> {
        let next_at = *lock(&self.next_at);
        if let Some(at) = next_at {
            sleep_until(at).await;
        }
        let (mut told, mut is_final) = (Vec::new(), true);
        let (hosts, first) = (&self.settings.hosts, self.first.load(Ordering::SeqCst));
        for index in (first..first + hosts.len()).map(|index| index % hosts.len()) {
            let host = &hosts[index];
            // If this request is abandoned while the server is silent, the next request tries the next server.
            self.first.store(index + 1, Ordering::SeqCst);
            let connecting = async {
                let mut connection = Connection::open(&self.settings, host).await?;
                inspection::refuse_unfit(&mut connection).await?;
                Ok(connection)
            };
            let error = match timeout(SERVER_PATIENCE, connecting).await {
                Ok(Ok(connection)) => {
                    self.first.store(index, Ordering::SeqCst);
                    return Ok(connection);
                }
                Ok(Err(error)) => error,
                Err(_) => OpenError::Unavailable { why: "it does not answer".to_owned() },
            };
            is_final &= matches!(error, OpenError::Refused { .. });
            let named = format!("{}: {error}", authority(host));
            attempts::failed(&named);
            told.push(named);
        }
        *lock(&self.next_at) = Some(Instant::now() + RETRY_PAUSE);
        let why = told.join("; ");
        Err(if is_final { OpenError::Refused { why } } else { OpenError::Unavailable { why } })
    }

    /// The time limit of opening an election: every server is tried, and then the table is checked.
    fn open_patience(&self) -> Duration {
        let servers = u32::try_from(self.settings.hosts.len()).unwrap_or(u32::MAX);
        SERVER_PATIENCE.saturating_mul(servers) + REQUEST_PATIENCE
    }

    async fn ensure_table(&self, connection: &mut Connection, create: bool) -> Result<(), OpenError> {
        if !self.has_table.load(Ordering::SeqCst) {
            let is_there = table::ensure(connection, create).await?;
            self.has_table.store(is_there, Ordering::SeqCst);
        }
        Ok(())
    }

    fn silence(&self, doing: &str) -> String {
        format!("{} did not {doing} in time", self.settings.names().join(", "))
    }
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}
