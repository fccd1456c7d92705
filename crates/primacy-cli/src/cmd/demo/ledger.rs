//! The resource of the demo: a table in an SQLite database, guarded by the fence.

use std::path::{Path, PathBuf};
use std::time::Duration;

use primacy::{FencingToken, clock};
use primacy_fence_sqlite::rusqlite::{self, Connection};
use primacy_fence_sqlite::{GuardError, fenced, install};

/// A connection to a ledger: a table to which every leader adds lines under its token.
#[derive(Debug)]
pub(crate) struct Ledger {
    connection: Connection,
    election: String,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// The line is in the ledger.
    Accepted,
    /// The fence refused it: a later leader, with this token, has written before.
    Refused { highest: FencingToken },
}

/// The longest wait of a write for another transaction.
const BUSY_MAX: Duration = Duration::from_secs(5);

const INSERT: &str = "INSERT INTO ledger(token, writer, boot_ns) VALUES (?1, ?2, ?3)";

impl Ledger {
    /// Creates the ledger, guarded by the fence of `election`.
    pub(crate) fn create(path: &Path, election: &str) -> Result<Self, GuardError> {
        let mut ledger = Self::create_unguarded(path, election)?;
        install(&mut ledger.connection, election, &["ledger"])?;
        Ok(ledger)
    }

    /// Creates a ledger that accepts every write, since an advisory leader has no token.
    pub(crate) fn create_unguarded(path: &Path, election: &str) -> Result<Self, GuardError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_MAX)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS ledger(line INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL, \
             writer TEXT NOT NULL, boot_ns INTEGER NOT NULL)",
        )?;
        Ok(Self { connection, election: election.to_owned() })
    }

    /// Opens an existing ledger.
    pub(crate) fn open(path: &Path, election: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_MAX)?;
        // The demo shows crashes of processes, not of machines; a flush for every line would only slow it down.
        connection.pragma_update(None, "synchronous", "normal")?;
        Ok(Self { connection, election: election.to_owned() })
    }

    /// Adds a line, unless the fence refuses the token.
    pub(crate) fn append(&mut self, token: FencingToken, writer: &str) -> Result<Write, GuardError> {
        let now = i64::try_from(clock::now().as_nanos()).unwrap_or(i64::MAX);
        let number = i64::try_from(token.0).unwrap_or(i64::MAX);
        let written = fenced(&mut self.connection, &self.election, token, |transaction| {
            transaction.execute(INSERT, (number, writer, now))?;
            Ok(())
        });
        match written {
            Ok(()) => Ok(Write::Accepted),
            Err(GuardError::Stale(primacy::core::FenceError::Stale { highest, .. })) => {
                Ok(Write::Refused { highest })
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a line to a ledger that no fence guards.
    pub(crate) fn append_unguarded(&mut self, term: u64, writer: &str) -> Result<(), GuardError> {
        let now = i64::try_from(clock::now().as_nanos()).unwrap_or(i64::MAX);
        let number = i64::try_from(term).unwrap_or(i64::MAX);
        self.connection.execute(INSERT, (number, writer, now))?;
        Ok(())
    }

    /// Counts the lines written under a token lower than that of an earlier line. The fence keeps this at zero.
    pub(crate) fn stale_lines(&self) -> rusqlite::Result<u64> {
        let count = "SELECT count(*) FROM (SELECT token, max(token) OVER (ORDER BY line) AS highest FROM ledger) \
                     WHERE token < highest";
        self.count(count)
    }

    /// Counts the lines.
    pub(crate) fn lines(&self) -> rusqlite::Result<u64> {
        self.count("SELECT count(*) FROM ledger")
    }

    /// Counts the lines written by another writer than the line before.
    pub(crate) fn turns(&self) -> rusqlite::Result<u64> {
        let count = "SELECT count(*) FROM (SELECT writer, lag(writer) OVER (ORDER BY line) AS before FROM ledger) \
                     WHERE writer <> before";
        self.count(count)
    }

    fn count(&self, query: &str) -> rusqlite::Result<u64> {
        // A count is not negative.
        self.connection.query_row(query, [], |row| row.get(0)).map(i64::unsigned_abs)
    }
}

/// Returns whether no process is inside a transaction that writes to this database. A process that is paused inside one
/// keeps all others from writing. That is how SQLite works, and is not what a demo of fencing should show.
pub(crate) fn is_free(path: &PathBuf) -> rusqlite::Result<bool> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_millis(20))?;
    match connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
        Ok(()) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Ok(false),
        Err(error) => Err(error),
    }
}
