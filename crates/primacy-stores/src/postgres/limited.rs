//! Connections with a limit on the bytes that are read: the library buffers incomplete answers and unsolicited messages without a limit.
//!
//! It makes the connection itself, and passes it to a TLS connector. That step wraps the stream, also without TLS, with a connector that
//! adds none ([`Plain`]), but not over a Unix socket.

use std::convert::Infallible;
use std::future::{Ready, ready};

use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::read_limit::LimitedStream;

/// The maximum that is read after a request, in bytes: more than a hundred records of maximum length. Unsolicited notices count too; a
/// connection that exceeds the limit is replaced.
const ANSWER_MAX: usize = 8 * 1024 * 1024;

/// A connector that connects as `T` does, over a limited stream.
#[derive(Clone)]
pub(super) struct Limited<T>(pub(super) T);

impl<T: MakeTlsConnect<LimitedStream<Socket>>> MakeTlsConnect<Socket> for Limited<T> {
    type Stream = T::Stream;
    type TlsConnect = Limited<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, Self::Error> {
        self.0.make_tls_connect(domain).map(Limited)
    }
}

impl<T: TlsConnect<LimitedStream<Socket>>> TlsConnect<Socket> for Limited<T> {
    type Stream = T::Stream;
    type Error = T::Error;
    type Future = T::Future;

    fn connect(self, stream: Socket) -> T::Future {
        self.0.connect(LimitedStream::renewed_by_requests(stream, ANSWER_MAX))
    }
}

/// A TLS connector that leaves the stream unencrypted.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl MakeTlsConnect<LimitedStream<Socket>> for Plain {
    type Stream = LimitedStream<Socket>;
    type TlsConnect = Self;
    type Error = Infallible;

    fn make_tls_connect(&mut self, _domain: &str) -> Result<Self, Infallible> {
        Ok(*self)
    }
}

impl TlsConnect<LimitedStream<Socket>> for Plain {
    type Stream = LimitedStream<Socket>;
    type Error = Infallible;
    type Future = Ready<Result<LimitedStream<Socket>, Infallible>>;

    fn connect(self, stream: LimitedStream<Socket>) -> Self::Future {
        ready(Ok(stream))
    }
}

impl TlsStream for LimitedStream<Socket> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
