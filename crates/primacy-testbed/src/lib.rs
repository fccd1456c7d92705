//! The testbed of the command: its processes, their output, and the ledger that their jobs write to.
//!
//! The command is tested from outside: by its exit codes and messages, the process table, the locks of its jobs, and
//! the contents of the ledger.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
#![allow(missing_docs, reason = "tests alone use it, and its names say the rest")]

pub mod authority;
pub mod doctor;
pub mod etcd_api;
pub mod keepers;
pub mod ledger;
pub mod network;
pub mod run_error;
pub mod segment;
pub mod small_disk;
pub mod table;
pub mod upstream;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

use primacy_conformance::REQUIRE_LIVE_VARIABLE;
use primacy_conformance::live::free_port;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The longest time to wait for an expected event on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The variable that marks all processes of a test, so that the test can end them.
pub const TEST_MARK: &str = "PRIMACY_TEST_MARK";

/// The command `primacy`.
///
/// # Panics
/// If it is not built.
pub fn primacy() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| built("primacy", "primacy-cli"));
    &PROGRAM
}

/// The command `primacy-lab`.
///
/// # Panics
/// If it is not built.
pub fn primacy_lab() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| built("primacy-lab", "primacy-lab"));
    &PROGRAM
}

/// The path of a program of this workspace, beside the directory of its test binaries.
fn built(name: &str, package: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name(name);
    assert!(program.exists(), "there is no {}: cargo build --package {package}", program.display());
    program.to_str().unwrap().to_owned()
}

/// Waits for a server, and returns it with its runtime; `None`, with a printed reason, if the server is unavailable.
///
/// # Panics
/// If it is unavailable and required.
pub fn started<T>(
    name: &str,
    start: impl Future<Output = Result<T, String>>,
) -> Option<(tokio::runtime::Runtime, T)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    match runtime.block_on(start) {
        Ok(server) => Some((runtime, server)),
        Err(why) => {
            eprintln!("{name}: NOT RUN: {why}");
            let is_required = std::env::var_os(REQUIRE_LIVE_VARIABLE).is_some();
            assert!(!is_required, "{name} is required to be there: {why}");
            None
        }
    }
}

/// The beginning of a command line that resets ignored signals: these tests may run under `nohup` or in the
/// background of a shell, and `primacy` inherits the ignored signals.
fn as_from_a_terminal() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT");
    command
}

/// The response of a server: the status line with the headers, and the body.
pub fn get(address: &str, method: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// A temporary directory, with all processes under its mark; both are removed on drop.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    mark: String,
    variables: Vec<(String, String)>,
}

impl Place {
    pub fn new(test: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("primacy-{test}-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(&mark);
        fs::create_dir(&dir).unwrap();
        Self { dir, mark, variables: Vec::new() }
    }

    /// Sets an environment variable for all processes started from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A command of `primacy` with these arguments, with the mark and a state directory of its own.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        self.command_of(primacy(), args)
    }

    /// The same of `primacy-lab`.
    pub fn lab<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        self.command_of(primacy_lab(), args)
    }

    fn command_of<S: AsRef<std::ffi::OsStr>>(&self, program: &str, args: &[S]) -> Command {
        let mut command = as_from_a_terminal();
        command.arg(program).args(args).stdin(Stdio::null());
        self.prepare(&mut command);
        command
    }

    /// Copies a program to this directory, by a separate process: a file descriptor opened for writing here could be
    /// inherited by another test's child, and a program that is open for writing cannot be executed ("Text file
    /// busy").
    pub fn copy_program(&self, from: &str, name: &str) -> PathBuf {
        let program = self.path(name);
        assert!(Command::new("cp").arg(from).arg(&program).status().unwrap().success(), "copy {from}");
        program
    }

    pub fn prepare(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env(TEST_MARK, &self.mark).env("XDG_STATE_HOME", self.path("state")).current_dir(&self.dir);
        command.env_remove("PRIMACY_LOG").env_remove("PRIMACY_JOB").env_remove("PRIMACY_GUARDIAN");
    }

    /// Runs `primacy` with these arguments to its end.
    pub fn output<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The live processes that were started here.
    pub fn alive(&self) -> Vec<table::Process> {
        table::with_variable(TEST_MARK, &self.mark)
    }

    /// Waits until no process that was started here is alive.
    pub fn wait_until_empty(&self) {
        wait_until("the end of everything that was started", || self.alive().is_empty());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Repeat until none is left: a killed process may just have started another.
        loop {
            let alive = self.alive();
            if alive.is_empty() {
                break;
            }
            for process in alive {
                process.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The output of a process, line by line, as it arrives.
#[derive(Clone, Debug, Default)]
pub struct ProcessOutput {
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl ProcessOutput {
    pub fn listen(&self, from: impl Read + Send + 'static) {
        let output = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                output.lines.0.lock().unwrap().push(line);
                output.lines.1.notify_all();
            }
        });
    }

    pub fn all(&self) -> Vec<String> {
        self.lines.0.lock().unwrap().clone()
    }

    /// All events, and the JSON output of the jobs.
    pub fn events(&self) -> Vec<Value> {
        self.all().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The last event of this kind.
    pub fn last(&self, event: &str) -> Option<Value> {
        self.events().into_iter().rev().find(|told| told["event"] == event)
    }

    /// Waits for a line of JSON that is `wanted`.
    pub fn wait_for<T>(&self, what: &str, mut wanted: impl FnMut(&Value) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        let mut seen = 0;
        let mut lines = self.lines.0.lock().unwrap();
        loop {
            for line in &lines[seen..] {
                if let Some(found) = serde_json::from_str(line).ok().and_then(|value| wanted(&value)) {
                    return found;
                }
            }
            seen = lines.len();
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not happen; it told:\n{}", lines.join("\n"));
            lines = self.lines.1.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// Waits for the next event of this kind after the first `count` of them.
    pub fn wait_for_another(&self, event: &str, mut count: usize) -> Value {
        self.wait_for(event, |told| {
            let found = (told["event"] == event).then(|| told.clone())?;
            if count == 0 {
                return Some(found);
            }
            count -= 1;
            None
        })
    }

    /// The number of events of this kind in the output.
    pub fn count(&self, event: &str) -> usize {
        self.events().iter().filter(|told| told["event"] == event).count()
    }

    pub fn wait_for_event(&self, event: &str) -> Value {
        self.wait_for(event, |told| (told["event"] == event).then(|| told.clone()))
    }
}

/// A running `primacy run --json`.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub told: ProcessOutput,
    /// The output of its earlier incarnations.
    pub past: Vec<String>,
    args: Vec<String>,
    /// The command prefix that starts it elsewhere and becomes it; empty by default.
    within: Vec<String>,
    program: &'static str,
    child: Child,
}

impl Node {
    /// Starts `primacy` with these arguments.
    pub fn start(place: &Place, name: &str, args: &[String]) -> Self {
        Self::start_within(place, &[], name, args)
    }

    /// The same with a command prefix that becomes `primacy`, for example in other namespaces, so that the process
    /// number stays the supervisor's.
    pub fn start_within(place: &Place, within: &[String], name: &str, args: &[String]) -> Self {
        Self::start_program(place, primacy(), false, within, name, args)
    }

    /// Starts `primacy-lab` with these arguments.
    pub fn start_lab(place: &Place, name: &str, args: &[String]) -> Self {
        Self::start_program(place, primacy_lab(), true, &[], name, args)
    }

    fn start_program(
        place: &Place,
        program: &'static str,
        takes_orders: bool,
        within: &[String],
        name: &str,
        args: &[String],
    ) -> Self {
        let mut command = as_from_a_terminal();
        command.args(within).arg(program).args(args);
        command.stdin(if takes_orders { Stdio::piped() } else { Stdio::null() });
        place.prepare(&mut command);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let told = ProcessOutput::default();
        told.listen(child.stdout.take().unwrap());
        told.listen(child.stderr.take().unwrap());
        let (args, within) = (args.to_vec(), within.to_vec());
        Self { name: name.to_owned(), told, past: Vec::new(), args, within, program, child }
    }

    /// Restarts it after its end. Its earlier output is kept separately.
    pub fn restart(&mut self, place: &Place) {
        let mut past = std::mem::take(&mut self.past);
        past.extend(self.told.all());
        let takes_orders = self.child.stdin.is_some();
        *self = Self::start_program(place, self.program, takes_orders, &self.within, &self.name, &self.args);
        self.past = past;
    }

    /// Writes a line to the standard input of `primacy-lab`.
    pub fn order(&self, line: &str) {
        writeln!(self.child.stdin.as_ref().unwrap(), "{line}").unwrap();
    }

    /// The same, with more options.
    pub fn restart_with(&mut self, place: &Place, more: &[String]) {
        let verb = self.args.iter().position(|arg| arg == "run").expect("it runs a command") + 1;
        self.args.splice(verb..verb, more.iter().cloned());
        self.restart(place);
    }

    pub fn supervisor(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its newest guardian.
    pub fn guardian(&self) -> Option<Pid> {
        pid_of(&self.told.last("guardian")?)
    }

    /// Its newest job, unless that has ended.
    pub fn job(&self) -> Option<Pid> {
        let events = self.told.events();
        let last = events
            .iter()
            .rev()
            .find(|told| matches!(told["event"].as_str(), Some("started" | "exited" | "released")))?;
        if last["event"] == "started" { pid_of(last) } else { None }
    }

    /// True if it leads, as it reports.
    pub fn leads(&self) -> bool {
        let events = self.told.events();
        let last =
            events.iter().rev().find(|told| matches!(told["event"].as_str(), Some("elected" | "released")));
        last.is_some_and(|last| last["event"] == "elected")
    }

    /// The output of all its incarnations.
    pub fn history(&self) -> String {
        format!("{}\n{}", self.past.join("\n"), self.told.all().join("\n"))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.supervisor(), signal).unwrap();
    }

    /// The exit status, once the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(
                Instant::now() < until,
                "{} does not end; it told:\n{}",
                self.name,
                self.told.all().join("\n")
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn pid_of(event: &Value) -> Option<Pid> {
    Pid::from_raw(i32::try_from(event["pid"].as_i64()?).ok()?)
}

/// Waits, with a bound, until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A list of peers on free ports.
pub fn peers(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name}=127.0.0.1:{}", free_port())).collect::<Vec<_>>().join(",")
}

pub fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

/// Splits a command line without spaces in its arguments into words.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A small generator for reproducible choices (SplitMix64).
#[derive(Debug)]
pub struct Choices(u64);

impl Choices {
    /// Seeds the generator by `PRIMACY_SEED`, or the clock; the seed is printed, so that a run can be repeated as far
    /// as the scheduling of processes allows.
    pub fn new(test: &str) -> Self {
        let seed = std::env::var("PRIMACY_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(primacy::clock::wall_millis);
        println!("{test}: PRIMACY_SEED={seed}");
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
