//! The output of `primacy-lab sim` and `primacy-lab replay`, and their exit codes.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::process::{Output, Stdio};

use primacy_sim::elections::Election;
use primacy_testbed::{Place, stderr, stdout, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../primacy-sim/scripts");

fn primacy(place: &Place, args: &[&str]) -> (Option<i32>, Output) {
    let output = place.lab(args).output().unwrap();
    (output.status.code(), output)
}

fn objects(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_sums_are_the_same_on_any_number_of_threads() {
    let place = Place::new("sim-sums");
    let sums = |jobs: &str| {
        let args = ["sim", "--seeds", "8", "--from", "7", "--jobs", jobs, "--json"];
        let (code, output) = primacy(&place, &args);
        assert_eq!(code, Some(0), "{}", stderr(&output));
        let [sums] = &objects(&output)[..] else { panic!("{}", stdout(&output)) };
        assert!(
            sums["times_real_time"].as_f64() > Some(0.0) && sums["handled_per_second"].as_f64() > Some(0.0)
        );
        sums["elections"].clone()
    };
    let alone = sums("1");
    assert_eq!(alone, sums("3"));
    let elections: Vec<&str> = Election::ALL.iter().map(|election| election.name()).collect();
    assert_eq!(alone.as_array().unwrap().len(), elections.len());
    for (index, election) in elections.into_iter().enumerate() {
        let sum = &alone[index];
        assert_eq!((sum["election"].as_str(), sum["seeds"].as_u64()), (Some(election), Some(8)));
        assert_eq!(sum["bad"], 0);
        assert!(sum["met"]["elected"].as_u64() == sum["leaderships"].as_u64(), "{sum}");
        for count in ["leaderships", "handled"] {
            assert!(sum[count].as_u64() > Some(0), "{sum}");
        }
        if election == "confirmed_whim" {
            continue; // It never settles.
        }
        let slowest = &sum["slowest"];
        assert!(slowest["settled_seconds"].as_f64() <= slowest["bound_seconds"].as_f64(), "{sum}");
        assert!(slowest["share"].as_f64() > Some(0.0) && slowest["share"].as_f64() <= Some(1.0), "{sum}");
    }
}

#[test]
fn hours_are_those_of_all_worlds_together() {
    let place = Place::new("sim-hours");
    let (code, output) = primacy(&place, &["sim", "--hours", "0.1", "--json"]);
    assert_eq!(code, Some(0), "{}", stderr(&output));
    let sums = &objects(&output)[0];
    let elections = sums["elections"].as_array().unwrap();
    let seconds: f64 = elections.iter().map(|sum| sum["simulated_seconds"].as_f64().unwrap()).sum();
    assert!(seconds >= 360.0, "{sums}");
}

#[test]
fn a_failure_names_its_replay_which_breaks_the_same_and_is_made_shorter() {
    let place = Place::new("sim-failure");
    let args = ["sim", "--election", "lease", "--beyond", "frozen-machine", "--until-failure", "--json"];
    let (code, output) = primacy(&place, &args);
    assert_eq!(code, Some(70), "{}", stderr(&output));
    let told = objects(&output);
    let [failure, sums] = &told[..] else { panic!("{told:?}") };
    let failure = &failure["failure"];
    let invariant = failure["invariant"].as_str().unwrap();
    let command: Vec<&str> = failure["replay"].as_str().unwrap().split(' ').skip(1).collect();

    let (code, output) = primacy(&place, &command);
    assert_eq!(code, Some(70));
    assert!(stdout(&output).contains(&format!("!! {invariant} is broken")), "{}", stdout(&output));
    assert!(stderr(&output).contains(invariant), "{}", stderr(&output));

    // The shorter script goes as it says, for it states what it breaks.
    fs::create_dir(place.path("lease")).unwrap();
    let kept = place.path("lease/kept.txt");
    fs::write(&kept, sums["script"].as_str().unwrap()).unwrap();
    let kept = kept.to_str().unwrap().to_owned();
    let (code, output) = primacy(&place, &["replay", &kept]);
    assert_eq!(code, Some(0), "{}", stderr(&output));
    let unexpected = fs::read_to_string(&kept).unwrap().replace(&format!("expect {invariant}\n"), "");
    fs::write(&kept, unexpected).unwrap();
    assert_eq!(primacy(&place, &["replay", &kept]).0, Some(70));

    let shorter = [&command[..], &["--shorter", "--story"]].concat();
    let (code, output) = primacy(&place, &shorter);
    assert_eq!((code, stdout(&output).as_str()), (Some(70), sums["script"].as_str().unwrap()));
}

#[test]
fn messages_are_counted_told_and_drawn_beside_their_formulas() {
    let place = Place::new("sim-counts");
    for (election, initiators, cases, last) in [
        ("bully", "all", 1, 100 * 100 - 100 - 1),
        ("bully", "one", 2, 99),
        ("ring", "all", 3, 2 * 100 - 1),
        ("ring", "one", 1, 100),
        ("ring_bidirectional", "one", 1, 4 * 128 + 200 - 4),
    ] {
        let drawn = place.path("drawn.svg").to_str().unwrap().to_owned();
        let args = ["sim", "--election", election, "--nodes", "100", "--initiators", initiators];
        let (code, output) = primacy(&place, &[&args[..], &["--plot", &drawn, "--json"]].concat());
        assert_eq!(code, Some(0), "{}", stderr(&output));
        let told = &objects(&output)[0];
        assert_eq!(told["cases"].as_array().unwrap().len(), cases, "{told}");
        let case = &told["cases"][cases - 1];
        let points = case["points"].as_array().unwrap();
        let nodes: Vec<u64> = points.iter().map(|point| point["nodes"].as_u64().unwrap()).collect();
        assert_eq!(nodes, [2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(points[6]["messages"].as_u64(), Some(last), "{case}");
        assert_eq!((points[6]["exact"].as_u64(), case["met"].as_bool()), (Some(last), Some(true)));
        let picture = fs::read_to_string(&drawn).unwrap();
        assert_eq!(picture.matches("<polyline ").count(), cases);
        assert_eq!(
            picture.matches(r#"class="counted counted-"#).count(),
            cases * 7 + 1,
            "and one in the key"
        );

        let (code, output) = primacy(&place, &args);
        assert_eq!(code, Some(0));
        assert!(stdout(&output).contains(&format!("      100 {last:>12} {last:>12}")), "{}", stdout(&output));
    }
    let args = ["sim", "--election", "ring", "--nodes", "10000", "--initiators", "all", "--plot", "-"];
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/pictures/messages_of_ring.svg");
    assert!(stdout(&primacy(&place, &args).1) == fs::read_to_string(kept).unwrap(), "as in the guide");
    let args = ["sim", "--election", "ring-bidirectional", "--nodes", "100", "--plot", "-"];
    let (code, output) = primacy(&place, &args);
    assert_eq!(code, Some(0));
    assert!(stdout(&output).starts_with("<svg ") && stdout(&output).ends_with("</svg>\n"));
}

#[test]
fn a_signal_ends_it_with_the_sums_so_far() {
    let place = Place::new("sim-signal");
    let mut command = place.lab(&["sim", "--until-failure", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    wait_until("it listens to SIGINT", || {
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
    });
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(objects(&output)[0]["elections"][0]["seeds"].is_u64(), "{}", stdout(&output));
}

#[test]
fn a_script_is_told_drawn_and_given_to_programs() {
    let place = Place::new("replay-script");
    let script = format!("{SCRIPTS}/quorum/paused_leader_finds_itself_deposed.txt");
    let (code, output) = primacy(&place, &["replay", &script]);
    assert_eq!(code, Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), fs::read_to_string(&script).unwrap());

    let (code, output) = primacy(&place, &["replay", &script, "--json", "--from", "5s", "--level", "event"]);
    assert_eq!(code, Some(0));
    let told = objects(&output);
    assert!(
        told.iter().all(|entry| entry["at_ns"].as_u64() >= Some(5_000_000_000) && entry["level"] == "event")
    );
    assert!(told.iter().any(|entry| entry["turn"] == "deposed" && entry["who"] == "a"), "{told:?}");
    let refused =
        |entry: &Value| entry["what"] == "write" && entry["accepted"] == false && entry["token"] == 1;
    assert!(told.iter().any(refused), "{told:?}");

    let drawn = place.path("drawn.svg").to_str().unwrap().to_owned();
    assert_eq!(primacy(&place, &["replay", &script, "--svg", &drawn]).0, Some(0));
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/guide/pictures/paused_leader_finds_itself_deposed.svg"
    );
    assert!(fs::read_to_string(drawn).unwrap() == fs::read_to_string(kept).unwrap(), "as in the guide");
    let (_, output) = primacy(&place, &["replay", &script, "--svg", "-"]);
    assert!(stdout(&output).starts_with("<svg ") && stdout(&output).ends_with("</svg>\n"));
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let place = Place::new("replay-wrong");
    fs::create_dir(place.path("quorum")).unwrap();
    let script = place.path("quorum/otherwise.txt");
    fs::write(&script, "nodes a\nstart a\nadvance 5s\nexpect no leader\n").unwrap();
    let script = script.to_str().unwrap().to_owned();
    for (args, exit, why) in [
        (&["replay", &script][..], 1, "line 4: expect no leader: a leads"),
        (&["replay", "absent.txt"], 64, "absent.txt cannot be read"),
        (&["replay", &script, "--election", "coin"], 64, "there is no election coin"),
        (
            &["replay", "--election", "blazingmq_naive", "--seed", "1"],
            64,
            "worlds are drawn for quorum, ranked",
        ),
        (&["replay", "--election", "quorum", "--seed", "1", "--shorter"], 64, "is good"),
        (&["replay", "--seed", "1"], 64, "--election"),
        (&["replay"], 64, "<FILE>"),
        (&["replay", &script, "--svg", "/proc/none/x.svg"], 1, "/proc/none/x.svg cannot be written"),
        (&["sim", "--beyond", "hope"], 64, "write one of drift, jump"),
        (&["sim", "--hours", "0"], 64, "it must be above zero"),
        (&["sim", "--seeds", "0"], 64, "--seeds"),
        (&["sim", "--seed", "1", "--hours", "1"], 64, "cannot be used with"),
        (&["sim", "--nodes", "8"], 64, "write one of them after --election"),
        (&["sim", "--nodes", "8", "--election", "lease"], 64, "write one of them after --election"),
        (&["sim", "--election", "ring", "--nodes", "1"], 64, "write a number of nodes from 2 to 100000"),
        (&["sim", "--election", "ring", "--nodes", "100001"], 64, "write a number of nodes from 2 to 100000"),
        (&["sim", "--election", "ring", "--nodes", "8", "--seeds", "3"], 64, "cannot be used with"),
        (&["sim", "--election", "ring", "--nodes", "8", "--from", "3"], 64, "cannot be used with"),
        (&["sim", "--election", "ring", "--nodes", "8", "--beyond", "drift"], 64, "cannot be used with"),
        (&["sim", "--election", "ring", "--nodes", "8", "--jobs", "1"], 64, "cannot be used with"),
        (&["sim", "--election", "ring", "--plot", "x.svg"], 64, "--nodes"),
        (&["sim", "--election", "ring", "--initiators", "one"], 64, "--nodes"),
        (&["sim", "--election", "ring", "--nodes", "8", "--plot", "-", "--json"], 64, "draw into a file"),
        (
            &["sim", "--election", "ring", "--nodes", "8", "--plot", "/proc/none/x.svg"],
            1,
            "cannot be written",
        ),
    ] {
        let (code, output) = primacy(&place, args);
        assert_eq!(code, Some(exit), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn what_cannot_be_printed_is_no_success() {
    let place = Place::new("lab-full");
    let script = format!("{SCRIPTS}/quorum/two_nodes_need_each_other.txt");
    for args in [&["sim", "--election", "lease", "--seeds", "3"][..], &["replay", &script]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.lab(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    }
}
