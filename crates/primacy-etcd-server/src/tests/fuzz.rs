//! For any input to the etcd API, the worst outcome is a refusal.

use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use primacy::stores::etcd::api::{self, v3electionpb};
use primacy_core::time::Duration;
use primacy_kv::command::ANSWER_BYTES_MAX;
use primacy_kv::command::{
    Command, Keys, OPERATIONS_IN_ALL_MAX, Operation, Previous, Replace, SessionId, Version, Write,
};
use primacy_kv::state::State;
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::super::in_memory::InMemory;
use super::super::services::Services;
use super::super::{auth, cluster, election, hub::Hub, kv, lease, lock, maintenance, operation_count, watch};

/// The most answers of a stream that are checked; these requests get fewer.
const ANSWERS_MAX: usize = 10_000;

#[test]
fn etcd_api_request() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let (state, requests) = some_entries();
    primacy_fuzz::hold("etcd_api_request", move |bytes| {
        let Some((&kind, message)) = bytes.split_first() else { return };
        let hub = Arc::new(Hub::new(Arc::new(InMemory::new(state.clone(), requests))));
        let api = Asked { runtime: &runtime, services: Services::on_loopback(hub) };
        api.answer(kind, message);
    });
}

/// Makes a map with a history: a few entries, one of them with a session, a deleted one, and a compacted part.
fn some_entries() -> (State, u64) {
    let map = InMemory::new(State::new(), 0);
    let session = SessionId::new(7);
    let write = |key: &[u8], session| {
        Command::Operate(Operation::Write(Write {
            key: key.into(),
            value: Replace::With(key.into()),
            session: Replace::With(session),
            previous: Previous::Unwanted,
        }))
    };
    let gone =
        primacy_kv::command::Delete { keys: Keys::One((*b"gone").into()), previous: Previous::Unwanted };
    let time_to_live = Duration::from_secs(60);
    for command in [
        Command::Begin { session: session.unwrap(), time_to_live },
        write(b"a", None),
        write(b"gone", None),
        Command::Operate(Operation::Delete(gone)),
        Command::Compact(Version(3)),
        write(b"a", None),
        write(b"a/1", session),
        write(b"e/7", session),
        write(b"m/6", None),
    ] {
        assert!(map.write(command).result.is_ok());
    }
    map.into_state()
}

/// An etcd API that gets one request.
struct Asked<'a> {
    runtime: &'a Runtime,
    services: Arc<Services>,
}

impl Asked<'_> {
    /// Makes the request that a byte selects.
    fn answer(&self, kind: u8, message: &[u8]) {
        match kind {
            b'r' => self.unary(message, kv::range),
            b'p' => self.unary(message, kv::put),
            b'd' => self.unary(message, kv::delete_range),
            b't' => self.transaction(message),
            b'c' => self.unary(message, kv::compact),
            b'g' => self.unary(message, lease::grant),
            b'v' => self.unary(message, lease::revoke),
            b'k' => self.unary(message, async |services, asked: api::LeaseKeepAliveRequest| {
                lease::answer(&services, asked.id).await
            }),
            b'l' => self.unary(message, lease::time_to_live),
            b'L' => self.unary(message, lease::leases),
            b'w' => self.watches(message),
            b'C' => self.unary(message, election::campaign),
            b'P' => self.unary(message, election::proclaim),
            b'E' => self.unary(message, election::leader),
            b'O' => {
                if let Some(asked) = read::<v3electionpb::LeaderRequest>(message) {
                    let answers = self
                        .runtime
                        .block_on(async { election::observe(Arc::clone(&self.services), asked, true) });
                    self.stream(answers);
                }
            }
            b'R' => self.unary(message, election::resign),
            b'T' => self.unary(message, lock::lock),
            b'U' => self.unary(message, lock::unlock),
            b's' => self.unary(message, maintenance::status),
            b'A' => self.unary(message, maintenance::alarm),
            b'm' => self.unary(message, cluster::member_list),
            b'u' => self.unary(message, auth::authenticate),
            _ => {}
        }
    }

    fn unary<Q, A, F>(&self, message: &[u8], ask: impl FnOnce(Arc<Services>, Q) -> F)
    where
        Q: Message + Default + PartialEq + Debug,
        A: Message + Default + PartialEq + Debug,
        F: Future<Output = Result<A, Status>>,
    {
        let Some(asked) = read(message) else { return };
        let told = self.runtime.block_on(async {
            let told = now(ask(Arc::clone(&self.services), asked)).await;
            // A waiting client disconnects here, and its entry is removed.
            tokio::task::yield_now().await;
            told
        });
        if let Some(told) = told {
            is_fine(told);
        }
    }

    /// The decoding of a transaction is limited before it begins.
    fn transaction(&self, message: &[u8]) {
        if operation_count::check(message).is_err() {
            return;
        }
        if let Ok(transaction) = api::TxnRequest::decode(message) {
            assert!(operations(&transaction) < OPERATIONS_IN_ALL_MAX);
        }
        self.unary(message, kv::txn);
    }

    /// Several watches in one stream, each with a length prefix, and changes between them.
    fn watches(&self, mut message: &[u8]) {
        let _entered = self.runtime.enter();
        let mut answers = watch::Answers::new(Arc::clone(&self.services), None, true, None);
        while let Ok(wish) = api::WatchRequest::decode_length_delimited(&mut message) {
            answers.take_wish(wish);
            self.stream(&mut answers);
            let put = api::PutRequest { key: b"a/1".to_vec(), prev_kv: true, ..Default::default() };
            self.unary(&put.encode_to_vec(), kv::put);
            while self.services.hub.hand_on() < self.services.backend().now() {}
            self.stream(&mut answers);
        }
    }

    /// Returns all answers of a stream that are ready.
    fn stream<A: Message + Default + PartialEq + Debug>(
        &self,
        answers: impl Stream<Item = Result<A, Status>> + Unpin,
    ) {
        let mut answers = answers;
        self.runtime.block_on(async {
            // The answers may come from a task of their own.
            tokio::task::yield_now().await;
            for count in 0.. {
                assert!(count < ANSWERS_MAX, "it does not come to its end");
                let Some(Some(told)) = now(answers.next()).await else { break };
                is_fine(told);
            }
        });
    }
}

/// Counts the comparisons and operations, nested ones included.
fn operations(transaction: &api::TxnRequest) -> usize {
    let within = |operation: &api::RequestOp| match &operation.request {
        Some(api::Request::RequestTxn(within)) => 1 + operations(within),
        Some(
            api::Request::RequestRange(_) | api::Request::RequestPut(_) | api::Request::RequestDeleteRange(_),
        )
        | None => 1,
    };
    let lists = transaction.success.iter().chain(&transaction.failure);
    transaction.compare.len() + lists.map(within).sum::<usize>()
}

/// Returns the output if it is ready at once; `None` if the future waits.
async fn now<T>(what: impl Future<Output = T>) -> Option<T> {
    let mut what = pin!(what);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match what.as_mut().poll(context) {
            std::task::Poll::Ready(told) => Some(told),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// Decodes a request; if it is valid, encoding returns the same.
fn read<Q: Message + Default + PartialEq + Debug>(message: &[u8]) -> Option<Q> {
    let asked = Q::decode(message).ok()?;
    assert_eq!(Q::decode(&*asked.encode_to_vec()).as_ref(), Ok(&asked));
    Some(asked)
}

/// Checks that an answer is not too long, and can be encoded and decoded; and that a refusal has a reason.
fn is_fine<A: Message + Default + PartialEq + Debug>(told: Result<A, Status>) {
    match told {
        Ok(answer) => {
            assert!(answer.encoded_len() as u64 <= ANSWER_BYTES_MAX, "{} bytes", answer.encoded_len());
            assert_eq!(A::decode(&*answer.encode_to_vec()), Ok(answer));
        }
        Err(status) => assert!(!status.message().is_empty(), "{status:?}"),
    }
}
