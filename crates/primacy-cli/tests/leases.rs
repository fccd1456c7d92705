//! Nodes with different leases, and a lease that is changed on one node after another while the election runs.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use primacy_testbed::{Node, Place, peers, stdout, strings, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const NAMES: [&str; 3] = ["a", "b", "c"];
const LONG: &str = "4s";
const SHORT: &str = "1s";

struct Cluster {
    place: Place,
    peers: String,
    nodes: Vec<Node>,
}

impl Cluster {
    /// Nodes with jobs, and a witness.
    fn start(test: &str, leases: [&str; 3]) -> Self {
        let mut cluster = Self { place: Place::new(test), peers: peers(&NAMES), nodes: Vec::new() };
        for (name, lease) in NAMES.iter().zip(leases) {
            let node = Node::start(&cluster.place, name, &cluster.args(name, lease));
            cluster.nodes.push(node);
        }
        cluster
    }

    fn args(&self, name: &str, lease: &str) -> Vec<String> {
        let is_witness = name == "c";
        let mut args = strings(&[if is_witness { "node" } else { "run" }, "--json", "--election", "e"]);
        args.extend(strings(&["--node", name, "--peers", &self.peers, "--lease", lease]));
        args.extend(strings(&["--state-dir", &self.place.text(name)]));
        args.extend(strings(if is_witness { &["--witness"] } else { &["--", "sleep", "1000"] }));
        args
    }

    /// Ends this node, and starts it with this lease.
    fn change(&mut self, at: usize, lease: &str) {
        self.nodes[at].signal(Signal::TERM);
        self.nodes[at].wait();
        self.start_again(at, lease);
    }

    fn start_again(&mut self, at: usize, lease: &str) {
        let mut node = Node::start(&self.place, NAMES[at], &self.args(NAMES[at], lease));
        std::mem::swap(&mut node, &mut self.nodes[at]);
        self.nodes[at].past = node.past.iter().cloned().chain(node.told.all()).collect();
    }

    fn who(&self, at: usize) -> Value {
        let name = NAMES[at];
        let args =
            ["status", "--json", "--election", "e", "--node", name, "--state-dir", &self.place.text(name)];
        serde_json::from_str(&stdout(&self.place.output(&args))).unwrap_or_default()
    }

    /// Waits until all name one leader, and its job runs; returns it.
    fn led(&self) -> usize {
        let mut leader = 0;
        wait_until("one leader for all, and its job", || {
            let named: Vec<Value> = (0..3).map(|at| self.who(at)["leader"]["node"].clone()).collect();
            let first = NAMES.iter().position(|name| named[0] == *name);
            leader = first.unwrap_or_default();
            first.is_some()
                && named.iter().all(|name| *name == named[0])
                && self.nodes[leader].job().is_some()
        });
        leader
    }

    /// Returns the times at which each job ran, by the boot clock, in order: none beside another.
    fn judge(&self) {
        let mut runs = Vec::new();
        for node in &self.nodes {
            let told: Vec<Value> =
                node.history().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let at = |event: &str| -> Vec<u64> {
                told.iter()
                    .filter(|it| it["event"] == event)
                    .filter_map(|it| it["boot_ns"].as_u64())
                    .collect()
            };
            let ends = at("exited").into_iter().chain([u64::MAX]);
            runs.extend(at("started").into_iter().zip(ends));
        }
        runs.sort_unstable();
        assert!(runs.windows(2).all(|pair| pair[0].1 <= pair[1].0), "jobs beside each other: {runs:?}");
    }
}

/// The witness has been started with the default lease, and a node fails: the two that are left are a majority, and one of them
/// must be able to lead.
#[test]
fn a_voter_with_a_shorter_lease_is_enough_for_a_majority() {
    let mut cluster = Cluster::start("leases", [LONG, LONG, SHORT]);
    let leader = cluster.led();
    wait_until("word of the lease that differs", || {
        cluster.who(leader)["peers"]["other_leases_ms"]["c"] == 1_000
    });
    let dir = cluster.place.text(NAMES[leader]);
    let doctor = ["doctor", "--json", "--election", "e", "--state-dir", &dir, "--watch", "1s"];
    let told: Value = serde_json::from_str(&stdout(&cluster.place.output(&doctor))).unwrap();
    let of_timers = |check: &&Value| check["check"] == "all nodes have the same timers";
    let check = told["checks"].as_array().unwrap().iter().find(of_timers).expect("it was looked at");
    let found = check["found"].as_str().unwrap();
    assert!(check["verdict"] == "warn" && found.contains("the lease is 1s at c, and 4s at"), "{told}");
    cluster.nodes[leader].signal(Signal::KILL);
    cluster.nodes[leader].wait();
    let next = 1 - leader;
    cluster.nodes[next].told.wait_for_event("started");
    // It leads on: the other node comes back, votes again, and hears of the same leadership.
    let elected = cluster.nodes[next].told.count("elected");
    cluster.start_again(leader, LONG);
    wait_until("its return", || cluster.who(leader)["peers"]["silent_for_ms"] == 0);
    assert_eq!(cluster.led(), next);
    assert_eq!(cluster.nodes[next].told.count("elected"), elected, "{}", cluster.nodes[next].history());
}

#[test]
fn a_lease_is_changed_node_by_node_down_and_up() {
    let mut cluster = Cluster::start("rolling", [LONG; 3]);
    for lease in [SHORT, LONG] {
        for at in [2, 0, 1] {
            cluster.led();
            cluster.change(at, lease);
        }
        let leader = cluster.led();
        wait_until("one lease for all", || cluster.who(leader)["peers"]["other_leases_ms"].is_null());
    }
    cluster.judge();
}
