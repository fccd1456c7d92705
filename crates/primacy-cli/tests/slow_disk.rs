//! A node alone on a slow disk, on real processes: while a write is not on the disk yet, no reader sees it. If the node
//! dies before, no client has seen the lost write.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use primacy_stores::etcd::api::{self, method};
use primacy_testbed::etcd_api::{Asked, PATIENCE, Watches};
use primacy_testbed::keepers::{Keepers, value};
use primacy_testbed::wait_until;

/// The disk of all nodes of a test. It is slow while its file exists.
struct SlowDisk(PathBuf);

impl SlowDisk {
    /// Puts it below the nodes that are started from now on.
    fn below(keepers: &mut Keepers) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slow_disk.c");
        let (library, flag) = (keepers.place.text("slow_disk.so"), keepers.place.text("slow"));
        let mut compiler = Command::new("cc");
        let built =
            compiler.args(["-shared", "-fPIC", "-O1", "-o", &library]).arg(&source).arg("-ldl").status();
        assert!(built.unwrap().success(), "{} is not compiled", source.display());
        keepers.place.set("SLOW_DISK", &flag);
        keepers.place.set("LD_PRELOAD", &library);
        Self(flag.into())
    }

    fn stops(&self) {
        fs::write(&self.0, "").unwrap();
    }

    fn goes_on(&self) {
        fs::remove_file(&self.0).unwrap();
        fs::remove_file(self.waits()).unwrap();
    }

    fn waits(&self) -> PathBuf {
        self.0.with_extension("waits")
    }

    fn is_waited_for(&self) {
        wait_until("a write that waits for the disk", || self.waits().exists());
    }
}

/// Reads this node's own state, without asking the leader.
async fn look(asked: &Asked, key: &str) -> usize {
    let range = api::RangeRequest { key: key.into(), serializable: true, ..Default::default() };
    let found: api::RangeResponse = asked.ask(method::RANGE, &range).await.unwrap();
    found.kvs.len()
}

/// All changes from now on.
async fn watch(asked: &Asked) -> Watches {
    let all = api::WatchCreateRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    let mut watches = asked.watches(api::RequestUnion::CreateRequest(all)).await;
    assert!(watches.answer().await.unwrap().created);
    watches
}

/// A write waits for the disk of `a`, which alone votes. No client sees it before it is there.
async fn is_seen_only_when_it_is_written(keepers: &Keepers, disk: &SlowDisk, key: &'static str) {
    let asked = keepers.asked("a").await;
    let mut changes = watch(&asked).await;
    disk.stops();
    let (writer, put) =
        (asked.clone(), api::PutRequest { key: key.into(), value: value(key), ..Default::default() });
    let write = tokio::spawn(async move { writer.ask::<_, api::PutResponse>(method::PUT, &put).await });
    disk.is_waited_for();
    for _ in 0..20 {
        assert_eq!(look(&asked, key).await, 0, "{key} is read, and would not survive a power cut");
    }
    let told = tokio::time::timeout(std::time::Duration::from_millis(100), changes.answer()).await;
    assert!(told.is_err(), "{key} is told, and would not survive a power cut: {told:?}");
    assert!(!write.is_finished(), "{key} is acknowledged, and would not survive a power cut");
    disk.goes_on();
    tokio::time::timeout(PATIENCE, write).await.unwrap().unwrap().unwrap();
    assert_eq!(look(&asked, key).await, 1);
    assert_eq!(changes.answer().await.unwrap().events.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_alone_shows_nothing_that_is_not_on_its_disk() {
    let mut keepers = Keepers::reserve("slow-disk", &["a"]);
    let disk = SlowDisk::below(&mut keepers);
    keepers.launch("a", &["--lease", "20s"]);
    keepers.write("a", "first").await;
    is_seen_only_when_it_is_written(&keepers, &disk, "second").await;

    // It dies while it writes. What becomes of the write is open; that it was seen before is not.
    disk.stops();
    let asked = keepers.asked("a").await;
    let put = api::PutRequest { key: "third".into(), ..Default::default() };
    let writer = asked.clone();
    let write = tokio::spawn(async move { writer.ask::<_, api::PutResponse>(method::PUT, &put).await });
    disk.is_waited_for();
    assert_eq!(look(&asked, "third").await, 0);
    keepers.kill("a");
    assert!(write.await.unwrap().is_err());
    disk.goes_on();
    keepers.restart("a");
    keepers.write("a", "fourth").await;
    assert_eq!(look(&keepers.asked("a").await, "second").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_that_are_removed_down_to_one_leave_one_that_waits_for_its_disk() {
    let mut keepers = Keepers::reserve("slow-disk-voters", &["a", "b"]);
    let disk = SlowDisk::below(&mut keepers);
    for name in ["a", "b"] {
        keepers.launch(name, &["--lease", "20s"]);
    }
    keepers.write("a", "by two").await;
    keepers.lead("a");
    keepers.verb("a", &["member", "remove", "b"]).is(0, &["b does not vote"]);
    keepers.stop("b");
    is_seen_only_when_it_is_written(&keepers, &disk, "by one").await;
    keepers.restart("b");
    let b = format!("b={}", keepers.address("b"));
    keepers.verb("a", &["member", "add", &b]).is(0, &["b votes"]);
    keepers.write("b", "by two again").await;
    assert_eq!(keepers.keys("b").await.len(), 3);
}
