//! Reads the messages of a stream before its service takes them.
//!
//! A service takes the messages of a stream one by one, and a client may send thousands at once: keep-alives of all its leases, or watches
//! of all its keys. Messages that wait inside the HTTP/2 library are not charged, and beyond a number of small frames the library ends the
//! connection (`too_many_data_frames`). So a stream is read as it arrives, and waiting messages are charged to the client, within the
//! budgets of its connection and of the node.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc;

use super::abort_on_drop::AbortOnDrop;
use super::body::Failed;
use super::budget::Charge;
use super::errors::Known;

/// The overhead of a frame, in bytes.
const FRAME_BYTES: usize = 256;

/// The body of a request whose service takes messages one by one.
pub(super) struct ReadAhead {
    received: mpsc::UnboundedReceiver<Result<Received, Failed>>,
    _reading: AbortOnDrop,
}

/// A frame that the service has not taken yet, with its charge.
struct Received {
    frame: Frame<Bytes>,
    _charge: Charge,
}

impl ReadAhead {
    /// Reads this body, and charges the waiting data in addition to its stream.
    pub(super) fn of<B>(body: B, stream: &Arc<Charge>) -> Self
    where
        B: Body<Data = Bytes, Error = Failed> + Send + Unpin + 'static,
    {
        let (give, received) = mpsc::unbounded_channel();
        let stream = Arc::clone(stream);
        let reading = tokio::spawn(async move {
            if let Err(failed) = read(body, &stream, &give).await {
                // The service may have ended earlier.
                let _ = give.send(Err(failed));
            }
        });
        Self { received, _reading: AbortOnDrop(reading) }
    }
}

async fn read<B>(
    mut body: B,
    stream: &Charge,
    give: &mpsc::UnboundedSender<Result<Received, Failed>>,
) -> Result<(), Failed>
where
    B: Body<Data = Bytes, Error = Failed> + Unpin,
{
    while let Some(frame) = body.frame().await {
        // A copy: a slice of a short frame would keep the whole receive buffer alive.
        let frame = frame?.map_data(|data| Bytes::copy_from_slice(&data));
        let bytes = FRAME_BYTES + frame.data_ref().map_or(0, Bytes::len);
        let charge = stream.another(bytes).ok_or_else(|| tonic::Status::from(Known::TOO_MANY_REQUESTS))?;
        if give.send(Ok(Received { frame, _charge: charge })).is_err() {
            break;
        }
    }
    Ok(())
}

impl Body for ReadAhead {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        self.received.poll_recv(context).map(|received| Some(received?.map(|received| received.frame)))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::StreamBody;
    use tokio_stream::StreamExt;

    use super::super::client::{NodeBudgets, on_loopback};
    use super::*;

    /// A body of `frames` frames of `length` bytes, which then pauses for ever.
    fn body(frames: usize, length: usize) -> impl Body<Data = Bytes, Error = Failed> + Send + Unpin {
        let frame = move |_| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![7; length])));
        let frames = tokio_stream::iter(0..frames).map(frame).chain(tokio_stream::pending());
        StreamBody::new(frames).map_err(|never: Infallible| match never {}).boxed_unsync()
    }

    /// Runs all tasks that are ready.
    async fn settle() {
        for _ in 0..5_000 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_a_service_does_not_take_is_charged_until_it_does() {
        let node = NodeBudgets::default();
        let stream = Arc::new(on_loopback(&node).begin_admitted().unwrap());
        let idle = node.taken()[0];
        let mut few = ReadAhead::of(body(3, 1000), &stream);
        settle().await;
        assert_eq!(node.taken()[0] - idle, 3 * (1000 + FRAME_BYTES));
        for _ in 0..3 {
            assert_eq!(few.frame().await.unwrap().unwrap().into_data().unwrap().len(), 1000);
        }
        assert_eq!(node.taken()[0], idle);
        let many = ReadAhead::of(body(1000, 1000), &stream);
        settle().await;
        assert_eq!(node.taken()[0] - idle, 1000 * (1000 + FRAME_BYTES));
        drop(many);
        settle().await;
        assert_eq!(node.taken()[0], idle);
    }

    #[tokio::test]
    async fn streams_that_are_not_taken_end_where_the_budget_of_the_node_does() {
        let node = NodeBudgets::default();
        let (mut streams, mut ended) = (Vec::new(), 0);
        for _ in 0..8192 {
            let Ok(charge) = on_loopback(&node).begin_admitted() else {
                ended += 1;
                continue;
            };
            let stream = Arc::new(charge);
            streams.push((ReadAhead::of(body(1000, 1000), &stream), stream));
        }
        settle().await;
        assert!(node.taken()[0] <= 128 << 20);
        // Streams that were ended report it after the frames that they have received.
        for _ in 0..2 {
            for (stream, _) in &mut streams {
                while let Ok(received) = stream.received.try_recv() {
                    ended += u32::from(received.is_err());
                }
            }
            settle().await;
        }
        assert!(ended > 6000, "{ended} of 8192");
    }
}
