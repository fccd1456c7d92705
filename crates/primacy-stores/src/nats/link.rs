//! The [`Link`]: one connection for all elections of a process that were opened with one URL.

mod api;
pub(super) mod bucket;
mod connection;
mod framing;
mod subscriptions;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};

pub(super) use self::api::StreamInfo;
use self::api::{ApiFailure, code};
pub(super) use self::connection::Proof;
use self::connection::{ConnectFailure, ConnectRefusal, NatsConnection};
use self::subscriptions::Subscriptions;
use super::credentials::{self, NatsCredentials};
use super::settings::{Login, Settings, authority};
use crate::changes::Listeners;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::reconnecting::Reconnecting;
use crate::replaced_files::FromFiles;
use crate::runtime::{self, Aborted};
use crate::store_url::Host;

/// The time for a server to become usable, before the next one is tried: half a dozen round trips.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);

/// The time that an open waits for the connection, and then for the bucket.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// The time limit of a request. It is a fraction of a usual lease.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The maximum number of servers that are remembered besides those of the URL.
const DISCOVERED_MAX: usize = 64;

/// Returns the time limit of a request that begins now.
fn soon() -> Instant {
    Instant::now() + REQUEST_PATIENCE
}

/// The reason that a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The sequence number is not the newest one; nothing was written.
    Conflict,
    /// Nothing was written, and nothing will be.
    NotDone(String),
    /// It may have been written, or may yet be.
    Unknown(String),
}

impl Failure {
    pub(super) fn why(self) -> String {
        match self {
            Self::Conflict => "it has changed meanwhile".to_owned(),
            Self::NotDone(why) | Self::Unknown(why) => why,
        }
    }
}

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// No record. The sequence number is that of a marker in its place; 0 if there is none.
    Absent {
        sequence: u64,
    },
    Present {
        sequence: u64,
        bytes: Vec<u8>,
    },
}

impl Entry {
    /// Returns the sequence number of the record; 0 if there is none.
    pub(super) const fn version(&self) -> u64 {
        match self {
            Self::Absent { .. } => 0,
            Self::Present { sequence, .. } => *sequence,
        }
    }
}

/// A connection that is replaced when it breaks.
pub(super) struct Link {
    inner: Arc<Inner>,
    /// The task that follows the subscriptions, from the first wait for a change on; `None` if the stores' thread could not be started.
    follower: OnceLock<Option<Aborted<()>>>,
}

struct Inner {
    settings: Settings,
    /// The open elections, by their keys.
    elections: Listeners,
    subscriptions: Arc<Subscriptions>,
    live: Reconnecting<NatsConnection>,
    credentials: OnceCell<FromFiles<Arc<NatsCredentials>>>,
    /// The servers that the last connected one has named.
    discovered: Mutex<Vec<Host>>,
    /// The number of the next server to try, so that another one follows one that fails.
    next_server: AtomicUsize,
    /// The number of replicas of the bucket, when it was last read.
    replicas: AtomicUsize,
    /// True if the warnings about this bucket have been logged.
    has_warned: AtomicBool,
}

/// The findings for the doctor.
pub(super) struct BucketInspection {
    pub(super) info: StreamInfo,
    /// The version of the server that answers.
    pub(super) server: String,
    /// True if the login may not subscribe to the key.
    pub(super) is_subscription_refused: bool,
}

/// A handle for requests over the link; to be used on the stores' thread.
#[derive(Clone)]
pub(super) struct Handle(Arc<Inner>);

impl Link {
    pub(super) fn new(settings: Settings) -> Self {
        let inner = Inner {
            settings,
            elections: Listeners::default(),
            subscriptions: Arc::default(),
            live: Reconnecting::default(),
            credentials: OnceCell::new(),
            discovered: Mutex::default(),
            // Clients with the same URL spread over its servers.
            next_server: AtomicUsize::new(random()),
            replicas: AtomicUsize::new(0),
            has_warned: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner), follower: OnceLock::new() }
    }

    /// Returns the elections that are open over this connection, by their keys.
    pub(super) fn elections(&self) -> &Listeners {
        &self.inner.elections
    }

    /// Connects, and checks that the bucket exists, which is made if `create` is set.
    pub(super) async fn open(&self, create: bool) -> Result<(), OpenError> {
        let inner = Arc::clone(&self.inner);
        let opening = runtime::run(async move {
            let late = |_| OpenError::Unavailable {
                why: format!("{} did not answer in time", inner.settings.names()),
            };
            let connection = timeout(OPEN_PATIENCE, inner.connection()).await.map_err(late)??;
            // Checked for each election: the bucket may have been deleted since the previous one was opened.
            inner.find_bucket(&connection, create).await
        });
        opening.await.map_err(|why| OpenError::Unavailable { why })?
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.inner))
    }

    /// Returns the present state of the bucket's stream and of the rights to a key.
    pub(super) async fn inspect(&self, key: &str) -> Result<BucketInspection, OpenError> {
        let (handle, key) = (self.handle(), key.to_owned());
        let looking = runtime::run(async move {
            let inner = &handle.0;
            let unavailable = |why: String| OpenError::Unavailable { why };
            let connection = handle.connection(soon()).await.map_err(|failure| unavailable(failure.why()))?;
            inner.subscriptions.add(&key);
            // The server answers in order: the second answer follows any refusal of the subscription.
            let request = format!("STREAM.INFO.{}", inner.settings.stream());
            let ask = async || api::ask(&connection, soon(), &request, &api::EMPTY).await;
            ask().await.map(|_: StreamInfo| ()).map_err(|failure| unavailable(failure.to_string()))?;
            let info = ask().await.map_err(|failure| unavailable(failure.to_string()))?;
            let is_subscription_refused = inner.subscriptions.is_refused();
            Ok(BucketInspection { info, server: connection.server.version.clone(), is_subscription_refused })
        });
        looking.await.map_err(|why| OpenError::Unavailable { why })?
    }

    /// Subscribes to a key, and notifies its election of changes from then on.
    pub(super) fn watch(&self, key: &str) {
        self.inner.subscriptions.add(key);
        self.follower.get_or_init(|| runtime::spawn(Arc::clone(&self.inner).follow()).ok());
    }

    /// Ends the subscription to a key.
    pub(super) fn unwatch(&self, key: &str) {
        self.inner.subscriptions.remove(key);
    }
}

impl Handle {
    /// Returns a connection to a server that can keep the bucket. Nothing is sent over another one later.
    async fn connection(&self, until: Instant) -> Result<Arc<NatsConnection>, Failure> {
        let inner = &self.0;
        let connecting = timeout_at(until, inner.connection()).await;
        let late = |_| {
            Failure::NotDone(format!("none of {} has accepted a connection in time", inner.settings.names()))
        };
        let connection = connecting.map_err(late)?.map_err(|error| Failure::NotDone(error.to_string()))?;
        // The present server may be another one than at the first connection.
        let replicas = inner.replicas.load(Ordering::SeqCst);
        bucket::judge_server(&inner.settings.bucket, replicas, &connection.server.version)
            .map_err(Failure::NotDone)?;
        Ok(connection)
    }

    /// Asks the stream's leader for the content of a key.
    pub(super) async fn find(&self, key: &str) -> Result<Entry, Failure> {
        let until = soon();
        let connection = self.connection(until).await?;
        let settings = &self.0.settings;
        let (stream, subject) = (settings.stream(), settings.subject(key));
        let found = api::read(&connection, until, &stream, &subject).await;
        found.map_err(|failure| match &failure {
            ApiFailure::Error(error) if error.err_code == code::STREAM_NOT_FOUND => Failure::NotDone(
                format!("there is no stream {stream} any more; open the election anew to make it"),
            ),
            ApiFailure::NoResponders
            | ApiFailure::Error(_)
            | ApiFailure::Malformed(_)
            | ApiFailure::Failed(_) => Failure::NotDone(format!("{stream}: {failure}")),
        })
    }

    /// Writes `bytes`, if `sequence` is the newest sequence number of the key.
    pub(super) async fn write(&self, key: &str, sequence: u64, bytes: Vec<u8>) -> Result<u64, Failure> {
        let until = soon();
        let connection = self.connection(until).await?;
        let settings = &self.0.settings;
        let headers = [
            ("Nats-Expected-Last-Subject-Sequence", sequence.to_string()),
            ("Nats-Expected-Stream", settings.stream()),
        ];
        let written = api::publish(&connection, until, &settings.subject(key), &headers, &bytes).await;
        written.map_err(|failure| unwritten(failure, &settings.stream()))
    }
}

impl Login {
    /// Returns the proof for the server that has sent this nonce; `credentials` are those of the file.
    fn proof(&self, credentials: Option<&NatsCredentials>, nonce: &str) -> Result<Proof, String> {
        if let Some(credentials) = credentials {
            return credentials.proof(nonce);
        }
        Ok(match self {
            Self::None | Self::Credentials(_) => Proof::default(),
            Self::Password { user, password } => {
                Proof { user: Some(user.clone()), pass: Some(password.clone()), ..Proof::default() }
            }
            Self::Token(token) => Proof { auth_token: Some(token.clone()), ..Proof::default() },
        })
    }
}

impl Settings {
    fn stream(&self) -> String {
        format!("KV_{}", self.bucket)
    }

    fn subject(&self, key: &str) -> String {
        connection::subject(&self.bucket, key)
    }
}

impl Inner {
    async fn connection(self: &Arc<Self>) -> Result<Arc<NatsConnection>, OpenError> {
        let inner = Arc::clone(self);
        self.live.get(async move || inner.connect().await.map(Arc::new)).await
    }

    /// Connects to the first server that can be used.
    ///
    /// # Errors
    /// The reason of each server.
    async fn connect(&self) -> Result<NatsConnection, OpenError> {
        let credentials = match &self.settings.login {
            Login::Credentials(file) => {
                let opening = async || credentials::open(file.clone());
                Some(self.credentials.get_or_try_init(opening).await?.current())
            }
            Login::None | Login::Password { .. } | Login::Token(_) => None,
        };
        let servers = self.servers();
        let mut failures = Vec::new();
        for _ in 0..servers.len() {
            let number = self.next_server.fetch_add(1, Ordering::SeqCst);
            let host = &servers[number % servers.len()];
            let prove = |nonce: &str| self.settings.login.proof(credentials.as_deref(), nonce);
            let opening = NatsConnection::open(host, &self.settings, &self.subscriptions, prove);
            match timeout(SERVER_PATIENCE, opening).await {
                Ok(Ok(connection)) => {
                    *lock(&self.discovered) = discovered(&connection.server.connect_urls);
                    return Ok(connection);
                }
                Ok(Err(failure)) => failures.push((host, failure)),
                Err(_) => failures.push((host, ConnectFailure::passing("it did not answer in time"))),
            }
        }
        let is = |wanted| move |(_, failure): &(&Host, ConnectFailure)| failure.refusal == wanted;
        let is_refused = failures.iter().any(is(ConnectRefusal::Login))
            || failures.iter().all(is(ConnectRefusal::Lasting));
        let named = failures.iter().map(|(host, failure)| format!("{}: {}", authority(host), failure.why));
        let why = named.collect::<Vec<_>>().join("; ");
        Err(if is_refused { OpenError::Refused { why } } else { OpenError::Unavailable { why } })
    }

    fn servers(&self) -> Vec<Host> {
        let mut servers = self.settings.hosts.clone();
        let discovered = lock(&self.discovered).clone();
        let is_new = |host: &Host| servers.iter().all(|known| authority(known) != authority(host));
        let new: Vec<_> = discovered.into_iter().filter(is_new).collect();
        servers.extend(new);
        servers
    }

    /// Checks that the bucket exists, which is made if `create` is set, and logs warnings about it once.
    async fn find_bucket(&self, connection: &NatsConnection, create: bool) -> Result<(), OpenError> {
        let (settings, stream) = (&self.settings, self.settings.stream());
        let found = timeout(OPEN_PATIENCE, bucket::find(connection, &stream, settings, create));
        let late = || OpenError::Unavailable {
            why: format!("{}: JetStream did not answer in time; it may have no leader now", settings.names()),
        };
        let found = found.await.map_err(|_| late())??;
        self.replicas.store(found.replicas, Ordering::SeqCst);
        if !self.has_warned.swap(true, Ordering::SeqCst) {
            for warning in found.warnings {
                tracing::warn!(bucket = settings.bucket, "NATS: {warning}");
            }
        }
        Ok(())
    }

    /// Follows the messages of the subscriptions.
    async fn follow(self: Arc<Self>) {
        let handle = Handle(Arc::clone(&self));
        let read = |key: String| {
            let handle = handle.clone();
            async move { handle.find(&key).await.ok().map(|found| found.version()) }
        };
        self.subscriptions.follow(&self.elections, read).await;
    }
}

/// Interprets an error of a write: only the errors that are named here prove that nothing was written.
fn unwritten(failure: ApiFailure, stream: &str) -> Failure {
    match failure {
        // No server received it.
        ApiFailure::NoResponders => {
            Failure::NotDone(format!("the stream {stream} has no leader now, or is gone"))
        }
        ApiFailure::Error(error)
            if [code::WRONG_LAST_SEQUENCE, code::WRONG_LAST_SEQUENCE_CONSTANT].contains(&error.err_code) =>
        {
            Failure::Conflict
        }
        ApiFailure::Failed(Failure::NotDone(why)) => Failure::NotDone(format!("{stream}: {why}")),
        ApiFailure::Error(_) | ApiFailure::Malformed(_) | ApiFailure::Failed(_) => {
            Failure::Unknown(format!("{stream}: {failure}"))
        }
    }
}

/// Returns the servers that a server has named, as `HOST:PORT` or with a scheme before it.
fn discovered(urls: &[String]) -> Vec<Host> {
    let hosts = urls.iter().filter_map(|url| {
        let host = url.split_once("://").map_or(url.as_str(), |(_, host)| host);
        Host::parse(host).ok()
    });
    hosts.take(DISCOVERED_MAX).collect()
}

/// Returns a random number; 0 if none can be drawn.
fn random() -> usize {
    let number = getrandom::u32().unwrap_or(0);
    usize::try_from(number).unwrap_or(0)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::api::ApiError;
    use super::*;

    mod servers;

    #[test]
    fn only_what_was_surely_not_written_counts_as_not_done() {
        let of = |failure| unwritten(failure, "KV_b");
        let error = |err_code| ApiFailure::Error(ApiError { err_code, ..ApiError::default() });
        for code in [code::WRONG_LAST_SEQUENCE, code::WRONG_LAST_SEQUENCE_CONSTANT] {
            assert_eq!(of(error(code)), Failure::Conflict);
        }
        let unsent = ApiFailure::Failed(Failure::NotDone(String::new()));
        for failure in [ApiFailure::NoResponders, unsent] {
            assert!(matches!(of(failure), Failure::NotDone(_)));
        }
        let unanswered = ApiFailure::Failed(Failure::Unknown(String::new()));
        for failure in [error(0), error(10_077), ApiFailure::Malformed(String::new()), unanswered] {
            assert!(matches!(of(failure), Failure::Unknown(_)));
        }
    }

    #[test]
    fn the_servers_that_a_server_names_are_tried_after_those_of_the_url() {
        let link = Link::new(Settings::parse("//a:1,b").unwrap());
        let named = ["b:4222", "nats://c:2", "[::1]:3", "", "x y", "d:99999"].map(str::to_owned);
        *lock(&link.inner.discovered) = discovered(&named);
        let servers: Vec<_> = link.inner.servers().iter().map(authority).collect();
        assert_eq!(servers, ["a:1", "b:4222", "c:2", "[::1]:3"]);
        assert_eq!(discovered(&vec!["h".to_owned(); 1000]).len(), DISCOVERED_MAX);
    }
}
