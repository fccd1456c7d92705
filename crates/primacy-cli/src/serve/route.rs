//! From the path of a request to who answers it.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use hyper::body::Incoming;
use primacy::stores::etcd::api::method;
use prost::Message;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::errors::{Known, not_served};
use super::figures::Counts;
use super::{MESSAGE_BYTES_MAX, Services, auth, cluster, election, kv, lease, lock, maintenance, watch};

/// The metadata with which a client asks to be told when there is no leader, instead of waiting.
const HAS_LEADER: &str = "hasleader";

type HttpRequest = http::Request<Incoming>;
type HttpResponse = http::Response<Body>;

/// Answers a request.
pub(super) async fn answer(
    services: Arc<Services>,
    request: HttpRequest,
) -> Result<HttpResponse, Infallible> {
    let (counts, asked) = (Arc::clone(&services.counts), Counts::method(request.uri().path()));
    let mut response = match admit(&services, &request) {
        Ok(()) => dispatch(services, request).await,
        Err(status) => status.into_http(),
    };
    let headers = response.headers_mut();
    if let Some(text) = headers.get("grpc-message").and_then(too_long) {
        headers.insert("grpc-status", HeaderValue::from_static("8"));
        headers.insert("grpc-message", text);
    }
    counts.answered(asked, headers);
    Ok(response)
}

/// What etcd's own library says to a message that is too long, in place of what this one says.
fn too_long(said: &HeaderValue) -> Option<HeaderValue> {
    let said = percent_free(said.to_str().ok()?);
    let rest = said.strip_prefix("Error, decoded message length too large: found ")?;
    let found = rest.split(' ').next()?;
    let text = format!("grpc: received message larger than max ({found} vs. {MESSAGE_BYTES_MAX})");
    HeaderValue::from_str(&text).ok()
}

/// Spaces are the only thing in the text that is looked for that may be written with a percent sign.
fn percent_free(text: &str) -> String {
    text.replace("%20", " ")
}

/// Whether the request may be answered at all.
fn admit(services: &Services, request: &HttpRequest) -> Result<(), Status> {
    if wants_leader(request.headers()) && !services.hub.may_have_leader() {
        return Err(Known::NO_LEADER.into());
    }
    let path = request.uri().path();
    // A watch that may not be is told so in its stream, as etcd does it.
    if path == method::WATCH || auth::is_open(path) {
        return Ok(());
    }
    match &services.users {
        None => Ok(()),
        Some(users) => users.check(request.headers()).map_err(Status::from),
    }
}

/// Whether the client asks to be told when there is no leader.
fn wants_leader(headers: &HeaderMap) -> bool {
    headers.get(HAS_LEADER).is_some_and(|value| value.as_bytes() == b"true")
}

async fn dispatch(services: Arc<Services>, request: HttpRequest) -> HttpResponse {
    let path = request.uri().path();
    match path {
        method::PUT => unary(request, |put| kv::put(services, put)).await,
        method::RANGE => unary(request, |range| kv::range(services, range)).await,
        method::TXN => unary(request, |txn| kv::txn(services, txn)).await,
        method::DELETE_RANGE => unary(request, |range| kv::delete_range(services, range)).await,
        method::COMPACT => unary(request, |compaction| kv::compact(services, compaction)).await,
        method::LEASE_KEEP_ALIVE => {
            let wants_leader = wants_leader(request.headers());
            streaming(request, |sessions| lease::keep_alive(services, sessions, wants_leader)).await
        }
        method::LEASE_GRANT => unary(request, |grant| lease::grant(services, grant)).await,
        method::LEASE_REVOKE => unary(request, |revoke| lease::revoke(services, revoke)).await,
        method::LEASE_TIME_TO_LIVE => unary(request, |session| lease::time_to_live(services, session)).await,
        method::LEASE_LEASES => unary(request, |all| lease::leases(services, all)).await,
        method::WATCH => {
            let wants_leader = wants_leader(request.headers());
            let refusal = services.users.as_ref().and_then(|users| users.check(request.headers()).err());
            streaming(request, |wishes| watch::watch(services, wishes, wants_leader, refusal)).await
        }
        method::CAMPAIGN => unary(request, |campaign| election::campaign(services, campaign)).await,
        method::PROCLAIM => unary(request, |proclaim| election::proclaim(services, proclaim)).await,
        method::LEADER => unary(request, |leader| election::leader(services, leader)).await,
        method::OBSERVE => {
            let wants_leader = wants_leader(request.headers());
            server_streaming(request, |leader| election::observe(services, leader, wants_leader)).await
        }
        method::RESIGN => unary(request, |resign| election::resign(services, resign)).await,
        method::LOCK => unary(request, |take| lock::lock(services, take)).await,
        method::UNLOCK => unary(request, |give| lock::unlock(services, give)).await,
        method::STATUS => unary(request, |ask| maintenance::status(services, ask)).await,
        method::ALARM => unary(request, |ask| maintenance::alarm(services, ask)).await,
        method::MEMBER_LIST => unary(request, |ask| cluster::member_list(services, ask)).await,
        method::AUTHENTICATE => unary(request, |login| auth::authenticate(services, login)).await,
        unknown => not_served(unknown).into_http(),
    }
}

/// A function that is called once, as one of the services that the library wants.
struct Once<F>(Option<F>);

impl<F> Once<F> {
    fn of(function: F) -> Self {
        Self(Some(function))
    }

    fn take(&mut self) -> F {
        self.0.take().expect("it is called once")
    }
}

impl<Q, A, F, T> UnaryService<Q> for Once<F>
where
    F: FnOnce(Q) -> T,
    T: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answering = (self.take())(request.into_inner());
        Box::pin(async move { answering.await.map(Response::new) })
    }
}

impl<Q, A, F, S> ServerStreamingService<Q> for Once<F>
where
    F: FnOnce(Q) -> S,
    S: Stream<Item = Result<A, Status>>,
{
    type Response = A;
    type ResponseStream = S;
    type Future = Ready<Result<Response<S>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        ready(Ok(Response::new((self.take())(request.into_inner()))))
    }
}

impl<Q, A, F, S> StreamingService<Q> for Once<F>
where
    F: FnOnce(Streaming<Q>) -> S,
    S: Stream<Item = Result<A, Status>>,
{
    type Response = A;
    type ResponseStream = S;
    type Future = Ready<Result<Response<S>, Status>>;

    fn call(&mut self, request: Request<Streaming<Q>>) -> Self::Future {
        ready(Ok(Response::new((self.take())(request.into_inner()))))
    }
}

fn grpc<Q, A>() -> Grpc<ProstCodec<A, Q>>
where
    Q: Message + Default + 'static,
    A: Message + 'static,
{
    // What is answered may be longer than what is asked: as much as there is.
    Grpc::new(ProstCodec::default())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(usize::MAX)
}

/// One question, one answer.
async fn unary<Q, A, F, T>(request: HttpRequest, answer: F) -> HttpResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnOnce(Q) -> T,
    T: Future<Output = Result<A, Status>> + Send + 'static,
{
    grpc().unary(Once::of(answer), request).await
}

/// One question, many answers.
async fn server_streaming<Q, A, F, S>(request: HttpRequest, answer: F) -> HttpResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnOnce(Q) -> S,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
{
    grpc().server_streaming(Once::of(answer), request).await
}

/// Many questions, many answers.
async fn streaming<Q, A, F, S>(request: HttpRequest, answer: F) -> HttpResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnOnce(Streaming<Q>) -> S + Send,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
{
    grpc().streaming(Once::of(answer), request).await
}
