//! The door: a server that answers etcd's v3 API over the replicated map, for clients that know etcd.
//!
//! What is asked and answered is etcd's to the letter, errors with their texts included, because its clients decide by them.
//! What is not served is answered with `Unimplemented`. Everything that a client may make grow has a limit: [`REQUEST_BYTES_MAX`],
//! [`OPERATIONS_MAX`], [`WATCHERS_MAX`], [`STREAMS_MAX`], [`CONNECTIONS_MAX`].
//!
//! A request takes this way: [`Door`] accepts its connection, [`route`] finds out what it asks for and whether it may, one file
//! for each of etcd's services answers it, and [`Backend`] does what it says.

mod auth;
mod backend;
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
mod maintenance;
mod recipe;
mod replicated;
mod route;
#[cfg(test)]
mod tests;
mod tls;
mod watch;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use primacy::stores::etcd::api;
use primacy::transport::ServerTls;
use primacy_core::metadata::command::Version;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::debug;

use self::figures::Counts;
use self::hub::Hub;

pub(crate) use self::auth::{Users, read_users};
pub(crate) use self::backend::Backend;
pub(crate) use self::figures::DoorFigures;
pub(crate) use self::replicated::{Replicated, Whereabouts};
pub(crate) use self::tls::GRPC;

/// How many bytes a request that is replicated may have, with what it is wrapped in.
const REQUEST_BYTES_MAX: usize = 3 << 19;

/// How many bytes a message may have at all.
const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + (512 << 10);

/// How many operations each list of a transaction may have.
const OPERATIONS_MAX: usize = 128;

/// How many watchers one stream may have.
const WATCHERS_MAX: usize = 100_000;

/// How many requests and streams one connection may have at a time.
const STREAMS_MAX: u32 = 65_536;

/// How many connections there may be. More wait until one is closed.
const CONNECTIONS_MAX: usize = 65_536;

/// How long a client may take to say its first words, and to show itself with TLS.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How many bytes HTTP/2 begins with, which are the same for all, and how often it is looked whether they have come.
const PREFACE_LENGTH: usize = 24;
const PREFACE_LOOK: Duration = Duration::from_millis(20);

/// How many bytes of answers wait in a stream for a client to read them, before no more are made.
const SEND_BUFFER: usize = 64 << 10;

/// How often a client that says nothing is asked whether it is there, and how long it may take to answer. A client whose machine
/// is gone takes its watches and what it waits for with it.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
const PROBE_PATIENCE: Duration = Duration::from_secs(20);

/// How long the door waits before it accepts again, where the system would not let it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all services need.
#[derive(Debug)]
struct Services {
    hub: Arc<Hub>,
    users: Option<Users>,
    counts: Arc<Counts>,
}

impl Services {
    fn backend(&self) -> &dyn Backend {
        &*self.hub.backend
    }

    /// What stands at the top of an answer that is of this version of the map.
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

/// Where clients come in.
pub(crate) struct Door {
    listener: TcpListener,
    services: Arc<Services>,
    tls: Option<Arc<ServerTls>>,
    /// How many connections there may be.
    connections: usize,
}

impl Door {
    /// Listens, and answers nobody yet. No more than so many connections are open at a time. With `users`, only they are answered; with `tls`, only who shows itself as that asks.
    pub(crate) fn on(
        listener: TcpListener,
        backend: Arc<dyn Backend>,
        users: Option<Users>,
        tls: Option<Arc<ServerTls>>,
        connections: usize,
    ) -> Self {
        let hub = Arc::new(Hub::new(backend));
        let connections = connections.min(CONNECTIONS_MAX);
        let services = Services { hub, users, counts: Arc::default() };
        Self { listener, services: Arc::new(services), tls, connections }
    }

    /// Its figures, for the registry of the node of this name.
    pub(crate) fn figures(&self, election: &str, node: &str) -> DoorFigures {
        DoorFigures {
            counts: Arc::clone(&self.services.counts),
            connections_max: self.connections,
            tls: self.tls.clone(),
            election: election.to_owned(),
            node: node.to_owned(),
        }
    }

    /// Answers, for ever. Dropping this closes the door; what is being answered goes on for as long as the runtime.
    pub(crate) async fn serve(self) {
        let _handing_on = AbortOnDrop(tokio::spawn(Arc::clone(&self.services.hub).run()));
        let room = Arc::new(Semaphore::new(self.connections));
        loop {
            let place = Arc::clone(&room).acquire_owned().await.expect("it is never closed");
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let (services, tls) = (Arc::clone(&self.services), self.tls.clone());
                    let open = services.counts.open();
                    tokio::spawn(async move {
                        if let Err(error) = connection(stream, services, tls).await {
                            debug!(%from, %error, "a client's connection ended");
                        }
                        drop((place, open));
                    });
                }
                Err(error) => {
                    debug!(%error, "a client's connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("listener", &self.listener).finish_non_exhaustive()
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
    // Answers are small, and somebody waits for each.
    stream.set_nodelay(true)?;
    match tls {
        None => {
            tokio::time::timeout(HANDSHAKE_MAX, preface(&stream)).await??;
            answer(stream, services).await
        }
        Some(tls) => {
            let stream = tokio::time::timeout(HANDSHAKE_MAX, tls::accept(&tls, stream)).await??;
            answer(stream, services).await
        }
    }
}

/// Waits for what a connection begins with, and leaves it there. Whoever says nothing shall not take the place of another one.
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
    let service = hyper::service::service_fn(move |request| route::answer(Arc::clone(&services), request));
    let mut server = http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PROBE_INTERVAL)
        .keep_alive_timeout(PROBE_PATIENCE);
    Ok(server.serve_connection(TokioIo::new(stream), service).await?)
}
