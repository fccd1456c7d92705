//! Removal of the remains of earlier runs that were killed: processes, namespaces, mounts and directories. Only those
//! whose owning process is gone are removed.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

use crate::chaos::processes::{all_marked, end_marked, is_alive, signal};
use primacy_testbed::network::PREFIX;
use primacy_testbed::run_error::{RunError, call};

/// The file that marks a directory to be kept.
pub(crate) const KEEP: &str = "KEEP";

/// Removes the remains; returns a description of them.
///
/// # Errors
/// [`RunError`] if some of them cannot be removed.
pub(crate) fn sweep(base: &Path) -> Result<Vec<String>, RunError> {
    let mut swept = Vec::new();
    for (pid, mark) in all_marked() {
        if owner_is_gone(mark.split('/').next()) {
            // SIGKILL also ends a stopped process.
            signal(pid, Signal::KILL)?;
            let left = end_marked(&mark);
            let how = if left == 0 { "" } else { ", which does not end" };
            swept.push(format!("process {} ({mark}){how}", pid.as_raw_nonzero()));
        }
    }
    for name in namespaces() {
        if owner_is_gone(name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next())) {
            call("ip", &["netns", "delete", &name])?;
            swept.push(format!("namespace {name}"));
        }
    }
    for dir in directories(base) {
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !owner_is_gone(name.strip_prefix(PREFIX)) {
            continue;
        }
        unmount_below(&dir)?;
        if !dir.join(KEEP).exists() {
            std::fs::remove_dir_all(&dir).map_err(RunError::file("remove", &dir))?;
            swept.push(format!("directory {}", dir.display()));
        }
    }
    Ok(swept)
}

/// True if no process has this number.
fn owner_is_gone(number: Option<&str>) -> bool {
    let pid = number.and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
    pid.is_some_and(|pid| !is_alive(pid))
}

fn namespaces() -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(PREFIX)).collect()
}

fn directories(base: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let ours =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    entries.map(|entry| entry.path()).filter(ours).collect()
}

/// Unmounts everything below a directory.
///
/// # Errors
/// [`RunError`]
pub(crate) fn unmount_below(dir: &Path) -> Result<(), RunError> {
    let path = Path::new("/proc/self/mounts");
    let mounts = std::fs::read_to_string(path).map_err(RunError::file("read", path))?;
    let points = mounts.lines().filter_map(|mount| mount.split(' ').nth(1));
    for point in points.filter(|point| Path::new(point).starts_with(dir)) {
        call("umount", &["-l", point])?;
    }
    Ok(())
}
