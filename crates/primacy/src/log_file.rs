//! The log of a node on its disk: segments of records, and the latest snapshot.
//!
//! The files are in a directory of their own, next to the node's state file:
//!
//! ```text
//!   main@a.log/lock                        held while the log is open
//!   main@a.log/snapshot                    the latest snapshot; there may be none
//!   main@a.log/0000000000000001.segment    records, oldest first
//!   main@a.log/0000000000000002.segment    …and those after them
//!   main@a.log/*.new                       unfinished files of a process that ended
//! ```
//!
//! Segments and snapshots are created under another name, flushed and renamed, and then the directory is flushed; so under its
//! own name each file was once complete. Records are then written to the end of the last segment: all of one [`Write::Append`]
//! as one block, with one write and one flush. The segment has zeros there already, which were flushed with an earlier block, so
//! that the flush need not record a new length or newly allocated blocks. The length of a segment is always a multiple of a step
//! that its first page names, and is extended durably before a block needs it. There is always a newest segment; the state file
//! knows its number.
//!
//! The remains of a crash, and how each is distinguished from damage:
//!
//! - *An incomplete block at the end of the last segment, of which at least one sector was not written*: that sector has zeros only,
//!   which no written sector of a block has. The block was never acknowledged; it is overwritten with zeros, and the caller is told.
//!   Any other incomplete block was once complete. Then the log is refused and not changed, because a node that went on without
//!   acknowledged records would break its promise. The same holds for a file that is too short, and for a log that ends before the
//!   position in the state file, or before the mark of the last flush. One case looks like a torn write: a sector of the last block
//!   that reads as zeros after a crash, if the mark of that block had not reached the disk.
//! - *A complete block that was never flushed*, or whose flush failed. It is written once more when the log is opened, because the
//!   kernel may count the pages of a failed flush as written.
//! - *Segments that a snapshot has made superfluous.* They are deleted when the log is opened.
//!
//! As every in-place update, this assumes that a sector on the disk has either its old or its new content, and never a part of each.

mod bounds;
mod format;
mod orphan;
mod page;
mod reading;
mod segment;
mod snapshot_file;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use primacy_core::{LeaderSequence, NodeId, Term};
use primacy_kv::replication::log::{PAYLOAD_MAX, Record, Snapshot, Stored, Write};
use prost::Message as _;

use crate::disk::{self, DiskError, FileId, LogReach};
pub(crate) use bounds::Bounds;
pub use orphan::{Repair, repair};
pub(crate) use orphan::{among_voters, orphan};
pub(crate) use page::VERSION as FILE_VERSION;
use page::{LAST_SECTOR_AT, PAGE_LENGTH};
use reading::{Reading, segment_index};
use segment::{BLOCK_HEADER_LENGTH, Header, SegmentId};

/// The longest payload of a record, in bytes.
pub(crate) const PAYLOAD_LENGTH_MAX: usize = PAYLOAD_MAX;
/// The most bytes of a record in addition to its payload.
const RECORD_OVERHEAD: usize = 64;
/// The longest segment that is read, in bytes: twice the longest that is written.
const SEGMENT_LENGTH_READ_MAX: u64 = 2 * (SEGMENT_LENGTH + BLOCK_LENGTH_MAX as u64);
/// The length of a segment, in bytes, after which another one is begun.
const SEGMENT_LENGTH: u64 = 16 * 1024 * 1024;
/// The most bytes of records per flush. A longer append takes several flushes.
const BLOCK_LENGTH_MAX: usize = 16 * 1024 * 1024;
/// A segment is extended with zeros to a multiple of this length. A greater step extends it more rarely, and takes longer
/// each time.
const STEP: u64 = 1024 * 1024;
/// The bytes of a snapshot per flush.
const FLUSHED_AT_ONCE: usize = 4 * 1024 * 1024;
/// The capacity kept in the write buffer, in bytes.
const BUFFER_KEPT: usize = 256 * 1024;
/// The command with which an operator replaces a node's log by the other nodes' records.
const REPAIR_COMMAND: &str = "primacy log repair";
/// The command with which an operator accepts the loss of a node's log.
const ACCEPT_COMMAND: &str = "primacy log repair --accept-loss";

const SNAPSHOT: &str = "snapshot";
const NEW_SNAPSHOT: &str = "snapshot.new";
const NEW_SEGMENT: &str = "segment.new";
const SEGMENT_SUFFIX: &str = ".segment";

/// The log of one node in one election: open, locked, and ready for writes.
///
/// No other process can open it until this value is dropped.
#[derive(Debug)]
pub(crate) struct LogFile {
    dir: PathBuf,
    owner: Owner,
    limits: Limits,
    /// All segments, oldest first.
    segments: VecDeque<Segment>,
    /// The last segment; `None` if there is none yet: the next record creates it.
    active: Option<Active>,
    index_next: u64,
    numbers: Numbers,
    /// The reason why nothing can be written any more: an earlier write failed.
    failed: Option<String>,
    /// The write buffer, kept so that not every write allocates memory.
    buffer: Vec<u8>,
    /// A snapshot that is being written.
    making: Option<Making>,
    /// Holds the lock until dropped.
    _lock: disk::Lock,
}

/// A defect of a log that was repaired when the log was opened, and deserves a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogDefect {
    /// The last write was incomplete, and was overwritten with zeros.
    TornTail {
        /// The segment.
        path: PathBuf,
        /// The number of overwritten bytes.
        bytes: u64,
        /// The last complete record.
        after: LeaderSequence,
    },
}

/// The reason why a log cannot be used. Every text states what to do.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has this log open.
    #[error(
        "{} is in use by {}: two processes of one node would write over each other; stop the other one, or give this \
         one another node name", path.display(), disk::holder(*pid)
    )]
    Locked {
        /// The directory of the log.
        path: PathBuf,
        /// The process that has it open, if known.
        pid: Option<u32>,
    },
    /// A file or directory cannot be read or written, by this user or by any.
    #[error("{} must be readable and writable for the user that runs this node: {source}", path.display())]
    Forbidden {
        /// The path that could not be opened or written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The disk is full. Acknowledged records are on the disk, and will be found.
    #[error(
        "the disk of {} is full: {source}; make room and start this node again, until then it takes no records",
        path.display()
    )]
    Full {
        /// The path that could not be written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Any other error of reading, writing or flushing.
    #[error("cannot {action} {}: {source}; this node takes no records without its log", path.display())]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file that was once complete is damaged.
    #[error(
        "{} is damaged: {found}. It is left as it is. This node may have acknowledged records that it has no more: have \
         its log made again from those of the others by `{REPAIR_COMMAND}`; do not delete the file, and do not restore a \
         copy from earlier, it lacks records too", path.display()
    )]
    Damaged {
        /// The file; the directory if a file is missing.
        path: PathBuf,
        /// The defect, and its offset.
        found: String,
    },
    /// The log of the only voter is damaged.
    #[error(
        "{} is damaged: {found}. It is left as it is. No other node votes, so there is nobody to ask for what it had: put it back as it \
         was; a copy from earlier lacks records that were acknowledged. If that cannot be done, begin a new election under another \
         name, or give up what only this log had: move its directory away, start this node, and say so by \
         `{ACCEPT_COMMAND}`", path.display()
    )]
    OnlyLogDamaged {
        /// The file; the directory if a file is missing.
        path: PathBuf,
        /// The defect, and its offset.
        found: String,
    },
    /// The state file is lost, and the log beside it is damaged.
    #[error(
        "{} is damaged: {found}; and there is no state file beside it, which has the votes of this node. It is left as it is. If other \
         nodes vote, start this node, and have the others readmit it (`primacy member readmit`). If none does, put both back as they \
         were; if that cannot be done, begin a new election under another name, with new fences", path.display()
    )]
    BothLost {
        /// The file of the log; its directory if a file is missing.
        path: PathBuf,
        /// The defect, and its offset.
        found: String,
    },
    /// The log has a record of a later term than the state file knows.
    #[error(
        "the log in {} ends with the record {last}, and the state file beside it knows of no term above {term}: the state file is a \
         copy from earlier, and this node may have voted since. Move the state file away and start this node again; the others \
         then readmit it (`primacy member readmit`), or, where no other node votes, `{REPAIR_COMMAND}` makes it anew", path.display()
    )]
    StateBehind {
        /// The directory of the log.
        path: PathBuf,
        /// The last record.
        last: LeaderSequence,
        /// The term in the state file.
        term: Term,
    },
    /// The state file is lost, and there is no other voter that could readmit this node.
    #[error(
        "there is a log in {} and no state file beside it, which has the votes of this node. No other voter can say what they \
         were: put the state file back; if it is lost, have it made again from the log by `{REPAIR_COMMAND}`", path.display()
    )]
    StateLost {
        /// The directory of the log.
        path: PathBuf,
    },
    /// The state file is lost, and other voters can readmit the node.
    #[error(
        "there is a log in {} and no state file beside it, and others vote: start this node, and have the others readmit it \
         (`primacy member readmit`)", path.display()
    )]
    OthersVote {
        /// The directory of the log.
        path: PathBuf,
    },
    /// A later version has written the file.
    #[error(
        "{} was written by a newer Primacy (its version is {version}, this one reads up to {}); start the newer one",
        path.display(), page::VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version that it names.
        version: u32,
    },
    /// The file belongs to another node or another election.
    #[error(
        "{} belongs to the node {node} in the election {election:?}, as it says itself; it was copied or renamed. Put it \
         back, or correct the node name or the state directory", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The election that it names.
        election: String,
        /// The node that it names.
        node: NodeId,
    },
    /// A record is too long. Nothing of that append was written, and other writes are possible.
    #[error("the record {number} would have {length} bytes, and a payload has at most {PAYLOAD_LENGTH_MAX}")]
    TooLong {
        /// Its number.
        number: LeaderSequence,
        /// The length, in bytes.
        length: usize,
    },
    /// An earlier write has failed, and is not repeated: see [`DiskError::FailedBefore`].
    #[error(
        "{} takes no more writes because an earlier one failed ({cause}); what is on the disk is known again only after the \
         node was restarted", path.display()
    )]
    FailedBefore {
        /// The directory of the log.
        path: PathBuf,
        /// The earlier error.
        cause: String,
    },
    /// The name of the directory is too long, or the system returned no random numbers.
    #[error(transparent)]
    Disk(DiskError),
}

/// The owner of a file: its election and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    election: String,
    node: NodeId,
}

/// The reason why one file cannot be used.
#[derive(Debug)]
enum Wrong {
    /// A later version has written it.
    Newer(u32),
    /// A defect at this byte.
    Damaged { offset: u64, found: String },
    /// The system's error.
    Unread(io::Error),
}

impl Wrong {
    fn first_page(reason: &impl std::fmt::Display) -> Self {
        let found = format!("its first page has a right checksum and a wrong content: {reason}");
        Self::Damaged { offset: 0, found }
    }

    fn of(self, path: &Path) -> LogError {
        let path = path.to_owned();
        match self {
            Self::Newer(version) => LogError::Newer { path, version },
            Self::Damaged { offset, found } => {
                LogError::Damaged { path, found: format!("at byte {offset}, {found}") }
            }
            Self::Unread(source) => LogError::io("read", &path, source),
        }
    }
}

impl LogError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        DiskError::io(action, path, source).into()
    }
}

impl From<DiskError> for LogError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Locked { path, pid } => Self::Locked { path, pid },
            DiskError::Forbidden { path, source } => Self::Forbidden { path, source },
            DiskError::Full { path, source } => Self::Full { path, source },
            DiskError::Io { action, path, source } => Self::Io { action, path, source },
            error @ (DiskError::NotAStateFile { .. }
            | DiskError::Damaged { .. }
            | DiskError::Newer { .. }
            | DiskError::Foreign { .. }
            | DiskError::TooLong { .. }
            | DiskError::VotersTooLong { .. }
            | DiskError::Replaced { .. }
            | DiskError::NameTooLong { .. }
            | DiskError::FailedBefore { .. }
            | DiskError::Gone { .. }
            | DiskError::Entropy(_)) => Self::Disk(error),
        }
    }
}

impl std::fmt::Display for LogDefect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TornTail { path, bytes, after } => write!(
                f,
                "{bytes} bytes after the record {after} at the end of {} were overwritten with zeros: a write that had not come to its end and \
                 was not acknowledged, as a crash leaves it",
                path.display()
            ),
        }
    }
}

/// The sizes of files and writes; tests use other values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) segment: u64,
    pub(crate) block: usize,
    pub(crate) step: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { segment: SEGMENT_LENGTH, block: BLOCK_LENGTH_MAX, step: STEP }
    }
}

/// A segment: a file of records.
#[derive(Clone, Debug)]
struct Segment {
    path: PathBuf,
    /// The last record in it; if it has none, the record before it.
    last: LeaderSequence,
}

/// The segment that is being written.
#[derive(Debug)]
struct Active {
    file: File,
    id: SegmentId,
    /// The offset of the next block.
    end: u64,
    /// The length of the file, which is a multiple of `step`.
    length: u64,
    step: u64,
}

/// The numbers of the records in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers {
    /// The record before the first one.
    base: LeaderSequence,
    last: LeaderSequence,
    /// The last counter of each term.
    terms: BTreeMap<Term, u64>,
}

impl Numbers {
    const fn after(base: LeaderSequence) -> Self {
        Self { base, last: base, terms: BTreeMap::new() }
    }

    /// Adds a record; returns true if it follows the last one.
    fn push(&mut self, record: &Record) -> bool {
        let follows = record.follows(self.last);
        if follows {
            self.last = record.number;
            self.terms.insert(record.number.term, record.number.counter);
        }
        follows
    }

    /// True if the log contains this number, ends before it, or begins directly after it.
    fn may_be_cut_at(&self, number: LeaderSequence) -> bool {
        let has = |last: &u64| number > self.base && (1..=*last).contains(&number.counter);
        number == self.base || number > self.last || self.terms.get(&number.term).is_some_and(has)
    }

    /// Removes the records up to this number.
    fn cut(&mut self, number: LeaderSequence) {
        self.terms = if number < self.last { self.terms.split_off(&number.term) } else { BTreeMap::new() };
        self.base = number;
        self.last = self.last.max(number);
    }
}

impl LogFile {
    /// Opens the log of `node` in `election` in the directory `dir`, or creates it at the first start. What is returned is on the
    /// disk: the latest snapshot, the records after it, and the repairs.
    ///
    /// Blocks for a few flushes of the disk, and never for another process.
    ///
    /// # Errors
    /// [`LogError`]; the files were not changed, unless a repair failed.
    pub(crate) fn open_within(
        limits: Limits,
        dir: &Path,
        election: &str,
        node: NodeId,
        bounds: &Bounds,
    ) -> Result<(Self, Stored, Vec<LogDefect>), LogError> {
        let parent = dir;
        let dir = log_dir(parent, election, node)?;
        disk::make_dir(&dir)?;
        let lock = disk::lock(&dir.join("lock"), &dir)?;
        let owner = Owner { election: election.to_owned(), node };
        let reading = Reading::read(&dir, &owner, bounds)?;
        let created = reading.snapshot.is_none() && reading.segments.is_empty();
        let found = reading.found();
        let mut log = Self {
            segments: reading.segments,
            active: None,
            index_next: reading.index_next,
            numbers: reading.numbers,
            failed: None,
            buffer: Vec::new(),
            making: None,
            _lock: lock,
            dir,
            owner,
            limits,
        };
        // A rename may have been in the kernel's memory only, and the following steps depend on it.
        disk::sync_dir(&log.dir)?;
        if created {
            disk::sync_dir(parent)?;
        }
        for path in reading.superfluous {
            fs::remove_file(&path).map_err(|error| LogError::io("remove", &path, error))?;
        }
        for new in [NEW_SEGMENT, NEW_SNAPSHOT] {
            // Best effort: the file only takes up space, and the next one of its kind overwrites it.
            let _ = fs::remove_file(log.dir.join(new));
        }
        if let (Some(tail), Some(last)) = (reading.tail, log.segments.back()) {
            log.active = Some(tail.mend(&last.path)?);
        }
        log.go_on_after_snapshot()?;
        Ok((log, Stored { snapshot: reading.snapshot, records: reading.records }, found))
    }

    /// The extent of the log on the disk.
    pub(crate) fn reach(&self) -> LogReach {
        LogReach { segment: self.index_next - 1, last: self.numbers.last }
    }

    /// Checks that the newest segment was not removed or replaced.
    ///
    /// # Errors
    /// [`LogError::Disk`] if it was.
    pub(crate) fn check_in_place(&self) -> Result<(), LogError> {
        let (Some(active), Some(segment)) = (&self.active, self.segments.back()) else { return Ok(()) };
        Ok(FileId::of(&segment.path, &active.file)?.check(&segment.path)?)
    }

    /// True if there is a log of `node` in `election`, even if it is damaged.
    ///
    /// # Errors
    /// [`LogError`] if that cannot be found out.
    pub(crate) fn exists(dir: &Path, election: &str, node: NodeId) -> Result<bool, LogError> {
        let dir = log_dir(dir, election, node)?;
        let listed = |error| LogError::io("list", &dir, error);
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries.map_err(listed)?,
        };
        for entry in entries {
            let name = entry.map_err(listed)?.file_name();
            if name == SNAPSHOT || name.to_str().is_some_and(|name| segment_index(name).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The directory of the log.
    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Performs one write. When this returns, it survives a power cut.
    ///
    /// # Errors
    /// As [`write_many`](Self::write_many).
    ///
    /// # Panics
    /// As [`write_many`](Self::write_many).
    pub(crate) fn write(&mut self, write: &Write) -> Result<(), LogError> {
        self.write_many(std::slice::from_ref(write))
    }

    /// Performs several writes in this order, with one flush for all records between two snapshots. When this returns, they
    /// survive a power cut.
    ///
    /// # Errors
    /// [`LogError`], after which no message may be sent that depends on these writes: some of them may be on the disk. Every further
    /// write is refused until the log is opened again. The exceptions are [`LogError::TooLong`], and an error of creating a
    /// snapshot's file: then nothing of that append or snapshot was written, nor of the writes after it.
    ///
    /// # Panics
    /// If a record does not follow the one before it, if a snapshot is below the one before it, or if the log does not contain
    /// the snapshot's number.
    pub(crate) fn write_many(&mut self, writes: &[Write]) -> Result<(), LogError> {
        if let Some(cause) = &self.failed {
            return Err(LogError::FailedBefore { path: self.dir.clone(), cause: cause.clone() });
        }
        let mut records: Vec<&Record> = Vec::new();
        for write in writes {
            match write {
                Write::Append(more) => records.extend(more),
                Write::Snapshot(snapshot) => {
                    self.append(&records)?;
                    records.clear();
                    self.install(snapshot)?;
                }
            }
        }
        self.append(&records)
    }

    /// Writes these records, as one block unless they are too long.
    fn append(&mut self, records: &[&Record]) -> Result<(), LogError> {
        let mut blocks: Vec<(format::message::Block, LeaderSequence)> = Vec::new();
        let mut room = 0;
        for record in records {
            let encoded = format::record(record);
            let (length, number) = (encoded.encoded_len(), record.number);
            if length > PAYLOAD_LENGTH_MAX + RECORD_OVERHEAD {
                return Err(LogError::TooLong { number, length });
            }
            let taken = length + RECORD_OVERHEAD;
            match blocks.last_mut() {
                Some((block, last)) if taken <= room => {
                    room -= taken;
                    block.records.push(encoded);
                    *last = number;
                }
                Some(_) | None => {
                    room = self.limits.block.saturating_sub(taken);
                    blocks.push((format::message::Block { records: vec![encoded] }, number));
                }
            }
        }
        for record in records {
            assert!(self.numbers.push(record), "a log has no gaps: {} does not follow", record.number);
        }
        let written = blocks.iter().try_for_each(|(block, last)| self.append_block(block, *last));
        self.or_failed(written)
    }

    /// Appends one block, and waits until it is on the disk.
    fn append_block(&mut self, block: &format::message::Block, last: LeaderSequence) -> Result<(), LogError> {
        self.buffer.clear();
        self.buffer.resize(BLOCK_HEADER_LENGTH, 0);
        block.encode(&mut self.buffer).expect("a vector takes any length");
        segment::finish_content(&mut self.buffer);
        let length = self.buffer.len() as u64;
        let full =
            |active: &Active| active.end > PAGE_LENGTH as u64 && active.end + length > self.limits.segment;
        if self.active.as_ref().is_none_or(full) {
            let after = self.segments.back().map_or(self.numbers.base, |segment| segment.last);
            self.begin_segment(after)?;
        }
        let (Some(active), Some(segment)) = (&mut self.active, self.segments.back_mut()) else {
            unreachable!("a segment was begun");
        };
        active.id.seal_block(active.end, &mut self.buffer);
        let written = active.write(&mut self.buffer);
        written.map_err(|error| LogError::io("write", &segment.path, error))?;
        segment.last = last;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT);
        Ok(())
    }

    /// Creates a segment for the records after `after`.
    fn begin_segment(&mut self, after: LeaderSequence) -> Result<(), LogError> {
        let id = SegmentId::new(disk::entropy()?);
        let index = self.index_next;
        let path = self.dir.join(format!("{index:016x}{SEGMENT_SUFFIX}"));
        let step = self.limits.step;
        let mut bytes = Header { owner: self.owner.clone(), id, index, after, step }.encode();
        bytes[LAST_SECTOR_AT..].copy_from_slice(&id.flushed_mark(PAGE_LENGTH as u64));
        let length = segment::length_for(bytes.len() as u64, step);
        bytes.resize(usize::try_from(length).unwrap_or(PAGE_LENGTH), 0);
        let new = self.dir.join(NEW_SEGMENT);
        let made = disk::make_anew(&new)
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()).map(|()| file))
            .and_then(|file| fs::rename(&new, &path).map(|()| file));
        let file = made.map_err(|error| LogError::io("make", &path, error))?;
        disk::sync_dir(&self.dir)?;
        self.index_next += 1;
        self.segments.push_back(Segment { path, last: after });
        self.active = Some(Active { file, id, end: PAGE_LENGTH as u64, length, step });
        Ok(())
    }

    /// True if the log has all records up to this one, so that no record depends on a snapshot of it.
    pub(crate) fn passes(&self, number: LeaderSequence) -> bool {
        number <= self.numbers.last && self.numbers.may_be_cut_at(number)
    }

    /// Begins to write the file of a snapshot that the log [passes](Self::passes), on a thread of its own, because a large snapshot
    /// takes longer than a leader may be silent. [`finish_snapshot`](Self::finish_snapshot) installs it. If another one is being
    /// written, waits for that.
    ///
    /// # Errors
    /// As [`finish_snapshot`](Self::finish_snapshot), for the snapshot before.
    ///
    /// # Panics
    /// If the log does not pass it.
    pub(crate) fn begin_snapshot(&mut self, snapshot: &Arc<Snapshot>) -> Result<(), LogError> {
        if let Some(cause) = &self.failed {
            return Err(LogError::FailedBefore { path: self.dir.clone(), cause: cause.clone() });
        }
        assert!(self.passes(snapshot.number), "the log does not pass {}", snapshot.number);
        if let Some(making) = self.making.take() {
            self.put_in_place(making)?;
        }
        let (new, owner, id) = (self.dir.join(NEW_SNAPSHOT), self.owner.clone(), disk::entropy()?);
        let (number, snapshot) = (snapshot.number, Arc::clone(snapshot));
        let thread = thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || make_snapshot(&new, &owner, id, &snapshot))
            .map_err(|error| LogError::io("make", &self.dir.join(SNAPSHOT), error))?;
        self.making = Some(Making { number, thread: Some(thread) });
        Ok(())
    }

    /// Installs the snapshot that was begun, if its file is complete by now.
    ///
    /// # Errors
    /// [`LogError`], as for [`write_many`](Self::write_many).
    pub(crate) fn finish_snapshot(&mut self) -> Result<(), LogError> {
        match self.making.take_if(|making| making.is_made()) {
            Some(making) => self.put_in_place(making),
            None => Ok(()),
        }
    }

    /// Waits until a snapshot's file is complete, and installs it.
    fn put_in_place(&mut self, mut making: Making) -> Result<(), LogError> {
        let made = making.wait();
        self.replace_snapshot(making.number, made)
    }

    /// Writes a snapshot, and replaces the one before it and all records up to its number.
    fn install(&mut self, snapshot: &Arc<Snapshot>) -> Result<(), LogError> {
        assert!(self.numbers.may_be_cut_at(snapshot.number), "the log does not pass {}", snapshot.number);
        self.making = None; // It would have the same file.
        let made = make_snapshot(&self.dir.join(NEW_SNAPSHOT), &self.owner, disk::entropy()?, snapshot);
        self.replace_snapshot(snapshot.number, made)
    }

    /// Renames the file of a snapshot, and removes the records up to its number.
    fn replace_snapshot(&mut self, number: LeaderSequence, made: io::Result<()>) -> Result<(), LogError> {
        let (new, path) = (self.dir.join(NEW_SNAPSHOT), self.dir.join(SNAPSHOT));
        if let Err(error) = made {
            // The log is unchanged. Best effort: the incomplete file takes up space that may be needed.
            let _ = fs::remove_file(&new);
            return Err(LogError::io("make", &path, error));
        }
        let renamed = fs::rename(&new, &path).map_err(|error| LogError::io("make", &path, error));
        let renamed = renamed.and_then(|()| disk::sync_dir(&self.dir).map_err(LogError::from));
        self.or_failed(renamed)?;
        self.numbers.cut(number);
        let gone_on = self.go_on_after_snapshot();
        self.or_failed(gone_on)
    }

    /// Begins a segment if none continues after the snapshot, and deletes the segments without records above it. The newest is kept,
    /// so that a missing one is noticed. The deletion need not be durable: it is repeated when the log is opened, or becomes durable
    /// when the next segment is created.
    fn go_on_after_snapshot(&mut self) -> Result<(), LogError> {
        if self.segments.back().is_none_or(|newest| newest.last < self.numbers.last) {
            self.begin_segment(self.numbers.last)?;
        }
        while let [oldest, _, ..] = self.segments.make_contiguous()
            && oldest.last <= self.numbers.base
            && self.numbers.base != LeaderSequence::NONE
        {
            fs::remove_file(&oldest.path).map_err(|error| LogError::io("remove", &oldest.path, error))?;
            self.segments.pop_front();
        }
        Ok(())
    }

    fn or_failed<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
        }
        result
    }
}

impl Active {
    /// Writes a block. If the file is too short for it and for the header of the next one, it is extended first, durably. So a file
    /// that is shorter than its last block, or whose length is not a multiple of the step, was truncated.
    fn write(&mut self, block: &mut Vec<u8>) -> io::Result<()> {
        let end = self.end + block.len() as u64;
        let length = segment::length_for(end, self.step).max(self.length);
        if length > self.length {
            self.file.set_len(length)?;
            self.file.sync_all()?;
            // Writing zeros allocates their blocks on the disk now, so that later flushes need not.
            block.resize(usize::try_from(length - self.end).map_err(io::Error::other)?, 0);
        }
        self.file.write_all_at(block, self.end)?;
        self.file.sync_data()?;
        // Not flushed here: the next flush writes it, or the kernel.
        self.file.write_all_at(&self.id.flushed_mark(end), LAST_SECTOR_AT as u64)?;
        (self.end, self.length) = (end, length);
        Ok(())
    }
}

/// A snapshot whose file a thread is writing. Dropping it waits for the thread.
#[derive(Debug)]
struct Making {
    number: LeaderSequence,
    /// `None` after the thread was joined.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Making {
    fn is_made(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn wait(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that made it has panicked")))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // The snapshot is not needed any more; but no thread may write there when the log is opened again.
        let _ = self.wait();
    }
}

/// Writes the complete file of a snapshot under another name.
fn make_snapshot(
    new: &Path,
    owner: &Owner,
    id: snapshot_file::SnapshotId,
    snapshot: &Snapshot,
) -> io::Result<()> {
    let mut file = BufWriter::new(Paced { file: disk::make_anew(new)?, unflushed: 0 });
    snapshot_file::write(&mut file, owner, id, snapshot)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.file.sync_all()
}

/// A file that is flushed from time to time while it is written: otherwise a flush of the log would have to wait for
/// all of it.
#[derive(Debug)]
struct Paced {
    file: File,
    unflushed: usize,
}

impl io::Write for Paced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unflushed += written;
        if self.unflushed >= FLUSHED_AT_ONCE {
            self.file.sync_data()?;
            self.unflushed = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the path of a log's directory, which may not exist.
fn log_dir(parent: &Path, election: &str, node: NodeId) -> Result<PathBuf, LogError> {
    let dir = parent.join(format!("{}.log", disk::file_name(election, node)?));
    disk::check_dir_of_log(&dir)?;
    Ok(dir)
}

#[cfg(test)]
mod tests;
