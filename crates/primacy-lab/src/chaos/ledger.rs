//! The files of the jobs: the ledger, guarded by the project's own fence, and a journal for refusals and the lock.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use primacy::clock;
use primacy::fence::{DurableFence, DurableFenceError, FencingToken};
use primacy_core::Instant;
use serde::{Deserialize, Serialize};

use crate::chaos::arm::ELECTION;
use crate::chaos::event_log::append;
use primacy_testbed::run_error::RunError;

/// The file of the accepted writes, in the order in which they were accepted.
pub(crate) const LEDGER: &str = "ledger.jsonl";
/// The file of refused writes, and of the lock.
pub(crate) const JOURNAL: &str = "journal.jsonl";
/// The file that the jobs lock.
pub(crate) const LOCK: &str = "lock";
const FENCE: &str = "ledger.fence";

/// The writer of a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Writer {
    /// The token of its leadership.
    pub(crate) token: u64,
    /// Its node.
    pub(crate) node: String,
    /// Its process.
    pub(crate) pid: i32,
}

/// An accepted write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// The writer.
    #[serde(flatten)]
    pub(crate) writer: Writer,
    /// The time, on the machine's boot clock.
    pub(crate) boot_ns: u64,
}

/// A report of a job, other than an accepted write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "snake_case")]
pub(crate) enum JobReport {
    /// It begins.
    Began,
    /// The fence refused a write.
    Refused {
        /// The highest token that the fence had seen.
        highest: u64,
    },
    /// The lock was found taken by another job; reported at each attempt.
    Waits {
        /// The holder, as far as the lock's file names it.
        holder: Option<Writer>,
    },
    /// It has the lock.
    Locked,
    /// A detached grandchild holds the lock too.
    Grandchild,
    /// The ledger could not be used.
    Failed {
        /// The reason.
        error: String,
    },
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The writer.
    #[serde(flatten)]
    pub(crate) writer: Writer,
    /// The time, on the machine's boot clock.
    pub(crate) boot_ns: u64,
    /// The report.
    #[serde(flatten)]
    pub(crate) report: JobReport,
}

/// The files of one job: the ledger and the journal.
#[derive(Debug)]
pub(crate) struct Ledger {
    writer: Writer,
    fence: DurableFence,
    ledger: File,
    journal: File,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in the ledger.
    Accepted,
    /// It was refused as stale.
    Refused,
}

impl Ledger {
    /// Opens the files of an arm, and creates missing ones.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn open(dir: &Path, writer: Writer) -> Result<Self, RunError> {
        let file = |name: &str| {
            let path = dir.join(name);
            OpenOptions::new().create(true).append(true).open(&path).map_err(RunError::file("open", &path))
        };
        let path = dir.join(FENCE);
        let fence = DurableFence::open_or_create(&path, ELECTION).map_err(failed(&path))?;
        Ok(Self { writer, fence, ledger: file(LEDGER)?, journal: file(JOURNAL)? })
    }

    /// Creates the fence, before a job needs it.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn make(dir: &Path) -> Result<(), RunError> {
        let path = dir.join(FENCE);
        DurableFence::open_or_create(&path, ELECTION).map(|_| ()).map_err(failed(&path))
    }

    /// Writes a line, unless the fence has seen a later leader. The caller does not check whether it still leads,
    /// like a leader that was paused after its check.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn write(&mut self) -> Result<Outcome, RunError> {
        let Self { writer, fence, ledger, .. } = self;
        let wrote = fence.admit_and(FencingToken(writer.token), || {
            append(ledger, &Line { writer: writer.clone(), boot_ns: clock::now().as_nanos() })
        });
        match wrote {
            Ok(wrote) => {
                wrote.map(|()| Outcome::Accepted).map_err(RunError::file("write", Path::new(LEDGER)))
            }
            Err(DurableFenceError::Stale(stale)) => {
                self.tell(JobReport::Refused { highest: highest(&stale) })?;
                Ok(Outcome::Refused)
            }
            Err(error) => Err(failed(Path::new(FENCE))(error)),
        }
    }

    /// Writes a report to the journal.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn tell(&mut self, report: JobReport) -> Result<(), RunError> {
        self.tell_of(clock::now(), report)
    }

    /// Writes a report of this time to the journal.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn tell_of(&mut self, at: Instant, report: JobReport) -> Result<(), RunError> {
        let entry = Entry { writer: self.writer.clone(), boot_ns: at.as_nanos(), report };
        append(&mut self.journal, &entry).map_err(RunError::file("write", Path::new(JOURNAL)))
    }
}

fn highest(stale: &primacy::fence::FenceError) -> u64 {
    let primacy::fence::FenceError::Stale { highest, .. } = stale;
    highest.0
}

fn failed(path: &Path) -> impl FnOnce(DurableFenceError) -> RunError {
    let path: PathBuf = path.to_owned();
    move |error| RunError::File { doing: "use", path, error: std::io::Error::other(error.to_string()) }
}
