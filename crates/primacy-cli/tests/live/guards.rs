//! `primacy fence print` and `primacy fence install` on a real PostgreSQL server.

use primacy_conformance::live::postgres::Postgres;

use primacy_testbed::started;
use primacy_testbed::{Place, stderr, stdout};

/// The SQLSTATE of a write without a token, as docs/fencing.md has it.
const NO_TOKEN: &str = "PRM01";

#[test]
fn what_is_printed_guards_as_what_is_installed_does() {
    let mut place = Place::new("guards");
    let Some((runtime, postgres)) = started("postgres", Postgres::start(&[])) else { return };
    let sql = |text: &str| runtime.block_on(postgres.run_sql(text));
    sql("CREATE TABLE ledger (line text); CREATE TABLE \"Other\" (line text)");
    let insert = |table: &str| {
        let client = runtime.block_on(postgres.connect());
        let inserted =
            runtime.block_on(client.simple_query(&format!("INSERT INTO {table} VALUES ('a line')")));
        inserted.map(drop).map_err(|error| error.code().unwrap().code().to_owned())
    };
    let what = ["--election", "orders", "--table", "ledger"];
    let printed = place.output(&[&["fence", "print"], &what[..]].concat());
    assert!(printed.status.success(), "{}", stderr(&printed));
    assert_eq!(insert("ledger"), Ok(()), "nothing was run");
    sql(&stdout(&printed));
    assert_eq!(insert("ledger"), Err(NO_TOKEN.to_owned()));
    assert_eq!(insert("\"Other\""), Ok(()));
    sql("SELECT primacy_token('orders', 42)");

    // Once more, and for another table: what is there stays, the highest token too.
    place.set("LEDGER", &postgres.url());
    let more = ["--table", "\"Other\"", "--store", "env:LEDGER"];
    let installed = place.output(&[&["fence", "install"], &what[..], &more].concat());
    assert!(installed.status.success(), "{}", stderr(&installed));
    for table in ["ledger", "\"Other\""] {
        assert_eq!(insert(table), Err(NO_TOKEN.to_owned()), "{table}");
    }
    assert_eq!(sql("SELECT highest FROM primacy_fence"), [Some("42".to_owned())]);

    // A table has one election.
    let other = ["fence", "install", "--election", "billing", "--table", "ledger", "--store", "env:LEDGER"];
    let refused = place.output(&other);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let redis = ["fence", "install", "--election", "orders", "--table", "t", "--store", "redis://127.0.0.1"];
    let usage = place.output(&redis);
    assert!(usage.status.code() == Some(64) && stderr(&usage).contains("docs/fencing.md"), "{usage:?}");
}
