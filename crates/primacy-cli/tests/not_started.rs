//! Leaders that cannot start their job give up the lead, report the reason, and back off, so that another node can
//! lead; a temporary shortage ends no node. Children that the node did not start itself are reaped.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use primacy_testbed::{Node, Place, stderr, stdout, strings, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// `primacy run` of these words over one store.
fn run(place: &Place, name: &str, options: &[&str], command: &[&str]) -> Vec<String> {
    let on = format!("sqlite:{}", place.text("e.db"));
    let mut args = strings(&["run", "--json", "--election", "e", "--store", &on, "--lease", "2s"]);
    args.extend(strings(&["--node", name]));
    args.extend(strings(options));
    args.push("--".to_owned());
    args.extend(strings(command));
    args
}

const WORK: &[&str] = &["sleep", "1000"];

/// The resources that starting another process needs, and that a process may be short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shortage {
    Descriptors,
    /// Of its user, which must not be root.
    Processes,
}

impl Shortage {
    /// From now on this process gets no more than it has.
    fn begin(self, process: Pid) {
        // All descriptors below are taken, and no process may wait for more of them at a time than this; and
        // a user with a node has more processes.
        self.limit(process, if self == Self::Descriptors { 6 } else { 1 });
    }

    fn end(self, process: Pid) {
        self.limit(process, 1_024);
    }

    /// By a process of the same user: root may be without the right to do that to others.
    fn limit(self, process: Pid, limit: u32) {
        let resource = if self == Self::Descriptors { "nofile" } else { "nproc" };
        let mut command = Command::new("env");
        command.args(self.within()).args(["prlimit", &format!("--{resource}={limit}:"), "--pid"]);
        let status = command.arg(process.as_raw_nonzero().to_string()).status().unwrap();
        assert!(status.success(), "{status}");
    }

    /// The first words of the commands of a user who can be short of it: root is never short of processes.
    fn within(self) -> Vec<String> {
        if self == Self::Descriptors || !rustix::process::geteuid().is_root() {
            return Vec::new();
        }
        strings(&["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"])
    }

    /// The error text of the system.
    fn text(self) -> &'static str {
        if self == Self::Descriptors { "Too many open files" } else { "Resource temporarily unavailable" }
    }
}

/// Ends a leader in order.
fn end(mut leader: Node) {
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait().code(), Some(143));
}

#[test]
fn a_leader_without_a_descriptor_for_its_job_gives_up_the_lead_until_it_has_one() {
    gives_up_the_lead_until_its_job_can_be_started(Shortage::Descriptors);
}

#[test]
fn a_leader_without_a_process_for_its_job_gives_up_the_lead_until_it_has_one() {
    gives_up_the_lead_until_its_job_can_be_started(Shortage::Processes);
}

fn gives_up_the_lead_until_its_job_can_be_started(shortage: Shortage) {
    let place = Place::new("not-started-passing");
    let within = shortage.within();
    if !within.is_empty() {
        chown(place.path("."), Some(65_534), Some(65_534)).unwrap();
    }
    // Without --restart, too.
    let mut node = Node::start_within(&place, &within, "a", &run(&place, "a", &[], WORK));
    node.told.wait_for_event("started");
    let guardian = node.guardian().unwrap();
    shortage.begin(guardian);
    let resigned = place.output(&["resign", "--election", "e", "--node", "a", "--no-wait"]);
    assert!(resigned.status.success(), "{}", stderr(&resigned));

    let not_started = node.told.wait_for_event("not_started");
    assert!(not_started["reason"].to_string().contains(shortage.text()), "{not_started}");
    let released = node.told.wait_for_another("released", 1);
    assert!(released["reason"].to_string().contains(shortage.text()), "{released}");
    let waits = [0, 1, 2].map(|count| node.told.wait_for_another("backoff", count)["ms"].as_u64().unwrap());
    assert!(waits[2] > waits[0], "they grow: {waits:?}");
    let able = Node::start_within(&place, &within, "able", &run(&place, "able", &[], WORK));
    able.told.wait_for_event("started");
    assert_eq!(node.ended(), None);

    shortage.end(guardian);
    end(able);
    node.told.wait_for_another("started", 1);
    end(node);
    place.wait_until_empty();
}

/// A hook that hangs once kept the lead without end, in silence, while another node could have led.
#[test]
fn a_hook_that_hangs_is_told_and_costs_the_lead_in_the_end() {
    let mut place = Place::new("not-started-hook");
    place.set("PRIMACY_TEST_HOOK_MS", "6000");
    let hangs = ["--restart", "--on-elected", "sleep 1000"];
    let node = Node::start(&place, "a", &run(&place, "a", &hangs, WORK));
    let elected = node.told.wait_for_event("elected");
    let slow = "its hook --on-elected has run for ";
    let is_slow = |told: &serde_json::Value| {
        told["message"].as_str().is_some_and(|message| message.starts_with(slow)).then_some(())
    };
    node.told.wait_for("a warning", is_slow);
    let mut who = String::new();
    wait_until("who says so", || {
        who = stdout(&place.output(&["status", "--election", "e", "--node", "a"]));
        who.contains(&format!("still leading: {slow}"))
    });
    let able = Node::start(&place, "able", &run(&place, "able", &[], WORK));
    let released = node.told.wait_for_event("released");
    assert_eq!(released["token"], elected["token"]);
    let reason = "the command could not be started: the hook --on-elected has not ended within ";
    assert!(released["reason"].as_str().unwrap().starts_with(reason), "{released}");
    assert!(node.told.wait_for_event("not_started")["reason"].to_string().contains("has not ended within"));
    assert!(node.told.last("started").is_none());
    able.told.wait_for_event("started");
    end(node);
    end(able);
    // Without --restart it ends the node.
    place.set("PRIMACY_TEST_HOOK_MS", "1");
    let output = place.output(&run(&place, "once", &["--on-elected", "sleep 1000"], WORK));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the hook --on-elected has not ended within"), "{}", stderr(&output));
    place.wait_until_empty();
}

fn write_job(path: &Path) {
    fs::write(path, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_job_whose_file_has_gone_ends_its_node_with_127_and_with_restart_it_is_tried_again() {
    let place = Place::new("not-started-lasting");
    let job = place.path("job");
    write_job(&job);
    let command = [job.to_str().unwrap()];
    let first = Node::start(&place, "first", &run(&place, "first", &[], WORK));
    first.told.wait_for_event("started");
    let mut once = Node::start(&place, "once", &run(&place, "once", &[], &command));
    once.told.wait_for_event("campaigning");
    fs::remove_file(&job).unwrap();
    end(first);
    assert_eq!(once.wait().code(), Some(127), "{}", once.history());
    once.told.wait_for_event("released");

    write_job(&job);
    let first = Node::start(&place, "first", &run(&place, "first", &[], WORK));
    first.told.wait_for_event("started");
    let again = Node::start(&place, "again", &run(&place, "again", &["--restart"], &command));
    again.told.wait_for_event("campaigning");
    fs::remove_file(&job).unwrap();
    end(first);
    again.told.wait_for_another("backoff", 1);
    write_job(&job);
    again.told.wait_for_event("started");
    end(again);
}

#[test]
fn a_node_that_has_no_room_for_a_guardian_does_not_stand_until_it_has() {
    let place = Place::new("not-started-guardian");
    let leader = Node::start(&place, "leader", &run(&place, "leader", &[], WORK));
    leader.told.wait_for_event("started");
    let mut node = Node::start(&place, "a", &run(&place, "a", &[], WORK));
    node.told.wait_for_event("campaigning");
    let guardian = node.guardian().unwrap();
    Shortage::Descriptors.begin(node.supervisor());
    kill_process(guardian, Signal::KILL).unwrap();
    node.told.wait_for("a warning", |told| {
        let told = (told["event"] == "warning").then(|| told["message"].to_string())?;
        told.contains("a guardian cannot be started").then_some(())
    });
    node.told.wait_for_another("backoff", 1);
    assert_eq!((node.ended(), node.told.count("campaigning")), (None, 1));
    end(leader);
    node.told.wait_for_another("backoff", 3);
    assert_eq!(node.told.count("elected"), 0, "without a guardian it must not lead");

    Shortage::Descriptors.end(node.supervisor());
    node.told.wait_for_event("started");
    end(node);
    place.wait_until_empty();
}

#[test]
fn a_child_that_is_none_of_the_nodes_own_is_reaped() {
    let place = Place::new("not-started-orphan");
    // As the first process of a container gets all orphans, a node has here what its shell had started.
    let within = strings(&["sh", "-c", "sleep 0.2 & echo $! >orphan; exec \"$@\"", "sh"]);
    for (name, verb) in [("run", &["--", "sleep", "1000"][..]), ("node", &["--witness"])] {
        let mut args = strings(&[name, "--json", "--election", "e", "--node", "a", "--state-dir", "s"]);
        args.extend([String::from("--peers"), primacy_testbed::peers(&["a", "b"])]);
        args.extend(strings(verb));
        let mut node = Node::start_within(&place, &within, name, &args);
        wait_until("the orphan", || {
            fs::read_to_string(place.path("orphan")).is_ok_and(|pid| pid.ends_with('\n'))
        });
        let orphan = fs::read_to_string(place.path("orphan")).unwrap();
        wait_until("its being reaped", || !Path::new("/proc").join(orphan.trim()).exists());
        assert_eq!(node.ended(), None, "{}", node.history());
        node.signal(Signal::TERM);
        node.wait();
        fs::remove_file(place.path("orphan")).unwrap();
    }
}
