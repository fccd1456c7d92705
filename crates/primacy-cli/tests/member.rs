//! `primacy member` on real processes: the voters are changed while clients write, the progress is shown, and a change
//! is refused if too few voters would be left.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use primacy_testbed::keepers::Keepers;
use primacy_testbed::{Node, wait_until};
use serde_json::Value;

/// The message about a node that is to vote, before it was heard.
const NOT_HEARD: &str = "d has not been heard yet, or takes a snapshot; is it started?";

/// Waits until the command reports that the node is being brought up to date, and was not heard yet.
fn wait_for_progress(command: &Node, node: &str) {
    command.told.wait_for("progress", |step| {
        let is_it = step["node"] == node && step["change"] == "add" && step["progress"] == "catching_up";
        (is_it && step["held"].is_null() && step["last"][1].as_u64() >= Some(1)).then_some(())
    });
}

/// Waits until the command has succeeded, and has reported that these changes are done, in this order.
fn wait_until_done(mut command: Node, changes: &[(&str, &str)]) {
    assert_eq!(command.wait().code(), Some(0), "{}", command.history());
    // The last lines may be read only after its end.
    wait_until("the end of the change", || {
        let steps = command.told.events();
        let done = steps.iter().filter(|step| step["progress"] == "done");
        let done = done.map(|step| (step["change"].as_str().unwrap(), step["node"].as_str().unwrap()));
        done.collect::<Vec<_>>() == changes
    });
}

#[tokio::test]
async fn a_voter_stays_where_too_few_would_be_heard_without_it() {
    let mut keepers = Keepers::start("voters-refused", &["a", "b", "c"]);
    keepers.write("a", "before").await;
    let said = keepers.verb("b", &["member", "list"]);
    said.is(0, &["3 voters, stated by record (", &format!("\nc={}", keepers.address("c"))]);
    // The node that is elected when `c` is dead has never heard it.
    keepers.lead("c");
    keepers.kill("c");
    keepers.leader();
    let too_few = "of the 2 voters that there would be, only 1 are heard, and that is no majority: start the others first";
    for (asked, voter) in [("a", "b"), ("b", "a"), ("a", "a"), ("b", "b")] {
        keepers.verb(asked, &["member", "remove", voter]).is(75, &[too_few]);
        let said = keepers.verb(asked, &["member", "remove", voter, "--json"]);
        said.is(75, &[too_few]);
        let step: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!((&step["progress"], &step["why"]), (&"refused".into(), &too_few.into()), "{step}");
    }
    for name in ["a", "b"] {
        assert_eq!(keepers.voters(name), keepers.listed(&["a", "b", "c"]));
    }
    keepers.write("b", "after").await;

    // The dead voter may go, and those that are left are enough without it.
    keepers.verb("a", &["member", "remove", "c"]).is(0, &["c does not vote"]);
    keepers.all_vote(&["a", "b"]);
    keepers.restart("c");
    // It does not know it, and both tell it.
    wait_until("the refusal of c", || {
        let who = keepers.who("c");
        let mut others = who["peers"]["others"].as_array().unwrap().iter();
        others
            .all(|other| other["refusal"]["text"].as_str().is_some_and(|text| text.contains("member add c=")))
    });
    keepers.write("b", "without c").await;
    assert_eq!(keepers.keys("a").await.len(), 3);
    // It may vote again, with the disk that it had.
    let c = format!("c={}", keepers.address("c"));
    keepers.verb("a", &["member", "add", &c]).is(0, &["c votes"]);
    keepers.all_vote(&["a", "b", "c"]);
    assert_eq!(keepers.keys("c").await.len(), 3);
}

#[tokio::test]
async fn a_voter_that_is_added_is_waited_for_and_then_has_what_was_written_before() {
    let mut keepers = Keepers::start("voters-add", &["a", "b", "c"]);
    let mut keys = keepers.write_some("a", "before", 20).await;
    let first = keepers.listed(&["a", "b", "c"]);
    let d = keepers.add("d");
    let command = keepers.begin("a", &["member", "add", &d]);
    wait_for_progress(&command, "d");
    // It delays no decision meanwhile, and does not vote; and the same command may be given again, to see the
    // progress.
    keys.extend(keepers.write_some("b", "meanwhile", 5).await);
    let said = keepers.verb("b", &["member", "add", &d, "--wait", "1ms"]);
    said.is(75, &[NOT_HEARD, "it is not done yet", "it does not vote before this command is given again"]);
    assert_eq!(keepers.voters("a"), first);

    keepers.launch("d", &[]);
    wait_until_done(command, &[("add", "d")]);
    keepers.all_vote(&["a", "b", "c", "d"]);
    assert_eq!(keepers.keys("d").await, keys);
    keepers.verb("c", &["member", "add", &d]).is(0, &["d votes"]);
    // A command that waits asks again and again, and is reported once.
    for asked in ["a", "b", "c"] {
        let told = keepers.node(asked).told.events();
        assert_eq!(told.iter().filter(|told| told["event"] == "asked").count(), 1, "{told:?}");
    }
    // Of four, three are a majority; without `c` that takes `d`.
    keepers.kill("c");
    keepers.write("a", "by the vote of d").await;
    assert!(keepers.keys("d").await.contains("by the vote of d"));
}

#[tokio::test]
async fn a_voter_is_replaced_when_the_new_one_is_up_to_date() {
    let mut keepers = Keepers::start("voters-replace", &["a", "b", "c"]);
    let keys = keepers.write_some("c", "before", 20).await;
    let first = keepers.listed(&["a", "b", "c"]);
    let d = keepers.add("d");
    let command = keepers.begin("a", &["member", "replace", "c", &d]);
    wait_for_progress(&command, "d");
    assert_eq!(keepers.voters("b"), first, "the old one stays until the new one is there");

    keepers.launch("d", &[]);
    wait_until_done(command, &[("add", "d"), ("remove", "c")]);
    keepers.all_vote(&["a", "b", "d"]);
    // The guardians of the nodes that were there before would notify `d` of a death, and no longer `c`; also
    // of a node that was restarted since, with the list of peers that it had.
    keepers.stop("b");
    keepers.restart("b");
    wait_until("the guardians of a and b at d, and not at c", || {
        let hears = |at: &str, node: &str| {
            let who = keepers.who(at);
            let mut others = who["peers"]["others"].as_array().unwrap().iter();
            others.any(|other| other["node"] == node && other["guardian"].is_string())
        };
        ["a", "b"].iter().all(|node| hears("d", node) && !hears("c", node))
    });
    wait_until("that c knows it", || {
        keepers.who("c")["why_no_leader"].to_string().contains("c is none of the voters {a, b, d}")
    });
    assert_eq!(keepers.keys("d").await, keys);
    keepers.verb("b", &["member", "replace", "c", &d]).is(0, &["d votes", "c does not vote"]);
    assert_eq!(keepers.voters("b"), keepers.listed(&["a", "b", "d"]));
    keepers.stop("c");
    keepers.kill("a");
    keepers.write("b", "by the vote of d").await;
    assert!(keepers.keys("d").await.contains("by the vote of d"));
}

/// The page's procedure for an operator who has lost a disk and has two other nodes: the machine gets another name,
/// and keeps its address.
#[tokio::test]
async fn a_dead_voter_is_replaced_by_one_with_its_address() {
    let mut keepers = Keepers::start("voters-again", &["a", "b", "c"]);
    let keys = keepers.write_some("a", "before", 20).await;
    keepers.kill("c");
    let address = keepers.forget("c");
    let d = keepers.add_at("d", &address);
    // Each time that it is given it goes on from where it was, and waits no longer than it may.
    let words = ["member", "replace", "c", &d, "--wait", "1ms"];
    wait_until("that it is begun", || {
        let said = keepers.verb("a", &words);
        said.is(75, &["it is not done yet", "this command"]);
        said.stdout.contains(NOT_HEARD)
    });
    keepers.launch("d", &[]);
    wait_until("the end of the change", || keepers.verb("b", &words).code == Some(0));
    keepers.all_vote(&["a", "b", "d"]);
    assert_eq!(keepers.keys("d").await, keys);
}

#[tokio::test]
async fn what_can_be_no_voter_is_refused_and_nothing_is_changed() {
    let mut keepers = Keepers::start("voters-wrong", &["a", "b", "c"]);
    keepers.write("a", "before").await;
    let d = keepers.add("d");
    let (a, both) = (format!("a={}", keepers.address("a")), format!("{d},e=127.0.0.1:1"));
    let cases: [(&[&str], i32, &str); 13] = [
        // What is no voter.
        (&["add", "d"], 64, "write name=host:port"),
        (&["add", "d=nowhere"], 64, "\"d=nowhere\" is not a peer"),
        (&["add", "d=127.0.0.1:0"], 64, "is not a peer"),
        (&["add", "d=127.0.0.1:99999"], 64, "is not a peer"),
        (&["add", "../d=127.0.0.1:1"], 64, "letters, digits"),
        (&["remove", "a b"], 64, "\"a b\" is no node's name"),
        // More than one.
        (&["add", &both], 64, "is not one voter"),
        (&["add", "d=127.0.0.1:1,d=127.0.0.1:2"], 64, "the node d is named twice"),
        (&["replace", "a", &a], 64, "a cannot take its own place"),
        // In cleartext, the others must be on the same machine.
        (&["add", "d=192.0.2.1:7401"], 75, "it cannot be a voter"),
        (&["add", "a=127.0.0.1:1"], 75, "it votes already, and is reached at another address"),
        // A misspelt name: the new node would be added, and none removed.
        (&["replace", "cc", &d], 75, "cc is none of the voters (a, b, c)"),
        // A node that does not vote need not go; the answer says that it did not.
        (&["remove", "cc"], 0, "cc does not vote, nor did it before"),
    ];
    for (words, code, says) in cases {
        keepers.verb("b", &[&["member"], words].concat()).is(code, &[says]);
    }
    let store = ["member", "add", &d, "--store", "sqlite:x.db"];
    let said = keepers.place.output(&[&store[..], &["--election", "e"]].concat());
    assert_eq!(said.status.code(), Some(64), "{}", primacy_testbed::stderr(&said));
    for name in ["a", "b", "c"] {
        assert_eq!(keepers.voters(name), keepers.listed(&["a", "b", "c"]));
    }
    keepers.write("c", "after").await;
}

/// Its unit starts it as it always did, and its list of peers names no other node.
#[tokio::test]
async fn a_first_node_that_has_lost_its_disk_does_not_lead_beside_those_that_it_has_added() {
    let mut keepers = Keepers::reserve("voters-first", &["a"]);
    keepers.launch("a", &[]);
    keepers.leader();
    for name in ["b", "c"] {
        let added = keepers.add(name);
        keepers.launch(name, &[]);
        keepers.verb("a", &["member", "add", &added]).is(0, &["votes"]);
    }
    keepers.all_vote(&["a", "b", "c"]);
    // Without metadata it would count itself only, with the disk that it had, too.
    keepers.kill("a");
    let (dir, alone) = (keepers.dir("a"), format!("a={}", keepers.address("a")));
    let plain = ["--election", "e", "--node", "a", "--peers", &alone, "--state-dir", dir.to_str().unwrap()];
    let said = keepers.place.output(&[&["node"], &plain[..]].concat());
    let why = primacy_testbed::stderr(&said);
    assert!(said.status.code() == Some(78) && why.contains("and --peers names {a}"), "{why}");

    let wipe = |keepers: &mut Keepers| {
        std::fs::remove_dir_all(keepers.dir("a")).unwrap();
        keepers.restart("a");
    };
    let waits = |keepers: &Keepers| {
        wait_until("that a knows that its disk is lost", || {
            keepers.who("a")["peers"]["recovering"] == serde_json::json!([])
        });
        let who = keepers.who("a");
        assert_eq!(who["role"], "follower", "{who}");
        let why = who["why_no_leader"].to_string();
        assert!(why.contains("a has lost its disk") && why.contains("primacy member readmit a"), "{why}");
    };
    // It hears of it before it campaigns. That is on its disk.
    wipe(&mut keepers);
    waits(&keepers);
    assert_ne!(keepers.leader(), "a");
    for name in ["a", "b", "c"] {
        keepers.kill(name);
    }
    keepers.restart("a");
    waits(&keepers);
    keepers.restart("b");
    keepers.restart("c");
    keepers.leader();
    for name in ["b", "c"] {
        let node = &keepers;
        wait_until("that it is refused", || node.verb(name, &["member", "readmit", "a"]).code == Some(0));
    }
    wait_until("its readmission", || keepers.who("a")["peers"]["recovering"].is_null());
    keepers.all_vote(&["a", "b", "c"]);

    // A limit: alone it cannot know. It leads in terms of its own, above those of the others, which it no
    // longer counts as voters.
    let term = |keepers: &Keepers, name: &str| keepers.who(name)["peers"]["term"].as_u64().unwrap();
    let highest = term(&keepers, "b").max(term(&keepers, "c"));
    for name in ["a", "b", "c"] {
        keepers.kill(name);
    }
    wipe(&mut keepers);
    wait_until("its lead", || keepers.node("a").leads());
    while term(&keepers, "a") <= highest {
        keepers.kill("a");
        keepers.restart("a");
        wait_until("its next lead", || keepers.node("a").leads());
    }
    // The nodes with the newer list end it as soon as one of them is there.
    keepers.restart("b");
    let deposed = keepers.node("a").told.wait_for("the end of its lead", |event| {
        (event["event"] == "deposed" || event["event"] == "released").then(|| event.to_string())
    });
    assert!(deposed.contains("disk"), "{deposed}");
    waits(&keepers);
    keepers.restart("c");
    assert_ne!(keepers.leader(), "a");
}
