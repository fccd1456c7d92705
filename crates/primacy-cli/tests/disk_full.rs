//! A log on a disk that becomes full, on real processes: the node ends and reports the reason, every acknowledged write
//! is kept, and the node works again when the disk has room.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeSet;
use std::process::Command;

use primacy_stores::etcd::api::{self, method};
use primacy_testbed::keepers::{Keepers, value};
use primacy_testbed::small_disk::SmallDisk;
use primacy_testbed::{Place, peers, primacy, stderr, wait_until, words};

/// The size of the disk, in KiB. A log takes a mebibyte at a time in advance.
const DISK: u32 = 4 << 10;

/// The part of that which a filler takes, so that the log becomes longer than two of them only without it.
const FILLER: u32 = 1536;

/// No disk of that size takes so many writes.
const WRITES_MAX: usize = 2_000;

/// The node has ended because its disk is full, and says so.
fn has_ended(keepers: &mut Keepers, name: &str) {
    let node = keepers.node(name);
    assert_eq!(node.wait().code(), Some(74), "{}", node.history());
    // The last lines may be read only after its end.
    for text in [".segment is full", "make room and start this node again"] {
        wait_until(&format!("{text:?} in what it says"), || node.history().contains(text));
    }
    assert!(!node.history().contains("panicked"), "{}", node.history());
}

#[tokio::test]
async fn a_node_alone_acknowledges_nothing_that_its_full_disk_has_not_and_goes_on_when_there_is_room() {
    let mut keepers = Keepers::reserve("disk-full", &["a"]);
    let disk = SmallDisk::mount(&keepers.place, "a", DISK, FILLER);
    keepers.launch_within(&disk.within(), "a", &[]);
    let asked = keepers.asked("a").await;
    let (mut acknowledged, mut refused) = (BTreeSet::new(), None);
    for index in 0..WRITES_MAX {
        let key = format!("k-{index}");
        let put = api::PutRequest { key: key.clone().into(), value: value(&key), ..Default::default() };
        match asked.ask::<_, api::PutResponse>(method::PUT, &put).await {
            Ok(_) => acknowledged.insert(key),
            Err(_) => {
                refused = Some(key);
                break;
            }
        };
    }
    let refused = refused.expect("the disk is full some time");
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    has_ended(&mut keepers, "a");

    disk.make_room();
    keepers.restart("a");
    let mut found = keepers.keys("a").await;
    // What was not acknowledged may be there or not.
    found.remove(&refused);
    assert_eq!(found, acknowledged);
    keepers.write("a", "after").await;
    assert!(keepers.keys("a").await.contains("after"));
}

#[tokio::test]
async fn where_one_of_three_has_a_full_disk_the_others_go_on_and_it_comes_back_with_all_of_it() {
    let mut keepers = Keepers::reserve("disk-full-one", &["a", "b", "c"]);
    let disk = SmallDisk::mount(&keepers.place, "a", DISK, FILLER);
    keepers.launch_within(&disk.within(), "a", &[]);
    for name in ["b", "c"] {
        keepers.launch(name, &[]);
    }
    let mut acknowledged = BTreeSet::new();
    while keepers.node("a").ended().is_none() {
        let key = format!("k-{}", acknowledged.len());
        keepers.write("b", &key).await;
        acknowledged.insert(key);
        assert!(acknowledged.len() < WRITES_MAX, "the disk is full some time");
    }
    has_ended(&mut keepers, "a");
    acknowledged.extend(keepers.write_some("c", "without a", 20).await);

    disk.make_room();
    keepers.restart("a");
    assert_eq!(keepers.keys("a").await, acknowledged);
    // Its log is as good as any: without `c` it is needed.
    keepers.kill("c");
    keepers.write("b", "after").await;
    assert!(keepers.keys("a").await.contains("after"));
}

/// By itself, a write beyond the limit ends a process by a signal.
#[test]
fn a_limit_on_the_length_of_files_is_told_like_a_full_disk() {
    let place = Place::new("disk-full-limit");
    let peers = peers(&["a"]);
    let mut command = Command::new("prlimit");
    place.prepare(&mut command);
    command.args(["--fsize=0", "--core=0", primacy()]);
    command.args(words(&format!("node --election e --node a --peers {peers}")));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(74), "{output:?}");
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
}
