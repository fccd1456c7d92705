//! The process table, as far as the bench needs it.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// The interval between two checks of processes that are being ended.
const LOOK: Duration = Duration::from_millis(5);

/// All descendants of a process.
pub(crate) fn descendants_of(process: Pid) -> Vec<Pid> {
    let mut found = children_of(process);
    let mut looked_at = 0;
    while let Some(&next) = found.get(looked_at) {
        looked_at += 1;
        // The table changes while it is read.
        let new: Vec<Pid> = children_of(next).into_iter().filter(|child| !found.contains(child)).collect();
        found.extend(new);
    }
    found
}

/// Kills all descendants of this process by SIGKILL, and the orphans that it has inherited as a subreaper. Returns when none is left.
pub(crate) fn end_descendants() {
    loop {
        for descendant in descendants_of(getpid()) {
            // It may have ended.
            let _ = kill_process(descendant, Signal::KILL);
        }
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => std::thread::sleep(LOOK),
        }
    }
}

fn children_of(process: Pid) -> Vec<Pid> {
    let threads =
        fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = |list: String| -> Vec<Pid> {
        list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    };
    lists.flat_map(pids).collect()
}
