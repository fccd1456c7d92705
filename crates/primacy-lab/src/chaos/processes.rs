//! The process table, as far as the run needs it: the processes with the mark of a node, and signals to them.

use std::time::{Duration, Instant};

use primacy_testbed::run_error::RunError;
use primacy_testbed::table;
pub(crate) use primacy_testbed::table::is_alive;
use rustix::process::{Pid, Signal, kill_process};

/// The variable that marks all processes of a run: with the run's process, the arm, and the node.
pub(crate) const MARK: &str = "PRIMACY_CHAOS";

/// The live processes whose mark begins with this text.
pub(crate) fn marked(mark: &str) -> Vec<Pid> {
    let marked = all_marked().into_iter().filter(|(_, found)| found.starts_with(mark));
    marked.map(|(pid, _)| pid).collect()
}

/// All live marked processes, with their marks.
pub(crate) fn all_marked() -> Vec<(Pid, String)> {
    let pids = table::all().filter_map(Pid::from_raw);
    pids.filter_map(|pid| Some((pid, mark_of(pid)?))).filter(|(pid, _)| is_alive(*pid)).collect()
}

fn mark_of(pid: Pid) -> Option<String> {
    table::variable(pid.as_raw_nonzero().get(), MARK)
}

/// True if the process is alive, and has exactly this mark. A reused number is not mistaken for the earlier process.
pub(crate) fn is_marked(pid: Pid, mark: &str) -> bool {
    mark_of(pid).is_some_and(|found| found == mark) && is_alive(pid)
}

/// Sends a signal to a process that may be gone. Returns whether it existed.
///
/// # Errors
/// [`RunError::Program`] if the system refuses the signal.
pub(crate) fn signal(pid: Pid, signal: Signal) -> Result<bool, RunError> {
    match kill_process(pid, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(RunError::Program {
            line: format!("kill -{} {}", signal.as_raw(), pid.as_raw_nonzero()),
            said: error.to_string(),
        }),
    }
}

/// Kills all processes whose mark begins with this text, until none is left. Returns the number that could not be
/// killed within some seconds, because they sleep in the kernel.
pub(crate) fn end_marked(mark: &str) -> usize {
    let until = Instant::now() + END_MAX;
    loop {
        let left = marked(mark);
        if left.is_empty() || Instant::now() > until {
            return left.len();
        }
        for pid in left {
            // A process that cannot be signalled is counted among the remaining ones at the end.
            let _ = signal(pid, Signal::KILL);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The interval of polling.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(5);
const END_MAX: Duration = Duration::from_secs(10);
