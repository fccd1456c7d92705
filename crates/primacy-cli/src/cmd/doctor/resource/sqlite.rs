//! A table of an SQLite database.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use primacy::fence::Answer;
use primacy::stores::ownership::check_run_here;
use primacy::stores::{Check, Verdict};
use primacy_fence_sqlite::rusqlite::{Connection, OpenFlags};
use primacy_fence_sqlite::{Attempt, GuardError, attempt};

use super::{REFUSES, WHY};

/// The longest wait for the write lock of other processes.
const PATIENCE: Duration = Duration::from_secs(5);
/// The bound of the whole trial, since a trigger could run without end.
const LONGEST: Duration = Duration::from_secs(5);
/// The number of steps of a statement between two checks of the time: some 100 µs.
const STEPS: i32 = 10_000;
/// The suffixes of files beside a database that SQLite treats as parts of it.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A table, and its file.
#[derive(Debug)]
pub(crate) struct Table {
    path: String,
    name: String,
}

impl Table {
    /// Creates the table of a database: `rest` is the text after `sqlite:`, as in a store's URL, and `name` is the
    /// table's name as the database spells it.
    pub(super) fn parse(rest: &str, name: &str) -> Self {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        Self { path: path.to_owned(), name: name.to_owned() }
    }

    /// Tries inserts in a transaction that is rolled back.
    pub(super) fn try_out(&self, election: Option<&str>) -> Check {
        let unknown = |found: String, fix| {
            Check::not(Verdict::Unknown, REFUSES, format!("{}: {found}", self.name), WHY, fix)
        };
        let missing = "see that the file is there and has this table, that this user may write it, and that nobody keeps it locked";
        // Triggers that other users could create there would run in this process.
        let path = match check_run_here(Path::new(&self.path), &BESIDE) {
            Ok(path) => path,
            Err(error) => {
                let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
                let fix = if is_refused { "mend that, or ask as the user whose it is" } else { missing };
                return unknown(format!("nothing was tried: {}: {error}", self.path), fix);
            }
        };
        let is_ended = Arc::new(AtomicBool::new(false));
        match self.ask(&path, Arc::clone(&is_ended)) {
            _ if is_ended.load(Ordering::Relaxed) => {
                let found = format!("the trial was ended after {LONGEST:?}, with nothing written");
                unknown(found, "find out which trigger of this table takes so long")
            }
            Ok(attempt) => self.judge(&attempt, election),
            Err(error) => unknown(error.to_string(), missing),
        }
    }

    fn ask(&self, path: &Path, is_ended: Arc<AtomicBool>) -> Result<Attempt, GuardError> {
        // A missing database is not created.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        let begun = Instant::now();
        let ends = move || {
            let is_late = begun.elapsed() >= LONGEST;
            is_ended.fetch_or(is_late, Ordering::Relaxed);
            is_late
        };
        connection.progress_handler(STEPS, Some(ends))?;
        attempt(&mut connection, &self.name)
    }

    fn judge(&self, attempt: &Attempt, election: Option<&str>) -> Check {
        let name = &self.name;
        let not = |verdict, found: String, fix: String| Check::not(verdict, REFUSES, found, WHY, fix);
        let wanted = election.or(attempt.election.as_deref()).unwrap_or("NAME");
        let install = format!("primacy_fence_sqlite::install(&mut connection, {wanted:?}, &[{name:?}])");
        let Some(guarded) = &attempt.election else {
            let found = format!("{name} has no guard");
            return match &attempt.without {
                Answer::Admitted => not(
                    Verdict::Fail,
                    format!("{found}: an insert without a token was let in, and taken back"),
                    install,
                ),
                Answer::Refused | Answer::Failed { .. } => not(Verdict::Fail, found, install),
            };
        };
        if !attempt.unguarded.is_empty() {
            let found = format!("{name} has no guard before {}", attempt.unguarded.join(" and "));
            return not(Verdict::Fail, found, install);
        }
        for (answer, what) in
            [(Some(&attempt.without), "an insert without a token"), (attempt.stale.as_ref(), "a stale token")]
        {
            match answer {
                Some(Answer::Refused) => {}
                Some(Answer::Admitted) => {
                    let found = format!("{name}: {what} was let in, and taken back");
                    let fix = "find out who has worked around the guard: see docs/fencing.md".to_owned();
                    return not(Verdict::Fail, found, fix);
                }
                Some(Answer::Failed { why }) => {
                    let found = format!("{name}: {what} failed for another reason: {why}");
                    return not(Verdict::Unknown, found, "mend that, and ask again".to_owned());
                }
                None => return not(Verdict::Unknown, format!("{name}: {what} was not tried"), String::new()),
            }
        }
        if election.is_some_and(|election| election != guarded) {
            let found = format!("{name} is guarded for the election {guarded}, and not for {wanted}");
            let fix = format!("--election {guarded}, if that is meant; a table has one guard");
            return not(Verdict::Fail, found, fix);
        }
        let highest = attempt.highest.unwrap_or_default();
        let found = format!(
            "{name} refused an insert without a token, and a stale token of the election {guarded}; the same guard stands before \
             updates and deletes; the highest token there is {highest}"
        );
        Check::pass(REFUSES, found)
    }
}
