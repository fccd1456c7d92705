//! Connections to the service behind the proxy, kept for the next request if possible.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use primacy::log_limit::LogLimit;
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::body::Upload;
use super::{BUFFER_MAX, HEAD_MAX, HEADERS_MAX};

/// The time for which a connection is kept for the next request. Many servers close idle connections after five
/// seconds, and a request that crosses that on its way has an unknown outcome.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// The time for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) host: String,
    pub(super) port: u16,
}

/// The service behind the proxy.
#[derive(Debug)]
pub(super) struct Upstream {
    authority: Authority,
    idle: Mutex<Vec<(UpstreamConnection, Instant)>>,
    idle_max: usize,
    reach: Reach,
    /// The limits of the log lines about requests without a connection, and about requests without an answer.
    pub(super) unreached: LogLimit,
    pub(super) unanswered: LogLimit,
}

/// The hosts that cleartext may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This machine only.
    Loopback,
    /// Any host.
    Anywhere,
}

/// One connection. Dropping it closes it; [`close`](Self::close) also waits for that.
#[derive(Debug)]
pub(super) struct UpstreamConnection {
    pub(super) sender: SendRequest<Upload>,
    driver: Driver,
    /// True while no request is in progress on it.
    is_idle: Arc<AtomicBool>,
}

/// The socket of a connection. If it is closed while a request is in progress, even by the end of this process, the
/// kernel discards the bytes that it has not sent yet: a slow service would otherwise get them long after a newer
/// request.
#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    is_idle: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Socket {
    fn new(stream: TcpStream, is_idle: Arc<AtomicBool>) -> io::Result<Self> {
        stream.set_zero_linger()?;
        Ok(Self { stream, is_idle })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_idle.load(Ordering::Acquire) {
            // No bytes are left to send, so the connection is closed without a reset.
            let _ = set_socket_linger(&self.stream, None);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Authority {
    /// Parses `http://host:port`; other forms are errors.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("the upstream {url:?} {why}; write it as http://host:port");
        let uri: hyper::Uri = url.parse().map_err(|error| wrong(&format!("is no URL ({error})")))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong("is not reached by plain http, which is all that the proxy speaks"));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(wrong("has a path, and requests keep their own"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("names a user, which every user of this machine could read"));
        }
        let (host, port) = (authority.host(), authority.port_u16());
        if ![host.to_owned(), format!("{host}:{}", port.unwrap_or_default())].contains(&authority.to_string())
        {
            return Err(wrong("has something else between the host and the port"));
        }
        // Removes the brackets that a URL has around an IPv6 address.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: port.unwrap_or(80) })
    }

    /// Resolves the present addresses of the service.
    pub(super) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect())
    }
}

impl std::fmt::Display for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Upstream {
    /// Creates the client of the service, which keeps at most `idle_max` idle connections.
    pub(super) fn new(authority: Authority, idle_max: usize, reach: Reach) -> Self {
        let (unreached, unanswered) = (LogLimit::default(), LogLimit::default());
        Self { authority, idle: Mutex::default(), idle_max, reach, unreached, unanswered }
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Takes a kept connection, if there is one.
    pub(super) fn kept(&self) -> Option<UpstreamConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The newest one is at the end; connections that are too old are dropped.
        idle.retain(|(connection, since)| since.elapsed() < IDLE_MAX && !connection.sender.is_closed());
        let (connection, _) = idle.pop()?;
        connection.is_idle.store(false, Ordering::Release);
        Some(connection)
    }

    /// Keeps a connection whose last exchange is complete.
    pub(super) fn keep(&self, connection: UpstreamConnection) {
        connection.is_idle.store(true, Ordering::Release);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(connection, since)| since.elapsed() < IDLE_MAX && !connection.sender.is_closed());
        if idle.len() < self.idle_max {
            idle.push((connection, Instant::now()));
        }
    }

    /// Opens a new connection. May be cancelled.
    pub(super) async fn connect(&self) -> io::Result<UpstreamConnection> {
        let connecting = TcpStream::connect((self.authority.host.as_str(), self.authority.port));
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await??;
        // The name may resolve to another address than when the proxy started.
        if self.reach == Reach::Loopback && !stream.peer_addr()?.ip().is_loopback() {
            return Err(io::Error::other("the upstream is not on this machine, and this is cleartext"));
        }
        stream.set_nodelay(true)?;
        let is_idle = Arc::new(AtomicBool::new(false));
        let socket = Socket::new(stream, Arc::clone(&is_idle))?;
        let mut builder = Builder::new();
        builder.max_buf_size(BUFFER_MAX).max_header_size(HEAD_MAX).max_headers(HEADERS_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
        let driver = tokio::spawn(async move {
            // The error is returned to the sender of the request.
            let _ = connection.await;
        });
        Ok(UpstreamConnection { sender, driver: Driver(driver), is_idle })
    }
}

impl UpstreamConnection {
    /// Closes the connection, and returns when it is closed. Bytes that have not reached the service by then are never
    /// sent.
    pub(super) async fn close(self) {
        let Self { sender, mut driver, is_idle: _ } = self;
        drop(sender);
        driver.0.abort();
        // An error means that the task was cancelled, or had ended before.
        let _ = (&mut driver.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_host_and_a_port_over_plain_http() {
        let shown = |url: &str| Authority::parse(url).map(|authority| authority.to_string());
        assert_eq!(shown("http://127.0.0.1:8080").unwrap(), "127.0.0.1:8080");
        assert_eq!(shown("http://[::1]:8080/").unwrap(), "[::1]:8080");
        assert_eq!(shown("http://service").unwrap(), "service:80");
        for wrong in
            ["", "service:80", "https://a", "http://a/b", "http://a/?b", "http://u:p@a", "http://", "/"]
        {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
