//! The clients' side: accepts connections, limits their number, and ends them in order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use primacy::config::LOG_PAUSE;
use primacy::fence::http::{FenceLayer, FenceService};
use primacy::idle_connections::{Busy, Evictable, IdleConnections};
use primacy::log_limit::LogLimit;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::body::Relay;
use super::event_log::{Event, EventLog};
use super::forward::Forward;
use super::tally::Tally;
use super::upstream::Upstream;
use super::{BUFFER_MAX, HEAD_MAX, HEADERS_MAX};
use crate::signals::Signals;

/// The time that a client may take to send the head of a request; also of the next one on the same
/// connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after the system has refused to accept a connection, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The server for the clients.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) layer: FenceLayer,
    pub(super) upstream: Arc<Upstream>,
    pub(super) idle: Duration,
    pub(super) drain: Duration,
    pub(super) connections: u32,
    pub(super) tally: Tally,
}

impl Server {
    /// Serves until a signal comes. Then waits until the requests in progress have ended, their time is over, or a
    /// second signal comes.
    pub(super) async fn run(self, listener: TcpListener, signals: &mut Signals, event_log: &EventLog) {
        let slots =
            Arc::new(Semaphore::new(usize::try_from(self.connections).unwrap_or(Semaphore::MAX_PERMITS)));
        let (ending, _) = watch::channel(false);
        let signal = tokio::select! {
            signal = signals.next() => signal,
            () = self.accept(&listener, &slots, &ending, event_log) => return,
        };
        event_log.tell(&Event::Draining { signal });
        drop(listener);
        ending.send_replace(true);
        // Every connection and every exchange holds a slot or shares one.
        let all_ended = tokio::time::timeout(self.drain, slots.acquire_many(self.connections));
        tokio::select! {
            _ = all_ended => {}
            _ = signals.next() => {}
        }
    }

    /// Accepts clients without end.
    async fn accept(
        &self,
        listener: &TcpListener,
        slots: &Arc<Semaphore>,
        ending: &watch::Sender<bool>,
        event_log: &EventLog,
    ) {
        let (idle, refused) = (IdleConnections::new(Arc::clone(slots)), LogLimit::default());
        loop {
            let slot = idle.place().await;
            match listener.accept().await {
                Ok((stream, client)) => {
                    let idle = idle.enter(client.ip());
                    tokio::spawn(self.connection(stream, client, (slot, idle), ending.subscribe()));
                }
                // The client has closed the connection already.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if let Some(held_back) = refused.due(LOG_PAUSE) {
                        event_log.tell(&Event::NotAccepting { reason: error.to_string(), held_back });
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves one client's connection to its end.
    fn connection(
        &self,
        stream: TcpStream,
        client: SocketAddr,
        (slot, idle): (OwnedSemaphorePermit, Evictable),
        mut ending: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        prepare(&stream, self.idle);
        let service = self.layer.layer(Forward {
            upstream: Arc::clone(&self.upstream),
            idle: self.idle,
            client: client.ip(),
            slot: Arc::new(slot),
        });
        let (tally, idle) = (self.tally.clone(), Arc::new(idle));
        let evicted = Arc::clone(&idle);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (mut service, tally) = (service.clone(), tally.clone());
            request.extensions_mut().insert(Arc::new(Busy::with(&idle)));
            async move { serve(&mut service, request, &tally).await }
        });
        let mut builder = Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(BUFFER_MAX)
            .max_header_size(HEAD_MAX)
            .max_headers(HEADERS_MAX);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        async move {
            let mut connection = pin!(connection);
            tokio::select! {
                // A client's error on its connection concerns no other client.
                _ = connection.as_mut() => return,
                () = evicted.evicted() => return,
                _ = ending.wait_for(|ending| *ending) => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Configures a client's socket: small parts are sent at once, and the kernel disconnects a client that does not take
/// the bytes sent to it.
fn prepare(stream: &TcpStream, idle: Duration) {
    // If the connection has ended already, the next read shows it.
    let _ = stream.set_nodelay(true);
    let _ = set_tcp_user_timeout(stream, u32::try_from(idle.as_millis()).unwrap_or(u32::MAX));
}

async fn serve(
    service: &mut FenceService<Forward>,
    request: Request<Incoming>,
    tally: &Tally,
) -> Result<Response<Relay>, Infallible> {
    let response = service.call(request).await?;
    tally.count(&response);
    Ok(response)
}
