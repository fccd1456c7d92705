//! [`ReadLimit`]: the limit of bytes read from a server until an answer ends.
//!
//! The clients of Redis and PostgreSQL buffer an answer until it ends, and the server decides when that is. So the stream under them counts
//! the bytes, and fails when a server sends more than the longest answers to all pending requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes that one connection has read since an answer last ended, and the number of pending answers.
#[derive(Debug)]
pub(crate) struct ReadLimit {
    /// The maximum length of one answer, in bytes.
    answer_max: usize,
    read: AtomicUsize,
    waiting: AtomicUsize,
}

/// A request that waits for its answer.
#[cfg(feature = "redis")]
pub(crate) struct PendingRead(Arc<ReadLimit>);

impl ReadLimit {
    pub(crate) const fn new(answer_max: usize) -> Self {
        Self { answer_max, read: AtomicUsize::new(0), waiting: AtomicUsize::new(0) }
    }

    /// Allows one more answer, until the guard is dropped.
    #[cfg(feature = "redis")]
    pub(crate) fn wait(self: &Arc<Self>) -> PendingRead {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        PendingRead(Arc::clone(self))
    }

    /// Resets the count, because an answer has ended. An abandoned request does not reset it: the bytes read for it stay counted.
    pub(crate) fn renew(&self) {
        self.read.store(0, Ordering::SeqCst);
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let read = self.read.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let allowed = self.answer_max * self.waiting.load(Ordering::SeqCst).max(1);
        if read > allowed {
            let why = format!("the server has sent more than {allowed} bytes without ending an answer");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(())
    }
}

#[cfg(feature = "redis")]
impl Drop for PendingRead {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A stream that fails when more is read than the limit allows.
pub(crate) struct LimitedStream<S> {
    stream: S,
    limit: Arc<ReadLimit>,
    is_renewed_by_requests: bool,
}

impl<S> LimitedStream<S> {
    #[cfg(feature = "redis")]
    pub(crate) const fn new(stream: S, limit: Arc<ReadLimit>) -> Self {
        Self { stream, limit, is_renewed_by_requests: false }
    }

    /// A stream from which no more than `answer_max` bytes are read after each write. Its user must end a connection whose answers do
    /// not come in time.
    #[cfg(feature = "postgres")]
    pub(crate) fn renewed_by_requests(stream: S, answer_max: usize) -> Self {
        Self { stream, limit: Arc::new(ReadLimit::new(answer_max)), is_renewed_by_requests: true }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = read {
            self.limit.take(buffer.filled().len() - before)?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if self.is_renewed_by_requests && matches!(written, Poll::Ready(Ok(_))) {
            self.limit.renew();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER_MAX: usize = 1000;

    #[cfg(feature = "redis")]
    #[test]
    fn each_request_allows_one_answer_and_one_that_was_given_up_none() {
        let limit = Arc::new(ReadLimit::new(ANSWER_MAX));
        assert!(limit.take(ANSWER_MAX).is_ok() && limit.take(1).is_err());
        limit.renew();
        let waiting = [limit.wait(), limit.wait()];
        assert!(limit.take(2 * ANSWER_MAX).is_ok() && limit.take(1).is_err());
        limit.renew();
        assert!(limit.take(2 * ANSWER_MAX).is_ok(), "an answer has ended");
        drop(waiting);
        let _again = limit.wait();
        assert!(limit.take(1).is_err(), "no answer has ended since");
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn after_a_request_as_much_is_read_again() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (near, mut far) = tokio::io::duplex(4 * ANSWER_MAX);
        let mut stream = LimitedStream::renewed_by_requests(near, ANSWER_MAX);
        let mut answer = [0; ANSWER_MAX];
        far.write_all(&[0; 3 * ANSWER_MAX]).await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        stream.write_all(b"next").await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        let error = stream.read(&mut answer).await.unwrap_err();
        assert!(error.to_string().contains("1000 bytes"), "{error}");
    }
}
