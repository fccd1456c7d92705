//! Real servers for tests: started on free ports of the loopback interface, in separate directories, and ended by
//! their process ids.
//!
//! There is one file for each server. `cargo xtask live` installs the required programs.

pub mod azurite;
pub mod consul;
pub mod etcd;
pub mod http_faults;
pub mod kubernetes;
pub mod moto;
pub mod mysql;
pub mod nats;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod zookeeper;

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// The environment variable with the directory into which `cargo xtask live` installs what is not from the system's
/// packages: `python/bin` and `npm/node_modules/.bin` below it.
pub const DIRECTORY_VARIABLE: &str = "PRIMACY_LIVE_DIR";

/// The directories of servers that are not on a user's `PATH`.
const ELSEWHERE: &[&str] = &["/usr/sbin", "/usr/local/sbin", "/usr/lib/postgresql/*/bin"];

/// The maximum time until a server's first answer; far longer than on an idle machine.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// The interval between two attempts.
const START_POLL: Duration = Duration::from_millis(20);

/// A temporary directory, which is removed at the end.
#[derive(Debug)]
pub struct Ground {
    path: PathBuf,
}

impl Ground {
    /// Creates a directory whose name contains `name`.
    ///
    /// # Panics
    /// If the temporary directory cannot be written.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let name = format!("primacy-live-{name}-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // The remains of an earlier process with the same id.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary directory can be written");
        Self { path }
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The ports of test servers, below the kernel's ephemeral range, from which another program could take a port just
/// before its server does.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// Returns a free port, which this process returns only once. Another process may listen there before it is used;
/// then the start of the server fails.
///
/// # Panics
/// If the loopback interface has none.
#[must_use]
pub fn free_port() -> u16 {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    // Concurrent processes begin at different ports.
    let first = std::process::id().wrapping_mul(97);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut tried = PORTS.map(|_| {
        let number = first.wrapping_add(COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        let offset = number % u32::from(PORTS.end - PORTS.start);
        PORTS.start + u16::try_from(offset).expect("below the number of ports")
    });
    tried.find(is_free).expect("a port of the loopback interface")
}

/// Returns the command that runs only the test of this name in this test program; its module is given by
/// `module_path!`.
///
/// # Panics
/// If the module is the program's root.
#[must_use]
pub fn only_test(module: &str, name: &str) -> Command {
    let (_, module) = module.split_once("::").expect("the program is in front of the module");
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture"]);
    command
}

/// Returns the path of the program `name`.
///
/// # Errors
/// The missing program, for the report: then its store is not run.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let installed = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from).into_iter();
    let installed = installed.flat_map(|live| [live.join("python/bin"), live.join("npm/node_modules/.bin")]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let elsewhere = ELSEWHERE.iter().flat_map(|place| expand(place));
    let mut places = installed.chain(path).chain(elsewhere);
    let found = places.find_map(|place| Some(place.join(name)).filter(|program| program.is_file()));
    found.ok_or_else(|| format!("there is no program `{name}`; `cargo xtask live` installs it"))
}

/// Runs a few lines of Python to their end, with a client library for the server.
///
/// # Panics
/// If they fail; with their output.
fn run_python(python: &Path, lines: &str, arguments: &[&str]) {
    let ran = Command::new(python).args(["-c", lines]).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.unwrap_or_else(|error| panic!("{} cannot be run: {error}", python.display()));
    assert!(ran.status.success(), "{lines}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Returns the directories that a path with one `*` matches, the highest version first.
fn expand(place: &str) -> Vec<PathBuf> {
    let Some((before, after)) = place.split_once("/*/") else { return vec![place.into()] };
    let entries = std::fs::read_dir(before).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path().join(after)).collect();
    found.sort();
    found.reverse();
    found
}

/// The process of a server, which is killed on drop.
#[derive(Debug)]
pub struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts the server; its output goes to a file in `ground`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, mut command: Command, ground: &Ground) -> Self {
        let log = ground.at(&format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).expect("a log can be written");
        let errors = file.try_clone().expect("a second handle");
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        Self { name: name.to_owned(), child, log }
    }

    /// Waits until `answers`, a request to the server, returns true.
    ///
    /// # Panics
    /// If the server has ended, or does not answer in time; with the end of its output.
    pub async fn until(&mut self, mut answers: impl AsyncFnMut() -> bool) {
        let began = Instant::now();
        while !answers().await {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{} has ended ({status}):\n{}", self.name, self.printed());
            }
            assert!(began.elapsed() < START_PATIENCE, "{} does not answer:\n{}", self.name, self.printed());
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// Returns the last lines of its output.
    #[must_use]
    pub fn printed(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal. Returns only after a SIGSTOP has taken effect: until then a thread on another processor may
    /// answer one more request.
    ///
    /// # Panics
    /// If it is gone.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process has an id");
        kill_process(id, signal)
            .unwrap_or_else(|error| panic!("{} cannot be sent a signal: {error}", self.name));
        if signal == Signal::STOP {
            let has_stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(id), has_stopped).expect("a child can be waited for");
        }
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it in order (SIGTERM), and waits until it has ended.
    ///
    /// # Panics
    /// If it does not.
    pub async fn stop(&mut self) {
        self.signal(Signal::TERM);
        let began = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            assert!(began.elapsed() < START_PATIENCE, "{} does not end:\n{}", self.name, self.printed());
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// Checks that it is running.
    ///
    /// # Errors
    /// The signal or the exit code with which it ended.
    pub fn lives(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(match status.signal() {
                Some(signal) => format!("{} was ended by signal {signal}", self.name),
                None => format!("{} has ended: {status}", self.name),
            }),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_is_waited_for_and_gone_at_the_end() {
        let ground = Ground::new("self");
        let mut command = Command::new(program("sh").unwrap());
        command.args(["-c", "echo ready; exec sleep 1000"]);
        let mut server = Server::start("sh", command, &ground);
        let log = ground.at("sh.log");
        server.until(async || std::fs::read(&log).is_ok_and(|text| text == b"ready\n")).await;
        assert_eq!(server.lives(), Ok(()));
        let process = PathBuf::from(format!("/proc/{}", server.id()));
        assert!(process.exists());
        server.signal(Signal::STOP);
        drop(server);
        assert!(!process.exists());
        let path = ground.path().to_owned();
        drop(ground);
        assert!(!path.exists());
    }

    #[tokio::test]
    #[should_panic(expected = "no such option")]
    async fn a_server_that_ends_says_why() {
        let ground = Ground::new("ends");
        let mut command = Command::new(program("sh").unwrap());
        command.args(["-c", "echo no such option; exit 3"]);
        Server::start("sh", command, &ground).until(async || false).await;
    }

    #[test]
    fn a_missing_program_is_told_with_what_to_do() {
        assert!(program("a-program-that-nobody-has").unwrap_err().contains("cargo xtask live"));
        let ports = [free_port(), free_port()];
        assert!(ports[0] != ports[1] && ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
    }
}
