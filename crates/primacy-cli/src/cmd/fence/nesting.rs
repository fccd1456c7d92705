//! Detection of a `fence exec` within another one on the same file. It would wait for itself, since the outer one holds
//! the file until its command and all descendants have ended.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Pid, getpid};

use crate::proc_reader::ProcReader;
use crate::process_tree::parent_of;

/// Returns the nearest ancestor that is a `fence exec` and has the file open. It holds the lock, and this process is a
/// part of its command.
pub(super) fn holder_above(file: &Path) -> Option<Pid> {
    let about = fs::metadata(file).ok()?;
    let mut command_lines = ProcReader::new(command_line);
    // A process that does not answer is executing or mapping another program than this one.
    std::iter::successors(parent_of(getpid()), |&pid| parent_of(pid))
        .find(|&pid| command_lines.read(pid).is_ok_and(|line| is_fence_exec(&line)) && has_open(pid, &about))
}

fn command_line(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default()
}

/// Returns whether this is the command line of a `fence exec`. Other programs may hold the file and start commands
/// without waiting for them.
fn is_fence_exec(line: &[u8]) -> bool {
    line.split(|&byte| byte == 0).skip(1).take(2).eq([&b"fence"[..], b"exec"])
}

/// Returns whether the process has the file open; false for another user's process, whose files are not visible.
fn has_open(pid: Pid, about: &fs::Metadata) -> bool {
    let opened = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    opened.into_iter().any(|opened| {
        fs::metadata(opened.path())
            .is_ok_and(|other| (about.dev(), about.ino()) == (other.dev(), other.ino()))
    })
}
