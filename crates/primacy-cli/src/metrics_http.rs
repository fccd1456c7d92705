//! `--metrics ADDR`: metrics over HTTP, for Prometheus and for load balancers.
//!
//! All pages are read-only and contain no secret, but any client that reaches the address can read them; so a port
//! alone means the loopback interface.
//!
//! There is no login, so no client may cost the lead anything. The server has its own thread, renders the metrics a few
//! times a second at the most, and answers and accepts at a bounded rate. A connection has one request at a time, and
//! waiting requests are answered in the order in which they came. So a client that sends requests without a pause
//! delays others by one turn for each of its connections.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use primacy::core::membership::TooFewMembers;
use primacy::idle_connections::{Busy, IdleConnections};
use primacy::metrics::{self, prometheus_client::registry::Registry};
use primacy::status::{Status, View};
use primacy::{Elector, clock};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::exit::{Exit, Failure};
use crate::fair_pace::{FairPace, Pace};

/// The name of the server's thread.
const THREAD: &str = "primacy-figures";
/// The most connections at a time. A further connection replaces the one that has been idle for longest.
const CONNECTIONS_MAX: usize = 32;
/// The time that a client may take for the head of a request, or send nothing.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// The longest time that a connection may last.
const CONNECTION_TIME: Duration = Duration::from_secs(300);
/// The largest head of a request; the HTTP library accepts no smaller bound.
const HEADER_LENGTH_MAX: usize = 8192;
/// The time that the election may take to answer before it counts as hanging.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// The pace of rendering the metrics: at once, and each second beyond that. Further requests are answered with the last
/// text.
const RENDERINGS: (u32, u32) = (20, 4);
/// The pace of answering requests, and of accepting connections. Further ones wait. While all places are taken, a
/// connection whose request waits for its turn is closed after as many other connections were accepted; every waiting
/// request is answered before that.
const REQUESTS: (u32, u32) = (100, 400);
const ACCEPTS: (u32, u32) = (16, 100);
/// The pause when the system has no descriptor for the next connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The bound address, before it is served.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
}

impl Server {
    /// Binds the address, before anything is started.
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

    /// Returns the address that it listens on, with the port that the system chose if none was given.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves these metrics until the returned value is dropped. If there is an elector, serves its view of the leader,
    /// too.
    pub(crate) fn serve(self, registry: Registry, elector: Option<Elector>) -> std::io::Result<Serving> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(THREAD)
            .enable_all()
            .build()?;
        let listener = {
            let _within = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener)?
        };
        let rendered = Mutex::new((Pace::new(RENDERINGS), Bytes::new()));
        let source = Source { registry, rendered, elector, requests: FairPace::new(REQUESTS) };
        runtime.spawn(accept(listener, Arc::new(source)));
        Ok(Serving { runtime: Some(runtime) })
    }
}

/// The thread of a server. Dropping it closes the server.
#[derive(Debug)]
pub(crate) struct Serving {
    runtime: Option<Runtime>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The source of the answers.
#[derive(Debug)]
struct Source {
    registry: Registry,
    /// The pace of renderings, and the last text.
    rendered: Mutex<(Pace, Bytes)>,
    elector: Option<Elector>,
    requests: FairPace,
}

impl Source {
    /// Returns the metrics, rendered now unless that was done too often.
    fn text(&self) -> Bytes {
        let (pace, text) = &mut *self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        if pace.try_turn() {
            *text = Bytes::from(metrics::text(&self.registry));
        }
        text.clone()
    }
}

async fn accept(listener: tokio::net::TcpListener, source: Arc<Source>) {
    let idle = IdleConnections::new(Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let accepts = FairPace::new(ACCEPTS);
    loop {
        accepts.turn().await;
        let place = idle.place().await;
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "no connection for figures could be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let source = Arc::clone(&source);
        let connection = Arc::new(idle.enter(from.ip()));
        tokio::spawn(async move {
            let answer = service_fn(async |request| {
                source.requests.turn().await;
                let _busy = Busy::with(&connection);
                answer(request, &source).await
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(HEADER_LENGTH_MAX);
            tokio::select! {
                // A client may close its connection at any time.
                _ = timeout(CONNECTION_TIME, http.serve_connection(TokioIo::new(stream), answer)) => {}
                () = connection.evicted() => {}
            }
            drop(place);
        });
    }
}

async fn answer(request: Request<Incoming>, source: &Source) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    let (paths, there): (&[&str], _) = match &source.elector {
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
    let Some(elector) = source.elector.as_ref().filter(|_| path != "/metrics") else {
        let mut figures = plain(StatusCode::OK, source.text());
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
    // If no operator has set a minimum of more than one member, a confirmed leader may lead outside a cluster.
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

/// Returns whether leaders of this election have a token.
fn is_fenced(status: &Status) -> bool {
    match &status.view {
        View::Peers(view) => view.kind.is_fenced(),
        View::Store(_) | View::Sessions(_) => true,
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use primacy::metrics::prometheus_client::collector::Collector;
    use primacy::metrics::prometheus_client::encoding::DescriptorEncoder;

    use super::*;

    /// Metrics that record the thread that renders them.
    #[derive(Clone, Debug, Default)]
    struct Renderings(Arc<Mutex<Vec<Option<String>>>>);

    impl Collector for Renderings {
        fn encode(&self, _: DescriptorEncoder<'_>) -> std::fmt::Result {
            self.0.lock().unwrap().push(std::thread::current().name().map(str::to_owned));
            Ok(())
        }
    }

    #[test]
    fn a_client_that_asks_without_a_pause_costs_the_thread_of_the_lead_nothing() {
        const ASKED: usize = 200;
        let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (address, renderings) = (server.address().unwrap(), Renderings::default());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(renderings.clone()));
        let _serving = server.serve(registry, None).unwrap();
        let began = std::time::Instant::now();
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let last = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let flood = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(ASKED - 1) + last;
        client.write_all(flood.as_bytes()).unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        let took = began.elapsed();
        assert_eq!(answers.matches("HTTP/1.1 200 ").count(), ASKED, "all are answered");
        // At most as many as the elapsed time allows.
        let rendered = renderings.0.lock().unwrap();
        let most = f64::from(RENDERINGS.0) + took.as_secs_f64() * f64::from(RENDERINGS.1) + 1.0;
        assert!(rendered.len() < ASKED && rendered.len() as f64 <= most, "{} in {took:?}", rendered.len());
        assert!(rendered.iter().all(|thread| thread.as_deref() == Some(THREAD)), "{rendered:?}");
    }
}
