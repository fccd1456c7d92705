//! The health check: a node that is alive but cannot do its work does not lead.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;

use primacy_testbed::{Node, Place, peers, strings, wait_until, words};

/// A node whose health is whether a file of its name is there.
fn start(place: &Place, name: &str, peers: &str) -> Node {
    let health = format!("test -e {} || {{ echo no file; exit 3; }}", place.text(&format!("{name}.ok")));
    let line = format!(
        "node --json --election e --node {name} --peers {peers} --state-dir {} --health-interval 500ms --health-misses 2",
        place.text(name)
    );
    Node::start(place, name, &[words(&line), strings(&["--health", &health])].concat())
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
    let node = start_with(&place, &health, "200ms");
    let failed = node.told.wait_for_event("check_failed");
    assert_eq!(failed["reason"], "it did not end within 200ms");
    let first = || fs::read_to_string(&marker).ok()?.lines().next()?.parse::<i32>().ok();
    wait_until("the end of what it has started", || {
        first().is_some_and(|pid| primacy_testbed::table::Process::now(pid).is_none())
    });
    assert!(!node.leads());
}

/// A node alone on this machine, with this check.
fn start_with(place: &Place, health: &str, interval: &str) -> Node {
    let line = format!("node --json --election e --node a --health-interval {interval}");
    Node::start(place, "a", &[words(&line), strings(&["--health", health])].concat())
}

#[test]
fn a_check_leaves_no_process_and_no_zombie_behind() {
    let place = Place::new("health-leaves");
    let started = place.text("started");
    // Each in a group of its own, out of its parent's reach: one in a session of its own, the other one orphaned.
    let health = format!(
        "setsid sh -c 'echo $$ >> {started}; exec sleep 1000' & timeout 1000 sh -c 'echo $$ >> {started}; sleep 1000' & \
         while [ \"$(cat {started} 2>/dev/null | wc -l)\" -lt 2 ]; do sleep 0.01; done; echo done >> {started}"
    );
    let node = start_with(&place, &health, "20s");
    wait_until("its election", || node.leads());
    // The first run has ended, and what it has started with it.
    let text = fs::read_to_string(&started).unwrap();
    let pids: Vec<&str> = text.lines().take(2).collect();
    for pid in pids {
        let number: i32 = pid.parse().unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{number}")).exists(), "{pid} is still there");
    }
    // Supervisor and guardian: nothing else is left, not even its entry in the table.
    let own = node.supervisor().as_raw_nonzero();
    let children = || fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    let guardian = node.guardian().unwrap().as_raw_nonzero().to_string();
    wait_until("the end of the run", || children().trim() == guardian);
    assert_eq!(node.told.last("check_failed"), None);
}

#[test]
fn a_check_that_has_succeeded_is_not_held_up_by_what_it_left_printing() {
    let place = Place::new("health-prints");
    let node = start_with(&place, "yes & exit 0", "20s");
    wait_until("its election", || node.leads());
    assert_eq!(node.told.last("check_failed"), None);
}

#[test]
fn a_guardian_that_dies_while_the_check_runs_is_replaced_and_the_check_is_run_again() {
    let place = Place::new("health-guardian");
    let started = place.text("started");
    let health = format!("echo $$ >> {started}; test $(wc -l < {started}) -gt 1 || sleep 1000");
    let node = start_with(&place, &health, "4s");
    wait_until("the check", || fs::read_to_string(&started).is_ok_and(|text| text.ends_with('\n')));
    rustix::process::kill_process(node.guardian().unwrap(), rustix::process::Signal::KILL).unwrap();
    node.told.wait_for_event("guardian_lost");
    let failed = node.told.wait_for_event("check_failed");
    assert_eq!(failed["reason"], "it was ended from outside");
    wait_until("its election", || node.leads());
}

#[test]
fn under_run_the_command_is_ended_in_order_before_the_lead_is_given_up() {
    let place = Place::new("health-run");
    fs::write(place.path("ok"), "").unwrap();
    let health = format!("test -e {}", place.text("ok"));
    let job = format!("trap 'echo ended >> {}; exit 0' TERM; sleep 1000 & wait", place.text("job"));
    let args = words("run --json --election e --node a --health-interval 200ms --health-misses 1");
    let args = [args, strings(&["--health", &health, "--", "sh", "-c", &job])].concat();
    let node = Node::start(&place, "a", &args);
    node.told.wait_for_event("started");
    fs::remove_file(place.path("ok")).unwrap();
    let released = node.told.wait_for_event("released");
    assert_eq!(released["reason"], "its health check failed, or its work made no progress");
    assert_eq!(fs::read_to_string(place.path("job")).unwrap(), "ended\n");
}
