//! The state of one client connection: its memory budgets, whether it has presented a token, and which answers it has
//! not read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy::idle_connections::{Evictable, IdleConnections};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tonic::Status;

use super::budget::{Budget, Charge, Purse, StreamBudget, Streams};
use super::errors::Known;
use super::limits::OPEN_MESSAGE_BYTES_MAX;
use super::long_reads::LongReads;
use super::throttle::Bucket;
use super::turns::{self, Turns};

/// The most bytes for the requests of all clients: their streams, messages and watchers.
const NODE_REQUEST_BYTES_MAX: usize = 128 << 20;

/// The most bytes for the requests of one connection.
const CONNECTION_REQUEST_BYTES_MAX: usize = 64 << 20;

/// The most bytes of answers that clients have not read, and of changes that wait for watchers, on all connections. A single
/// answer may be longer.
const NODE_ANSWER_BYTES_MAX: usize = 128 << 20;

/// The most such bytes of one connection.
const CONNECTION_ANSWER_BYTES_MAX: usize = 32 << 20;

/// The most bytes for requests without a token, if tokens are required.
const NODE_OPEN_BYTES_MAX: usize = 64 << 20;
const CONNECTION_OPEN_BYTES_MAX: usize = 640 << 10;

/// The requests without a token that a connection may make at once before it is closed, unless it has presented a
/// token, and the interval at which it may make one more.
const OPEN_REQUESTS_MAX: u32 = 64;
const OPEN_REQUESTS_REFILL: Duration = Duration::from_millis(500);

/// The most bytes that the HTTP/2 library may keep for the streams of all connections, and for those of connections without a token.
/// A connection with few streams is served beyond that.
const NODE_STREAM_BYTES_MAX: usize = 256 << 20;
const NODE_OPEN_STREAM_BYTES_MAX: usize = 32 << 20;

/// The bytes charged for a stream, with its task and buffers.
const STREAM_BYTES: usize = 8 << 10;

/// The bytes charged for a stream without a token: with all data that the client may send before it is processed.
const OPEN_STREAM_BYTES: usize = 72 << 10;

/// The most simultaneous logins. Beyond it, the next one replaces the oldest login of the address with most of them.
const LOGINS_MAX: usize = 100;

/// The most bytes for logins. They have a budget of their own, so that no other request keeps clients from logging in: enough for
/// those in progress, and as many that wait.
const NODE_LOGIN_BYTES_MAX: usize = 2 * LOGINS_MAX * (OPEN_STREAM_BYTES + OPEN_MESSAGE_BYTES_MAX);

/// The time for which a client may leave a part of an answer unread before its connection is closed.
pub(super) const READ_PATIENCE: Duration = Duration::from_secs(60);

/// The budgets that all connections of a node share.
#[derive(Debug)]
pub(super) struct NodeBudgets {
    requests: Arc<Budget>,
    answers: Arc<Budget>,
    open: Arc<Budget>,
    login_bytes: Arc<Budget>,
    logins: Arc<IdleConnections>,
    streams: Arc<StreamBudget>,
    open_streams: Arc<StreamBudget>,
    turns: Arc<Semaphore>,
    pub(super) long_reads: Arc<Semaphore>,
}

impl Default for NodeBudgets {
    fn default() -> Self {
        Self {
            requests: Arc::new(Budget::new(NODE_REQUEST_BYTES_MAX)),
            answers: Arc::new(Budget::of_answers(NODE_ANSWER_BYTES_MAX)),
            open: Arc::new(Budget::new(NODE_OPEN_BYTES_MAX)),
            login_bytes: Arc::new(Budget::new(NODE_LOGIN_BYTES_MAX)),
            logins: IdleConnections::new(Arc::new(Semaphore::new(LOGINS_MAX))),
            streams: Arc::new(StreamBudget::new(NODE_STREAM_BYTES_MAX)),
            open_streams: Arc::new(StreamBudget::new(NODE_OPEN_STREAM_BYTES_MAX)),
            turns: turns::of_node(),
            long_reads: LongReads::of_node(),
        }
    }
}

impl NodeBudgets {
    /// Returns the bytes charged for requests, and for answers.
    pub(super) fn taken(&self) -> [usize; 2] {
        [self.requests.taken() + self.open.taken() + self.login_bytes.taken(), self.answers.taken()]
    }

    /// Returns the bytes charged for streams.
    pub(super) fn taken_by_streams(&self) -> usize {
        self.streams.taken() + self.open_streams.taken()
    }
}

/// One connection of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    requests: Purse,
    answers: Purse,
    open: Purse,
    login_bytes: Purse,
    logins: Arc<IdleConnections>,
    streams: Streams,
    open_streams: Streams,
    pub(super) turns: Turns,
    pub(super) long_reads: LongReads,
    place: Evictable,
    /// True if it has presented a token, or needs none.
    is_admitted: AtomicBool,
    open_requests: Mutex<Bucket>,
    /// Notified when it has made too many requests without a token.
    has_had_enough: Notify,
    /// Notified when it has more simultaneous streams than the node has room for.
    is_crowded: Notify,
    unread: Mutex<Unread>,
}

/// The unread parts of answers, each with the time since which it waits, in the order of their creation.
#[derive(Debug, Default)]
struct Unread {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl Client {
    pub(super) fn new(address: IpAddr, node: &NodeBudgets, place: Evictable) -> Arc<Self> {
        Arc::new(Self {
            address,
            requests: Purse::new(Budget::new(CONNECTION_REQUEST_BYTES_MAX), &node.requests),
            answers: Purse::new(Budget::of_answers(CONNECTION_ANSWER_BYTES_MAX), &node.answers),
            open: Purse::new(Budget::new(CONNECTION_OPEN_BYTES_MAX), &node.open),
            login_bytes: Purse::new(Budget::new(CONNECTION_OPEN_BYTES_MAX), &node.login_bytes),
            logins: Arc::clone(&node.logins),
            streams: Streams::new(&node.streams),
            open_streams: Streams::new(&node.open_streams),
            turns: Turns::new(&node.turns),
            long_reads: LongReads::new(&node.long_reads),
            place,
            is_admitted: AtomicBool::new(false),
            open_requests: Mutex::default(),
            has_had_enough: Notify::new(),
            is_crowded: Notify::new(),
            unread: Mutex::default(),
        })
    }

    /// Counts a stream until the returned value is dropped. Returns `None` if the node has no room for it; then the connection must be
    /// closed at once.
    pub(super) fn begin_stream(self: &Arc<Self>, needs_token: bool) -> Option<OpenStream> {
        let is_open = needs_token && !self.is_admitted.load(Ordering::Relaxed);
        let streams = if is_open { &self.open_streams } else { &self.streams };
        if !streams.open() {
            self.is_crowded.notify_one();
            return None;
        }
        Some(OpenStream { client: Arc::clone(self), is_open })
    }

    /// Records a request with a valid token, or without one if none is required; returns the charge for its stream.
    ///
    /// # Errors
    /// [`Known::TOO_MANY_REQUESTS`].
    pub(super) fn begin_admitted(&self) -> Result<Charge, Known> {
        if !self.is_admitted.swap(true, Ordering::Relaxed) {
            self.place.set_busy();
            self.open_streams.release();
        }
        self.requests.charge(STREAM_BYTES).ok_or(Known::TOO_MANY_REQUESTS)
    }

    /// Records a request without a token if one is required; returns the charge for its stream.
    ///
    /// # Errors
    /// [`Known::TOO_MANY_REQUESTS`].
    pub(super) fn begin_open(&self) -> Result<Charge, Known> {
        self.note_open();
        self.open.charge(OPEN_STREAM_BYTES).ok_or(Known::TOO_MANY_REQUESTS)
    }

    /// Records a login; returns the charge for its stream.
    ///
    /// # Errors
    /// [`Known::TOO_MANY_REQUESTS`].
    pub(super) fn begin_login(&self) -> Result<Charge, Known> {
        self.note_open();
        self.login_bytes.charge(OPEN_STREAM_BYTES).ok_or(Known::TOO_MANY_REQUESTS)
    }

    /// Answers a login. If there are too many, an unfinished one is cancelled.
    ///
    /// # Errors
    /// [`Known::TOO_MANY_REQUESTS`], if this one was cancelled.
    pub(super) async fn log_in<T>(&self, answering: impl Future<Output = T>) -> Result<T, Known> {
        let _place = self.logins.place().await;
        let login = self.logins.enter(self.address);
        tokio::select! {
            answer = answering => Ok(answer),
            () = login.evicted() => Err(Known::TOO_MANY_REQUESTS),
        }
    }

    /// Records a request without a token, which may have been refused.
    pub(super) fn note_open(&self) {
        if self.is_admitted.load(Ordering::Relaxed) {
            return;
        }
        let (mut requests, now) =
            (self.open_requests.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if requests.is_spent(now, OPEN_REQUESTS_MAX, OPEN_REQUESTS_REFILL) {
            self.has_had_enough.notify_one();
        } else {
            requests.spend(now, OPEN_REQUESTS_REFILL);
        }
    }

    /// Charges memory that a request uses.
    ///
    /// # Errors
    /// [`Known::TOO_MANY_REQUESTS`].
    pub(super) fn charge_request(&self, bytes: usize) -> Result<Charge, Known> {
        self.requests.charge(bytes).ok_or(Known::TOO_MANY_REQUESTS)
    }

    /// Charges an answer.
    ///
    /// # Errors
    /// [`Known::TOO_MANY_REQUESTS`].
    pub(super) fn charge_answer(&self, bytes: usize) -> Result<Charge, Status> {
        self.answers.charge(bytes).ok_or_else(|| Known::TOO_MANY_REQUESTS.into())
    }

    /// A charge of zero bytes against the budget of answers.
    pub(super) fn no_answer(&self) -> Charge {
        self.answers.nothing()
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a part of an answer waits to be read, until the returned value is dropped.
    pub(super) fn wait_for_reader(self: &Arc<Self>) -> WaitsForReader {
        let mut unread = self.unread();
        let number = unread.next;
        unread.next += 1;
        unread.since.insert(number, Instant::now());
        WaitsForReader { client: Arc::clone(self), number }
    }

    /// Returns whether a part of an answer was unread for too long.
    pub(super) fn does_not_read(&self) -> bool {
        self.unread().since.first_key_value().is_some_and(|(_, since)| since.elapsed() > READ_PATIENCE)
    }

    /// Resolves when the connection must be closed in order, because it has made too many requests without a token.
    pub(super) async fn had_enough(&self) {
        self.has_had_enough.notified().await;
    }

    /// Resolves when the connection has more simultaneous streams than the node has room for.
    pub(super) async fn crowded(&self) {
        self.is_crowded.notified().await;
    }

    /// Resolves when the connection must make room for another one.
    pub(super) async fn evicted(&self) {
        self.place.evicted().await;
    }
}

/// Counts a stream of a connection until dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    client: Arc<Client>,
    is_open: bool,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let client = &self.client;
        if self.is_open { client.open_streams.close() } else { client.streams.close() }
    }
}

/// A part of an answer that the client has not read, until dropped.
#[derive(Debug)]
pub(super) struct WaitsForReader {
    client: Arc<Client>,
    number: u64,
}

impl Drop for WaitsForReader {
    fn drop(&mut self) {
        self.client.unread().since.remove(&self.number);
    }
}

#[cfg(test)]
pub(super) fn on_loopback(node: &NodeBudgets) -> Arc<Client> {
    let places = Arc::new(Semaphore::new(1));
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    Client::new(address, node, IdleConnections::new(places).enter(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_an_answer_unread_is_noticed() {
        let client = on_loopback(&NodeBudgets::default());
        let first = client.wait_for_reader();
        tokio::time::advance(READ_PATIENCE).await;
        let second = client.wait_for_reader();
        assert!(!client.does_not_read());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(client.does_not_read());
        drop(first);
        assert!(!client.does_not_read(), "the other one has not waited for long");
        drop(second);
    }

    /// A client can log in even if other requests without a token, or unfinished logins, have used up their budgets.
    #[tokio::test(start_paused = true)]
    async fn a_login_has_room_whatever_other_requests_without_a_token_hold() {
        let node = NodeBudgets::default();
        let mut held = Vec::new();
        while let Ok(charge) = on_loopback(&node).begin_open() {
            held.push(charge);
        }
        let mut unfinished = tokio::task::JoinSet::new();
        for _ in 0..3 * LOGINS_MAX {
            let client = on_loopback(&node);
            unfinished.spawn(async move {
                let _charge = client.begin_login()?;
                client.log_in(std::future::pending::<()>()).await
            });
            tokio::task::yield_now().await;
        }
        let client = on_loopback(&node);
        let _charge = client.begin_login().unwrap();
        let takes_a_while = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(client.log_in(takes_a_while).await, Ok(()));
        assert!(unfinished.try_join_next().unwrap().unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_token_ends_after_so_many_requests_and_one_with_a_token_goes_on() {
        let node = NodeBudgets::default();
        let has_had_enough = async |client: &Client| {
            tokio::time::timeout(Duration::from_secs(1), client.had_enough()).await.is_ok()
        };
        for shows_token in [false, true] {
            let client = on_loopback(&node);
            if shows_token {
                drop(client.begin_admitted().unwrap());
            }
            for _ in 0..OPEN_REQUESTS_MAX {
                drop(client.begin_open().unwrap());
            }
            assert!(!has_had_enough(&client).await);
            // Two more, after a wait of two seconds.
            for _ in 0..3 {
                drop(client.begin_open());
            }
            assert_eq!(has_had_enough(&client).await, !shows_token);
        }
        assert_eq!(node.taken(), [0, 0]);
    }
}
