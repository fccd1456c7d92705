//! The bodies of requests and answers, whose memory is charged to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::budget::Charge;
use super::client::{Client, OpenStream, WaitsForReader};
use super::errors::Known;
use super::limits::MESSAGE_BYTES_MAX;

/// The reason why a connection or a body ends.
pub(super) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The length of gRPC's message prefix: a compression flag and the message's length.
const PREFIX_LENGTH: usize = 5;

/// The bytes of an answer that are sent at a time.
const PART: usize = 16 << 10;

/// The bytes of an answer that are sent last, after everything before was sent; a smaller rest is sent at once. So at
/// most this much is in the send buffer when the charge of an answer is returned.
const LAST_PART: usize = 512;

/// The part of a request that must arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The whole request.
    End,
    /// The first message. Later ones may begin at any time.
    Message,
    /// Only the rest of a message that has begun.
    Nothing,
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct RequestBody<B> {
    body: B,
    charge: Arc<Charge>,
    /// The longest permitted message, and the time for one to arrive.
    message_max: usize,
    patience: Duration,
    /// The received part of the present message's prefix, and the bytes of the message that are still missing.
    prefix: Vec<u8>,
    left: usize,
    due: Due,
    /// The charged bytes: the length of the longest message so far, because the decoder keeps its buffer.
    charged: usize,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> RequestBody<B> {
    /// A body with messages of at most `message_max` bytes. Each must arrive within `patience`, and so must the part
    /// that is `due`.
    pub(super) fn new(
        body: B,
        charge: Arc<Charge>,
        message_max: usize,
        patience: Duration,
        due: Due,
    ) -> Self {
        let (prefix, left, charged, deadline) = (Vec::with_capacity(PREFIX_LENGTH), 0, 0, None);
        Self { body, charge, message_max, patience, prefix, left, due, charged, deadline }
    }

    /// Follows the boundaries of messages in the received data, and charges each message when its length is known.
    fn receive(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while !data.is_empty() {
            if self.prefix.len() < PREFIX_LENGTH {
                let (now, later) = data.split_at(data.len().min(PREFIX_LENGTH - self.prefix.len()));
                self.prefix.extend(now);
                data = later;
                let [_, a, b, c, d] = self.prefix[..] else { return Ok(()) };
                self.begin(usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX))?;
            } else {
                let now = data.len().min(self.left);
                self.left -= now;
                data = &data[now..];
            }
            if self.left == 0 && self.prefix.len() == PREFIX_LENGTH {
                self.prefix.clear();
                if self.due != Due::End {
                    self.due = Due::Nothing;
                    self.deadline = None;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, length: usize) -> Result<(), Status> {
        if length > self.message_max && self.message_max < MESSAGE_BYTES_MAX {
            let max = self.message_max;
            let text = format!("grpc: received message larger than max ({length} vs. {max})");
            return Err(Status::resource_exhausted(text));
        }
        // The decoder refuses a longer message without waiting for it.
        let length = length.min(MESSAGE_BYTES_MAX);
        let more = length.saturating_sub(self.charged);
        if !self.charge.grow(more) {
            return Err(Known::TOO_MANY_REQUESTS.into());
        }
        self.charged += more;
        self.left = length;
        Ok(())
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Failed>,
{
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            if this.due != Due::Nothing || !this.prefix.is_empty() {
                let patience = this.patience;
                let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(patience)));
                ready!(deadline.as_mut().poll(context));
                let late = Status::deadline_exceeded("the request was not received in time");
                return Poll::Ready(Some(Err(late.into())));
            }
            return Poll::Pending;
        };
        let received = match frame {
            Some(Ok(frame)) => frame
                .data_ref()
                .map_or(Ok(()), |data| this.receive(data))
                .map(|()| frame)
                .map_err(Failed::from),
            Some(Err(error)) => Err(error.into()),
            None => return Poll::Ready(None),
        };
        Poll::Ready(Some(received))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// The body of an answer. It is sent in parts, each when the one before was sent.
#[derive(Debug)]
pub(super) struct AnswerBody {
    body: tonic::body::Body,
    client: Arc<Client>,
    /// The stream, and the charge of the request.
    _request: (Option<OpenStream>, Option<Arc<Charge>>),
    /// The charge of the whole answer, if it was charged when it was made.
    answer: Option<Arc<Charge>>,
    /// Otherwise the charge of the data taken from the body.
    taken: Charge,
    rest: Bytes,
    waits: Option<WaitsForReader>,
    is_cut_off: bool,
}

impl AnswerBody {
    pub(super) fn new(
        body: tonic::body::Body,
        client: Arc<Client>,
        request: (Option<OpenStream>, Option<Arc<Charge>>),
        answer: Option<Arc<Charge>>,
    ) -> Self {
        let taken = client.no_answer();
        let (rest, waits, is_cut_off) = (Bytes::new(), None, false);
        Self { body, client, _request: request, answer, taken, rest, waits, is_cut_off }
    }

    fn next_part(&mut self) -> Frame<Bytes> {
        self.waits = Some(self.client.wait_for_reader());
        let length = self.rest.len();
        let part = if length <= LAST_PART {
            std::mem::take(&mut self.rest)
        } else {
            // A copy, so that the last part does not keep the whole buffer alive.
            let part = self.rest.split_to(PART.min(length - LAST_PART));
            if self.rest.len() <= LAST_PART {
                self.rest = Bytes::copy_from_slice(&self.rest);
            }
            Bytes::copy_from_slice(&part)
        };
        Frame::data(part)
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        this.waits = None;
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.next_part())));
        }
        this.taken.clear();
        if this.is_cut_off {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other),
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return Poll::Ready(Some(Ok(other))),
        };
        if this.answer.is_none() && !this.taken.grow(data.len()) {
            this.is_cut_off = true;
            let (head, ()) = Status::from(Known::TOO_MANY_REQUESTS).into_http().into_parts();
            return Poll::Ready(Some(Ok(Frame::trailers(head.headers))));
        }
        this.rest = data;
        Poll::Ready(Some(Ok(this.next_part())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && (self.is_cut_off || self.body.is_end_stream())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, StreamBody};
    use tokio_stream::StreamExt;

    use super::super::client::{NodeBudgets, on_loopback};
    use super::*;

    /// Measures how long a request may take that sends a message each second and never ends.
    async fn lasts(due: Due) -> Duration {
        let charge = Arc::new(on_loopback(&NodeBudgets::default()).begin_admitted().unwrap());
        let messages = tokio_stream::iter(0..100).then(async |_| {
            sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; PREFIX_LENGTH])))
        });
        let body = StreamBody::new(Box::pin(messages));
        let began = tokio::time::Instant::now();
        let mut body = RequestBody::new(body, charge, MESSAGE_BYTES_MAX, Duration::from_secs(10), due);
        while let Some(Ok(_)) = body.frame().await {}
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_of_one_message_has_to_end_in_its_time() {
        assert_eq!(lasts(Due::End).await.as_secs(), 10);
        assert_eq!([lasts(Due::Message).await, lasts(Due::Nothing).await].map(|it| it.as_secs()), [100; 2]);
    }
}
