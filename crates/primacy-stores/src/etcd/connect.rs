//! A connection to one member of etcd: TCP, and TLS if it was requested.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use super::client::RequestError;
use crate::store_url::Host;

/// The default port of members.
const DEFAULT_PORT: u16 = 2379;

/// The interval between pings on a connection with pending requests. etcd closes connections with more than one in 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The time for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A member, with its address and TLS settings.
#[derive(Clone, Debug)]
pub(super) struct Member {
    host: Host,
    tls: Option<Arc<ClientConfig>>,
}

/// The server's reason for refusing a connection after it had been made: with TLS 1.3, a client learns only then that its
/// certificate is not accepted, and a pending request learns only that the connection has ended.
pub(super) type Refusal = Arc<OnceLock<String>>;

/// A connection with TLS.
struct Protected {
    stream: TlsStream<TcpStream>,
    refusal: Refusal,
}

impl AsyncRead for Protected {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read {
            let (why, is_final) = causes(error);
            if is_final {
                let _ = self.refusal.set(why);
            }
        }
        read
    }
}

impl AsyncWrite for Protected {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Member {
    pub(super) fn new(host: Host, tls: Option<Arc<ClientConfig>>) -> Self {
        Self { host, tls }
    }

    /// The host and port, for errors.
    pub(super) fn address(&self) -> String {
        self.host.authority(DEFAULT_PORT)
    }

    /// Connects within `patience`.
    pub(super) async fn connect(&self, patience: Duration) -> Result<(Channel, Refusal), RequestError> {
        let address = self.address();
        let not_sent = |why: String| RequestError::NotSent { why: format!("{address}: {why}") };
        // `http`, because the connector returns a stream that already has TLS if it is used; tonic adds none.
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.map_err(|error| not_sent(error.to_string()))?;
        let endpoint = endpoint.http2_keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_TIMEOUT);
        let refusal = Refusal::default();
        let connector = Connector(self.clone(), Arc::clone(&refusal));
        let connecting = endpoint.connect_with_connector(connector);
        match tokio::time::timeout(patience, connecting).await {
            Ok(Ok(channel)) => Ok((channel, refusal)),
            Ok(Err(error)) => {
                let (why, is_final) = causes(&error);
                if is_final {
                    Err(RequestError::Refused { why: format!("{address}: {why}") })
                } else {
                    Err(not_sent(why))
                }
            }
            Err(_) => Err(not_sent("no connection in time".to_owned())),
        }
    }

    async fn stream(&self, refusal: Refusal) -> io::Result<Box<dyn Stream>> {
        let address = self.address();
        let stream = TcpStream::connect(&address).await?;
        // A keep-alive must not wait for more data to send (Nagle's algorithm).
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.name.clone()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
        Ok(Box::new(Protected { stream, refusal }))
    }
}

/// Returns the innermost error, which is the informative one, and whether trying again is useless.
fn causes(error: &(dyn Error + 'static)) -> (String, bool) {
    let mut innermost = error;
    let mut is_final = false;
    let inside = |error: &'_ (dyn Error + 'static)| {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| {
            matches!(
                inner.downcast_ref(),
                Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_))
            )
        })
    };
    loop {
        is_final |= inside(innermost);
        match innermost.source() {
            Some(source) => innermost = source,
            None => return (innermost.to_string(), is_final),
        }
    }
}

/// The connector for tonic.
struct Connector(Member, Refusal);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (member, refusal) = (self.0.clone(), Arc::clone(&self.1));
        Box::pin(async move { Ok(TokioIo::new(member.stream(refusal).await?)) })
    }
}
