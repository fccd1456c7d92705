//! Routes a request from its path to its service.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::Incoming;
use primacy::stores::etcd::api::method;
use prost::Message;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codec::Codec;
use tonic::server::{Grpc, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::body::{AnswerBody, Due, RequestBody};
use super::budget::Charge;
use super::client::{Client, OpenStream};
use super::errors::{Known, not_served};
use super::figures::Counts;
use super::limits::{MESSAGE_BYTES_MAX, MESSAGE_PATIENCE, OPEN_MESSAGE_BYTES_MAX, OPEN_MESSAGE_PATIENCE};
use super::operation_count::TxnCodec;
use super::pass::{Messages, Pass, WhileGood, while_good};
use super::read_ahead::ReadAhead;
use super::services::Services;
use super::{auth, cluster, election, kv, lease, lock, maintenance, users, watch};

/// The metadata by which a client requires a leader, instead of waiting for one.
const HAS_LEADER: &str = "hasleader";

/// The header with the compression of messages.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

type HttpRequest = http::Request<RequestBody<Incoming>>;
type HttpResponse = http::Response<Body>;

/// A request that was admitted.
struct Admitted {
    /// The charge of its stream and its messages.
    charge: Arc<Charge>,
    wants_leader: bool,
    /// The token that it has presented; `None` if none is required.
    pass: Option<Pass>,
    /// The refusal of everything in the stream, if there is one: a watch without permission is refused within its
    /// stream, as in etcd.
    refusal: Option<Known>,
    /// True if it has no token although one is required.
    is_open: bool,
    /// True if it is a login.
    is_login: bool,
}

/// Answers a request.
pub(super) async fn answer(
    services: Arc<Services>,
    stream: Option<OpenStream>,
    request: http::Request<Incoming>,
) -> Result<http::Response<AnswerBody>, Infallible> {
    let (counts, asked) = (Arc::clone(&services.counts), Counts::method(request.uri().path()));
    let client = Arc::clone(&services.client);
    let admitted = match stream {
        Some(_) => admit(&services, &request),
        None => Err(Known::TOO_MANY_REQUESTS.into()),
    };
    let (mut response, charge) = match admitted {
        Ok(admitted) => {
            let answering = dispatch(services, admitted.receive(request), &admitted);
            match admitted.is_login {
                false => (answering.await, Some(Arc::clone(&admitted.charge))),
                // The charge of a login is returned before its answer is read; otherwise unread answers would keep
                // other clients from logging in.
                true => (client.log_in(answering).await.unwrap_or_else(refused), None),
            }
        }
        Err(status) => (status.into_http(), None),
    };
    let answer = response.extensions_mut().remove::<Arc<Charge>>();
    let headers = response.headers_mut();
    if let Some(text) = headers.get("grpc-message").and_then(too_long) {
        headers.insert("grpc-status", HeaderValue::from_static("8"));
        headers.insert("grpc-message", text);
    }
    counts.answered(asked, headers);
    Ok(response.map(|body| AnswerBody::new(body, client, (stream, charge), answer)))
}

fn refused(known: Known) -> HttpResponse {
    Status::from(known).into_http()
}

/// Replaces the library's text for a message that is too long by that of etcd's own library.
fn too_long(said: &HeaderValue) -> Option<HeaderValue> {
    let said = percent_free(said.to_str().ok()?);
    let rest = said.strip_prefix("Error, decoded message length too large: found ")?;
    let found = rest.split(' ').next()?;
    let text = format!("grpc: received message larger than max ({found} vs. {MESSAGE_BYTES_MAX})");
    HeaderValue::from_str(&text).ok()
}

/// Decodes spaces, the only characters in the expected text that may be percent-encoded.
fn percent_free(text: &str) -> String {
    text.replace("%20", " ")
}

/// Decides whether a request is answered.
fn admit(services: &Services, request: &http::Request<Incoming>) -> Result<Admitted, Status> {
    let (path, wants_leader) = (request.uri().path(), wants_leader(request.headers()));
    if wants_leader && !services.hub.may_have_leader() {
        return Err(Known::NO_LEADER.into());
    }
    let pass = services.users.as_ref().map(|users| {
        let secret = services.backend().secret();
        Pass::of(users, secret.as_ref(), request.headers())
    });
    let (pass, refusal, is_open) = match pass.transpose() {
        Ok(pass) => (pass, None, false),
        Err(_) if users::is_open(path) => (None, None, true),
        Err(known) if path == method::WATCH => (None, Some(known), true),
        Err(known) => {
            services.client.note_open();
            return Err(known.into());
        }
    };
    let is_login = is_open && path == method::AUTHENTICATE;
    let charge = match (is_open, is_login) {
        (_, true) => services.client.begin_login(),
        (true, false) => services.client.begin_open(),
        (false, false) => services.client.begin_admitted(),
    }?;
    Ok(Admitted { charge: Arc::new(charge), wants_leader, pass, refusal, is_open, is_login })
}

impl Admitted {
    /// Wraps the request, so that its messages are charged and limited. Only the parts of its head that the library
    /// reads are kept.
    fn receive(&self, request: http::Request<Incoming>) -> HttpRequest {
        let (mut head, body) = request.into_parts();
        let encoding = head.headers.remove(ENCODING);
        head.headers = encoding.map(|encoding| (ENCODING, encoding)).into_iter().collect();
        let (message_max, patience) = match self.is_open {
            true => (OPEN_MESSAGE_BYTES_MAX, OPEN_MESSAGE_PATIENCE),
            false => (MESSAGE_BYTES_MAX, MESSAGE_PATIENCE),
        };
        let is_stream = [method::WATCH, method::LEASE_KEEP_ALIVE].contains(&head.uri.path());
        let due = match (is_stream, self.is_open) {
            (false, _) => Due::End,
            (true, true) => Due::Message,
            // A client with a token may open a stream before it has anything to send.
            (true, false) => Due::Nothing,
        };
        let body = RequestBody::new(body, Arc::clone(&self.charge), message_max, patience, due);
        http::Request::from_parts(head, body)
    }
}

/// Returns whether the client requires a leader.
fn wants_leader(headers: &HeaderMap) -> bool {
    headers.get(HAS_LEADER).is_some_and(|value| value.as_bytes() == b"true")
}

async fn dispatch(services: Arc<Services>, request: HttpRequest, admitted: &Admitted) -> HttpResponse {
    let (wants_leader, refusal) = (admitted.wants_leader, admitted.refusal);
    let client = &Arc::clone(&services.client);
    let (path, pass) = (request.uri().path(), admitted.pass.clone());
    match path {
        method::PUT => unary(client, request, |put| kv::put(services, put)).await,
        method::RANGE => unary(client, request, |range| kv::range(services, range)).await,
        method::TXN => {
            let answering = Once::charged_to(client, request.uri().path(), |txn| kv::txn(services, txn));
            grpc(TxnCodec::default()).unary(answering, request).await
        }
        method::DELETE_RANGE => unary(client, request, |range| kv::delete_range(services, range)).await,
        method::COMPACT => unary(client, request, |compaction| kv::compact(services, compaction)).await,
        method::LEASE_KEEP_ALIVE => {
            streaming(admitted, request, |sessions| lease::keep_alive(services, sessions, wants_leader)).await
        }
        method::LEASE_GRANT => unary(client, request, |grant| lease::grant(services, grant)).await,
        method::LEASE_REVOKE => unary(client, request, |revoke| lease::revoke(services, revoke)).await,
        method::LEASE_TIME_TO_LIVE => {
            unary(client, request, |session| lease::time_to_live(services, session)).await
        }
        method::LEASE_LEASES => unary(client, request, |all| lease::leases(services, all)).await,
        method::WATCH => {
            streaming(admitted, request, |wishes| watch::watch(services, wishes, wants_leader, refusal)).await
        }
        method::CAMPAIGN => {
            let campaign = |campaign| while_good(pass, election::campaign(services, campaign));
            unary(client, request, campaign).await
        }
        method::PROCLAIM => unary(client, request, |proclaim| election::proclaim(services, proclaim)).await,
        method::LEADER => unary(client, request, |leader| election::leader(services, leader)).await,
        method::OBSERVE => {
            server_streaming(admitted, request, |leader| election::observe(services, leader, wants_leader))
                .await
        }
        method::RESIGN => unary(client, request, |resign| election::resign(services, resign)).await,
        method::LOCK => unary(client, request, |take| while_good(pass, lock::lock(services, take))).await,
        method::UNLOCK => unary(client, request, |give| lock::unlock(services, give)).await,
        method::STATUS => unary(client, request, |ask| maintenance::status(services, ask)).await,
        method::ALARM => unary(client, request, |ask| maintenance::alarm(services, ask)).await,
        method::MEMBER_LIST => unary(client, request, |ask| cluster::member_list(services, ask)).await,
        method::AUTHENTICATE => unary(client, request, |login| auth::authenticate(services, login)).await,
        unknown => not_served(unknown).into_http(),
    }
}

/// A function that is called once, as a service for the library.
struct Once<F> {
    function: Option<F>,
    /// The client to which its answer is charged, and the error if that does not fit.
    charged: Option<(Arc<Client>, Known)>,
}

impl<F> Once<F> {
    fn of(function: F) -> Self {
        Self { function: Some(function), charged: None }
    }

    fn charged_to(client: &Arc<Client>, path: &str, function: F) -> Self {
        // A write was done by then, so it must not be reported as refused.
        let refusal = if only_reads(path) { Known::TOO_MANY_REQUESTS } else { Known::ANSWER_LOST };
        Self { function: Some(function), charged: Some((Arc::clone(client), refusal)) }
    }

    fn take(&mut self) -> F {
        self.function.take().expect("it is called once")
    }
}

impl<Q, A, F, T> UnaryService<Q> for Once<F>
where
    F: FnOnce(Q) -> T,
    T: Future<Output = Result<A, Status>> + Send + 'static,
    A: Message,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answering = (self.take())(request.into_inner());
        let charged = self.charged.take();
        Box::pin(async move {
            let answer = answering.await?;
            let bytes = answer.encoded_len();
            let mut response = Response::new(answer);
            if let Some((client, refusal)) = charged {
                let charge = client.charge_answer(bytes).map_err(|_| refusal)?;
                response.extensions_mut().insert(Arc::new(charge));
            }
            Ok(response)
        })
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

/// Returns whether a method changes nothing.
fn only_reads(path: &str) -> bool {
    let kv = [method::RANGE, method::LEASE_TIME_TO_LIVE, method::LEASE_LEASES, method::LEADER];
    let node = [method::STATUS, method::ALARM, method::MEMBER_LIST, method::AUTHENTICATE];
    kv.contains(&path) || node.contains(&path)
}

fn grpc<C: Codec>(codec: C) -> Grpc<C> {
    // An answer may be longer than a request; the map limits it.
    Grpc::new(codec).max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(usize::MAX)
}

/// Serves one request and one answer.
async fn unary<Q, A, F, T>(client: &Arc<Client>, request: HttpRequest, answer: F) -> HttpResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnOnce(Q) -> T,
    T: Future<Output = Result<A, Status>> + Send + 'static,
{
    let answering = Once::charged_to(client, request.uri().path(), answer);
    grpc(ProstCodec::default()).unary(answering, request).await
}

/// Serves one request and a stream of answers.
async fn server_streaming<Q, A, F, S>(admitted: &Admitted, request: HttpRequest, answer: F) -> HttpResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnOnce(Q) -> S,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
{
    let pass = admitted.pass.clone();
    let answer = |question| WhileGood::new(answer(question), pass);
    grpc(ProstCodec::default()).server_streaming(Once::of(answer), request).await
}

/// Serves a stream of requests and a stream of answers.
async fn streaming<Q, A, F, S>(admitted: &Admitted, request: HttpRequest, answer: F) -> HttpResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnOnce(Messages<Q>) -> S + Send,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
{
    let request = request.map(|body| ReadAhead::of(body, &admitted.charge));
    let pass = admitted.pass.clone();
    let answer = |messages| WhileGood::new(answer(Messages::new(messages, pass.clone())), pass);
    grpc(ProstCodec::default()).streaming(Once::of(answer), request).await
}
