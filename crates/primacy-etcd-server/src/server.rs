//! The server: accepts the connections of clients, and closes those that exceed their limits.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use primacy::idle_connections::IdleConnections;
use primacy::transport::ServerTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::debug;

use super::abort_on_drop::AbortOnDrop;
use super::body::Failed;
use super::client::Client;
use super::figures::{Counts, EtcdApiFigures};
use super::hub::Hub;
use super::paced::{Pace, Paced, paced};
use super::replicated::Replicated;
use super::services::Services;
use super::throttle::Throttle;
use super::tls::PREFACE_LENGTH;
use super::users::Users;
use super::{free_memory, route, tls};

/// The most simultaneous requests and streams of one connection.
const STREAMS_MAX: u32 = 1024;

/// The most connections. Another one replaces a connection that has not presented a token yet, or waits until one is
/// closed.
const CONNECTIONS_MAX: usize = 8192;

/// The most connections that have not presented a token yet, or have made no request if no token is required. Such a
/// connection may use some 60 KiB that are not charged: for a handshake, or for the head of a request that never ends.
const UNPROVEN_CONNECTIONS_MAX: usize = 2048;

/// The number of ended connections after which free memory is returned to the system, and the interval of that check.
const ENDED_FOR_MEMORY: usize = 256;
const MEMORY_LOOK: Duration = Duration::from_secs(30);

/// The most bytes of a stream, and of a connection, that may have arrived without being processed. The HTTP/2 library
/// also derives a limit on small frames from the latter: half as many bytes, where each small frame counts for 256. So
/// it is large enough for a stream whose window is full of the shortest messages. All streams are read as they arrive,
/// and messages that wait for their service are charged, see [`read_ahead`].
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 6 << 20;

/// The most bytes of the names and values in the head of a request.
const HEAD_BYTES_MAX: u32 = 16 << 10;

/// The time for a client to send its first bytes, and to make its TLS handshake.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The interval at which the arrival of the preface is checked.
const PREFACE_LOOK: Duration = Duration::from_millis(20);

/// The bytes of an answer that may wait in the library when it asks for the next part: none in effect, so that a part
/// stays charged until it was sent.
const SEND_BUFFER: usize = 1;

/// The interval at which unread answers are checked.
const READ_LOOK: Duration = Duration::from_secs(5);

/// The time for a connection to close in order.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// The interval at which a silent client is probed, and the time for its answer. If a client's machine is gone, its
/// watches and waiting requests end by this.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
const PROBE_PATIENCE: Duration = Duration::from_secs(20);

/// The pause after the system has failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server of the etcd API: accepts the connections of clients, and answers their requests.
pub struct EtcdApi {
    listener: TcpListener,
    hub: Arc<Hub>,
    users: Option<Arc<Users>>,
    throttle: Arc<Throttle>,
    counts: Arc<Counts>,
    tls: Option<Arc<ServerTls>>,
    /// The most connections.
    connections: usize,
}

impl EtcdApi {
    /// Creates the server on a listener; it answers no client yet. At most `connections` are open at a time. With
    /// `users`, only these are answered; with `tls`, only clients that complete the TLS handshake.
    pub fn on(
        listener: TcpListener,
        replicated: Replicated,
        users: Option<Users>,
        tls: Option<Arc<ServerTls>>,
        connections: usize,
    ) -> Self {
        let hub = Arc::new(Hub::new(Arc::new(replicated)));
        let connections = connections.min(CONNECTIONS_MAX);
        let (users, throttle, counts) = (users.map(Arc::new), Arc::default(), Arc::default());
        Self { listener, hub, users, throttle, counts, tls, connections }
    }

    /// Returns its metrics, for the registry of the given node.
    pub fn figures(&self, election: &str, node: &str) -> EtcdApiFigures {
        EtcdApiFigures {
            counts: Arc::clone(&self.counts),
            connections_max: self.connections,
            tls: self.tls.clone(),
            election: election.to_owned(),
            node: node.to_owned(),
        }
    }

    /// Serves clients; never returns. Dropping the future closes the server; answers in progress continue as long as
    /// the runtime.
    pub async fn serve(self) {
        let _handing_on = AbortOnDrop(tokio::spawn(Arc::clone(&self.hub).run()));
        let _looking = self.users.clone().map(|users| AbortOnDrop(tokio::spawn(users.look_again())));
        let idle = IdleConnections::new(Arc::new(Semaphore::new(self.connections)));
        let ended = Arc::<AtomicUsize>::default();
        let _giving_back = AbortOnDrop(tokio::spawn(give_back_memory(Arc::clone(&ended))));
        loop {
            let place = idle.place().await;
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let services = Arc::new(self.services(from, &idle));
                    idle.keep_at_most(UNPROVEN_CONNECTIONS_MAX);
                    let ended = Arc::clone(&ended);
                    let (tls, open) = (self.tls.clone(), self.counts.open());
                    tokio::spawn(async move {
                        if let Err(error) = connection(stream, services, tls).await {
                            debug!(%from, %error, "a client's connection ended");
                        }
                        drop((place, open));
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                }
                Err(error) => {
                    debug!(%error, "a client's connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn services(&self, from: SocketAddr, idle: &Arc<IdleConnections>) -> Services {
        Services {
            hub: Arc::clone(&self.hub),
            users: self.users.clone(),
            throttle: Arc::clone(&self.throttle),
            counts: Arc::clone(&self.counts),
            client: Client::new(from.ip(), &self.counts.budgets, idle.enter(from.ip())),
        }
    }
}

impl std::fmt::Debug for EtcdApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdApi").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// Returns memory to the system after many connections have ended: the allocator would keep it otherwise.
async fn give_back_memory(ended: Arc<AtomicUsize>) {
    let mut looks = interval(MEMORY_LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = 0;
    loop {
        looks.tick().await;
        let now = ended.load(Ordering::Relaxed);
        if now.wrapping_sub(before) >= ENDED_FOR_MEMORY {
            before = now;
            // This may take some milliseconds.
            let _ = tokio::task::spawn_blocking(free_memory::give_back).await;
        }
    }
}

async fn connection(
    stream: TcpStream,
    services: Arc<Services>,
    tls: Option<Arc<ServerTls>>,
) -> Result<(), Failed> {
    // Answers are small, and a client waits for each.
    stream.set_nodelay(true)?;
    let client = Arc::clone(&services.client);
    let answering = async {
        match tls {
            None => {
                timeout(HANDSHAKE_MAX, preface(&stream)).await??;
                answer(stream, services).await
            }
            Some(tls) => {
                let stream = timeout(HANDSHAKE_MAX, tls::accept(&tls, stream)).await??;
                answer(stream, services).await
            }
        }
    };
    tokio::select! {
        ended = answering => ended,
        () = client.evicted() => Err("closed to make room for another connection".into()),
        () = client.crowded() => Err("closed: it has more requests at once than the node has memory for".into()),
    }
}

/// Waits until a connection's preface has arrived, without reading it. A client that sends nothing must not take
/// another one's place.
async fn preface(stream: &TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; PREFACE_LENGTH];
    loop {
        match stream.peek(&mut bytes).await? {
            0 | PREFACE_LENGTH => return Ok(()),
            _ => tokio::time::sleep(PREFACE_LOOK).await,
        }
    }
}

pub(super) async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    services: Arc<Services>,
) -> Result<(), Failed> {
    let client = Arc::clone(&services.client);
    // A stream is counted when the library accepts it, not when its task first runs: the library holds it from then on.
    let service = hyper::service::service_fn(move |request| {
        let stream = services.client.begin_stream(services.users.is_some());
        route::answer(Arc::clone(&services), stream, request)
    });
    let mut server = http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PROBE_INTERVAL)
        .keep_alive_timeout(PROBE_PATIENCE);
    let pace = Pace::default();
    let stream = Paced::new(stream, pace.clone());
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    let mut looks = interval(READ_LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = paced(&pace, connection.as_mut()) => return Ok(ended?),
            _ = looks.tick() => {
                if client.does_not_read() {
                    return Err("the client does not read its answers".into());
                }
            }
            () = client.had_enough() => {
                connection.as_mut().graceful_shutdown();
                return Ok(timeout(GOODBYE_MAX, paced(&pace, connection)).await??);
            }
        }
    }
}
