//! One request and its answer, on a connection to the service.
//!
//! It has its own task, which goes on when the client has gone: the service may still be at work, and a newer token
//! must wait until it has answered. So the task holds the request's [`Admitted`] until the answer is complete or the
//! connection is closed.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::{Request, Response, StatusCode};
use primacy::fence::http::Admitted;
use primacy::idle_connections::Busy;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::body::{BodyPart, Progress, Relay, Upload};
use super::headers;
use super::upstream::{Upstream, UpstreamConnection};

/// One exchange with the service.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) upstream: Arc<Upstream>,
    /// `None` for a request that needed no token; no token waits for it.
    pub(super) admitted: Option<Admitted>,
    pub(super) progress: Arc<Progress>,
    /// The longest time without any progress.
    pub(super) idle: Duration,
    /// The client's place, which is taken until this is dropped.
    pub(super) slot: Arc<OwnedSemaphorePermit>,
    /// While this exists, the client's connection is not closed to make room for another one.
    pub(super) busy: Option<Arc<Busy>>,
}

/// The reason why the service gave no answer that can be passed on.
#[derive(Debug)]
pub(super) enum Failed {
    /// No connection: nothing was sent.
    NotReached(io::Error),
    /// The request was sent, partly or completely, and no answer came.
    NoAnswer(hyper::Error),
    /// The body of the client's request is malformed, or ended early. The part before that may have been sent.
    Malformed(hyper::Error),
    /// The client sent no more of its request for too long. The part before that may have been sent.
    ClientStalled,
    /// The service changes to another protocol, which the client has not asked for.
    Upgraded,
    /// The service's answer has a transfer coding that the client did not request and would not be told of.
    Coded,
    /// The exchange made no progress for too long. The request may have been done.
    Stalled,
    /// A newer token came. The layer in front of this one reports it.
    Revoked,
    /// The client has gone.
    Unwanted,
}

/// An interruption of an exchange from outside.
enum Interruption {
    Revoked,
    Stalled,
}

type Answer = oneshot::Sender<Result<Response<Relay>, Failed>>;

impl Exchange {
    /// Runs the exchange to its end.
    pub(super) async fn run(self, request: Request<Upload>, answer: Answer) {
        self.carry_out(request, answer).await;
        // Dropped only now: after that, the requests of newer tokens may be sent.
        let Self { admitted, slot, busy, .. } = self;
        drop((admitted, slot, busy));
    }

    async fn carry_out(&self, request: Request<Upload>, mut answer: Answer) {
        let mut connection = None;
        let mut interrupted = pin!(self.interrupted());
        let head = tokio::select! {
            biased;
            interruption = &mut interrupted => Err(match interruption {
                Interruption::Revoked => Failed::Revoked,
                Interruption::Stalled if self.progress.awaits_client() => Failed::ClientStalled,
                Interruption::Stalled => Failed::Stalled,
            }),
            head = self.send(request, &mut connection) => head,
            () = answer.closed(), if self.admitted.is_none() => Err(Failed::Unwanted),
        };
        let complete = match head {
            Ok(head) => self.relay(head, answer, interrupted.as_mut()).await,
            Err(failed) => {
                if let Some(connection) = connection.take() {
                    connection.close().await;
                }
                // A client that has gone makes no difference now.
                let _ = answer.send(Err(failed));
                false
            }
        };
        if let Some(connection) = connection {
            self.part_with(connection, complete, interrupted).await;
        }
    }

    async fn interrupted(&self) -> Interruption {
        let revoked = async {
            match &self.admitted {
                Some(admitted) => admitted.revoked().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = revoked => Interruption::Revoked,
            () = self.progress.stalled(self.idle) => Interruption::Stalled,
        }
    }

    /// Sends the request, and returns the head of the answer. `connection` is set before the first byte is sent.
    async fn send(
        &self,
        mut request: Request<Upload>,
        connection: &mut Option<UpstreamConnection>,
    ) -> Result<Response<Incoming>, Failed> {
        loop {
            let kept = self.upstream.kept();
            let was_kept = kept.is_some();
            let upstream = match kept {
                Some(kept) => kept,
                None => self.upstream.connect().await.map_err(Failed::NotReached)?,
            };
            match connection.insert(upstream).sender.try_send_request(request).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(Failed::Upgraded);
                }
                Ok(response) if headers::has_coded_body(response.headers()) => return Err(Failed::Coded),
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    // The service had closed the kept connection meanwhile; no byte of the request was sent.
                    Some(unsent) if was_kept => request = unsent,
                    Some(_) => return Err(Failed::NotReached(io::Error::other(error.into_error()))),
                    None if self.progress.is_broken() => return Err(Failed::Malformed(error.into_error())),
                    None => return Err(Failed::NoAnswer(error.into_error())),
                },
            }
        }
    }

    /// Passes the answer on, part by part, and returns whether it was complete.
    async fn relay(
        &self,
        head: Response<Incoming>,
        answer: Answer,
        mut interrupted: Pin<&mut impl Future<Output = Interruption>>,
    ) -> bool {
        self.progress.note();
        let (mut head, mut incoming) = head.into_parts();
        headers::clean_response(&mut head);
        if incoming.is_end_stream() {
            let _ = answer.send(Ok(Response::from_parts(head, Relay::Sent)));
            return true;
        }
        // One part waits here while another is being sent, so no more is read than the client takes.
        let (parts, relayed) = mpsc::channel(1);
        let _ = answer.send(Ok(Response::from_parts(head, Relay::Parts(relayed))));
        loop {
            let frame = tokio::select! {
                biased;
                // Checked first, since a fast stream always has something to read.
                _ = interrupted.as_mut() => return false,
                frame = incoming.frame() => frame,
                () = parts.closed(), if self.admitted.is_none() => return false,
            };
            let part = match frame {
                None => BodyPart::End,
                Some(Err(_)) => return false,
                // Trailers are not passed on.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => BodyPart::Data(data),
                    Err(_) => continue,
                },
            };
            let is_end = matches!(part, BodyPart::End);
            self.progress.note();
            tokio::select! {
                biased;
                _ = interrupted.as_mut() => return false,
                // The client may have gone. The rest of the answer is still read, to its end.
                _ = parts.send(part) => {}
            }
            if is_end {
                return true;
            }
        }
    }

    /// Keeps the connection for the next request, or closes it.
    async fn part_with(
        &self,
        mut connection: UpstreamConnection,
        complete: bool,
        interrupted: Pin<&mut impl Future<Output = Interruption>>,
    ) {
        let reusable = complete && self.progress.uploaded() && {
            tokio::select! {
                biased;
                ready = connection.sender.ready() => ready.is_ok(),
                _ = interrupted => false,
            }
        };
        if reusable { self.upstream.keep(connection) } else { connection.close().await }
    }
}
