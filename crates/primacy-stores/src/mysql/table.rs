//! The table, and the statements that are sent to it.
//!
//! Values are written as numbers and as hexadecimal literals, so no setting of a server changes how a statement is read.

use std::fmt::Write as _;

use super::connection::{Answer, Connection, QueryError};
use super::packet::Row;
use super::refusal;
use crate::open_error::OpenError;
use crate::record;

/// The table in the database of the URL.
pub(super) const NAME: &str = "primacy_record";

/// The statement that makes the table. Names of elections are bytes: a collation would treat some as equal, for example those that differ
/// by a trailing space. Reads that must be as durable as a write increment `confirmations`.
pub(super) const CREATE: &str = "CREATE TABLE IF NOT EXISTS primacy_record(election VARBINARY(200) NOT NULL PRIMARY KEY, \
                                 version BIGINT NOT NULL, confirmations BIGINT NOT NULL, record MEDIUMBLOB NOT NULL) ENGINE = InnoDB";

/// The columns: each with its name, its type, the length of the type if it matters, and its key.
const COLUMNS: [[&str; 4]; 4] = [
    ["election", "varbinary", "200", "PRI"],
    ["version", "bigint", "", ""],
    ["confirmations", "bigint", "", ""],
    ["record", "mediumblob", "16777215", ""],
];

/// An expression that is 1 where the server takes writes. A user with all rights could write to a server that should not take any. Servers
/// have the setting as a number or as a word.
const TAKES_WRITES: &str = "@@global.read_only IN ('0', 'OFF')";

/// A transaction that writes, and the indexes of its answers.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) statements: String,
    /// Whether the server takes writes.
    pub(super) takes_writes_at: usize,
    /// The rows that were written.
    pub(super) written_at: usize,
    pub(super) commit_at: usize,
}

/// A statement that reads an election, and the indexes of its answers.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) statements: String,
    /// The version and the record.
    pub(super) found_at: usize,
    /// Whether the server takes writes. It is read last: if it does, the record that was read before was the latest.
    pub(super) takes_writes_at: usize,
}

fn columns() -> String {
    // Of a record that is too long, only enough bytes to detect that.
    format!("version, SUBSTRING(record, 1, {})", record::LENGTH_MAX + 1)
}

/// Reads the version and the record.
pub(super) fn read(election: &str) -> Reading {
    let (columns, election) = (columns(), hex(election.as_bytes()));
    let statements =
        format!("SELECT {columns} FROM {NAME} WHERE election = {election}; SELECT {TAKES_WRITES}");
    Reading { statements, found_at: 0, takes_writes_at: 1 }
}

/// Like [`read`], but a result that is returned survives a crash of the server. InnoDB shows a row as soon as its transaction is committed
/// in memory, which is before that is on disk; a transaction that comes later, and writes, waits until both are.
pub(super) fn read_durably(election: &str) -> Reading {
    let (columns, election) = (columns(), hex(election.as_bytes()));
    let statements = format!(
        "START TRANSACTION; UPDATE {NAME} SET confirmations = confirmations + 1 WHERE election = {election}; \
         SELECT {columns} FROM {NAME} WHERE election = {election} FOR UPDATE; COMMIT; SELECT {TAKES_WRITES}"
    );
    Reading { statements, found_at: 2, takes_writes_at: 4 }
}

/// Reads the version alone.
pub(super) fn look(election: &str) -> String {
    format!("SELECT version FROM {NAME} WHERE election = {}", hex(election.as_bytes()))
}

/// Writes the first record, if there is none. A second insert finds the key of the first, and waits for its commit.
pub(super) fn insert(election: &str, version: i64, record: &[u8]) -> Writing {
    let (election, record) = (hex(election.as_bytes()), hex(record));
    let statements = format!(
        "START TRANSACTION; SELECT {TAKES_WRITES}; INSERT INTO {NAME}(election, version, confirmations, record) \
         SELECT {election}, {version}, 0, {record} FROM DUAL WHERE {TAKES_WRITES}; COMMIT"
    );
    Writing { statements, takes_writes_at: 1, written_at: 2, commit_at: 3 }
}

/// Replaces the record if its version is `expect`. The row is locked before it is read, in its last committed state.
pub(super) fn update(election: &str, expect: i64, version: i64, record: &[u8]) -> Writing {
    let (election, record) = (hex(election.as_bytes()), hex(record));
    let statements = format!(
        "START TRANSACTION; SELECT {TAKES_WRITES}; SELECT version FROM {NAME} WHERE election = {election} FOR UPDATE; \
         UPDATE {NAME} SET version = {version}, record = {record} \
         WHERE election = {election} AND version = {expect} AND {TAKES_WRITES}; COMMIT"
    );
    Writing { statements, takes_writes_at: 1, written_at: 3, commit_at: 4 }
}

/// A literal of bytes.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len() + 3);
    text.push_str("x'");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

/// A value as text.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    String::from_utf8(row.get(column)?.clone()?).ok()
}

/// Returns whether the table exists; it is made if `create` is set.
///
/// # Errors
/// [`OpenError::Refused`] if it is not this store's, or must not be made.
pub(super) async fn ensure(connection: &mut Connection, create: bool) -> Result<bool, OpenError> {
    if is_there(connection).await? || !create {
        return is_there(connection).await;
    }
    match connection.query(CREATE).await {
        Ok(_) => {}
        Err(QueryError::Server { error, .. }) if refusal::lacks_right(&error) => {
            let why = format!(
                "there is no table {NAME}, and it cannot be made ({}). Have an administrator run: {CREATE}; GRANT SELECT, INSERT, UPDATE \
                 ON {NAME} TO …",
                refusal::told(&error)
            );
            return Err(OpenError::Refused { why });
        }
        Err(error) => return Err(of_query(error)),
    }
    if is_there(connection).await? {
        return Ok(true);
    }
    let why = format!(
        "the table {NAME} was made, and this user may not see it: GRANT SELECT, INSERT, UPDATE ON {NAME} TO …"
    );
    Err(OpenError::Refused { why })
}

fn of_query(error: QueryError) -> OpenError {
    match error {
        QueryError::Server { error, .. } => refusal::of_opening(&error),
        QueryError::Broken(why) => OpenError::Unavailable { why },
    }
}

/// Returns whether the table exists; an error if it has another shape.
async fn is_there(connection: &mut Connection) -> Result<bool, OpenError> {
    let of_table = |column: &str| format!("{column}_SCHEMA = DATABASE() AND {column}_NAME = '{NAME}'");
    let question = format!(
        "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE {table}; \
         SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH, COLUMN_KEY, IS_NULLABLE, EXTRA FROM information_schema.COLUMNS \
         WHERE {table} ORDER BY ORDINAL_POSITION; \
         SELECT CONSTRAINT_NAME FROM information_schema.TABLE_CONSTRAINTS WHERE {table}; \
         SELECT TRIGGER_NAME, DEFINER FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE() \
         AND EVENT_OBJECT_TABLE = '{NAME}'; \
         SELECT COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS WHERE {table} AND INDEX_NAME = 'PRIMARY'",
        table = of_table("TABLE")
    );
    let answers = connection.query(&question).await.map_err(of_query)?;
    match judge(&answers) {
        Ok(is_there) => Ok(is_there),
        Err(why) => Err(OpenError::Refused {
            why: format!(
                "the table {NAME} {why}; it is none of Primacy's, and was left as it is. Name another database"
            ),
        }),
    }
}

/// Returns whether there is a table, or the reason that it must not be used.
fn judge(answers: &[Answer]) -> Result<bool, String> {
    let [tables, columns, constraints, triggers, key] = answers else {
        return Err("is described by the server in a way that no server of MySQL does".to_owned());
    };
    let Some(table) = tables.rows.first() else { return Ok(false) };
    if text(table, 0).as_deref() != Some("BASE TABLE") {
        return Err("is no ordinary table".to_owned());
    }
    if text(table, 1).is_none_or(|engine| !engine.eq_ignore_ascii_case("InnoDB")) {
        return Err("is not kept by InnoDB, and so has no transactions".to_owned());
    }
    let describe = |row: &Row| {
        let column = |at| text(row, at).unwrap_or_default();
        let length = if column(1) == "bigint" { String::new() } else { column(2) };
        [column(0), column(1).to_lowercase(), length, column(3)]
    };
    let is_plain =
        |row: &Row| text(row, 4).as_deref() == Some("NO") && text(row, 5).unwrap_or_default().is_empty();
    let has_columns = columns.rows.iter().map(describe).eq(COLUMNS.map(|column| column.map(str::to_owned)));
    if !has_columns || !columns.rows.iter().all(is_plain) {
        return Err("has other columns".to_owned());
    }
    // A user who may only read does not see constraints. A key over a prefix would treat two elections as one.
    if key.rows.len() > 1 || key.rows.iter().any(|part| text(part, 1).is_some()) {
        return Err("has a key that is not the whole name of the election".to_owned());
    }
    if constraints.rows.len() > 1 {
        return Err("has constraints beside its key".to_owned());
    }
    if let Some(trigger) = triggers.rows.first() {
        let part = |at| text(trigger, at).unwrap_or_default();
        return Err(format!(
            "has the trigger {:?} of {:?}, which can change what is written",
            part(0),
            part(1)
        ));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Answer {
        let row = |row: &&[&str]| row.iter().map(|value| Some(value.as_bytes().to_vec())).collect();
        Answer { rows: rows.iter().map(row).collect(), affected: 0 }
    }

    fn ours() -> [Answer; 5] {
        let columns: [&[&str]; 4] = [
            &["election", "varbinary", "200", "PRI", "NO", ""],
            &["version", "bigint", "", "", "NO", ""],
            &["confirmations", "bigint", "", "", "NO", ""],
            &["record", "mediumblob", "16777215", "", "NO", ""],
        ];
        let whole = Answer { rows: vec![vec![Some(b"election".to_vec()), None]], affected: 0 };
        [rows(&[&["BASE TABLE", "InnoDB"]]), rows(&columns), rows(&[&["PRIMARY"]]), rows(&[]), whole]
    }

    #[test]
    fn only_a_table_of_this_shape_is_used() {
        assert_eq!(judge(&ours()), Ok(true));
        assert_eq!(judge(&[(); 5].map(|()| rows(&[]))), Ok(false));
        let others = [
            (0, rows(&[&["VIEW", ""]]), "ordinary"),
            (0, rows(&[&["BASE TABLE", "MyISAM"]]), "InnoDB"),
            (1, rows(&[&["election", "varchar", "200", "PRI", "NO", ""]]), "columns"),
            (2, rows(&[&["PRIMARY"], &["fk"]]), "constraints"),
            (3, rows(&[&["t", "mallory@%"]]), "mallory"),
            (4, rows(&[&["election", "3"]]), "whole name"),
        ];
        for (part, other, said) in others {
            let mut answers = ours();
            answers[part] = other;
            let why = judge(&answers).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn no_name_of_an_election_gets_out_of_its_literal() {
        let statement = update("' OR 1=1 -- \\", 1, 2, b"'").statements;
        assert!(
            !statement.contains("OR 1=1") && statement.contains("x'27204f5220313d31202d2d205c'"),
            "{statement}"
        );
    }
}
