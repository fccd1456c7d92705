//! Work of other processes for the job: the stop command ends it, however the lead ends, and until the command has
//! succeeded no other node starts before the lease is over.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::time::Duration;

use primacy_testbed::{Node, Place, peers, stderr, stdout, strings, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const LEASE: Duration = Duration::from_secs(4);
/// After so long a silence the first node campaigns, at the earliest: the promise to the dead node was
/// renewed within a heartbeat.
const SILENCE: Duration = Duration::from_secs(3);

/// Each start and each stop is a line of this file.
const JOB: &str = "echo start $PRIMACY_ID >>log; exec sleep 1000";

/// `primacy run` among these peers.
fn run(place: &Place, name: &str, peers: &str, options: &[&str]) -> Vec<String> {
    let mut args =
        strings(&["run", "--json", "--restart", "--election", "e", "--peers", peers, "--node", name]);
    let lease = format!("{}s", LEASE.as_secs());
    args.extend(strings(&["--state-dir", &place.text(name), "--lease", &lease]));
    args.extend(strings(options));
    args.extend(strings(&["--", "sh", "-c", JOB]));
    args
}

fn log(place: &Place) -> Vec<String> {
    fs::read_to_string(place.path("log")).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn at(event: &Value) -> u64 {
    event["boot_ns"].as_u64().unwrap()
}

/// Three nodes with these options, of which one leads, and its index.
fn three(place: &Place, options: &[&str]) -> (Vec<Node>, usize) {
    let names = ["a", "b", "c"];
    let peers = peers(&names);
    let nodes: Vec<Node> =
        names.iter().map(|name| Node::start(place, name, &run(place, name, &peers, options))).collect();
    wait_until("a leader", || nodes.iter().any(|node| node.job().is_some()) && !log(place).is_empty());
    let leader = nodes.iter().position(Node::leads).unwrap();
    for node in &nodes {
        node.told.wait_for("the leader", |told| {
            (told["event"] == "leader" && told["leader"].is_string()).then_some(())
        });
    }
    (nodes, leader)
}

/// The start of the job on another node, in nanoseconds of the boot clock.
fn successor_starts(nodes: &[Node], leader: usize) -> u64 {
    let others = || nodes.iter().enumerate().filter(|(index, _)| *index != leader).map(|(_, node)| node);
    wait_until("the successor's start", || others().any(|node| node.told.last("started").is_some()));
    others().filter_map(|node| node.told.last("started")).map(|event| at(&event)).min().unwrap()
}

fn elapsed(from: u64, until: u64) -> Duration {
    Duration::from_nanos(until - from)
}

#[test]
fn a_killed_nodes_stop_command_ends_before_its_death_is_told_of_and_the_hook_follows() {
    let place = Place::new("stop-killed");
    let hook = "echo deposed $PRIMACY_ID $PRIMACY_LEAD >>log";
    let stop = "sleep 0.2; echo stop $PRIMACY_ID $PRIMACY_LEAD >>log";
    let (mut nodes, leader) = three(&place, &["--stop-command", stop, "--on-deposed", hook]);
    let killed_at = primacy::clock::now().as_nanos();
    nodes[leader].signal(Signal::KILL);
    nodes[leader].wait();
    let started_at = successor_starts(&nodes, leader);
    wait_until("its line", || log(&place).len() >= 4);
    let (name, lines) = (&nodes[leader].name, log(&place));
    let first = format!("start {name}");
    assert_eq!(lines[..3], [first, format!("stop {name} held"), format!("deposed {name} held")], "{lines:?}");
    assert!(elapsed(killed_at, started_at) < SILENCE, "its death was told of");
}

#[test]
fn a_killed_node_whose_stop_command_fails_or_hangs_is_followed_after_the_lease() {
    for stop in ["echo stop >>log; exit 1", "echo stop >>log; sleep 1000", "echo stop >>log; kill -9 $$"] {
        let place = Place::new("stop-fails");
        let (mut nodes, leader) = three(&place, &["--stop-command", stop]);
        let killed_at = primacy::clock::now().as_nanos();
        nodes[leader].signal(Signal::KILL);
        nodes[leader].wait();
        let started_at = successor_starts(&nodes, leader);
        assert!(log(&place).contains(&"stop".to_owned()));
        assert!(elapsed(killed_at, started_at) >= SILENCE, "{stop}: {:?}", elapsed(killed_at, started_at));
        nodes[leader].told.wait_for("a warning", |told| {
            let told = (told["event"] == "warning").then(|| told["message"].to_string())?;
            told.contains("--stop-command has not succeeded").then_some(())
        });
    }
}

/// Fails until the file is there.
const FAILS_AT_FIRST: &str = "echo stop >>log; test -e fixed";

#[test]
fn a_stop_command_that_fails_is_run_again_and_the_lead_is_kept_until_it_has_succeeded() {
    for ends in [Some("resign"), None] {
        let place = Place::new("stop-again");
        let (mut nodes, leader) = three(&place, &["--stop-command", FAILS_AT_FIRST]);
        let name = nodes[leader].name.clone();
        let dir = place.text(&name);
        let ask = |verb: &str, more: &[&str]| {
            let args = [&[verb, "--election", "e", "--node", &name, "--state-dir", &dir], more].concat();
            place.output(&args)
        };
        match ends {
            Some(verb) => {
                let output = ask(verb, &["--wait", "3s"]);
                assert_eq!(output.status.code(), Some(75));
                assert!(stderr(&output).contains("its --stop-command has failed"), "{}", stderr(&output));
            }
            None => nodes[leader].signal(Signal::TERM),
        }
        wait_until("some failures", || nodes[leader].told.count("stop_failed") >= 3);
        assert!(log(&place).iter().filter(|line| *line == "stop").count() >= 3);
        let told = stdout(&ask("status", &[]));
        assert!(told.contains("still leading: its --stop-command has failed"), "{told}");
        let other = nodes[(leader + 1) % nodes.len()].name.clone();
        for (verb, more, says) in [
            ("resign", ["--wait", "1s"], "its --stop-command has failed"),
            ("transfer", ["--to", &other], "is giving up the lead of term"),
        ] {
            let output = ask(verb, &more);
            assert_eq!(output.status.code(), Some(75), "{verb}");
            assert!(stderr(&output).contains(says), "{verb}: {}", stderr(&output));
        }
        assert_eq!(nodes[leader].told.count("released"), 0);
        fs::write(place.path("fixed"), "").unwrap();
        let released = nodes[leader].told.wait_for_event("released");
        let started_at = successor_starts(&nodes, leader);
        let ended = nodes[leader].told.last("hook_ended").unwrap();
        assert!(at(&ended) < at(&released) && at(&ended) < started_at);
        assert_eq!(nodes[leader].told.count("stop_given_up"), 0);
        if ends.is_none() {
            assert_eq!(nodes[leader].wait().code(), Some(143));
        }
    }
}

#[test]
fn a_second_signal_gives_up_a_stop_command_that_fails_and_the_lead_is_kept_for_a_lease() {
    let place = Place::new("stop-given-up");
    let (mut nodes, leader) = three(&place, &["--stop-command", FAILS_AT_FIRST]);
    nodes[leader].signal(Signal::TERM);
    nodes[leader].told.wait_for_event("stop_failed");
    nodes[leader].signal(Signal::TERM);
    let given_up = nodes[leader].told.wait_for_event("stop_given_up");
    let started_at = successor_starts(&nodes, leader);
    assert_eq!(nodes[leader].wait().code(), Some(143));
    let waited = elapsed(at(&given_up), started_at);
    assert!(waited >= SILENCE, "{waited:?}");
}

#[test]
fn a_killed_nodes_stop_command_that_fails_is_run_again_before_its_death_is_told_of() {
    let place = Place::new("stop-killed-again");
    // The second run succeeds.
    let stop = "echo stop >>log; mkdir once && exit 1; true";
    let (mut nodes, leader) = three(&place, &["--stop-command", stop]);
    let killed_at = primacy::clock::now().as_nanos();
    nodes[leader].signal(Signal::KILL);
    nodes[leader].wait();
    let started_at = successor_starts(&nodes, leader);
    assert!(elapsed(killed_at, started_at) < SILENCE, "its death was told of");
    wait_until("its line", || log(&place).len() >= 4);
    assert_eq!(log(&place)[1..3], ["stop", "stop"]);
}

#[test]
fn the_stop_command_of_a_dead_guardian_is_run_by_another() {
    let place = Place::new("stop-guardian");
    let (nodes, leader) = three(&place, &["--stop-command", "echo stop $PRIMACY_ID >>log"]);
    kill_process(nodes[leader].guardian().unwrap(), Signal::KILL).unwrap();
    let released = nodes[leader].told.wait_for_event("released");
    let ended = nodes[leader].told.wait_for_event("hook_ended");
    assert!(at(&ended) < at(&released));
    wait_until("another start", || log(&place).len() >= 3);
    let (name, lines) = (&nodes[leader].name, log(&place));
    assert_eq!(lines[..2], [format!("start {name}"), format!("stop {name}")], "{lines:?}");
    assert_eq!(nodes[leader].told.count("stop_failed"), 0);
}

#[test]
fn a_lead_that_is_not_renewed_leaves_time_for_the_stop_command() {
    let place = Place::new("stop-paused");
    let stop = "echo stop $PRIMACY_ID $PRIMACY_LEAD >>log";
    let (nodes, leader) = three(&place, &["--stop-command", stop]);
    nodes[leader].signal(Signal::STOP);
    successor_starts(&nodes, leader);
    wait_until("its line", || log(&place).len() >= 3);
    let (name, lines) = (&nodes[leader].name, log(&place));
    assert_eq!(lines[..2], [format!("start {name}"), format!("stop {name} held")], "{lines:?}");
    nodes[leader].signal(Signal::CONT);
}

#[test]
fn the_next_start_runs_the_command_where_supervisor_and_guardian_were_killed_together() {
    let place = Place::new("stop-both");
    let peers = peers(&["a"]);
    let stop = "echo stop $PRIMACY_TERM $PRIMACY_LEAD >>log; test -e fixed";
    let mut node = Node::start(&place, "a", &run(&place, "a", &peers, &["--stop-command", stop]));
    let term = node.told.wait_for_event("started")["term"].clone();
    wait_until("the job's line", || log(&place).len() == 1);
    let guardian = node.guardian().unwrap();
    node.signal(Signal::STOP);
    kill_process(guardian, Signal::KILL).unwrap();
    node.signal(Signal::KILL);
    node.wait();
    // It is on record, so it is run also where the option has been taken away.
    let mut next = Node::start(&place, "a", &run(&place, "a", &peers, &[]));
    next.told.wait_for("a warning", |told| {
        let message = (told["event"] == "warning").then(|| told["message"].to_string())?;
        (message.contains("has failed, 2 time(s)") && message.contains("remove ")).then_some(())
    });
    assert_eq!(next.told.count("campaigning"), 0, "what it ends may go on");
    let dir = place.text("a");
    for verb in ["status", "resign"] {
        let asked = place.output(&[verb, "--election", "e", "--state-dir", &dir]);
        let said = format!("{}{}", stdout(&asked), stderr(&asked));
        assert_eq!(asked.status.code(), Some(75), "{said}");
        assert!(said.contains("a does not campaign: the --stop-command of an earlier run"), "{said}");
        assert!(said.contains("time(s)") && said.contains(".stop-command"), "{said}");
    }
    assert_eq!(log(&place)[1..3], vec![format!("stop {term} lost"); 2]);
    fs::write(place.path("fixed"), "").unwrap();
    next.told.wait_for_event("started");
    next.signal(Signal::TERM);
    assert_eq!(next.wait().code(), Some(143));
    // Once it has succeeded it is run no more.
    let runs = log(&place).len();
    next.restart(&place);
    next.told.wait_for_event("started");
    wait_until("the job's line", || log(&place).len() > runs);
    assert!(log(&place)[runs..].iter().all(|line| line.starts_with("start")), "{:?}", log(&place));
    next.signal(Signal::TERM);
    next.wait();
    let left = fs::read_dir(place.path("a")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains(".stop-command")));
}

/// It could not be run by the next start of a node that is killed with its guardian.
#[test]
fn a_job_whose_stop_command_cannot_be_put_on_record_is_not_started() {
    let mut places = vec![("stop-record-peers", format!("--peers={}", peers(&["a"])))];
    if cfg!(feature = "sqlite") {
        places.push(("stop-record-store", "--store=sqlite:e.db".to_owned()));
    }
    for (name, election) in places {
        let place = Place::new(name);
        let args =
            ["run", "--json", "--restart", "--election", "e", "--node", "a", "--lease", "4s", &election];
        let job = ["--state-dir", "state", "--stop-command", "echo stop >>log", "--", "sh", "-c", JOB];
        let mut node = Node::start(&place, "a", &strings(&[&args[..], &job].concat()));
        wait_until("the job's line", || log(&place).len() == 1);
        let files = fs::read_dir(place.path("state")).unwrap().map(|entry| entry.unwrap().path());
        let mut records = files.filter(|file| file.extension().is_some_and(|end| end == "stop-command"));
        let record = records.next().unwrap();
        assert_eq!(records.next(), None);
        // What must be written first cannot be.
        let new = record.with_extension("new");
        fs::create_dir(&new).unwrap();
        let asked = ["--election", "e", "--state-dir", "state"];
        let resigned = place.output(&[&["resign"], &asked[..]].concat());
        assert!(resigned.status.success(), "{}", stderr(&resigned));
        let refused = node.told.wait_for_event("not_started");
        let why = refused["reason"].as_str().unwrap();
        assert!(why.contains("cannot be put on record") && why.contains("Is a directory"), "{why}");
        let released = node.told.wait_for_another("released", 1);
        assert!(released["reason"].as_str().unwrap().contains(why), "{released}");
        node.told.wait_for_event("backoff");
        node.told.wait_for_another("not_started", 1);
        assert_eq!(log(&place), ["start a", "stop"]);
        wait_until("what is said of it", || {
            let said = stdout(&place.output(&[&["status"], &asked[..]].concat()));
            said.contains("a does not campaign: the command could not be started")
        });
        fs::remove_dir(&new).unwrap();
        wait_until("the job's next line", || log(&place).len() == 3);
        assert!(record.exists());
        node.signal(Signal::TERM);
        assert_eq!(node.wait().code(), Some(143));
        assert!(!record.exists());
    }
}

/// It would be read without end, or run from wherever it leads.
#[test]
fn a_record_that_is_no_file_keeps_the_node_from_starting_and_says_so() {
    let place = Place::new("stop-record-pipe");
    let election = format!("--peers={}", peers(&["a"]));
    let args = ["run", "--json", "--election", "e", "--node", "a", "--state-dir", "state", &election];
    let job = ["--stop-command", "true", "--", "sh", "-c", "ls state/*.stop-command >name"];
    assert!(place.output(&[&args[..], &job].concat()).status.success());
    let record = place.path(fs::read_to_string(place.path("name")).unwrap().trim());
    for (file, code) in [(&record, 74), (&place.path("state/mark-secret"), 74)] {
        let before = fs::read(file);
        let _ = fs::remove_file(file);
        let pipe = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(file).status().unwrap();
        assert!(pipe.success());
        let refused = place.output(&[&args[..], &job].concat());
        assert_eq!(refused.status.code(), Some(code), "{}", stderr(&refused));
        let told = stderr(&refused);
        assert!(
            told.contains("it is a named pipe") && told.contains(file.file_name().unwrap().to_str().unwrap()),
            "{told}"
        );
        fs::remove_file(file).unwrap();
        before.into_iter().for_each(|text| fs::write(file, text).unwrap());
    }
}

#[test]
fn a_stop_command_of_an_earlier_run_that_fails_can_be_given_up_by_a_signal() {
    let place = Place::new("stop-both-signal");
    let peers = peers(&["a"]);
    let args = run(&place, "a", &peers, &["--stop-command", "echo stop >>log; sleep 1000"]);
    let mut node = Node::start(&place, "a", &args);
    node.told.wait_for_event("started");
    let guardian = node.guardian().unwrap();
    node.signal(Signal::STOP);
    kill_process(guardian, Signal::KILL).unwrap();
    node.signal(Signal::KILL);
    node.wait();
    for _ in 0..2 {
        let runs = log(&place).len();
        node.restart(&place);
        wait_until("the run of it", || log(&place).len() > runs);
        node.signal(Signal::TERM);
        assert_eq!(node.wait().code(), Some(143), "{}", node.history());
        assert_eq!(node.told.count("campaigning"), 0);
    }
    place.wait_until_empty();
}

#[cfg(feature = "sqlite")]
#[test]
fn an_operator_who_asks_over_the_store_is_told_what_keeps_the_lead() {
    let mut place = Place::new("stop-store");
    let (url, state) = (format!("sqlite:{}", place.text("election.db")), place.text("state"));
    place.set("PRIMACY_STATE_DIR", &state);
    let args = ["run", "--json", "--restart", "--election", "e", "--node", "a", "--store", &url];
    let job = ["--stop-command", FAILS_AT_FIRST, "--", "sh", "-c", JOB];
    let node = Node::start(&place, "a", &strings(&[&args[..], &job].concat()));
    node.told.wait_for_event("started");
    let asked = place.output(&["resign", "--election", "e", "--store", &url, "--wait", "4s"]);
    assert_eq!(asked.status.code(), Some(75), "{}", stderr(&asked));
    let told = stderr(&asked);
    assert!(told.contains("it is still leading: its --stop-command has failed"), "{told}");
    fs::write(place.path("fixed"), "").unwrap();
    node.told.wait_for_event("released");
}

#[test]
fn commands_that_others_do_the_work_of_are_warned_of() {
    let place = Place::new("stop-warned");
    fs::create_dir(place.path("bin")).unwrap();
    fs::copy("/bin/true", place.path("bin/docker")).unwrap();
    let docker = place.text("bin/docker");
    let output = |options: &[&str]| {
        let args = [&["run", "--election", "e"], options, &["--", &docker, "run", "image"]].concat();
        let output = place.output(&args);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let told = output(&[]);
    assert!(told.contains("warning: docker has its work done by the Docker daemon"), "{told}");
    let told = output(&["--stop-command", "true"]);
    assert!(!told.contains("warning"), "{told}");
}
