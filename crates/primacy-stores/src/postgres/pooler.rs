//! Detection of a pooler between this connection and the server.
//!
//! At the beginning of a connection, a server announces the id of the process that serves it, for the cancellation of
//! statements. A pooler, which has not assigned a server process yet, announces a number of its own.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

/// The size of a buffer for a cancellation, which is a request for TLS and 16 bytes.
const CANCELLATION_MAX: usize = 64;

/// Returns whether the process that serves this connection differs from the announced one.
///
/// # Errors
/// That of the connection.
pub(super) async fn is_between(client: &Client) -> Result<bool, Error> {
    let no_parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] = &[];
    let row = client.query_typed_one("SELECT pg_catalog.pg_backend_pid()", no_parameters).await?;
    let serving: i32 = row.try_get(0)?;
    Ok(announced(client).await != Some(serving))
}

/// Returns the process that the server has announced. The library uses it only in cancellations, so one is written to a
/// buffer and not sent.
async fn announced(client: &Client) -> Option<i32> {
    let (near, mut far) = tokio::io::duplex(CANCELLATION_MAX);
    // The answer to a request for TLS, if the library sends one.
    far.write_all(b"S").await.ok()?;
    client.cancel_token().cancel_query_raw(near, Nobody).await.ok()?;
    let mut written = Vec::new();
    far.read_to_end(&mut written).await.ok()?;
    // Its length, its code, the process, and the secret, which are four bytes each.
    let (_, cancellation) = written.split_at_checked(written.len().checked_sub(16)?)?;
    let process = cancellation.get(8..12)?.try_into().ok()?;
    Some(i32::from_be_bytes(process))
}

/// A TLS connector that passes bytes on unchanged.
struct Nobody;

struct Plain(DuplexStream);

impl TlsConnect<DuplexStream> for Nobody {
    type Stream = Plain;
    type Error = Infallible;
    type Future = Ready<Result<Plain, Infallible>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Plain(stream)))
    }
}

impl TlsStream for Plain {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
