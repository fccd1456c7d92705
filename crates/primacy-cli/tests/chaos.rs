//! A hundred random faults, one at a time, and the invariants under all of them: no token in the ledger ever goes down,
//! no two jobs are ever alive at a time, no job ever acts past its lease, and there is always a leader again.
//!
//! `PRIMACY_FAULTS` sets the number of faults, and `PRIMACY_SEED` their choice.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use primacy::clock;
use primacy_testbed::ledger::Ledger;
use primacy_testbed::table::{self, Watch};
use primacy_testbed::{Choices, Node, PATIENCE, Place, peers, strings, wait_until};
use rustix::process::{Pid, Signal};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// A leader writes every few milliseconds; after so long a silence it is taken for gone.
const SILENCE: Duration = Duration::from_millis(200);

/// Three nodes whose jobs write to one ledger.
struct Troupe {
    place: Place,
    nodes: Vec<Node>,
    ledger: Ledger,
    watch: Watch,
    choices: Choices,
    /// A node that has just started keeps silent among peers, and is not counted on for as long.
    silent_after_start: Duration,
    restarted: Vec<Instant>,
    faults: Vec<String>,
    tally: BTreeMap<String, usize>,
}

/// A fault of a process.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Ask,
    Pause(Duration),
}

/// To which one it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Supervisor,
    Guardian,
    Job,
}

impl Troupe {
    fn new(test: &str, silent_after_start: Duration, election: impl Fn(&Place, &str) -> Vec<String>) -> Self {
        let place = Place::new(test);
        let ledger = Ledger::create(&place.path("ledger.db"), "chaos");
        let watch = Watch::new(ledger.path());
        let start = |name: &&str| {
            let mut args = strings(&["run", "--json", "--restart", "--election", "chaos", "--node", name]);
            args.extend(election(&place, name));
            args.extend(strings(&["--", primacy_testbed::primacy(), "demo-job", "--ledger", ledger.path()]));
            args.extend(strings(&["--every", "4ms", "--stubborn-every", "3", "--grandchild", "--lock"]));
            args.push(place.text("lock"));
            Node::start(&place, name, &args)
        };
        let nodes: Vec<Node> = NAMES.iter().map(start).collect();
        let restarted = vec![Instant::now(); NAMES.len()];
        let (choices, tally) = (Choices::new(test), BTreeMap::new());
        Self {
            place,
            nodes,
            ledger,
            watch,
            choices,
            silent_after_start,
            restarted,
            faults: Vec::new(),
            tally,
        }
    }

    /// Waits until every node is well, and one of them leads and writes.
    fn recover(&mut self, after: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.is_well() {
            if Instant::now() > until {
                let told: Vec<String> = self.nodes.iter().map(|node| node.told.all().join("\n")).collect();
                let told = told.join("\n---\n");
                panic!("no leader again after {after}:\n{}\nthey told:\n{told}", self.describe());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_well(&self) -> bool {
        let silent = self.restarted.iter().any(|at| at.elapsed() < self.silent_after_start);
        let alive = |pid: Option<Pid>| pid.is_some_and(table::is_alive);
        let guarded = self.nodes.iter().all(|node| alive(Some(node.supervisor())) && alive(node.guardian()));
        let Some(last) = self.ledger.last() else { return false };
        let silence = clock::now().as_nanos().saturating_sub(last.boot_ns);
        let writes = u128::from(silence) < SILENCE.as_nanos();
        let leads =
            self.nodes.iter().any(|node| node.name == last.writer && node.leads() && alive(node.job()));
        !silent && guarded && writes && leads
    }

    fn describe(&self) -> String {
        let mut text =
            format!("the last line of the ledger is {:?}, the time {:?}", self.ledger.last(), clock::now());
        for node in &self.nodes {
            let state = |pid: Option<Pid>| pid.map(|pid| (pid, table::state(pid)));
            text += &format!(
                "\n{}: supervisor {:?}, guardian {:?}, job {:?}, leads: {}",
                node.name,
                state(Some(node.supervisor())),
                state(node.guardian()),
                state(node.job()),
                node.leads()
            );
        }
        text
    }

    fn leader(&self) -> Option<usize> {
        self.nodes.iter().position(Node::leads)
    }

    fn fault(&mut self, number: usize) {
        let leader = self.leader().unwrap_or(0);
        let node = match self.choices.below(10) {
            0..7 => leader,
            _ => usize::try_from(self.choices.below(3)).unwrap(),
        };
        let victim = match self.choices.below(if node == leader { 10 } else { 7 }) {
            0..4 => Victim::Supervisor,
            4..7 => Victim::Guardian,
            _ => Victim::Job,
        };
        let fault = match self.choices.below(20) {
            // Of a supervisor: to resign in order.
            0 | 1 if victim == Victim::Supervisor => Fault::Ask,
            0..10 => Fault::Kill,
            _ => Fault::Pause(Duration::from_millis(20 + self.choices.below(1_500))),
        };
        let Some(pid) = self.pid(node, victim) else { return };
        let name = &self.nodes[node].name;
        let what = format!("{:?} fault {number}: {fault:?} {victim:?} {pid:?} of {name}", clock::now());
        self.faults.push(what.clone());
        let done = match fault {
            Fault::Kill => "killed",
            Fault::Ask => "asked to end",
            Fault::Pause(_) => "paused",
        };
        *self.tally.entry(format!("{victim:?} {done}")).or_default() += 1;
        match fault {
            Fault::Kill => {
                table::signal(pid, Signal::KILL);
                // One at a time: the next one must not come before this one has happened.
                wait_until("the death of a process that was killed", || !table::is_alive(pid));
            }
            Fault::Ask => table::signal(pid, Signal::TERM),
            Fault::Pause(time) => {
                table::signal(pid, Signal::STOP);
                std::thread::sleep(time);
                // It may have been killed meanwhile, and then it has not been reaped yet: at most by its own
                // parent.
                table::signal(pid, Signal::CONT);
            }
        }
        if victim == Victim::Supervisor && !matches!(fault, Fault::Pause(_)) {
            self.nodes[node].wait();
            std::thread::sleep(Duration::from_millis(self.choices.below(200)));
            self.nodes[node].restart(&self.place);
            self.restarted[node] = Instant::now();
        }
        self.recover(&what);
    }

    fn pid(&self, node: usize, victim: Victim) -> Option<Pid> {
        let node = &self.nodes[node];
        match victim {
            Victim::Supervisor => Some(node.supervisor()),
            Victim::Guardian => node.guardian(),
            Victim::Job => node.job(),
        }
    }

    /// Ends all, and looks at what was noted.
    fn judge(mut self) {
        for node in &self.nodes {
            node.signal(Signal::TERM);
        }
        for node in &mut self.nodes {
            assert_eq!(
                node.wait().code(),
                Some(143),
                "it ends in order; it told:\n{}",
                node.told.all().join("\n")
            );
        }
        self.place.wait_until_empty();
        let (overlaps, looks) = self.watch.finish();
        let history: Vec<String> = self.nodes.iter().map(Node::history).collect();
        let (history, faults) = (history.join("\n---\n"), self.faults.join("\n"));
        assert_eq!(overlaps, Vec::<String>::new(), "two jobs were alive at a time:\n{faults}\n{history}");
        let lock = fs::read_to_string(self.place.path("lock")).unwrap();
        assert_eq!(lock, "", "a job found the lock taken, or its token stale:\n{faults}\n{history}");
        let lines = self.ledger.all();
        for pair in lines.windows(2) {
            assert!(pair[0].token <= pair[1].token, "a token went down: {pair:?}");
        }
        let mut tokens: Vec<i64> = lines.iter().map(|line| line.token).collect();
        tokens.dedup();
        println!(
            "{} lines of {} leaderships; the process table was read {looks} times; {:?}",
            lines.len(),
            tokens.len(),
            self.tally
        );
        assert!(looks > 100);
    }
}

fn faults() -> usize {
    std::env::var("PRIMACY_FAULTS").ok().and_then(|count| count.parse().ok()).unwrap_or(100)
}

fn chaos(mut troupe: Troupe) {
    let began = Instant::now();
    troupe.recover("the start");
    for number in 1..=faults() {
        troupe.fault(number);
    }
    println!("{} faults in {:.1?}", faults(), began.elapsed());
    troupe.judge();
}

#[test]
fn among_peers_a_hundred_faults_never_make_two_leaders() {
    let peers = peers(&NAMES);
    let lease = Duration::from_secs(1);
    chaos(Troupe::new("chaos-peers", lease, |place, name| {
        strings(&["--peers", &peers, "--lease", "1s", "--safety", "lease", "--state-dir", &place.text(name)])
    }));
}

#[test]
fn over_sqlite_a_hundred_faults_never_make_two_leaders() {
    chaos(Troupe::new("chaos-sqlite", Duration::ZERO, |place, _| {
        strings(&["--store", &format!("sqlite:{}", place.text("election.db")), "--lease", "1s"])
    }));
}
