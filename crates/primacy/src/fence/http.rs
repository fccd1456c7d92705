//! Fencing for HTTP services: a layer for `tower` that refuses requests with a stale token.
//!
//! A leader presents its token in the header `Fencing-Token`, as a decimal number.
//!
//! | the request has | answer |
//! |---|---|
//! | no token, more than one, or an invalid one | 400 |
//! | a token below the highest one seen | 409, with both numbers; nothing was done |
//! | a token that became stale during the request, which did not end in time | 409; the effect is unknown |
//! | the highest token, while older requests do not end, or the disk fails | 503; nothing was done |
//!
//! The body of a refusal is a JSON object with `error` and `message`, and, for a stale token, `presented` and
//! `highest`.
//!
//! A request is in progress from its admission until the service's future has ended and every clone of its
//! [`Admitted`], which is among the request's extensions, is dropped. A handler that spawns a task or a blocking call
//! must pass it a clone; so must a handler whose response body still does work. A client that reads slowly delays no
//! other request.
//!
//! ```
//! use http::{Request, Response};
//! use primacy::fence::http::FenceLayer;
//! use primacy::fence::HeldFence;
//! use tower_layer::Layer as _;
//! use tower_service::Service as _;
//! # #[derive(Clone)] struct Handler;
//! # impl tower_service::Service<Request<()>> for Handler {
//! #     type Response = Response<String>;
//! #     type Error = std::convert::Infallible;
//! #     type Future = std::future::Ready<Result<Response<String>, Self::Error>>;
//! #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
//! #         std::task::Poll::Ready(Ok(()))
//! #     }
//! #     fn call(&mut self, _: Request<()>) -> Self::Future { std::future::ready(Ok(Response::default())) }
//! # }
//! # let directory = std::env::temp_dir().join(format!("primacy-fence-http-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let path = directory.join("orders.fence");
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let layer = FenceLayer::new(HeldFence::open(&path, "orders")?)?;
//! let mut service = layer.layer(Handler);
//! let status = async |service: &mut primacy::fence::http::FenceService<Handler>, token: &str| {
//!     let request = Request::put("/").header("Fencing-Token", token).body(()).unwrap();
//!     service.call(request).await.unwrap().status()
//! };
//! assert_eq!(status(&mut service, "7").await, 200);
//! assert_eq!(status(&mut service, "8").await, 200);
//! assert_eq!(status(&mut service, "7").await, 409);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use primacy_core::fence::{FenceError, FencingToken};
use tower_layer::Layer;
use tower_service::Service;

use super::gate::{AdmissionError, Gate, Limits};
use super::{DurableFenceError, HeldFence};

pub use super::gate::Admitted;

/// The request header with the leader's token, in decimal digits.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The response header of a refusal with the highest token seen.
pub const FENCING_TOKEN_HIGHEST: HeaderName = HeaderName::from_static("fencing-token-highest");

/// The kind of a refusal, as `error` in its body: among the extensions of the layer's own responses, for layers that
/// count or log refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub &'static str);

/// The requests that need no token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Without {
    /// None: a request without a token is refused. This is the safe choice, because services may write on a GET.
    #[default]
    Refused,
    /// Requests with the methods GET, HEAD and OPTIONS. They are admitted at any time, and no leader waits for them. If
    /// they present a token, it is checked.
    ReadsAdmitted,
}

/// Wraps services, so that they see only requests whose token is not stale.
#[derive(Clone, Debug)]
pub struct FenceLayer {
    gate: Gate,
    without: Without,
}

impl FenceLayer {
    /// Creates a layer with this fence, which refuses requests without a token. All services that it wraps share one
    /// gate.
    ///
    /// # Errors
    /// [`DurableFenceError`] if the fence cannot be read.
    pub fn new(fence: HeldFence) -> Result<Self, DurableFenceError> {
        Ok(Self::on(Gate::new(fence, Limits::default())?))
    }

    /// Creates a layer with a gate that may be shared.
    #[must_use]
    pub fn on(gate: Gate) -> Self {
        Self { gate, without: Without::default() }
    }

    /// Sets the requests that need no token.
    #[must_use]
    pub fn without_token(self, without: Without) -> Self {
        Self { without, ..self }
    }

    /// The gate, which knows the highest token.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService { inner, gate: self.gate.clone(), without: self.without }
    }
}

/// A service behind a fence; see [`FenceLayer`]. The future of a call may be dropped at any time; the request has ended
/// then, if dropping the service's future ends its work.
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    inner: S,
    gate: Gate,
    without: Without,
}

impl<S, B, R> Service<Request<B>> for FenceService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Only the instance that was polled is ready; a clone of it need not be.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let gate = self.gate.clone();
        let presented = presented(request.headers());
        let needs_none = self.without == Without::ReadsAdmitted && is_read(request.method());
        Box::pin(async move {
            let token = match presented {
                Presented::Token(token) => token,
                Presented::Nothing if needs_none => return inner.call(request).await,
                Presented::Nothing => return Ok(refuse_without(gate.highest())),
                Presented::Malformed => return Ok(refuse_malformed(gate.highest())),
            };
            let admitted = match gate.admit(token).await {
                Ok(admitted) => admitted,
                Err(refused) => return Ok(refuse(&refused, gate.highest())),
            };
            request.extensions_mut().insert(admitted.clone());
            let called = inner.call(request);
            tokio::select! {
                biased;
                response = called => response,
                // This branch drops the service's future.
                () = admitted.revoked() => Ok(refuse_overtaken(token, gate.highest())),
            }
        })
    }
}

/// The token that a request presents.
enum Presented {
    Token(FencingToken),
    Nothing,
    Malformed,
}

fn presented(headers: &HeaderMap) -> Presented {
    let mut values = headers.get_all(FENCING_TOKEN).iter();
    let (first, second) = (values.next(), values.next());
    let Some(value) = first else { return Presented::Nothing };
    match (parse(value), second) {
        (Some(token), None) => Presented::Token(token),
        (None, _) | (_, Some(_)) => Presented::Malformed,
    }
}

fn parse(value: &HeaderValue) -> Option<FencingToken> {
    let text = value.to_str().ok()?;
    // `parse` would accept a sign.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok().map(FencingToken) } else { None }
}

fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

fn refuse_without<R: From<String>>(highest: FencingToken) -> Response<R> {
    let message = "this resource is fenced: send the token of your leadership, as in Fencing-Token: 42";
    refusal(StatusCode::BAD_REQUEST, highest, "missing_fencing_token", None, message)
}

fn refuse_malformed<R: From<String>>(highest: FencingToken) -> Response<R> {
    let message = "send one header Fencing-Token with one number, in decimal digits and at most 2^64 - 1, as in \
                   Fencing-Token: 42";
    refusal(StatusCode::BAD_REQUEST, highest, "malformed_fencing_token", None, message)
}

fn refuse_overtaken<R: From<String>>(presented: FencingToken, highest: FencingToken) -> Response<R> {
    let message = "a later leader came while this request was under way, and it was dropped; what it has done by \
                   then is not known. Stop, another leads";
    refusal(StatusCode::CONFLICT, highest, "overtaken_fencing_token", Some(presented), message)
}

fn refuse<R: From<String>>(refused: &AdmissionError, highest: FencingToken) -> Response<R> {
    match refused {
        AdmissionError::Stale(FenceError::Stale { presented, highest }) => {
            let message = "a later leader has been here, and nothing was done; stop, another leads";
            refusal(StatusCode::CONFLICT, *highest, "stale_fencing_token", Some(*presented), message)
        }
        AdmissionError::Busy { .. } => {
            let message = "requests of an older token have not ended yet, and nothing was done; try again";
            retry_later(refusal(StatusCode::SERVICE_UNAVAILABLE, highest, "fence_busy", None, message))
        }
        // The log has the disk's error. The client may be unauthenticated, and does not get the path.
        AdmissionError::Fence(_) => {
            let message =
                "the fence cannot be read or written, and nothing was done; its log says why. Try again";
            retry_later(refusal(StatusCode::SERVICE_UNAVAILABLE, highest, "fence_unavailable", None, message))
        }
    }
}

fn retry_later<R>(mut response: Response<R>) -> Response<R> {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The messages contain no quotes and no control characters, so they need no escaping in JSON.
fn refusal<R: From<String>>(
    status: StatusCode,
    highest: FencingToken,
    error: &'static str,
    stale: Option<FencingToken>,
    message: &str,
) -> Response<R> {
    let tokens = stale
        .map_or_else(String::new, |presented| format!(r#""presented":{presented},"highest":{highest},"#));
    let body = format!("{{\"error\":\"{error}\",{tokens}\"message\":\"{message}\"}}\n");
    let mut response = Response::new(R::from(body));
    *response.status_mut() = status;
    response.extensions_mut().insert(Refusal(error));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status != StatusCode::BAD_REQUEST {
        response.headers_mut().insert(FENCING_TOKEN_HIGHEST, HeaderValue::from(highest.0));
    }
    response
}

#[cfg(test)]
mod tests;
