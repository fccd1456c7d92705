//! Health: a node that is alive and useless does not lead.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod support;

use std::fs;

use support::{Node, Place, peers, strings, wait_until};

/// A node whose health is whether a file of its name is there.
fn start(place: &Place, name: &str, peers: &str) -> Node {
    let health = format!("test -e {} || {{ echo no file; exit 3; }}", place.text(&format!("{name}.ok")));
    let args = [
        "node",
        "--json",
        "--election",
        "e",
        "--node",
        name,
        "--peers",
        peers,
        "--state-dir",
        &place.text(name),
        "--health",
        &health,
        "--health-interval",
        "500ms",
        "--health-misses",
        "2",
    ];
    Node::start(place, name, &strings(&args))
}

#[test]
fn an_unhealthy_node_does_not_stand_and_one_that_becomes_so_gives_up_the_lead() {
    let place = Place::new("health");
    let names = ["a", "b", "c"];
    let peers = peers(&names);
    let nodes: Vec<Node> = names.iter().map(|name| start(&place, name, &peers)).collect();
    for node in &nodes {
        let failed = node.told.wait_for_event("check_failed");
        assert_eq!(failed["reason"], "it ended with exit code 3, and said: no file");
    }
    // Only one may lead; the others stay unfit.
    fs::write(place.path("b.ok"), "").unwrap();
    wait_until("the election of the only healthy one", || nodes[1].leads());
    assert!(!nodes[0].leads() && !nodes[2].leads());
    let failures =
        |node: &Node| node.told.events().iter().filter(|told| told["event"] == "check_failed").count();
    assert_eq!((failures(&nodes[0]), failures(&nodes[2])), (1, 1), "the same failure is told of once");

    fs::write(place.path("c.ok"), "").unwrap();
    nodes[2]
        .told
        .wait_for("fitness", |told| (told["event"] == "health" && told["healthy"] == true).then_some(()));
    fs::remove_file(place.path("b.ok")).unwrap();
    let released = nodes[1].told.wait_for_event("released");
    assert_eq!(released["reason"], "its health check failed, or its work made no progress");
    wait_until("the takeover", || nodes[2].leads());
    assert!(nodes[2].told.last("elected").unwrap()["token"].as_u64() > released["token"].as_u64());
}

#[test]
fn a_check_that_hangs_has_failed_and_is_killed_with_what_it_has_started() {
    let place = Place::new("health-hangs");
    let marker = place.text("started");
    let health = format!("sleep 1000 & echo $! >> {marker}; sleep 1000");
    let args = [
        "node",
        "--json",
        "--election",
        "e",
        "--node",
        "a",
        "--health",
        &health,
        "--health-interval",
        "200ms",
    ];
    let node = Node::start(&place, "a", &strings(&args));
    let failed = node.told.wait_for_event("check_failed");
    assert_eq!(failed["reason"], "it did not end within 200ms");
    let first = || fs::read_to_string(&marker).ok()?.lines().next()?.parse::<i32>().ok();
    wait_until("the end of what it has started", || {
        first().is_some_and(|pid| support::table::Process::now(pid).is_none())
    });
    assert!(!node.leads());
}

#[test]
fn under_run_the_command_is_ended_in_order_before_the_lead_is_given_up() {
    let place = Place::new("health-run");
    fs::write(place.path("ok"), "").unwrap();
    let health = format!("test -e {}", place.text("ok"));
    let job = format!("trap 'echo ended >> {}; exit 0' TERM; sleep 1000 & wait", place.text("job"));
    let args = [
        "run",
        "--json",
        "--election",
        "e",
        "--node",
        "a",
        "--health",
        &health,
        "--health-interval",
        "200ms",
        "--health-misses",
        "1",
        "--",
        "sh",
        "-c",
        &job,
    ];
    let node = Node::start(&place, "a", &strings(&args));
    node.told.wait_for_event("started");
    fs::remove_file(place.path("ok")).unwrap();
    let released = node.told.wait_for_event("released");
    assert_eq!(released["reason"], "its health check failed, or its work made no progress");
    assert_eq!(fs::read_to_string(place.path("job")).unwrap(), "ended\n");
}
