//! A job that its user may not kill: however the lead is to end, it is kept until the job is gone, and the operator's
//! verb reports that.
//!
//! The nodes run as another user than root, and the job becomes root by a set-uid program; so these tests need root.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};

use primacy_testbed::{Node, Place, peers, stderr, strings, table, wait_until};
use rustix::process::Signal;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The user `nobody`.
const USER: u32 = 65_534;

/// Three nodes of that user, whose jobs become root's.
fn start(place: &Place, more: &[&str]) -> Vec<Node> {
    let peers = peers(&NAMES);
    // It is still alive when it has become root, and then it cannot be killed.
    let program = place.copy_program("/usr/bin/setpriv", "become-root");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    let user = USER.to_string();
    let within = strings(&["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
    let start = |name: &&str| {
        let dir = place.path(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        chown(&dir, Some(USER), Some(USER)).unwrap();
        let mut args = strings(&["run", "--json", "--restart", "--election", "e", "--node", name]);
        args.extend(strings(&["--peers", &peers, "--state-dir", dir.to_str().unwrap()]));
        args.extend(strings(more));
        args.extend(strings(&["--", program.to_str().unwrap(), "--reuid", "0", "sleep", "1000"]));
        Node::start_within(place, &within, name, &args)
    };
    NAMES.iter().map(start).collect()
}

fn ask(place: &Place, verb: &[&str], node: &str, more: &[&str]) -> (i32, String) {
    let mut args = strings(verb);
    args.extend(strings(&["--election", "e", "--node", node, "--state-dir", &place.text(node)]));
    args.extend(strings(more));
    let output = place.output(&args);
    (output.status.code().unwrap(), stderr(&output))
}

fn keeps_the_lead(verb: &[&str], more: &[&str]) {
    let place = Place::new("unkillable");
    let nodes = start(&place, if verb == ["member", "remove"] { &["--metadata", "fsync"] } else { &[] });
    let mut leader = 0;
    wait_until("a job that is root's", || {
        let led = nodes.iter().position(|node| node.job().is_some());
        leader = led.unwrap_or_default();
        let is_roots = |pid: rustix::process::Pid| {
            let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
            status.is_ok_and(|status| status.contains("Uid:\t0\t0\t0"))
        };
        led.is_some() && nodes[leader].job().is_some_and(is_roots)
    });
    let (node, job) = (&nodes[leader], nodes[leader].job().unwrap());
    let to = NAMES[(leader + 1) % 3];
    let mut all = more.to_vec();
    match verb {
        ["transfer"] => all.extend(["--to", to]),
        ["member", "remove"] => all.push(&node.name),
        _ => {}
    }
    let (code, said) = ask(&place, verb, &node.name, &all);
    let pid = format!("cannot be killed: pid {}", job.as_raw_nonzero());
    assert!(code == 75 && said.contains("still leading") && said.contains(&pid), "{verb:?}: {code} {said}");
    assert!(node.told.wait_for_event("still_leading")["reason"].as_str().unwrap().contains(&pid));
    assert!(table::is_alive(job));
    assert!(nodes.iter().all(|other| other.name == node.name || other.told.count("elected") == 0));
    table::signal(job, Signal::KILL);
    node.told.wait_for_event("released");
    wait_until("a successor", || {
        nodes.iter().any(|other| other.name != node.name && other.told.count("started") > 0)
    });
    for node in &nodes {
        node.job().into_iter().for_each(|job| table::signal(job, Signal::KILL));
        node.signal(Signal::KILL);
    }
}

#[test]
fn resign_keeps_the_lead_until_the_job_is_gone() {
    keeps_the_lead(&["resign"], &["--wait", "4s"]);
}

#[test]
fn transfer_keeps_the_lead_until_the_job_is_gone() {
    keeps_the_lead(&["transfer"], &["--wait", "4s"]);
}

#[test]
fn cordon_keeps_the_lead_until_the_job_is_gone() {
    keeps_the_lead(&["cordon"], &["--wait", "4s"]);
}

#[test]
fn a_leader_that_is_removed_keeps_the_lead_until_the_job_is_gone() {
    keeps_the_lead(&["member", "remove"], &["--wait", "4s"]);
}
