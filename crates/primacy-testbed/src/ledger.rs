//! The resource that jobs write to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use primacy_fence_sqlite::install;
use primacy_fence_sqlite::rusqlite::Connection;

/// A ledger in SQLite, guarded by the fence.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    connection: Connection,
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub line: i64,
    pub token: i64,
    pub writer: String,
    pub boot_ns: u64,
}

impl Ledger {
    pub fn create(path: &Path, election: &str) -> Self {
        let mut connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        let table = "CREATE TABLE ledger(line INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL, \
                     writer TEXT NOT NULL, boot_ns INTEGER NOT NULL)";
        connection.execute_batch(table).unwrap();
        install(&mut connection, election, &["ledger"]).unwrap();
        Self { path: path.to_owned(), connection }
    }

    pub fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// True if no process is in the middle of a write.
    pub fn is_free(&self) -> bool {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
    }

    pub fn last(&self) -> Option<Line> {
        self.lines("ORDER BY line DESC LIMIT 1").pop()
    }

    /// The first line with a token above this one.
    pub fn first_above(&self, token: i64) -> Option<Line> {
        self.lines(&format!("WHERE token > {token} ORDER BY line LIMIT 1")).pop()
    }

    pub fn all(&self) -> Vec<Line> {
        self.lines("ORDER BY line")
    }

    fn lines(&self, which: &str) -> Vec<Line> {
        let select = format!("SELECT line, token, writer, boot_ns FROM ledger {which}");
        let mut select = self.connection.prepare(&select).unwrap();
        let line = |row: &primacy_fence_sqlite::rusqlite::Row<'_>| {
            let boot_ns: i64 = row.get(3)?;
            Ok(Line {
                line: row.get(0)?,
                token: row.get(1)?,
                writer: row.get(2)?,
                boot_ns: boot_ns.unsigned_abs(),
            })
        };
        select.query_map([], line).unwrap().map(Result::unwrap).collect()
    }
}
