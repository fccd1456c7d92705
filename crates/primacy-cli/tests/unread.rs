//! The output of a node: a reader that stops reading delays no action of the node, and with `--json` every line is
//! JSON.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use primacy_testbed::{Node, Place, primacy, stderr, strings, wait_until};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// A job that records in files when it runs and when it has been asked to end. Its own output is not tested here.
const JOB: &str = "exec >/dev/null 2>&1; trap 'echo drained >drained; exit 0' TERM; echo $PRIMACY_TOKEN >started; while :; do sleep 0.05; done";

/// A guardian that may not lock its memory has a warning to report before it starts anything.
fn with_a_warning() -> Vec<String> {
    let mut within = Vec::new();
    if rustix::process::geteuid().is_root() {
        let drop = ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"];
        within.extend(strings(&drop));
    }
    within.extend(strings(&["sh", "-c", "ulimit -l 64; exec \"$@\"", "sh"]));
    within
}

/// A pipe whose reader can stop.
struct Pipe {
    path: PathBuf,
    /// It stays open, so that no writer gets the error that the reader is gone.
    _held: File,
    reads: Arc<AtomicBool>,
}

impl Pipe {
    fn new(place: &Place) -> Self {
        let path = place.path("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let held = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let reads = Arc::new(AtomicBool::new(true));
        let (mut reader, goes_on) = (BufReader::new(held.try_clone().unwrap()), Arc::clone(&reads));
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok() && goes_on.load(Ordering::SeqCst) {
                line.clear();
            }
        });
        Self { path, _held: held, reads }
    }

    fn writer(&self) -> File {
        OpenOptions::new().write(true).open(&self.path).unwrap()
    }

    /// The reader stops, and nothing more can be written.
    fn stop(&self) {
        self.reads.store(false, Ordering::SeqCst);
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let mut filling = OpenOptions::new().write(true).custom_flags(nonblocking).open(&self.path).unwrap();
        // It may still take the line that it was waiting for.
        filling.write_all(b"\n").unwrap_or_default();
        let until = Instant::now() + Duration::from_millis(200);
        let mut length = 4_096;
        while Instant::now() < until {
            match filling.write(&vec![b'.'; length]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    length = 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Starts a node that writes all its events here.
    fn start(&self, place: &Place, args: &[String]) -> Child {
        let mut command = Command::new("env");
        command.args(with_a_warning()).arg(primacy()).args(args);
        place.prepare(&mut command);
        command.env("PRIMACY_LOG", "trace").stdout(self.writer()).stderr(self.writer()).spawn().unwrap()
    }
}

fn exit_code(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < until, "the node does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn run(options: &[&str], script: &str) -> Vec<String> {
    let mut args = strings(&["run", "--election", "e", "--json"]);
    args.extend(strings(options));
    args.extend(strings(&["--", "sh", "-c", script]));
    args
}

#[test]
fn a_reader_that_stops_in_any_phase_keeps_no_job_from_starting_or_ending_and_no_node_from_its_end() {
    for phase in ["start", "elected", "drain"] {
        let place = Place::new(&format!("unread-{phase}"));
        let pipe = Pipe::new(&place);
        if phase == "start" {
            pipe.stop();
        }
        let job = if phase == "drain" {
            JOB.replace("; exit 0", "; until test -e full; do sleep 0.01; done; exit 0")
        } else {
            JOB.to_owned()
        };
        let mut node = pipe.start(&place, &run(&["--lease", "1m"], &job));
        wait_until("the job's start", || place.path("started").exists());
        if phase == "elected" {
            pipe.stop();
        }
        kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
        wait_until("the job's end", || place.path("drained").exists());
        if phase == "drain" {
            pipe.stop();
            fs::write(place.path("full"), "").unwrap();
        }
        assert_eq!(exit_code(&mut node), Some(143), "{phase}");
        place.wait_until_empty();
    }
}

#[test]
fn a_node_that_fails_ends_though_nobody_reads_why() {
    let place = Place::new("unread-end");
    let leader = Node::start(&place, "leader", &run(&[], "exec sleep 1000"));
    leader.told.wait_for_event("started");
    let pipe = Pipe::new(&place);
    pipe.stop();
    for json in [&["--json"][..], &[]] {
        let of = |rest: &[&str]| strings(&[&["run", "--election", "e"], json, rest].concat());
        let not_elected = of(&["--no-wait", "--", "true"]);
        assert_eq!(exit_code(&mut pipe.start(&place, &not_elected)), Some(75), "{json:?}");
        let no_command = of(&["--", "/nonexistent"]);
        assert_eq!(exit_code(&mut pipe.start(&place, &no_command)), Some(127), "{json:?}");
    }
    let verb = strings(&["status", "--election", "e", "--state-dir", "/nonexistent"]);
    assert_eq!(exit_code(&mut pipe.start(&place, &verb)), Some(69));
}

/// All lines as JSON.
fn parsed(lines: &[String]) -> Vec<Value> {
    let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line:?}"));
    lines.iter().map(parse).collect()
}

#[test]
fn with_json_every_line_is_json_whatever_happens() {
    let place = Place::new("unread-json");
    let log = |command: &mut Command| {
        command.env("PRIMACY_LOG", "nonsense=nonsense=");
    };
    let within = with_a_warning();
    let start = |name: &str| {
        Node::start_within(&place, &within, name, &run(&["--restart", "--lease", "2s", "--node", name], JOB))
    };
    let mut node = start("a");
    node.told.wait_for_event("started");
    let warnings = parsed(&node.told.all());
    let guardian =
        |told: &Value| told["event"] == "warning" && told["message"].to_string().contains("guardian:");
    assert!(warnings.iter().any(guardian), "{warnings:?}");
    kill_process(node.guardian().unwrap(), Signal::KILL).unwrap();
    node.told.wait_for_event("guardian_lost");
    node.told.wait_for_another("started", 1);
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(143));
    node.told.wait_for_event("ended");
    parsed(&node.told.all());

    for (options, code) in [
        (&["--", "/nonexistent"][..], 127),
        (&["--lease", "1s", "--drain", "2s", "--", "true"], 78),
        (&["--store", "sqlite:/nonexistent/directory/e.db", "--", "true"], 69),
        (&["--witness", "--", "true"], 64),
        (&["--on-elected", "false", "--", "true"], 1),
        (&["--", "sh", "-c", "exit 3"], 3),
    ] {
        let mut command = place.command(&[&["run", "--election", "f", "--json"], options].concat());
        log(&mut command);
        let output = command.output().unwrap();
        let lines: Vec<String> = stderr(&output).lines().map(str::to_owned).collect();
        let told = parsed(&lines);
        let last = told.last().unwrap_or_else(|| panic!("{options:?} told nothing"));
        assert_eq!(output.status.code(), Some(code), "{options:?}: {last}");
        assert_eq!((&last["event"], &last["exit_code"]), (&"ended".into(), &code.into()), "{options:?}");
        assert_eq!(last["reason"].is_string(), code != 3, "{options:?}: {last}");
    }
}
