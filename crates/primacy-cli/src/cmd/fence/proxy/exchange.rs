//! One request and its answer, on a connection to the service.
//!
//! It has a task of its own, which goes on when the client has gone: the service may still be at work, and a newer
//! token must wait until it has answered. So the task keeps the request's [`Admitted`], until the answer is complete or
//! the connection is closed.

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

/// One exchange with the service, and all that it needs.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) upstream: Arc<Upstream>,
    /// `None` for a request that needed no token; no token waits for it.
    pub(super) admitted: Option<Admitted>,
    pub(super) progress: Arc<Progress>,
    /// The time for which nothing may move.
    pub(super) idle: Duration,
    /// The client's connection counts until this is gone.
    pub(super) slot: Arc<OwnedSemaphorePermit>,
    /// The client's connection is not closed to make room for another one until this is gone.
    pub(super) busy: Option<Arc<Busy>>,
}

/// Why there is no answer of the service.
#[derive(Debug)]
pub(super) enum Failed {
    /// No connection: nothing was sent.
    NotReached(io::Error),
    /// The request was sent, in part or whole, and no answer came.
    NoAnswer(hyper::Error),
    /// The body of the client's request is malformed, or has ended before its end. What came before may have been sent.
    Malformed(hyper::Error),
    /// The client sent no more of its request for too long. What came before may have been sent.
    ClientStalled,
    /// The service changes to another protocol, which the client has not asked for.
    Upgraded,
    /// The service's answer has a transfer coding that the client has not asked for, and would not learn of.
    Coded,
    /// Nothing moved for too long. What was sent may have been done.
    Stalled,
    /// A newer token came. The layer in front has reported it.
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
    /// Runs it to its end.
    pub(super) async fn run(self, request: Request<Upload>, answer: Answer) {
        self.carry_out(request, answer).await;
        // Only now: from here on, the requests of newer tokens may be sent.
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
                // Whether the client is still there changes nothing now.
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

    /// Sends the request, and returns the beginning of the answer. `connection` is what it is sent on, from the first byte.
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
                    // The service had closed it meanwhile; nothing of the request was sent.
                    Some(unsent) if was_kept => request = unsent,
                    Some(_) => return Err(Failed::NotReached(io::Error::other(error.into_error()))),
                    None if self.progress.is_broken() => return Err(Failed::Malformed(error.into_error())),
                    None => return Err(Failed::NoAnswer(error.into_error())),
                },
            }
        }
    }

    /// Hands the answer on, part by part, and returns whether it came to its end.
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
        // One part waits here while another is being sent: what the client does not take is not read.
        let (parts, relayed) = mpsc::channel(1);
        let _ = answer.send(Ok(Response::from_parts(head, Relay::Parts(relayed))));
        loop {
            let frame = tokio::select! {
                biased;
                // First, since a fast stream has always something to read.
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
                // A client that has gone takes nothing; what is left is read all the same, to its end.
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
