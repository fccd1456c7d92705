//! The demo shows what its help announces, and leaves no process or file behind.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::process::Stdio;

use primacy_testbed::{Place, stderr, stdout, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn the_summary_counts_failovers_and_no_stale_write_gets_in() {
    let place = Place::new("demo");
    let output = place.command(&["demo", "--json"]).env("TMPDIR", place.path(".")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let summary: Value = serde_json::from_str(&stdout(&output)).unwrap();
    println!("{summary}");
    assert!(summary["failovers"].as_u64() >= Some(4), "{summary}");
    let number = |name: &str| summary["failover_ms"][name].as_f64().unwrap();
    assert!(
        0.0 < number("min") && number("min") <= number("median") && number("median") <= number("max"),
        "{summary}"
    );
    let stale = |name: &str| summary["stale_writes"][name].as_u64().unwrap();
    assert!(stale("tried") >= 1 && stale("refused") == stale("tried") && stale("accepted") == 0, "{summary}");
    let at_once = |half: &str| summary["split"][half]["leaders_at_once"].as_u64();
    assert_eq!((at_once("advisory"), at_once("confirmed")), (Some(2), Some(1)), "{summary}");
    assert!(summary["split"]["advisory"]["turns"].as_u64() >= Some(10), "{summary}");
    assert_eq!(summary["split"]["confirmed"]["stale_lines"], 0, "{summary}");
    assert_left_nothing(&place);
}

#[test]
fn a_chapter_is_shown_alone() {
    let place = Place::new("demo-chapter");
    let mut command = place.command(&["demo", "--chapter", "split"]);
    let output = command.env("TMPDIR", place.path(".")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = stdout(&output);
    println!("{told}");
    for part in ["TWO leaders", "is REFUSED", "advisory: 2 leaders at once", "confirmed: 1 leader at once"] {
        assert!(told.contains(part), "{part} is not in: {told}");
    }
    assert!(!told.contains("stale writes"), "the other chapter: {told}");
    assert_left_nothing(&place);
    let output = place.output(&["demo", "--chapter", "merge"]);
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
}

#[test]
fn an_interrupted_demo_ends_what_it_has_started() {
    let place = Place::new("demo-interrupted");
    let mut command = place.command(&["demo"]);
    let mut child =
        command.env("TMPDIR", place.path(".")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("its processes run", || place.alive().len() >= 7);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_left_nothing(&place);
}

fn assert_left_nothing(place: &Place) {
    assert!(place.alive().is_empty(), "{:?}", place.alive());
    let left: Vec<_> =
        std::fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
