//! Small requests with a large cost, on real processes: they are refused before they are replicated, and the nodes
//! survive them, also after a restart.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use primacy_stores::etcd::api::{self, method};
use primacy_testbed::keepers::Keepers;
use tonic::Code;

fn put(key: &str, length: usize) -> api::Request {
    api::Request::RequestPut(api::PutRequest {
        key: key.into(),
        value: vec![7; length],
        ..Default::default()
    })
}

fn all() -> api::Request {
    api::Request::RequestRange(api::RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() })
}

fn transaction(operations: Vec<api::Request>) -> api::TxnRequest {
    let success = operations.into_iter().map(|one| api::RequestOp { request: Some(one) }).collect();
    api::TxnRequest { success, ..Default::default() }
}

/// 2,400 transactions of 187 bytes once stopped three nodes, and again when they had been started anew and applied their logs; and 900 that
/// only read kept all other clients out.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_over_many_keys_leave_others_their_turn_also_after_a_restart() {
    let nodes = ["a", "b", "c"];
    let mut keepers = Keepers::start("request-turns", &nodes);
    let asked = keepers.asked("a").await;
    for some in 0..240 {
        let puts = (0..125).map(|number| put(&format!("k{some:03}-{number:03}"), 1)).collect();
        asked.ask::<_, api::TxnResponse>(method::TXN, &transaction(puts)).await.unwrap();
    }
    let sorted = api::RangeRequest {
        key: vec![0],
        range_end: vec![0],
        limit: 1,
        sort_order: api::SortOrder::Descend.into(),
        sort_target: api::SortTarget::Value.into(),
        ..Default::default()
    };
    // All nodes apply the first; the second only reads, and only the node that is asked does it.
    let sorted = |count| vec![api::Request::RequestRange(sorted.clone()); count];
    for costly in [transaction([sorted(3), vec![put("z", 1)]].concat()), transaction(sorted(11))] {
        // What is no more than a request may cost is done.
        asked.ask::<_, api::TxnResponse>(method::TXN, &costly).await.unwrap();
        let mut attack = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let attacker = keepers.asked("a").await;
            for _ in 0..800 {
                let (attacker, costly) = (attacker.clone(), costly.clone());
                attack.spawn(async move {
                    attacker.ask::<_, api::TxnResponse>(method::TXN, &costly).await.map(drop)
                });
            }
        }
        attack.join_next().await.unwrap().unwrap().unwrap();
        for node in nodes {
            keepers.write(node, &format!("beside-{node}")).await;
        }
        drop(attack);
        keepers.write("b", "after").await;
    }
    for node in nodes {
        keepers.kill(node);
    }
    for node in nodes {
        keepers.restart(node);
    }
    keepers.leader();
    keepers.write("c", "again").await;
}

/// 1,000 transactions of 128 small puts on each of three connections, each within every limit, once took the lead three times: a node applied all that
/// was committed at once, on the thread that renews the lead.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_transactions_that_write_takes_no_lead_and_each_is_answered() {
    let nodes = ["a", "b", "c"];
    let mut keepers = Keepers::start("request-burst", &nodes);
    let leader = keepers.leader();
    let term = || keepers.who(&leader)["leader"]["term"].as_u64().expect("it leads");
    let before = term();
    let mut burst = tokio::task::JoinSet::new();
    for (connection, node) in nodes.into_iter().enumerate() {
        let asked = keepers.asked(node).await;
        for some in 0..1_000 {
            let asked = asked.clone();
            let key = |number| format!("{connection}-{some}-{number}");
            let puts = transaction((0..128).map(|number| put(&key(number), 1)).collect());
            burst.spawn(async move { asked.ask::<_, api::TxnResponse>(method::TXN, &puts).await.map(drop) });
        }
    }
    for node in nodes {
        keepers.write(node, &format!("beside-{node}")).await;
    }
    while let Some(answered) = burst.join_next().await {
        answered.unwrap().unwrap();
    }
    assert_eq!(term(), before, "it leads without a break");
}

/// 1,000 transactions of 1,500 bytes, which keep the values that they write, once kept a node from leading for three minutes after each
/// start: it copied 140 MB for each.
#[tokio::test]
async fn values_that_are_kept_cost_no_time_for_their_length_also_after_a_restart() {
    let mut keepers = Keepers::start("request-keeps", &["a"]);
    keepers.write("a", "before").await;
    let asked = keepers.asked("a").await;
    let keys: Vec<String> = (0..100).map(|number| format!("k{number:03}")).collect();
    for key in &keys {
        let put = transaction(vec![put(key, 1 << 20)]);
        asked.ask::<_, api::TxnResponse>(method::TXN, &put).await.unwrap();
    }
    let keep = |key: &String| {
        let key = key.clone().into_bytes();
        api::Request::RequestPut(api::PutRequest { key, ignore_value: true, ..Default::default() })
    };
    let keeps = transaction(keys.iter().map(keep).collect());
    for _ in 0..600 {
        asked.ask::<_, api::TxnResponse>(method::TXN, &keeps).await.unwrap();
    }
    keepers.kill("a");
    keepers.restart("a");
    keepers.leader();
    keepers.write("a", "after").await;
    let asked = keepers.asked("a").await;
    let one = api::RangeRequest { key: b"k007".to_vec(), ..Default::default() };
    let found: api::RangeResponse = asked.ask(method::RANGE, &one).await.unwrap();
    assert_eq!((found.kvs[0].version, found.kvs[0].value.len()), (601, 1 << 20));
    // A hundred keys are few; but to sort their values, all of which are the same, takes long.
    let sorted = api::RangeRequest {
        key: vec![0],
        range_end: vec![0],
        keys_only: true,
        sort_order: api::SortOrder::Descend.into(),
        sort_target: api::SortTarget::Value.into(),
        ..Default::default()
    };
    let sorts = |count| vec![api::Request::RequestRange(sorted.clone()); count];
    for costly in [[vec![put("z", 1)], sorts(1)].concat(), sorts(20)] {
        let answer = asked.ask::<_, api::TxnResponse>(method::TXN, &transaction(costly)).await.map(drop);
        let text = "etcdserver: request looks at too many entries: ask for fewer keys at a time";
        assert_eq!(answer, Err((Code::ResourceExhausted, text.to_owned())));
    }
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
    let nested = |within: Vec<api::Request>| api::Request::RequestTxn(transaction(within));
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
