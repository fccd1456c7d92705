//! Locks on tables: the locks that a role without rights can take, and that `install` keeps no session waiting for
//! nothing.

use std::time::Duration;

use primacy::FencingToken;
use primacy::fence::Answer;
use primacy::fence::postgres::{FenceState, Guard, attempt, install};
use primacy::stores::{OpenError, Verdict, open};
use primacy_conformance::live::postgres::{Postgres, connect};
use primacy_core::election::lease::Record;
use primacy_stores::Attempts;
use tokio_postgres::Client;

use super::fence::until_waiting;
use super::server;

/// The time to wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn guard(schema: &str) -> Guard {
    Guard {
        election: "orders".to_owned(),
        tables: vec!["data.ledger".to_owned()],
        schema: schema.to_owned(),
        writers: vec!["app".to_owned()],
    }
}

/// A server with the roles `app` and `squatter`, and a table in a schema that only `app` may use.
async fn prepared() -> Option<Postgres> {
    let server = server(&[]).await?;
    server
        .run_sql(
            "CREATE ROLE app LOGIN; CREATE ROLE squatter LOGIN; CREATE SCHEMA data; CREATE SCHEMA lease; \
             GRANT USAGE ON SCHEMA data TO app; CREATE TABLE data.ledger(id int); GRANT ALL ON data.ledger TO app",
        )
        .await;
    Some(server)
}

async fn client(server: &Postgres, role: &str) -> Client {
    connect(&server.config(role)).await.expect("over the unix socket")
}

fn write(token: u64) -> String {
    format!("BEGIN; SET LOCAL primacy.token = '{token} orders'; INSERT INTO data.ledger VALUES (1); COMMIT")
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} is kept waiting"))
}

fn record() -> Record {
    Record::released(FencingToken(7), primacy_core::Duration::from_secs(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_use_the_schema_stops_nobody_by_a_lock() {
    let Some(server) = prepared().await else { return };
    install(&server.url(), &guard("primacy")).await.unwrap();
    let register = open(&format!("{}?schema=lease", server.url()), "e").await.unwrap();
    let version = register.compare_and_set(None, &record()).await.unwrap();
    let (holding, asking) = (client(&server, "squatter").await, client(&server, "squatter").await);
    holding.batch_execute("BEGIN; SAVEPOINT a").await.unwrap();
    for table in
        ["primacy.primacy_fence", "primacy.primacy_fence_hold", "data.ledger", "lease.primacy_record"]
    {
        let prepare = format!("PREPARE held AS SELECT 1 FROM {table}");
        let refused = holding.batch_execute(&prepare).await.expect_err(&prepare);
        assert_eq!(refused.code().unwrap().code(), "42501", "{prepare}");
        // By its number it can be locked, as weakly as writers do.
        let oid = server.run_sql(&format!("SELECT '{table}'::regclass::oid")).await.remove(0).unwrap();
        let by_number = format!("ROLLBACK TO a; SELECT nextval({oid}::regclass)");
        holding.batch_execute(&by_number).await.expect_err("it is no sequence");
        holding.batch_execute("ROLLBACK TO a").await.unwrap();
        let rule = format!("CREATE RULE r AS ON UPDATE TO {table} DO INSTEAD NOTHING");
        let refused = in_time(&rule, asking.batch_execute(&rule)).await.expect_err(&rule);
        assert_eq!(refused.code().unwrap().code(), "42501", "{rule}");
    }
    let app = client(&server, "app").await;
    in_time("a write", app.batch_execute(&write(1))).await.unwrap();
    in_time("a takeover", app.batch_execute("SELECT primacy.primacy_token('orders', 2)")).await.unwrap();
    in_time("a write", app.batch_execute(&write(2))).await.unwrap();
    in_time("a renewal", register.compare_and_set(Some(&version), &record())).await.unwrap();
    in_time("an installation", install(&server.url(), &guard("primacy")))
        .await
        .expect("there is nothing to lock");
    assert_eq!(attempt(&server.url(), "data.ledger").await.unwrap().others, "");

    // As earlier versions have left it; and a role may call the function by a right that was given by hand.
    server
        .run_sql(
            "GRANT USAGE ON SCHEMA primacy TO PUBLIC; CREATE ROLE caller LOGIN; \
             GRANT EXECUTE ON FUNCTION primacy.primacy_token(text, bigint) TO caller",
        )
        .await;
    let found = attempt(&server.url(), "data.ledger").await.unwrap();
    assert_eq!(
        (found.others.as_str(), found.fence),
        ("primacy (caller, squatter)", Some(FenceState::Current))
    );
    install(&server.url(), &guard("primacy")).await.unwrap();
    let may = "SELECT string_agg(concat(rolname, has_schema_privilege(oid, 'primacy', 'USAGE')), ' ' ORDER BY rolname) \
               FROM pg_roles WHERE rolname IN ('app', 'caller', 'squatter')";
    assert_eq!(server.run_sql(may).await, [Some("appt callert squatterf".to_owned())]);
    // A schema in which there is something else is not changed.
    server.run_sql("GRANT USAGE ON SCHEMA primacy TO PUBLIC; CREATE VIEW primacy.more AS SELECT 1").await;
    install(&server.url(), &guard("primacy")).await.unwrap();
    assert_eq!(server.run_sql(may).await, [Some("appt callert squattert".to_owned())]);
    // A client that may not see the highest token learns all the same whether a stale one is refused.
    server.run_sql("REVOKE USAGE ON SCHEMA primacy FROM PUBLIC, app; ALTER ROLE app PASSWORD 'app'").await;
    let found =
        attempt(&format!("postgres://app:app@{}/postgres", server.address()), "data.ledger").await.unwrap();
    assert_eq!((found.highest, found.without, found.stale), (None, Answer::Refused, Some(Answer::Refused)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_keeps_an_election_waiting_by_a_lock_is_named() {
    let Some(server) = prepared().await else { return };
    server.run_sql("GRANT USAGE ON SCHEMA lease TO PUBLIC").await;
    let url = format!("{}?schema=lease", server.url());
    let register = open(&url, "e").await.unwrap();
    register.compare_and_set(None, &record()).await.unwrap();
    let check = async |name: &str| {
        let checks = primacy::stores::examine(&url).await.unwrap();
        checks.into_iter().find(|check| check.name.contains(name)).unwrap_or_else(|| panic!("{name}"))
    };
    let others = check("no other role may use the schema").await;
    assert!(others.verdict == Verdict::Warn && others.found.contains("lease (app, squatter)"), "{others:?}");
    assert_eq!(check("keeps others waiting").await.verdict, Verdict::Pass);

    let (holding, asking) = (client(&server, "squatter").await, client(&server, "squatter").await);
    holding.batch_execute("BEGIN; PREPARE held AS SELECT 1 FROM lease.primacy_record").await.unwrap();
    let rule = "CREATE RULE r AS ON UPDATE TO lease.primacy_record DO INSTEAD NOTHING";
    let asking = tokio::spawn(async move { asking.batch_execute(rule).await });
    until_waiting(&server, 1).await;
    let attempts = Attempts::default();
    let named = async {
        while !attempts
            .last_error()
            .is_some_and(|why| why.contains("of the role squatter, idle in transaction"))
        {
            let _ = attempts.observe(tokio::time::timeout(Duration::from_secs(3), register.read())).await;
        }
    };
    in_time("the name", named).await;
    let found = check("keeps others waiting").await;
    assert!(found.verdict == Verdict::Warn && found.found.contains("of the role squatter"), "{found:?}");
    holding.batch_execute("COMMIT").await.unwrap();
    assert_eq!(asking.await.unwrap().unwrap_err().code().unwrap().code(), "42501");
    server.run_sql("REVOKE USAGE ON SCHEMA lease FROM PUBLIC").await;
    assert_eq!(check("no other role may use the schema").await.verdict, Verdict::Pass);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_that_changes_nothing_waits_for_nobody() {
    let Some(server) = prepared().await else { return };
    let again = async || in_time("an installation", install(&server.url(), &guard("primacy"))).await;
    again().await.unwrap();
    let app = client(&server, "app").await;
    app.batch_execute(&write(5)).await.unwrap();
    let triggers = "SELECT string_agg(concat(oid, ' ', xmin, tgenabled), ',' ORDER BY oid) FROM pg_trigger WHERE tgname ~ 'primacy'";
    let before = server.run_sql(triggers).await;
    // A writer of the highest token, and a takeover that is not committed.
    for idle in ["SET LOCAL primacy.token = '5 orders'", "SELECT primacy.primacy_token('orders', 6)"] {
        app.batch_execute(&format!("BEGIN; {idle}; INSERT INTO data.ledger VALUES (2)")).await.unwrap();
        again().await.unwrap();
        app.batch_execute("COMMIT").await.unwrap();
    }
    assert_eq!(server.run_sql(triggers).await, before);
    // A trigger that was turned off is turned on again.
    server.run_sql("ALTER TABLE data.ledger DISABLE TRIGGER primacy_guard").await;
    again().await.unwrap();
    assert_eq!(
        app.batch_execute("DELETE FROM data.ledger").await.unwrap_err().code().unwrap().code(),
        "PRM01"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_behind_an_idle_writer_gives_up_and_says_for_whom_it_waits() {
    let Some(server) = prepared().await else { return };
    let (idle, other) = (client(&server, "app").await, client(&server, "app").await);
    idle.batch_execute("BEGIN; INSERT INTO data.ledger VALUES (1)").await.unwrap();
    let url = server.url();
    let installing = tokio::spawn(async move { install(&url, &guard("primacy")).await });
    until_waiting(&server, 1).await;
    // It queues behind the installation, and is let through when that gives up.
    in_time("another writer", other.batch_execute("INSERT INTO data.ledger VALUES (2)")).await.unwrap();
    let gave_up = in_time("the end", installing).await.unwrap();
    let Err(OpenError::Unavailable { why }) = gave_up else { panic!("{gave_up:?}") };
    assert!(why.contains("the table data.ledger has to be locked"), "{why}");
    assert!(
        why.contains("of the role app, idle in transaction") && why.contains("pg_terminate_backend"),
        "{why}"
    );
    assert_eq!(server.run_sql("SELECT to_regnamespace('primacy')").await, [None], "nothing was left");
    idle.batch_execute("COMMIT").await.unwrap();
    install(&server.url(), &guard("primacy")).await.expect("nobody is in the way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_is_known_whatever_quotes_the_server_writes_and_its_schema_has() {
    let Some(server) = prepared().await else { return };
    server.run_sql("ALTER DATABASE postgres SET quote_all_identifiers = on").await;
    let guard = guard("sch%s\"q$primacy$");
    for _ in 0..2 {
        install(&server.url(), &guard).await.unwrap();
    }
    let app = client(&server, "app").await;
    app.batch_execute(&write(3)).await.unwrap();
    let found = attempt(&server.url(), "data.ledger").await.unwrap();
    assert_eq!(
        (found.fence, found.without, found.stale),
        (Some(FenceState::Current), Answer::Refused, Some(Answer::Refused))
    );
    for _ in 0..2 {
        open(&server.url(), "e").await.expect("the table is known again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_by_which_a_guarded_table_is_written_without_a_token_is_told() {
    let Some(server) = prepared().await else { return };
    install(&server.url(), &guard("primacy")).await.unwrap();
    assert_eq!(attempt(&server.url(), "data.ledger").await.unwrap().unguarded, Vec::<String>::new());
    server
        .run_sql(
            "CREATE TABLE data.root(id int); ALTER TABLE data.ledger INHERIT data.root; \
             CREATE TABLE data.leaf() INHERITS (data.ledger); UPDATE data.root SET id = 9",
        )
        .await;
    let mut unguarded = attempt(&server.url(), "data.ledger").await.unwrap().unguarded;
    unguarded.sort();
    assert_eq!(unguarded, ["data.leaf", "data.root"]);
    install(&server.url(), &Guard { tables: vec!["data.root".to_owned()], ..guard("primacy") })
        .await
        .unwrap();
    let found = attempt(&server.url(), "data.ledger").await.unwrap();
    assert_eq!((found.unguarded, found.without), (Vec::new(), Answer::Refused));
}
