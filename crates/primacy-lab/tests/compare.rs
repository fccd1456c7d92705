//! The output of `primacy-lab compare`, and that two pages of the guide show its present output. `UPDATE_GOLDENFILES=1` writes both anew.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use primacy_testbed::{Place, stderr, stdout, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn primacy(place: &Place, args: &[&str]) -> (Option<i32>, Output) {
    let output = place.lab(args).output().unwrap();
    (output.status.code(), output)
}

fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

fn updates() -> bool {
    std::env::var_os("UPDATE_GOLDENFILES").is_some_and(|value| value == "1")
}

#[test]
fn the_guide_shows_what_is_measured_now() {
    const BEGIN: &str =
        "<!-- made by `UPDATE_GOLDENFILES=1 cargo test -p primacy-lab --test compare` -->\n\n";
    const END: &str = "\n<!-- end -->";
    let place = Place::new("compare-guide");
    let drawn = place.path("compare.svg").to_str().unwrap().to_owned();
    let (code, output) = primacy(&place, &["compare", "--markdown", "--svg", &drawn]);
    assert_eq!(code, Some(0), "{}", stderr(&output));
    let (picture, page) =
        (repository("docs/guide/pictures/compare.svg"), repository("docs/guide/choosing.md"));
    let (drawn, text) = (fs::read_to_string(drawn).unwrap(), fs::read_to_string(&page).unwrap());
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (kept, after) = rest.split_once(END).unwrap();
    if updates() {
        fs::write(&picture, drawn).unwrap();
        fs::write(&page, format!("{before}{BEGIN}{}{END}{after}", stdout(&output))).unwrap();
        return;
    }
    assert_eq!(
        kept,
        stdout(&output),
        "docs/guide/choosing.md shows another table; write it with UPDATE_GOLDENFILES=1"
    );
    let kept = fs::read_to_string(&picture).unwrap_or_default();
    assert!(kept == drawn, "{} is not what is measured; UPDATE_GOLDENFILES=1 draws it", picture.display());
}

#[test]
fn the_same_seeds_give_the_same_on_any_number_of_threads() {
    let place = Place::new("compare-jobs");
    let args = ["compare", "--nodes", "4", "--loss", "2%", "--delay", "5ms", "--seeds", "2", "--from", "9"];
    let told = |more: &[&str]| {
        let (code, output) = primacy(&place, &[&args[..], more].concat());
        assert_eq!(code, Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(told(&["--jobs", "1"]), told(&["--jobs", "3"]));
    let drawn = told(&["--svg", "-"]);
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));

    let some = ["--election", "bully,ring-bidirectional", "--scenario", "split,crash", "--json"];
    let told: Value = serde_json::from_str(&told(&some)).unwrap();
    let rows = told["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| [&row["scenario"], &row["election"]]).collect();
    let wanted = |scenario| ["bully", "ring_bidirectional"].map(|election| [scenario, election]);
    assert_eq!(names, [wanted("crash"), wanted("split")].concat(), "in the order of the table");
    assert_eq!((told["nodes"].as_u64(), told["lost_ppm"].as_u64()), (Some(4), Some(20_000)));
    let two = |row: &Value| row["leaders_max"].as_u64() >= Some(2) && row["runs"] == 2;
    assert!(rows[2..].iter().all(two), "{told}");
}

#[test]
fn what_cannot_be_compared_says_why() {
    let place = Place::new("compare-wrong");
    for (args, exit, why) in [
        (&["--nodes", "2"][..], 64, "write a number of nodes from 3 to 50"),
        (&["--nodes", "51"], 64, "write a number of nodes from 3 to 50"),
        (&["--delay", "51ms"], 64, "write a delay up to 50ms"),
        (&["--delay", "5"], 64, "is no duration"),
        (&["--loss", "51%"], 64, "write a share from 0% to 50%"),
        (&["--loss=-1%"], 64, "write a share from 0% to 50%"),
        (&["--loss", "some"], 64, "is no rate"),
        (&["--seeds", "0"], 64, "write a number of seeds from 1 to 1000"),
        (&["--jobs", "0"], 64, "write a number of threads, at least 1"),
        (&["--election", "coin"], 64, "write some of quorum, lease, session"),
        (&["--election", "quorum,"], 64, "write some of quorum"),
        (&["--scenario", "flood"], 64, "write some of calm, crash"),
        (&["--markdown", "--json"], 64, "cannot be used with"),
        (&["--markdown", "--election", "quorum"], 64, "cannot be used with"),
        (&["--svg", "-", "--json"], 64, "draw into a file"),
        (
            &["--svg", "/proc/none/x.svg", "--seeds", "1", "--scenario", "calm"],
            1,
            "/proc/none/x.svg cannot be written",
        ),
    ] {
        let (code, output) = primacy(&place, &[&["compare"], args].concat());
        assert_eq!(code, Some(exit), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn a_signal_ends_it_and_half_of_it_is_not_told() {
    let place = Place::new("compare-signal");
    let mut command = place.lab(&["compare", "--nodes", "50", "--seeds", "1000"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    wait_until("it listens to SIGINT", || {
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
    });
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(130), ""));
}
