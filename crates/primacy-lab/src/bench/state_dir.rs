//! The directory of the measured nodes' state, which must be on a disk.

use std::fs;
use std::path::{Path, PathBuf};

use primacy::config::default_state_dir;

use super::failed;
use crate::exit::{Exit, Failure};

/// File systems in memory: a flush costs nothing, and a power cut loses everything.
const NO_DISKS: &[&str] = &["tmpfs", "ramfs"];

/// A directory for the state of all nodes of a run, removed at its end.
#[derive(Debug)]
pub(super) struct StateDir {
    dir: PathBuf,
    file_system: String,
}

impl StateDir {
    /// Creates a directory below `parent`, or below the user's state directory.
    ///
    /// # Errors
    /// If it cannot be created, or would not be on a disk.
    pub(super) fn new(parent: Option<&Path>) -> Result<Self, Failure> {
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None => default_state_dir().map_err(|error| Failure::new(Exit::Config, error.to_string()))?,
        };
        let cannot = |what: &str, error: std::io::Error| {
            let message = format!("{what} {}: {error}; name another with --state-dir", parent.display());
            Failure::new(Exit::State, message)
        };
        fs::create_dir_all(&parent).map_err(|error| cannot("cannot make", error))?;
        let parent = fs::canonicalize(&parent).map_err(|error| cannot("cannot use", error))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let file_system = file_system(&mounts, &parent)
            .ok_or_else(|| failed("the system does not tell its file systems"))?;
        if NO_DISKS.contains(&file_system) {
            let message = format!(
                "{} is a {file_system}, in memory: a vote that is flushed there is on no disk; name a directory on a \
                 disk with --state-dir",
                parent.display()
            );
            return Err(Failure::new(Exit::Config, message));
        }
        let dir = parent.join(format!("bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| cannot("cannot make a directory in", error))?;
        Ok(Self { dir, file_system: file_system.to_owned() })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kernel's name of the file system: `ext4`, `xfs`, …
    pub(super) fn file_system(&self) -> &str {
        &self.file_system
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        // The name of a directory that cannot be removed contains this process's number.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The type of the file system that holds `path`, from the text of `/proc/self/mountinfo`.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut found: Option<(usize, &str)> = None;
    for mount in mounts.lines() {
        let Some((before, after)) = mount.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (before.split(' ').nth(4), after.split(' ').next()) else { continue };
        let length = Path::new(point).components().count();
        // Of two mounts at the same point the later one is visible.
        if path.starts_with(point) && found.is_none_or(|(longest, _)| length >= longest) {
            found = Some((length, kind));
        }
    }
    found.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_names_the_file_system() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:5 / /run rw shared:1 - tmpfs none rw\n\
                      31 22 0:6 / /data rw - xfs /dev/vdb rw\n32 31 0:7 / /data/a rw - btrfs /dev/vdc rw\n";
        for (path, kind) in
            [("/srv/x", "ext4"), ("/run/y", "tmpfs"), ("/data/b", "xfs"), ("/data/a/b", "btrfs")]
        {
            assert_eq!(file_system(mounts, Path::new(path)), Some(kind), "{path}");
        }
        assert_eq!(file_system(mounts, Path::new("/running")), Some("ext4"));
        assert_eq!(file_system("", Path::new("/")), None);
    }
}
