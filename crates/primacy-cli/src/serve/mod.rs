//! The etcd API: a server that answers etcd's v3 API over the replicated map, for clients that know etcd.
//!
//! Requests and answers are etcd's to the letter, errors with their texts included, because its clients
//! decide by them. Other methods are answered with `Unimplemented`. Everything that a client may make grow
//! has a limit: [`REQUEST_BYTES_MAX`], [`OPERATIONS_MAX`], [`WATCHERS_MAX`], [`STREAMS_MAX`],
//! [`CONNECTIONS_MAX`], and all of it together the budgets in [`client`].
//!
//! A request takes this way: [`EtcdApi`] accepts its connection, [`route`] finds its method and checks its
//! token, one file for each of etcd's services answers it, and [`Backend`] does the work.

mod auth;
mod backend;
mod body;
mod budget;
mod client;
mod cluster;
mod convert;
mod election;
mod errors;
mod figures;
mod hub;
#[cfg(test)]
mod in_memory;
mod kv;
mod lease;
mod lock;
mod long_reads;
mod maintenance;
mod operation_count;
mod paced;
mod pass;
mod read_ahead;
mod recipe;
mod replicated;
mod route;
#[cfg(test)]
mod tests;
mod throttle;
mod tls;
mod turns;
mod watch;
mod watching;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use primacy::stores::etcd::api;
use primacy::transport::ServerTls;
use primacy_kv::command::{Answer, Operation, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::debug;

use self::backend::Freshness;
use self::client::Client;
use self::errors::Known;
use self::figures::Counts;
use self::hub::Hub;
use self::paced::{Pace, Paced, paced};
use self::throttle::Throttle;
use crate::idle_connections::IdleConnections;
use crate::memory;

pub(crate) use self::auth::{Users, open_users};
pub(crate) use self::backend::Backend;
pub(crate) use self::figures::EtcdApiFigures;
pub(crate) use self::replicated::{Replicated, Whereabouts};
pub(crate) use self::tls::GRPC;

/// The most bytes of a replicated request, with its wrapping.
const REQUEST_BYTES_MAX: usize = 3 << 19;

/// The most bytes of any message.
const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + (512 << 10);

/// The most operations in each list of a transaction.
const OPERATIONS_MAX: usize = 128;

/// The most watchers of one stream.
const WATCHERS_MAX: usize = 100_000;

/// The most requests and streams of one connection at a time.
const STREAMS_MAX: u32 = 1024;

/// The most connections. One more takes the place of one that has not shown a token yet, or waits until one
/// is closed.
const CONNECTIONS_MAX: usize = 8192;

/// The most connections that have not shown a token yet, or made a request where no token is required. Such a
/// connection may hold some 60 KiB that nothing else counts: of a handshake, or of the head of a request that
/// has no end.
const UNPROVEN_CONNECTIONS_MAX: usize = 2048;

/// After how many connections that have ended free memory is given back to the system, and how often it is looked.
const ENDED_FOR_MEMORY: usize = 256;
const MEMORY_LOOK: Duration = Duration::from_secs(30);

/// The most bytes of a stream, and of a connection, that may have come and were not looked at yet. The HTTP/2
/// library allows small frames among them by the latter: half as many bytes, and each small frame counts for
/// 256. So it is large enough for a stream whose window is full of the shortest messages. All streams are
/// read as they come, and what waits for its service is charged, see [`read_ahead`].
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 6 << 20;

/// The most bytes of the names and values in the head of a request.
const HEAD_BYTES_MAX: u32 = 16 << 10;

/// The time that a message may take to come once it was announced, and the same of requests without a token.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(30);
const OPEN_MESSAGE_PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of a message in a request without a token, where one is required.
const OPEN_MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The time that a client may take to send its first bytes, and for its TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The length of HTTP/2's preface, which is the same for all, and the interval at which it is checked whether it has
/// come.
const PREFACE_LENGTH: usize = 24;
const PREFACE_LOOK: Duration = Duration::from_millis(20);

/// The bytes of an answer that wait to be sent when the next part is asked for: none, so that a part stays
/// charged until it was sent.
const SEND_BUFFER: usize = 1;

/// The interval at which it is checked whether a client reads its answers.
const READ_LOOK: Duration = Duration::from_secs(5);

/// The time that a connection that is ended in order may take.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// The interval at which a silent client is probed, and the time that it may take to answer. A client whose
/// machine is gone takes its watches and its waits with it.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
const PROBE_PATIENCE: Duration = Duration::from_secs(20);

/// The pause before the next accept, where the system has refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The shared state by which all services answer the requests of one connection.
#[derive(Debug)]
struct Services {
    hub: Arc<Hub>,
    users: Option<Arc<Users>>,
    throttle: Arc<Throttle>,
    counts: Arc<Counts>,
    client: Arc<Client>,
}

impl Services {
    /// Of a connection from this machine, that may do everything.
    #[cfg(test)]
    fn on_loopback(hub: Arc<Hub>) -> Arc<Self> {
        let (counts, throttle) = (Arc::<Counts>::default(), Arc::default());
        let client = client::on_loopback(&counts.budgets);
        Arc::new(Self { hub, users: None, throttle, counts, client })
    }

    fn backend(&self) -> &dyn Backend {
        &*self.hub.backend
    }

    /// Does an operation that only reads: the answer, and the version of the map.
    ///
    /// # Errors
    /// Why it could not be read.
    async fn observe(&self, operation: Operation, freshness: Freshness) -> Result<(Version, Answer), Known> {
        long_reads::observe(&self.hub, &self.client.long_reads, operation, freshness).await
    }

    /// Returns the header of an answer that is of this version of the map.
    fn header(&self, version: Version) -> api::ResponseHeader {
        header(self.backend(), version)
    }

    /// The same of the version that the map has here.
    fn header_now(&self) -> api::ResponseHeader {
        self.header(self.backend().now())
    }
}

fn header(backend: &dyn Backend, version: Version) -> api::ResponseHeader {
    let vitals = backend.vitals();
    api::ResponseHeader {
        cluster_id: vitals.cluster,
        member_id: vitals.member,
        revision: convert::signed(version.0),
        raft_term: vitals.term,
    }
}

/// The server of the etcd API: accepts the connections of clients, and answers their requests.
pub(crate) struct EtcdApi {
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
    /// Listens, and answers no client yet. No more than `connections` are open at a time. With `users`, only
    /// these are answered; with `tls`, only clients whose handshake it accepts.
    pub(crate) fn on(
        listener: TcpListener,
        backend: Arc<dyn Backend>,
        users: Option<Users>,
        tls: Option<Arc<ServerTls>>,
        connections: usize,
    ) -> Self {
        let hub = Arc::new(Hub::new(backend));
        let connections = connections.min(CONNECTIONS_MAX);
        let (users, throttle, counts) = (users.map(Arc::new), Arc::default(), Arc::default());
        Self { listener, hub, users, throttle, counts, tls, connections }
    }

    /// Its metrics, for the registry of the node of this name.
    pub(crate) fn figures(&self, election: &str, node: &str) -> EtcdApiFigures {
        EtcdApiFigures {
            counts: Arc::clone(&self.counts),
            connections_max: self.connections,
            tls: self.tls.clone(),
            election: election.to_owned(),
            node: node.to_owned(),
        }
    }

    /// Answers clients; never returns. Dropping this closes the server; answers under way go on for as long as the
    /// runtime.
    pub(crate) async fn serve(self) {
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

/// Gives memory back to the system when many connections have ended: the allocator would keep what they had for good.
async fn give_back_memory(ended: Arc<AtomicUsize>) {
    let mut looks = interval(MEMORY_LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = 0;
    loop {
        looks.tick().await;
        let now = ended.load(Ordering::Relaxed);
        if now.wrapping_sub(before) >= ENDED_FOR_MEMORY {
            before = now;
            // It may take some milliseconds.
            let _ = tokio::task::spawn_blocking(memory::give_back_what_is_free).await;
        }
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

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

/// Waits for the preface of a connection, and leaves it there. A client that sends nothing shall not take the
/// place of another one.
async fn preface(stream: &TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; PREFACE_LENGTH];
    loop {
        match stream.peek(&mut bytes).await? {
            0 | PREFACE_LENGTH => return Ok(()),
            _ => tokio::time::sleep(PREFACE_LOOK).await,
        }
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    services: Arc<Services>,
) -> Result<(), Failed> {
    let client = Arc::clone(&services.client);
    // The stream is counted when it is accepted, not when its task first runs: the library holds it from then on.
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
