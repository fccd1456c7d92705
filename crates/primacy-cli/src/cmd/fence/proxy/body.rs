//! Message bodies passing through the proxy: each part is passed on before the next one is read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// The progress of an exchange, shared with its task.
#[derive(Debug, Default)]
pub(super) struct Progress {
    moved: Notify,
    uploaded: AtomicBool,
    /// True while the proxy waits for the next part of the client's request.
    awaits_client: AtomicBool,
    /// True if the client's request is malformed, or has ended early.
    is_broken: AtomicBool,
}

/// The body of a request on its way to the service.
#[derive(Debug)]
pub(super) struct Upload {
    incoming: Incoming,
    progress: Arc<Progress>,
}

/// The body of an answer on its way to the client.
#[derive(Debug)]
pub(super) enum Relay {
    /// A text of the proxy itself.
    Own(Bytes),
    /// The parts of the service's body, from the exchange's task.
    Parts(mpsc::Receiver<BodyPart>),
    /// The end: nothing is left to send.
    Sent,
}

/// A part of the service's answer. The end is explicit, so that an aborted exchange does not look complete.
#[derive(Debug)]
pub(super) enum BodyPart {
    Data(Bytes),
    End,
}

/// The error of an answer that ended early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

impl Progress {
    /// Records that a part was passed on.
    pub(super) fn note(&self) {
        self.moved.notify_one();
    }

    /// Returns whether the request has been read to its end.
    pub(super) fn uploaded(&self) -> bool {
        self.uploaded.load(Ordering::Acquire)
    }

    /// Returns whether the proxy waits for the next part of the client's request.
    pub(super) fn awaits_client(&self) -> bool {
        self.awaits_client.load(Ordering::Acquire)
    }

    /// Returns true if the client's request is malformed, or has ended early.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Returns when no part was passed on for this time.
    pub(super) async fn stalled(&self, idle: Duration) {
        while timeout(idle, self.moved.notified()).await.is_ok() {}
    }
}

impl Upload {
    pub(super) fn new(incoming: Incoming, progress: Arc<Progress>) -> Self {
        if incoming.is_end_stream() {
            progress.uploaded.store(true, Ordering::Release);
        }
        Self { incoming, progress }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.incoming).poll_frame(context);
        self.progress.awaits_client.store(polled.is_pending(), Ordering::Release);
        let frame = ready!(polled);
        self.progress.note();
        if matches!(frame, Some(Err(_))) {
            self.progress.is_broken.store(true, Ordering::Release);
        }
        if frame.is_none() || self.incoming.is_end_stream() {
            self.progress.uploaded.store(true, Ordering::Release);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let relay = self.get_mut();
        let frame = match relay {
            Self::Own(text) => Some(Ok(Frame::data(std::mem::take(text)))),
            Self::Parts(parts) => match ready!(parts.poll_recv(context)) {
                Some(BodyPart::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(BodyPart::End) => None,
                None => Some(Err(Broken)),
            },
            Self::Sent => None,
        };
        *relay = Self::Sent;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Sent)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(text) => SizeHint::with_exact(text.len() as u64),
            // The service's own header states the length, if it is known.
            Self::Parts(_) => SizeHint::default(),
            Self::Sent => SizeHint::with_exact(0),
        }
    }
}

impl From<String> for Relay {
    fn from(text: String) -> Self {
        Self::Own(text.into())
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the upstream's answer ended before its end")
    }
}

impl std::error::Error for Broken {}
