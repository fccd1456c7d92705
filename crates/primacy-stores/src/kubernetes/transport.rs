//! The transport of requests to the API server: this store's own HTTP/1.1 client, or a client of the application.

use std::error::Error;

use http::header::{HeaderMap, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
pub use hyper::body::Bytes;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::api::REQUEST_TIMEOUT;
use crate::register::Pending;

/// The body of an answer. At most 4 MiB of it are read; in a watch, at most 4 MiB for each event.
pub type Body = UnsyncBoxBody<Bytes, TransportError>;

/// A client of an API server, which knows its address and the credentials.
pub trait Transport: Send + Sync {
    /// Sends a request whose URI is a path and a query, and returns the answer as soon as its head is there. A request may be given up by
    /// dropping the future, at the latest after 5 s.
    ///
    /// # Errors
    /// [`TransportError`]; an answer is no error, whatever its status.
    fn send(&self, request: Request<Vec<u8>>) -> Pending<'static, Result<Response<Body>, TransportError>>;
}

/// The reason that a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Nothing was sent: no connection was made, or no credentials could be had.
    #[error("{why}; nothing was sent")]
    NotSent {
        /// The cause.
        why: String,
    },
    /// The request may have been received.
    #[error("{why}")]
    NoAnswer {
        /// The cause.
        why: String,
    },
}

/// This store's own HTTP/1.1 client, with TLS. It repeats no request.
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    server: Uri,
    /// The fixed credentials, and the account to impersonate.
    headers: HeaderMap,
}

impl Http {
    /// A client whose connections are made on the runtime that sends a request. The certificate is checked for `name`, or for the host of
    /// `server`.
    pub(super) fn new(
        server: Uri,
        tls: ClientConfig,
        name: Option<ServerName<'static>>,
        mut headers: HeaderMap,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A renewal must not wait for more data to send (Nagle's algorithm).
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(REQUEST_TIMEOUT));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = match name {
            Some(name) => connector.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => connector,
        };
        let connector = connector.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("primacy/", env!("CARGO_PKG_VERSION"))));
        Self { client, server, headers }
    }

    fn addressed(&self, request: Request<Vec<u8>>) -> Result<Request<Full<Bytes>>, http::Error> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = format!("{}{path}", self.server.path().trim_end_matches('/'));
        let mut server = self.server.clone().into_parts();
        server.path_and_query = Some(path.parse()?);
        head.uri = Uri::from_parts(server)?;
        for (name, value) in &self.headers {
            head.headers.append(name, value.clone());
        }
        Ok(Request::from_parts(head, Full::from(body)))
    }
}

impl Transport for Http {
    fn send(&self, request: Request<Vec<u8>>) -> Pending<'static, Result<Response<Body>, TransportError>> {
        let sent = self.addressed(request).map(|request| self.client.request(request));
        Box::pin(async move {
            let sent = sent.map_err(|error| TransportError::NotSent { why: error.to_string() })?;
            let response = sent.await.map_err(|error| TransportError::of(&error))?;
            Ok(response.map(|body| body.map_err(|error| TransportError::of(&error)).boxed_unsync()))
        })
    }
}

impl TransportError {
    /// Classifies `error` by its sources: whether a connection was made. For transports that use `hyper_util`'s client.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let (mut why, mut is_connect) = (error.to_string(), false);
        let mut cause = Some(error);
        while let Some(error) = cause {
            is_connect |= error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
            let inner = error.to_string();
            if !why.contains(&inner) {
                why = format!("{why}: {inner}");
            }
            cause = error.source();
        }
        if is_connect { Self::NotSent { why } } else { Self::NoAnswer { why } }
    }
}
