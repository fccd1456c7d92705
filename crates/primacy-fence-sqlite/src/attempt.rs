//! Trial writes that a guard must refuse, and that are rolled back.

use primacy_core::fence::FencingToken;
use rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use super::{Answer, GuardError, WRITES, find_table, guard_trigger, highest, quoted, stored_sql};

/// The outcomes of writes to a table that a guard must refuse. All were rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The election whose tokens the guard compares; `None` if the table has no guard.
    pub election: Option<String>,
    /// The operations among `INSERT`, `UPDATE` and `DELETE` that the guard does not refuse.
    pub unguarded: Vec<&'static str>,
    /// The highest token that was shown there; `None` if the table has no guard.
    pub highest: Option<FencingToken>,
    /// The answer to an insert without a token.
    pub without: Answer,
    /// The answer to a write with a token below the highest one, and to an insert if that was admitted; `None` where the table has no
    /// guard, and where the insert without a token has ended the transaction.
    pub stale: Option<Answer>,
}

/// Tries inserts of a row of default values, in a transaction that is rolled back. Other connections cannot write meanwhile. Foreign keys
/// stay on for this connection.
///
/// # Errors
/// [`GuardError`], also where there is no such table.
pub fn attempt(connection: &mut Connection, table: &str) -> Result<Attempt, GuardError> {
    // The setting cannot be changed inside a transaction.
    connection.pragma_update(None, "foreign_keys", true)?;
    // It is dropped at the end, which rolls everything back.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let table = find_table(&transaction, table)?;
    let (election, unguarded) = find_guard(&transaction, &table)?;
    // An insert of a row is needed: SQLite's triggers run for each row, and not for a statement without rows.
    let insert = format!("INSERT INTO main.{} DEFAULT VALUES", quoted(&table, '"'));
    let without = answer(transaction.execute(&insert, []));
    let (mut highest_shown, mut stale) = (None, None);
    if let Some(election) = &election {
        let shown = highest(&transaction, election)?;
        highest_shown = Some(shown);
        // Otherwise a trigger with RAISE(ROLLBACK), or an interrupt, has ended the transaction, and further writes would be kept.
        if !transaction.is_autocommit() {
            stale = Some(try_stale(&transaction, election, shown, &insert)?);
        }
    }
    Ok(Attempt { election, unguarded, highest: highest_shown, without, stale })
}

/// Returns the election whose guard the table has, and the operations that it does not refuse.
fn find_guard(
    transaction: &Transaction<'_>,
    table: &str,
) -> Result<(Option<String>, Vec<&'static str>), GuardError> {
    if stored_sql(transaction, "primacy_fence")?.is_none() {
        return Ok((None, WRITES.to_vec()));
    }
    let mut select = transaction.prepare("SELECT election FROM main.primacy_fence")?;
    let elections = select.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    for election in elections {
        let mut unguarded = Vec::new();
        for write in WRITES {
            let (name, sql) = guard_trigger(table, &election, write);
            if stored_sql(transaction, &name)?.as_deref() != Some(&sql) {
                unguarded.push(write);
            }
        }
        if unguarded.len() < WRITES.len() {
            return Ok((Some(election), unguarded));
        }
    }
    Ok((None, WRITES.to_vec()))
}

fn try_stale(
    transaction: &Transaction<'_>,
    election: &str,
    highest: FencingToken,
    insert: &str,
) -> Result<Answer, GuardError> {
    let show = |token: u64| {
        // Tokens in the database fit into `i64`.
        let token = i64::try_from(token).unwrap_or(i64::MAX);
        transaction
            .execute("INSERT INTO main.primacy_token(election, token) VALUES (?1, ?2)", (election, token))
    };
    if highest == FencingToken(0) {
        // No leader has shown one yet: 1 makes 0 stale, until this is rolled back.
        show(1)?;
        transaction.execute("DELETE FROM main.primacy_token WHERE election = ?1", [election])?;
    }
    Ok(match show(highest.0.saturating_sub(1)) {
        Ok(_) => answer(transaction.execute(insert, [])),
        refused @ Err(_) => answer(refused),
    })
}

fn answer(result: Result<usize, rusqlite::Error>) -> Answer {
    let (code, extended, why) = match result {
        Ok(_) => return Answer::Admitted,
        Err(rusqlite::Error::SqliteFailure(code, why)) => {
            (code.code, code.extended_code, why.unwrap_or_default())
        }
        Err(error) => return Answer::Failed { why: error.to_string() },
    };
    let is_of_a_trigger = extended == SQLITE_CONSTRAINT_TRIGGER;
    if is_of_a_trigger && why.starts_with("primacy: ") {
        Answer::Refused
    } else if code == ErrorCode::ConstraintViolation && !is_of_a_trigger {
        // Guards run before the constraints of a row are checked, so the guard has admitted it.
        Answer::Admitted
    } else {
        Answer::Failed { why }
    }
}

#[cfg(test)]
mod tests {
    use super::super::install;
    use super::*;

    /// Makes a database with a table whose rows cannot consist of defaults only.
    fn database(tables: &[&str]) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        let tables_sql =
            "CREATE TABLE ledger(id INTEGER PRIMARY KEY, body TEXT NOT NULL); CREATE TABLE \"a b\"(a);";
        connection.execute_batch(tables_sql).unwrap();
        install(&mut connection, "orders", tables).unwrap();
        connection
    }

    #[test]
    fn a_guard_refuses_both_and_nothing_is_kept() {
        let mut connection = database(&["ledger", "a b"]);
        for (table, shown) in [("ledger", 0), ("A B", 0), ("ledger", 42)] {
            let show = "UPDATE primacy_fence SET highest = ?1";
            connection.execute(show, [i64::try_from(shown).unwrap()]).unwrap();
            let expected = Attempt {
                election: Some("orders".to_owned()),
                unguarded: Vec::new(),
                highest: Some(FencingToken(shown)),
                without: Answer::Refused,
                stale: Some(Answer::Refused),
            };
            assert_eq!(attempt(&mut connection, table).unwrap(), expected);
            assert_eq!(highest(&connection, "orders").unwrap(), FencingToken(shown));
        }
    }

    #[test]
    fn a_table_without_a_guard_or_with_half_of_one_is_told() {
        let mut connection = database(&["ledger"]);
        let none = attempt(&mut connection, "a b").unwrap();
        assert_eq!((none.election, none.without, none.stale), (None, Answer::Admitted, None));
        let count = |connection: &Connection, table: &str| {
            let count = format!("SELECT count(*) FROM {}", quoted(table, '"'));
            connection.query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!(count(&connection, "a b"), 0);
        connection.execute_batch("DROP TRIGGER primacy_guard_update_ledger").unwrap();
        let half = attempt(&mut connection, "ledger").unwrap();
        assert_eq!((half.unguarded, half.without), (vec!["UPDATE"], Answer::Refused));
        // A violated constraint shows that no guard refused the row.
        connection.execute_batch("DROP TRIGGER primacy_guard_insert_ledger").unwrap();
        assert_eq!(attempt(&mut connection, "ledger").unwrap().without, Answer::Admitted);
        connection.execute_batch("DROP TRIGGER primacy_token_insert").unwrap();
        assert_eq!(attempt(&mut connection, "ledger").unwrap().stale, Some(Answer::Admitted));
        assert_eq!(count(&connection, "ledger") + count(&connection, "primacy_token"), 0);
        assert!(matches!(attempt(&mut connection, "none"), Err(GuardError::Table { .. })));
        let other = "CREATE TRIGGER other BEFORE INSERT ON \"a b\" BEGIN SELECT RAISE(ABORT, 'closed'); END";
        connection.execute_batch(other).unwrap();
        let closed = attempt(&mut connection, "a b").unwrap().without;
        assert_eq!(closed, Answer::Failed { why: "closed".to_owned() });
    }

    #[test]
    fn nothing_is_kept_where_a_trigger_has_ended_the_transaction() {
        let mut connection = database(&["ledger"]);
        let other =
            "CREATE TRIGGER other BEFORE INSERT ON ledger BEGIN SELECT RAISE(ROLLBACK, 'closed'); END";
        connection.execute_batch(other).unwrap();
        let closed = attempt(&mut connection, "ledger").unwrap();
        assert_eq!((closed.without, closed.stale), (Answer::Failed { why: "closed".to_owned() }, None));
        assert_eq!(highest(&connection, "orders").unwrap(), FencingToken(0));
    }
}
