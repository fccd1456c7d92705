//! Fault scenarios that must have the same outcome over every store: a leader whose processes are all paused, a leader
//! that is cut off from the store, and outages of the store itself.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use primacy_testbed::ledger::Ledger;
use primacy_testbed::table::{self, Watch};
use primacy_testbed::{Node, Place, strings, wait_until};

/// The timers of most stories: the jobs end at once.
const DRAIN: &str = "200ms";

/// An outage that changes no leader, and the lease of which it is the half, where nothing else is configured.
const SHORT_OUTAGE: Duration = Duration::from_secs(5);
const WHOLE_LEASE: &str = "10s";

/// A store that the stories run over.
pub(crate) struct Store {
    /// For the report, and a part of file names.
    pub(crate) name: &'static str,
    /// Where the nodes find it.
    pub(crate) url: String,
    /// The lease of the nodes: short, since the stories wait for it, and not below what the store grants.
    pub(crate) lease: Duration,
}

/// Two nodes in one election, whose jobs write to a guarded ledger.
pub(crate) struct Pair {
    place: Place,
    ledger: Ledger,
    nodes: Vec<Node>,
}

impl Pair {
    /// Starts both; each finds the store at its own URL.
    pub(crate) fn start(store: &Store, story: &str, urls: [&str; 2]) -> Self {
        let lease = format!("{}ms", store.lease.as_millis());
        Self::start_with(store, story, urls, &["--lease", &lease, "--drain", DRAIN])
    }

    /// The same with these timers.
    fn start_with(store: &Store, story: &str, urls: [&str; 2], timers: &[&str]) -> Self {
        let mut place = Place::new(&format!("live-{}-{story}", store.name));
        // Some have a password, which has no place on a command line.
        place.set("STORE_OF_a", urls[0]);
        place.set("STORE_OF_b", urls[1]);
        let election = format!("{story}-{}", std::process::id());
        let ledger = Ledger::create(&place.path("ledger.db"), &election);
        let mut pair = Self { place, ledger, nodes: Vec::new() };
        for name in ["a", "b"] {
            pair.add(name, &election, timers);
            if pair.nodes.len() == 1 {
                // Else chance decides which of the two leads.
                pair.nodes[0].told.wait_for_event("started");
            }
        }
        pair.nodes[1].told.wait_for("b's learning of its leader", |told| {
            (told["event"] == "leader" && told["leader"] == "a").then_some(())
        });
        pair
    }

    fn add(&mut self, name: &str, election: &str, timers: &[&str]) {
        let url = format!("env:STORE_OF_{name}");
        let mut args = strings(&["run", "--json", "--restart", "--election", election, "--node", name]);
        args.extend(strings(&["--store", &url, "--state-dir", &self.place.text(name)]));
        args.extend(strings(timers));
        args.extend(strings(&["--", primacy_testbed::primacy(), "demo-job", "--ledger", self.ledger.path()]));
        args.extend(strings(&["--every", "10ms"]));
        self.nodes.push(Node::start(&self.place, name, &args));
    }

    /// Stops a job between two writes: SQLite takes the ledger's lock from no living process.
    fn stop_job(&self, job: Pid) {
        table::signal(job, Signal::STOP);
        wait_until("the job's standstill between two writes", || {
            let stands = table::state(job).is_some_and(|state| state.starts_with('T'));
            if stands && !self.ledger.is_free() {
                table::signal(job, Signal::CONT);
                table::signal(job, Signal::STOP);
                return false;
            }
            stands
        });
    }

    fn tokens(&self) -> Vec<i64> {
        self.ledger.all().iter().map(|line| line.token).collect()
    }

    /// The tokens of the writes that were let in never fall, and no two jobs were seen alive at a time, unless one was
    /// paused.
    fn judge(&self, watch: Option<Watch>) {
        assert!(self.tokens().is_sorted(), "a stale write was let in: {:?}", self.tokens());
        if let Some(watch) = watch {
            let (overlaps, looks) = watch.finish();
            assert!(looks > 0 && overlaps.is_empty(), "{overlaps:?}");
        }
    }
}

/// The leader is paused whole: supervisor, guardian and job. Another takes over when its lease is over. The
/// job wakes first, as it may on a machine, and its late write is refused; guardian and supervisor end it,
/// and say why.
pub(crate) fn a_paused_leader_does_no_harm(store: &Store) {
    let pair = Pair::start(store, "zombie", [&store.url; 2]);
    let [a, b] = [&pair.nodes[0], &pair.nodes[1]];
    wait_until("a write of a", || pair.ledger.last().is_some());
    let (job, guardian) = (a.job().expect("it has a job"), a.guardian().expect("it has a guardian"));
    let began = Instant::now();
    for process in [a.supervisor(), guardian] {
        table::signal(process, Signal::STOP);
    }
    pair.stop_job(job);
    let stale = pair.tokens().last().copied().expect("a has written");
    b.told.wait_for_event("started");
    println!("{}: another worked {:?} after the pause", store.name, began.elapsed());
    wait_until("a write of b", || pair.ledger.last().is_some_and(|line| line.token > stale));
    table::signal(job, Signal::CONT);
    let refused = a.told.wait_for("the refusal of the late write", |told| {
        (told["job"] == "refused").then(|| told["token"].as_i64())
    });
    assert_eq!(refused, Some(stale));
    for process in [guardian, a.supervisor()] {
        table::signal(process, Signal::CONT);
    }
    let why = a.told.wait_for_event("released");
    println!("{}: the old leader says: {why}", store.name);
    assert!(why["reason"].is_string(), "{why}");
    a.told.wait_for("a's learning of its successor", |told| {
        (told["event"] == "leader" && told["leader"] == "b").then_some(())
    });
    assert!(!table::is_alive(job));
    pair.judge(None);
}

/// The same, and the guardian wakes first: the job does not live to write.
pub(crate) fn a_guardian_that_wakes_first_ends_the_job(store: &Store) {
    let pair = Pair::start(store, "woken", [&store.url; 2]);
    let [a, b] = [&pair.nodes[0], &pair.nodes[1]];
    wait_until("a write of a", || pair.ledger.last().is_some());
    let (job, guardian) = (a.job().expect("it has a job"), a.guardian().expect("it has a guardian"));
    for process in [a.supervisor(), guardian] {
        table::signal(process, Signal::STOP);
    }
    pair.stop_job(job);
    b.told.wait_for_event("started");
    table::signal(guardian, Signal::CONT);
    wait_until("the end of the paused job", || !table::is_alive(job));
    table::signal(a.supervisor(), Signal::CONT);
    a.told.wait_for_event("released");
    assert_eq!(a.told.events().iter().filter(|told| told["job"] == "refused").count(), 0);
    pair.judge(None);
}

/// The leader reaches its resource and not the store: it stops by itself at the end of its lease, and not a moment later than
/// another begins.
pub(crate) fn a_leader_without_its_store_stops_in_time(store: &Store, through: &str, cut: impl FnOnce()) {
    let pair = Pair::start(store, "asymmetric", [through, &store.url]);
    let watch = Watch::new(pair.ledger.path());
    let [a, b] = [&pair.nodes[0], &pair.nodes[1]];
    wait_until("a write of a", || pair.ledger.last().is_some());
    let began = Instant::now();
    cut();
    let exited = a.told.wait_for_event("exited");
    let started = b.told.wait_for_event("started");
    println!("{}: cut off, and another worked {:?} later; {exited}", store.name, began.elapsed());
    let at = |event: &Value| event["boot_ns"].as_u64().expect("every event has its time");
    assert!(at(&exited) <= at(&started), "{exited} {started}");
    let why = a.told.wait_for_event("released");
    assert!(why["reason"].is_string(), "{why}");
    assert_blames_the_store(store, &why);
    pair.judge(Some(watch));
}

/// The reason of a loss names the store, and has its own words and how often it failed.
fn assert_blames_the_store(store: &Store, why: &Value) {
    let reason = why["reason"].as_str().expect("it is given");
    let scheme = store.url.split(':').next().expect("a scheme");
    let blames = reason.contains(&format!(" of {scheme}://"))
        && reason.contains("succeeded for")
        && reason.contains("failure");
    assert!(blames, "{reason}");
}

/// The store falls silent: nothing that it is asked is answered, and no connection is closed. The node says so, once, while it goes on
/// and when it has lost the lead; and also when the store answers again.
pub(crate) fn a_store_that_falls_silent_is_told(store: &Store, stall: impl FnOnce(), pass: impl FnOnce()) {
    let mut place = Place::new(&format!("live-{}-silent", store.name));
    let args = alone(store, "silent", &mut place);
    let node = Node::start(&place, "a", &args);
    node.told.wait_for_event("started");
    stall();
    let failing = |told: &Value| {
        let is_trouble = told["event"] == "log"
            && told["message"].as_str().is_some_and(|text| text.contains("a request to the store failed"));
        is_trouble.then(|| told.clone())
    };
    println!("{}: {}", store.name, node.told.wait_for("the trouble's being told", failing));
    assert_blames_the_store(store, &node.told.wait_for_event("released"));
    pass();
    node.told.wait_for("the end of the trouble", |told| {
        told["message"].as_str().is_some_and(|text| text.contains("succeed again")).then_some(())
    });
    node.told.wait_for_another("started", 1);
    let told = node.told.events().iter().filter_map(failing).count();
    // One for what is read, one for what is renewed, and other words once in a lease.
    assert!(told <= 8, "{told} lines\n{}", node.history());
}

/// The store is not there when the node starts. It waits, reports that, and leads when the store is there.
pub(crate) fn a_store_that_is_away_at_start_is_waited_for(store: &Store, appear: impl FnOnce()) {
    let mut place = Place::new(&format!("live-{}-start", store.name));
    let args = alone(store, "start", &mut place);
    let node = Node::start(&place, "a", &args);
    let waits = node.told.wait_for("its waiting for the store", |told| {
        let waits = told["message"].as_str().is_some_and(|text| text.contains("cannot be opened yet"));
        waits.then(|| told.clone())
    });
    println!("{}: {waits}", store.name);
    appear();
    node.told.wait_for_event("started");
}

/// Returns the arguments of a node that campaigns alone.
fn alone(store: &Store, election: &str, place: &mut Place) -> Vec<String> {
    // Some have a password, which has no place on a command line.
    place.set("STORE_OF_a", &store.url);
    let election = format!("{election}-{}", std::process::id());
    let lease = format!("{}ms", store.lease.as_millis());
    let mut args = strings(&["run", "--json", "--restart", "--election", &election, "--node", "a"]);
    args.extend(strings(&["--store", "env:STORE_OF_a", "--state-dir", &place.text("a"), "--lease", &lease]));
    args.extend(strings(&["--", "sleep", "600"]));
    args
}

/// The store is away for 5 s, and with a lease of 10 s and no other setting no leader changes.
pub(crate) fn a_short_outage_changes_no_leader(store: &Store, outage: impl FnOnce(Duration)) {
    let pair = Pair::start_with(store, "short", [&store.url; 2], &["--lease", WHOLE_LEASE]);
    let [a, b] = [&pair.nodes[0], &pair.nodes[1]];
    let first = pair.ledger.last();
    outage(SHORT_OUTAGE);
    // As long again, in which a deposed leader would have said so.
    std::thread::sleep(SHORT_OUTAGE);
    assert!(a.leads() && !b.leads(), "{}\n{}", a.history(), b.history());
    assert_eq!((a.told.count("elected"), b.told.count("elected")), (1, 0));
    wait_until("a write after the outage", || pair.ledger.last() != first);
    pair.judge(None);
}

/// The store closes its connections, where the lead goes with one: it ends at once, which is reported, and a
/// node leads again with a higher token.
pub(crate) fn a_short_outage_ends_the_lead_at_once(store: &Store, outage: impl FnOnce(Duration)) {
    let pair = Pair::start(store, "short", [&store.url; 2]);
    let watch = Watch::new(pair.ledger.path());
    let [a, b] = [&pair.nodes[0], &pair.nodes[1]];
    wait_until("a write of a", || pair.ledger.last().is_some());
    let before = pair.ledger.last().expect("a has written").token;
    outage(store.lease / 4);
    let why = a.told.wait_for_event("released");
    println!("{}: the leader says: {why}", store.name);
    assert!(why["reason"].as_str().is_some_and(|reason| reason.contains("session")), "{why}");
    wait_until("a write under a higher token", || pair.ledger.last().is_some_and(|line| line.token > before));
    for node in [a, b] {
        assert!(table::is_alive(node.supervisor()), "{}", node.history());
    }
    pair.judge(Some(watch));
}

/// The store is away for three leases: the leader is deposed in time, and when it is back the same processes lead again.
pub(crate) fn a_long_outage_deposes_and_the_same_processes_lead_again(
    store: &Store,
    outage: impl FnOnce(Duration),
) {
    let pair = Pair::start(store, "long", [&store.url; 2]);
    let [a, b] = [&pair.nodes[0], &pair.nodes[1]];
    wait_until("a write of a", || pair.ledger.last().is_some());
    let job = a.job().expect("it has a job");
    let began = Instant::now();
    let ended = std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            wait_until("the end of the leader's job", || !table::is_alive(job));
            began.elapsed()
        });
        outage(3 * store.lease);
        watch.join().expect("it ends")
    });
    println!("{}: its job ended {ended:?} into an outage of {:?}", store.name, 3 * store.lease);
    assert!(ended <= store.lease, "it worked for {ended:?} without its store");
    let before = pair.ledger.last().expect("a has written").token;
    wait_until("somebody's lead after the outage", || {
        pair.ledger.last().is_some_and(|line| line.token > before)
    });
    for node in [a, b] {
        assert!(table::is_alive(node.supervisor()), "{}", node.history());
    }
    pair.judge(None);
}

/// A node of the store dies, and the lead outlives it. Then the leader dies, and another one leads with a higher token.
pub(crate) fn a_lead_outlives_a_node_of_its_store(store: &Store, kill_node: impl FnOnce()) {
    let lease = format!("{}ms", store.lease.as_millis());
    let pair = Pair::start_with(store, "billing", [&store.url; 2], &["--lease", &lease]);
    let watch = Watch::new(pair.ledger.path());
    let [a, b] = [&pair.nodes[0], &pair.nodes[1]];
    wait_until("a write of a", || pair.ledger.last().is_some());
    let token = pair.ledger.last().expect("a has written").token;
    kill_node();
    // A leader that had lost the lead by that would know it by the end of the lease.
    std::thread::sleep(store.lease);
    assert!(a.leads() && !b.leads(), "{}\n{}", a.history(), b.history());
    assert_eq!((a.told.count("elected"), b.told.count("elected")), (1, 0));
    let last = pair.ledger.last();
    wait_until("a write after the node's death", || pair.ledger.last() != last);
    a.signal(Signal::KILL);
    // A part of the lease of the dead one, in which nothing can happen.
    std::thread::sleep(store.lease / 2);
    b.told.wait_for_event("started");
    wait_until("a write of b", || pair.ledger.last().is_some_and(|line| line.token > token));
    assert!(b.leads(), "{}", b.history());
    pair.judge(Some(watch));
}
