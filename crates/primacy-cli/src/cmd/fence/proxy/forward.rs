//! The service behind the fence: it passes on the admitted requests.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use primacy::config::LOG_PAUSE;
use primacy::fence::http::{Admitted, Refusal};
use primacy::idle_connections::Busy;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tower_service::Service;

use super::body::{Progress, Relay, Upload};
use super::exchange::{Exchange, Failed};
use super::headers::{self, Unfit};
use super::upstream::Upstream;

/// The forwarder of the requests of one client's connection.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub(super) upstream: Arc<Upstream>,
    pub(super) idle: Duration,
    pub(super) client: IpAddr,
    pub(super) slot: Arc<OwnedSemaphorePermit>,
}

impl Service<Request<Incoming>> for Forward {
    type Response = Response<Relay>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Relay>, Infallible>> + Send>>;

    /// Always ready: the connections bound the number of simultaneous requests.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let forward = self.clone();
        Box::pin(async move { Ok(forward.answer(request).await) })
    }
}

impl Forward {
    async fn answer(self, request: Request<Incoming>) -> Response<Relay> {
        if request.method() == Method::CONNECT {
            let message = "the fence proxy passes on plain HTTP/1.1 requests and opens no tunnels: once one is open, \
                           nothing in it could be refused";
            return refusal(StatusCode::NOT_IMPLEMENTED, "not_supported", message);
        }
        let (mut head, body) = request.into_parts();
        match headers::check_request(&head) {
            Ok(()) => {}
            Err(Unfit::Host) => {
                let message = "a request names its host once, in `Host: HOST` or `Host: HOST:PORT`; nothing was passed on";
                return refusal(StatusCode::BAD_REQUEST, "malformed_host", message);
            }
            Err(Unfit::Coding) => {
                let message = "the fence proxy passes on no transfer coding besides chunked; nothing was passed on: name the \
                               coding of the content in Content-Encoding";
                return refusal(StatusCode::NOT_IMPLEMENTED, "not_supported", message);
            }
        }
        headers::clean_request(&mut head, self.client, &self.upstream.authority().to_string());
        let (progress, upstream) = (Arc::new(Progress::default()), Arc::clone(&self.upstream));
        let upload = Upload::new(body, Arc::clone(&progress));
        let exchange = Exchange {
            upstream: self.upstream,
            admitted: head.extensions.remove::<Admitted>(),
            busy: head.extensions.remove::<Arc<Busy>>(),
            progress,
            idle: self.idle,
            slot: self.slot,
        };
        let (answer, answered) = oneshot::channel();
        tokio::spawn(exchange.run(Request::from_parts(head, upload), answer));
        match answered.await {
            Ok(Ok(response)) => response,
            Ok(Err(failed)) => refuse(&failed, &upstream),
            // The task ends before its answer only if the runtime is shutting down.
            Err(_) => refuse(&Failed::Stalled, &upstream),
        }
    }
}

fn refuse(failed: &Failed, upstream: &Upstream) -> Response<Relay> {
    match failed {
        Failed::NotReached(error) => {
            if let Some(held_back) = upstream.unreached.due(LOG_PAUSE) {
                tracing::warn!(held_back, "the upstream cannot be reached: {error}");
            }
            let message = "the upstream cannot be reached, and nothing was sent to it; try again";
            if error.kind() == std::io::ErrorKind::TimedOut {
                refusal(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", message)
            } else {
                refusal(StatusCode::BAD_GATEWAY, "upstream_unreachable", message)
            }
        }
        Failed::NoAnswer(error) => {
            if let Some(held_back) = upstream.unanswered.due(LOG_PAUSE) {
                tracing::warn!(held_back, "the upstream gave no answer: {error}");
            }
            let message = "the upstream ended the connection without an answer; whether the request was done is not \
                           known";
            refusal(StatusCode::BAD_GATEWAY, "upstream_failed", message)
        }
        // An error of the client: it is answered and counted, but not logged.
        Failed::Malformed(error) => {
            tracing::debug!("a client's request is malformed: {error}");
            let message = "the body of the request is malformed, or ended before its end; what of it was passed on may \
                           have been done";
            refusal(StatusCode::BAD_REQUEST, "malformed_body", message)
        }
        Failed::ClientStalled => {
            let message =
                "the rest of the request was not sent in time; what of it was passed on may have been done";
            refusal(StatusCode::REQUEST_TIMEOUT, "client_timeout", message)
        }
        Failed::Upgraded => {
            let message = "the upstream changed to another protocol, which was not asked for; whether the request was \
                           done is not known";
            refusal(StatusCode::BAD_GATEWAY, "upstream_failed", message)
        }
        Failed::Coded => {
            let message = "the upstream's answer has a transfer coding besides chunked, which was not asked for; whether the \
                           request was done is not known";
            refusal(StatusCode::BAD_GATEWAY, "upstream_failed", message)
        }
        Failed::Stalled => {
            let message = "nothing moved for too long, and the request was broken off; whether it was done is not known";
            refusal(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", message)
        }
        // The layer in front of this one answers, or the client is gone.
        Failed::Revoked | Failed::Unwanted => {
            let message = "the request was broken off; whether it was done is not known";
            refusal(StatusCode::BAD_GATEWAY, "upstream_failed", message)
        }
    }
}

fn refusal(status: StatusCode, error: &'static str, message: &str) -> Response<Relay> {
    let body = serde_json::json!({ "error": error, "message": message });
    let mut response = Response::new(Relay::from(format!("{body}\n")));
    *response.status_mut() = status;
    response.extensions_mut().insert(Refusal(error));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
