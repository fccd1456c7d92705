//! What `primacy doctor` says of a table of an SQLite database.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use primacy::FencingToken;
use primacy::fence::sqlite::rusqlite::Connection;
use primacy::fence::sqlite::{fenced, install};
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
    found.expect(RESOURCE, "unknown", "unable to open");
    found.ends(0);
    assert!(!missing_file.exists(), "what is missing is not made");

    // Another user's triggers would run in this process.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&database, Some(65_534), None).unwrap();
        on(&resource, "orders").expect(RESOURCE, "unknown", "nothing was tried");
    } else {
        primacy_conformance::not_run("a database of another user takes root");
    }

    let kept = "SELECT body FROM ledger";
    assert_eq!(connection.query_row(kept, [], |row| row.get::<_, String>(0)).unwrap(), "kept");
}
