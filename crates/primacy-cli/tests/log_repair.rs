//! Logs that are damaged, torn or lost, on real processes, and `primacy log repair`: no record is lost that other nodes
//! have, and a loss is accepted only on an operator's command.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;

use primacy_testbed::keepers::Keepers;
use primacy_testbed::segment::{BLOCK_HEADER, FIRST, blocks};
use primacy_testbed::wait_until;
use serde_json::Value;

const ALL: [&str; 3] = ["a", "b", "c"];

/// The highest token that any of them was elected with.
fn highest_token(keepers: &mut Keepers) -> u64 {
    highest_token_of(keepers, &ALL)
}

fn highest_token_of(keepers: &mut Keepers, names: &[&str]) -> u64 {
    let tokens = names.iter().flat_map(|name| keepers.node(name).told.events());
    tokens.filter(|told| told["event"] == "elected").filter_map(|told| told["token"].as_u64()).max().unwrap()
}

/// Returns a node's message about a write that it has cut off.
fn cut_off(told: &Value) -> Option<String> {
    let message = told["message"].as_str()?;
    message.contains("were overwritten with zeros").then(|| message.to_owned())
}

/// Ends these nodes, deletes their logs, and starts them again.
fn lose_the_logs_of(keepers: &mut Keepers, names: &[&str]) {
    for name in names {
        keepers.stop(name);
        fs::remove_dir_all(keepers.log(name)).unwrap();
    }
    for name in names {
        keepers.restart(name);
    }
    for name in names {
        wait_until("that it says so", || {
            keepers.verb(name, &["status"]).stdout.contains("the log was lost and does not count yet")
        });
    }
}

#[tokio::test]
async fn a_log_that_is_damaged_in_the_middle_is_refused_until_it_is_put_aside_and_is_then_made_again() {
    let mut keepers = Keepers::start("recover", &ALL);
    let mut keys = keepers.write_some("a", "before", 20).await;
    assert_eq!(keepers.keys("b").await, keys);
    let recover = ["log", "repair", "--node", "b"];
    keepers.verb("b", &recover).is(75, &["e@b.", "is in use by the process"]);
    keepers.stop("b");
    keys.extend(keepers.write_some("a", "meanwhile", 5).await);

    let (log, segment) = (keepers.log("b"), keepers.log("b").join(FIRST));
    let written = fs::read(&segment).unwrap();
    keepers.verb("b", &recover).is(75, &["the log of b is not damaged; nothing has changed"]);
    assert!(fs::read(&segment).unwrap() == written);

    let (third, fourth) = (blocks(&written)[2].clone(), blocks(&written)[3].clone());
    let mut damaged = written;
    damaged[third.start + BLOCK_HEADER] ^= 1;
    fs::write(&segment, &damaged).unwrap();
    keepers.restart("b");
    assert_eq!(keepers.node("b").wait().code(), Some(74), "{}", keepers.node("b").history());
    let says = format!(
        "{FIRST} is damaged: at byte {}, no whole block stands there, and one that was written later stands at byte {}. It is left \
         as it is.",
        third.start, fourth.start
    );
    for text in [&says, "`primacy log repair`"] {
        wait_until(&format!("{text:?} in what it says"), || keepers.node("b").history().contains(text));
    }
    assert!(fs::read(&segment).unwrap() == damaged, "it was left as it is");

    let aside = keepers.dir("b").join("e@b.log.damaged-1");
    keepers.verb("b", &recover).is(0, &[aside.to_str().unwrap(), "start b"]);
    assert!(!log.exists() && fs::read(aside.join(FIRST)).unwrap() == damaged, "nothing is deleted");
    keepers.restart("b");
    assert_eq!(keepers.keys("b").await, keys);
    wait_until("its log", || !keepers.has_lost_its_log("b"));
    // It counts again: without it nothing can be written now.
    keepers.kill("a");
    keepers.write("b", "after").await;
    keys.insert("after".to_owned());
    assert_eq!(keepers.keys("c").await, keys);
    // Its next incarnation has all of it by itself, and has nothing to warn of.
    keepers.stop("b");
    keepers.restart("b");
    assert_eq!(keepers.keys("b").await, keys);
    assert!(!keepers.has_lost_its_log("b"));
    assert_eq!(keepers.node("b").told.events().iter().find_map(cut_off), None);
}

#[tokio::test]
async fn a_write_that_had_not_come_to_its_end_is_cut_off_with_a_warning_and_nothing_is_lost() {
    let mut keepers = Keepers::start("torn", &ALL);
    let keys = keepers.write_some("a", "before", 20).await;
    assert_eq!(keepers.keys("c").await, keys);
    keepers.stop("c");
    let segment = keepers.log("c").join(FIRST);
    let written = fs::read(&segment).unwrap();
    // What a power cut leaves: the next block, of which the last sectors were not written.
    let end = blocks(&written).last().unwrap().end;
    let next = primacy_testbed::segment::block(&written, end, &[7; 3_000]);
    let there = (end + next.len()) / 512 * 512 - 1_024 - end;
    let mut torn = written.clone();
    torn[end..end + there].copy_from_slice(&next[..there]);
    fs::write(&segment, &torn).unwrap();
    let said = keepers.verb("c", &["log", "repair", "--node", "c"]);
    said.is(75, &["the log of c is not damaged; nothing has changed"]);
    assert!(fs::read(&segment).unwrap() == torn);

    // No other node is there that it could ask.
    for name in ["a", "b"] {
        keepers.stop(name);
    }
    keepers.restart("c");
    let told = keepers.node("c").told.wait_for("the warning", |told| {
        (told["event"] == "log" && told["level"] == "warn").then(|| cut_off(told)).flatten()
    });
    let cut = format!("{there} bytes after the record (");
    assert!(
        told.starts_with(&cut) && told.contains(FIRST) && told.contains("was not acknowledged"),
        "{told}"
    );
    assert!(!keepers.has_lost_its_log("c"));
    keepers.stop("c");
    assert!(fs::read(&segment).unwrap()[..end] == written[..end], "nothing else was cut off");

    for name in ["b", "c"] {
        keepers.restart(name);
    }
    assert_eq!(keepers.keys("c").await, keys);
    assert_eq!(keepers.node("c").told.events().iter().find_map(cut_off), None, "it is whole again");
    keepers.write("c", "after").await;
}

#[tokio::test]
async fn a_last_record_that_has_rotted_is_refused_and_the_others_give_it_again() {
    let mut keepers = Keepers::start("rotten", &ALL);
    let mut keys = keepers.write_some("a", "before", 20).await;
    assert_eq!(keepers.keys("c").await, keys);
    keepers.stop("c");
    let segment = keepers.log("c").join(FIRST);
    let mut written = fs::read(&segment).unwrap();
    let last = blocks(&written).last().unwrap().clone();
    written[last.start + BLOCK_HEADER] ^= 1;
    fs::write(&segment, &written).unwrap();

    keepers.restart("c");
    assert_eq!(keepers.node("c").wait().code(), Some(74), "{}", keepers.node("c").history());
    let says = format!("at byte {}, a block stands there, all of which was written", last.start);
    wait_until("the reason", || keepers.node("c").history().contains(&says));
    keepers.verb("c", &["log", "repair", "--node", "c"]).is(0, &["e@c.log.damaged-1"]);
    keepers.restart("c");
    assert_eq!(keepers.keys("c").await, keys);
    wait_until("its log", || !keepers.has_lost_its_log("c"));
    // It counts, too: without it nothing can be written now.
    keepers.kill("a");
    keepers.write("b", "after").await;
    keys.insert("after".to_owned());
    assert_eq!(keepers.keys("c").await, keys);
}

#[tokio::test]
async fn a_lost_state_file_is_a_lost_disk_and_a_directory_that_is_gone_ends_its_node() {
    let mut keepers = Keepers::start("state-lost", &ALL);
    let mut keys = keepers.write_some("a", "before", 5).await;
    assert_eq!(keepers.keys("c").await, keys);
    keepers.stop("c");
    fs::remove_file(keepers.dir("c").join("e@c.state")).unwrap();
    keepers.restart("c");
    wait_until("that it says so", || keepers.verb("c", &["status"]).stdout.contains("c has lost its disk"));
    for by in ["a", "b"] {
        wait_until("that it is readmitted", || keepers.verb(by, &["member", "readmit", "c"]).code == Some(0));
    }
    wait_until("its log", || !keepers.has_lost_its_log("c"));
    assert_eq!(keepers.keys("c").await, keys);
    // It counts again: without it nothing can be written now.
    keepers.kill("b");
    keepers.write("a", "after").await;
    keys.insert("after".to_owned());
    assert_eq!(keepers.keys("c").await, keys);

    let (dir, away) = (keepers.dir("c"), keepers.dir("c").with_extension("away"));
    fs::rename(&dir, &away).unwrap();
    assert_eq!(keepers.node("c").wait().code(), Some(74), "{}", keepers.node("c").history());
    wait_until("the reason", || {
        keepers.node("c").history().contains("was removed or replaced while this node was running")
    });
    fs::rename(&away, &dir).unwrap();
    keepers.restart("c");
    assert_eq!(keepers.keys("c").await, keys);
}

#[tokio::test]
async fn in_memory_nothing_is_lost_while_a_majority_runs_and_else_an_operator_says_how_it_goes_on() {
    let mut keepers = Keepers::start_in_memory("in-memory", &ALL);
    let mut keys = keepers.write_some("a", "before", 20).await;
    let metadata = |keepers: &Keepers, name: &str| keepers.who(name)["peers"]["metadata"].clone();
    assert_eq!(metadata(&keepers, "a")["durability"], "memory");
    for name in ALL {
        keepers.stop(name);
        keepers.restart(name);
        wait_until("its log", || metadata(&keepers, name)["recovering"] == false);
        assert_eq!(keepers.keys(name).await, keys, "{name} has been told all of it");
    }
    for name in ["b", "c"] {
        keepers.kill(name);
    }
    for name in ["b", "c"] {
        keepers.restart(name);
    }
    let (code, text) = keepers.put("a", "asked in vain").await.unwrap_err();
    assert!(text.contains("etcdserver: request timed out"), "{code:?}: {text}");
    assert!(keepers.has_lost_its_log("b") && keepers.has_lost_its_log("c") && !keepers.has_lost_its_log("a"));
    keepers.verb("b", &["log", "repair", "--accept-loss"]).is(0, &["b goes on with what it has of its log"]);
    keepers.write("a", "after").await;
    keys.insert("after".to_owned());
    for name in ALL {
        let mut found = keepers.keys(name).await;
        found.remove("asked in vain");
        assert_eq!(found, keys, "{name} has all that was acknowledged, for a had it");
    }
}

#[tokio::test]
async fn a_majority_that_has_lost_its_logs_stands_still_and_goes_on_with_the_log_that_is_left() {
    let mut keepers = Keepers::start("accept-loss", &ALL);
    let mut keys = keepers.write_some("b", "before", 20).await;
    assert_eq!(keepers.keys("a").await, keys);
    let accept = ["log", "repair", "--accept-loss"];
    keepers.verb("a", &accept).is(75, &["a has not lost its log, or has it again; nothing has changed"]);
    lose_the_logs_of(&mut keepers, &["b", "c"]);
    // The write may be done later.
    let (code, text) = keepers.put("a", "asked in vain").await.unwrap_err();
    assert!(text.contains("etcdserver: request timed out"), "{code:?}: {text}");
    assert!(keepers.has_lost_its_log("b") && keepers.has_lost_its_log("c") && !keepers.has_lost_its_log("a"));

    // With `a`, which has its log, one of the others is enough.
    keepers.verb("b", &accept).is(0, &["b goes on with what it has of its log"]);
    keepers.write("a", "after").await;
    keys.insert("after".to_owned());
    for name in ALL {
        let mut found = keepers.keys(name).await;
        found.remove("asked in vain");
        assert_eq!(found, keys, "{name} has all that was acknowledged");
        wait_until("its log", || !keepers.has_lost_its_log(name));
    }
    keepers.verb("c", &accept).is(75, &["c has not lost its log, or has it again"]);
}

#[tokio::test]
async fn where_all_have_lost_their_logs_the_map_begins_anew_and_tokens_go_on() {
    let mut keepers = Keepers::start("accept-all", &ALL);
    let before = keepers.write_some("b", "before", 5).await;
    assert_eq!(keepers.keys("a").await, before);
    let token = highest_token(&mut keepers);
    lose_the_logs_of(&mut keepers, &ALL);
    for name in ["a", "b"] {
        keepers
            .verb(name, &["log", "repair", "--accept-loss"])
            .is(0, &["goes on with what it has of its log"]);
    }
    keepers.write("c", "after").await;
    for name in ALL {
        let found = keepers.keys(name).await;
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["after"], "what only the lost logs had is gone");
    }
    assert!(highest_token(&mut keepers) > token);
}

#[tokio::test]
async fn the_only_voter_keeps_its_damaged_log_and_is_told_that_nobody_else_has_it() {
    let mut keepers = Keepers::start("recover-alone", &["a"]);
    keepers.write_some("a", "before", 5).await;
    let token = highest_token_of(&mut keepers, &["a"]);
    keepers.stop("a");
    let (log, segment) = (keepers.log("a"), keepers.log("a").join(FIRST));
    let mut bytes = fs::read(&segment).unwrap();
    let first = blocks(&bytes)[0].clone();
    bytes[first.start + BLOCK_HEADER] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let alone = "No other node votes, so there is nobody to ask";
    keepers.restart("a");
    assert_eq!(keepers.node("a").wait().code(), Some(74), "{}", keepers.node("a").history());
    wait_until("the reason", || keepers.node("a").history().contains(alone));
    keepers
        .verb("a", &["log", "repair", "--node", "a"])
        .is(74, &[FIRST, alone, "`primacy log repair --accept-loss`"]);
    assert!(fs::read(&segment).unwrap() == bytes, "it was left as it is");

    // As its help says: what only that log had is given up.
    fs::rename(&log, log.with_extension("away")).unwrap();
    keepers.restart("a");
    wait_until("that it says so", || {
        keepers.verb("a", &["status"]).stdout.contains("no other node votes that could have it")
    });
    keepers.verb("a", &["log", "repair", "--accept-loss"]).is(0, &["a goes on with what it has of its log"]);
    keepers.write("a", "after").await;
    assert_eq!(keepers.keys("a").await.into_iter().collect::<Vec<_>>(), ["after"]);
    assert!(highest_token_of(&mut keepers, &["a"]) > token);
}
