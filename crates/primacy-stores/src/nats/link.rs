//! The [`Link`]: one connection and one watch for all elections of a process that were opened with one URL.

pub(super) mod bucket;

use std::error::Error as _;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{GetStreamError, PublishError, PublishErrorKind};
use async_nats::jetstream::kv::Operation;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Info, LastRawMessageError, LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, header};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use super::credentials;
use super::settings::{Login, Settings};
use crate::changes::Listeners;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::runtime::{self, Aborted};

/// The time for a server to become usable, before the next one is tried: half a dozen round trips.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);

/// The time that an open waits for the connection, and then for the bucket.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// The time limit of a request. It is a fraction of a usual lease.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The interval between pings of the server. After three without an answer, the client connects to another server.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause between two attempts to connect. The library's own pauses grow to four seconds, and would prolong an outage by as
/// much.
const CONNECT_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The pause between two attempts to watch.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// The header of a key that was deleted.
const OPERATION: &str = "KV-Operation";

/// The server's error for a write that does not name the newest sequence number, while another write of the key is in progress.
const WRONG_LAST_SEQUENCE_CONSTANT: ErrorCode = ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT;

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

/// A connection that connects to another server when it breaks.
pub(super) struct Link {
    inner: Arc<Inner>,
    /// Started by the first wait for a change; `None` if the stores' thread could not be started.
    watcher: OnceLock<Option<Aborted<()>>>,
}

struct Inner {
    settings: Settings,
    /// The open elections, by their keys.
    elections: Listeners,
    ready: OnceCell<Ready>,
    /// The last error of the connection since it was made; `None` while it works.
    trouble: Arc<Mutex<Option<String>>>,
    /// The number of replicas of the bucket, when it was last read.
    replicas: AtomicUsize,
    /// True if the warnings about this bucket have been logged.
    has_warned: AtomicBool,
}

/// A client that has connected once, and found the bucket then.
struct Ready {
    client: Client,
    context: Context,
    stream: Stream<()>,
}

/// A handle for requests over the link; to be used on the stores' thread.
#[derive(Clone)]
pub(super) struct Handle(Arc<Inner>);

impl Link {
    pub(super) fn new(settings: Settings) -> Self {
        let inner = Inner {
            settings,
            elections: Listeners::default(),
            ready: OnceCell::new(),
            trouble: Arc::default(),
            replicas: AtomicUsize::new(0),
            has_warned: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner), watcher: OnceLock::new() }
    }

    /// Returns the elections that are open over this connection, by their keys.
    pub(super) fn elections(&self) -> &Listeners {
        &self.inner.elections
    }

    /// Connects, and checks that the bucket exists, which is made if `create` is set.
    pub(super) async fn open(&self, create: bool) -> Result<(), OpenError> {
        let inner = Arc::clone(&self.inner);
        let opening = runtime::run(async move {
            let ready = inner.ready.get_or_try_init(|| inner.open()).await?;
            // Checked for each election: the bucket may have been deleted since the previous one was opened.
            inner.find_bucket(&ready.context, create).await
        });
        opening.await.map_err(|why| OpenError::Unavailable { why })?
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.inner))
    }

    /// Returns the present state of the bucket's stream, and the version of the server that answers.
    pub(super) async fn look(&self) -> Result<(Info, String), OpenError> {
        let handle = self.handle();
        let looking = runtime::run(async move {
            let inner = &handle.0;
            let ready = handle.ready().map_err(|failure| OpenError::Unavailable { why: failure.why() })?;
            let asking = timeout(REQUEST_PATIENCE, ready.context.get_stream(inner.settings.stream()));
            let late = |_| OpenError::Unavailable { why: inner.silence() };
            let failed = |error: GetStreamError| OpenError::Unavailable { why: told(&error) };
            let found = asking.await.map_err(late)?.map_err(failed)?;
            Ok((found.cached_info().clone(), ready.client.server_info().version))
        });
        looking.await.map_err(|why| OpenError::Unavailable { why })?
    }

    /// Starts the watch of the bucket, if it has not been started.
    pub(super) fn watch(&self) {
        self.watcher.get_or_init(|| runtime::spawn(Arc::clone(&self.inner).watch()).ok());
    }
}

impl Handle {
    /// Returns the client, if it is connected at this moment.
    fn ready(&self) -> Result<&Ready, Failure> {
        let inner = &self.0;
        let name = inner.settings.authorities.join(", ");
        // Without a connection, the library would queue the request, and could send it long after it was abandoned.
        match inner.ready.get() {
            Some(ready) if ready.client.connection_state() == State::Connected => {
                // The present server may be another one than at the first connection.
                let version = ready.client.server_info().version;
                let replicas = inner.replicas.load(Ordering::SeqCst);
                bucket::judge_server(&inner.settings.bucket, replicas, &version).map_err(Failure::NotDone)?;
                Ok(ready)
            }
            Some(_) | None => {
                let trouble = lock(&inner.trouble).clone();
                let why = trouble.as_deref().unwrap_or("no server accepts a connection");
                Err(Failure::NotDone(format!("not connected to {name}: {why}")))
            }
        }
    }

    /// Asks the stream's leader for the content of a key.
    pub(super) async fn find(&self, key: &str) -> Result<Entry, Failure> {
        let ready = self.ready()?;
        let subject = self.0.settings.subject(key);
        match timeout(REQUEST_PATIENCE, ready.stream.get_last_raw_message_by_subject(&subject)).await {
            Ok(Ok(message)) => Ok(entry(&message)),
            Ok(Err(error)) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(Entry::Absent { sequence: 0 }),
                LastRawMessageErrorKind::InvalidSubject
                | LastRawMessageErrorKind::JetStream(_)
                | LastRawMessageErrorKind::Other => Err(self.0.unread(&error)),
            },
            Err(_) => Err(Failure::Unknown(self.0.silence())),
        }
    }

    /// Writes `bytes`, if `sequence` is the newest sequence number of the key.
    pub(super) async fn write(&self, key: &str, sequence: u64, bytes: Vec<u8>) -> Result<u64, Failure> {
        let ready = self.ready()?;
        let subject = self.0.settings.subject(key);
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, sequence.to_string().as_str());
        headers.insert(header::NATS_EXPECTED_STREAM, self.0.settings.stream().as_str());
        let sending = async {
            let sent = ready.context.publish_with_headers(subject, headers, bytes.into()).await?;
            sent.await
        };
        match timeout(REQUEST_PATIENCE, sending).await {
            Ok(Ok(acknowledged)) => Ok(acknowledged.sequence),
            Ok(Err(error)) => Err(unwritten(&error)),
            Err(_) => Err(Failure::Unknown(self.0.silence())),
        }
    }
}

/// Returns an error with what to do about it, if the server does not accept the login.
fn with_advice(why: String) -> String {
    let is_login = why.to_lowercase().contains(&ConnectErrorKind::AuthorizationViolation.to_string());
    if is_login {
        return format!(
            "it does not accept this login ({why}); put USER:PASSWORD@ into the URL, or creds=FILE"
        );
    }
    why
}

/// The kinds of reasons for which no connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It lasts until the login or the user is repaired.
    Login,
    /// It lasts until the settings are repaired.
    Lasting,
    Passing,
}

const fn kind_of(error: ConnectErrorKind) -> Refusal {
    match error {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => Refusal::Login,
        ConnectErrorKind::Tls | ConnectErrorKind::ServerParse => Refusal::Lasting,
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => Refusal::Passing,
    }
}

impl Settings {
    fn stream(&self) -> String {
        format!("KV_{}", self.bucket)
    }

    fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.bucket)
    }
}

impl Inner {
    fn silence(&self) -> String {
        format!("the stream {} did not answer in time; it may have no leader now", self.settings.stream())
    }

    fn unread(&self, error: &LastRawMessageError) -> Failure {
        let stream = self.settings.stream();
        match error.kind() {
            LastRawMessageErrorKind::JetStream(error)
                if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                Failure::NotDone(format!(
                    "there is no stream {stream} any more; open the election anew to make it"
                ))
            }
            LastRawMessageErrorKind::JetStream(error) => Failure::NotDone(format!("{stream}: {error}")),
            LastRawMessageErrorKind::NoMessageFound
            | LastRawMessageErrorKind::InvalidSubject
            | LastRawMessageErrorKind::Other => Failure::NotDone(format!("{stream}: {}", told(error))),
        }
    }

    async fn open(&self) -> Result<Ready, OpenError> {
        let unavailable = |why: String| OpenError::Unavailable { why };
        let connecting = timeout(OPEN_PATIENCE, self.options()?.connect(&self.settings.authorities));
        let client = match connecting.await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(self.not_connected(Some(&error)).await),
            Err(_) => return Err(self.not_connected(None).await),
        };
        let mut context = jetstream::new(client.clone());
        context.set_timeout(REQUEST_PATIENCE);
        let stream = context.get_stream_no_info(self.settings.stream()).await;
        let stream = stream.map_err(|error| unavailable(error.to_string()))?;
        Ok(Ready { client, context, stream })
    }

    /// Checks that the bucket exists, which is made if `create` is set, and logs warnings about it once.
    async fn find_bucket(&self, context: &Context, create: bool) -> Result<(), OpenError> {
        let (settings, stream) = (&self.settings, self.settings.stream());
        let found = timeout(OPEN_PATIENCE, bucket::find(context, &stream, settings, create));
        let late = || OpenError::Unavailable {
            why: format!(
                "{}: JetStream did not answer in time; it may have no leader now",
                settings.authorities.join(", ")
            ),
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

    fn options(&self) -> Result<ConnectOptions, OpenError> {
        let settings = &self.settings;
        let options = match &settings.login {
            Login::None => ConnectOptions::new(),
            Login::Password { user, password } => {
                ConnectOptions::with_user_and_password(user.clone(), password.clone())
            }
            Login::Token(token) => ConnectOptions::with_token(token.clone()),
            Login::Credentials(file) => credentials::options(file.clone())?,
        };
        let trouble = Arc::clone(&self.trouble);
        let note = move |event| {
            let trouble = Arc::clone(&trouble);
            async move {
                match event {
                    Event::Connected => *lock(&trouble) = None,
                    Event::ClientError(error) => *lock(&trouble) = Some(with_advice(error.to_string())),
                    Event::ServerError(error) => *lock(&trouble) = Some(with_advice(error.to_string())),
                    Event::Disconnected
                    | Event::LameDuckMode
                    | Event::Draining
                    | Event::Closed
                    | Event::SlowConsumer(_) => {} // Each request asks whether there is a connection.
                }
            }
        };
        Ok(options
            .event_callback(note)
            .connection_timeout(SERVER_PATIENCE)
            .request_timeout(Some(REQUEST_PATIENCE))
            .ping_interval(PING_INTERVAL)
            .reconnect_delay_callback(connect_pause)
            .require_tls(settings.requires_tls)
            .tls_client_config(settings.tls.clone()))
    }

    /// Returns the reason of each server. The client's `error` is that of one of them, and of several servers each is tried once more.
    async fn not_connected(&self, error: Option<&ConnectError>) -> OpenError {
        let of = |error: &ConnectError| (Some(error.kind()), told(error));
        let servers = self.settings.authorities.iter();
        let reasons =
            servers.map(async |server| match error.filter(|_| self.settings.authorities.len() == 1) {
                Some(error) => of(error),
                None => match self.options() {
                    Ok(options) => match timeout(SERVER_PATIENCE, options.connect(server)).await {
                        Ok(Ok(_)) => (None, "it was connected to too late".to_owned()),
                        Ok(Err(error)) => of(&error),
                        Err(_) => (None, "it did not answer in time".to_owned()),
                    },
                    Err(error) => (None, error.to_string()),
                },
            });
        let reasons = join_all(reasons).await;
        let is =
            |wanted| move |(kind, _): &(Option<ConnectErrorKind>, String)| kind.map(kind_of) == Some(wanted);
        let is_refused = reasons.iter().any(is(Refusal::Login)) || reasons.iter().all(is(Refusal::Lasting));
        let named = self.settings.authorities.iter().zip(reasons);
        let why: Vec<String> =
            named.map(|(server, (_, why))| format!("{server}: {}", with_advice(why))).collect();
        let why = why.join("; ");
        if is_refused { OpenError::Refused { why } } else { OpenError::Unavailable { why } }
    }

    /// Watches the bucket, and notifies the elections of changes.
    async fn watch(self: Arc<Self>) {
        loop {
            if let Some(ready) = self.ready.get()
                && let Ok(bucket) = ready.context.get_key_value(&self.settings.bucket).await
                && let Ok(mut entries) = bucket.watch_all().await
            {
                // An error ends the watch, and a new one is begun. Reads find changes that were missed meanwhile.
                while let Some(Ok(entry)) = entries.next().await {
                    let is_record = entry.operation == Operation::Put;
                    let version = if is_record { entry.revision } else { 0 };
                    self.elections.notify(&entry.key, version);
                }
            }
            sleep(WATCH_PAUSE).await;
        }
    }
}

/// Reads the entry out of a message of the bucket's stream.
fn entry(message: &StreamMessage) -> Entry {
    let sequence = message.sequence;
    match message.headers.get(OPERATION).map(header::HeaderValue::as_str) {
        Some("DEL" | "PURGE") => Entry::Absent { sequence },
        Some(_) | None => Entry::Present { sequence, bytes: message.payload.to_vec() },
    }
}

/// Interprets an error of a write: only the errors that are named here prove that nothing was written.
fn unwritten(error: &PublishError) -> Failure {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => Failure::Conflict,
        // No server received it: the stream has no leader now, or is gone.
        PublishErrorKind::StreamNotFound => {
            Failure::NotDone("the bucket's stream has no leader now, or is gone".to_owned())
        }
        // It was not sent.
        PublishErrorKind::MaxAckPending | PublishErrorKind::MaxPayloadExceeded => {
            Failure::NotDone(told(error))
        }
        PublishErrorKind::Other => match error.source().and_then(|source| source.downcast_ref()) {
            Some(source) if jetstream_code(source) == WRONG_LAST_SEQUENCE_CONSTANT => Failure::Conflict,
            Some(_) | None => Failure::Unknown(told(error)),
        },
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => {
            Failure::Unknown(told(error))
        }
    }
}

fn jetstream_code(error: &jetstream::Error) -> ErrorCode {
    error.error_code()
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        behind = error.source();
    }
    text
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

/// Returns the pause before an attempt to connect, the first of which has the number 1. The first has no pause: a guardian connects to
/// report a death, for which all other nodes wait.
fn connect_pause(attempt: usize) -> Duration {
    let doubled = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(u32::BITS - 1);
    let pause = if doubled == 0 { 0 } else { 1_u64 << doubled };
    Duration::from_millis(pause).min(CONNECT_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn the_first_attempt_waits_for_nothing_and_no_other_one_for_long() {
        let pauses = [0, 1, 2, 3, 7, 8, 9, usize::MAX].map(|attempt| connect_pause(attempt).as_millis());
        assert_eq!(pauses, [0, 0, 2, 4, 64, 100, 100, 100]);
    }

    #[test]
    fn only_what_was_surely_not_written_counts_as_not_done() {
        let of = |kind| unwritten(&PublishError::new(kind));
        assert_eq!(of(PublishErrorKind::WrongLastSequence), Failure::Conflict);
        for kind in [
            PublishErrorKind::StreamNotFound,
            PublishErrorKind::MaxAckPending,
            PublishErrorKind::MaxPayloadExceeded,
        ] {
            assert!(matches!(of(kind), Failure::NotDone(_)), "{kind}");
        }
        for kind in [
            PublishErrorKind::Other,
            PublishErrorKind::TimedOut,
            PublishErrorKind::BrokenPipe,
            PublishErrorKind::WrongLastMessageId,
        ] {
            assert!(matches!(of(kind), Failure::Unknown(_)), "{kind}");
        }
    }

    const INFO: &[u8] = b"INFO {\"server_id\":\"a\",\"server_name\":\"a\",\"version\":\"2.11.0\",\"go\":\"\",\"host\":\"a\",\
        \"port\":1,\"headers\":true,\"max_payload\":1024,\"proto\":1,\"client_id\":1,\"auth_required\":true}\r\n";

    /// A server that accepts the login of the first `accepted` connections, and then closes each of them.
    async fn serve(listener: TcpListener, accepted: usize) {
        for number in 0.. {
            let mut stream = BufStream::new(listener.accept().await.unwrap().0);
            stream.write_all(INFO).await.unwrap();
            stream.flush().await.unwrap();
            let mut line = String::new();
            while !line.starts_with("PING") {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            let is_accepted = number < accepted;
            let answer: &[u8] = if is_accepted { b"PONG\r\n" } else { b"-ERR 'Authorization Violation'\r\n" };
            stream.write_all(answer).await.unwrap();
            stream.flush().await.unwrap();
        }
    }

    async fn link(accepted: usize, others: &str) -> (Link, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(serve(listener, accepted));
        (Link::new(Settings::parse(&format!("//u:secret@{address}{others}/b")).unwrap()), address)
    }

    #[tokio::test]
    async fn the_reason_of_each_server_is_in_the_error() {
        let (link, address) = link(0, ",127.0.0.1:1").await;
        let error = link.inner.open().await.err().unwrap();
        assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
        let error = error.to_string();
        assert!(error.contains(&format!("{address}: it does not accept this login")), "{error}");
        assert!(error.contains("127.0.0.1:1: ") && !error.contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn a_login_that_is_refused_later_is_told_as_such() {
        let (link, _) = link(1, "").await;
        let ready = link.inner.open().await.unwrap();
        assert!(link.inner.ready.set(ready).is_ok());
        let refused = async {
            loop {
                if let Err(failure) = link.handle().ready()
                    && let why = failure.why()
                    && why.contains("does not accept this login")
                {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), refused).await.unwrap();
    }
}
