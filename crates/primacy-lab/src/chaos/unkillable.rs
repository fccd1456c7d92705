//! Jobs that their nodes cannot kill: the nodes run as an unprivileged user, and each job becomes root by a set-uid
//! program. Only the job itself or the run ends it; so whatever request a node gets, it must keep the lead until
//! then.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::Signal;

use crate::chaos::processes::{marked, signal};
use primacy_testbed::run_error::RunError;

/// The user and the group of the nodes: those of `nobody`.
const USER: u32 = 65_534;
/// The program that is made set-uid.
const SETPRIV: &str = "/usr/bin/setpriv";
/// The longest time that a job runs: several leases, so that a leader that stops renewing too early is detected.
pub(crate) const LIVES_MS: u64 = 7_000;

/// Creates the set-uid program, executable only by the nodes' group, and gives the nodes ownership of the directories that
/// they write to.
///
/// # Errors
/// [`RunError`], for instance if `dir` is mounted without set-uid programs.
pub(crate) fn prepare(dir: &Path) -> Result<(), RunError> {
    let mounted = statvfs(dir).map_err(|error| RunError::file("look at", dir)(error.into()))?;
    if mounted.f_flag.contains(StatVfsMountFlags::NOSUID) {
        let why = format!("{} is mounted nosuid; name another directory with --dir", dir.display());
        return Err(RunError::NotWhole(why));
    }
    let program = program(dir);
    fs::copy(SETPRIV, &program).map_err(RunError::file("copy to", &program))?;
    chown(&program, Some(0), Some(USER)).map_err(RunError::file("give away", &program))?;
    fs::set_permissions(&program, Permissions::from_mode(0o4750))
        .map_err(RunError::file("make set-uid", &program))?;
    for folder in ["state", "store"].map(|folder| dir.join(folder)) {
        chown(&folder, Some(USER), Some(USER)).map_err(RunError::file("give away", &folder))?;
    }
    Ok(())
}

/// The command prefix of a node that drops its privileges.
pub(crate) fn as_user() -> Vec<String> {
    let user = USER.to_string();
    ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(str::to_owned).to_vec()
}

/// The command prefix of a job that makes it run as root.
pub(crate) fn as_root(dir: &Path) -> Vec<String> {
    let words = [program(dir).to_string_lossy().into_owned(), "--reuid".to_owned(), "0".to_owned()];
    words.to_vec()
}

/// Kills the jobs of the nodes whose marks begin with this text, which only root can.
pub(crate) fn end_jobs(mark: &str) {
    let own = fs::read_link("/proc/self/exe").ok();
    for pid in marked(mark) {
        let program = fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok();
        if program.is_some() && program == own {
            // It may have ended by itself.
            let _ = signal(pid, Signal::KILL);
        }
    }
}

/// Removes the set-uid program, because the directory of a run may be kept.
pub(crate) fn clean_up(dir: &Path) {
    // The program may never have been created.
    let _ = fs::remove_file(program(dir));
}

fn program(dir: &Path) -> PathBuf {
    dir.join("become-root")
}
