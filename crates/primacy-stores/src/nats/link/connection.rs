//! The connection to a server, with the requests that wait for an answer and the subscriptions to keys.
//!
//! A message never causes a reply: nothing that another client sends makes this client publish with its own rights. Answers come to
//! subjects below [`INBOX`], which the usual rights of other clients (`_INBOX.>`) do not include, and each to a subject that was drawn at
//! random.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;

use super::Failure;
use super::framing::{self, NatsMessage, OpDecoder, ServerInfo, ServerOp};
use super::subscriptions::Subscriptions;
use crate::nats::settings::{Settings, authority};
use crate::reconnecting::Breakable;
use crate::runtime::{self, Aborted};
use crate::store_url::Host;

/// The first part of the subjects of answers.
pub(super) const INBOX: &str = "_INBOX_PRIMACY";

/// The number of the subscription to the answers. Those to keys have higher ones.
pub(super) const INBOX_SID: u64 = 1;

/// The interval between pings of the server.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The number of pings without an answer after which the connection ends, instead of a next one.
const PINGS_MAX: u32 = 2;

/// The time limit of writing to the connection.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);

/// The maximum number of requests that wait to be written.
const QUEUE_LENGTH: usize = 64;

/// The maximum number of bytes that are read at once.
const CHUNK_LENGTH: usize = 16 * 1024;

/// The beginning of a server's error about a missing right, which leaves the connection as it is.
const NO_RIGHT: &str = "Permissions Violation";
const NO_RIGHT_TO_SUBSCRIBE: &str = "Permissions Violation for Subscription";

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that works, as far as is known.
pub(in super::super) struct NatsConnection {
    pub(in super::super) server: ServerInfo,
    requests: mpsc::Sender<Pending>,
    /// The subject of the answers, without its last part.
    inbox: String,
    is_over: Arc<AtomicBool>,
    /// True after a request without an answer in time.
    is_late: AtomicBool,
    _driver: Aborted<()>,
}

impl Breakable for NatsConnection {
    fn is_broken(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) || self.is_late.load(Ordering::SeqCst)
    }
}

/// The kinds of reasons for which there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectRefusal {
    /// It lasts until the login or the user is repaired.
    Login,
    /// It lasts until the settings are repaired.
    Lasting,
    Passing,
}

/// The reason that there is no connection to a server.
#[derive(Debug)]
pub(super) struct ConnectFailure {
    pub(super) refusal: ConnectRefusal,
    pub(super) why: String,
}

impl ConnectFailure {
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self { refusal: ConnectRefusal::Passing, why: why.into() }
    }

    fn lasting(why: impl Into<String>) -> Self {
        Self { refusal: ConnectRefusal::Lasting, why: why.into() }
    }
}

impl From<io::Error> for ConnectFailure {
    fn from(error: io::Error) -> Self {
        Self::passing(error.to_string())
    }
}

/// The login in `CONNECT`. The empty fields are left out.
#[derive(Clone, Default, Serialize)]
pub(in super::super) struct Proof {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) pass: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) auth_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) jwt: Option<String>,
    /// The signature of the server's nonce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) sig: Option<String>,
}

/// The arguments of `CONNECT`.
#[derive(Serialize)]
struct Hello {
    #[serde(flatten)]
    proof: Proof,
    name: &'static str,
    lang: &'static str,
    version: &'static str,
    protocol: u8,
    verbose: bool,
    pedantic: bool,
    /// True if the connection receives its own messages.
    echo: bool,
    headers: bool,
    no_responders: bool,
    tls_required: bool,
}

/// A request that has not been written.
struct Pending {
    token: String,
    bytes: Vec<u8>,
    waiting: Waiting,
}

/// A request that may have been written.
struct Waiting {
    subject: String,
    answer: oneshot::Sender<Result<NatsMessage, Failure>>,
}

impl NatsConnection {
    /// Connects to a server, logs in, and subscribes to the answers. `prove` returns the login for the server's nonce.
    pub(super) async fn open(
        host: &Host,
        settings: &Settings,
        subscriptions: &Arc<Subscriptions>,
        prove: impl FnOnce(&str) -> Result<Proof, String>,
    ) -> Result<Self, ConnectFailure> {
        let stream = TcpStream::connect(authority(host)).await?;
        stream.set_nodelay(true)?;
        let mut wire = Wire::new(Box::new(stream));
        let ServerOp::Info(mut server) = wire.next().await? else {
            return Err(ConnectFailure::passing("it does not begin with `INFO`"));
        };
        if settings.requires_tls || server.tls_required {
            // `INFO` is not protected, so the servers that it names may be those of a man in the middle, and neither are the bytes
            // beyond it.
            server.connect_urls.clear();
            wire = Wire::new(encrypted(wire.stream, host, settings).await?);
        }
        let hello = Hello {
            proof: prove(&server.nonce).map_err(ConnectFailure::lasting)?,
            name: "primacy",
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
            verbose: false,
            pedantic: false,
            echo: false,
            headers: true,
            no_responders: true,
            tls_required: settings.requires_tls,
        };
        let hello = serde_json::to_string(&hello).map_err(io::Error::from)?;
        let inbox = format!("{INBOX}.{}", draw().map_err(ConnectFailure::passing)?);
        let subscribe = framing::subscribe(&format!("{inbox}.*"), INBOX_SID);
        wire.write(format!("CONNECT {hello}\r\n{subscribe}PING\r\n").as_bytes()).await?;
        loop {
            match wire.next().await? {
                ServerOp::Pong => break,
                ServerOp::Error(why) => return Err(refusal(&why)),
                ServerOp::Ping => wire.write(b"PONG\r\n").await?,
                ServerOp::Info(_) | ServerOp::Ok | ServerOp::Message(_) => {}
            }
        }
        let (requests, queue) = mpsc::channel(QUEUE_LENGTH);
        let is_over = Arc::new(AtomicBool::new(false));
        let driver = Driver {
            wire,
            queue,
            waiting: HashMap::new(),
            inbox: inbox.clone(),
            wanted: subscriptions.wanted(),
            subscribed: BTreeMap::new(),
            subscriptions: Arc::clone(subscriptions),
            bucket: settings.bucket.clone(),
            unanswered_pings: 0,
        };
        let driver = runtime::spawn(driver.run(Arc::clone(&is_over))).map_err(ConnectFailure::passing)?;
        let is_late = AtomicBool::new(false);
        Ok(Self { server, requests, inbox, is_over, is_late, _driver: driver })
    }

    /// Notes that a request had no answer in time, so that the next request goes over another connection.
    pub(super) fn was_late(&self) {
        self.is_late.store(true, Ordering::SeqCst);
    }

    /// Sends a request, and returns its answer. It has no time limit of its own; a request that is dropped before it was written is not
    /// sent.
    pub(super) async fn request(
        &self,
        subject: &str,
        headers: &[(&str, String)],
        payload: &[u8],
    ) -> Result<NatsMessage, Failure> {
        let token = draw().map_err(Failure::NotDone)?;
        let bytes = framing::publish(subject, &format!("{}.{token}", self.inbox), headers, payload);
        if self.server.max_payload > 0 && bytes.len() > self.server.max_payload {
            let why = format!("the server takes no message longer than {} bytes", self.server.max_payload);
            return Err(Failure::NotDone(why));
        }
        let (sender, answer) = oneshot::channel();
        let waiting = Waiting { subject: subject.to_owned(), answer: sender };
        let broken = || "the connection is broken".to_owned();
        let queued = self.requests.send(Pending { token, bytes, waiting }).await;
        queued.map_err(|_| Failure::NotDone(broken()))?;
        answer.await.map_err(|_| Failure::Unknown(broken()))?
    }
}

async fn encrypted(
    stream: Box<dyn Stream>,
    host: &Host,
    settings: &Settings,
) -> Result<Box<dyn Stream>, ConnectFailure> {
    let name = ServerName::try_from(host.name.clone())
        .map_err(|_| ConnectFailure::lasting("it has no name that a certificate could be for"))?;
    let connecting = TlsConnector::from(Arc::clone(&settings.tls)).connect(name, stream);
    let stream = connecting.await.map_err(|error| match error.get_ref() {
        // An error of a certificate, of either side, does not pass without a repair.
        Some(inner) if inner.is::<rustls::Error>() => ConnectFailure::lasting(format!("TLS: {inner}")),
        Some(_) | None => ConnectFailure::passing(format!("TLS: {error}")),
    })?;
    Ok(Box::new(stream))
}

/// Interprets the error of a server during the login.
fn refusal(why: &str) -> ConnectFailure {
    if why.starts_with(NO_RIGHT) {
        let why = format!("the login has no right to subscribe to {INBOX}.>, where answers come: {why}");
        return ConnectFailure { refusal: ConnectRefusal::Login, why };
    }
    let refusals = ["Authorization Violation", "Authentication Expired", "Authentication Revoked"];
    if refusals.into_iter().any(|refusal| why.contains(refusal)) {
        let why =
            format!("it does not accept this login ({why}); put USER:PASSWORD@ into the URL, or creds=FILE");
        return ConnectFailure { refusal: ConnectRefusal::Login, why };
    }
    ConnectFailure::passing(why)
}

/// Returns 128 random bits, as a part of a subject.
fn draw() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random number could be drawn: {error}"))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// A stream with the bytes that were read from it and not decoded.
struct Wire {
    stream: Box<dyn Stream>,
    decoder: OpDecoder,
    chunk: Box<[u8]>,
}

impl Wire {
    fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, decoder: OpDecoder::default(), chunk: vec![0; CHUNK_LENGTH].into() }
    }

    /// Returns the next operation. The future may be dropped without losing one.
    async fn next(&mut self) -> io::Result<ServerOp> {
        loop {
            if let Some(op) = self.decoder.next().map_err(io::Error::other)? {
                return Ok(op);
            }
            match self.stream.read(&mut self.chunk).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.decoder.feed(&self.chunk[..length]),
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(WRITE_PATIENCE, writing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// The task that reads from and writes to the connection, until one of the two fails.
struct Driver {
    wire: Wire,
    queue: mpsc::Receiver<Pending>,
    /// The requests that were written, by the last part of the subject of their answers.
    waiting: HashMap<String, Waiting>,
    inbox: String,
    /// The keys to subscribe to, and those that are subscribed to, by their numbers.
    wanted: watch::Receiver<BTreeMap<u64, String>>,
    subscribed: BTreeMap<u64, String>,
    subscriptions: Arc<Subscriptions>,
    bucket: String,
    unanswered_pings: u32,
}

impl Driver {
    async fn run(mut self, is_over: Arc<AtomicBool>) {
        let Err(error) = self.drive().await;
        let why = format!("the connection is broken: {error}");
        is_over.store(true, Ordering::SeqCst);
        self.queue.close();
        // A request whose caller is gone wants no answer.
        while let Ok(pending) = self.queue.try_recv() {
            let _ = pending.waiting.answer.send(Err(Failure::NotDone(why.clone())));
        }
        for (_, waiting) in self.waiting.drain() {
            let _ = waiting.answer.send(Err(Failure::Unknown(why.clone())));
        }
    }

    async fn drive(&mut self) -> io::Result<std::convert::Infallible> {
        let mut pings = interval(PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.subscribe().await?;
        loop {
            tokio::select! {
                op = self.wire.next() => self.on_op(op?).await?,
                pending = self.queue.recv() => match pending {
                    Some(pending) => self.send(pending).await?,
                    None => return Err(io::Error::other("it is no longer used")),
                },
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.subscribe().await?,
                    Err(_) => return Err(io::Error::other("it is no longer used")),
                },
                _ = pings.tick() => {
                    if self.unanswered_pings == PINGS_MAX {
                        return Err(io::Error::other("the server answers no ping"));
                    }
                    self.unanswered_pings += 1;
                    self.wire.write(b"PING\r\n").await?;
                }
            }
        }
    }

    async fn send(&mut self, pending: Pending) -> io::Result<()> {
        self.waiting.retain(|_, waiting| !waiting.answer.is_closed());
        if pending.waiting.answer.is_closed() {
            return Ok(());
        }
        self.waiting.insert(pending.token, pending.waiting);
        self.wire.write(&pending.bytes).await
    }

    /// Subscribes to the keys that are wanted. A key that is new here is read: it may have changed before.
    async fn subscribe(&mut self) -> io::Result<()> {
        let wanted = self.wanted.borrow_and_update().clone();
        let mut bytes = String::new();
        for sid in self.subscribed.keys().filter(|sid| !wanted.contains_key(sid)) {
            bytes += &framing::unsubscribe(*sid);
        }
        let added: Vec<_> = wanted.iter().filter(|(sid, _)| !self.subscribed.contains_key(sid)).collect();
        for (sid, key) in &added {
            bytes += &framing::subscribe(&subject(&self.bucket, key), **sid);
        }
        self.wire.write(bytes.as_bytes()).await?;
        for (_, key) in added {
            self.subscriptions.hint(key);
        }
        self.subscribed = wanted;
        Ok(())
    }

    async fn on_op(&mut self, op: ServerOp) -> io::Result<()> {
        match op {
            ServerOp::Message(message) if message.sid == INBOX_SID => self.on_answer(message),
            ServerOp::Message(message) => {
                if let Some(key) = self.subscribed.get(&message.sid) {
                    self.subscriptions.hint(key);
                }
            }
            ServerOp::Ping => self.wire.write(b"PONG\r\n").await?,
            ServerOp::Pong => self.unanswered_pings = 0,
            ServerOp::Error(why) => self.on_error(&why)?,
            // Other servers are learnt of at each connection.
            ServerOp::Info(_) | ServerOp::Ok => {}
        }
        Ok(())
    }

    fn on_answer(&mut self, message: NatsMessage) {
        let token = message.subject.strip_prefix(&self.inbox).and_then(|rest| rest.strip_prefix('.'));
        if let Some(waiting) = token.and_then(|token| self.waiting.remove(token)) {
            // A request whose caller is gone wants no answer.
            let _ = waiting.answer.send(Ok(message));
        }
    }

    fn on_error(&mut self, why: &str) -> io::Result<()> {
        if !why.starts_with(NO_RIGHT) {
            return Err(io::Error::other(why.to_owned()));
        }
        let names = |subject: &str| why.contains(&format!("\"{subject}\""));
        if why.starts_with(NO_RIGHT_TO_SUBSCRIBE) {
            if why.contains(&self.inbox) {
                return Err(io::Error::other(why.to_owned()));
            }
            if self.subscribed.values().any(|key| names(&subject(&self.bucket, key))) {
                self.subscriptions.refuse(&self.bucket, why);
            }
            return Ok(());
        }
        let refused: Vec<String> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| names(&waiting.subject))
            .map(|(token, _)| token.clone())
            .collect();
        for waiting in refused.iter().filter_map(|token| self.waiting.remove(token)) {
            // An earlier request to the same subject may have been let through.
            let _ = waiting.answer.send(Err(Failure::Unknown(why.to_owned())));
        }
        Ok(())
    }
}

/// The subject on which a key is written.
pub(super) fn subject(bucket: &str, key: &str) -> String {
    format!("$KV.{bucket}.{key}")
}
