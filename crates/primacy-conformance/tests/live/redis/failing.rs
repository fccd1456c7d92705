//! Faults of a server, and the errors that its elections get then.

use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::free_port;
use primacy_conformance::live::proxy::Proxy;
use primacy_conformance::live::redis::{PASSWORD, Redis};
use primacy_core::election::lease::Record;
use primacy_stores::record::LENGTH_MAX;
use primacy_stores::{OpenError, ReadError, RecordError, SetError, open};
use rustix::process::Signal;

use super::{record_key, server};
use crate::registers::{PATIENCE, read_in_the_end, record, refusal, set};

#[tokio::test]
async fn a_server_that_was_killed_has_what_it_acknowledged_and_is_found_again() {
    let Some(mut server) = server(&[]).await else { return };
    let register = open(&server.url(), "killed").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    server.kill();
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. } | SetError::Unknown { .. })), "{failed:?}");
    // Now it is known that no server listens.
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. })), "{failed:?}");
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    assert!(matches!(refusal(&server.url()).await, OpenError::Unavailable { .. }));
    server.restart().await;
    let found = read_in_the_end(&register).await;
    assert_eq!(found, Some((record(1), first.clone())));
    let second = set(&register, Some(&first), 2).await.unwrap();
    // A caller that waits for a change is woken again.
    let other = open(&server.url(), "killed").await.unwrap();
    assert_eq!(other.read().await.unwrap().unwrap().1, second);
    let third = set(&register, Some(&second), 3).await.unwrap();
    tokio::time::timeout(PATIENCE, other.changed()).await.expect("it is noticed");
    assert_eq!(other.read().await.unwrap().unwrap().1, third);
}

#[tokio::test]
async fn of_a_server_that_stands_still_a_write_is_unknown_and_lands_once_or_never() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "paused").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    server.server().signal(Signal::STOP);
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unknown { .. })), "it was sent: {failed:?}");
    // The kernel accepts the connection; no server answers on it.
    let failed = set(&register, Some(&first), 3).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. })), "nothing was sent: {failed:?}");
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    assert!(matches!(refusal(&server.url()).await, OpenError::Unavailable { .. }));
    server.server().signal(Signal::CONT);
    let (found, version) = read_in_the_end(&register).await.unwrap();
    assert!(
        (found == record(2) && version != first) || (found == record(1) && version == first),
        "{found:?}"
    );
    set(&register, Some(&version), 4).await.unwrap();
    assert_eq!(register.read().await.unwrap().unwrap().0, record(4));
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_is_unknown_and_was_done() {
    let Some(server) = server(&[]).await else { return };
    let proxy = Proxy::start(server.address());
    let register = open(&Redis::url_at(proxy.address()), "cut").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    let dropped = proxy.dropped();
    proxy.drop_replies();
    let writing = tokio::spawn({
        let (register, first) = (Arc::clone(&register), first.clone());
        async move { set(&register, Some(&first), 2).await }
    });
    proxy.until_dropped(dropped).await;
    proxy.refuse();
    let failed = writing.await.unwrap();
    assert!(matches!(failed, Err(SetError::Unknown { .. })), "{failed:?}");
    let failed = set(&register, Some(&first), 3).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. })), "no connection: {failed:?}");
    proxy.pass();
    let (found, version) = read_in_the_end(&register).await.unwrap();
    assert_eq!(found, record(2), "the server had done it");
    assert_ne!(version, first);
    assert_eq!(set(&register, Some(&first), 2).await, Err(SetError::Conflict), "a repetition is refused");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let Some(server) = server(&[]).await else { return };
    let address = server.address();
    for login in [":wrong-secret@", "", "nobody:wrong-secret@"] {
        let error = refusal(&format!("redis://{login}{address}/primacy")).await;
        assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("USER:PASSWORD") && !told.contains("wrong-secret"), "{told}");
    }
    // A database that the server does not have.
    let error = refusal(&format!("{}?db=1000", server.url())).await;
    assert!(!error.to_string().contains(PASSWORD), "{error}");
}

#[tokio::test]
async fn of_a_replica_nothing_is_read_or_written() {
    let Some(server) = server(&[]).await else { return };
    let Some(other) = super::server(&[]).await else { return };
    let register = open(&server.url(), "replica").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    let port = other.address().port();
    let _: () = server.ask(redis::cmd("REPLICAOF").arg("127.0.0.1").arg(port));
    let failed = register.read().await;
    let told = format!("{failed:?}");
    assert!(matches!(failed, Err(ReadError::Unavailable { .. })) && told.contains("replica"), "{told}");
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. })), "{failed:?}");
    let error = refusal(&server.url()).await;
    assert!(matches!(&error, OpenError::Unavailable { why } if why.contains("replica")), "{error:?}");
    // It has taken over the other server's data, which is none.
    let _: () = server.ask(redis::cmd("REPLICAOF").arg("NO").arg("ONE"));
    assert!(read_in_the_end(&register).await.is_none_or(|(found, _)| found == record(1)));
}

#[tokio::test]
async fn what_the_server_refuses_has_not_been_written() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "refused").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    let config = |name: &str, value: &str| {
        let _: () = server.ask(redis::cmd("CONFIG").arg("SET").arg(name).arg(value));
    };
    for (name, value, before, hint) in
        [("maxmemory", "1", "0", "maxmemory"), ("min-replicas-to-write", "1", "0", "min-replicas-to-write")]
    {
        config(name, value);
        let failed = set(&register, Some(&first), 2).await;
        assert!(matches!(&failed, Err(SetError::Unavailable { why }) if why.contains(hint)), "{failed:?}");
        config(name, before);
        assert_eq!(register.read().await, Ok(Some((record(1), first.clone()))));
    }
    // The server forgets its scripts, and gets them again.
    let _: () = server.ask(redis::cmd("SCRIPT").arg("FLUSH"));
    assert_eq!(register.read().await, Ok(Some((record(1), first.clone()))));
    let _: () = server.ask(redis::cmd("SCRIPT").arg("FLUSH"));
    set(&register, Some(&first), 2).await.unwrap();
    // Another program's value under the key stays.
    let _: () = server.ask(redis::cmd("SET").arg(record_key("refused")).arg("theirs"));
    let failed = set(&register, None, 3).await;
    assert!(matches!(&failed, Err(SetError::Unavailable { why }) if why.contains("prefix")), "{failed:?}");
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    let _: () = server.ask(redis::cmd("DEL").arg(record_key("refused")));
    let fence = primacy_stores::redis::fence_key("primacy", "refused");
    let _: () = server.ask(redis::cmd("SET").arg(&fence).arg("not a number"));
    let failed = set(&register, None, 3).await;
    assert!(matches!(&failed, Err(SetError::Unavailable { why }) if why.contains("highest")), "{failed:?}");
    assert_eq!(register.read().await, Ok(None));
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused() {
    // Else it takes the port that is 10,000 above, which may be that of another process's connection.
    let port = free_port().to_string();
    let settings = ["--cluster-enabled", "yes", "--cluster-port", &port];
    let Some(server) = server(&settings).await else { return };
    let error = refusal(&server.url()).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("Cluster")), "{error:?}");
}

#[tokio::test]
async fn after_everything_was_deleted_no_version_comes_back() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "flushed").await.unwrap();
    let mut old = vec![set(&register, None, 1).await.unwrap()];
    for token in 2..6 {
        old.push(set(&register, old.last(), token).await.unwrap());
    }
    let _: () = server.ask(&redis::cmd("FLUSHALL"));
    assert_eq!(register.read().await, Ok(None));
    let mut newest = set(&register, None, 1).await.unwrap();
    for token in 2..10 {
        for version in &old {
            assert_eq!(set(&register, Some(version), 100).await, Err(SetError::Conflict));
        }
        newest = set(&register, Some(&newest), token).await.unwrap();
    }
}

#[tokio::test]
async fn a_record_does_not_expire() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "expiring").await.unwrap();
    set(&register, None, 1).await.unwrap();
    let _: () = server.ask(redis::cmd("EXPIRE").arg(record_key("expiring")).arg(1000));
    register.read().await.unwrap().unwrap();
    let left: i64 = server.ask(redis::cmd("TTL").arg(record_key("expiring")));
    assert_eq!(left, -1, "reading takes the time away");
}

#[tokio::test]
async fn of_a_record_that_is_too_long_no_more_is_read_than_tells_so() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "long").await.unwrap();
    set(&register, None, 1).await.unwrap();
    let long = vec![b' '; 10 * LENGTH_MAX];
    let _: u32 = server.ask(redis::cmd("HSET").arg(record_key("long")).arg("record").arg(long));
    let error = RecordError::TooLong { length: LENGTH_MAX + 1 };
    assert_eq!(register.read().await, Err(ReadError::Malformed { error }));
}

#[tokio::test]
async fn a_wait_that_is_dropped_again_and_again_notices_what_is_not_told() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "again").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    // A renewal, which is not published.
    let other = open(&server.url(), "again").await.unwrap();
    other.read().await.unwrap();
    let renewed = Record { renewal: 1, ..record(1) };
    other.compare_and_set(Some(&first), &renewed).await.unwrap();
    let noticed = async {
        while tokio::time::timeout(Duration::from_millis(100), register.changed()).await.is_err() {}
    };
    tokio::time::timeout(PATIENCE, noticed).await.expect("it is noticed");
}
