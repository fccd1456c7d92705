//! Five nodes by seniority, each in a network namespace of its own, are split into three and two, and meet again. Each
//! policy has its documented outcome; and with a confirmation there are never two leaders. The tests need root.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeSet;

use primacy_testbed::ledger::Ledger;
use primacy_testbed::network::{Cut, Network};
use primacy_testbed::table::{Watch, is_alive};
use primacy_testbed::{Node, Place, stdout, strings, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The part with the first seed, which founds the cluster and so leads it before the split.
const SMALL: [usize; 2] = [0, 1];
const LARGE: [usize; 3] = [2, 3, 4];
const ALL: [usize; 5] = [0, 1, 2, 3, 4];
/// Longer than usual, so that a busy machine is not taken for a broken one.
const LEASE: &str = "2s";

/// Five nodes and the network between them. The processes end before their namespaces are removed.
struct Split {
    place: Place,
    nodes: Vec<Node>,
    network: Network,
}

impl Split {
    /// Five nodes, with options of their own that may name files, whose leaders run this job.
    fn start(test: &str, more: impl Fn(&Place) -> Vec<String>, job: impl Fn(&Place) -> Vec<String>) -> Self {
        let network = Network::new(test, &NAMES.map(str::to_owned)).unwrap_or_else(|trouble| {
            panic!("this test needs network namespaces, so root and the command `ip`: {trouble}")
        });
        let place = Place::new(&format!("split-{test}"));
        let start = |name: &&str| {
            let mut args = strings(&["run", "--json", "--restart", "--election", "split", "--node", name]);
            args.extend(strings(&["--peers", &network.peers(), "--insecure-cleartext", "--lease", LEASE]));
            args.extend(strings(&["--state-dir", &place.text(name), "--algorithm", "seniority"]));
            args.extend(more(&place));
            args.push("--".into());
            args.extend(job(&place));
            Node::start_within(
                &place,
                &strings(&["ip", "netns", "exec", &network.namespace(name)]),
                name,
                &args,
            )
        };
        let nodes = NAMES.iter().map(start).collect();
        Self { place, nodes, network }
    }

    /// The same with a job that records its variables, as there is no token.
    fn advisory(test: &str, policy: impl Fn(&Place) -> String) -> Self {
        let more = |place: &Place| strings(&["--allow-advisory", "--split-brain", &policy(place)]);
        let job = |place: &Place| {
            let note = r#"echo "$PRIMACY_ID ${PRIMACY_TOKEN-none}" >> "$0"; exec sleep 1000"#;
            strings(&["sh", "-c", note, &place.text("told")])
        };
        Self::start(test, more, job)
    }

    fn who(&self, at: usize) -> Value {
        let (name, state) = (NAMES[at], self.place.text(NAMES[at]));
        let args = ["status", "--json", "--election", "split", "--node", name, "--state-dir", &state];
        serde_json::from_str(&stdout(&self.place.output(&args))).unwrap_or_default()
    }

    /// Returns the node that a node takes for the leader.
    fn leader(&self, at: usize) -> Option<usize> {
        let who = self.who(at);
        NAMES.iter().position(|name| who["leader"]["node"] == **name)
    }

    /// Whether this node takes this one to be the leader, and these to be the members.
    fn knows(&self, at: usize, leader: Option<usize>, members: &[usize]) -> bool {
        let who = self.who(at);
        let leader = leader.map_or(Value::Null, |leader| NAMES[leader].into());
        who["incarnation"].is_string()
            && who["leader"]["node"] == leader
            && ages(&who).into_iter().map(|(_, node)| node).collect::<BTreeSet<_>>()
                == members.iter().copied().collect()
    }

    /// Waits until all of a part have the same leader and each other as members, and their leader's job runs.
    fn wait_for_part(&self, what: &str, part: &[usize], leader: usize) {
        wait_until(what, || part.iter().all(|&at| self.knows(at, Some(leader), part)));
        wait_until("the start of its job", || self.working().contains(&leader));
    }

    /// Waits until those of a part have no leader, belong to no cluster, and do no work.
    fn wait_for_stop(&self, part: &[usize]) {
        let stopped = |at: usize| self.knows(at, None, &[]) && !self.working().contains(&at);
        wait_until("the end of a part", || part.iter().all(|&at| stopped(at)));
    }

    /// Returns the nodes whose jobs are alive.
    fn working(&self) -> Vec<usize> {
        ALL.into_iter().filter(|&at| self.nodes[at].job().is_some_and(is_alive)).collect()
    }

    /// Returns the names and tokens that the jobs got, in the order in which they began.
    fn told(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.place.path("told")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Waits until all are one cluster, which the first seed leads, and splits it; returns the oldest of the large
    /// part.
    fn split(&mut self) -> usize {
        self.wait_for_part("one cluster of all", &ALL, SMALL[0]);
        let ages = ages(&self.who(SMALL[0]));
        let next = ages.iter().find(|(_, node)| LARGE.contains(node)).unwrap().1;
        self.cut();
        next
    }

    fn cut(&mut self) {
        self.network.cut(Cut::apart(&SMALL, NAMES.len())).unwrap();
    }

    fn heal(&mut self) {
        let (dropped, _) = self.network.heal().unwrap();
        assert!(dropped > 0, "the network was not split");
    }

    /// Heals the network, and waits until all are one cluster again, which this node leads, and no other works.
    fn merge(&mut self, leader: usize) {
        self.heal();
        self.wait_for_part("one cluster of all again", &ALL, leader);
        wait_until("one job", || self.working() == [leader]);
        let views: BTreeSet<String> =
            ALL.map(|at| self.who(at)["peers"]["members"]["view"].to_string()).into();
        assert_eq!(views.len(), 1, "{views:?}");
    }
}

/// The members that a node knows, the oldest first.
fn ages(who: &Value) -> Vec<(u64, usize)> {
    let members = who["peers"]["members"]["all"].as_array().into_iter().flatten();
    let member = |member: &Value| {
        let node = NAMES.iter().position(|name| member["node"] == **name).unwrap();
        (member["age"].as_u64().unwrap(), node)
    };
    let mut ages: Vec<(u64, usize)> = members.map(member).collect();
    ages.sort_unstable();
    ages
}

#[test]
fn the_majority_goes_on_and_the_minority_stops_and_rejoins() {
    let mut split = Split::advisory("majority", |_| "keep-majority".into());
    let next = split.split();
    split.wait_for_part("the majority's cluster", &LARGE, next);
    split.wait_for_stop(&SMALL);
    let released = split.nodes[SMALL[0]].told.wait_for_event("released");
    let names = |part: &[usize]| part.iter().map(|&at| NAMES[at]).collect::<Vec<_>>().join(", ");
    let (small, all, lost) = (names(&SMALL), names(&ALL), names(&LARGE));
    // The last is of a machine under load, where one of the two lost the other before the majority.
    let whys = [
        (small.as_str(), all),
        (NAMES[SMALL[0]], format!("{}, {lost}", NAMES[SMALL[0]])),
        (NAMES[SMALL[1]], format!("{}, {lost}", NAMES[SMALL[1]])),
    ]
    .map(|(part, of)| {
        format!("its part {{{part}}} of {{{of}}} does not go on, by keep-majority: {lost} do not answer")
    });
    assert!(whys.iter().any(|why| released["reason"] == **why), "{released}");
    // The first seed waits for all of them, before it founds another cluster.
    let missing = format!("{} at ", NAMES[LARGE[0]]);
    for (at, missing) in [(SMALL[0], &*missing), (SMALL[1], "")] {
        wait_until("the reasons", || {
            let said = split.who(at)["why_no_leader"].to_string();
            whys.iter().any(|why| said.contains(why)) && said.contains(missing)
        });
    }
    assert_eq!(split.working(), [next]);
    split.merge(next);
    assert_eq!(split.told(), [format!("{} none", NAMES[SMALL[0]]), format!("{} none", NAMES[next])]);
}

#[test]
fn the_part_that_a_store_chooses_goes_on_and_the_other_one_stops() {
    let url = |place: &Place| format!("sqlite:{}", place.text("split.db"));
    let mut split = Split::advisory("lease", |place| format!("lease:{}", url(place)));
    let next = split.split();
    // The large part asks first, but on a busy machine the small one may be heard first.
    let knows = |part: &[usize], leader| part.iter().all(|&at| split.knows(at, Some(leader), part));
    let mut small = false;
    wait_until("the store's choice", || {
        small = knows(&SMALL, SMALL[0]);
        small || knows(&LARGE, next)
    });
    println!("the store chose the {} part", if small { "small" } else { "large" });
    let (leader, chosen, other): (_, &[usize], &[usize]) =
        if small { (SMALL[0], &SMALL, &LARGE) } else { (next, &LARGE, &SMALL) };
    split.wait_for_stop(other);
    split.wait_for_part("the chosen part's cluster", chosen, leader);
    assert_eq!(split.working(), [leader]);
    split.merge(leader);
    assert!(split.told().iter().all(|told| told.ends_with(" none")), "{:?}", split.told());
}

/// The large part hangs, so only the small one asks; its coordinator stands aside until then, and the job
/// does not move.
#[test]
fn a_small_part_that_the_store_chooses_keeps_its_coordinator() {
    let policy = |place: &Place| format!("lease:sqlite:{}", place.text("split.db"));
    let split = Split::advisory("left", policy);
    split.wait_for_part("one cluster of all", &ALL, SMALL[0]);
    LARGE.iter().for_each(|&at| split.nodes[at].signal(Signal::STOP));
    wait_until("the store's choice", || split.told().len() > 1);
    split.wait_for_part("the small part's cluster", &SMALL, SMALL[0]);
    LARGE.iter().for_each(|&at| split.nodes[at].signal(Signal::CONT));
    split.wait_for_part("one cluster of all", &ALL, SMALL[0]);
    assert_eq!(split.told(), [format!("{} none", NAMES[SMALL[0]]), format!("{} none", NAMES[SMALL[0]])]);
}

#[test]
fn parts_that_stay_available_have_a_leader_each_and_one_when_they_have_met() {
    let mut split = Split::advisory("available", |_| "available".into());
    let next = split.split();
    split.wait_for_part("the large part's cluster", &LARGE, next);
    split.wait_for_part("the small part's cluster", &SMALL, SMALL[0]);
    assert_eq!(split.working(), [SMALL[0], next], "two leaders, which is what advisory means");
    split.merge(next);
    split.nodes[SMALL[0]].told.wait_for_event("released");
    assert_eq!(split.told(), [format!("{} none", NAMES[SMALL[0]]), format!("{} none", NAMES[next])]);
}

/// Jobs that write to a ledger with a fence, hold a lock, and are looked for in the table of processes.
#[test]
fn a_quorum_confirms_one_leader_of_the_two_that_a_split_nominates() {
    let place = Place::new("split-ledger");
    let ledger = Ledger::create(&place.path("ledger.db"), "split");
    let watch = Watch::new(ledger.path());
    let more = |_: &Place| strings(&["--confirm", "quorum", "--split-brain", "available"]);
    let job = |_: &Place| {
        let (lock, primacy) = (place.text("lock"), primacy_testbed::primacy());
        strings(&[primacy, "demo-job", "--ledger", ledger.path(), "--every", "4ms", "--lock", &lock])
    };
    let mut split = Split::start("confirmed", more, job);
    let agree = |split: &Split, part: &[usize], leader: Option<usize>| {
        part.iter().all(|&at| split.leader(at) == leader)
    };
    let nominee =
        |split: &Split, at: usize| NAMES.iter().position(|name| split.who(at)["peers"]["nominee"] == **name);
    wait_until("a leader of all", || agree(&split, &ALL, Some(SMALL[0])) && split.working() == [SMALL[0]]);
    split.cut();
    // Which of the two that is, is not fixed: the deposed one has become the youngest.
    wait_until("the small part's nominating one of its own, and its having no leader", || {
        let nominees = SMALL.map(|at| nominee(&split, at));
        nominees[0] == nominees[1]
            && nominees[0].is_some_and(|nominee| SMALL.contains(&nominee))
            && agree(&split, &SMALL, None)
    });
    let mut next = None;
    wait_until("a leader of the large part", || {
        next = LARGE.into_iter().find(|&at| agree(&split, &LARGE, Some(at)));
        next.is_some_and(|next| split.working() == [next] && nominee(&split, next) == Some(next))
    });
    let lines = ledger.all().len();
    wait_until("more of its work", || ledger.all().len() > lines);
    split.heal();
    wait_until("one leader of all again", || agree(&split, &ALL, next) && split.working().len() == 1);
    let (overlaps, looks) = watch.finish();
    assert!(overlaps.is_empty() && looks > 0, "{overlaps:?}");
    let lines = ledger.all();
    assert!(lines.is_sorted_by_key(|line| line.token));
    let writers: BTreeSet<&str> = lines.iter().map(|line| line.writer.as_str()).collect();
    assert!(writers.len() >= 2, "{writers:?}");
    for node in &split.nodes {
        let told = node.history();
        assert!(!told.contains("lock_taken") && !told.contains("\"refused\""), "{}: {told}", node.name);
    }
}
