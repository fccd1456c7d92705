//! The process table, as any user can read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// A process: its number, and the time of its start, without which a number may be another process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub pid: i32,
    pub started: u64,
}

impl Process {
    /// The process that has this number now, if it is alive.
    pub fn now(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // A zombie has ended, and is only waiting to be reaped.
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        Some(Self { pid, started: fields.get(19)?.parse().ok()? })
    }

    pub fn is_alive(self) -> bool {
        Self::now(self.pid) == Some(self)
    }

    pub fn kill(self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }
}

pub fn is_alive(pid: Pid) -> bool {
    Process::now(pid.as_raw_nonzero().get()).is_some()
}

/// The state of a process as the table shows it.
pub fn state(pid: Pid) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:")).map(|state| state.trim().to_owned())
}

/// Sends a signal to a process that may be gone.
pub fn signal(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// The numbers of all processes.
pub fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The value of a variable in the environment that a process was started with.
pub fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// All living processes with this variable in their environment.
pub fn with_variable(name: &str, value: &str) -> Vec<Process> {
    let marked = all().filter(|&pid| variable(pid, name).as_deref() == Some(value));
    marked.filter_map(Process::now).collect()
}

/// A thread that polls which jobs are alive, and records when jobs of two leaderships are alive at the same time.
#[derive(Debug)]
pub struct Watch {
    done: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
    thread: Option<JoinHandle<Vec<String>>>,
}

/// The interval between two polls.
const INTERVAL: Duration = Duration::from_millis(10);

impl Watch {
    /// Watches the jobs that have `ledger` on their command line.
    pub fn new(ledger: &str) -> Self {
        let (done, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count, ledger) = (Arc::clone(&done), Arc::clone(&looks), ledger.to_owned());
        let thread = std::thread::spawn(move || {
            let mut overlaps = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                overlaps.extend(look(&ledger));
                count.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(INTERVAL);
            }
            overlaps
        });
        Self { done, looks, thread: Some(thread) }
    }

    /// Ends the watch. Returns every time at which the jobs of two leaderships were alive together, and the number of
    /// polls.
    pub fn finish(mut self) -> (Vec<String>, u64) {
        self.done.store(true, Ordering::SeqCst);
        let overlaps = self.thread.take().unwrap().join().unwrap();
        (overlaps, self.looks.load(Ordering::SeqCst))
    }
}

/// A job's process: its token, and its command line.
type Job = (String, String);

fn look(ledger: &str) -> Vec<String> {
    let mut jobs: BTreeMap<Process, Job> = BTreeMap::new();
    for pid in all() {
        let Some(process) = Process::now(pid) else { continue };
        if is_job(pid, ledger)
            && let Some(token) = variable(pid, "PRIMACY_TOKEN")
        {
            jobs.insert(process, (token, line(pid)));
        }
    }
    let of_several = |jobs: &BTreeMap<Process, Job>| {
        let tokens: BTreeSet<&String> = jobs.values().map(|(token, _)| token).collect();
        tokens.len() > 1
    };
    if !of_several(&jobs) {
        return Vec::new();
    }
    // The table is not read atomically: the first job may have ended before the second began. But all of them had
    // begun by now, so the jobs that are still alive are alive together.
    jobs.retain(|process, _| process.is_alive());
    if of_several(&jobs) { vec![format!("alive together: {jobs:?}")] } else { Vec::new() }
}

fn line(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let args: Vec<_> = line.split(|&byte| byte == 0).skip(2).map(String::from_utf8_lossy).collect();
    args.join(" ")
}

/// True if this is a job, rather than a guardian that is about to become one.
fn is_job(pid: i32, ledger: &str) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let args: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
    args.get(1) == Some(&b"demo-job".as_slice()) && args.contains(&ledger.as_bytes())
}
