//! The promises of `primacy run` to its user: exit codes, signals, the environment, hooks, and that no process is left
//! behind.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use primacy_testbed::table;
use primacy_testbed::{Node, Place, stderr, stdout, strings, wait_until};
use rustix::process::Signal;

/// `primacy run` of a shell script in an election of this name, in the local file.
fn script(election: &str, options: &[&str], script: &str) -> Vec<String> {
    let mut args = strings(&["run", "--election", election]);
    args.extend(strings(options));
    args.extend(strings(&["--", "sh", "-c", script]));
    args
}

#[test]
fn the_command_runs_with_its_token_and_its_exit_code_is_passed_on() {
    let place = Place::new("run-exit");
    let show = "echo $PRIMACY_ELECTION $PRIMACY_ID $PRIMACY_TERM $PRIMACY_TOKEN; exit 3";
    let first = place.output(&script("billing", &["--node", "me"], show));
    assert_eq!(first.status.code(), Some(3), "{}", stderr(&first));
    let second = place.output(&script("billing", &["--node", "me"], show));
    let token = |output: &std::process::Output| {
        let line = stdout(output);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], ["billing", "me"], "{line:?}");
        words[3].parse::<u64>().unwrap()
    };
    assert!(token(&second) > token(&first));
    place.wait_until_empty();
}

/// Another node may lead at once, so the job gets none of the drain, which is 10 s here.
#[test]
fn a_lead_whose_record_was_deleted_leaves_its_job_no_time_to_drain() {
    let place = Place::new("run-deleted");
    let store = format!("file:{}", place.text("store"));
    // A new store is not used for a lease, unless a person says that it is new.
    assert!(place.output(&["init", "--store", &store, "--election", "e"]).status.success());
    let options = ["--json", "--store", &store, "--lease", "30s", "--drain", "10s", "--node", "a"];
    let node = Node::start(&place, "a", &script("e", &options, "trap '' TERM; while :; do sleep 1; done"));
    node.told.wait_for_event("started");
    fs::remove_file(place.path("store/e.election/record")).unwrap();
    let stopping = node.told.wait_for_event("stopping");
    assert!(stopping["reason"].as_str().unwrap().contains("deleted"), "{stopping}");
    let gone = node.told.wait_for_event("drained");
    let took =
        Duration::from_nanos(gone["boot_ns"].as_u64().unwrap() - stopping["boot_ns"].as_u64().unwrap());
    assert!(took < Duration::from_secs(5), "the job had {took:?}");
}

#[test]
fn a_hook_that_fails_costs_the_lead_and_with_restart_the_node_stands_again() {
    let place = Place::new("run-hook");
    let hook = format!("test -e {}", place.text("ready"));
    let output = place.output(&script("e", &["--on-elected", &hook], "touch ran"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the hook --on-elected failed"), "{}", stderr(&output));
    assert!(!place.path("ran").exists());

    let options = ["--json", "--restart", "--on-elected", &hook];
    let again = Node::start(&place, "a", &script("e", &options, "sleep 1000"));
    let node = ["node", "--json", "--election", "f", "--on-elected", &hook];
    let holds = Node::start(&place, "b", &strings(&node));
    for node in [&again, &holds] {
        node.told.wait_for_another("backoff", 1);
    }
    fs::write(place.path("ready"), "").unwrap();
    again.told.wait_for_event("started");
    wait_until("a lead that lasts", || {
        let hook = holds.told.last("hook_ended");
        hook.is_some_and(|hook| hook["ended"]["code"] == 0) && holds.leads()
    });
}

#[test]
fn a_default_directory_that_is_not_there_keeps_nobody_from_an_election_over_a_store() {
    let place = Place::new("run-no-dir");
    fs::write(place.path("file"), "").unwrap();
    let options = ["--node", "a", "--store", "sqlite:e.db"];
    let mut command = place.command(&script("e", &options, "touch ran"));
    let output = command.env("XDG_STATE_HOME", place.path("file")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("warning: what the operator says of this node is not kept"));
    assert!(place.path("ran").exists());
    // A directory that was named is required.
    let dir = place.text("file/dir");
    let output = place.output(&script("e", &[&options[..], &["--state-dir", &dir]].concat(), "touch again"));
    assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
    assert!(!place.path("again").exists());
}

#[test]
fn a_supervisor_hears_sigterm_whatever_its_parent_did_with_it() {
    for left in ["--block-signal=TERM", "--ignore-signal=TERM"] {
        let place = Place::new("run-deaf");
        let args = script("deaf", &["--json"], "exec sleep 1000");
        let mut node = Node::start_within(&place, &strings(&["env", left]), "deaf", &args);
        node.told.wait_for_event("started");
        node.signal(Signal::TERM);
        assert_eq!(node.wait().code(), Some(143), "{left}: {}", node.history());
    }
}

#[test]
fn a_command_that_is_killed_gives_128_plus_the_signal() {
    let place = Place::new("run-killed");
    let output = place.output(&script("e", &[], "kill -9 $$"));
    assert_eq!(output.status.code(), Some(137), "{}", stderr(&output));
}

#[test]
fn standard_input_and_output_are_those_of_the_command() {
    let place = Place::new("run-stdio");
    let mut command = place.command(&strings(&["run", "--election", "e", "--", "tr", "a-z", "A-Z"]));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "HELLO\n");
}

#[test]
fn of_two_terminals_one_runs_the_command_and_the_other_takes_over() {
    let place = Place::new("run-two");
    let start = |name| Node::start(&place, name, &script("e", &["--json"], "exec sleep 1000"));
    let mut nodes = [start("one"), start("two")];
    wait_until("one of them leads", || nodes.iter().any(Node::leads));
    let leader = nodes.iter().position(Node::leads).unwrap();
    assert!(!nodes[1 - leader].leads());
    nodes[leader].signal(Signal::INT);
    assert_eq!(nodes[leader].wait().code(), Some(130));
    nodes[1 - leader].told.wait_for_event("started");
    nodes[1 - leader].signal(Signal::HUP);
    assert_eq!(nodes[1 - leader].wait().code(), Some(129));
    place.wait_until_empty();
}

#[test]
fn no_wait_gives_up_at_once_and_wait_after_its_time() {
    let place = Place::new("run-wait");
    let leader = Node::start(&place, "leader", &script("e", &["--json"], "exec sleep 1000"));
    leader.told.wait_for_event("started");
    let began = Instant::now();
    let output = place.output(&script("e", &["--no-wait"], "touch ran"));
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let began = Instant::now();
    let output = place.output(&script("e", &["--wait", "700ms"], "touch ran"));
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    assert!(began.elapsed() >= Duration::from_millis(700));
    assert!(!place.path("ran").exists());
    // Without a leader, both are elected.
    let output = place.output(&script("other", &["--no-wait"], "touch ran"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(place.path("ran").exists());
}

#[test]
fn with_restart_the_command_is_run_again_with_a_higher_token() {
    let place = Place::new("run-restart");
    let count = "echo $PRIMACY_TOKEN >> tokens; test $(wc -l < tokens) -lt 3 || exec sleep 1000";
    let mut node = Node::start(&place, "n", &script("e", &["--json", "--restart"], count));
    wait_until("three runs", || {
        fs::read_to_string(place.path("tokens")).is_ok_and(|text| text.lines().count() == 3)
    });
    let tokens: Vec<u64> =
        fs::read_to_string(place.path("tokens")).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    node.told.wait_for_event("backoff");
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
}

#[test]
fn sigterm_lets_the_command_drain_and_a_second_one_does_not_wait() {
    let place = Place::new("run-drain");
    let drain =
        "trap 'sleep 0.3; echo drained > drained; exit 0' TERM; touch ready; while :; do sleep 0.05; done";
    let mut node = Node::start(&place, "n", &script("e", &["--json"], drain));
    wait_until("the command is ready", || place.path("ready").exists());
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
    assert_eq!(fs::read_to_string(place.path("drained")).unwrap(), "drained\n");

    let deaf = "trap '' TERM; touch deaf; while :; do sleep 0.05; done";
    let mut node = Node::start(&place, "n", &script("e", &["--json", "--lease", "1m"], deaf));
    wait_until("the command is ready", || place.path("deaf").exists());
    let began = Instant::now();
    node.signal(Signal::TERM);
    node.told.wait_for_event("stopping");
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
    assert!(began.elapsed() < Duration::from_secs(10), "the drain of 15 s was not waited for");
    place.wait_until_empty();
}

#[test]
fn daemons_that_the_command_left_are_ended_with_it() {
    let place = Place::new("run-daemons");
    let daemons = "(setsid sleep 1001 &) ; (setsid sh -c 'trap \"\" TERM; sleep 1002; sleep 1003' &); touch ready; sleep 1000";
    for ending in [Signal::TERM, Signal::KILL] {
        let mut node = Node::start(&place, "n", &script("e", &["--json", "--lease", "1s"], daemons));
        wait_until("the daemons run", || place.path("ready").exists() && place.alive().len() >= 6);
        node.signal(ending);
        node.wait();
        place.wait_until_empty();
        fs::remove_file(place.path("ready")).unwrap();
    }
}

#[test]
fn hooks_run_before_and_after_the_command_and_after_a_crash_too() {
    let place = Place::new("run-hooks");
    let hooks = [
        "--on-elected",
        "echo elected $PRIMACY_TOKEN >> log",
        "--on-deposed",
        "echo deposed $PRIMACY_TOKEN $PRIMACY_LEAD >> log",
    ];
    let output = place.output(&script("e", &hooks, "echo job $PRIMACY_TOKEN >> log"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let log = fs::read_to_string(place.path("log")).unwrap();
    let words: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(words.iter().map(|line| line[0]).collect::<Vec<_>>(), ["elected", "job", "deposed"]);
    assert_eq!(words[2][2], "held");

    fs::remove_file(place.path("log")).unwrap();
    let mut options = vec!["--json"];
    options.extend(hooks);
    let mut node = Node::start(&place, "n", &script("e", &options, "echo job >> log; exec sleep 1000"));
    node.told.wait_for_event("started");
    node.signal(Signal::KILL);
    node.wait();
    place.wait_until_empty();
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.lines().last().unwrap().starts_with("deposed "), "{log}");
}

#[test]
fn a_failing_hook_keeps_the_command_from_starting() {
    let place = Place::new("run-bad-hook");
    let output = place.output(&script("e", &["--on-elected", "exit 7"], "touch ran"));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("--on-elected"), "{}", stderr(&output));
    assert!(!place.path("ran").exists());
}

#[test]
fn a_killed_guardian_ends_the_command_and_a_new_one_starts_it_again() {
    let place = Place::new("run-guardian");
    let daemon = "(setsid sleep 1001 &); exec sleep 1000";
    let mut node = Node::start(&place, "n", &script("e", &["--json", "--lease", "1s"], daemon));
    let first = node.told.wait_for_event("started");
    wait_until("the daemon runs", || place.alive().len() == 4);
    let old = place.alive();
    table::signal(node.guardian().unwrap(), Signal::KILL);
    let second = node.told.wait_for("a second start", |told| {
        (told["event"] == "started" && told["token"] != first["token"]).then(|| told.clone())
    });
    assert!(second["token"].as_u64() > first["token"].as_u64());
    let supervisor = node.supervisor().as_raw_nonzero().get();
    assert!(old.iter().all(|process| process.pid == supervisor || !process.is_alive()), "{old:?}");
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
}

#[test]
fn a_guardian_that_does_not_answer_is_killed_before_the_lease_ends() {
    let place = Place::new("run-paused-guardian");
    let mut node = Node::start(&place, "n", &script("e", &["--json", "--lease", "1s"], "exec sleep 1000"));
    node.told.wait_for_event("started");
    table::signal(node.guardian().unwrap(), Signal::STOP);
    let began = Instant::now();
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    place.wait_until_empty();
}

#[test]
fn a_guardian_keeps_in_memory_what_it_needs_to_end_a_job() {
    let place = Place::new("run-kept");
    let mut node = Node::start(&place, "n", &script("e", &["--json"], "exec sleep 1000"));
    node.told.wait_for_event("started");
    let kept = |process: rustix::process::Pid| {
        let status = format!("/proc/{}/status", process.as_raw_nonzero());
        let status = fs::read_to_string(status).unwrap();
        let kept = status.lines().find_map(|line| line.strip_prefix("VmLck:")?.strip_suffix(" kB"));
        kept.unwrap().trim().parse::<u64>().unwrap()
    };
    // The program, its libraries and its data are some megabytes; `ulimit -l` must allow them.
    assert!(kept(node.guardian().unwrap()) > 1_024, "{} kB", kept(node.guardian().unwrap()));
    assert_eq!(kept(node.job().unwrap()), 0, "it is the guardian's alone");
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
}

#[test]
fn a_guardian_that_was_paused_looks_at_renewals_before_it_looks_at_the_time() {
    let place = Place::new("run-paused-renewed");
    let options = ["--json", "--lease", "4s", "--drain", "2s"];
    let mut node = Node::start(&place, "n", &script("e", &options, "exec sleep 1000"));
    node.told.wait_for_event("started");
    let (job, guardian) = (node.job().unwrap(), node.guardian().unwrap());
    table::signal(guardian, Signal::STOP);
    // Longer than until SIGTERM would be due, and shorter than until the supervisor gives the guardian up.
    std::thread::sleep(Duration::from_millis(2_200));
    table::signal(guardian, Signal::CONT);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(node.job(), Some(job), "{:?}", node.told.all());
    assert!(table::is_alive(job));
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
}

#[test]
fn a_guardian_goes_before_its_job_which_has_the_niceness_of_its_node() {
    let place = Place::new("run-precedence");
    let args = script("e", &["--json"], "exec sleep 1000");
    let mut node = Node::start_within(&place, &strings(&["nice", "-n", "3"]), "n", &args);
    node.told.wait_for_event("started");
    // See proc(5): its niceness, and its policy; 0 is SCHED_OTHER and 1 is SCHED_FIFO.
    let field = |process: rustix::process::Pid, number: usize| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_ascii_whitespace().nth(number - 3).unwrap().parse::<i32>().unwrap()
    };
    let (job, guardian) = (node.job().unwrap(), node.guardian().unwrap());
    assert_eq!((field(job, 19), field(job, 41)), (field(node.supervisor(), 19), 0));
    // Where it is not allowed it has no precedence.
    println!("the guardian's policy is {}", field(guardian, 41));
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
}

#[test]
fn a_stopped_guardian_ends_the_job_when_its_supervisor_dies() {
    let place = Place::new("run-stopped-guardian");
    let mut node = Node::start(&place, "n", &script("e", &["--json", "--lease", "1s"], "exec sleep 1000"));
    node.told.wait_for_event("started");
    table::signal(node.guardian().unwrap(), Signal::STOP);
    node.signal(Signal::KILL);
    node.wait();
    // Only the kernel sends SIGCONT.
    place.wait_until_empty();
}

#[test]
fn descendants_of_parents_that_live_are_ended_with_the_command() {
    let place = Place::new("run-many-detached");
    // Three generations, each process in a session of its own and deaf to SIGTERM; the parents wait for their children.
    let tree = "trap '' TERM; n=${1:-3}; test $n = 0 && exec sleep 1000; \
        for i in 1 2 3 4 5; do setsid sh ./tree $((n-1)) & done; wait; sleep 1000";
    fs::write(place.path("tree"), tree).unwrap();
    let mut node = Node::start(&place, "n", &script("e", &["--json", "--lease", "1s"], "exec sh ./tree"));
    wait_until("all are there", || place.alive().len() >= 1 + 5 + 25 + 125);
    node.signal(Signal::KILL);
    node.wait();
    place.wait_until_empty();
}

#[test]
fn a_guardian_that_stays_paused_is_replaced_though_the_lease_is_renewed() {
    let place = Place::new("run-paused-long");
    let mut node = Node::start(&place, "n", &script("e", &["--json", "--lease", "1s"], "exec sleep 1000"));
    let first = node.told.wait_for_event("started");
    let guardian = node.guardian().unwrap();
    table::signal(guardian, Signal::STOP);
    node.told.wait_for("a second start", |told| {
        (told["event"] == "started" && told["token"] != first["token"]).then_some(())
    });
    assert!(!table::is_alive(guardian));
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
}

#[test]
fn what_a_dead_supervisor_and_its_dead_guardian_left_is_ended_by_the_next_run() {
    let place = Place::new("run-leftovers");
    let daemon = "(setsid sleep 1001 &); exec sleep 1000";
    let args = script("e", &["--json", "--lease", "1s", "--node", "me"], daemon);
    let mut node = Node::start(&place, "n", &args);
    node.told.wait_for_event("started");
    wait_until("the daemon runs", || place.alive().len() == 4);
    let guardian = node.guardian().unwrap();
    table::signal(guardian, Signal::STOP);
    node.signal(Signal::KILL);
    table::signal(guardian, Signal::KILL);
    node.wait();
    wait_until("only the daemon is left", || place.alive().len() == 1);
    let daemon = place.alive()[0];
    node.restart(&place);
    node.told.wait_for_event("leftovers_ended");
    assert!(!daemon.is_alive());
    node.told.wait_for_event("started");
    node.signal(Signal::TERM);
    node.wait();
}

#[test]
fn the_help_and_the_completions_are_there() {
    let place = Place::new("run-help");
    let help = stdout(&place.output(&["run", "--help"]));
    for word in ["--on-deposed", "PRIMACY_TOKEN", "Exit codes", "75", "nightly"] {
        assert!(help.contains(word), "{word} is missing in:\n{help}");
    }
    let completions = place.output(&["completions", "bash"]);
    assert!(stdout(&completions).contains("--election"), "{}", stderr(&completions));
    assert_eq!(place.output(&["--version"]).status.code(), Some(0));
}
