//! The [`Link`]: one connection for all elections of a process that were opened with one URL.
//!
//! The watcher task reads all versions periodically: this finds changes without a notification, and detects a silent
//! server.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Row, SimpleQueryMessage, Socket};

use super::batch::Queue;
use super::limited::{Limited, Plain};
use super::locks;
use super::pooler;
use super::refusal::{self, Failure};
use super::settings::{Server, Settings};
use super::table::{self, Statements, Table};
use crate::changes::{Changes, Listeners};
use crate::contained::contain_in;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::reconnecting::{self, Reconnecting};
use crate::register::SetError;
use crate::runtime::{self, Aborted};

/// The time for a server to become usable, before the next one is tried: a dozen round trips.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);

/// The time that an open waits for the connection, and then for the table.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// The time limit of statements that are not part of an election: they wait for locks on tables.
const RUN_PATIENCE: Duration = Duration::from_secs(60);

/// The time limit of a request, including the time to connect. It is a fraction of a usual lease.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The interval at which all versions are read, in one statement: it finds changes without a notification.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The interval without notifications, because a pooler is in between or the server does not accept or deliver them.
const UNTOLD_LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A parameter of a statement with its type, so that the type need not be requested from the server.
pub(super) type Parameter = (Box<dyn ToSql + Sync + Send>, Type);

/// A connection that is replaced when it breaks.
pub(super) struct Link {
    inner: Arc<Inner>,
    /// Started by the first request.
    queue: OnceLock<Result<Queue, String>>,
    /// Started by the first wait for a change; `None` if the stores' thread could not be started.
    watcher: OnceLock<Option<Aborted<()>>>,
}

/// The state that the tasks on the stores' thread share.
pub(super) struct Inner {
    pub(super) settings: Settings,
    pub(super) table: Table,
    /// The statements for the table under its configured name; once the table is found, for exactly that table, even if
    /// the search path leads to another one later.
    statements: Mutex<Arc<Statements>>,
    elections: Listeners,
    pub(super) live: Reconnecting<Live>,
    /// True if the table was found, and is this store's.
    has_table: AtomicBool,
    looking: tokio::sync::Mutex<()>,
    /// True while a `LISTEN` is active.
    pub(super) is_listening: AtomicBool,
    /// The last `NOTIFY` was accepted.
    pub(super) is_told: AtomicBool,
}

/// The answers to statements.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The values of each row, as text.
    pub(super) rows: Vec<Vec<Option<String>>>,
    /// True if a pooler is in between.
    pub(super) is_pooled: bool,
}

/// A connection that works, as far as is known.
pub(super) struct Live {
    pub(super) client: Client,
    /// A receiver that ends when the connection does; nothing is ever sent.
    pub(super) lives: watch::Receiver<()>,
    /// The server's error with which the connection ended, if there was one.
    end: Arc<OnceLock<String>>,
    driver: Aborted<()>,
}

impl Live {
    /// Returns the server's error with which the connection ended.
    pub(super) fn end(&self) -> Option<String> {
        self.end.get().cloned()
    }

    /// Closes the connection, even with pending requests.
    pub(super) fn close(&self) {
        self.driver.abort();
    }
}

impl reconnecting::Breakable for Live {
    fn is_broken(&self) -> bool {
        self.client.is_closed()
    }
}

impl Link {
    pub(super) fn new(settings: &Settings, table: Table) -> Self {
        let inner = Inner {
            settings: settings.clone(),
            table,
            statements: Mutex::new(Arc::new(Statements::new(settings.schema.as_deref(), table))),
            elections: Listeners::default(),
            live: Reconnecting::default(),
            has_table: AtomicBool::new(false),
            looking: tokio::sync::Mutex::default(),
            is_listening: AtomicBool::new(false),
            is_told: AtomicBool::new(true),
        };
        Self { inner: Arc::new(inner), queue: OnceLock::new(), watcher: OnceLock::new() }
    }

    pub(super) fn statements(&self) -> Arc<Statements> {
        self.inner.statements()
    }

    pub(super) fn elections(&self) -> &Listeners {
        &self.inner.elections
    }

    /// Connects, and checks that the table exists, which is made if `create` is set.
    pub(super) async fn open(&self, create: bool) -> Result<(), OpenError> {
        let inner = Arc::clone(&self.inner);
        let work = async move {
            let unavailable = |why: String| OpenError::Unavailable { why };
            let waiting = timeout(OPEN_PATIENCE, inner.connection());
            let live = waiting.await.map_err(|_| unavailable(inner.silence("connect")))??;
            let ensuring = timeout(OPEN_PATIENCE, inner.ensure_table(&live, create));
            ensuring.await.map_err(|_| unavailable(inner.silence("answer")))?
        };
        runtime::run(work).await.map_err(|why| OpenError::Unavailable { why })?
    }

    /// Runs statements that are not part of an election, and so may wait for long; returns their answers.
    pub(super) async fn ask(&self, statements: &str) -> Result<Answer, OpenError> {
        let (inner, statements) = (Arc::clone(&self.inner), statements.to_owned());
        let work = async move {
            let unavailable = |why: String| OpenError::Unavailable { why };
            let waiting = timeout(OPEN_PATIENCE, inner.connection());
            let live = waiting.await.map_err(|_| unavailable(inner.silence("connect")))??;
            let running = timeout(RUN_PATIENCE, live.client.simple_query(&statements));
            let told = running.await.map_err(|_| unavailable(inner.silence("answer")))?;
            let told = told.map_err(|error| match error.as_db_error() {
                Some(refused) if refusal::LOCKED.contains(refused.code()) => {
                    unavailable(refusal::told(&error))
                }
                Some(_) if refusal::is_collision(&error) => {
                    unavailable(format!("{}: {}", refusal::COLLISION, refusal::told(&error)))
                }
                Some(_) => OpenError::Refused { why: refusal::told(&error) },
                None => unavailable(refusal::told(&error)),
            })?;
            let checking = timeout(OPEN_PATIENCE, pooler::is_between(&live.client));
            let is_pooled = checking.await.map_err(|_| unavailable(inner.silence("answer")))?;
            let is_pooled = is_pooled.map_err(|error| unavailable(refusal::told(&error)))?;
            Ok(Answer { rows: told.iter().filter_map(row).collect(), is_pooled })
        };
        runtime::run(work).await.map_err(|why| OpenError::Unavailable { why })?
    }

    /// Makes sure that there is a table.
    pub(super) async fn make_table(&self) -> Result<(), SetError> {
        if self.inner.has_table.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.open(true).await.map_err(|error| SetError::Unavailable { why: error.to_string() })
    }

    /// Returns the error for a missing table.
    pub(super) fn no_table(&self) -> String {
        format!("there is no table {}; make it with: {}", self.statements().table, self.statements().create())
    }

    /// Returns the queue of requests; an error, by which nothing was done, if the stores' thread cannot be started.
    pub(super) fn queue(&self) -> Result<&Queue, Failure> {
        let queue = self.queue.get_or_init(|| Queue::start(&self.inner));
        queue.as_ref().map_err(|why| Failure::NotDone(why.clone()))
    }

    /// Waits for a request; if the answer takes long, notes the sessions that block it in the request's attempts.
    pub(super) async fn noting_blockers<T>(&self, request: impl Future<Output = T>) -> T {
        let (mut request, mut is_looking) = (pin!(request), true);
        let mut looking = pin!(runtime::run(locks::note_blockers(Arc::clone(&self.inner))));
        poll_fn(|context| {
            if let Poll::Ready(answer) = request.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            is_looking = is_looking && looking.as_mut().poll(context).is_pending();
            Poll::Pending
        })
        .await
    }

    /// Sends a statement without waiting for a batch, and waits for its rows. It runs on the stores' thread, and
    /// continues when its caller stops waiting: otherwise a silent server would not be noticed.
    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: Vec<Parameter>,
    ) -> Result<Vec<Row>, Failure> {
        let (inner, statement) = (Arc::clone(&self.inner), statement.to_owned());
        let asking = tokio::spawn(contain_in(async move { inner.query(&statement, &parameters).await }));
        let answer = asking.await.unwrap_or_else(|error| Err(error.to_string()));
        answer.unwrap_or_else(|why| Err(Failure::Unknown(why)))
    }

    /// Notifies other processes of a version that was written, on the stores' thread.
    pub(super) async fn notify(&self, version: i64, election: &str) {
        let (inner, written) = (Arc::clone(&self.inner), vec![(version, election.to_owned())]);
        let _ = runtime::run(async move { inner.notify(written).await }).await;
    }

    /// Resolves when a notification names a version other than the seen one; never if the watcher cannot be started.
    pub(super) async fn news(&self, changes: &Changes) {
        self.watcher.get_or_init(|| runtime::spawn(Arc::clone(&self.inner).watch()).ok());
        changes.heard().await;
    }
}

impl Inner {
    pub(super) fn statements(&self) -> Arc<Statements> {
        Arc::clone(&lock(&self.statements))
    }

    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Live>, OpenError> {
        let inner = Arc::clone(self);
        self.live.get(async move || connect(&inner.settings, None).await).await
    }

    pub(super) fn news(&self) -> News {
        News { channel: self.table.name(), elections: self.elections.clone() }
    }

    pub(super) fn silence(&self, doing: &str) -> String {
        let names: Vec<&str> = self.settings.servers.iter().map(|server| server.name.as_str()).collect();
        format!("{} did not {doing} in time", names.join(", "))
    }

    async fn ensure_table(&self, live: &Live, create: bool) -> Result<(), OpenError> {
        // Only one check for all elections that are opened at the same time.
        let _looking = self.looking.lock().await;
        if !self.has_table.load(Ordering::SeqCst) {
            let settings = &self.settings;
            let statements = Statements::new(settings.schema.as_deref(), self.table);
            let found = table::ensure(&live.client, &statements, settings.owner.as_deref(), create).await?;
            if let Some(table) = found {
                *lock(&self.statements) = Arc::new(Statements::of(table, self.table));
                self.has_table.store(true, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    /// Sends a statement, and waits for what it returns.
    pub(super) async fn query(
        self: &Arc<Self>,
        statement: &str,
        parameters: &[Parameter],
    ) -> Result<Vec<Row>, Failure> {
        let until = Instant::now() + REQUEST_PATIENCE;
        // Without a connection, nothing has been sent.
        let live = match timeout_at(until, self.connection()).await {
            Err(_) => return Err(Failure::NotDone(self.silence("connect"))),
            Ok(connected) => connected.map_err(|error| Failure::NotDone(error.to_string()))?,
        };
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
            parameters.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
        let Ok(answer) = timeout_at(until, live.client.query_typed(statement, &parameters)).await else {
            // A statement that was sent is not cancelled: it may be waiting for a standby, and its write must not be
            // visible before the standby has it.
            self.live.give_up(&live);
            return Err(Failure::Unknown(self.silence("answer")));
        };
        answer.map_err(|error| {
            let failure = Failure::of(&error);
            match &failure {
                Failure::NoTable => self.has_table.store(false, Ordering::SeqCst),
                // The server has become a standby, or is shutting down: another server may have taken over.
                Failure::NotDone(_) if refusal::is_elsewhere(&error) => self.live.give_up(&live),
                Failure::NotDone(_) => {}
                Failure::Unknown(_) => self.live.give_up(&live),
            }
            failure
        })
    }

    /// Reads all versions periodically.
    async fn watch(self: Arc<Self>) {
        let _listening = self.start_listening();
        loop {
            let counts = self.elections.counts();
            let elections: Vec<String> = counts.keys().cloned().collect();
            let asked: Vec<Parameter> = vec![(Box::new(elections), Type::TEXT_ARRAY)];
            match self.query(&self.statements().versions, &asked).await {
                Ok(rows) => {
                    let version = |row: &Row| row.try_get(1).ok().map(i64::cast_unsigned);
                    let found = rows.iter().filter_map(|row| Some((row.try_get(0).ok()?, version(row)?)));
                    self.elections.notify_read(&found.collect(), &counts);
                }
                Err(Failure::NoTable) => self.elections.notify_read(&HashMap::new(), &counts),
                // The error is ignored: requests report their own.
                Err(Failure::NotDone(_) | Failure::Unknown(_)) => {}
            }
            let is_told = self.is_listening.load(Ordering::SeqCst);
            sleep(if is_told { LOOK_INTERVAL } else { UNTOLD_LOOK_INTERVAL }).await;
        }
    }
}

/// The notification channel, and the elections to notify.
#[derive(Clone)]
pub(super) struct News {
    channel: &'static str,
    elections: Listeners,
}

/// Tries one server after the other.
pub(super) async fn connect(settings: &Settings, news: Option<News>) -> Result<Arc<Live>, OpenError> {
    let (mut told, mut is_final) = (Vec::new(), true);
    for server in &settings.servers {
        let connecting = async {
            match &settings.tls {
                Some(tls) => start(server, Limited(tls.clone()), news.clone()).await,
                None => start(server, Limited(Plain), news.clone()).await,
            }
        };
        let why = match timeout(SERVER_PATIENCE, connecting).await {
            Ok(Ok(live)) => return Ok(Arc::new(live)),
            Ok(Err(error)) => error,
            Err(_) => OpenError::Unavailable { why: "it does not answer".to_owned() },
        };
        is_final &= matches!(why, OpenError::Refused { .. });
        told.push(format!("{}: {why}", server.name));
    }
    let why = told.join("; ");
    Err(if is_final { OpenError::Refused { why } } else { OpenError::Unavailable { why } })
}

async fn start<T>(server: &Server, tls: T, news: Option<News>) -> Result<Live, OpenError>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) =
        server.config().connect(tls).await.map_err(|error| refusal::of_opening(&error))?;
    let (living, lives) = watch::channel(());
    let end = Arc::new(OnceLock::new());
    let noted = Arc::clone(&end);
    let driver = runtime::spawn(async move {
        let _living = living;
        let ended = contain_in(drive(connection, news)).await;
        if let Err(why) = ended.and_then(|ended| ended.map_err(|error| refusal::told(&error))) {
            let _ = noted.set(why);
        }
    });
    let driver = driver.map_err(|why| OpenError::Unavailable { why })?;
    Ok(Live { client, lives, end, driver })
}

/// Returns the values of a row; `None` for a message that is not a row.
fn row(message: &SimpleQueryMessage) -> Option<Vec<Option<String>>> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
}

/// Drives the connection until it ends, and passes on notifications.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    news: Option<News>,
) -> Result<(), tokio_postgres::Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    // An error is also that of each request that waits.
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await.transpose()? {
        if let AsyncMessage::Notification(told) = message
            && let Some(News { channel, elections }) = &news
            && told.channel() == *channel
            && let Some((version, election)) = told.payload().split_once(' ')
            && let Ok(version) = version.parse::<i64>()
        {
            elections.notify(election, version.cast_unsigned());
        }
    }
    Ok(())
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}
