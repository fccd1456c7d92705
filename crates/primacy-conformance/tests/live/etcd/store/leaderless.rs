//! A member that has lost the others: it refuses at once what it cannot answer (`require leader`), and lets no client hang.

use std::sync::Arc;
use std::time::{Duration, Instant};

use primacy_conformance::live::etcd::{Etcd, MEMBERS};
use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::etcd::{EtcdClient, RequestError, api};
use primacy_stores::{Register, open};
use tokio::task::JoinHandle;

use super::{PATIENCE, cluster, metric_of, soon};

/// Far less than the 5 s that a request may take, and far more than a refusal takes.
const AT_ONCE: Duration = Duration::from_millis(2500);

/// The time for which nothing happens after a refusal: several of the client's tries, each 200 ms.
const REST: Duration = Duration::from_secs(1);

/// The pause before something is looked at again.
const POLL: Duration = Duration::from_millis(20);

/// The member that is left.
const LEFT: usize = 2;

/// The number of watchers of the member that is left. Our etcd API does not report it.
fn watchers(etcd: &Etcd) -> Option<u64> {
    (!etcd.is_ours()).then(|| metric_of(etcd, LEFT, "etcd_debugging_mvcc_watcher_total", ""))
}

/// Waits until it has so many, as far as it reports it.
async fn until_watchers(etcd: &Etcd, wanted: u64) {
    let began = Instant::now();
    while let Some(found) = watchers(etcd)
        && found != wanted
    {
        assert!(began.elapsed() < PATIENCE, "there are {found} watchers, and never {wanted}");
        tokio::time::sleep(POLL).await;
    }
}

/// Sends a write, and returns its refusal.
async fn refused(client: &EtcdClient) -> RequestError {
    let put = api::PutRequest { key: b"k".to_vec(), ..Default::default() };
    let success = vec![api::RequestOp { request: Some(api::Request::RequestPut(put)) }];
    let told = soon(client.transact(api::TxnRequest { success, ..Default::default() })).await;
    told.expect_err("there is no majority")
}

/// True if this error means that there is no leader.
fn is_leaderless(error: &RequestError) -> bool {
    matches!(error, RequestError::NoAnswer { why } if why.contains("no leader"))
}

fn watch(register: &Arc<dyn Register>) -> JoinHandle<()> {
    let register = Arc::clone(register);
    tokio::spawn(async move { register.changed().await })
}

/// Writes the first record, as soon as a server takes it.
async fn write(register: &dyn Register) {
    let record = Record::released(FencingToken(1), primacy_core::Duration::ZERO);
    soon(async { while register.compare_and_set(None, &record).await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_a_leader_refuses_requests_and_watches_at_once() {
    let Some(mut etcd) = cluster(None).await else { return };
    let url = |prefix: &str| etcd.url_of(&[LEFT], prefix);
    let client = EtcdClient::new(&url("")).expect("this is a URL");
    // Each URL has a connection and a stream of watches of its own.
    let earlier = open(&url("/earlier?recipe=lease"), "e").await.unwrap();
    let later = open(&url("/later?recipe=lease"), "e").await.unwrap();
    assert_eq!((earlier.read().await, later.read().await), (Ok(None), Ok(None)));
    let told_earlier = watch(&earlier);
    until_watchers(&etcd, 1).await;
    for member in (0..MEMBERS).filter(|member| *member != LEFT) {
        etcd.kill(member);
    }
    // The member takes its time to notice the loss; earlier requests wait.
    soon(async { while !is_leaderless(&refused(&client).await) {} }).await;

    let began = Instant::now();
    let error = refused(&client).await;
    let took = began.elapsed();
    assert!(is_leaderless(&error), "{error:?}");
    assert!(took < AT_ONCE, "it was refused after {took:?}");

    // A stream that was there is ended, and a new one is not begun: neither would deliver anything.
    let told_later = watch(&later);
    until_watchers(&etcd, 0).await;
    let began = Instant::now();
    while began.elapsed() < REST {
        assert_eq!(watchers(&etcd).unwrap_or(0), 0, "it watches for nobody");
        tokio::time::sleep(POLL).await;
    }
    assert!(!told_earlier.is_finished() && !told_later.is_finished(), "nothing has changed");

    for member in (0..MEMBERS).filter(|member| *member != LEFT) {
        etcd.relaunch(member);
    }
    write(&*earlier).await;
    write(&*later).await;
    soon(told_earlier).await.expect("it is told");
    soon(told_later).await.expect("it is told");
}
