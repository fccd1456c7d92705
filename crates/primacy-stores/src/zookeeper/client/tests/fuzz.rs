//! Fuzz test. Whatever a server answers to one request of each kind, each answer is decoded or ends the connection, what is decoded is no
//! longer than the answer, and it is the same however the network cuts it.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::super::exchange::{Exchange, ZnodeWatches};
use super::*;

/// The outcome of one run: the end of the connection, and what the callers have got.
type Outcome = (Option<String>, Vec<Option<String>>);

/// Hands the bytes in pieces to a connection with one request of each kind, and a ping.
fn run(bytes: &[u8], piece: usize) -> Outcome {
    let (requests, mut sent) = mpsc::channel(16);
    let phase = SessionPhase::Connected { server: "fake".to_owned(), requests };
    let (states, state) = watch::channel(SessionState { granted: HANG, phase });
    let client = ZooKeeperClient { session: SESSION, states: state, _open: mpsc::channel(1).0 };
    let acl = Acl::anyone();
    let mut asked: Vec<Pin<Box<dyn Future<Output = String>>>> = vec![
        Box::pin(async { format!("{:?}", client.stat("/e").await) }),
        Box::pin(async {
            format!("{:?}", client.watch_data("/e").await.map(|(data, stat, _)| (data, stat)))
        }),
        Box::pin(async { format!("{:?}", client.watch_children("/e").await.map(|(names, _)| names)) }),
        Box::pin(async { format!("{:?}", client.acls("/e").await) }),
        Box::pin(async {
            format!("{:?}", client.create("/e/", b"", ZnodeKind::EphemeralSequential, &acl).await)
        }),
        Box::pin(async { format!("{:?}", client.check("/e").await) }),
        Box::pin(async { format!("{:?}", client.set_data_if(("/e", 1), b"", ("/f", 2)).await) }),
        Box::pin(async { format!("{:?}", client.delete("/e").await) }),
    ];
    let mut context = Context::from_waker(Waker::noop());
    let mut results: Vec<Option<String>> = asked.iter().map(|_| None).collect();
    let mut poll = |results: &mut Vec<Option<String>>| {
        for (request, result) in asked.iter_mut().zip(results).filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(shown) = request.as_mut().poll(&mut context) {
                *result = Some(shown);
            }
        }
    };
    poll(&mut results);
    let (mut exchange, mut watches) = (Exchange::default(), ZnodeWatches::default());
    while let Ok(request) = sent.try_recv() {
        exchange.send(request);
    }
    exchange.ping();
    assert_eq!(exchange.waiting(), 8);
    let (mut received, mut end) = (Vec::new(), None);
    for piece in bytes.chunks(piece) {
        received.extend(piece);
        if let Err(ended) = exchange.receive(&mut received, &mut watches) {
            end = Some(format!("{ended:?}"));
            break;
        }
        assert!(received.len() < MESSAGE_MAX + 4);
        assert!(watches.count() <= 2);
    }
    drop(exchange);
    states.send_modify(|state| state.phase = SessionPhase::Disconnected("the test".to_owned()));
    poll(&mut results);
    (end, results)
}

#[test]
fn zookeeper_answers() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    primacy_fuzz::hold("zookeeper_answers", move |bytes| {
        // The requests have timeouts, which need a clock.
        let _entered = runtime.enter();
        let (end, results) = run(bytes, usize::MAX);
        assert!(results.iter().all(Option::is_some), "a caller waits for ever: {results:?}");
        // A byte takes at most four letters and a comma, and the rest is of the types and errors.
        let shown: usize = results.iter().flatten().map(String::len).sum();
        assert!(shown <= 16 * bytes.len() + 8 * 256, "{shown} letters of {} bytes", bytes.len());
        assert_eq!(run(bytes, 3), (end, results), "in pieces");
    });
}
