//! The control socket and the operator's verbs in abnormal situations: other users' permissions, malformed requests,
//! and the exit code of each failure.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use primacy_testbed::{Node, Place, peers, stderr, stdout, strings, wait_until, words};
use rustix::process::Signal;
use serde_json::Value;

/// A node that leads alone, with its state in `dir`.
fn alone(place: &Place, dir: &str) -> Node {
    let args = words(&format!(
        "run --json --restart --election e --lease 1s --node a --peers {} --state-dir {} -- sleep 1000",
        peers(&["a"]),
        place.text(dir)
    ));
    let node = Node::start(place, "a", &args);
    node.told.wait_for_event("started");
    node
}

/// A candidate over a store, with its control socket in the default directory.
fn over_store(place: &Place, name: &str, url: &str) -> Node {
    let line = "run --json --restart --election e --lease 1s";
    let args = format!("{line} --store {url} --node {name} -- sleep 1000");
    Node::start(place, name, &words(&args))
}

/// Runs a verb, which must end with this code and say all of this.
#[track_caller]
fn ends(place: &Place, args: &[&str], code: i32, says: &[&str]) -> Output {
    let output = place.output(args);
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(code), "{args:?} said:\n{said}");
    for text in says {
        assert!(said.contains(text), "{text:?} is not in what {args:?} said:\n{said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    output
}

fn mode(place: &Place, name: &str, mode: u32) {
    fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

/// Sends these bytes, and returns all that is answered.
fn say(place: &Place, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(place.path("a/e@a.control")).unwrap();
    // It may have refused before all was sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // A client that had more to send than is read gets a reset, after the answer.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        read => drop(read.unwrap()),
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_socket_that_others_may_write_is_refused_by_both_sides() {
    let place = Place::new("control-others");
    fs::create_dir(place.path("a")).unwrap();
    mode(&place, "a", 0o777);
    let dir = place.text("a");
    let peers = peers(&["a"]);
    let line = format!("run --election e --node a --peers {peers} --state-dir {dir} -- touch ran");
    let run: Vec<&str> = line.split(' ').collect();
    ends(&place, &run, 77, &["every user may write the state directory", &dir, "mode 777", "chmod go-w"]);
    assert!(!place.path("ran").exists());
    mode(&place, "a", 0o770);
    ends(&place, &run, 77, &["its group may write"]);

    mode(&place, "a", 0o700);
    let mut node = alone(&place, "a");
    let who = ["status", "--election", "e", "--state-dir", &dir];
    assert_eq!(fs::metadata(place.path("a/e@a.control")).unwrap().permissions().mode() & 0o777, 0o600);
    mode(&place, "a/e@a.control", 0o622);
    ends(&place, &who, 77, &["the control socket", "chmod 600"]);
    mode(&place, "a/e@a.control", 0o600);
    mode(&place, "a", 0o707);
    ends(&place, &who, 77, &["the state directory", "chmod go-w"]);
    mode(&place, "a", 0o700);
    ends(&place, &who, 0, &["e: a leads"]);
    assert!(node.leads(), "nobody was unseated");
    node.signal(Signal::TERM);
    node.wait();
    assert!(!place.path("a/e@a.control").exists(), "it is removed with its node");
}

#[test]
fn a_node_of_another_user_is_not_believed() {
    let place = Place::new("control-user");
    let output = place.output(&["status", "--election", "e", "--state-dir", "/"]);
    assert_eq!(output.status.code(), Some(69), "root's directories are trusted: {}", stderr(&output));
    // Only root can become two other users. For any other user root itself is another one, if it is looked at from
    // a namespace in which it has no number; that needs no privileges where users may have namespaces.
    if !rustix::process::geteuid().is_root() {
        let mut command = Command::new("unshare");
        place.prepare(&mut command);
        let who = ["--user", "--map-current-user", primacy_testbed::primacy(), "status", "--election", "e"];
        let output = command.args(who).args(["--state-dir", "/"]).output().unwrap();
        assert_eq!(output.status.code(), Some(77), "{}", stderr(&output));
        assert!(stderr(&output).contains("belongs to user 65534"), "{}", stderr(&output));
        return;
    }
    let program = place.copy_program(primacy_testbed::primacy(), "primacy");
    mode(&place, ".", 0o755);
    fs::create_dir(place.path("a")).unwrap();
    mode(&place, "a", 0o755);
    std::os::unix::fs::chown(place.path("a"), Some(65_534), Some(65_534)).unwrap();
    let mut command = Command::new(&program);
    place.prepare(&mut command);
    command.args(["status", "--election", "e", "--state-dir", &place.text("a")]).uid(65_533).gid(65_533);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(77), "{}", stderr(&output));
    assert!(stderr(&output).contains("belongs to user 65534"), "{}", stderr(&output));
}

#[test]
fn what_is_no_request_is_refused_and_costs_nothing() {
    let place = Place::new("control-garbage");
    let node = alone(&place, "a");
    let garbage: [&[u8]; 7] = [
        b"hello\n",
        b"\xff\x00\xfe\n",
        b"{\"version\":1,\"request\":\"dance\"}\n",
        b"{\"version\":1,\"request\":\"transfer\",\"to\":\"../../x\"}\n",
        b"{\"version\":1",
        &[b'x'; 1 << 20],
        &[b'['; 3_000],
    ];
    for bytes in garbage {
        let answer: Value = serde_json::from_str(&say(&place, bytes)).unwrap();
        assert_eq!(
            (&answer["answer"], &answer["kind"]),
            (&"refused".into(), &"malformed".into()),
            "{answer}"
        );
    }
    let other: Value = serde_json::from_str(&say(&place, b"{\"version\":7,\"request\":\"who\"}\n")).unwrap();
    assert_eq!(other["kind"], "version", "{other}");
    assert_eq!(say(&place, b""), "");

    // More connections than there is room for, which send nothing; the election has nothing to do with it.
    let silent: Vec<UnixStream> =
        (0..80).map(|_| UnixStream::connect(place.path("a/e@a.control")).unwrap()).collect();
    let dir = place.text("a");
    let who = ["status", "--election", "e", "--state-dir", &dir];
    ends(&place, &who, 69, &["ask this node already"]);
    // They are sent away after their time.
    wait_until("room", || place.output(&who).status.success());
    drop(silent);
    assert!(node.leads());
    assert_eq!(node.told.last("released"), None, "nobody was unseated");
}

#[test]
fn a_watch_sees_the_end_of_its_node_and_follows_the_next_life() {
    let place = Place::new("control-watch");
    let node = alone(&place, "a");
    let mut silent = UnixStream::connect(place.path("a/e@a.control")).unwrap();
    silent.write_all(b"{\"version\":1,\"request\":\"watch\"}\n").unwrap();
    let args = strings(&["watch", "--json", "--election", "e", "--follow", "--state-dir", &place.text("a")]);
    let mut watch = Node::start(&place, "watch", &args);
    watch.told.wait_for_event("leader");

    // A node that is killed leaves its socket behind; the next one takes its place.
    let mut node = node;
    node.signal(Signal::KILL);
    node.wait();
    watch.told.wait_for_event("ended");
    let mut first = String::new();
    silent.read_to_string(&mut first).unwrap();
    assert_eq!(first.lines().count(), 1, "who led when it began to watch: {first}");
    let dir = place.text("a");
    ends(&place, &["status", "--election", "e", "--state-dir", &dir], 69, &["no node", "runs here", &dir]);
    assert!(place.path("a/e@a.control").exists());

    node.restart(&place);
    node.told.wait_for_event("started");
    watch.told.wait_for_event("missed");
    ends(&place, &["status", "--election", "e", "--state-dir", &dir], 0, &["e: a leads"]);
    watch.signal(Signal::INT);
    assert!(watch.wait().code().is_none(), "it is ended by the signal");
}

/// Another user of the same directory, as of a directory whose owner root asks.
#[test]
fn a_socket_whose_name_is_no_nodes_is_not_asked() {
    let place = Place::new("control-name");
    let _node = alone(&place, "state");
    let _forged = UnixListener::bind(place.path("state/e@z\ne: b leads, term 7\nb.control")).unwrap();
    let who = ["status", "--election", "e", "--state-dir", &place.text("state")];
    let said = stdout(&ends(&place, &who, 0, &["a leads"]));
    assert!(!said.contains("b leads"), "{said}");
}

#[test]
fn sockets_of_the_dead_are_replaced_and_of_the_living_are_not() {
    let place = Place::new("control-living");
    fs::create_dir(place.path("a")).unwrap();
    mode(&place, "a", 0o700);
    // A process that this test cannot be told apart from: a process answers there.
    let living = UnixListener::bind(place.path("a/e@a.control")).unwrap();
    mode(&place, "a/e@a.control", 0o600);
    let (dir, peers) = (place.text("a"), peers(&["a"]));
    let run = ["run", "--election", "e", "--node", "a", "--peers", &peers, "--state-dir", &dir, "--", "true"];
    ends(&place, &run, 73, &["runs here already", "e@a.control"]);
    // It does not answer, and no verb waits without end.
    ends(&place, &["status", "--election", "e", "--state-dir", &dir], 69, &["does not answer"]);
    drop(living);
    fs::remove_file(place.path("a/e@a.control")).unwrap();
    fs::write(place.path("a/e@a.control"), "somebody's notes").unwrap();
    ends(&place, &run, 77, &["is no socket", "move it away"]);
    assert_eq!(fs::read_to_string(place.path("a/e@a.control")).unwrap(), "somebody's notes");
    fs::remove_file(place.path("a/e@a.control")).unwrap();
    drop(UnixListener::bind(place.path("a/e@a.control")).unwrap());
    mode(&place, "a/e@a.control", 0o600);
    ends(&place, &run, 0, &[]);
}

#[test]
fn a_socket_that_is_removed_is_made_anew_and_the_node_ends_with_its_directory() {
    let place = Place::new("control-removed");
    let (on, dir) = (format!("sqlite:{}", place.text("e.db")), place.text("store"));
    let mut args =
        strings(&["run", "--json", "--restart", "--election", "e", "--lease", "1s", "--store", &on]);
    args.extend(strings(&["--node", "a", "--state-dir", &dir, "--", "sleep", "1000"]));
    let mut over_store = Node::start(&place, "store", &args);
    over_store.told.wait_for_event("started");
    let _among_peers = alone(&place, "peers");
    for dir in ["store", "peers"] {
        fs::remove_file(place.path(&format!("{dir}/e@a.control"))).unwrap();
        let who = ["status", "--election", "e", "--node", "a", "--state-dir", &place.text(dir)];
        wait_until("another socket", || place.output(&who).status.code() == Some(0));
    }
    over_store
        .told
        .wait_for("the warning", |told| told["message"].as_str()?.contains("was made anew").then_some(()));
    // Another process of this node could start in another one.
    fs::remove_dir_all(place.path("store")).unwrap();
    assert_eq!(over_store.wait().code(), Some(74), "{}", over_store.history());
    let reason = over_store.told.wait_for_event("ended")["reason"].clone();
    assert!(reason.as_str().unwrap().contains("was removed or replaced"), "{reason}");
}

#[test]
fn refusals_have_their_exit_codes() {
    let place = Place::new("control-refusals");
    let node = alone(&place, "a");
    let dir = place.text("a");
    let verb = |verb: &[&str], code: i32, says: &[&str]| {
        let mut args = verb.to_vec();
        args.extend(["--election", "e", "--state-dir", &dir]);
        ends(&place, &args, code, says)
    };
    verb(&["transfer", "--to", "z"], 64, &["z is none of the voters ({a})"]);
    let me = u64::from(rustix::process::geteuid().as_raw());
    let asked = node.told.wait_for_event("asked");
    assert_eq!(
        (&asked["what"], &asked["to"], asked["by"].as_u64()),
        (&"transfer".into(), &"z".into(), Some(me))
    );
    verb(&["transfer", "--to", "a"], 0, &["a leads already"]);
    let already = verb(&["transfer", "--to", "a", "--json"], 0, &[]);
    let already: Value = serde_json::from_str(&stdout(&already)).unwrap();
    assert_eq!((&already["result"], &already["leader"]["node"]), (&"elected".into(), &"a".into()));
    verb(&["transfer", "--to", "/"], 64, &["no node's name"]);
    verb(&["member", "readmit", "a"], 64, &["for the others to readmit it"]);
    verb(&["status", "--node", "b"], 69, &["the node b does not run here"]);
    verb(&["status", "--node", "a b"], 64, &["--node"]);
    ends(&place, &["status", "--election", "../e"], 64, &["letters, digits"]);
    ends(&place, &["status", "--election", "other", "--state-dir", &dir], 69, &["\"other\"", "--store"]);
    ends(&place, &["status", "--election", "e", "--state-dir", "/no/such"], 69, &["/no/such"]);
    ends(&place, &["status", "--election", "e", "--verify"], 64, &["--store"]);

    // The variables set the options, and an empty one does not.
    let with = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = place.command(args);
        command.envs(variables.iter().copied()).output().unwrap()
    };
    let who = with(&[("PRIMACY_STATE_DIR", &dir), ("PRIMACY_ELECTION", "e")], &["status"]);
    assert_eq!(who.status.code(), Some(0), "{}", stderr(&who));
    let nameless = with(&[("PRIMACY_STATE_DIR", &dir), ("PRIMACY_ELECTION", "")], &["cordon"]);
    assert_eq!(nameless.status.code(), Some(64), "{}", stderr(&nameless));
    assert!(stderr(&nameless).contains("--election <NAME>"), "{}", stderr(&nameless));
    let elsewhere = with(&[("PRIMACY_STATE_DIR", "")], &["status", "--election", "e"]);
    assert_eq!(elsewhere.status.code(), Some(69), "{}", stderr(&elsewhere));
    let store = ["status", "--election", "e", "--store", "sqlite:none.db"];
    let store = with(&[("PRIMACY_STATE_DIR", &dir)], &store);
    assert_eq!(store.status.code(), Some(69), "the store is asked: {}", stderr(&store));
    assert!(stderr(&store).contains("none.db"), "{}", stderr(&store));

    verb(&["cordon"], 0, &["a is cordoned", "also after a restart"]);
    node.told.wait_for_event("released");
    let who = verb(&["status", "--json"], 75, &[]);
    let who: Value = serde_json::from_str(&stdout(&who)).unwrap();
    assert!(who["why_no_leader"][0].as_str().unwrap().contains("cordoned"), "{who}");
    verb(&["status"], 75, &["nobody leads", "`primacy uncordon` lets it"]);
    verb(&["resign"], 75, &["a does not lead: nobody does"]);
    verb(&["uncordon"], 0, &["a may lead"]);
    wait_until("its return", || {
        place.output(&["status", "--election", "e", "--state-dir", &dir]).status.success()
    });
    verb(&["resign", "--json"], 0, &[r#""result":"resigned","node":"a""#]);
    // The event comes before anything is done, and not for verbs that only read.
    node.told.wait_for_another("released", 1);
    let told = |event: &str| node.told.last(event).unwrap()["boot_ns"].as_u64().unwrap();
    assert!(told("asked") < told("released"), "{}", node.history());
    let asked =
        node.told.events().into_iter().filter_map(|told| Some(told.get("what")?.as_str()?.to_owned()));
    assert!(asked.clone().all(|what| what != "status" && what != "watch"), "{}", node.history());
    assert_eq!(asked.filter(|what| what == "resign").count(), 2, "{}", node.history());

    // A paused node is reported as paused, and not as dead.
    node.signal(Signal::STOP);
    let paused = &["does not answer; is its process paused?"];
    verb(&["status"], 69, paused);
    // No verb waits without end, not even with an option for how long the lead may take to be given up.
    verb(&["resign", "--wait", "1h"], 69, paused);
    verb(&["transfer", "--to", "a", "--no-wait"], 69, paused);
    node.signal(Signal::CONT);
}

#[test]
fn a_node_that_was_cordoned_before_its_first_start_waits_for_its_operator() {
    let place = Place::new("cordoned");
    let dir = place.text("state");
    fs::create_dir(&dir).unwrap();
    mode(&place, "state", 0o700);
    fs::write(place.path("state/e@a.cordoned"), "").unwrap();
    let mut args = strings(&["node", "--json", "--election", "e", "--lease", "1s", "--node", "a"]);
    args.extend(strings(&["--peers", &peers(&["a"]), "--state-dir", &dir]));
    let node = Node::start(&place, "a", &args);
    let asked = |verb: &'static str| place.output(&[verb, "--election", "e", "--state-dir", &dir]);
    wait_until("its answer", || stdout(&asked("status")).contains("cordoned"));
    assert_eq!(asked("uncordon").status.code(), Some(0), "{}", node.history());
    wait_until("its lead", || asked("status").status.success());
}

#[test]
fn silent_nodes_are_asked_at_once() {
    let place = Place::new("control-silent-nodes");
    fs::create_dir(place.path("all")).unwrap();
    mode(&place, "all", 0o700);
    let dir = place.text("all");
    let listeners = ["a", "b", "c"].map(|node| {
        let socket = format!("all/e@{node}.control");
        let listener = UnixListener::bind(place.path(&socket)).unwrap();
        mode(&place, &socket, 0o600);
        listener.set_nonblocking(true).unwrap();
        listener
    });
    std::thread::scope(|scope| {
        scope
            .spawn(|| ends(&place, &["status", "--election", "e", "--state-dir", &dir], 69, &["the node c"]));
        let requests: Vec<UnixStream> = listeners
            .iter()
            .map(|listener| {
                let mut connections = Vec::new();
                // The first one looks whether the node runs.
                wait_until("a request to each node", || {
                    connections.extend(listener.accept().ok());
                    connections.len() == 2
                });
                connections.remove(1).0
            })
            .collect();
        for mut request in requests {
            request.write_all(b" ").expect("it still waits for each answer");
        }
    });
}

#[test]
fn status_without_an_election_shows_every_election_of_the_machine() {
    let mut place = Place::new("control-all");
    let dir = place.text("state");
    place.set("PRIMACY_STATE_DIR", &dir);
    ends(&place, &["status"], 69, &["no node runs here"]);
    let start = |election: &str, name: &str, timers: &[&str]| {
        let store = format!("sqlite:{}", place.text(&format!("{election}.db")));
        let mut args = strings(&["run", "--json", "--restart", "--election", election, "--store", &store]);
        args.extend(strings(timers));
        args.extend(strings(&["--node", name, "--", "sleep", "1000"]));
        Node::start(&place, name, &args)
    };
    let [web, batch] = ["web", "batch"].map(|election| start(election, "a", &["--lease", "1s"]));
    web.told.wait_for_event("started");
    batch.told.wait_for_event("started");
    ends(&place, &["status"], 0, &["web: a leads", "batch: a leads"]);
    let shown = stdout(&ends(&place, &["status", "--json"], 0, &[]));
    let elections: Vec<Value> =
        shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["election"].clone()).collect();
    assert_eq!(elections, ["batch", "web"], "one object a line, in the order of the names");
    // An election without a leader makes the difference.
    ends(&place, &["cordon", "--election", "web"], 0, &[]);
    wait_until("the lead is given up", || stdout(&place.output(&["status"])).contains("web: nobody leads"));
    ends(&place, &["status"], 75, &["batch: a leads", "web: nobody leads"]);
    ends(&place, &["status", "--store", "memory:x"], 64, &["need --election"]);
    ends(&place, &["cordon"], 64, &["--election"]);
    drop((web, batch));
}

#[test]
fn one_node_that_does_not_answer_hides_no_other() {
    let place = Place::new("control-silent");
    let names = ["a", "b", "c"];
    let peers = peers(&names);
    let start = |name: &&str| {
        let dir = place.text("all");
        let args =
            ["node", "--json", "--election", "e", "--node", name, "--peers", &peers, "--state-dir", &dir];
        Node::start(&place, name, &strings(&args))
    };
    let nodes: Vec<Node> = names.iter().map(start).collect();
    let leader = || nodes.iter().find(|node| node.leads());
    wait_until("an election", || leader().is_some());
    // The first that is asked, unless it leads.
    let paused = nodes.iter().find(|node| !node.leads()).unwrap();
    paused.signal(Signal::STOP);
    let dir = place.text("all");
    let verb = |args: &[&str], code: i32, says: &[&str]| {
        ends(&place, &[args, &["--election", "e", "--state-dir", &dir]].concat(), code, says)
    };
    let silent = format!("the node {} does not answer", paused.name);
    wait_until("a leader of the rest", || leader().is_some_and(|leader| leader.name != paused.name));
    let said = stdout(&verb(&["status", "--json"], 0, &[]));
    let told: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 3, "{said}");
    for (told, name) in told.iter().zip(names) {
        assert_eq!(told["node"], name, "{said}");
        assert_eq!(told["error"].is_string(), name == paused.name, "{said}");
    }
    verb(&["resign", "--json"], 0, &[r#""result":"resigned""#]);
    let lost = another(&nodes, &paused.name);
    verb(&["member", "readmit", &lost], 69, &[&silent, "nothing to readmit"]);
    // Where none of the others leads, the message names the ones that may.
    for node in nodes.iter().filter(|node| node.name != paused.name) {
        verb(&["cordon", "--node", &node.name], 0, &[]);
    }
    wait_until("the end of the lead", || leader().is_none_or(|leader| leader.name == paused.name));
    verb(&["resign"], 69, &[&silent, "those that answer do not lead"]);
    paused.signal(Signal::CONT);
}

/// A node that is not this one.
fn another(nodes: &[Node], name: &str) -> String {
    nodes.iter().map(|node| &node.name).find(|other| *other != name).unwrap().clone()
}

#[test]
fn a_watch_over_a_store_begins_with_who_leads_and_says_when_the_store_fails_and_answers_again() {
    let place = Place::new("control-watch-store");
    let url = "sqlite:e.db";
    let a = over_store(&place, "a", url);
    a.told.wait_for_event("started");
    let args = strings(&["watch", "--json", "--election", "e", "--store", url]);
    let mut watch = Node::start(&place, "watch", &args);
    watch.told.wait_for("a line", |_| Some(()));
    let first = watch.told.events()[0].clone();
    assert_eq!((first["event"].as_str(), first["leader"]["node"].as_str()), (Some("leader"), Some("a")));
    // A verb that has reported a change has opened the store for good.
    ends(&place, &["resign", "--election", "e", "--store", url], 0, &["a has given up the lead"]);
    watch.told.wait_for("its next lead", |told| {
        (told["leader"]["node"] == "a" && told["leader"]["token"] != first["leader"]["token"]).then_some(())
    });
    let (here, away) = (place.path("e.db"), place.path("away.db"));
    fs::rename(&here, &away).unwrap();
    let failed = watch.told.wait_for_event("store");
    let troubles = failed["troubles"].as_array().unwrap();
    assert!(troubles.iter().any(|why| why.as_str().unwrap().contains("e.db was there")), "{failed}");
    fs::rename(&away, &here).unwrap();
    watch.told.wait_for("its return", |told| (told["troubles"] == serde_json::json!([])).then_some(()));
    watch.signal(Signal::INT);
    watch.wait();
}

#[test]
fn an_election_over_a_store_is_asked_through_the_store() {
    let place = Place::new("control-store");
    let url = "sqlite:e.db";
    let on = |verb: &[&'static str]| {
        let mut args = verb.to_vec();
        args.extend(["--election", "e", "--store", url]);
        args
    };
    for verb in [["status"], ["watch"], ["resign"]] {
        ends(&place, &on(&verb), 69, &["e.db"]);
        assert!(!place.path("e.db").exists(), "one who looks makes nothing");
    }
    ends(&place, &on(&["init", "--lease", "0s"]), 64, &["--lease is zero"]);
    ends(&place, &["init", "--election", "../e", "--store", url], 64, &["letters, digits"]);
    assert!(!place.path("e.db").exists());
    ends(&place, &on(&["init"]), 0, &["the record is made"]);
    ends(&place, &on(&["init"]), 0, &["there is a record already", "held by nobody"]);
    ends(&place, &on(&["status"]), 75, &["nobody leads", "released"]);
    ends(&place, &on(&["resign"]), 75, &["nobody leads"]);
    ends(
        &place,
        &on(&["transfer", "--to", "b"]),
        64,
        &["over a store the candidates do not know each other"],
    );
    for verb in [&["cordon"][..], &["uncordon"], &["member", "readmit", "b"]] {
        ends(&place, &on(verb), 64, &["asks a node and not a store"]);
    }

    let mut watch = Node::start(&place, "watch", &strings(&on(&["watch", "--json"])));
    watch.told.wait_for("nobody", |told| told["leader"].is_null().then_some(()));
    let a = over_store(&place, "a", url);
    a.told.wait_for_event("started");
    let b = over_store(&place, "b", url);
    b.told.wait_for_event("campaigning");
    ends(&place, &on(&["status"]), 0, &["a leads, unless its lease has run out", "--verify"]);
    ends(&place, &on(&["status", "--verify"]), 0, &["a leads: it has renewed"]);
    ends(&place, &on(&["resign", "--json"]), 0, &[r#""result":"resigned","node":"a""#]);
    b.told.wait_for_event("started");
    let reason = a.told.wait_for_event("released")["reason"].clone();
    assert_eq!(reason, "it was given up");
    for leader in ["a", "b"] {
        watch.told.wait_for(leader, |told| (told["leader"]["node"] == leader).then_some(()));
    }

    // The same nodes have control sockets, in the default directory.
    ends(&place, &["cordon", "--election", "e", "--node", "b"], 0, &["also after a restart"]);
    ends(&place, &["cordon", "--election", "e"], 64, &["several nodes", "a, b", "--node"]);
    wait_until("its second lead", || a.leads() && a.job().is_some());
    let asked = place.output(&["transfer", "--election", "e", "--to", "b"]);
    assert_eq!(asked.status.code(), Some(64), "{}", stderr(&asked));
    assert!(stderr(&asked).contains("over a store"), "{}", stderr(&asked));

    // Supervisor and guardian die together, so the record is not released: it has to run out.
    rustix::process::kill_process(a.guardian().unwrap(), Signal::STOP).unwrap();
    a.signal(Signal::KILL);
    rustix::process::kill_process(a.guardian().unwrap(), Signal::KILL).unwrap();
    ends(&place, &on(&["status", "--verify"]), 75, &["a has not renewed"]);
    watch.signal(Signal::INT);
    watch.wait();
}
