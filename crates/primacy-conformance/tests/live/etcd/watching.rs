//! The remains of watches that are over.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::open;

use super::cluster;
use super::store::{Candidate, PATIENCE, metric, soon};

/// The number of changes: many more than watches at a time.
const CHANGES: u64 = 50;

/// The pause before something is looked at again.
const POLL: Duration = Duration::from_millis(5);

/// The time without a wake-up where nothing changes. A client that is refused is woken after less.
const REST: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_change_leaves_no_watcher_behind_in_the_server() {
    let Some(etcd) = cluster(None).await else { return };
    let url = etcd.url("", "/app?recipe=lease");
    let (writer, reader) = (open(&url, "e").await.unwrap(), open(&url, "e").await.unwrap());
    let mut version = None;
    for token in 1..=CHANGES {
        assert_eq!(soon(reader.read()).await.unwrap().map(|(_, version)| version), version);
        let (mut told, record) =
            (reader.changed(), Record::released(FencingToken(token), primacy_core::Duration::ZERO));
        assert!(tokio::time::timeout(POLL, &mut told).await.is_err(), "nothing yet");
        version = Some(soon(writer.compare_and_set(version.as_ref(), &record)).await.unwrap());
        soon(told).await;
    }
    assert!(soon(reader.read()).await.is_ok());
    let mut last = reader.changed();
    let watchers = || metric(&etcd, "etcd_debugging_mvcc_watcher_total", "");
    let began = Instant::now();
    while watchers() != 1 {
        assert!(began.elapsed() < PATIENCE, "{} watchers after {CHANGES} changes", watchers());
        assert!(tokio::time::timeout(POLL, &mut last).await.is_err(), "nothing changes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_refused_for_an_old_login_is_begun_with_a_new_one() {
    let Some(etcd) = cluster(None).await else { return };
    for command in [
        "user add root:secret-of-root",
        "user grant-role root root",
        "user add elector:secret-of-elector",
        "user grant-role elector root",
        "auth enable",
    ] {
        let _ = etcd.told(&command.split(' ').collect::<Vec<_>>());
    }
    let url = etcd.url("elector:secret-of-elector@", "/app");
    let (a, b) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    a.win().await;
    b.is_behind("a").await;
    // A future does nothing before it is polled: the stream begins here.
    let mut told = b.store.changed();
    assert!(tokio::time::timeout(REST, &mut told).await.is_err(), "nothing yet");
    // The same password: a client that has logged in with it must do so again.
    let mut command =
        etcd.etcdctl(&["--user", "root:secret-of-root", "user", "passwd", "elector", "--interactive=false"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("etcdctl can be run");
    child.stdin.take().expect("piped").write_all(b"secret-of-elector\n").expect("it reads");
    assert!(child.wait().expect("it ends").success());
    tokio::join!(a.kept_alive(), b.kept_alive());
    a.leave().await;
    soon(told).await;
    b.win().await;
    a.is_behind("b").await;
    tokio::join!(a.kept_alive(), b.kept_alive());
    b.leave().await;
    a.win().await;
    // Its stream is as old as before. The wake-ups without a change end.
    soon(async {
        loop {
            tokio::join!(a.kept_alive(), b.kept_alive());
            b.is_behind("a").await;
            if tokio::time::timeout(REST, b.store.changed()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let told = b.store.changed();
    a.leave().await;
    soon(told).await;
    b.win().await;
}
