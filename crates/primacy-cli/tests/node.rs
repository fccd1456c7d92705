//! `primacy node` as a process: with settings from files, with a witness, and under systemd.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};
use std::time::Duration;

use primacy_testbed::{Node, PATIENCE, Place, ProcessOutput, peers, strings, wait_until, words};
use rustix::process::Signal;

/// Writes the settings of a node to a file, and starts it.
fn start(place: &Place, name: &str, peers: &str, more: &str) -> Node {
    let state = place.text(name);
    let text = format!(
        "election = \"e\"\nnode = \"{name}\"\npeers = \"{peers}\"\nstate-dir = \"{state}\"\njson = true\n{more}\n"
    );
    let file = place.text(&format!("{name}.toml"));
    fs::write(&file, text).unwrap();
    Node::start(place, name, &strings(&["node", "--config", &file]))
}

#[test]
fn three_nodes_by_files_hand_the_lead_over_and_a_witness_never_has_it() {
    let place = Place::new("node-three");
    let peers = peers(&["a", "b", "w"]);
    // So long that the hook has the time to run on a busy machine: it is not waited for beyond the lease.
    let lease = "lease = \"4s\"";
    let hook =
        format!("on-deposed = \"echo $PRIMACY_TOKEN $PRIMACY_LEAD >> {}\"\n{lease}", place.text("deposed"));
    let witness = start(&place, "w", &peers, &format!("witness = true\n{lease}"));
    let mut nodes = [start(&place, "a", &peers, &hook), start(&place, "b", &peers, &hook)];
    wait_until("the election", || nodes.iter().any(Node::leads));
    let first = nodes.iter().position(Node::leads).unwrap();
    let token = nodes[first].told.wait_for_event("elected")["token"].as_u64().unwrap();
    // Everyone must know the leader, or the next election waits for promises of the start.
    for node in nodes.iter().chain([&witness]) {
        node.told.wait_for("the leader", |told| {
            (told["event"] == "leader" && told["leader"].is_string()).then_some(())
        });
    }

    nodes[first].signal(Signal::TERM);
    assert_eq!(nodes[first].wait().code(), Some(143));
    let released = nodes[first].told.wait_for_event("released");
    assert_eq!(released["reason"], "asked to end by signal 15");
    // The hook runs before the lead is released.
    assert_eq!(fs::read_to_string(place.path("deposed")).unwrap(), format!("{token} held\n"));
    let second = &nodes[1 - first];
    wait_until("the handover", || second.leads());
    assert!(second.told.wait_for_event("elected")["token"].as_u64().unwrap() > token);

    // The witness is enough for a majority, and leads nothing; nor has it a guardian.
    assert!(witness.told.last("campaigning").is_none() && witness.told.last("elected").is_none());
    assert!(witness.guardian().is_none());
    let mut witness = witness;
    witness.signal(Signal::TERM);
    assert_eq!(witness.wait().code(), Some(143));
}

#[test]
fn a_node_that_is_killed_is_followed_at_once_because_its_guardian_tells() {
    let place = Place::new("node-killed");
    let peers = peers(&["a", "b", "c"]);
    let more = "lease = \"8s\"";
    let mut nodes: Vec<Node> = ["a", "b", "c"].iter().map(|name| start(&place, name, &peers, more)).collect();
    wait_until("the election", || nodes.iter().any(Node::leads));
    let leader = nodes.iter().position(Node::leads).unwrap();
    for node in &nodes {
        node.told.wait_for("the leader", |told| {
            (told["event"] == "leader" && told["leader"].is_string()).then_some(())
        });
    }
    let killed_at = primacy::clock::now().as_nanos();
    nodes[leader].signal(Signal::KILL);
    nodes[leader].wait();
    let others = || nodes.iter().enumerate().filter(|(index, _)| *index != leader).map(|(_, node)| node);
    wait_until("the takeover", || others().any(Node::leads));
    let elected = others().find_map(|node| node.told.last("elected")).unwrap();
    let took = Duration::from_nanos(elected["boot_ns"].as_u64().unwrap() - killed_at);
    // Silence would have been noticed when the promise to the dead had passed: a heartbeat before 8 s at the least.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_witness_runs_no_command() {
    let place = Place::new("node-witness-run");
    let peers = peers(&["a"]);
    let line = format!("run --election e --node a --peers {peers} --witness -- true");
    let output = place.output(&words(&line));
    assert_eq!(output.status.code(), Some(64), "{}", primacy_testbed::stderr(&output));
    assert!(
        primacy_testbed::stderr(&output).contains("use `primacy node`"),
        "{}",
        primacy_testbed::stderr(&output)
    );
}

#[test]
fn a_node_whose_state_cannot_be_written_ends_and_says_so() {
    for witness in ["false", "true"] {
        let place = Place::new("node-halted");
        let peers = peers(&["a", "w"]);
        let options = format!("--peers {peers} --state-dir {}", place.text("w"));
        // A write to a file beyond its limit is an error then, and no signal.
        let script = format!(
            "trap '' XFSZ; exec {} node --json --election e --node w --witness={witness} {options}",
            primacy_testbed::primacy()
        );
        let mut command = Command::new("sh");
        place.prepare(&mut command);
        let mut child = command.args(["-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
        let told = ProcessOutput::default();
        told.listen(child.stderr.take().unwrap());
        let dir = place.text("w");
        let who = ["status", "--election", "e", "--state-dir", &dir];
        wait_until("its part in the election", || place.output(&who).status.code() == Some(75));
        let pid = rustix::process::Pid::from_child(&child);
        let nothing = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, nothing).unwrap();
        // Now there is something to write: another node.
        let _a = start(&place, "a", &peers, "");
        let mut ended = None;
        wait_until("its end", || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(74), "witness={witness} told:\n{}", told.all().join("\n"));
        // The reader of its output may still have to read it.
        let says_so = |line: &String| line.contains("takes no part in the election any more: ");
        wait_until("its last words", || told.all().iter().any(says_so));
    }
}

/// Receives what systemd would, until it is `wanted`.
fn receive(socket: &UnixDatagram, what: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut bytes = [0; 4096];
    for _ in 0..10_000 {
        let count = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{what} was not told: {error}"));
        let told = String::from_utf8_lossy(&bytes[..count]).into_owned();
        if wanted(&told) {
            return told;
        }
    }
    panic!("{what} was not told");
}

#[test]
fn systemd_is_told_of_readiness_the_leader_life_and_the_end() {
    let place = Place::new("node-notify");
    for args in [
        strings(&["node", "--election", "e"]),
        strings(&["run", "--election", "e", "--", "sh", "-c", "test -z \"$NOTIFY_SOCKET\" && sleep 1000"]),
    ] {
        // One for each, since the last word of the first may come late.
        let path = place.text(&format!("notify-{}", args[0]));
        // The second one is abstract, as those of container managers are.
        let (name, address) = match args[0].as_str() {
            "run" => (format!("@{path}"), SocketAddr::from_abstract_name(&path)),
            _ => (path.clone(), SocketAddr::from_pathname(&path)),
        };
        let socket = UnixDatagram::bind_addr(&address.unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command: Command = place.command(&args);
        command.env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "200000");
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let first = receive(&socket, "anything", |_| true);
        assert!(first.starts_with("READY=1\nSTATUS="), "{first}");
        receive(&socket, "the lead", |told| told.starts_with("STATUS=leads with token "));
        for _ in 0..3 {
            receive(&socket, "life", |told| told.contains("WATCHDOG=1"));
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        receive(&socket, "the end", |told| told.contains("STOPPING=1"));
        assert_eq!(child.wait().unwrap().code(), Some(143));
    }
}

#[test]
fn systemd_is_told_of_an_end_between_two_elections() {
    let place = Place::new("node-notify-backoff");
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // As systemd does, it reads all the time: a sender waits until there is room.
    let (tell, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let told = receive(&socket, "the end", |told| told.contains("STOPPING=1"));
        tell.send(told)
    });
    let args = ["run", "--json", "--restart", "--election", "e", "--lease", "1s", "--", "false"];
    let mut command = place.command(&args);
    let mut child = command.env("NOTIFY_SOCKET", path).stderr(Stdio::piped()).spawn().unwrap();
    let told = ProcessOutput::default();
    told.listen(child.stderr.take().unwrap());
    // Each time it waits twice as long.
    told.wait_for("a long wait", |told| (told["ms"].as_u64()? >= 3_200).then_some(()));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn the_trace_has_the_lines_of_the_simulator() {
    let place = Place::new("node-trace");
    let mut command = place.command(&["node", "--election", "e", "--node", "a"]);
    command.env("PRIMACY_LOG", "primacy::trace=info").stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let told = ProcessOutput::default();
    told.listen(child.stderr.take().unwrap());
    let lines = [" a ⇨ leads in term ", " with token ", " a · leader: a in term "];
    let said = |line: &str| told.all().iter().any(|told| told.contains(line));
    wait_until("the lead", || lines.iter().all(|line| said(line)));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    wait_until("the end", || said(" a ⇨ deposed (asked to)"));
}

#[test]
fn with_json_the_log_is_json_and_tells_what_the_machine_told() {
    let place = Place::new("node-machine");
    let mut command = place.command(&words("run --json --election e --node a --lease 1s -- sleep 1"));
    let output = command.env("PRIMACY_LOG", "primacy::machine=debug").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<serde_json::Value> =
        primacy_testbed::stderr(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |what: &str| {
        let is = |line: &&serde_json::Value| {
            line["event"] == what || (line["event"] == "log" && line["message"] == what)
        };
        let number = |line: &serde_json::Value, name: &str| line[name].as_u64().unwrap();
        let line =
            lines.iter().find(|line| is(line) && (what != "elected" || line["event"] == "log")).unwrap();
        let at = if line["event"] == "log" { "at_ns" } else { "boot_ns" };
        (line.clone(), number(line, at))
    };
    let ((elected, at), (renewed, renewed_at)) = (said("elected"), said("renewed"));
    let until = |line: &serde_json::Value| line["until_ns"].as_u64().unwrap();
    assert!(
        at < renewed_at && renewed_at < until(&elected) && until(&elected) < until(&renewed),
        "{lines:?}"
    );
    assert_eq!((&elected["target"], &elected["level"]), (&"primacy::machine".into(), &"info".into()));
    let ((drained, drained_at), (deposed, deposed_at)) = (said("drained"), said("deposed"));
    assert!(drained["token"] == elected["token"] && drained_at < deposed_at, "{lines:?}");
    assert_eq!(deposed["reason"], "Resigned");
}

#[test]
fn a_filter_of_the_log_that_is_none_is_told_of() {
    let place = Place::new("node-log");
    let said = |filter: &str| {
        let mut command = place.command(&["run", "--election", "e", "--", "true"]);
        let output = command.env("PRIMACY_LOG", filter).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        primacy_testbed::stderr(&output)
    };
    let wrong = said("primacy=loud");
    assert!(wrong.contains("warning: PRIMACY_LOG=primacy=loud is not understood"), "{wrong}");
    for right in ["", "debug"] {
        assert!(!said(right).contains("PRIMACY_LOG"));
    }
}
