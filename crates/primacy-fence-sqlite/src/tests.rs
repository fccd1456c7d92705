//! Tests of the guard with writers that do not use this crate: plain SQL through plain connections.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use primacy_core::rng::Rng;

use super::*;

/// The environment variable with the path of the database to which the child processes of a test write.
const DATABASE_VARIABLE: &str = "PRIMACY_TEST_GUARDED_DATABASE";

struct Database {
    directory: PathBuf,
}

impl Database {
    /// Makes a database in WAL mode with a guarded ledger, which has one row with the token 5.
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("primacy-guard-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let database = Self { directory };
        let mut connection = database.connect();
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 CREATE TABLE ledger(id INTEGER PRIMARY KEY, token INTEGER NOT NULL, body TEXT UNIQUE);
                 CREATE TABLE free(a);",
            )
            .unwrap();
        install(&mut connection, "e", &["ledger"]).unwrap();
        fenced(&mut connection, "e", FencingToken(5), |transaction| {
            transaction.execute_batch("INSERT INTO ledger VALUES (1, 5, 'first')")?;
            Ok(())
        })
        .unwrap();
        database
    }

    fn path(&self) -> PathBuf {
        self.directory.join("guarded.db")
    }

    fn connect(&self) -> Connection {
        connect(&self.path())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Connects as a program in any language would: with foreign keys as SQLite has them by default,
/// off.
fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(20)).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection
}

/// Returns all content that must not change when a write is refused.
fn content(connection: &Connection) -> Vec<String> {
    let select = "SELECT id || ' ' || token || ' ' || body FROM main.ledger
                  UNION ALL SELECT 'fence ' || election || ' ' || highest FROM main.primacy_fence
                  UNION ALL SELECT 'shown ' || election || ' ' || token FROM main.primacy_token
                  UNION ALL SELECT 'never ' || id FROM main.primacy_never";
    let mut select = connection.prepare(select).unwrap();
    select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Runs statements that must fail, and rolls back the transaction that they have begun.
fn refusal(connection: &Connection, sql: &str) -> String {
    let before = content(connection);
    let error = connection.execute_batch(sql).expect_err(sql).to_string();
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK").unwrap();
    }
    assert_eq!(content(connection), before, "{sql}");
    error
}

#[test]
fn plain_sql_with_a_token_is_admitted_and_raises_the_fence() {
    let database = Database::new("plain");
    let connection = database.connect();
    connection
        .execute_batch(
            "PRAGMA foreign_keys = ON;
             BEGIN IMMEDIATE;
             INSERT INTO primacy_token(election, token) VALUES ('e', 7);
             INSERT INTO ledger(token, body) VALUES (7, 'second');
             UPDATE ledger SET body = 'changed' WHERE id = 1;
             INSERT OR REPLACE INTO ledger(id, token, body) VALUES (1, 7, 'replaced');
             DELETE FROM ledger WHERE id = 2;
             DELETE FROM primacy_token WHERE election = 'e';
             COMMIT;",
        )
        .unwrap();
    assert_eq!(content(&connection), ["1 7 replaced", "fence e 7"]);
    assert_eq!(highest(&connection, "e").unwrap(), FencingToken(7));
    connection.execute_batch("INSERT INTO free VALUES (1)").expect("other tables are not guarded");
}

#[test]
fn a_write_without_a_token_is_refused_however_it_is_worded() {
    let database = Database::new("without");
    for recursive in ["OFF", "ON"] {
        let connection = database.connect();
        connection.execute_batch(&format!("PRAGMA recursive_triggers = {recursive}")).unwrap();
        for sql in [
            "INSERT INTO ledger(token) VALUES (9)",
            "INSERT OR IGNORE INTO ledger(token) VALUES (9)",
            "INSERT OR REPLACE INTO ledger(id, token, body) VALUES (1, 9, 'first')",
            "REPLACE INTO ledger(id, token, body) VALUES (1, 9, 'first')",
            "INSERT INTO ledger(id, token) VALUES (1, 9) ON CONFLICT DO UPDATE SET token = 9",
            "UPDATE ledger SET token = 9",
            "UPDATE OR IGNORE ledger SET token = 9",
            "UPDATE OR REPLACE ledger SET body = 'first'",
            "DELETE FROM ledger",
            "WITH one AS (SELECT 1 AS id) DELETE FROM ledger WHERE id IN one",
            "CREATE TEMP TABLE primacy_token AS SELECT 'e' AS election, 5 AS token; DELETE FROM ledger",
            "BEGIN; SAVEPOINT s; DELETE FROM ledger; COMMIT",
        ] {
            let error = refusal(&connection, sql);
            assert!(error.contains("no token of the election e is shown"), "{sql}: {error}");
            connection.execute_batch("DROP TABLE IF EXISTS temp.primacy_token").unwrap();
        }
    }
}

#[test]
fn a_stale_token_or_none_at_all_is_refused() {
    let database = Database::new("stale");
    let connection = database.connect();
    connection.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    for (values, reason) in [
        ("('e', 4)", "stale token"),
        ("('e', -1)", "a token is a whole number"),
        ("('e', 9.5)", "a token is a whole number"),
        ("('e', 'many')", "a token is a whole number"),
        ("('e', x'39')", "a token is a whole number"),
        ("('e', NULL)", ""),
        ("('other', 9)", "no fence is installed for this election"),
        ("(x'65', 9)", "no fence is installed for this election"),
    ] {
        for verb in ["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE"] {
            let sql = format!(
                "BEGIN IMMEDIATE; {verb} INTO primacy_token(election, token) VALUES {values}; DELETE FROM ledger"
            );
            let error = refusal(&connection, &sql);
            assert!(error.contains(reason), "{sql}: {error}");
        }
    }
}

#[test]
fn no_transaction_can_leave_its_token_for_others() {
    let database = Database::new("leave");
    let connection = database.connect();
    let show = "INSERT INTO primacy_token(election, token) VALUES ('e', 9)";
    assert!(refusal(&connection, show).contains("foreign_keys = ON"), "they are off");
    let off = format!("BEGIN; PRAGMA foreign_keys = ON; {show}; COMMIT");
    assert!(refusal(&connection, &off).contains("foreign_keys = ON"), "too late inside a transaction");

    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA ignore_check_constraints = ON").unwrap();
    for sql in [
        show.to_owned(),
        format!("BEGIN; {show}; COMMIT"),
        format!("BEGIN; {show}; PRAGMA foreign_keys = OFF; COMMIT"),
        format!("BEGIN; PRAGMA defer_foreign_keys = ON; {show}; COMMIT"),
        format!("SAVEPOINT s; {show}; RELEASE s"),
        format!("BEGIN; {show}; SAVEPOINT s; DELETE FROM primacy_token; ROLLBACK TO s; COMMIT"),
        format!("BEGIN; {show}; INSERT INTO primacy_never VALUES (1); COMMIT"),
        format!("BEGIN; {show}; INSERT OR REPLACE INTO primacy_never VALUES (1); COMMIT"),
        "INSERT INTO primacy_token VALUES ('e', 9, NULL)".to_owned(),
        format!("BEGIN; {show}; UPDATE primacy_token SET never = NULL; COMMIT"),
        format!("BEGIN; {show}; UPDATE OR REPLACE primacy_token SET election = 'f'; COMMIT"),
        format!("BEGIN; {show}; {show}; COMMIT"),
        format!(
            "BEGIN; {show}; INSERT OR REPLACE INTO primacy_token(election, token) VALUES ('e', 10); COMMIT"
        ),
        format!(
            "BEGIN; {show}; SAVEPOINT s; ROLLBACK TO s; DELETE FROM primacy_token; DELETE FROM ledger; COMMIT"
        ),
        format!("BEGIN; SAVEPOINT s; {show}; ROLLBACK TO s; DELETE FROM ledger; COMMIT"),
    ] {
        refusal(&connection, &sql);
    }
}

#[test]
fn the_highest_token_cannot_be_lowered() {
    let database = Database::new("lower");
    for recursive in ["OFF", "ON"] {
        let connection = database.connect();
        connection.execute_batch(&format!("PRAGMA recursive_triggers = {recursive}")).unwrap();
        for sql in [
            "UPDATE primacy_fence SET highest = 4",
            "UPDATE OR REPLACE primacy_fence SET highest = 4",
            "UPDATE primacy_fence SET highest = NULL",
            "UPDATE primacy_fence SET highest = 'x'",
            "UPDATE primacy_fence SET election = 'f'",
            "DELETE FROM primacy_fence",
            "INSERT INTO primacy_fence VALUES ('e', 4)",
            "INSERT OR REPLACE INTO primacy_fence VALUES ('e', 4)",
            "INSERT INTO primacy_fence VALUES ('e', 4) ON CONFLICT DO UPDATE SET highest = 4",
            "INSERT INTO primacy_fence VALUES ('f', 'x')",
            "INSERT INTO primacy_fence VALUES ('f', -1)",
        ] {
            refusal(&connection, sql);
        }
    }
    let connection = database.connect();
    connection.execute_batch("UPDATE primacy_fence SET highest = 6").expect("an operator may raise it");
    assert!(
        refusal(
            &connection,
            "PRAGMA foreign_keys = ON; INSERT INTO primacy_token(election, token) VALUES ('e', 5)"
        )
        .contains("stale")
    );
}

#[test]
fn a_cascade_into_a_guarded_table_is_refused() {
    let database = Database::new("cascade");
    let mut connection = database.connect();
    connection
        .execute_batch(
            "PRAGMA foreign_keys = ON;
             CREATE TABLE parent(id INTEGER PRIMARY KEY);
             CREATE TABLE child(parent REFERENCES parent(id) ON DELETE CASCADE ON UPDATE CASCADE);
             INSERT INTO parent VALUES (1);
             INSERT INTO child VALUES (1);",
        )
        .unwrap();
    install(&mut connection, "e", &["child"]).unwrap();
    for sql in ["DELETE FROM parent", "UPDATE parent SET id = 2"] {
        assert!(refusal(&connection, sql).contains("no token"), "{sql}");
    }
}

#[test]
fn the_helper_is_all_or_nothing_and_tells_stale_from_the_rest() {
    let database = Database::new("helper");
    let (mut new, mut old) = (database.connect(), database.connect());
    fenced(&mut new, "e", FencingToken(8), |_| Ok(())).unwrap();
    let late = fenced(&mut old, "e", FencingToken(5), |_| -> Result<(), _> { unreachable!("not admitted") });
    let stale = FenceError::Stale { presented: FencingToken(5), highest: FencingToken(8) };
    assert!(matches!(late, Err(GuardError::Stale(error)) if error == stale));

    let before = content(&new);
    let given_up = fenced(&mut new, "e", FencingToken(9), |transaction| -> Result<(), _> {
        transaction.execute("INSERT INTO ledger(token) VALUES (9)", [])?;
        Err(GuardError::Application("no".into()))
    });
    assert!(matches!(given_up, Err(GuardError::Application(_))));
    assert_eq!(content(&new), before, "neither the line nor the token");
    assert!(matches!(
        fenced(&mut new, "f", FencingToken(9), |_| Ok(())),
        Err(GuardError::NotInstalled { election }) if election == "f"
    ));
    assert!(matches!(
        fenced(&mut new, "e", FencingToken(u64::MAX), |_| Ok(())),
        Err(GuardError::TooHigh { .. })
    ));
    let foreign_keys: bool = new.pragma_query_value(None, "foreign_keys", |row| row.get(0)).unwrap();
    assert!(!foreign_keys, "the connection is as it was");
}

#[test]
fn it_is_installed_once_or_not_at_all() {
    let database = Database::new("install");
    let mut connection = database.connect();
    let schema = |connection: &Connection| -> i64 {
        connection.pragma_query_value(None, "schema_version", |row| row.get(0)).unwrap()
    };
    let before = schema(&connection);
    install(&mut connection, "e", &["LEDGER"]).expect("the same again");
    install(&mut connection, "other", &[]).expect("one more election");
    assert_eq!(schema(&connection), before);
    assert_eq!(highest(&connection, "e").unwrap(), FencingToken(5));

    connection
        .execute_batch(
            "CREATE VIEW seen AS SELECT * FROM ledger; CREATE VIRTUAL TABLE words USING fts5(word);
             CREATE TABLE \"odd \"\" name\"(a); CREATE TABLE later(a)",
        )
        .unwrap();
    for table in ["seen", "words", "absent", "primacy_fence", "sqlite_schema"] {
        let error = install(&mut connection, "e", &["later", table]).expect_err(table);
        assert!(matches!(error, GuardError::Table { .. }), "{table}: {error}");
    }
    connection.execute_batch("INSERT INTO later VALUES (1)").expect("not installed in part");
    let error = install(&mut connection, "other", &["ledger"]).expect_err("guarded by another election");
    assert!(matches!(error, GuardError::Foreign { .. }), "{error}");
    install(&mut connection, "it's", &["odd \" name"]).unwrap();
    assert!(refusal(&connection, "INSERT INTO \"odd \"\" name\" VALUES (1)").contains("it's"));
}

#[test]
fn tables_of_the_same_names_in_temp_are_not_taken_for_those_of_the_database() {
    let database = Database::new("temp");
    let mut connection = database.connect();
    let shadows = "CREATE TEMP TABLE ledger(id INTEGER PRIMARY KEY, token INTEGER); CREATE TEMP TABLE later(a); \
                   CREATE TEMP TABLE primacy_fence(election, highest); INSERT INTO temp.primacy_fence VALUES ('e', 0); \
                   CREATE TEMP TABLE primacy_token(election, token); CREATE TABLE main.later(a)";
    connection.execute_batch(shadows).unwrap();
    install(&mut connection, "e", &["ledger", "later"]).unwrap();
    fenced(&mut connection, "e", FencingToken(9), |_| Ok(())).unwrap();
    let stale = fenced(&mut connection, "e", FencingToken(8), |_| Ok(())).expect_err("stale");
    assert!(matches!(stale, GuardError::Stale(_)), "{stale}");
    assert!(refusal(&connection, "INSERT INTO main.later VALUES (1)").contains("is shown"));
    connection.execute_batch("INSERT INTO later VALUES (1)").expect("that one is nobody else's");
    assert_eq!(attempt(&mut connection, "later").unwrap().without, Answer::Refused);
}

#[test]
fn a_trigger_of_others_on_the_tables_of_the_guard_is_told() {
    let database = Database::new("foreign-trigger");
    let mut connection = database.connect();
    let foreign = "CREATE TRIGGER theirs AFTER INSERT ON primacy_token BEGIN SELECT 1; END";
    connection.execute_batch(foreign).unwrap();
    let error = install(&mut connection, "e", &["ledger"]).expect_err("it would be run");
    assert!(matches!(error, GuardError::Foreign { name } if name == "theirs"));
}

#[test]
fn a_token_that_was_left_by_force_is_noticed() {
    let database = Database::new("force");
    let mut connection = database.connect();
    connection
        .execute_batch(
            "DROP TRIGGER primacy_token_insert; INSERT INTO primacy_token(election, token) VALUES ('e', 5)",
        )
        .unwrap();
    let error = fenced(&mut connection, "e", FencingToken(9), |_| Ok(())).expect_err("the guard is open");
    assert!(matches!(error, GuardError::LeftOver { .. }), "{error}");
}

/// The work of each child process of the next test; not a test itself.
#[test]
fn write_as_a_child() {
    let Some(path) = std::env::var_os(DATABASE_VARIABLE) else { return };
    let mut connection = connect(Path::new(&path));
    let mut rng = Rng::new(u64::from(std::process::id()));
    for _ in 0..100 {
        // Sometimes above the highest token and sometimes below it, as a zombie's.
        let highest = highest(&connection, "e").unwrap().0;
        let token = (highest + rng.up_to(4)).saturating_sub(2);
        let number = i64::try_from(token).unwrap();
        let written = fenced(&mut connection, "e", FencingToken(token), |transaction| {
            transaction.execute("INSERT INTO ledger(token) VALUES (?1)", [number])?;
            Ok(())
        });
        assert!(matches!(written, Ok(()) | Err(GuardError::Stale(_))), "{written:?}");
    }
}

#[test]
fn the_ledger_of_many_processes_never_goes_down() {
    let database = Database::new("processes");
    let children: Vec<_> = (0..4)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::write_as_a_child"])
                .env(DATABASE_VARIABLE, database.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let connection = database.connect();
    let mut select = connection.prepare("SELECT token FROM ledger ORDER BY id").unwrap();
    let tokens: Vec<i64> = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(tokens.len() > 100, "only {} were admitted", tokens.len());
    assert!(tokens.is_sorted(), "{tokens:?}");
}
