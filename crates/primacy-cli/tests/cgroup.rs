//! Jobs of many processes, each in a session of its own, have ended before the next leader leads: both in a control
//! group and without one. A control group also identifies processes that have dropped all other marks of their node.
//!
//! Control groups need root, or a delegated group. Without either, these tests are skipped, which is a failure if
//! `PRIMACY_REQUIRE_LIVE` is set.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::path::Path;

use primacy_conformance::not_run;
use primacy_testbed::table::{self, Process};
use primacy_testbed::{Node, Place, peers, strings, wait_until};
use rustix::process::Signal;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Whatever starts in this one sees no control groups.
const WITHOUT_GROUPS: &[&str] =
    &["unshare", "-m", "sh", "-c", "umount -R /sys/fs/cgroup; exec \"$@\"", "primacy"];
/// Processes that are deaf to SIGTERM, each in a session of its own. Each writes the boot clock's time to its place in a file.
const MANY: &str = r#"use POSIX; use Time::HiRes qw(clock_gettime sleep); my ($n, $every, $file) = @ARGV;
    $SIG{TERM} = "IGNORE"; open(my $all, ">", $file); truncate($all, 8 * $n);
    for my $i (0 .. $n - 1) { fork and next; POSIX::setsid(); open(my $own, "+<", $file);
        for (;;) { sysseek($own, 8 * $i, 0); syswrite($own, pack("q", clock_gettime(7) * 1e9)); sleep($every) } }
    sleep(1) for 1 .. 1000;"#;

/// Returns the time at which each of the job's processes was last alive, in nanoseconds of the boot clock;
/// zero if it never was.
fn last_alive(file: &Path) -> Vec<u64> {
    let bytes = fs::read(file).unwrap_or_default();
    bytes.as_chunks().0.iter().map(|&chunk| u64::from_ne_bytes(chunk)).collect()
}

/// Pauses the supervisor of a leader with many processes, and checks that all of them are gone before its
/// successor leads.
fn many_are_gone_before_the_successor_leads(test: &str, within: &[&str], count: usize, every: &str) {
    let place = Place::new(test);
    let peers = peers(&NAMES);
    let count_text = count.to_string();
    let start = |name: &&str| {
        let mut args = strings(&["run", "--json", "--election", "many", "--node", name, "--peers", &peers]);
        args.extend(strings(&["--lease", "3s", "--state-dir", &place.text(name), "--"]));
        args.extend(strings(&[
            "perl",
            "-e",
            MANY,
            &count_text,
            every,
            &place.text(&format!("{name}.alive")),
        ]));
        Node::start_within(&place, &strings(within), name, &args)
    };
    let nodes: Vec<Node> = NAMES.iter().map(start).collect();
    wait_until("a leader", || nodes.iter().any(Node::leads));
    let leader = nodes.iter().find(|node| node.leads()).unwrap();
    if leader.told.wait_for_event("cgroup")["dir"].is_null() == within.is_empty() {
        return not_run("there is no control group for a job here, or it cannot be left out");
    }
    let file = place.path(&format!("{}.alive", leader.name));
    wait_until("all processes of the job", || {
        let alive = last_alive(&file);
        alive.len() == count && alive.iter().all(|&at| at > 0)
    });
    leader.signal(Signal::STOP);
    let mut elected = None;
    wait_until("a successor", || {
        let others = nodes.iter().filter(|node| node.name != leader.name);
        elected = others.filter_map(|node| node.told.last("elected")).next();
        elected.is_some()
    });
    let elected = elected.unwrap()["boot_ns"].as_u64().unwrap();
    let last = last_alive(&file).into_iter().max().unwrap();
    assert!(
        last < elected,
        "a process of the old job was alive at {last}, its successor elected at {elected}"
    );
}

#[test]
fn five_thousand_processes_in_a_control_group_do_not_meet_their_successor() {
    many_are_gone_before_the_successor_leads("cgroup-many", &[], 5_000, "0.5");
}

#[test]
fn a_thousand_processes_without_a_control_group_do_not_meet_their_successor() {
    if !rustix::process::geteuid().is_root() {
        return not_run("only root can take the control groups away");
    }
    many_are_gone_before_the_successor_leads("cgroup-without", WITHOUT_GROUPS, 1_000, "0.1");
}

#[test]
fn what_hides_from_the_process_table_is_ended_with_its_job_and_found_by_the_next_run() {
    let place = Place::new("cgroup-hidden");
    // Neither a variable nor a session nor a parent of its node.
    let hidden = "env -i setsid sh -c 'echo $$ > hidden; exec sleep 1000' & while ! test -s hidden; do sleep 0.01; done; exec sleep 1000";
    let args = strings(&["run", "--json", "--election", "e", "--node", "me", "--lease", "1s", "--"]);
    let args: Vec<String> = args.into_iter().chain(strings(&["sh", "-c", hidden])).collect();
    let mut node = Node::start(&place, "n", &args);
    let told = node.told.wait_for_event("cgroup");
    let Some(dir) = told["dir"].as_str().map(str::to_owned) else {
        return not_run(&told.to_string());
    };
    node.told.wait_for_event("started");
    let hidden = || Process::now(fs::read_to_string(place.path("hidden")).ok()?.trim().parse().ok()?);
    wait_until("the hidden process", || hidden().is_some());
    let first = hidden().unwrap();
    // Both die at once, so nothing ends what has detached itself.
    let guardian = node.guardian().unwrap();
    node.signal(Signal::STOP);
    table::signal(guardian, Signal::KILL);
    node.signal(Signal::KILL);
    node.wait();
    assert!(first.is_alive());
    fs::remove_file(place.path("hidden")).unwrap();
    node.restart(&place);
    node.told.wait_for_event("leftovers_ended");
    assert!(!first.is_alive());
    node.told.wait_for_event("started");
    wait_until("the removal of the dead node's group", || !Path::new(&dir).exists());
    wait_until("the hidden process", || hidden().is_some());
    let second = hidden().unwrap();
    node.signal(Signal::TERM);
    node.wait();
    assert!(!second.is_alive());
    let dir = node.told.wait_for_event("cgroup")["dir"].as_str().unwrap().to_owned();
    wait_until("the removal of the group", || !Path::new(&dir).exists());
}
