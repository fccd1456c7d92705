//! The process table, as far as the run needs it: the processes that carry the mark of a node, and signals to them.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use primacy_testbed::trouble::Trouble;

/// The variable that marks all that a run starts: the run's process, the arm, and the node.
pub(crate) const MARK: &str = "PRIMACY_CHAOS";

/// The living processes whose mark begins with this.
pub(crate) fn marked(mark: &str) -> Vec<Pid> {
    all().filter(|&pid| mark_of(pid).is_some_and(|found| found.starts_with(mark)) && is_alive(pid)).collect()
}

/// The marks of all living processes that have one, with the processes.
pub(crate) fn all_marked() -> Vec<(Pid, String)> {
    all().filter_map(|pid| Some((pid, mark_of(pid)?))).filter(|(pid, _)| is_alive(*pid)).collect()
}

fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

fn mark_of(pid: Pid) -> Option<String> {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// True if it is there, and more than an entry that has not been reaped yet.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// True if it is alive, and carries exactly this mark. A reused number is not taken for the earlier process.
pub(crate) fn is_marked(pid: Pid, mark: &str) -> bool {
    mark_of(pid).is_some_and(|found| found == mark) && is_alive(pid)
}

/// Sends a signal to a process that may be gone; returns whether it was there.
///
/// # Errors
/// [`Trouble::Program`] if the system refuses it.
pub(crate) fn signal(pid: Pid, signal: Signal) -> Result<bool, Trouble> {
    match kill_process(pid, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(Trouble::Program {
            line: format!("kill -{} {}", signal.as_raw(), pid.as_raw_nonzero()),
            said: error.to_string(),
        }),
    }
}

/// Kills all whose mark begins with this, until none is left; returns how many could not be killed in some seconds, since they sleep in the
/// kernel.
pub(crate) fn end_marked(mark: &str) -> usize {
    let until = Instant::now() + END_MAX;
    loop {
        let left = marked(mark);
        if left.is_empty() || Instant::now() > until {
            return left.len();
        }
        for pid in left {
            // A process that cannot be signalled is among those that are left at the end.
            let _ = signal(pid, Signal::KILL);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The interval between two looks at things that can only be polled.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(5);
const END_MAX: Duration = Duration::from_secs(10);
