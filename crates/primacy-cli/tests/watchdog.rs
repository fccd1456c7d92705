//! The watchdog: it is armed while a node leads, is fed only while the reset would come before the end of the lead, and
//! is disarmed when the job is gone. A pipe replaces the device, which few machines have; the device's actions are
//! computed from the bytes written to it.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

use primacy::clock;
use primacy_testbed::{Node, Place, peers, stderr, strings, table, wait_until};
use rustix::process::Signal;

/// The timeout that 3 s of lease allow.
const TIMEOUT_NANOS: u64 = 2_000_000_000;
const FOOD: u8 = 0;
const DISARM: u8 = b'V';

/// A device that notes when each byte came.
struct Device {
    bytes: Arc<Mutex<Vec<(u64, u8)>>>,
}

impl Device {
    fn new(place: &mut Place) -> Self {
        place.set("PRIMACY_TEST_WATCHDOG", "1");
        let path = place.path("watchdog");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        // Also for writing, so that it has no end.
        let mut pipe = File::options().read(true).write(true).open(&path).unwrap();
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&bytes);
        std::thread::spawn(move || {
            let mut byte = [0];
            while pipe.read_exact(&mut byte).is_ok() {
                noted.lock().unwrap().push((clock::now().as_nanos(), byte[0]));
            }
        });
        Self { bytes }
    }

    fn count(&self, wanted: u8) -> usize {
        self.bytes.lock().unwrap().iter().filter(|(_, byte)| *byte == wanted).count()
    }

    fn last(&self) -> (u64, u8) {
        *self.bytes.lock().unwrap().last().unwrap()
    }
}

fn run(device: &str, script: &str) -> Vec<String> {
    let options = ["run", "--json", "--election", "e", "--lease", "3s", "--watchdog", device, "--"];
    strings(&[&options[..], &["sh", "-c", script]].concat())
}

#[test]
fn it_is_armed_while_the_node_leads_and_disarmed_when_the_job_is_gone() {
    let mut place = Place::new("watchdog-armed");
    let device = Device::new(&mut place);
    let drains = "trap 'sleep 0.2; exit' TERM; while :; do sleep 0.01; done";
    let mut node = Node::start(&place, "a", &run(&place.text("watchdog"), drains));
    node.told.wait_for_event("started");
    // It was tried, which disarms it.
    wait_until("food at renewals", || device.count(FOOD) >= 5);
    assert_eq!(device.count(DISARM), 1, "it stays armed");
    node.signal(Signal::TERM);
    let exited = node.told.wait_for_event("exited")["boot_ns"].as_u64().unwrap();
    assert_eq!(node.wait().code(), Some(143));
    wait_until("the end of it", || device.last().1 == DISARM);
    assert!(device.last().0 + 50_000_000 > exited, "the job is gone by then");
    assert_eq!(device.count(DISARM), 2);
}

#[test]
fn it_resets_the_machine_before_a_successor_leads_where_all_are_stopped() {
    let mut place = Place::new("watchdog-stopped");
    let device = Device::new(&mut place);
    let job = "exec sleep 1000";
    let leader = Node::start(&place, "a", &run(&place.text("watchdog"), job));
    leader.told.wait_for_event("started");
    let options = ["run", "--json", "--election", "e", "--lease", "3s", "--", "sleep", "1000"];
    let other = Node::start(&place, "b", &strings(&options));
    wait_until("food at renewals", || device.count(FOOD) >= 5);
    leader.signal(Signal::STOP);
    table::signal(leader.guardian().unwrap(), Signal::STOP);
    let elected = other.told.wait_for_event("elected")["boot_ns"].as_u64().unwrap();
    let (fed, byte) = device.last();
    assert_eq!(byte, FOOD, "nobody has disarmed it");
    assert!(fed + TIMEOUT_NANOS < elected, "fed at {fed}, elected at {elected}");
}

#[test]
fn a_guardian_that_was_killed_leaves_it_armed_until_its_job_is_gone() {
    let mut place = Place::new("watchdog-guardian");
    let device = Device::new(&mut place);
    let mut node = Node::start(&place, "a", &run(&place.text("watchdog"), "exec sleep 1000"));
    node.told.wait_for_event("started");
    wait_until("food at renewals", || device.count(FOOD) >= 5);
    table::signal(node.guardian().unwrap(), Signal::KILL);
    node.told.wait_for_another("started", 1);
    // When it was tried, and by the supervisor.
    wait_until("what was written", || device.count(DISARM) >= 2);
    assert_eq!(device.count(DISARM), 2);
    // Both are killed: the next run finds it armed, and ends what is left before it disarms it.
    let guardian = node.guardian().unwrap();
    node.signal(Signal::STOP);
    table::signal(guardian, Signal::KILL);
    node.signal(Signal::KILL);
    node.wait();
    place.wait_until_empty();
    assert_eq!(device.count(DISARM), 2);
    node.restart(&place);
    node.told.wait_for_event("started");
    wait_until("what was written", || device.count(DISARM) >= 3);
    assert_eq!(device.count(DISARM), 3);
}

#[test]
fn it_stays_armed_until_the_stop_command_has_succeeded_also_by_another_guardian() {
    for kills_guardian in [false, true] {
        let mut place = Place::new("watchdog-stop");
        let device = Device::new(&mut place);
        let mut args = run(&place.text("watchdog"), "exec sleep 1000");
        args.splice(1..1, strings(&["--stop-command", "test -e fixed"]));
        let mut node = Node::start(&place, "a", &args);
        node.told.wait_for_event("started");
        wait_until("food at renewals", || device.count(FOOD) >= 5);
        if kills_guardian {
            table::signal(node.guardian().unwrap(), Signal::KILL);
        } else {
            node.signal(Signal::TERM);
        }
        wait_until("some failures", || node.told.count("stop_failed") >= 2);
        let fed = device.count(FOOD);
        wait_until("food while it fails", || device.count(FOOD) >= fed + 3);
        assert_eq!(device.count(DISARM), 1, "when it was tried");
        std::fs::write(place.path("fixed"), "").unwrap();
        node.told.wait_for_event("released");
        wait_until("the end of it", || device.count(DISARM) >= 2);
        if !kills_guardian {
            assert_eq!(node.wait().code(), Some(143));
            assert_eq!(device.last().1, DISARM);
        }
    }
}

#[test]
fn without_the_device_a_node_does_not_lead_unless_it_may() {
    let place = Place::new("watchdog-none");
    let refused = place.output(&run("/nowhere", "touch ran"));
    assert_eq!(refused.status.code(), Some(69), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("the watchdog /nowhere cannot be used: No such file"),
        "{}",
        stderr(&refused)
    );
    assert!(!place.path("ran").exists());
    let warned = place.output(&run("automatic:/nowhere", "touch ran"));
    assert_eq!(warned.status.code(), Some(0), "{}", stderr(&warned));
    assert!(stderr(&warned).contains("this node leads without it"), "{}", stderr(&warned));
    assert!(place.path("ran").exists());
    let short = ["run", "--election", "e", "--lease", "1s", "--watchdog", "/nowhere", "--", "true"];
    let refused = place.output(&short);
    assert_eq!(refused.status.code(), Some(64), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("take --lease 2s or more"), "{}", stderr(&refused));
}

/// A node that may lead, with a lease of 6 s, and witnesses with these leases.
struct Cluster {
    place: Place,
    device: Device,
    peers: String,
    leader: Node,
    witnesses: Vec<Node>,
}

impl Cluster {
    fn start(test: &str, automatic: &str, witnesses: &[(&str, &str)]) -> Self {
        let mut place = Place::new(test);
        let (device, peers) = (Device::new(&mut place), peers(&["a", "b", "c"]));
        let mut args = strings(&["run", "--json", "--election", "e", "--node", "a", "--peers", &peers]);
        args.extend(strings(&["--state-dir", &place.text("a"), "--lease", "6s", "--watchdog"]));
        args.push(format!("{automatic}{}", place.text("watchdog")));
        args.extend(strings(&["--restart", "--", "sleep", "1000"]));
        let leader = Node::start(&place, "a", &args);
        let start = |(name, lease): &(&str, &str)| witness(&place, name, &peers, lease);
        let witnesses = witnesses.iter().map(start).collect();
        Self { place, device, peers, leader, witnesses }
    }

    /// Starts the last witness again, with this lease.
    fn change_lease(&mut self, lease: &str) {
        let mut last = self.witnesses.pop().unwrap();
        last.signal(Signal::TERM);
        last.wait();
        self.witnesses.push(witness(&self.place, &last.name, &self.peers, lease));
    }

    fn wait_for_more_food(&self) {
        let fed = self.device.count(FOOD);
        wait_until("food at renewals", || self.device.count(FOOD) >= fed + 5);
    }
}

fn witness(place: &Place, name: &str, peers: &str, lease: &str) -> Node {
    let mut args = strings(&["node", "--json", "--election", "e", "--node", name, "--peers", peers]);
    args.extend(strings(&["--state-dir", &place.text(name), "--lease", lease, "--witness"]));
    Node::start(place, name, &args)
}

#[test]
fn it_is_fed_where_the_lead_rests_on_a_voter_with_a_shorter_lease() {
    let cluster = Cluster::start("watchdog-leases", "", &[("c", "3s")]);
    cluster.leader.told.wait_for_event("started");
    cluster.wait_for_more_food();
    assert_eq!(cluster.device.count(DISARM), 1, "when it was tried");
    assert!(cluster.leader.leads(), "{}", cluster.leader.history());
}

#[test]
fn a_lead_that_is_too_short_for_it_is_given_up() {
    let mut cluster = Cluster::start("watchdog-short", "", &[("b", "6s"), ("c", "6s")]);
    cluster.leader.told.wait_for_event("started");
    cluster.wait_for_more_food();
    cluster.change_lease("1s");
    let stopping = cluster.leader.told.wait_for_event("stopping")["reason"].to_string();
    assert!(stopping.contains("rests on promises of 1s"), "{stopping}");
    cluster.leader.told.wait_for_event("released");
    wait_until("the end of it", || cluster.device.last().1 == DISARM);
    // The next lead starts nothing before its first renewal, by which it is known what it rests on.
    let not_started = cluster.leader.told.wait_for_event("not_started")["reason"].to_string();
    assert!(not_started.contains("give all nodes the same --lease"), "{not_started}");
    assert_eq!(cluster.leader.told.count("started"), 1, "{}", cluster.leader.history());
    cluster.change_lease("6s");
    cluster.leader.told.wait_for_another("started", 1);
}

#[test]
fn a_lead_that_is_too_short_for_it_goes_on_without_where_it_may() {
    let mut cluster = Cluster::start("watchdog-short-automatic", "automatic:", &[("b", "6s"), ("c", "6s")]);
    cluster.leader.told.wait_for_event("started");
    cluster.wait_for_more_food();
    cluster.change_lease("1s");
    cluster.leader.told.wait_for("a warning", |told| {
        let message = told["message"].as_str()?;
        (message.contains("rests on promises of 1s") && message.contains("leads without it")).then_some(())
    });
    wait_until("its being disarmed", || cluster.device.last().1 == DISARM);
    cluster.change_lease("6s");
    cluster.wait_for_more_food();
    assert_eq!(cluster.leader.told.count("elected"), 1, "{}", cluster.leader.history());
}
