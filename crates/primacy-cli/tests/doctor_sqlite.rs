//! `primacy doctor` on a table of an SQLite database.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};

use primacy::FencingToken;
use primacy_fence_sqlite::rusqlite::Connection;
use primacy_fence_sqlite::{fenced, install};
use primacy_testbed::Place;
use primacy_testbed::doctor::Found;

const RESOURCE: &str = "the resource refuses a stale write";

#[test]
fn a_table_of_sqlite_without_a_guard_fails_and_a_guarded_one_passes() {
    let mut place = Place::new("doctor-sqlite-table");
    let mut connection = Connection::open(place.path("orders.db")).unwrap();
    let table = "CREATE TABLE ledger(id INTEGER PRIMARY KEY, body TEXT NOT NULL); INSERT INTO ledger VALUES (1, 'kept')";
    connection.execute_batch(table).unwrap();
    let store = format!("sqlite:{}", place.text("election.db"));
    let resource = format!("sqlite:{}#ledger", place.text("orders.db"));
    let (database, missing_file) = (place.path("orders.db"), place.path("missing.db"));
    let mut on = |resource: &str, election: &str| {
        Found::on(&mut place, &store, &["--resource", resource, "--election", election])
    };
    let found = on(&resource, "orders");
    found.expect(RESOURCE, "fail", "ledger has no guard");
    assert!(found.check(RESOURCE)["fix"].as_str().unwrap().contains("install"), "{:#}", found.told);
    found.ends(1);

    // As the fix says. Before any leader has shown its token, and after one has.
    install(&mut connection, "orders", &["ledger"]).unwrap();
    on(&resource, "orders").expect(RESOURCE, "pass", "the highest token there is 0");
    fenced(&mut connection, "orders", FencingToken(42), |_| Ok(())).unwrap();
    let found = on(&resource, "orders");
    found.expect(RESOURCE, "pass", "the highest token there is 42");
    found.ends(0);
    on(&resource, "billing").expect(RESOURCE, "fail", "guarded for the election orders");

    // Half a guard, and nothing to look at.
    connection.execute_batch("DROP TRIGGER primacy_guard_delete_ledger").unwrap();
    on(&resource, "orders").expect(RESOURCE, "fail", "no guard before DELETE");
    on(&resource.replace("#ledger", "#nothing"), "orders").expect(RESOURCE, "unknown", "no such table");
    let missing = resource.replace("orders.db", "missing.db");
    let found = on(&missing, "orders");
    found.expect(RESOURCE, "unknown", "No such file");
    found.ends(0);
    assert!(!missing_file.exists(), "what is missing is not made");

    // Another user's triggers would run in this process.
    if rustix::process::geteuid().is_root() {
        chown(&database, Some(65_534), None).unwrap();
        on(&resource, "orders").expect(RESOURCE, "unknown", "nothing was tried");
    } else {
        primacy_conformance::not_run("a database of another user takes root");
    }

    let kept = "SELECT body FROM ledger";
    assert_eq!(connection.query_row(kept, [], |row| row.get::<_, String>(0)).unwrap(), "kept");
}

/// Does not end.
const ENDLESS: &str = "CREATE TRIGGER endless BEFORE INSERT ON ledger BEGIN SELECT (
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c); END";

#[test]
fn no_trigger_runs_that_another_user_could_have_put_there_and_none_without_end() {
    let mut place = Place::new("doctor-sqlite-others");
    let directory = place.path("resource");
    fs::create_dir(&directory).unwrap();
    let (database, log) = (directory.join("orders.db"), directory.join("orders.db-wal"));
    let mut connection = Connection::open(&database).unwrap();
    connection.execute_batch("CREATE TABLE ledger(id INTEGER PRIMARY KEY)").unwrap();
    install(&mut connection, "orders", &["ledger"]).unwrap();
    connection.execute_batch(ENDLESS).unwrap();
    drop(connection);
    let store = format!("sqlite:{}", place.text("election.db"));
    let resource = format!("sqlite:{}#ledger", database.display());
    let mut finds = |part: &str| {
        Found::on(&mut place, &store, &["--resource", &resource]).expect(RESOURCE, "unknown", part);
    };
    let change = |path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();

    change(&database, 0o666);
    finds("nothing was tried");
    change(&database, 0o600);
    for mode in [0o777, 0o1777] {
        change(&directory, mode);
        finds("nothing was tried");
    }
    change(&directory, 0o700);
    if rustix::process::geteuid().is_root() {
        chown(&directory, Some(65_534), None).unwrap();
        finds("nothing was tried");
        chown(&directory, Some(0), None).unwrap();
        fs::write(&log, "").unwrap();
        chown(&log, Some(65_534), None).unwrap();
        finds("orders.db-wal: it belongs to the user");
        fs::remove_file(&log).unwrap();
    } else {
        primacy_conformance::not_run("files of another user take root");
    }

    // The trial as a trusted user is ended, and the token that was shown before it is taken back.
    finds("the trial was ended after 5s");
    let connection = Connection::open(&database).unwrap();
    let highest = "SELECT highest FROM primacy_fence";
    assert_eq!(connection.query_row(highest, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}
