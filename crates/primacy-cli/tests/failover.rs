//! The time from a leader's end to the start of the next job; by then the previous job has ended.
//!
//! The bounds are generous, since tests share their machine; the measured times are printed.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::time::{Duration, Instant};

use primacy::clock;
use primacy_testbed::ledger::Ledger;
use primacy_testbed::table::{self, Watch};
use primacy_testbed::{Node, PATIENCE, Place, peers, strings, wait_until};
use rustix::process::Signal;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The default promise.
const PROMISE: Duration = Duration::from_secs(1);

struct Nodes {
    place: Place,
    nodes: Vec<Node>,
    ledger: Ledger,
    /// The node that the last fault was done to.
    struck: usize,
}

impl Nodes {
    fn start(test: &str, heap: usize, args: impl Fn(&Place, &str) -> Vec<String>) -> Self {
        let place = Place::new(test);
        let ledger = Ledger::create(&place.path("ledger.db"), "failover");
        let start = |name: &&str| {
            let mut all = strings(&["run", "--json", "--restart", "--election", "failover", "--node", name]);
            all.extend(args(&place, name));
            let heap = heap.to_string();
            all.extend(strings(&["--", primacy_testbed::primacy(), "demo-job", "--ledger", ledger.path()]));
            all.extend(strings(&["--every", "2ms", "--heap", &heap, "--lock", &place.text("lock")]));
            Node::start(&place, name, &all)
        };
        let nodes = NAMES.iter().map(start).collect();
        let nodes = Self { place, nodes, ledger, struck: 0 };
        nodes.settle();
        nodes
    }

    fn among_peers(test: &str, heap: usize) -> Self {
        let peers = peers(&NAMES);
        Self::start(test, heap, |place, name| strings(&["--peers", &peers, "--state-dir", &place.text(name)]))
    }

    /// Waits until all know the leader, and nodes that have just started may vote.
    fn settle(&self) {
        for node in &self.nodes {
            node.told.wait_for(&format!("{}'s learning of a leader", node.name), |told| {
                (told["event"] == "leader" && told["leader"].is_string()).then_some(())
            });
        }
        wait_until("the first write", || self.ledger.last().is_some());
        std::thread::sleep(PROMISE + Duration::from_millis(300));
    }

    fn leader(&self) -> usize {
        self.nodes.iter().position(Node::leads).unwrap()
    }

    /// Does `fault` to the leader, and measures until the next job has written.
    fn fail_over(&mut self, fault: impl Fn(&Node)) -> Duration {
        let token = self.ledger.last().unwrap().token;
        self.struck = self.leader();
        let leader = &self.nodes[self.struck];
        let at = clock::now().as_nanos();
        fault(leader);
        let until = Instant::now() + PATIENCE;
        let first = loop {
            if let Some(first) = self.ledger.first_above(token) {
                break first;
            }
            if Instant::now() > until {
                let history: Vec<String> = self.nodes.iter().map(Node::history).collect();
                panic!(
                    "nobody took over from {} at {at}; they told:\n{}",
                    leader.name,
                    history.join("\n---\n")
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        Duration::from_nanos(first.boot_ns.saturating_sub(at))
    }

    /// No two jobs were alive at a time: by the process table, by the lock that they take, and by the ledger.
    fn judge(&self, watch: Watch) {
        let overlaps = watch.finish().0;
        assert!(overlaps.is_empty(), "{overlaps:?}");
        let lock = std::fs::read_to_string(self.place.path("lock")).unwrap();
        assert_eq!(lock, "", "a job found the lock of another one taken, or its own token stale");
    }

    /// Waits for the end of the node that was killed or asked to end, and starts it again.
    fn restart_the_dead(&mut self) {
        let dead = &mut self.nodes[self.struck];
        dead.wait();
        dead.restart(&self.place);
        self.settle();
    }
}

fn report(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort();
    let median = times[times.len() / 2];
    println!(
        "{what}: {} trials, min {:?}, median {median:?}, max {:?}",
        times.len(),
        times[0],
        times[times.len() - 1]
    );
    median
}

#[test]
fn a_killed_supervisor_is_replaced_at_once_and_a_resigned_one_too() {
    let mut nodes = Nodes::among_peers("failover-crash", 0);
    let watch = Watch::new(nodes.ledger.path());
    let (mut crashes, mut resignations) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        crashes.push(nodes.fail_over(|node| node.signal(Signal::KILL)));
        nodes.restart_the_dead();
        resignations.push(nodes.fail_over(|node| node.signal(Signal::TERM)));
        nodes.restart_the_dead();
    }
    nodes.judge(watch);
    // Both are milliseconds; without the guardian's word, a crash would cost the promise.
    assert!(report("kill -9 of the supervisor among peers", crashes) < PROMISE / 4);
    assert!(report("SIGTERM of the supervisor among peers", resignations) < PROMISE / 4);
}

/// A process with much memory takes tens of milliseconds to die, and it holds its lock for as long.
#[test]
fn nobody_is_let_in_before_a_job_that_dies_slowly_is_dead() {
    let mut nodes = Nodes::among_peers("failover-heavy", 256);
    let watch = Watch::new(nodes.ledger.path());
    for fault in [Signal::KILL, Signal::TERM, Signal::KILL] {
        let took = nodes.fail_over(|node| node.signal(fault));
        println!("{fault:?} of the supervisor of a job with 256 MiB: {took:?}");
        nodes.restart_the_dead();
    }
    nodes.judge(watch);
}

#[test]
fn over_sqlite_too_a_killed_supervisor_is_replaced_at_once() {
    let mut nodes = Nodes::start("failover-sqlite", 0, |place, _| {
        strings(&["--store", &format!("sqlite:{}", place.text("election.db"))])
    });
    let watch = Watch::new(nodes.ledger.path());
    let mut crashes = Vec::new();
    for _ in 0..5 {
        crashes.push(nodes.fail_over(|node| node.signal(Signal::KILL)));
        nodes.restart_the_dead();
    }
    nodes.judge(watch);
    assert!(report("kill -9 of the supervisor over SQLite", crashes) < primacy::config::LEASE / 10);
}

#[test]
fn supervisor_and_guardian_together_cost_the_promise_and_never_make_two_jobs() {
    let mut nodes = Nodes::among_peers("failover-both", 0);
    let watch = Watch::new(nodes.ledger.path());
    let mut times = Vec::new();
    for _ in 0..3 {
        times.push(nodes.fail_over(|node| {
            // The guardian first, or it would have the time to report the death.
            let guardian = node.guardian().unwrap();
            table::signal(guardian, Signal::STOP);
            node.signal(Signal::KILL);
            table::signal(guardian, Signal::KILL);
        }));
        nodes.restart_the_dead();
    }
    nodes.judge(watch);
    let longest = times.iter().max().copied().unwrap();
    report("kill -9 of supervisor and guardian among peers", times);
    // The random wait is below a third of the promise; the rest is for a busy machine.
    assert!(longest < 2 * PROMISE, "{longest:?}");
}

#[test]
fn a_paused_supervisor_loses_its_job_in_time_and_stands_again() {
    let mut nodes = Nodes::among_peers("failover-pause", 0);
    let watch = Watch::new(nodes.ledger.path());
    let paused = nodes.leader();
    let guardian = nodes.nodes[paused].guardian();
    let took = nodes.fail_over(|node| node.signal(Signal::STOP));
    println!("SIGSTOP of the supervisor among peers: {took:?}");
    assert!(took < 3 * PROMISE, "{took:?}");
    nodes.nodes[paused].signal(Signal::CONT);
    nodes.nodes[paused].told.wait_for_event("released");
    assert_eq!(nodes.nodes[paused].guardian(), guardian, "it has done its duty");
    nodes.judge(watch);
}
