//! A table of an SQLite database.

use std::io;
use std::path::Path;
use std::time::Duration;

use primacy::fence::sqlite::rusqlite::{Connection, OpenFlags};
use primacy::fence::sqlite::{Answer, Attempt, GuardError, attempt};
use primacy::stores::ownership::open_trusted;
use primacy::stores::{Check, Verdict};

use super::{REFUSES, WHY};

/// How long others may keep the write lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// A table, and the file that it is in.
#[derive(Debug)]
pub(crate) struct Table {
    path: String,
    name: String,
}

impl Table {
    /// What stands behind `sqlite:`, as stores have it, and the table's name as the database spells it.
    pub(super) fn parse(rest: &str, name: &str) -> Self {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        Self { path: path.to_owned(), name: name.to_owned() }
    }

    /// Tries inserts in a transaction that is rolled back.
    pub(super) fn try_out(&self, election: Option<&str>) -> Check {
        // The triggers of its owner would run in this process.
        if let Err(error) = open_trusted(Path::new(&self.path), 0)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            let found = format!("{}: nothing was tried: {}: {error}", self.name, self.path);
            return Check::not(Verdict::Unknown, REFUSES, found, WHY, "ask as the user whose it is");
        }
        match self.ask() {
            Ok(attempt) => self.judge(&attempt, election),
            Err(error) => {
                let fix = "see that the file is there and has this table, that this user may write it, and that nobody keeps it locked";
                Check::not(Verdict::Unknown, REFUSES, format!("{}: {error}", self.name), WHY, fix)
            }
        }
    }

    fn ask(&self) -> Result<Attempt, GuardError> {
        // It is not made where it is missing.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        attempt(&mut connection, &self.name)
    }

    fn judge(&self, attempt: &Attempt, election: Option<&str>) -> Check {
        let name = &self.name;
        let not = |verdict, found: String, fix: String| Check::not(verdict, REFUSES, found, WHY, fix);
        let wanted = election.or(attempt.election.as_deref()).unwrap_or("NAME");
        let install = format!("primacy::fence::sqlite::install(&mut connection, {wanted:?}, &[{name:?}])");
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
