//! Jobs that their nodes cannot kill: the nodes run as a user without rights, and each job becomes root by a set-uid program. Only the job
//! itself, or the run, ends it; so whatever request a node gets, it must keep the lead until then.

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
/// The longest time that a job runs: some leases, so that a lead that is not renewed until it ends is seen.
pub(crate) const LIVES_MS: u64 = 7_000;

/// Makes the set-uid program, which the nodes' group alone may execute, and the directories that the nodes write to theirs.
///
/// # Errors
/// [`RunError`]; also where set-uid programs are not heeded below `dir`.
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

/// The words before the command of a node that drop its rights.
pub(crate) fn as_user() -> Vec<String> {
    let user = USER.to_string();
    ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(str::to_owned).to_vec()
}

/// The words before the command of a job that make it run as root.
pub(crate) fn as_root(dir: &Path) -> Vec<String> {
    let words = [program(dir).to_string_lossy().into_owned(), "--reuid".to_owned(), "0".to_owned()];
    words.to_vec()
}

/// Kills the jobs of the nodes whose marks begin with this, as only root can.
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

/// Removes the set-uid program: the directory of a run may be kept.
pub(crate) fn clean_up(dir: &Path) {
    // It may never have been made.
    let _ = fs::remove_file(program(dir));
}

fn program(dir: &Path) -> PathBuf {
    dir.join("become-root")
}
