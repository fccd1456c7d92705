//! Stores that are unusable for a while, on real processes: the leader loses the lead at the end of its lease, its job
//! ends, and the node goes on.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use primacy_conformance::live::free_port;
use primacy_testbed::small_disk::SmallDisk;
use primacy_testbed::{Node, Place, stderr, strings, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;

/// In KiB.
const DISK: u32 = 1 << 10;

fn start(place: &Place, within: &[String], store: &str) -> Node {
    let mut args = strings(&["run", "--json", "--election", "e", "--node", "a", "--lease", "2s"]);
    args.extend(strings(&["--state-dir", &place.text("state"), "--store", store, "--", "sleep", "1000"]));
    let node = Node::start_within(place, within, "a", &args);
    node.told.wait_for_event("started");
    node
}

/// The lead is lost, says why, and comes back when the shortage is over.
fn goes_on(node: &mut Node, why: &str, mend: impl FnOnce()) {
    let reason = node.told.wait_for_event("released")["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains(why), "{reason}");
    node.told.wait_for_event("exited");
    assert!(node.ended().is_none(), "{}", node.history());
    mend();
    node.told.wait_for_another("started", 1);
}

#[test]
fn a_full_disk_of_a_store_costs_the_lead_and_not_the_node() {
    let place = Place::new("shortage-disk");
    let disk = SmallDisk::mount(&place, "disk", DISK, 1);
    let mut node = start(&place, &disk.within(), &format!("file:{}/store", place.text("disk")));
    disk.fill();
    goes_on(&mut node, "No space left", || disk.make_room());
}

#[test]
fn too_few_descriptors_cost_the_lead_and_not_the_node() {
    let place = Place::new("shortage-files");
    let mut node = start(&place, &[], &format!("file:{}", place.text("store")));
    let set = |limit| prlimit(Some(node.supervisor()), Resource::Nofile, limit).unwrap();
    let before = set(Rlimit { current: Some(0), ..getrlimit(Resource::Nofile) });
    let supervisor = node.supervisor();
    goes_on(&mut node, "Too many open files", || {
        prlimit(Some(supervisor), Resource::Nofile, before).unwrap();
    });
}

/// A runtime that cannot have them panics.
#[test]
fn a_command_that_can_have_too_few_descriptors_says_so() {
    let place = Place::new("shortage-limit");
    let store = "file:store";
    let run = ["run", "--election", "e", "--node", "a", "--state-dir", "state"];
    let commands = [
        [&run[..], &["--store", store, "--", "true"]].concat(),
        vec!["node", "--election", "e", "--node", "a", "--state-dir", "state", "--store", store],
        vec!["fence", "exec", "--state", "fence", "--election", "e", "--token", "1", "--", "true"],
        vec![
            "fence",
            "proxy",
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            "http://127.0.0.1:1",
            "--state",
            "p",
            "--election",
            "e",
        ],
        vec!["status", "--election", "e", "--store", store],
        vec!["doctor", "--store", store],
    ];
    for command in &commands {
        for limit in ["5", "6", "7", "8", "10", "16"] {
            let mut limited = std::process::Command::new("sh");
            place.prepare(&mut limited);
            limited
                .args(["-c", r#"ulimit -n "$0" && exec "$@""#, limit, primacy_testbed::primacy()])
                .args(command);
            let output = limited.output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(71), "{command:?} with {limit}: {said}");
            assert!(said.contains("file descriptors") && said.contains("ulimit -n"), "{said}");
        }
    }
}

#[test]
fn a_node_that_waits_for_its_store_says_so_to_who_asks() {
    let place = Place::new("shortage-waits");
    let store = format!("etcd://127.0.0.1:{}/x", free_port());
    let args =
        ["node", "--json", "--election", "e", "--node", "a", "--state-dir", "state", "--store", &store];
    let node = Node::start(&place, "a", &strings(&args));
    node.told.wait_for_event("warning");
    let who = |more: &[&str]| {
        let asked = ["status", "--election", "e", "--state-dir", "state"];
        let output = place.output(&[&asked[..], more].concat());
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        stderr(&output)
    };
    let mut said = String::new();
    // The warning comes a little after the answer can be had, or before.
    wait_until("an answer", || {
        said = who(&[]);
        said.contains("takes no part yet")
    });
    assert!(said.contains("cannot be opened yet") && said.contains(&store), "{said}");
    let told: Value = serde_json::from_str(&who(&["--json"])).unwrap();
    assert_eq!((told["event"].as_str(), told["exit_code"].as_u64()), (Some("failed"), Some(69)), "{told}");
    assert!(told["reason"].as_str().unwrap().contains("cannot be opened yet"), "{told}");
}
