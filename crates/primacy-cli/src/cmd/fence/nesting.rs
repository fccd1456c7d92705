//! A `fence exec` within another one on the same file, which would wait for itself: the outer one holds the file until nothing of its
//! command is left.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Pid, getpid};

use crate::process_tree::parent_of;

/// The nearest `fence exec` above this process that has the file open: it holds its lock, and this is a part of its command.
pub(super) fn holder_above(file: &Path) -> Option<Pid> {
    let about = fs::metadata(file).ok()?;
    std::iter::successors(parent_of(getpid()), |&pid| parent_of(pid))
        .find(|&pid| is_fence_exec(pid) && has_open(pid, &about))
}

/// Another program may hold the file and start commands without waiting for them.
fn is_fence_exec(pid: Pid) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.split(|&byte| byte == 0).skip(1).take(2).eq([&b"fence"[..], b"exec"])
}

/// Of a process of another user, it is not known.
fn has_open(pid: Pid, about: &fs::Metadata) -> bool {
    let opened = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    opened.into_iter().any(|opened| {
        fs::metadata(opened.path())
            .is_ok_and(|other| (about.dev(), about.ino()) == (other.dev(), other.ino()))
    })
}
