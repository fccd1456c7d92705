//! The directories of the store and of an election: the checks of their owners and identities, and the lock.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::attempts;
use crate::file_system;
use crate::open_error::OpenError;
use crate::ownership::{Sharing, lock_holder, shown_process};
use crate::passing;
use crate::record::LENGTH_MAX;

/// The suffix of an election's directory, so that no other directory is taken for one.
pub(super) const SUFFIX: &str = ".election";

/// The longest name of a directory, before its suffix. Every local file system has room for 255 bytes.
const NAME_LENGTH_MAX: usize = 200;

/// The time for which a write waits for another one to end. A write takes as long as the disk's flush, so this is many of
/// them; and it is short compared with any lease.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_WAIT_MIN: Duration = Duration::from_millis(1);
const LOCK_WAIT_MAX: Duration = Duration::from_millis(10);

/// The right of every user to write.
const WRITABLE_BY_OTHERS: u32 = 0o002;

/// The directory of a store, as it was opened, and an election in it.
#[derive(Debug)]
pub(super) struct StoreDirectory {
    path: PathBuf,
    sharing: Sharing,
    election: String,
    /// The name of the election's directory.
    name: String,
    /// The longest content that is read, in bytes.
    length_max: usize,
    identity: Identity,
    /// Keeps the directory open: otherwise the file system could give its inode number to a new one after it is removed.
    _opened: OwnedFd,
}

/// The identity of a directory, which is unique as long as the directory is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

/// The directory of an election, open.
#[derive(Debug)]
pub(super) struct Folder<'a> {
    place: &'a StoreDirectory,
    directory: OwnedFd,
    identity: Identity,
}

/// The directory of an election, open and locked.
#[derive(Debug)]
pub(super) struct LockedFolder<'a>(Folder<'a>);

impl Drop for LockedFolder<'_> {
    fn drop(&mut self) {
        // Closing would suffice, unless a process that was forked meanwhile shares the open file.
        let _ = rustix::fs::flock(&self.0.directory, FlockOperation::Unlock);
    }
}

impl<'a> std::ops::Deref for LockedFolder<'a> {
    type Target = Folder<'a>;

    fn deref(&self) -> &Folder<'a> {
        &self.0
    }
}

impl Identity {
    fn of(file: impl AsFd, shown: &Path) -> Result<(Self, u32), String> {
        // Through the standard library, whose numbers have the same types on every platform.
        let file = file.as_fd().try_clone_to_owned().map(std::fs::File::from);
        let metadata = file.and_then(|file| file.metadata());
        let metadata =
            metadata.map_err(|error| format!("{} cannot be looked at: {error}", shown.display()))?;
        Ok((Self { device: metadata.dev(), inode: metadata.ino() }, metadata.mode()))
    }
}

impl StoreDirectory {
    /// Checks the directory, and makes it if there is none and `create` is set.
    pub(super) fn open(
        path: &Path,
        sharing: Sharing,
        election: &str,
        create: bool,
    ) -> Result<Self, OpenError> {
        let shown = path.display();
        let unavailable =
            |error: io::Error| passing::of_local(format!("{shown} cannot be reached: {error}"), &error);
        sharing.check_links(path).map_err(|why| OpenError::Refused { why })?;
        let absolute = std::path::absolute(path).map_err(unavailable)?;
        if create
            && matches!(absolute.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
        {
            make(&absolute, sharing)?;
        }
        let path = absolute.canonicalize().map_err(unavailable)?;
        if !path.metadata().map_err(unavailable)?.is_dir() {
            let why =
                format!("{shown} is no directory; the store `file` needs one, and makes it if there is none");
            return Err(OpenError::Refused { why });
        }
        file_system::refuse_unless_local(&path)?;
        let opened = rustix::fs::open(&path, DIRECTORY, Mode::empty());
        let opened = opened.map_err(|error| unavailable(error.into()))?;
        let (identity, mode) = Identity::of(&opened, &path).map_err(|why| OpenError::Shortage { why })?;
        if mode & WRITABLE_BY_OTHERS != 0 {
            return Err(OpenError::Refused {
                why: format!(
                    "everybody may write to {shown}, and so make themselves the leader; name a directory below it \
                     (it is made if there is none), or take the permission away: chmod o-w {shown}"
                ),
            });
        }
        let metadata = path.metadata().map_err(unavailable)?;
        sharing.check(&path, &metadata).map_err(|why| OpenError::Refused { why })?;
        if create {
            flush_parent(&path)?;
        }
        let name = directory_name(election);
        let election = election.to_owned();
        Ok(Self { path, sharing, election, name, length_max: LENGTH_MAX, identity, _opened: opened })
    }

    /// Sets the maximum length of contents.
    pub(super) fn with_length_max(self, length_max: usize) -> Self {
        Self { length_max, ..self }
    }

    pub(super) fn length_max(&self) -> usize {
        self.length_max
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn election(&self) -> &str {
        &self.election
    }

    /// The path of the election's directory.
    pub(super) fn folder_path(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The directory of the store, if it is still the one that was opened. A different one could belong to another machine,
    /// or be seen by only some of the candidates.
    fn root(&self) -> Result<OwnedFd, String> {
        let shown = self.path.display();
        let directory =
            rustix::fs::open(&self.path, DIRECTORY, Mode::empty()).map_err(|error| match error {
                Errno::NOENT => format!("{shown} was there and is not any more: {}", file_system::GONE),
                error => format!("{shown} was there and cannot be opened any more: {error}"),
            })?;
        let (identity, _) = Identity::of(&directory, &self.path)?;
        if identity != self.identity {
            return Err(format!("{shown} is another directory now than the one that was opened; start anew"));
        }
        Ok(directory)
    }

    /// The directory of the election; `None` if there is none.
    pub(super) fn enter(&self) -> Result<Option<Folder<'_>>, String> {
        self.enter_below(&self.root()?)
    }

    fn enter_below(&self, root: &OwnedFd) -> Result<Option<Folder<'_>>, String> {
        let path = self.folder_path();
        let directory = match rustix::fs::openat(root, &self.name, DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(format!("{} is no directory; move it away", path.display()));
            }
            Err(error) => return Err(format!("{} cannot be opened: {error}", path.display())),
        };
        let (identity, mode) = Identity::of(&directory, &path)?;
        if mode & WRITABLE_BY_OTHERS != 0 {
            let path = path.display();
            return Err(format!("everybody may write to {path}; take the permission away: chmod o-w {path}"));
        }
        let metadata =
            path.symlink_metadata().map_err(|error| format!("{} is gone: {error}", path.display()))?;
        self.sharing.check(&path, &metadata)?;
        // Users who may read the directory may lock it.
        match self.sharing.tighten(&path, &metadata) {
            Ok(false) => {}
            Ok(true) => tracing::warn!(
                "{} could be entered, and so kept locked, by other users; it is for its owner now (?group=NAME shares it)",
                path.display()
            ),
            Err(error) => {
                tracing::warn!(
                    "{} can be entered, and so kept locked, by other users: {error}",
                    path.display()
                );
            }
        }
        if identity.device != self.identity.device {
            return Err(format!("{} is on another file system than the store", path.display()));
        }
        Ok(Some(Folder { place: self, directory, identity }))
    }

    /// Like [`enter`](Self::enter), but makes the directory if there is none. Its name is flushed to the disk when this returns.
    pub(super) fn enter_or_make(&self) -> Result<Folder<'_>, String> {
        let root = self.root()?;
        if let Some(folder) = self.enter_below(&root)? {
            // The process that made it may have been killed before it flushed the name.
            flush(&root, &self.path)?;
            return Ok(folder);
        }
        let shown = self.folder_path();
        let shown = shown.display();
        let (_, mode) = Identity::of(&root, &self.path)?;
        // Users who may write to the store may write to the election; others cannot enter it, and so not lock it.
        let mode = if mode & 0o020 == 0 { 0o700 } else { mode & 0o770 };
        match rustix::fs::mkdirat(&root, &self.name, Mode::from_raw_mode(mode as _)) {
            Ok(()) => self
                .sharing
                .give(&self.folder_path())
                .map_err(|error| format!("{shown} cannot be given to its group: {error}"))?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(format!("{shown} cannot be made: {error}")),
        }
        flush(&root, &self.path)?;
        self.enter_below(&root)?.ok_or_else(|| format!("{shown} was removed while it was made"))
    }
}

impl<'a> Folder<'a> {
    pub(super) fn place(&self) -> &'a StoreDirectory {
        self.place
    }

    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Flushes the names of the files in it to the disk.
    pub(super) fn flush(&self) -> Result<(), String> {
        flush(&self.directory, &self.place.folder_path())
    }

    /// Checks that the path still leads here.
    pub(super) fn check(&self) -> Result<(), String> {
        let shown = self.place.folder_path();
        let root = self.place.root()?;
        let directory = rustix::fs::openat(&root, &self.place.name, DIRECTORY, Mode::empty()).map_err(
            |error| match error {
                Errno::NOENT => {
                    format!("{} was there and is not any more: {}", shown.display(), file_system::GONE)
                }
                error => format!("{} cannot be looked at: {error}", shown.display()),
            },
        )?;
        let (identity, _) = Identity::of(&directory, &shown)?;
        if identity != self.identity {
            return Err(format!("{} was replaced by another directory", shown.display()));
        }
        Ok(())
    }

    /// Waits for the lock, at most until `until`, and makes sure that the locked directory is still in its place.
    pub(super) fn lock(self, until: Instant) -> Result<LockedFolder<'a>, String> {
        let shown = self.place.folder_path();
        let held = || {
            let holder =
                lock_holder(&self.directory).map_or_else(|| "another process".to_owned(), shown_process);
            format!("{holder} holds the lock of {}", shown.display())
        };
        let mut wait = LOCK_WAIT_MIN;
        loop {
            match rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                    // Shown by a caller that gives up before the lock is free.
                    if wait == LOCK_WAIT_MAX {
                        attempts::failed(&held());
                    }
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(LOCK_WAIT_MAX);
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(format!(
                        "{}, for more than {LOCK_PATIENCE:?}; if it is stopped, let it go on or end it",
                        held()
                    ));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("{} cannot be locked: {error}", shown.display())),
            }
        }
        let locked = LockedFolder(self);
        locked.check()?;
        Ok(locked)
    }
}

/// Symbolic links are not followed, so that the path leads nowhere else.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes the directory of a store, which only its owner may enter.
fn make(path: &Path, sharing: Sharing) -> Result<(), OpenError> {
    let shown = path.display();
    let unavailable = |error: io::Error| {
        passing::of_local(format!("the directory {shown} cannot be made: {error}"), &error)
    };
    let parent = path.parent().unwrap_or(path);
    let parent = parent.canonicalize().map_err(|error| {
        passing::of_local(format!("the directory {} cannot be reached: {error}", parent.display()), &error)
    })?;
    file_system::refuse_unless_local(&parent)?;
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => sharing.give(path).map_err(unavailable)?,
        // Another candidate was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(unavailable(error)),
    }
    // A directory that cannot be flushed is not used.
    std::fs::File::open(&parent)
        .map_err(unavailable)
        .and_then(|directory| flush(&directory, &parent).map_err(|why| OpenError::Unavailable { why }))
}

/// Flushes the name of a store's directory to the disk: the process that made it may have been killed before it did so.
///
/// The name of a mount point does not belong to this store, and its parent's file system may not be one that can be
/// flushed.
fn flush_parent(path: &Path) -> Result<(), OpenError> {
    let parent = path.parent().unwrap_or(path);
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev());
    if let (Ok(own), Ok(parents)) = (device(path), device(parent))
        && own != parents
    {
        return Ok(());
    }
    let unavailable = |why: String| OpenError::Unavailable { why };
    match std::fs::File::open(parent) {
        Ok(directory) => flush(&directory, parent).map_err(unavailable),
        // Another user's process made it, and did not go on before it had flushed the name.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => {
            Err(passing::of_local(format!("{} cannot be opened: {error}", parent.display()), &error))
        }
    }
}

/// Flushes the names in a directory to the disk.
fn flush(directory: impl AsFd, shown: &Path) -> Result<(), String> {
    #[cfg(test)]
    FLUSHED.with_borrow_mut(|flushed| flushed.push(shown.to_owned()));
    rustix::fs::fsync(directory)
        .map_err(|error| format!("{} could not be flushed to the disk: {error}", shown.display()))
}

#[cfg(test)]
thread_local! {
    /// The directories that this thread has flushed.
    pub(super) static FLUSHED: std::cell::RefCell<Vec<PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The election as the name of a directory: small letters, digits, `-` and `_` as they are, and every other byte as `%` and two digits. So
/// names that differ by case alone do not collide on a file system that ignores case. A long name is cut, and completed by a checksum; the
/// record names its election.
fn directory_name(election: &str) -> String {
    let mut name = String::new();
    for byte in election.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    if name.len() > NAME_LENGTH_MAX {
        let checksum = fnv(election.as_bytes());
        name.truncate(NAME_LENGTH_MAX - 17);
        name.push_str(&format!("~{checksum:016x}"));
    }
    name + SUFFIX
}

/// The checksum FNV-1a. It must never change.
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_elections_become_names_of_directories() {
        assert_eq!(directory_name("nightly-2_b"), "nightly-2_b.election");
        assert_eq!(directory_name("Jobs/a.é"), "%4aobs%2fa%2e%c3%a9.election");
        assert_eq!(directory_name(".."), "%2e%2e.election");
        let long = |last: &str| directory_name(&("É".repeat(99) + last));
        assert!(long("a").len() <= 255 && long("a") != long("b"), "{}", long("a"));
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
