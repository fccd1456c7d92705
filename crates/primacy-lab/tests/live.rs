//! `primacy-lab bench map`, as small as can be: it works, no request fails, and its output has every figure that
//! docs/performance.md takes from it. Speed is not judged here, since tests share their machine.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::path::PathBuf;

use primacy_conformance::live::program;
use serde_json::Value;

use primacy_testbed::{Place, started, stderr, stdout};

/// The result of one measurement; `None`, with a line that says so, where there is no etcd to compare with.
#[track_caller]
fn measured(only: &str, more: &[&str]) -> Option<Value> {
    started("etcd", async { program("etcd").and_then(|_| program("etcdctl")) })?;
    let place = Place::new("bench-map");
    // On a disk; the temporary directory may be in memory.
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{only}-{}", std::process::id()));
    let args = ["bench", "map", "--only", only, "--rounds", "1", "--json", "--state-dir"];
    let output = place.lab(&[&args[..], &[dir.to_str().unwrap()], more].concat()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    place.wait_until_empty();
    std::fs::remove_dir(&dir).unwrap();
    let told: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert!(told["file_system"].is_string() && told["rounds"] == 1, "{told}");
    assert!(told["cores"].is_u64() && told["busy_before"].is_number(), "{told}");
    Some(told)
}

/// Checks that these are numbers above zero.
#[track_caller]
fn positive(of: &Value, figures: &[&str]) {
    for figure in figures {
        assert!(of[figure].as_f64().is_some_and(|it| it > 0.0), "{figure}: {of}");
    }
}

/// Checks that these are spreads: percentiles of the measurements.
#[track_caller]
fn spreads(of: &Value, figures: &[&str]) {
    for figure in figures {
        let at = |part: &str| of[figure][part].as_f64().unwrap_or_else(|| panic!("{figure}: {of}"));
        let sorted = ["min", "median", "p90", "p99", "max"].map(at);
        assert!(sorted[0] > 0.0 && sorted.is_sorted(), "{figure}: {of}");
    }
}

/// Checks that a figure has a value for each of three nodes.
#[track_caller]
fn of_three_nodes(of: &Value, figure: &str) {
    let nodes = of[figure].as_array().unwrap_or_else(|| panic!("{figure}: {of}"));
    assert!(nodes.len() == 3 && nodes.iter().all(|node| node.as_f64().unwrap() > 0.0), "{figure}: {of}");
}

/// The rows of a measurement.
fn rows<'a>(told: &'a Value, what: &str) -> &'a [Value] {
    told[what].as_array().unwrap_or_else(|| panic!("{what}: {told}"))
}

/// The cells of a row for each system: Primacy, and then etcd.
#[track_caller]
fn both(row: &Value) -> [&Value; 2] {
    let [first, second] = rows(row, "systems") else { panic!("{row}") };
    assert!(first["system"] == "primacy" && second["system"] == "etcd", "{row}");
    [first, second]
}

#[test]
fn puts_are_measured_and_none_fails() {
    let Some(told) = measured("puts", &["--size", "1"]) else { return };
    let mut cases = Vec::new();
    for row in rows(&told, "puts") {
        cases.push((row["kind"].as_str().unwrap(), row["asked"].as_str().unwrap(), &row["clients"]));
        positive(row, &["rate_ratio", "p99_ratio", "requests_each_round"]);
        for speed in both(row) {
            positive(speed, &["rate_median", "rate_min", "rate_max"]);
            spreads(speed, &["ms"]);
            assert_eq!(speed["errors"], 0, "{row}");
        }
    }
    for (kind, asked) in [("put", "all"), ("put", "leader"), ("guarded", "all"), ("guarded", "leader")] {
        let clients: Vec<&Value> =
            cases.iter().filter(|case| (case.0, case.1) == (kind, asked)).map(|case| case.2).collect();
        assert_eq!(clients, [1, 16, 256], "{kind} {asked}: {told}");
    }
    positive(&told["memory"], &["writes", "keys", "ratio"]);
    for memory in both(&told["memory"]) {
        of_three_nodes(memory, "pss_mib");
    }
}

#[test]
fn watchers_are_told_of_every_write() {
    let Some(told) = measured("delay", &["--size", "5"]) else { return };
    let watchers: Vec<&Value> = rows(&told, "delay").iter().map(|row| &row["watchers"]).collect();
    assert_eq!(watchers, [1, 100], "{told}");
    for row in rows(&told, "delay") {
        positive(row, &["ratio"]);
        for delay in both(row) {
            spreads(delay, &["told_ms", "last_told_ms", "answered_ms"]);
        }
    }
}

#[test]
fn sessions_that_are_kept_alive_are_not_lost() {
    let Some(told) = measured("sessions", &["--size", "1"]) else { return };
    let lives: Vec<&Value> = rows(&told, "sessions").iter().map(|row| &row["time_to_live_s"]).collect();
    assert_eq!(lives, [60, 10], "{told}");
    for row in rows(&told, "sessions") {
        assert_eq!(row["sessions"], 100, "{told}");
        positive(row, &["kept_alive_per_second", "cpu_ratio", "memory_ratio"]);
        for idle in both(row) {
            of_three_nodes(idle, "cpu_percent");
            of_three_nodes(idle, "pss_mib");
            assert!(idle["lost"] == 0 && idle["leader"].is_u64(), "{told}");
        }
    }
}

#[test]
fn a_leader_that_is_killed_under_load_is_replaced() {
    let Some(told) = measured("gap", &["--size", "20"]) else { return };
    let systems: Vec<&Value> = rows(&told, "gap").iter().map(|row| &row["system"]).collect();
    assert_eq!(systems, ["primacy", "etcd", "etcd 10/100 ms"], "{told}");
    for row in rows(&told, "gap") {
        assert!(row["trials"] == 1 && row["clients"] == 16 && row["errors"].is_object(), "{told}");
        assert!(row["rate_median"].is_number(), "{told}");
        spreads(row, &["gap_ms", "client_gap_ms"]);
        // With its own timers etcd elects no leader in so short a time, and then nothing is later.
        if row["system"] == "primacy" || !row["later_gap_ms"].is_null() {
            spreads(row, &["later_gap_ms"]);
        }
        // Requests that were under way at the node that was killed fail.
        assert!(row["errors_median"].is_number() && row["errors_max"].is_number(), "{told}");
    }
}

#[test]
fn a_node_that_was_away_and_one_that_has_lost_its_disk_have_all_again() {
    let Some(told) = measured("recovery", &["--history", "1"]) else { return };
    let systems: Vec<&Value> = rows(&told, "recovery").iter().map(|row| &row["system"]).collect();
    assert_eq!(systems, ["primacy", "etcd"], "{told}");
    for row in rows(&told, "recovery") {
        assert!(row["history_mib"] == 1 && row["errors"] == 0, "{told}");
        spreads(row, &["behind_ms", "empty_ms"]);
        of_three_nodes(row, "pss_mib");
    }
}
