//! Small requests that would cost much, on real processes: they are refused before they are replicated, and the nodes live on, and
//! again after a restart.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[path = "support/door.rs"]
mod door;
#[path = "support/keepers.rs"]
mod keepers;
mod support;

use keepers::Keepers;
use primacy_stores::etcd::api::{self, method};
use tonic::Code;

fn put(key: &str, length: usize) -> api::Request {
    api::Request::Put(api::PutRequest { key: key.into(), value: vec![7; length], ..Default::default() })
}

fn all() -> api::Request {
    api::Request::Range(api::RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() })
}

fn transaction(operations: Vec<api::Request>) -> api::TxnRequest {
    let success = operations.into_iter().map(|one| api::RequestOp { request: Some(one) }).collect();
    api::TxnRequest { success, ..Default::default() }
}

#[tokio::test]
async fn a_small_request_that_would_cost_much_is_refused_and_ends_no_node() {
    let mut keepers = Keepers::start("request-limits", &["a"]);
    keepers.write("a", "before").await;
    let asked = keepers.asked("a").await;
    for key in ["a", "b", "c", "d"] {
        let put = transaction(vec![put(key, 1 << 20)]);
        asked.ask::<_, api::TxnResponse>(method::TXN, &put).await.unwrap();
    }
    // 26³ ranges in 173 KB, as they once ended all nodes at each restart.
    let nested = |within: Vec<api::Request>| api::Request::Txn(transaction(within));
    let inner = nested(vec![all(); 26]);
    let middle = nested(vec![inner; 26]);
    let poison = transaction([vec![put("z", 1)], vec![middle; 25]].concat());
    let refused = |code: Code, text: &str| Err((code, text.to_owned()));
    let answer = asked.ask::<_, api::TxnResponse>(method::TXN, &poison).await.map(drop);
    assert_eq!(answer, refused(Code::InvalidArgument, "etcdserver: too many operations in txn request"));
    // Fewer, whose answer would be as many times 4 MiB.
    let too_long = "etcdserver: response is larger than 64 MiB: ask for fewer keys at a time";
    for first in [put("z", 1), all()] {
        let long = transaction([vec![first], vec![all(); 20]].concat());
        let answer = asked.ask::<_, api::TxnResponse>(method::TXN, &long).await.map(drop);
        assert_eq!(answer, refused(Code::ResourceExhausted, too_long));
    }
    keepers.stop("a");
    keepers.restart("a");
    keepers.write("a", "after").await;
    let asked = keepers.asked("a").await;
    let count =
        api::RangeRequest { key: vec![0], range_end: vec![0], count_only: true, ..Default::default() };
    let found: api::RangeResponse = asked.ask(method::RANGE, &count).await.unwrap();
    assert_eq!(found.count, 6, "nothing of what was refused is done");
}
