//! Members that are killed, paused and cut off while elections go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use primacy_conformance::live::etcd::MEMBERS;
use primacy_core::election::session::QueuePosition;
use primacy_stores::etcd::{EtcdClient, api};
use primacy_stores::{OpenError, SessionError};

use super::relay::Relay;
use super::{Candidate, TIMEOUT, cluster, entries, refusal, sessions, soon};

fn is_no_answer(error: &SessionError) {
    assert!(matches!(error, SessionError::NoAnswer { .. }), "{error}");
    assert!(!error.to_string().contains("panicked"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_killed_or_hangs_costs_no_session() {
    let Some(mut etcd) = cluster(None).await else { return };
    let url = etcd.url("", "/app");
    let (a, b) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    let token = a.win().await;
    b.is_behind("a").await;
    // Among them are the member that we are connected to, and the leader of the cluster.
    for member in 0..MEMBERS {
        for is_killed in [false, true] {
            let leader = etcd.leader().await;
            // Asked for before, so that it has to come over another member.
            let mut told = b.store.changed();
            assert!(tokio::time::timeout(Duration::from_millis(20), &mut told).await.is_err());
            if is_killed {
                etcd.kill(member);
            } else {
                etcd.pause(member);
            }
            let began = Instant::now();
            assert!(a.kept_alive().await <= TIMEOUT);
            b.kept_alive().await;
            let what = if is_killed { "killed" } else { "paused" };
            let which = if member == leader { "the leader" } else { "a follower" };
            eprintln!("etcd: member {member}, {which}, {what}: kept alive after {:?}", began.elapsed());
            assert!(matches!(soon(a.store.first()).await, Ok(Some(first)) if first.token == token));
            if is_killed {
                etcd.restart(member).await;
            } else {
                etcd.resume(member);
            }
            assert_eq!(a.win().await, token, "the same entry");
        }
    }
    a.leave().await;
    soon(b.store.changed()).await;
    assert!(b.win().await > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_all_members_are_down_nothing_is_said_to_have_ended() {
    let Some(mut etcd) = cluster(None).await else { return };
    let url = etcd.url("", "/app");
    let timeout = Duration::from_secs(3);
    let a = Candidate::with(sessions(&url, "e").await, "a", timeout).await;
    let token = a.win().await;
    for member in 0..MEMBERS {
        etcd.kill(member);
    }
    let began = Instant::now();
    while began.elapsed() < timeout * 2 {
        for error in [a.keep_alive().await.err(), a.campaign().await.err()] {
            is_no_answer(&error.expect("nobody is there"));
        }
    }
    assert!(matches!(refusal(&url).await, OpenError::Unavailable { .. }));
    for member in 0..MEMBERS {
        etcd.relaunch(member);
    }
    // By itself; a new leader of etcd gives all sessions their whole time again.
    assert_eq!(a.kept_alive().await, timeout);
    assert_eq!(a.win().await, token);
    // It is not kept alive any more.
    let ended = async {
        while entries(&etcd, "app/e/").len() == 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(ended).await;
    assert!(matches!(a.keep_alive().await, Err(SessionError::Ended { .. })));
    assert!(matches!(a.campaign().await, Err(SessionError::Ended { .. })));
    let again = Candidate::with(Arc::clone(&a.store), "a", timeout).await;
    assert!(again.win().await > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_compacted_while_nobody_watched_is_a_change() {
    let Some(etcd) = cluster(None).await else { return };
    let url = etcd.url("", "/app");
    let (a, b) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    let token = a.win().await;
    b.is_behind("a").await;
    // Its key is gone, and so is the event of its deletion.
    a.leave().await;
    let client = EtcdClient::new(&url).unwrap();
    for round in 0..10 {
        let value = format!("{round}").into_bytes();
        let put = api::PutRequest { key: b"other".to_vec(), value, ..Default::default() };
        let success = vec![api::RequestOp { request: Some(api::Request::RequestPut(put)) }];
        client.transact(api::TxnRequest { success, ..Default::default() }).await.unwrap();
    }
    let now = client.read(api::RangeRequest { key: b"other".to_vec(), ..Default::default() }).await.unwrap();
    let revision = now.header.unwrap().revision;
    let _ = etcd.told(&["compact", &revision.to_string()]);
    soon(b.store.changed()).await;
    assert!(b.win().await > token);
    // And the wake-ups end.
    let told = tokio::time::timeout(Duration::from_millis(300), b.store.changed());
    assert!(told.await.is_err(), "nothing has changed since");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_answer_was_lost_is_found_and_one_that_lands_late_is_taken_out() {
    let Some(etcd) = cluster(None).await else { return };
    let relay = Relay::start(etcd.address(0)).await;
    let url = format!("etcd://127.0.0.1:{}/app", relay.port);
    let store = sessions(&url, "e").await;
    // Another election, with which the session goes on.
    let other = Candidate::new(&url, "other", "a").await;
    let a = Candidate::with(store, "a", TIMEOUT).await;
    assert_eq!(other.session, a.session);
    relay.lose_answers(true);
    is_no_answer(&a.campaign().await.expect_err("the answer is lost"));
    let client = EtcdClient::new(&etcd.url("", "/app")).unwrap();
    let key = format!("app/e/{}", a.session.as_str()).into_bytes();
    let read = async || {
        let range = api::RangeRequest { key: key.clone(), ..Default::default() };
        client.read(range).await.unwrap().kvs.into_iter().next()
    };
    let entry = soon(read()).await.expect("the write was made");
    relay.lose_answers(false);
    let Ok(QueuePosition::First { token, .. }) = a.campaign().await else { panic!("alone") };
    assert_eq!(token.0, u64::try_from(entry.create_revision).unwrap(), "the same entry");
    a.leave().await;
    assert_eq!(soon(read()).await, None);
    // The write once more, as one of its tries could still be on its way.
    let put =
        api::PutRequest { key: key.clone(), value: entry.value, lease: entry.lease, ..Default::default() };
    let success = vec![api::RequestOp { request: Some(api::Request::RequestPut(put)) }];
    client.transact(api::TxnRequest { success, ..Default::default() }).await.unwrap();
    soon(async { while read().await.is_some() {} }).await;
    // A new entry of the same session is not taken for it.
    let again = a.win().await;
    assert!(again > token);
    assert!(tokio::time::timeout(Duration::from_millis(300), a.store.changed()).await.is_err());
    assert_eq!(a.win().await, again);
}
