//! A byte stream that limits each read, so that the HTTP/2 library holds few requests that were not counted yet.
//!
//! The library reads everything that has arrived before it returns the first request: a thousand short requests would all be in its
//! memory by then. Here it gets at most [`READ_BYTES`] each time its connection is polled, and is polled again at once.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes read in one poll of a connection: some hundred of the shortest requests.
const READ_BYTES: usize = 4 << 10;

/// The bytes that may still be read in this poll, shared by the stream and its poller.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace(Arc<AtomicUsize>);

/// Polls a connection over a [`Paced`] stream.
pub(super) async fn paced<F: Future>(pace: &Pace, mut connection: Pin<&mut F>) -> F::Output {
    std::future::poll_fn(|context| {
        pace.0.store(READ_BYTES, Ordering::Relaxed);
        connection.as_mut().poll(context)
    })
    .await
}

/// A stream that is read within its pace.
#[derive(Debug)]
pub(super) struct Paced<S> {
    stream: S,
    pace: Pace,
}

impl<S> Paced<S> {
    pub(super) const fn new(stream: S, pace: Pace) -> Self {
        Self { stream, pace }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let left = this.pace.0.load(Ordering::Relaxed);
        if left == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(left.min(buffer.remaining())));
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        this.pace.0.store(left - read, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
