//! The [`Link`]: one connection for the requests of all elections of a process that were opened with one URL, and one for notices.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisResult, Value};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::inspection::Inspection;
use super::notices::{self, Inbox};
use super::refusal::{self, Failure};
use super::script::Request;
use super::settings::Settings;
use crate::changes::Listeners;
use crate::contained::contain_in;
use crate::open_error::OpenError;
use crate::read_limit::{LimitedStream, ReadLimit};
use crate::reconnecting::{self, Reconnecting};
use crate::runtime::{self, Aborted};

/// The time limit of a connection, with the login and the first queries: half a dozen round trips.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// The time limit of a request, including the time to connect. It is a fraction of a usual lease.
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The maximum length of one answer, in bytes: more than the longest record, and more than the answer to `INFO`.
const ANSWER_MAX: usize = 256 * 1024;

/// A connection that is replaced when it breaks.
pub(super) struct Link {
    inner: Arc<Inner>,
    /// The task that keeps the subscription, from the first open on.
    notices: Arc<OnceCell<Aborted<()>>>,
}

pub(super) struct Inner {
    pub(super) settings: Settings,
    pub(super) elections: Listeners,
    live: Reconnecting<Live>,
    /// True if the warnings about this server have been logged.
    has_warned: AtomicBool,
}

/// A connection that works, as far as is known.
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) limit: Arc<ReadLimit>,
    pub(super) inbox: Arc<Inbox>,
    is_over: Arc<AtomicBool>,
    pub(super) driver: Aborted<()>,
}

/// A handle for requests over the link; to be used on the stores' thread.
#[derive(Clone)]
pub(super) struct Handle(Arc<Inner>);

impl reconnecting::Breakable for Live {
    fn is_broken(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl Link {
    pub(super) fn new(settings: Settings) -> Self {
        let inner = Inner {
            settings,
            elections: Listeners::default(),
            live: Reconnecting::default(),
            has_warned: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner), notices: Arc::default() }
    }

    pub(super) fn elections(&self) -> &Listeners {
        &self.inner.elections
    }

    /// The channel of notices for all elections with this prefix.
    pub(super) fn channel(&self) -> String {
        self.inner.settings.channel()
    }

    /// Connects, and subscribes.
    pub(super) async fn open(&self) -> Result<(), OpenError> {
        let (inner, notices) = (Arc::clone(&self.inner), Arc::clone(&self.notices));
        let unavailable = |why| OpenError::Unavailable { why };
        let opening = async move {
            inner.connection().await?;
            let subscribing = async {
                let first = inner.subscribe().await?;
                runtime::spawn(notices::keep(Arc::clone(&inner), first)).map_err(unavailable)
            };
            notices.get_or_try_init(|| subscribing).await.map(drop)
        };
        runtime::run(opening).await.map_err(unavailable)?
    }

    /// Sends a request, and waits for its answer.
    pub(super) async fn request(&self, request: Request) -> Result<Value, Failure> {
        let handle = self.handle();
        let answer = runtime::run(async move { handle.request(request).await });
        // It may have been sent.
        answer.await.map_err(Failure::Unknown)?
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.inner))
    }
}

impl Handle {
    /// Like [`Link::request`]; to be called on the stores' thread.
    pub(super) async fn request(&self, request: Request) -> Result<Value, Failure> {
        let inner = &self.0;
        let until = Instant::now() + REQUEST_PATIENCE;
        // Without a connection, nothing has been sent.
        let live = match timeout_at(until, inner.connection()).await {
            Err(_) => return Err(Failure::NotDone(inner.silence("connect"))),
            Ok(connected) => connected.map_err(|error| Failure::NotDone(error.to_string()))?,
        };
        let mut connection = live.connection.clone();
        let _waiting = live.limit.wait();
        let sending = async {
            match (request.command.query_async(&mut connection).await, &request.whole) {
                (Err(error), Some(whole)) if refusal::is_unknown_script(&error) => {
                    whole.query_async(&mut connection).await
                }
                (answer, _) => answer,
            }
        };
        let Ok(answer) = timeout_at(until, sending).await else {
            // A silent server may be gone without closing the connection.
            inner.live.give_up(&live);
            return Err(Failure::Unknown(inner.silence("answer")));
        };
        live.limit.renew();
        answer.map_err(|error| {
            let failure = Failure::of(&error);
            match &failure {
                Failure::NotDone(_) if !refusal::is_elsewhere(&error) => {}
                Failure::NotDone(_) | Failure::Unknown(_) => inner.live.give_up(&live),
            }
            inner.named(failure)
        })
    }
}

impl Inner {
    async fn connection(self: &Arc<Self>) -> Result<Arc<Live>, OpenError> {
        let inner = Arc::clone(self);
        let connect = async move || match timeout(CONNECT_PATIENCE, inner.connect_for_requests()).await {
            Ok(result) => result.map(Arc::new).map_err(|error| inner.named_error(error)),
            Err(_) => Err(OpenError::Unavailable { why: inner.silence("answer") }),
        };
        self.live.get(connect).await
    }

    async fn connect_for_requests(&self) -> Result<Live, OpenError> {
        let mut live = self.connect().await?;
        self.inspect(&mut live.connection).await?;
        live.limit.renew();
        Ok(live)
    }

    pub(super) async fn connect(&self) -> Result<Live, OpenError> {
        let unavailable = |error: std::io::Error| OpenError::Unavailable { why: error.to_string() };
        let stream = TcpStream::connect(&self.settings.authority).await.map_err(unavailable)?;
        stream.set_nodelay(true).map_err(unavailable)?;
        let Some(tls) = &self.settings.tls else { return self.log_in(stream).await };
        let name = ServerName::try_from(self.settings.host.clone()).map_err(|_| OpenError::Refused {
            why: "its name is no name or address that a certificate could be for".to_owned(),
        })?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, stream).await.map_err(|error| match error.get_ref() {
            // An error of a certificate, of either side, does not pass without a repair.
            Some(inner) if inner.is::<rustls::Error>() => OpenError::Refused { why: format!("TLS: {inner}") },
            Some(_) | None => OpenError::Unavailable { why: format!("TLS: {error}") },
        })?;
        self.log_in(stream).await
    }

    /// Logs in over a stream, and returns the connection.
    async fn log_in<S>(&self, stream: S) -> Result<Live, OpenError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let failed = |error| refusal::of_opening(&error);
        let mut login = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(self.settings.database)
            .set_skip_set_lib_name();
        if let Some(user) = &self.settings.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.settings.password {
            login = login.set_password(password);
        }
        let (limit, inbox) = (Arc::new(ReadLimit::new(ANSWER_MAX)), Arc::<Inbox>::default());
        let (elections, notices) = (self.elections.clone(), Arc::clone(&inbox));
        let hear = move |push: PushInfo| -> Result<(), ()> {
            notices.take(&elections, &push);
            Ok(())
        };
        let stream = LimitedStream::new(stream, Arc::clone(&limit));
        // The link has its own time limits.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_push_sender(hear);
        let made = MultiplexedConnection::new_with_config(&login, stream, config).await;
        let (connection, driver) = made.map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let driver = runtime::spawn(drive(driver, Arc::clone(&is_over)));
        let driver = driver.map_err(|why| OpenError::Unavailable { why })?;
        limit.renew();
        Ok(Live { connection, limit, inbox, is_over, driver })
    }

    /// Inspects the server, and logs warnings about it once.
    async fn inspect(&self, connection: &mut MultiplexedConnection) -> Result<(), OpenError> {
        let failed = |error| refusal::of_opening(&error);
        let info = allowed(redis::cmd("INFO").query_async(connection).await).map_err(failed)?;
        let asked = redis::cmd("CONFIG").arg("GET").arg("appendfsync").query_async(connection).await;
        let config: Option<HashMap<String, String>> = allowed(asked).map_err(failed)?;
        let appendfsync = config.and_then(|config| config.get("appendfsync").cloned());
        let warnings = Inspection { info, appendfsync }.judge()?;
        if !self.has_warned.swap(true, Ordering::SeqCst) {
            for warning in warnings {
                tracing::warn!(server = self.settings.authority, "Redis: {warning}");
            }
        }
        Ok(())
    }

    /// The connection over which requests go.
    pub(super) fn newest(&self) -> Weak<Live> {
        self.live.newest().as_ref().map_or_else(Weak::new, Arc::downgrade)
    }

    pub(super) fn silence(&self, doing: &str) -> String {
        format!("{} did not {doing} in time", self.settings.authority)
    }

    fn named(&self, failure: Failure) -> Failure {
        let name = &self.settings.authority;
        match failure {
            Failure::NotDone(why) => Failure::NotDone(format!("{name}: {why}")),
            Failure::Unknown(why) => Failure::Unknown(format!("{name}: {why}")),
        }
    }

    pub(super) fn named_error(&self, error: OpenError) -> OpenError {
        let name = &self.settings.authority;
        match error {
            OpenError::Refused { why } => OpenError::Refused { why: format!("{name}: {why}") },
            OpenError::Unavailable { why } => OpenError::Unavailable { why: format!("{name}: {why}") },
            OpenError::Shortage { why } => OpenError::Shortage { why: format!("{name}: {why}") },
            error @ (OpenError::Malformed { .. }
            | OpenError::UnknownScheme { .. }
            | OpenError::NotBuiltIn { .. }
            | OpenError::KeepsSessions { .. }
            | OpenError::Election { .. }) => error,
        }
    }
}

/// Returns the answer; `None` if this user may not run the command, or the server does not have it.
fn allowed<T>(answer: RedisResult<T>) -> RedisResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(error.code(), Some("NOPERM" | "ERR")) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Drives the connection until it ends.
async fn drive(driver: impl Future<Output = ()>, is_over: Arc<AtomicBool>) {
    // After a panic of the library the connection is over, too.
    drop(contain_in(driver).await);
    is_over.store(true, Ordering::SeqCst);
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}
