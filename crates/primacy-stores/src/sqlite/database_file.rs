//! The database file: the checks before it is opened, the check that it is still the same, and the bell, which notifies other processes.
//!
//! Nothing here opens the database file. When a process closes any descriptor of a file, the kernel drops
//! every lock that the process has on it, those of SQLite's connections included.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::file_system;
use crate::open_error::OpenError;
use crate::ownership::{Sharing, is_in_open_directory};
use crate::passing;

/// The form of the URL, for errors.
pub(super) const FORM: &str = "sqlite:PATH or sqlite:///PATH";

/// The smallest page that SQLite has; a database is empty or has one at least.
const DATABASE_LENGTH_MIN: u64 = 512;

/// A database file that was opened.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    file: FileId,
    /// The write-ahead log and its index, once they have been seen.
    beside: [OnceLock<FileId>; 2],
}

/// The identity of a file: its device and its number there.
type FileId = (u64, u64);

fn file_id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// The path with no symbolic link in it, as SQLite will see it; an error if there is something that must not be
/// opened.
pub(super) fn resolve(path: &Path, create: bool) -> Result<PathBuf, OpenError> {
    // An absolute path is never taken for `:memory:` or for a URI.
    let shown = path.display();
    let absolute = std::path::absolute(path)
        .map_err(|error| OpenError::Unavailable { why: format!("{shown} is no usable path: {error}") })?;
    let unavailable = |error: io::Error| {
        passing::of_local(format!("the database {shown} cannot be reached: {error}"), &error)
    };
    let resolved = match std::fs::symlink_metadata(&absolute) {
        Ok(_) => absolute.canonicalize().map_err(unavailable)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
            let (Some(directory), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(OpenError::Refused { why: format!("{shown} is no file") });
            };
            let directory = directory.canonicalize().map_err(|error| {
                let shown = directory.display();
                let why = format!("the directory {shown} of the database cannot be reached: {error}");
                passing::of_local(why, &error)
            })?;
            file_system::refuse_shared(&directory)?;
            return Ok(directory.join(name));
        }
        Err(error) => return Err(unavailable(error)),
    };
    let metadata = resolved.metadata().map_err(unavailable)?;
    if !metadata.is_file() {
        return Err(OpenError::Refused { why: format!("{shown} is not a file, so it cannot be a database") });
    }
    // SQLite takes a file of one byte for an empty database, and would write over it.
    if (1..DATABASE_LENGTH_MIN).contains(&metadata.len()) {
        return Err(OpenError::Refused {
            why: format!(
                "{shown} is too short for an SQLite database; it was left as it is. Name another file"
            ),
        });
    }
    file_system::refuse_shared(&resolved)?;
    Ok(resolved)
}

/// The suffixes of the files that SQLite keeps beside a database: the first two as long as any process has it open.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Makes an empty database that others cannot open, if there is none and `create` is set; then refuses one that other users could
/// change or keep locked.
pub(super) fn own(path: &Path, sharing: Sharing, create: bool) -> Result<(), OpenError> {
    let refused = |why: String| OpenError::Refused { why };
    if is_in_open_directory(path) {
        // A directory with the sticky bit is refused too: SQLite would apply another user's journal to the database.
        return Err(refused(format!(
            "everybody may make files in the directory of {}, and SQLite would take some of these for its own; name a database in a \
             directory that only you may write to",
            path.display()
        )));
    }
    if create {
        sharing.make(path).map_err(|error| {
            passing::of_local(format!("the database {} cannot be made: {error}", path.display()), &error)
        })?;
    }
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    sharing.check(path, &metadata).map_err(refused)?;
    if metadata.nlink() > 1 {
        return Err(refused(format!(
            "{} has {} names (hard links), and SQLite would keep a journal under each; remove the others, or name a copy",
            path.display(),
            metadata.nlink()
        )));
    }
    if is_mount_point(path) {
        return Err(refused(format!(
            "the file {} is mounted from elsewhere, and SQLite would keep a log beside each of its paths; mount its directory instead",
            path.display()
        )));
    }
    for beside in BESIDE {
        let path = beside_of(path, beside);
        if let Ok(metadata) = path.symlink_metadata() {
            sharing.check(&path, &metadata).map_err(refused)?;
            if metadata.is_symlink() {
                let path = path.display();
                return Err(refused(format!(
                    "{path} is a symbolic link, which SQLite would write through; remove it"
                )));
            }
        }
    }
    Ok(())
}

/// Takes the rights of others away from a database that this store has made, with a line in the log.
pub(super) fn tighten(path: &Path, sharing: Sharing) {
    let paths = std::iter::once(path.to_owned()).chain(BESIDE.map(|beside| beside_of(path, beside)));
    for path in paths {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        match sharing.tighten(&path, &metadata) {
            Ok(false) => {}
            Ok(true) => tracing::warn!(
                "{} could be opened, and so kept locked, by other users; it is for its owner now (?group=NAME shares it)",
                path.display()
            ),
            Err(error) => {
                tracing::warn!(
                    "{} can be opened, and so kept locked, by other users: {error}",
                    path.display()
                );
            }
        }
    }
}

/// Returns whether this user may open a database and make files beside it.
pub(super) fn may_be_opened(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    let may_write = Access::READ_OK | Access::WRITE_OK;
    let directory = path.parent().unwrap_or(path);
    access(path, may_write).is_ok() && access(directory, may_write | Access::EXEC_OK).is_ok()
}

fn beside_of(path: &Path, beside: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(beside);
    PathBuf::from(name)
}

/// Returns the identity of a file; an error if it was seen before, and is now missing or another file.
fn check_file(path: &Path, seen: Option<FileId>) -> Result<Option<FileId>, String> {
    let shown = path.display();
    match path.metadata().map(|metadata| file_id(&metadata)) {
        Ok(found) if seen.is_none_or(|seen| seen == found) => Ok(Some(found)),
        Ok(_) => Err(format!(
            "{shown} is another file now than the one that was opened: restart this node to take part in the election over it"
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound && seen.is_none() => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("{shown} was there and is not any more: {}", file_system::GONE))
        }
        Err(error) => Err(format!("{shown} cannot be looked at: {error}")),
    }
}

/// Returns whether something is mounted at this path.
#[cfg(target_os = "linux")]
fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mount_point(_: &Path) -> bool {
    false
}

impl DatabaseFile {
    /// Remembers which file is open.
    pub(super) fn identify(path: PathBuf) -> Result<Self, OpenError> {
        let metadata = path.metadata().map_err(|error| OpenError::Unavailable {
            why: format!("{} has gone while it was opened: {error}", path.display()),
        })?;
        Ok(Self { path, file: file_id(&metadata), beside: [OnceLock::new(), OnceLock::new()] })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the paths of the database, its log and the log's index still lead to the files that are open. A process that went
    /// on with a removed file would renew a lease that no other can see.
    ///
    /// While a connection is open, SQLite neither removes nor replaces any of them.
    pub(super) fn check(&self) -> Result<(), String> {
        check_file(&self.path, Some(self.file))?;
        for (beside, seen) in BESIDE.iter().zip(&self.beside) {
            let found = check_file(&beside_of(&self.path, beside), seen.get().copied())?;
            found.map(|found| seen.get_or_init(|| found));
        }
        Ok(())
    }

    /// Touches the file, so that watchers of its directory read at once. The write itself is not a usable signal: it is seen before its
    /// commit.
    pub(super) fn ring(&self) {
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        // Without the bell they read a little later.
        let _ = rustix::fs::utimensat(rustix::fs::CWD, &self.path, &times, rustix::fs::AtFlags::empty());
    }
}
