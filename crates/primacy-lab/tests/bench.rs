//! The bench itself: its output can be read by programs, and it leaves nothing behind. Its measurements are not judged here, since tests
//! share their machine.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use primacy_testbed::{Place, ProcessOutput, stderr, stdout, table, wait_until};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

/// A directory that is on a disk; the temporary one may be in memory.
fn on_disk(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

#[test]
fn a_failover_is_measured_beside_its_floor_and_nothing_is_left() {
    let (place, dir) = (Place::new("bench-failover"), on_disk("bench-failover"));
    let args = ["bench", "failover", "--class", "crash", "--trials", "2", "--host-trials", "0", "--json"];
    let output = place.lab(&[&args[..], &["--state-dir", dir.to_str().unwrap()]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    for key in ["class", "subject", "safety", "from", "file_system"] {
        assert!(told[key].is_string(), "{key}: {told}");
    }
    assert_eq!(told["evidence"], json!({ "witnessed death": 2 }), "{told}");
    assert!(told["discarded"].is_u64() && told["bound_ms"].is_null(), "{told}");
    assert_eq!((told["class"].as_str(), told["trials"].as_u64()), (Some("crash"), Some(2)));
    for spread in ["ms", "job_ms"] {
        let at = |part: &str| told[spread][part].as_f64().unwrap();
        let sorted = [at("min"), at("median"), at("p90"), at("p99"), at("max")];
        assert!(sorted[0] > 0.0 && sorted.is_sorted(), "{told}");
    }
    for part in ["round_trip", "kill_to_pidfd", "fsync", "sum"] {
        assert!(told["floor_ms"][part].as_f64().unwrap() > 0.0, "{part}: {told}");
    }
    assert!(told["ratio"].as_f64().unwrap() > 0.0, "{told}");
    place.wait_until_empty();
    // Its own directory is removed; the parent is not its own.
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir(&dir).unwrap();
}

#[test]
fn idle_nodes_are_measured_and_keep_their_leader() {
    let (place, dir) = (Place::new("bench-idle"), on_disk("bench-idle"));
    let args = ["bench", "idle", "--seconds", "1", "--json", "--state-dir", dir.to_str().unwrap()];
    let output = place.lab(&args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    let nodes = told["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3, "{told}");
    for node in nodes {
        for part in ["process", "guardian"] {
            assert!(node[part]["rss_mib"].as_f64().unwrap() > 0.0, "{told}");
        }
    }
    assert!(told["leader_changes"].is_u64(), "{told}");
    place.wait_until_empty();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn partitions_are_shared_out_and_moved_and_say_nothing_at_rest() {
    let (place, dir) = (Place::new("bench-partitions"), on_disk("bench-partitions"));
    // A loopback of its own, where nothing else is sent.
    let alone = "ip link set lo up && exec \"$@\"";
    let mut command = Command::new("unshare");
    place.prepare(&mut command);
    command.args([
        "--user",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        alone,
        "sh",
        primacy_testbed::primacy_lab(),
    ]);
    command.args(["bench", "partitions", "--nodes", "3", "--partitions", "301", "--rounds", "2"]);
    command.args(["--seconds", "2", "--with-guardian", "--json", "--state-dir"]).arg(&dir);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    let asked = (told["nodes"].as_u64(), told["partitions"].as_u64(), told["guardian"].as_bool());
    assert_eq!(asked, (Some(3), Some(301), Some(true)), "{told}");
    assert!(told["file_system"].is_string() && told["create_ms"].as_f64().unwrap() > 0.0, "{told}");
    for memory in ["rss_before_mib", "rss_after_mib"] {
        let of_nodes = told[memory].as_array().unwrap();
        assert!(of_nodes.len() == 3 && of_nodes.iter().all(|mib| mib.as_f64().unwrap() > 0.0), "{told}");
    }
    let mut shares: Vec<u64> =
        told["shares"].as_array().unwrap().iter().map(|share| share.as_u64().unwrap()).collect();
    shares.sort_unstable();
    assert_eq!(shares, [100, 100, 101], "{told}");

    // The traffic at rest does not depend on the number of partitions.
    let at_rest = |when: &str| told[format!("bytes_per_second_{when}")].as_f64().unwrap();
    let (before, after) = (at_rest("before"), at_rest("after"));
    assert!(before > 0.0 && (before / 2.0..before * 2.0).contains(&after), "{told}");

    let deaths = told["deaths"].as_array().unwrap();
    let led: Vec<_> = deaths.iter().map(|death| death["led"].as_bool()).collect();
    assert_eq!(led, [Some(false), Some(true)], "{told}");
    for death in deaths {
        assert!([100, 101].contains(&death["moved"].as_u64().unwrap()), "{told}");
        let took = |what: &str| death[what].as_f64().unwrap();
        assert!(
            took("rejoined_ms") > 0.0 && (0.0..=took("until_all_ms")).contains(&took("spread_ms")),
            "{told}"
        );
    }
    place.wait_until_empty();
    std::fs::remove_dir(&dir).unwrap();
}

/// Strikes a leader once, and returns the result.
#[track_caller]
fn one_trial(name: &str, args: &[&str]) -> Value {
    let (place, dir) = (Place::new(name), on_disk(name));
    let fixed = ["bench", "failover", "--trials", "1", "--host-trials", "0", "--json", "--state-dir"];
    let mut command = place.lab(&[&fixed[..], &[dir.to_str().unwrap()], args].concat());
    // A setting of the bench itself is not one of the measured nodes.
    let output = command.env("PRIMACY_STORE", "sqlite:/no/such.db").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    let told: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert!(told["trials"] == 1 && told["ms"]["median"].as_f64().unwrap() > 0.0, "{args:?}: {told}");
    place.wait_until_empty();
    std::fs::remove_dir(&dir).unwrap();
    told
}

#[test]
fn a_resignation_is_measured_from_the_signal() {
    for subject in ["run", "node"] {
        let told = one_trial("bench-resign", &["--class", "resign", "--subject", subject]);
        assert_eq!(told["evidence"], json!({ "resignation": 1 }), "{told}");
        assert_eq!(told["from"], "just before SIGTERM was sent to it");
        assert_eq!(told["job_ms"].is_object(), subject == "run", "{told}");
    }
}

#[test]
fn a_transfer_is_measured_from_the_word_of_the_leader() {
    for subject in ["run", "node"] {
        let told = one_trial("bench-transfer", &["--class", "transfer", "--subject", subject]);
        assert_eq!(told["evidence"], json!({ "transfer": 1 }), "{told}");
        assert_eq!(told["from"], "its own word that it was asked");
        assert!(told["ratio"].is_f64(), "{told}");
    }
}

#[test]
fn the_end_of_a_job_is_a_resignation() {
    let told = one_trial("bench-job-exit", &["--class", "job-exit"]);
    assert_eq!(told["evidence"], json!({ "resignation": 1 }), "{told}");
    assert_eq!(told["from"], "just before the job was killed");
}

#[test]
fn over_a_store_each_goal_stands_beside_what_was_measured() {
    let dir = on_disk("bench-store");
    std::fs::create_dir_all(&dir).unwrap();
    let (faulted, mended) = (dir.join("faulted"), dir.join("mended"));
    let url = format!("sqlite:{}", dir.join("elections.db").display());
    let over_it = |name: &str, args: &[&str]| one_trial(name, &[&["--store", &url][..], args].concat());
    let told = over_it("bench-store-resign", &["--class", "resign"]);
    assert_eq!(told["goal"]["text"], "3 round trips + 5 ms", "{told}");
    // Whether it was met is this machine's affair; that it is reported is not.
    let (missed, met) = (told["goal"]["missed"].as_u64().unwrap(), told["goal"]["met"].as_bool().unwrap());
    assert_eq!(met, missed == 0, "{told}");
    assert!(told["goal"]["bound_ms"].as_f64().unwrap() > 5.0, "{told}");
    assert!(told["round_trip_ms"]["median"].as_f64().unwrap() > 0.0, "{told}");

    // The user's own commands strike and mend the store.
    let fault = format!("touch '{}'", faulted.display());
    let mend = format!("mv '{}' '{}'", faulted.display(), mended.display());
    let commands = ["--lease", "2s", "--fault-command", &fault, "--mend-command", &mend];
    let told = over_it("bench-store-struck", &[&["--class", "store"], &commands[..]].concat());
    assert_eq!(told["from"], "just before the command was run that strikes the store");
    assert_eq!(told["goal"]["text"], "the lead does not change", "{told}");
    assert!(told["lease_ms"] == 2000.0 && told["job_ms"].is_null(), "{told}");
    assert!(mended.exists() && !faulted.exists());
    std::fs::remove_file(&mended).unwrap();
    let told = over_it("bench-store-both", &[&["--class", "crash"], &commands[..]].concat());
    assert!(told["goal"].is_null() && told["job_ms"].is_object(), "{told}");
    assert!(mended.exists() && !faulted.exists());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_store_that_cannot_be_struck_ends_the_bench() {
    let (place, dir) = (Place::new("bench-unstruck"), on_disk("bench-unstruck"));
    let url = format!("sqlite:{}", dir.join("elections.db").display());
    std::fs::create_dir_all(&dir).unwrap();
    let args = [
        "bench",
        "failover",
        "--class",
        "store",
        "--fault-command",
        "exit 3",
        "--store",
        &url,
        "--state-dir",
    ];
    let output = place.lab(&[&args[..], &[dir.to_str().unwrap()]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("--fault-command has failed"), "{}", stderr(&output));
    place.wait_until_empty();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn without_a_guardian_a_closed_connection_is_all_that_is_known() {
    let args = ["--class", "crash", "--without-guardian", "--subject", "node", "--safety"];
    let told = one_trial("bench-fenced", &[&args[..], &["fenced"]].concat());
    assert_eq!(told["evidence"], json!({ "closed connection": 1 }), "{told}");
    assert!(told["from"].as_str().unwrap().contains("its guardian having been stopped"), "{told}");
    assert!(told["ratio"].is_f64() && told["floor_ms"]["round_trips"] == 2.5, "{told}");
    // The promise of a lease is not over with the connection.
    let told = one_trial("bench-alone", &[&args[..], &["lease"]].concat());
    assert!(told["ratio"].is_null() && told["bound_ms"].is_f64() && told["over_bound"].is_u64(), "{told}");
    assert!(told["ms"]["min"].as_f64().unwrap() > 100.0, "{told}");
}

#[test]
fn of_a_dead_host_nothing_is_heard() {
    if !rustix::process::geteuid().is_root() {
        let place = Place::new("bench-host");
        let args = ["bench", "failover", "--class", "host", "--state-dir"];
        let output =
            place.lab(&[&args[..], &[on_disk("bench-host").to_str().unwrap()]].concat()).output().unwrap();
        assert!(stderr(&output).contains("network namespace"), "{}", stderr(&output));
        return;
    }
    let told = one_trial("bench-host", &["--class", "host"]);
    assert_eq!(told["evidence"], json!({ "silence": 1 }), "{told}");
    assert_eq!(told["from"], "just before its link was cut");
    assert!(told["ratio"].is_null() && told["bound_ms"].is_f64() && told["over_bound"].is_u64(), "{told}");
}

/// Directories of programs, with a program `etcd` in the first of them that is this shell script.
fn with_etcd(place: &Place, script: &str) -> String {
    std::fs::create_dir(place.path("bin")).unwrap();
    let etcd = place.path("bin/etcd");
    std::fs::write(&etcd, script).unwrap();
    std::fs::set_permissions(&etcd, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", place.text("bin"), std::env::var("PATH").unwrap())
}

/// Prints more than a pipe holds, and a new leader every time.
const TALKATIVE_ETCD: &str = r#"#!/bin/sh
pad=$(head -c 40000 /dev/zero | tr '\0' x)
while [ "$2" = m0 ] || sleep 1000; do
    echo "$pad became leader at term 1"
    sleep 0.2
done
"#;

#[test]
fn what_etcd_tells_is_read_while_it_is_measured() {
    let (place, dir) = (Place::new("bench-talkative"), on_disk("bench-talkative"));
    let args = ["bench", "idle", "--seconds", "4", "--beside-etcd", "10/100", "--json", "--state-dir"];
    let mut command = place.lab(&[&args[..], &[dir.to_str().unwrap()]].concat());
    let output = command.env("PATH", with_etcd(&place, TALKATIVE_ETCD)).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    // Two of its lines fill the pipe, and then it would block: it prints five a second, if the machine is not busy.
    assert!(told["beside"]["leader_changes"].as_u64().unwrap() >= 4, "{told}");
    place.wait_until_empty();
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Three tenths of a second after the end of a leader, another one leads. In the first cluster `m1` takes the lead by
/// itself, while something else is measured.
const FICKLE_ETCD: &str = r#"#!/bin/sh
name=$2
while [ $# -gt 1 ]; do
    [ "$1" = --data-dir ] && all=$(dirname "$2")
    shift
done
lead() {
    echo $$ > "$all/leader"
    echo "$name became leader at term 1"
}
mkdir "$all/first" 2>/dev/null && lead
sleep 0.1
echo "$name elected leader x"
if [ "$name" = m1 ] && [ "${all##*/}" = etcd-100-1000 ] && mkdir "$all/once" 2>/dev/null; then
    sleep 3
    lead
fi
while :; do
    leader=$(cat "$all/leader")
    # One that has ended and was not waited for has no arguments.
    if [ -z "$(tr -d '\000' < "/proc/$leader/cmdline")" ] && mkdir "$all/after-$leader"; then
        sleep 0.3
        lead
    fi
    sleep 0.05
done 2>/dev/null
"#;

#[test]
fn a_leader_that_changed_before_it_is_killed_is_no_failover_of_etcd() {
    let (place, dir) = (Place::new("bench-fickle"), on_disk("bench-fickle"));
    let args = ["bench", "failover", "--class", "crash", "--subject", "node", "--trials", "1", "--json"];
    let more = ["--host-trials", "0", "--beside", "etcd", "--state-dir", dir.to_str().unwrap()];
    let mut command = place.lab(&[&args[..], &more].concat());
    let output = command.env("PATH", with_etcd(&place, FICKLE_ETCD)).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    for rival in told["beside"].as_array().unwrap() {
        assert_eq!(rival["trials"], 1, "{told}");
        assert!(rival["ms"]["min"].as_f64().unwrap() >= 300.0, "{told}");
    }
    place.wait_until_empty();
    std::fs::remove_dir(&dir).unwrap();
}

#[test]
fn a_node_that_dies_while_all_idle_fails_the_measurement() {
    let (place, dir) = (Place::new("bench-dies"), on_disk("bench-dies"));
    let args = ["bench", "idle", "--seconds", "1000", "--state-dir", dir.to_str().unwrap()];
    let mut bench = place.lab(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let told = ProcessOutput::default();
    told.listen(bench.stderr.take().unwrap());
    wait_until("the measurement", || told.all().iter().any(|line| line.contains("measuring for")));
    let arguments = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_b = |process: &table::Process| arguments(process.pid).contains("\0--node\0b\0");
    place.alive().into_iter().find(is_b).unwrap().kill();
    assert_eq!(bench.wait().unwrap().code(), Some(1));
    wait_until("its reason", || told.all().iter().any(|line| line.contains("b has ended")));
    place.wait_until_empty();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn an_interrupted_bench_ends_all_that_it_has_started() {
    let (place, dir) = (Place::new("bench-interrupted"), on_disk("bench-interrupted"));
    let args = ["bench", "failover", "--class", "pause", "--state-dir", dir.to_str().unwrap()];
    let mut bench = place.lab(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The bench, a node and its guardian at least.
    wait_until("the start of the nodes", || place.alive().len() > 3);
    table::signal(Pid::from_child(&bench), Signal::INT);
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    place.wait_until_empty();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir(&dir).unwrap();
}

#[test]
fn a_state_directory_in_memory_is_refused() {
    let place = Place::new("bench-memory");
    let output =
        place.lab(&["bench", "failover", "--class", "crash", "--state-dir", "/dev/shm"]).output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
    assert!(stderr(&output).contains("tmpfs"), "{}", stderr(&output));
}
