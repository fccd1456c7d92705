//! The state directory of a node: its files, their names, and errors of using them.

mod file_id;
#[cfg(feature = "peers")]
mod format;
mod opening;
mod slot;
#[cfg(feature = "peers")]
mod state_file;

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use primacy_core::NodeId;
use primacy_stores::ownership;
use rustix::fs::{FlockOperation, flock};

use crate::handshake::DiskId;
#[cfg(feature = "peers")]
pub(crate) use file_id::FileId;
pub(crate) use opening::{check_dir, make_anew};
#[cfg(feature = "peers")]
pub(crate) use opening::{check_dir_of_log, open_existing};
use slot::RECORD_LENGTH_MAX;
#[cfg(feature = "peers")]
pub use state_file::{LogReach, StateFile, Stored};
#[cfg(feature = "peers")]
pub(crate) use state_file::{Remains, check_room};

/// The version of every other one, and the newest that this code reads.
pub(crate) const VERSION: u32 = 2;
/// The bytes that voters may take in a slot, with all that is kept of each: its name, its address, and its disk. That is enough for
/// 31 voters with names of 16 bytes and addresses of 32, or for 7 with the longest of both. The rest is for the votes, for the
/// longest name of an election, and for about 30 replaced disks, or a dozen disks of former voters.
pub const VOTERS_LENGTH_MAX: usize = 3000;
/// The longest file name that common file systems permit.
const FILE_NAME_MAX: usize = 255;

/// The reason why the state cannot be used. Every text states what to do.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has this state open.
    #[error(
        "{} is in use by {}: two processes of one node would vote twice; stop the other one, or give this one \
         another node name", path.display(), holder(*pid)
    )]
    Locked {
        /// The state file.
        path: PathBuf,
        /// The process that has it open, if known.
        pid: Option<u32>,
    },
    /// This user has no right to read or write the file or its directory.
    #[error("{} must be readable and writable for the user that runs this node: {source}", path.display())]
    Forbidden {
        /// The path that could not be opened.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The disk is full.
    #[error(
        "the disk of {} is full: {source}; make room and start this node again, until then it neither votes nor \
         leads", path.display()
    )]
    Full {
        /// The path that could not be written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Any other error of reading, writing or flushing.
    #[error("cannot {action} {}: {source}; this node neither votes nor leads without its state", path.display())]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file was made by another program, or does not have the length of a state file.
    #[error(
        "{} is no state file of Primacy ({found}); it is left as it is: move it away if it does not belong \
         there. If the state is lost, start this node with an empty directory and have the others readmit it \
         (`primacy member readmit`), or, where no other node votes, begin a new election under another \
         name; a copy from earlier has forgotten votes", path.display()
    )]
    NotAStateFile {
        /// The file.
        path: PathBuf,
        /// The content found instead.
        found: String,
    },
    /// The last acknowledged state may be damaged.
    #[error(
        "the state in {} is damaged ({found}); it is left as it is. This node may have voted and cannot know it any more: \
         move the file away, start this node again, and have the others readmit it (`primacy member readmit`), or, where no other node votes \
         and it has no log, begin a new election under another name; do not restore a copy, it has forgotten votes", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect.
        found: String,
    },
    /// The file was removed or replaced after this node opened it.
    #[error(
        "{} was removed or replaced while this node was running, and what this node writes would be forgotten: it ends. Put the \
         state directory back as it was and start this node again; if it is lost, start this node without it and have the others \
         readmit it (`primacy member readmit`)", path.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// A later version has written the file.
    #[error(
        "{} was written by a newer Primacy (its version is {version}, this one reads up to {VERSION}); start the \
         newer one", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version that it names.
        version: u32,
    },
    /// The file belongs to another node or another election.
    #[error(
        "{} belongs to the node {node:?} in the election {election:?}, as it says itself; it was copied or \
         renamed. Put it back, or correct the node name or the state directory", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The election that it names.
        election: String,
        /// The node that it names.
        node: String,
    },
    /// The record does not fit into a slot.
    #[error(
        "the state of {} would have {length} bytes, and there is room for {RECORD_LENGTH_MAX}: this node has seen \
         too many peers, or too many disks of them", path.display()
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The length of the record, in bytes.
        length: usize,
    },
    /// The voters do not fit into the state.
    #[error(
        "{voters} voters whose names and addresses are so long take {length} bytes of a node's state, and there is room for \
         {VOTERS_LENGTH_MAX}: shorten the addresses, or have fewer voters"
    )]
    VotersTooLong {
        /// The number of voters.
        voters: usize,
        /// The room that they would take, in bytes.
        length: usize,
    },
    /// A peer presents a former disk.
    #[error(
        "the disk {presented} of {node} was replaced by the disk {recorded} and has missed what {node} voted with that \
         one: move its state directory away, start {node} with an empty one, and ask again"
    )]
    Replaced {
        /// The peer.
        node: NodeId,
        /// The accepted disk.
        recorded: DiskId,
        /// The presented disk.
        presented: DiskId,
    },
    /// The names of the node and the election make the file name too long.
    #[error(
        "a file name has at most {FILE_NAME_MAX} bytes and {name:?} has more; choose a shorter election name"
    )]
    NameTooLong {
        /// The file name.
        name: String,
    },
    /// An earlier write has failed.
    ///
    /// It is not repeated: after a failed flush the kernel may count the pages as written, and the next flush of the
    /// same pages would succeed with nothing on the disk (as PostgreSQL found out in 2018).
    #[error(
        "{} takes no more writes because an earlier one failed ({cause}); what is on the disk is known again only \
         after the node was restarted", path.display()
    )]
    FailedBefore {
        /// The file.
        path: PathBuf,
        /// The earlier error.
        cause: String,
    },
    /// The system returned no random numbers for an incarnation or a disk id.
    #[error("the system gives no random numbers: {0}")]
    Entropy(io::Error),
}

pub(crate) fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), ownership::shown_process)
}

/// Random bytes from the system, for numbers that must never repeat: incarnations, disk ids, and seeds.
///
/// # Errors
/// [`DiskError::Entropy`] if the system returns none.
pub fn entropy<const LENGTH: usize>() -> Result<[u8; LENGTH], DiskError> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).map_err(|error| DiskError::Entropy(io::Error::other(error.to_string())))?;
    Ok(bytes)
}

impl DiskError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        // A read-only file system is treated like a missing right, and an exhausted quota like a full disk.
        if matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
            Self::Forbidden { path, source }
        } else if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            Self::Full { path, source }
        } else {
            Self::Io { action, path, source }
        }
    }
}

/// `election@node`, with every byte of the election that has a meaning in file names as `%` and its number. No node
/// name contains `@`, so no two pairs share a file.
pub(crate) fn file_name(election: &str, node: NodeId) -> Result<String, DiskError> {
    let mut name = String::new();
    for byte in election.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name.push('@');
    name.push_str(node.as_str());
    let longest_suffix = ".state.new".len();
    if name.len() + longest_suffix > FILE_NAME_MAX { Err(DiskError::NameTooLong { name }) } else { Ok(name) }
}

/// Creates the directory with its parents, each of them durably: if a state directory disappeared in a power cut, so
/// would the node's votes.
pub(crate) fn make_dir(dir: &Path) -> Result<(), DiskError> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().unwrap_or(Path::new(""));
    make_dir(parent)?;
    // Its files control this node, so no other user may write there, whatever the umask.
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => sync_dir(parent),
        // Another node of this machine has created it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(error) => Err(DiskError::io("make the directory", dir, error)),
    }
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), DiskError> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let synced = File::open(dir).and_then(|opened| opened.sync_all());
    synced.map_err(|error| DiskError::io("flush the directory", dir, error))
}

/// A file that is locked until this value is dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would not suffice if a process was forked meanwhile and has not called `exec` yet: it shares the
        // open file.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the lock, which is a file of its own because it must be held before the state file exists.
pub(crate) fn lock(lock_path: &Path, state_path: &Path) -> Result<Lock, DiskError> {
    let mut file =
        opening::open_or_make(lock_path).map_err(|error| DiskError::io("open", lock_path, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // Without a readable process id, only the message has less detail.
            let noted = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            let pid = ownership::lock_holder(&file).or(noted);
            return Err(DiskError::Locked { path: state_path.to_owned(), pid });
        }
        Err(error) => return Err(DiskError::io("lock", lock_path, error.into())),
    }
    // The process id always has the same length, so writing it needs no truncation and, after the first time, no space.
    // It is only for the message above, so a failure does not prevent the start.
    let _ = file.rewind().and_then(|()| writeln!(file, "{:>10}", std::process::id()));
    Ok(Lock(file))
}
