//! Broker processes: starting, killing, pausing and querying them.

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use primacy_conformance::live::{Ground, Server, free_port};
use rustix::process::Signal;
use serde_json::Value;

use crate::client::{Client, Discovery, Known, request};
use crate::store::Store;
use crate::{PATIENCE, RETRY, TIMEOUT};

/// The interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(5);

/// Some brokers on one document, and the discoveries of its clients.
pub(crate) struct Brokers {
    pub(crate) store: Store,
    pub(crate) discoveries: Mutex<Vec<Discovery>>,
    addresses: Vec<String>,
    processes: Mutex<Vec<Option<Server>>>,
    job_timeout: Duration,
    ground: Ground,
}

impl Brokers {
    pub(crate) fn start(count: usize, store: Store, job_timeout: Duration, ground: Ground) -> Self {
        let addresses = std::iter::repeat_with(|| format!("127.0.0.1:{}", free_port())).take(count).collect();
        let processes = Mutex::new(std::iter::repeat_with(|| None).take(count).collect());
        let brokers =
            Self { store, discoveries: Mutex::default(), addresses, processes, job_timeout, ground };
        (0..count).for_each(|index| brokers.begin(index));
        brokers
    }

    /// Starts a broker; also restarts it at its old address.
    pub(crate) fn begin(&self, index: usize) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_queue-broker"));
        command.args(["--store", &self.store.url(), "--listen", &self.addresses[index]]);
        let timers = [("--timeout", TIMEOUT), ("--retry", RETRY), ("--job-timeout", self.job_timeout)];
        for (option, time) in timers {
            command.args([option, &time.as_millis().to_string()]);
        }
        command.envs(self.store.variables());
        let server = Server::start(&format!("broker-{index}"), command, &self.ground);
        self.processes.lock().unwrap()[index] = Some(server);
    }

    pub(crate) fn address(&self, index: usize) -> &str {
        &self.addresses[index]
    }

    pub(crate) fn client(&self, known: Known) -> Client<'_> {
        Client::new(&self.store, known, &self.discoveries)
    }

    /// The token under which it leads, as it reports.
    pub(crate) fn token(&self, index: usize) -> Option<u64> {
        let (_, answer) = request(&self.addresses[index], "GET", "/healthz", None).ok()?;
        answer["token"].as_u64().filter(|_| answer["leading"] == true)
    }

    /// Returns the leader's `/v1/stats`.
    pub(crate) fn stats(&self) -> Option<Value> {
        let (leader, _) = self.wait_for_leader();
        let (status, stats) = request(&self.addresses[leader], "GET", "/v1/stats", None).ok()?;
        (status == 200).then_some(stats)
    }

    /// Waits for a leader; returns its index and token.
    pub(crate) fn wait_for_leader(&self) -> (usize, u64) {
        let leader = || (0..self.addresses.len()).find_map(|index| Some((index, self.token(index)?)));
        self.wait_for("a leader", leader)
    }

    pub(crate) fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "waited for {what} in vain:\n{}", self.printed());
            std::thread::sleep(POLL);
        }
    }

    pub(crate) fn printed(&self) -> String {
        let processes = self.processes.lock().unwrap();
        processes.iter().flatten().map(Server::printed).collect::<Vec<_>>().join("\n--\n")
    }

    pub(crate) fn signal(&self, index: usize, signal: Signal) {
        self.processes.lock().unwrap()[index].as_ref().unwrap().signal(signal);
    }

    /// Kills the broker; returns the time before.
    pub(crate) fn kill(&self, index: usize) -> Instant {
        let struck_at = Instant::now();
        self.processes.lock().unwrap()[index].as_mut().unwrap().kill();
        struck_at
    }

    /// Stops the process while it has no file locked; returns the time.
    ///
    /// A broker that is stopped in the middle of a write to a directory keeps its lock, because the kernel does not release
    /// it while the process exists (docs/stores/file.md). Then no other broker can take over. That is a known limit, and not
    /// measured here.
    pub(crate) fn pause(&self, index: usize) -> Instant {
        let id = self.processes.lock().unwrap()[index].as_ref().unwrap().id();
        self.wait_for("a moment without a lock", || {
            let struck_at = Instant::now();
            self.signal(index, Signal::STOP);
            self.wait_for("its threads to stand still", || is_stopped(id).then_some(()));
            if holds_a_lock(id) {
                self.signal(index, Signal::CONT);
                return None;
            }
            Some(struck_at)
        })
    }
}

/// Returns whether all its threads are stopped: a thread that is flushing stops only afterwards.
fn is_stopped(id: u32) -> bool {
    let mut tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
    tasks.all(|task| {
        // "ID (NAME) STATE …"; the file is missing if the thread has ended.
        let text = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        text.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// Returns whether the process has locked a file with `flock`.
fn holds_a_lock(id: u32) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    // "NUMBER: FLOCK ADVISORY WRITE ID DEVICE:INODE START END"; for waiting processes an arrow precedes the kind.
    locks.lines().any(|lock| {
        let words: Vec<&str> = lock.split_whitespace().collect();
        words.get(1) == Some(&"FLOCK") && words.get(4) == Some(&id.to_string().as_str())
    })
}
