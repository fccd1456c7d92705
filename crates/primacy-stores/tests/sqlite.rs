//! Promises of the SQLite store beyond the laws that every store passes: about files, and about other programs.
#![cfg(feature = "sqlite")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::sqlite::{APPLICATION_ID, open, open_existing};
use primacy_stores::{OpenError, ReadError, Register, SetError};
use rusqlite::Connection;

/// Far more than anything here takes; a wait of this length is for an event that does not come.
const BOUND: Duration = Duration::from_secs(20);

/// A directory that goes away with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("primacy-sqlite-{}-{number}", std::process::id()));
        // Not where every user could have made it: root would not use another user's there.
        let path = path.join("own");
        fs::create_dir_all(&path).expect("the temporary directory can be written");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().expect("it has one"));
    }
}

fn record(token: u64) -> Record {
    Record::released(FencingToken(token), primacy_core::Duration::from_secs(10))
}

/// Returns the reason that a database is not opened; it, and its directory, stay as they were.
async fn refusal(path: &Path) -> OpenError {
    let before = fs::read(path).ok();
    let error = open(path, "e").await.expect_err("this must not be opened");
    assert_eq!(fs::read(path).ok(), before);
    error
}

#[tokio::test]
async fn a_new_database_has_a_released_record_and_nothing_to_wait_for() {
    let directory = Directory::new();
    let path = directory.file("new.db");
    let earliest = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let register = open(&path, "e").await.unwrap();
    let (released, version) = register.read().await.unwrap().expect("a record");
    assert_eq!(released.holder, None);
    assert!(u128::from(released.token.0) >= earliest);
    register.compare_and_set(Some(&version), &record(released.token.0 + 1)).await.unwrap();

    let again = open(&path, "e").await.unwrap();
    assert_eq!(again.read().await.unwrap().unwrap().0.token.0, released.token.0 + 1, "opened, not made anew");
    let other = open(&path, "other").await.unwrap();
    assert_eq!(other.read().await.unwrap(), None, "absence in an old database is absence");
}

#[tokio::test]
async fn many_who_open_a_new_database_at_once_find_one_record() {
    for round in 0..10 {
        let directory = Directory::new();
        let path = directory.file("raced.db");
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                tokio::spawn(async move { open(&path, "e").await.unwrap().read().await.unwrap().unwrap() })
            })
            .collect();
        let mut found = Vec::new();
        for opened in opening {
            found.push(opened.await.unwrap());
        }
        assert!(found.iter().all(|other| *other == found[0]), "round {round}: {found:?}");
    }
}

#[tokio::test]
async fn looking_makes_no_database() {
    let directory = Directory::new();
    let path = directory.file("absent.db");
    let error = open_existing(&path, "e").await.expect_err("there is none");
    assert!(matches!(error, OpenError::Unavailable { .. }), "{error}");
    assert!(!path.exists());
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_as_it_is() {
    let directory = Directory::new();
    let contents: [&[u8]; 5] =
        [b"x", b"not a database\n", &[0; 100], &[b'y'; 5000], b"SQLite format 3\0and then nonsense"];
    for (number, content) in contents.iter().enumerate() {
        let path = directory.file(&format!("foreign-{number}"));
        fs::write(&path, content).unwrap();
        let error = refusal(&path).await;
        assert!(matches!(error, OpenError::Refused { .. }), "{number}: {error:?}");
        assert!(error.to_string().contains("left as it is"), "{error}");
    }
    assert!(matches!(refusal(&directory.0).await, OpenError::Refused { .. }));
    let nowhere = refusal(&directory.file("no/such/directory.db")).await.to_string();
    assert!(nowhere.contains("directory"), "{nowhere}");
    std::os::unix::fs::symlink(directory.file("gone"), directory.file("dangling")).unwrap();
    assert!(matches!(refusal(&directory.file("dangling")).await, OpenError::Unavailable { .. }));
    assert!(matches!(refusal(Path::new("/dev/null")).await, OpenError::Refused { .. }));
}

#[tokio::test]
async fn a_path_is_never_taken_for_a_name_that_sqlite_reserves() {
    // Relative to the directory that the tests run in, and never made: both would open without one.
    for name in [":memory:", "file:x?mode=memory"] {
        let error = open_existing(Path::new(name), "e").await.expect_err("no such file");
        assert!(matches!(error, OpenError::Unavailable { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_database_of_an_application_is_a_host_and_gets_nothing_but_the_table() {
    let directory = Directory::new();
    let path = directory.file("host.db");
    let host = Connection::open(&path).unwrap();
    host.execute_batch("PRAGMA application_id = 7; PRAGMA user_version = 3; CREATE TABLE theirs(a)").unwrap();
    let register = open(&path, "e").await.unwrap();
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'primacy_record'";
    assert_eq!(register.read().await.unwrap(), None);
    assert_eq!(host.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "reading adds nothing");

    register.compare_and_set(None, &record(1)).await.unwrap();
    assert_eq!(host.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    let pragma =
        |name| host.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
    assert_eq!(pragma("application_id"), 7.into());
    assert_eq!(pragma("user_version"), 3.into());
    assert_eq!(pragma("journal_mode"), "delete".to_owned().into());
}

#[tokio::test]
async fn a_schema_of_somebody_else_or_of_a_later_version_is_refused() {
    let directory = Directory::new();
    let path = directory.file("theirs.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE primacy_record(a, b)").unwrap();
    let error = refusal(&path).await;
    assert!(error.to_string().contains("columns a, b"), "{error}");
    // Two elections would share a record, or a write would be refused.
    let columns = "version INTEGER NOT NULL, record BLOB NOT NULL";
    let planted = [
        format!("election TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, {columns}"),
        format!("election TEXT NOT NULL, {columns}, PRIMARY KEY (election, version)"),
        format!("election TEXT NOT NULL PRIMARY KEY, {columns}, UNIQUE (version)"),
        format!("election TEXT NOT NULL, {columns}"),
        format!("election NUMERIC NOT NULL PRIMARY KEY, {columns}"),
        format!(
            "election TEXT NOT NULL, {columns}); CREATE UNIQUE INDEX i ON primacy_record(election) WHERE (version < 0"
        ),
        format!(
            "election TEXT NOT NULL PRIMARY KEY, {columns}); CREATE UNIQUE INDEX i ON primacy_record((1)"
        ),
    ];
    for (number, columns) in planted.iter().enumerate() {
        let path = directory.file(&format!("planted{number}.db"));
        let create = format!("CREATE TABLE primacy_record({columns})");
        Connection::open(&path).unwrap().execute_batch(&create).unwrap();
        let error = refusal(&path).await.to_string();
        assert!(error.contains("unique columns"), "{create}: {error}");
    }

    let path = directory.file("later.db");
    drop(open(&path, "e").await.unwrap());
    let connection = Connection::open(&path).unwrap();
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).unwrap();
    assert_eq!(id, APPLICATION_ID);
    connection.pragma_update(None, "user_version", 2).unwrap();
    let error = open(&path, "e").await.expect_err("a later version");
    assert!(error.to_string().contains("upgrade"), "{error}");
}

/// The rights of a file, and its group.
fn rights(path: &Path) -> (u32, u32) {
    let metadata = fs::metadata(path).expect("it is there");
    (metadata.mode() & 0o7777, metadata.gid())
}

#[tokio::test]
async fn a_database_of_another_user_or_open_to_others_is_refused_or_closed() {
    let directory = Directory::new();
    let path = directory.file("election.db");
    let beside = |end: &str| directory.file(&format!("election.db{end}"));
    let register = open(&path, "e").await.unwrap();
    for file in [path.clone(), beside("-wal"), beside("-shm")] {
        assert_eq!(rights(&file).0, 0o600, "{}", file.display());
    }
    // One of an earlier version.
    for file in [path.clone(), beside("-wal"), beside("-shm")] {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    open(&path, "e").await.unwrap();
    for file in [path.clone(), beside("-wal"), beside("-shm")] {
        assert_eq!(rights(&file).0, 0o600, "{}", file.display());
    }
    register.read().await.unwrap().expect("nobody was disturbed");
    // Another name would have a journal of its own.
    fs::hard_link(&path, directory.file("other.db")).unwrap();
    assert!(refusal(&path).await.to_string().contains("hard links"));
    fs::remove_file(directory.file("other.db")).unwrap();
    for mode in [0o777, 0o1777] {
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(mode)).unwrap();
        assert!(refusal(&path).await.to_string().contains("everybody may make files"), "{mode:o}");
    }
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).unwrap();
    drop(register);
    // Both connections close on threads of their own. The last one removes the log, but none does where both close at the same time.
    let closed = async {
        while beside("-wal").exists() {
            let last = Connection::open(&path).unwrap();
            let _ = last.query_row("SELECT count(*) FROM primacy_record", [], |_| Ok(()));
            drop(last);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(BOUND, closed).await.expect("the database is closed");
    let others = directory.file("others");
    fs::write(&others, "text").unwrap();
    fs::set_permissions(&others, fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::symlink(&others, beside("-journal")).unwrap();
    assert!(refusal(&path).await.to_string().contains("-journal is a symbolic link"));
    assert_eq!((rights(&others).0, fs::read(&others).unwrap()), (0o644, b"text".to_vec()));
    fs::remove_file(beside("-journal")).unwrap();
    if rustix::process::geteuid().is_root() {
        // Another user's journal, and database, in the directory of a third one.
        std::os::unix::fs::chown(&directory.0, Some(65532), None).unwrap();
        let nobody = |path: &Path| std::os::unix::fs::chown(path, Some(65534), None).unwrap();
        fs::write(beside("-journal"), "").unwrap();
        nobody(&beside("-journal"));
        let why = refusal(&path).await.to_string();
        assert!(why.contains("-journal belongs to the user nobody (65534)"), "{why}");
        fs::remove_file(beside("-journal")).unwrap();
        nobody(&path);
        let why = refusal(&path).await.to_string();
        assert!(why.contains("election.db belongs to the user nobody (65534)"), "{why}");
        // Shared on purpose.
        let url = format!("sqlite:{}?group=65533", directory.file("shared.db").display());
        primacy_stores::open(&url, "e").await.unwrap();
        assert_eq!(rights(&directory.file("shared.db")), (0o660, 65533));
        nobody(&directory.file("shared.db"));
        let again = primacy_stores::open(&url, "e").await.map(drop);
        assert!(again.is_ok(), "a member of the group has made it: {again:?}");
        // In a directory of that user's own, it is what root means.
        nobody(&directory.0);
        open(&path, "e").await.unwrap();
        // But not where every user could have made it.
        let above = directory.0.parent().unwrap();
        fs::set_permissions(above, fs::Permissions::from_mode(0o1777)).unwrap();
        let why = refusal(&path).await.to_string();
        assert!(why.contains("election.db belongs to the user nobody (65534)"), "{why}");
    } else {
        // Not by a macro: what a test prints is not shown when it passes.
        let _ = std::io::stderr().write_all(b"NOT RUN: a database of another user takes root\n");
    }
}

#[tokio::test]
async fn a_trigger_or_a_view_in_the_place_of_the_table_is_refused() {
    let directory = Directory::new();
    let path = directory.file("trigger.db");
    drop(open(&path, "e").await.unwrap());
    let host = Connection::open(&path).unwrap();
    host.execute_batch("CREATE TRIGGER deaf BEFORE UPDATE ON primacy_record BEGIN SELECT RAISE(IGNORE); END")
        .unwrap();
    assert!(refusal(&path).await.to_string().contains("trigger deaf"));
    host.execute_batch(
        "DROP TRIGGER deaf; ALTER TABLE primacy_record RENAME TO real; \
                        CREATE VIEW primacy_record AS SELECT * FROM real",
    )
    .unwrap();
    assert!(refusal(&path).await.to_string().contains("view primacy_record"));
}

#[tokio::test]
async fn a_write_with_plain_sql_wakes_a_waiter() {
    let directory = Directory::new();
    let path = directory.file("sql.db");
    let register = open(&path, "e").await.unwrap();
    let (_, version) = register.read().await.unwrap().unwrap();
    let changed = register.changed();
    let writer = Connection::open(&path).unwrap();
    let planted = std::thread::spawn(move || {
        writer.execute("UPDATE primacy_record SET version = version + 1, record = 'by hand'", []).unwrap();
    });
    tokio::time::timeout(BOUND, changed).await.expect("the write is noticed");
    planted.join().unwrap();
    let error = register.read().await.expect_err("that was no record");
    assert!(matches!(error, ReadError::Malformed { .. }), "{error}");
    assert_eq!(register.compare_and_set(Some(&version), &record(2)).await, Err(SetError::Conflict));
}

/// No node could overwrite the record, so none could be elected: that is reported, and wakes waiters once.
#[tokio::test]
async fn a_version_that_no_write_follows_is_malformed() {
    let directory = Directory::new();
    let path = directory.file("version.db");
    let register = open(&path, "e").await.unwrap();
    let writer = Connection::open(&path).unwrap();
    let set = |sql: &str| writer.execute(&format!("UPDATE primacy_record SET {sql}"), []).unwrap();
    for (sql, says) in [
        ("version = 9223372036854775807", "its version is 9223372036854775807, and a version is"),
        ("version = version + 1", "its version is a value of the type Real"),
        ("version = 0", "its version is 0,"),
        ("version = -7", "its version is -7,"),
        ("version = 'seven'", "its version is a value of the type Text"),
        ("version = 7, record = 7.5", "neither bytes nor text"),
    ] {
        set(sql);
        let error = register.read().await.expect_err(sql);
        assert!(matches!(&error, ReadError::Malformed { .. }), "{sql}: {error:?}");
        assert!(error.to_string().contains(says), "{sql}: {error}");
        // A handle that has seen it is not woken by it again.
        let woken = tokio::time::timeout(Duration::from_millis(100), register.changed()).await;
        assert!(woken.is_err(), "{sql}");
    }
}

#[tokio::test]
async fn a_file_that_was_removed_is_not_written_any_more() {
    let directory = Directory::new();
    let path = directory.file("removed.db");
    let register = open(&path, "e").await.unwrap();
    let (_, version) = register.read().await.unwrap().unwrap();
    fs::remove_file(&path).unwrap();
    let set = register.compare_and_set(Some(&version), &record(1)).await;
    assert!(matches!(set, Err(SetError::Unavailable { .. })), "{set:?}");
    drop(open(&path, "e").await.unwrap());
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })), "another file is there now");
}

#[tokio::test]
async fn a_log_that_was_removed_from_beside_its_database_is_not_written_any_more() {
    for beside in ["-wal", "-shm"] {
        let directory = Directory::new();
        let path = directory.file("log-removed.db");
        let register = open(&path, "e").await.unwrap();
        let (_, version) = register.read().await.unwrap().unwrap();
        let version = register.compare_and_set(Some(&version), &record(1)).await.unwrap();
        fs::remove_file(directory.file(&format!("log-removed.db{beside}"))).unwrap();
        let set = register.compare_and_set(Some(&version), &record(2)).await;
        assert!(matches!(set, Err(SetError::Unavailable { .. })), "{beside}: {set:?}");
        // SQLite makes another one for the next process that opens the database.
        drop(Connection::open(&path).unwrap().execute_batch("PRAGMA user_version"));
        assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })), "{beside}");
    }
}

#[tokio::test]
async fn a_database_that_is_locked_is_unavailable_and_nothing_was_written() {
    let directory = Directory::new();
    let path = directory.file("locked.db");
    let register = open(&path, "e").await.unwrap();
    let (_, version) = register.read().await.unwrap().unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let set = register.compare_and_set(Some(&version), &record(1)).await;
    assert!(matches!(set, Err(SetError::Unavailable { .. })), "{set:?}");
    assert_eq!(register.read().await.unwrap().unwrap().1, version, "readers do not wait for the writer");
    other.execute_batch("ROLLBACK").unwrap();
    register.compare_and_set(Some(&version), &record(1)).await.expect("the lock is gone");
}
