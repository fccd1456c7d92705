//! Every election among peers on real processes: the leader is killed, and another node takes over; where the election
//! has tokens, the leader has one.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::process::Output;

use primacy::Algorithm;
use primacy_testbed::{Node, Place, peers, stderr, stdout, strings, wait_until, words};
use rustix::process::Signal;
use serde_json::Value;

const NAMES: [&str; 3] = ["a", "b", "c"];

struct Nodes {
    place: Place,
    nodes: Vec<Node>,
    dead: Option<usize>,
}

impl Nodes {
    fn start(test: &str, by: &str, more: &[String]) -> Self {
        let place = Place::new(test);
        let peers = peers(&NAMES);
        let start = |name: &&str| {
            let mut args = strings(&["run", "--json", "--restart", "--election", "others", "--node", name]);
            args.extend(strings(&["--peers", &peers, "--state-dir", &place.text(name), "--algorithm", by]));
            args.extend_from_slice(more);
            // The term and token of its leadership, as its name in the list of processes is of no use.
            let job = r#"echo "$PRIMACY_TERM ${PRIMACY_TOKEN-none}" >> "$0"; exec sleep 1000"#;
            args.extend(strings(&["--", "sh", "-c", job, &place.text("told")]));
            Node::start(&place, name, &args)
        };
        let nodes = NAMES.iter().map(start).collect();
        Self { place, nodes, dead: None }
    }

    /// Waits until all name one leader, which leads for the `nth` time counted over all nodes; returns it.
    fn leader(&self, nth: usize) -> usize {
        wait_until("a leader that works", || self.works().len() >= nth);
        let mut leader = None;
        wait_until("all others' learning of it", || {
            let known: Vec<Option<String>> = (0..NAMES.len())
                .filter(|&at| self.dead != Some(at))
                .map(|at| self.who(at)["leader"]["node"].as_str().map(ToOwned::to_owned))
                .collect();
            leader = known.first().cloned().flatten();
            leader.is_some() && known.iter().all(|known| *known == leader)
        });
        NAMES.iter().position(|name| Some(*name) == leader.as_deref()).unwrap()
    }

    /// Returns the term and token that each job got when it began.
    fn works(&self) -> Vec<(u64, Option<u64>)> {
        let text = std::fs::read_to_string(self.place.path("told")).unwrap_or_default();
        let line = |line: &str| {
            let (term, token) = line.split_once(' ').unwrap();
            (term.parse().unwrap(), token.parse().ok())
        };
        text.lines().map(line).collect()
    }

    /// Asks this node something.
    fn ask(&self, at: usize, verb: &[&str]) -> Output {
        let dir = self.place.text(NAMES[at]);
        let node = ["--json", "--election", "others", "--node", NAMES[at], "--state-dir", &dir];
        self.place.output(&[verb, &node].concat())
    }

    fn who(&self, at: usize) -> Value {
        serde_json::from_str(&stdout(&self.ask(at, &["status"]))).unwrap_or_default()
    }

    /// Starts all again, which have ended, with another policy for splits.
    fn policy(&mut self, policy: &str) {
        for node in &mut self.nodes {
            node.restart_with(&self.place, &strings(&["--split-brain", policy]));
        }
    }

    /// Kills the leader's supervisor; returns the node that leads next, in a later term.
    fn take_over(&mut self) -> usize {
        let first = self.leader(1);
        self.nodes[first].signal(Signal::KILL);
        self.nodes[first].wait();
        self.dead = Some(first);
        let second = self.leader(2);
        assert_ne!(first, second);
        let works = self.works();
        assert!(works[1].0 > works[0].0, "{works:?}");
        second
    }
}

#[test]
fn a_ranked_leader_has_a_token_and_is_replaced() {
    let mut nodes = Nodes::start("ranked", "ranked", &[]);
    let second = nodes.take_over();
    assert!(nodes.works().iter().all(|&(term, token)| token == Some(term)), "{:?}", nodes.works());
    let who = nodes.who(second);
    assert_eq!(who["peers"]["algorithm"], "ranked");
    assert_eq!(who["peers"]["safety"], "fenced");
    assert!(who["leader"]["token"].is_number(), "{who}");
}

#[test]
fn what_a_ranked_leader_announces_is_shown_by_all_and_outlives_it() {
    let mut nodes = Nodes::start("announced", "ranked", &[]);
    let first = nodes.leader(1);
    let told = nodes.ask(first, &["publish", "shard 7"]);
    assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
    let told: Value = serde_json::from_str(&stdout(&told)).unwrap();
    let number = |of: &Value| (of["term"].as_u64(), of["number"].as_u64());
    let others: Vec<usize> = (0..NAMES.len()).filter(|&at| at != first).collect();
    for &at in &others {
        wait_until("the announcement", || nodes.who(at)["announced"]["text"] == "shard 7");
        assert!(number(&nodes.who(at)["announced"]) >= number(&told));
        let refused = nodes.ask(at, &["publish", "mine"]);
        assert_eq!(refused.status.code(), Some(75), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("let the leader publish it"), "{}", stderr(&refused));
    }
    let too_long = nodes.ask(first, &["publish", &"x".repeat(16 * 1024 + 1)]);
    assert_eq!(too_long.status.code(), Some(64), "{}", stderr(&too_long));
    assert!(stderr(&too_long).contains("at most 16384 bytes, and this has 16385"), "{}", stderr(&too_long));

    let second = nodes.take_over();
    let who = nodes.who(second);
    assert_eq!(who["announced"]["text"], "shard 7");
    assert_eq!(who["announced"]["term"], who["leader"]["term"]);
    // What is no text, or could move a cursor, is shown as digits.
    assert_eq!(nodes.ask(second, &["publish", "\u{1b}[2J"]).status.code(), Some(0));
    wait_until("the next announcement", || nodes.who(second)["announced"]["hex"] == "1b5b324a");
}

#[test]
fn advisory_leaders_are_replaced_and_have_no_token() {
    for by in
        Algorithm::ALL.iter().filter(|algorithm| !algorithm.is_fenced()).map(|algorithm| algorithm.name())
    {
        let mut nodes = Nodes::start(&format!("advisory-{by}"), by, &strings(&["--allow-advisory"]));
        let second = nodes.take_over();
        assert!(nodes.works().iter().all(|&(_, token)| token.is_none()), "{:?}", nodes.works());
        let who = nodes.who(second);
        assert_eq!(who["peers"]["safety"], "advisory");
        assert!(who["leader"].is_object() && who["leader"]["token"].is_null(), "{who}");
        let elected = nodes.nodes[second].told.wait_for_event("elected");
        assert!(elected["token"].is_null() && elected["term"].is_number(), "{elected}");
    }
}

#[test]
fn a_nominee_that_a_quorum_confirms_has_a_token() {
    let mut nodes = Nodes::start("by-quorum", "bully", &strings(&["--confirm", "quorum"]));
    let second = nodes.take_over();
    assert!(nodes.works().iter().all(|&(term, token)| token == Some(term)), "{:?}", nodes.works());
    // The names decide the leader, and not the operator.
    let output = nodes.ask(second, &["transfer", "--to", NAMES[3 - second - nodes.dead.unwrap()]]);
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    assert!(stderr(&output).contains("the rule of the election says who leads next"), "{}", stderr(&output));
}

/// Where a quorum confirms the oldest, too, its cluster is shown, and a member can be removed by hand.
#[test]
fn members_are_shown_and_removed_also_where_a_quorum_confirms() {
    let mut nodes = Nodes::start("members", "seniority", &strings(&["--confirm", "quorum"]));
    let first = nodes.leader(1);
    let members = |who: &Value| {
        let members = who["peers"]["members"]["all"].as_array().cloned().unwrap_or_default();
        members.iter().filter_map(|member| member["node"].as_str().map(ToOwned::to_owned)).collect::<Vec<_>>()
    };
    wait_until("a cluster of all", || members(&nodes.who(first)).len() == NAMES.len());
    let state = nodes.place.text(NAMES[first]);
    let watch =
        strings(&["watch", "--json", "--election", "others", "--node", NAMES[first], "--state-dir", &state]);
    let watch = Node::start(&nodes.place, "watch", &watch);
    let sees = |count: usize| {
        watch.told.wait_for("a view", |told| {
            let all = told["members"]["all"].as_array().filter(|all| all.len() == count)?;
            // The oldest comes first.
            let ages: Vec<_> = all.iter().map(|member| member["age"].as_u64()).collect();
            ages.is_sorted().then_some(())
        });
    };
    sees(NAMES.len());
    let gone = (first + 1) % NAMES.len();
    nodes.nodes[gone].signal(Signal::STOP);
    let output = nodes.ask(first, &["member", "remove", "--dead", NAMES[gone]]);
    assert!(output.status.success(), "{}", stderr(&output));
    wait_until("its removal", || !members(&nodes.who(first)).contains(&NAMES[gone].to_owned()));
    sees(NAMES.len() - 1);
    nodes.nodes[gone].signal(Signal::KILL);
    nodes.nodes[gone].wait();
}

#[test]
fn a_nominee_that_a_store_confirms_has_the_stores_token_and_is_replaced_before_its_lease_ends() {
    let place = Place::new("by-store-db");
    let url = format!("sqlite:{}", place.text("lease.db"));
    let lease = std::time::Duration::from_secs(60);
    let more = strings(&["--confirm", &url, "--lease", "60s"]);
    let mut nodes = Nodes::start("by-store", "ring", &more);
    let began = std::time::Instant::now();
    let second = nodes.take_over();
    assert!(began.elapsed() < lease, "its guardian has cleared the record");
    assert!(nodes.works().iter().all(|&(term, token)| token == Some(term)), "{:?}", nodes.works());
    let who = nodes.who(second);
    assert_eq!(who["peers"]["nominee"], NAMES[second]);
    assert_eq!(who["record"]["holder"], NAMES[second]);
}

#[test]
fn what_does_not_go_together_is_refused_with_what_would() {
    let place = Place::new("refused");
    let refused = |more: &[&str], expected: &[&str]| {
        let mut args =
            strings(&["run", "--election", "e", "--node", "a", "--state-dir", &place.text("state")]);
        args.extend(strings(more));
        args.extend(strings(&["--", "true"]));
        let output = place.output(&args);
        assert_eq!(output.status.code(), Some(78), "{more:?}: {}", stderr(&output));
        for part in expected {
            assert!(stderr(&output).contains(part), "{part} is not in: {}", stderr(&output));
        }
    };
    let among = ["--peers", "a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3"];
    let with = |more: &[&'static str]| [&among[..], more].concat();
    refused(
        &with(&["--algorithm", "bully"]),
        &["two nodes can lead at once", "--confirm", "--allow-advisory"],
    );
    refused(&with(&["--algorithm", "ranked", "--confirm", "quorum"]), &["have a token already"]);
    refused(&with(&["--algorithm", "ranked", "--safety", "lease"]), &["--safety lease", "choose quorum"]);
    refused(&with(&["--algorithm", "ring", "--allow-advisory", "--priority", "3"]), &["--priority"]);
    let keeps = ["--metadata", "fsync"];
    for (more, said) in
        [(["--algorithm", "ranked"], "the election is ranked"), (["--safety", "fenced"], "safety = fenced")]
    {
        refused(&with(&[&more[..], &keeps].concat()), &[said, "leave --metadata and --etcd-api out"]);
    }
    let output = place.output(&[&["run", "--algorithm", "raft"], &among[..]].concat());
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
    assert!(stderr(&output).contains("there are quorum, ranked, bully"), "{}", stderr(&output));
}

/// The first of the named seeds founds the cluster and leads it, and not the first by name.
#[test]
fn a_cluster_is_held_as_its_settings_say() {
    let settings = "--allow-advisory --seeds b,a --detector deadline:2s --stable-after 500ms --neighbours 2 \
                    --minimum-members 3 --zone east --labels rack=7,disk=ssd";
    let more = words(settings);
    let mut nodes = Nodes::start("membership", "seniority", &more);
    assert_eq!(NAMES[nodes.leader(1)], "b");
    let members = |who: &Value| who["peers"]["members"]["all"].as_array().map_or(0, Vec::len);
    wait_until("all three members", || (0..3).all(|at| members(&nodes.who(at)) == 3));
    let who = nodes.who(0);
    let oldest = &who["peers"]["members"]["all"][0];
    assert_eq!((&oldest["node"], &oldest["zone"]), (&"b".into(), &"east".into()), "{who}");
    assert_eq!((&oldest["labels"]["rack"], &oldest["labels"]["disk"]), (&"7".into(), &"ssd".into()), "{who}");
    assert!(who["too_few_members"].is_null(), "{who}");
    let second = nodes.take_over();
    wait_until("the minimum", || nodes.who(second)["too_few_members"].is_string());
    let who = nodes.who(second);
    assert!(who["too_few_members"].as_str().unwrap().contains("has 2 members here, and needs 3"), "{who}");
}

/// The first seed is gone for good: the others say so, and what helps, and that does help.
#[test]
fn a_cluster_whose_first_seed_is_gone_is_founded_by_another_one_that_is_named_first() {
    let place = Place::new("founder");
    let peers = peers(&NAMES);
    let node = |seeds: &str| {
        let state = place.text("b");
        let line = format!("run --json --election e --node b --peers {peers} --state-dir {state}");
        let more = format!("--algorithm seniority --allow-advisory --seeds {seeds} -- sleep 1000");
        let args = words(&format!("{line} {more}"));
        Node::start(&place, "b", &args)
    };
    let who = || stdout(&place.output(&["status", "--election", "e", "--state-dir", &place.text("b")]));
    let mut waits = node("a,b");
    wait_until("what helps", || {
        who().contains("a founds it, the first of the seeds, and it is not connected")
    });
    waits.signal(Signal::TERM);
    waits.wait();
    let _founds = node("b,a");
    wait_until("a leader", || who().contains("b leads"));
}

#[test]
fn settings_of_a_cluster_that_cannot_be_are_refused() {
    let place = Place::new("membership-refused");
    let peers = "a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3";
    let check = |more: &[&str]| {
        let args = ["config", "check", "--election", "e", "--node", "a", "--peers", peers];
        let output = place.output(&[&args[..], more].concat());
        (output.status.code(), stderr(&output))
    };
    let by_seniority = |more: &[&'static str]| {
        let (code, said) = check(&[&["--algorithm", "seniority", "--allow-advisory"], more].concat());
        // An impossible setting is a wrong command line.
        assert!(matches!(code, Some(64 | 78)), "{more:?}: {code:?} {said}");
        said
    };
    for (more, says) in [
        (&["--seeds", "a,z"][..], "the seed z is not one of the peers (a, b, c)"),
        (&["--seeds", "a,a"], "the seed a is named twice"),
        (&["--neighbours", "0"], "0 neighbours"),
        (&["--neighbours", "1"], "with 1 neighbour among 3 peers one cut link removes a member"),
        (&["--minimum-members", "0"], "at least 1, and at most all peers, which are 3"),
        (&["--minimum-members", "4"], "at least 1, and at most all peers, which are 3"),
        (&["--stable-after", "0s"], "state more than nothing"),
        (&["--stable-after", "2h"], "at most 3600s"),
        (&["--detector", "missed:1"], "silence is suspicious after 250ms"),
        (&["--detector", "phi-accrual:0.5,1s,1s"], "from 1 to 20, and this is 0.5"),
        (
            &["--detector", "phi-accrual:8,0s,0s"],
            "a member that is 0s late, and they come every 250ms: state a pause of 250ms",
        ),
        (&["--detector", "often"], "write missed:COUNT"),
        (&["--split-brain", "static-quorum:0"], "lets two parts go on"),
        (&["--split-brain", "static-quorum:1"], "at least 2, and at most 3"),
        (&["--split-brain", "static-quorum:4"], "lets no part go on"),
        (&["--split-brain", "static-quorum:many"], "takes a number of members"),
        (
            &["--split-brain", "lease:"],
            "--split-brain: a store is named by a URL, and this one has no scheme",
        ),
        (&["--split-brain", "lease:leveldb:x"], "--split-brain: there is no store `leveldb:`"),
        (&["--split-brain", "keep-calm"], "write keep-majority, static-quorum:NUMBER"),
        (&["--labels", "rack"], "write key=value"),
        (&["--labels", "a=,b=,c=,d=,e=,f=,g=,h=,i="], "at most 8 labels"),
        (&["--witness"], "by seniority there are no votes"),
    ] {
        let said = by_seniority(more);
        assert!(said.contains(says), "{more:?}: {says:?} is not in: {said}");
    }
    let both = by_seniority(&["--seeds", "z", "--minimum-members", "4"]);
    assert!(both.contains("the seed z") && both.contains("at most all peers"), "{both}");
    assert_eq!(check(&["--algorithm", "seniority", "--confirm", "quorum", "--witness"]).0, Some(0));

    for (key, value) in [
        ("seeds", "a"),
        ("split-brain", "available"),
        ("neighbours", "1"),
        ("detector", "missed:4"),
        ("stable-after", "1s"),
        ("minimum-members", "1"),
        ("zone", "east"),
        ("labels", "a=1"),
    ] {
        let (code, said) = check(&[&format!("--{key}"), value]);
        assert_eq!(code, Some(78), "{said}");
        let says = format!("--{key} has no meaning by quorum; leave it out, or choose --algorithm seniority");
        assert!(said.contains(&says), "{said}");
    }
}

/// Several nodes of one machine may share a state directory; a verb that only a leader obeys finds the
/// leader, which by an advisory election has no validity to report.
#[test]
fn the_leader_is_found_among_the_nodes_of_one_state_directory() {
    let place = Place::new("one-directory");
    let (peers, state) = (peers(&NAMES), place.text("state"));
    let node = |name: &&str| {
        let mut args = strings(&["node", "--json", "--election", "e", "--node", name, "--peers", &peers]);
        args.extend(strings(&["--state-dir", &state, "--algorithm", "bully", "--allow-advisory"]));
        Node::start(&place, name, &args)
    };
    let _nodes: Vec<Node> = NAMES.iter().map(node).collect();
    let ask = |verb: &[&str], more: &[&str]| {
        place.output(&[verb, &["--json", "--election", "e", "--state-dir", &state], more].concat())
    };
    let leader = || {
        let of = |name: &&str| -> Value {
            let who: Value =
                serde_json::from_str(&stdout(&ask(&["status"], &["--node", name]))).unwrap_or_default();
            who["leader"]["node"].clone()
        };
        let known: Vec<Value> = NAMES.iter().map(of).collect();
        known[0].as_str().filter(|_| known.iter().all(|it| *it == known[0])).map(ToOwned::to_owned)
    };
    wait_until("one leader for all", || leader().is_some());
    let before = leader().unwrap();
    let output = ask(&["resign"], &["--no-wait"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(told["node"], before.as_str(), "{told}");
}

/// A newcomer that could lead beside the others, for its settings differ, ends and says why; the others go on.
#[test]
fn a_newcomer_with_another_configuration_ends_and_says_why() {
    let place = Place::new("config-mismatch");
    let store = |name: &str| format!("sqlite:{}", place.text(name));
    let cases = [
        (
            "bully",
            [strings(&["--confirm", &store("one.db")]), strings(&["--confirm", &store("other.db")])],
            "give all nodes the same store",
        ),
        (
            "seniority",
            [strings(&["--allow-advisory"]), strings(&["--allow-advisory", "--split-brain", "available"])],
            "give all nodes the same split-brain policy",
        ),
        // To the newcomer one more belongs to the ring.
        (
            "ring",
            [strings(&["--allow-advisory"]), strings(&["--allow-advisory"])],
            "give all nodes the same voters",
        ),
    ];
    for (by, [usual, otherwise], expected) in cases {
        let peers = peers(&NAMES);
        let other_peers = if by == "ring" { format!("{peers},d=127.0.0.1:1") } else { peers.clone() };
        let node = |name: &str, more: &[String]| {
            let peers = if name == "c" { &other_peers } else { &peers };
            let mut args = strings(&["run", "--json", "--election", by, "--node", name, "--peers", peers]);
            let state = place.text(&format!("{by}-{name}"));
            args.extend(strings(&["--algorithm", by, "--state-dir", &state]));
            args.extend_from_slice(more);
            args.extend(strings(&["--", "sleep", "1000"]));
            Node::start(&place, &format!("{by}-{name}"), &args)
        };
        let nodes = [node("a", &usual), node("b", &usual)];
        let who = |name: &str| -> Value {
            let state = place.text(&format!("{by}-{name}"));
            let output =
                place.output(&["status", "--json", "--election", by, "--node", name, "--state-dir", &state]);
            serde_json::from_str(&stdout(&output)).unwrap_or_default()
        };
        let leader = || {
            let known = ["a", "b"].map(|name| who(name)["leader"].clone());
            (known[0].is_object() && known[0] == known[1]).then(|| known[0].clone())
        };
        wait_until("a leader that both know", || leader().is_some());
        let before = leader();
        let mut newcomer = node("c", &otherwise);
        let status = newcomer.wait();
        assert_eq!(status.code(), Some(78), "{by}");
        wait_until("its last words", || newcomer.history().contains(expected));
        assert_eq!(leader(), before, "{by}: the others go on");
        drop(nodes);
    }
}

/// Of three that begin at once one has other settings: that one ends, and the two that agree go on.
#[test]
fn of_three_that_begin_the_one_with_another_configuration_ends() {
    let place = Place::new("one-of-three");
    let peers = peers(&NAMES);
    let node = |name: &str, store: &str| {
        let mut args = strings(&["run", "--json", "--election", "e", "--node", name, "--peers", &peers]);
        args.extend(strings(&[
            "--algorithm",
            "bully",
            "--confirm",
            &format!("sqlite:{}", place.text(store)),
        ]));
        args.extend(strings(&["--state-dir", &place.text(name), "--", "sleep", "1000"]));
        Node::start(&place, name, &args)
    };
    let nodes = [node("a", "one.db"), node("b", "one.db")];
    let mut wrong = node("c", "other.db");
    assert_eq!(wrong.wait().code(), Some(78));
    assert!(!wrong.history().contains("\"elected\""), "{}", wrong.history());
    wait_until("a leader", || nodes.iter().any(Node::leads));
}

/// The settings of guardians of earlier incarnations do not count: all nodes are killed, and begin again with
/// another policy.
#[test]
fn guardians_of_earlier_incarnations_cause_no_mismatch() {
    let mut nodes = Nodes::start("other-policy", "seniority", &strings(&["--allow-advisory"]));
    nodes.leader(1);
    for node in &mut nodes.nodes {
        node.signal(Signal::KILL);
        node.wait();
    }
    nodes.policy("keep-oldest");
    nodes.leader(2);
}

/// No guardian has witnessed a death, so a leader that has lost both others stops its job until the store has
/// said that it may go on; and takes the others in when they are heard again.
#[test]
fn a_leader_that_is_left_alone_leads_again_when_the_store_has_chosen_it() {
    let store = Place::new("left-alone-store");
    let policy = format!("lease:sqlite:{}", store.text("split.db"));
    let nodes =
        Nodes::start("left-alone", "seniority", &strings(&["--allow-advisory", "--split-brain", &policy]));
    let leader = nodes.leader(1);
    let members = || nodes.who(leader)["peers"]["members"]["all"].as_array().map_or(0, Vec::len);
    wait_until("all three members", || members() == 3);
    let others = || (0..NAMES.len()).filter(|&at| at != leader);
    for at in others() {
        nodes.nodes[at].signal(Signal::STOP);
    }
    wait_until("its next leadership", || nodes.works().len() == 2);
    assert!(nodes.works()[1].0 > nodes.works()[0].0, "{:?}", nodes.works());
    wait_until("a cluster of one", || members() == 1);
    for at in others() {
        nodes.nodes[at].signal(Signal::CONT);
    }
    wait_until("all three members", || members() == 3);
    assert_eq!(nodes.leader(2), leader);
    assert_eq!(nodes.works().len(), 2);
}

/// The lead is given up to the next in age, and the operator is told when that one leads.
#[test]
fn the_oldest_resigns() {
    for more in [["--allow-advisory"].as_slice(), &["--confirm", "quorum"]] {
        let nodes = Nodes::start(&format!("oldest-resigns{}", more.len()), "seniority", &strings(more));
        let first = nodes.leader(1);
        let output = nodes.ask(first, &["resign"]);
        assert!(output.status.success(), "{more:?}: {}", stderr(&output));
        assert_ne!(nodes.leader(2), first, "{more:?}");
    }
}

#[test]
fn nodes_of_different_elections_refuse_each_other() {
    let place = Place::new("differ");
    let peers = peers(&NAMES);
    let node = |name: &str, by: &str| {
        let state = place.text(name);
        let line = format!("run --json --election e --node {name} --peers {peers} --state-dir {state}");
        let args = words(&format!("{line} --algorithm {by} --safety fenced -- true"));
        Node::start(&place, name, &args)
    };
    let _nodes = [node("a", "quorum"), node("b", "ranked")];
    wait_until("the refusal", || {
        let output =
            place.output(&["status", "--election", "e", "--node", "a", "--state-dir", &place.text("a")]);
        stdout(&output).contains("elects by ranked, a by quorum; give all nodes the same")
            || stdout(&output).contains("elects by quorum, b by ranked; give all nodes the same")
    });
}
