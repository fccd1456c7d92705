//! `--metrics ADDR`: figures over HTTP, for Prometheus and for load balancers.
//!
//! Everything here is read only and says nothing secret, but who may read it is whoever reaches the address; so a port
//! alone means the loopback interface.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use primacy::core::membership::TooFewMembers;
use primacy::metrics::{self, prometheus_client::registry::Registry};
use primacy::status::{Status, View};
use primacy::{Elector, clock};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::exit::{Exit, Failure};
use crate::idle_connections::{Busy, IdleConnections};

/// How many may be connected at a time. One more takes the place of the one that has asked nothing for longest.
const CONNECTIONS_MAX: usize = 32;
/// How long a client may take for the head of a request, or say nothing.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// How long a connection may last.
const CONNECTION_TIME: Duration = Duration::from_secs(300);
/// The largest head of a request; the least that HTTP/1 here can do with.
const HEADER_LENGTH_MAX: usize = 8192;
/// How long the election may take to answer before it counts as hanging.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// How long to wait when the system has no descriptor for the next connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The address, taken.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
}

impl Server {
    /// Takes the address, before anything is begun.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = bound.map_err(|error| {
            let message =
                format!("--metrics {address}: {error}; stop what listens there, or name another address");
            Failure::new(Exit::Unavailable, message)
        })?;
        Ok(Self { listener })
    }

    /// Where it listens, with the port that the system chose where none was given.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves these figures for ever, and the elector's word on who leads where there is one.
    pub(crate) async fn serve(self, registry: Registry, elector: Option<Elector>) {
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "figures cannot be served"),
        };
        let (registry, room) = (Arc::new(registry), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        let idle = IdleConnections::new(room);
        loop {
            let place = idle.place().await;
            let (stream, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "no connection for figures could be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (registry, elector) = (Arc::clone(&registry), elector.clone());
            let connection = Arc::new(idle.enter(from.ip()));
            tokio::spawn(async move {
                let answer = service_fn(async |request| {
                    let _busy = Busy::with(&connection);
                    answer(request, &registry, elector.as_ref()).await
                });
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIME)
                    .max_buf_size(HEADER_LENGTH_MAX);
                tokio::select! {
                    // A client that breaks off is its own affair.
                    _ = timeout(CONNECTION_TIME, http.serve_connection(TokioIo::new(stream), answer)) => {}
                    () = connection.evicted() => {}
                }
                drop(place);
            });
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    registry: &Registry,
    elector: Option<&Elector>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    let (paths, there): (&[&str], _) = match elector {
        Some(_) => (&["/metrics", "/leader", "/healthz"], "there are /metrics, /leader and /healthz\n"),
        None => (&["/metrics"], "there is /metrics\n"),
    };
    if !paths.contains(&path) {
        return Ok(plain(StatusCode::NOT_FOUND, there.to_owned()));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    let Some(elector) = elector.filter(|_| path != "/metrics") else {
        let mut figures = plain(StatusCode::OK, metrics::text(registry));
        figures.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
        return Ok(figures);
    };
    let status = match timeout(ANSWER_TIME, elector.status()).await {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))),
        Err(_) => {
            let text = format!("the election has not answered within {ANSWER_TIME:?}\n");
            return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, text));
        }
    };
    if path == "/healthz" {
        return Ok(plain(StatusCode::OK, "the election answers\n".to_owned()));
    }
    // Where nobody has asked for more than one member, a leader that was confirmed may lead outside a cluster.
    let is_enough = |too_few: &TooFewMembers| too_few.minimum <= 1 && is_fenced(&status);
    if let Err(too_few) = elector.check_members()
        && !is_enough(&too_few)
    {
        return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, format!("{too_few}\n")));
    }
    let lead = status.lead.filter(|lead| lead.ending.is_none() && clock::now() < lead.valid_until);
    Ok(match (lead, status.leader) {
        (Some(lead), _) => plain(StatusCode::OK, format!("leads with {}\n", lead.number())),
        (None, Some(leader)) => {
            let text = format!("does not lead; {} does, as far as this node knows\n", leader.identity.node);
            plain(StatusCode::SERVICE_UNAVAILABLE, text)
        }
        (None, None) => plain(StatusCode::SERVICE_UNAVAILABLE, "no leader is known\n".to_owned()),
    })
}

/// Whether leaders of this election have a token.
fn is_fenced(status: &Status) -> bool {
    match &status.view {
        View::Peers(view) => view.by.is_fenced(),
        View::Store(_) | View::Sessions(_) => true,
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
