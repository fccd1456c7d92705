#![doc = include_str!("../README.md")]

mod attempt;

use std::error::Error;

use primacy::fence::Answer;
use primacy_core::fence::{Fence, FenceError, FencingToken};
pub use rusqlite;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

pub use self::attempt::{Attempt, attempt};

/// The tables and triggers that are the same for all elections, each with its name and its SQL.
const OBJECTS: [(&str, &str); 9] = [
    (
        "primacy_fence",
        "CREATE TABLE primacy_fence(election TEXT NOT NULL PRIMARY KEY, highest INTEGER NOT NULL) WITHOUT ROWID",
    ),
    ("primacy_never", "CREATE TABLE primacy_never(id INTEGER PRIMARY KEY CHECK (0))"),
    (
        "primacy_token",
        "CREATE TABLE primacy_token(election TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL, \
         never INTEGER NOT NULL DEFAULT 1 REFERENCES primacy_never(id) DEFERRABLE INITIALLY DEFERRED) WITHOUT ROWID",
    ),
    (
        "primacy_never_insert",
        "CREATE TRIGGER primacy_never_insert BEFORE INSERT ON primacy_never BEGIN \
         SELECT RAISE(ABORT, 'primacy: this table stays empty'); END",
    ),
    (
        "primacy_token_insert",
        "CREATE TRIGGER primacy_token_insert BEFORE INSERT ON primacy_token BEGIN \
         SELECT RAISE(ABORT, 'primacy: PRAGMA foreign_keys = ON must come before the transaction') \
           WHERE (SELECT foreign_keys FROM pragma_foreign_keys) IS NOT 1; \
         SELECT RAISE(ABORT, 'primacy: no fence is installed for this election') \
           WHERE NOT EXISTS (SELECT 1 FROM primacy_fence WHERE election = NEW.election); \
         SELECT RAISE(ABORT, 'primacy: a token is a whole number') \
           WHERE typeof(NEW.token) <> 'integer' OR NEW.token < 0; \
         SELECT RAISE(ABORT, 'primacy: stale token; a later leader has been here') \
           WHERE NEW.token < (SELECT highest FROM primacy_fence WHERE election = NEW.election); \
         SELECT RAISE(ABORT, 'primacy: a token is shown already') \
           WHERE EXISTS (SELECT 1 FROM primacy_token WHERE election = NEW.election); END",
    ),
    // An update and not an upsert: in a trigger, a conflict clause of the outer statement replaces the inner one.
    (
        "primacy_token_inserted",
        "CREATE TRIGGER primacy_token_inserted AFTER INSERT ON primacy_token BEGIN \
         UPDATE primacy_fence SET highest = NEW.token WHERE election = NEW.election AND highest < NEW.token; END",
    ),
    (
        "primacy_token_update",
        "CREATE TRIGGER primacy_token_update BEFORE UPDATE ON primacy_token BEGIN \
         SELECT RAISE(ABORT, 'primacy: a token is shown by an insert'); END",
    ),
    (
        "primacy_fence_update",
        "CREATE TRIGGER primacy_fence_update BEFORE UPDATE ON primacy_fence BEGIN \
         SELECT RAISE(ABORT, 'primacy: the highest token never goes down') WHERE NEW.election IS NOT OLD.election \
           OR typeof(NEW.highest) <> 'integer' OR NEW.highest < OLD.highest; END",
    ),
    (
        "primacy_fence_delete",
        "CREATE TRIGGER primacy_fence_delete BEFORE DELETE ON primacy_fence BEGIN \
         SELECT RAISE(ABORT, 'primacy: the highest token is never forgotten'); END",
    ),
];

/// Installed separately, so that the first row of an election is inserted before it exists.
const FENCE_INSERT: (&str, &str) = (
    "primacy_fence_insert",
    "CREATE TRIGGER primacy_fence_insert BEFORE INSERT ON primacy_fence BEGIN \
     SELECT RAISE(ABORT, 'primacy: the highest token never goes down') WHERE typeof(NEW.highest) <> 'integer' \
       OR NEW.highest < 0 OR EXISTS (SELECT 1 FROM primacy_fence WHERE election = NEW.election); END",
);

/// The writes that a guarded table refuses.
const WRITES: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

/// The reason why a guard was not installed, or a guarded write was not made.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// A later leader has shown a higher token. Nothing was written.
    #[error(transparent)]
    Stale(#[from] FenceError),
    /// No fence for this election was installed in this database. Nothing was written.
    #[error("this database has no fence for the election {election:?}; install it first")]
    NotInstalled {
        /// The election.
        election: String,
    },
    /// A table cannot be guarded. Nothing was installed.
    #[error("the table {table:?} cannot be guarded: {why}")]
    Table {
        /// The table.
        table: String,
        /// The reason.
        why: &'static str,
    },
    /// A table or trigger with a name that the guard needs belongs to another program, another election or a later version. Nothing was
    /// installed.
    #[error("the database has a {name:?} that is not this guard's; look at it in sqlite_schema")]
    Foreign {
        /// The name of the table or trigger.
        name: String,
    },
    /// A token has stayed in `primacy_token`, which the guard does not allow: the guard was bypassed, and the guarded tables accept writes.
    /// Nothing was written.
    #[error(
        "a token was left in primacy_token, so somebody has worked around the fence of {election:?}; find out \
         who, then DELETE FROM primacy_token"
    )]
    LeftOver {
        /// The election.
        election: String,
    },
    /// SQLite has no whole numbers above 2⁶³ − 1. Nothing was written.
    #[error("the token {presented} is too high for SQLite")]
    TooHigh {
        /// The token.
        presented: FencingToken,
    },
    /// The application's own error. Nothing was written.
    #[error(transparent)]
    Application(Box<dyn Error + Send + Sync>),
    /// The database failed. If it was the commit that failed, the write may have been made.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Guards `tables` with the fence of `election`, in one transaction. Installed parts are kept: it may be called at every start.
///
/// # Errors
/// [`GuardError`]; nothing was changed then.
pub fn install(connection: &mut Connection, election: &str, tables: &[&str]) -> Result<(), GuardError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (name, sql) in OBJECTS {
        ensure(&transaction, name, sql)?;
    }
    let known = "SELECT 1 FROM main.primacy_fence WHERE election = ?1";
    if transaction.query_row(known, [election], |_| Ok(())).optional()?.is_none() {
        transaction
            .execute("INSERT INTO main.primacy_fence(election, highest) VALUES (?1, 0)", [election])?;
    }
    ensure(&transaction, FENCE_INSERT.0, FENCE_INSERT.1)?;
    for table in tables {
        let table = find_table(&transaction, table)?;
        for write in WRITES {
            let (name, sql) = guard_trigger(&table, election, write);
            ensure(&transaction, &name, &sql)?;
        }
    }
    refuse_foreign(&transaction)?;
    transaction.commit()?;
    Ok(())
}

/// Refuses foreign triggers on the guard's own tables, which could change the data that it checks.
fn refuse_foreign(connection: &Connection) -> Result<(), GuardError> {
    let mut select = connection.prepare(
        "SELECT name FROM main.sqlite_schema WHERE type = 'trigger' \
         AND tbl_name IN ('primacy_fence', 'primacy_never', 'primacy_token')",
    )?;
    let names = select.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let is_ours = |name: &str| OBJECTS.iter().chain([&FENCE_INSERT]).any(|(ours, _)| *ours == name);
    match names.into_iter().find(|name| !is_ours(name)) {
        Some(name) => Err(GuardError::Foreign { name }),
        None => Ok(()),
    }
}

/// Makes the writes of `write` in one transaction, with `token` shown: all of them, or none.
///
/// A new leader should call this once with nothing to write: from then on its predecessor is refused.
///
/// # Errors
/// [`GuardError::Stale`] if a later leader has shown a higher token; and the error of `write`. Nothing was written then, unless the commit
/// itself failed.
pub fn fenced<T>(
    connection: &mut Connection,
    election: &str,
    token: FencingToken,
    write: impl FnOnce(&Transaction<'_>) -> Result<T, GuardError>,
) -> Result<T, GuardError> {
    // The setting cannot be changed inside a transaction.
    let foreign_keys: bool = connection.pragma_query_value(None, "foreign_keys", |row| row.get(0))?;
    if !foreign_keys {
        connection.pragma_update(None, "foreign_keys", true)?;
    }
    let result = fenced_transaction(connection, election, token, write);
    if !foreign_keys {
        connection.pragma_update(None, "foreign_keys", false)?;
    }
    result
}

fn fenced_transaction<T>(
    connection: &mut Connection,
    election: &str,
    token: FencingToken,
    write: impl FnOnce(&Transaction<'_>) -> Result<T, GuardError>,
) -> Result<T, GuardError> {
    let number = i64::try_from(token.0).map_err(|_| GuardError::TooHigh { presented: token })?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // The trigger would refuse it too, but could not name the highest token.
    let admitted = Fence::new(highest(&transaction, election)?).admit(token);
    admitted.inspect_err(|FenceError::Stale { .. }| primacy::fence::count_refused())?;
    let left = "SELECT 1 FROM main.primacy_token WHERE election = ?1";
    if transaction.query_row(left, [election], |_| Ok(())).optional()?.is_some() {
        return Err(GuardError::LeftOver { election: election.to_owned() });
    }
    transaction
        .execute("INSERT INTO main.primacy_token(election, token) VALUES (?1, ?2)", (election, number))?;
    // If it fails, the transaction is dropped, which rolls it back.
    let written = write(&transaction)?;
    transaction.execute("DELETE FROM main.primacy_token WHERE election = ?1", [election])?;
    transaction.commit()?;
    Ok(written)
}

/// Returns the highest token that was shown to this database.
///
/// # Errors
/// [`GuardError::NotInstalled`] or [`GuardError::Sqlite`].
pub fn highest(connection: &Connection, election: &str) -> Result<FencingToken, GuardError> {
    let not_installed = || GuardError::NotInstalled { election: election.to_owned() };
    if stored_sql(connection, "primacy_fence")?.is_none() {
        return Err(not_installed());
    }
    let select = "SELECT highest FROM main.primacy_fence WHERE election = ?1";
    let highest: Option<i64> = connection.query_row(select, [election], |row| row.get(0)).optional()?;
    // The triggers keep it from being negative.
    highest.map(|highest| FencingToken(highest.unsigned_abs())).ok_or_else(not_installed)
}

/// Makes a table or trigger unless it exists; an error if the name is used for something else.
fn ensure(connection: &Connection, name: &str, sql: &str) -> Result<(), GuardError> {
    match stored_sql(connection, name)? {
        // Made in the schema `main`: without it, a table of the same name in `temp` would get the trigger. The stored SQL has no schema.
        None => {
            let in_main = |kind: &&str| sql.strip_prefix(kind).map(|rest| format!("{kind}main.{rest}"));
            let sql = ["CREATE TABLE ", "CREATE TRIGGER "].iter().find_map(in_main);
            Ok(connection.execute_batch(&sql.expect("it makes a table or a trigger"))?)
        }
        Some(stored) if stored == sql => Ok(()),
        Some(_) => Err(GuardError::Foreign { name: name.to_owned() }),
    }
}

fn stored_sql(connection: &Connection, name: &str) -> Result<Option<String>, rusqlite::Error> {
    let select = "SELECT sql FROM main.sqlite_schema WHERE name = ?1 COLLATE NOCASE";
    connection.query_row(select, [name], |row| row.get(0)).optional()
}

/// Returns the table's name as the database spells it.
fn find_table(connection: &Connection, table: &str) -> Result<String, GuardError> {
    let refused = |why| Err(GuardError::Table { table: table.to_owned(), why });
    let select = "SELECT type, name, sql FROM main.sqlite_schema \
                  WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found: Option<(String, String, Option<String>)> =
        connection.query_row(select, [table], row).optional()?;
    let Some((kind, name, sql)) = found else { return refused("there is no such table") };
    if kind == "view" {
        return refused("it is a view; guard the tables behind it");
    }
    if sql.is_none_or(|sql| sql.to_ascii_uppercase().starts_with("CREATE VIRTUAL")) {
        return refused("it is a virtual table, and those have no triggers");
    }
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("primacy_") || lower.starts_with("sqlite_") {
        return refused("it is not a table of the application");
    }
    Ok(name)
}

/// Returns the name and the SQL of the trigger that refuses one kind of write to one table.
fn guard_trigger(table: &str, election: &str, write: &str) -> (String, String) {
    let name = format!("primacy_guard_{}_{table}", write.to_ascii_lowercase());
    let sql = format!(
        "CREATE TRIGGER {} BEFORE {write} ON {} WHEN NOT EXISTS (SELECT 1 FROM primacy_token JOIN primacy_fence \
         ON primacy_fence.election = primacy_token.election WHERE primacy_token.election = {} \
         AND primacy_token.token = primacy_fence.highest) BEGIN SELECT RAISE(ABORT, {}); END",
        quoted(&name, '"'),
        quoted(table, '"'),
        quoted(election, '\''),
        quoted(&format!("primacy: no token of the election {election} is shown"), '\''),
    );
    (name, sql)
}

fn quoted(text: &str, quote: char) -> String {
    format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}")))
}

#[cfg(test)]
mod tests;
