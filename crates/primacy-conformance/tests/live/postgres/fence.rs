//! The guard for tables, tried on a real server by a role that may do nothing but write.

use std::time::{Duration, Instant};

use primacy::FencingToken;
use primacy::fence::postgres::{Guard, install, show};
use primacy::stores::OpenError;
use primacy_conformance::live::postgres::{Postgres, connect};
use tokio_postgres::{Client, Error};

use super::server;

/// The error codes of the guard.
const NO_TOKEN: &str = "PRM01";
const STALE: &str = "PRM02";
const NOT_INSTALLED: &str = "PRM03";
const KEPT: &str = "PRM04";
const MALFORMED: &str = "PRM05";

/// The time to wait for something that must come, and the interval between two looks.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

fn guard(tables: &[&str]) -> Guard {
    Guard {
        election: "orders".to_owned(),
        tables: tables.iter().map(|table| (*table).to_owned()).collect(),
        schema: "public".to_owned(),
        writers: vec!["app".to_owned()],
    }
}

/// A table `ledger` that is guarded, and a role that may write to it.
async fn guarded() -> Option<Postgres> {
    let server = server(&[]).await?;
    server
        .run_sql(
            "CREATE ROLE app LOGIN PASSWORD 'app'; CREATE TABLE ledger(id int PRIMARY KEY, body text); \
             GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ledger TO app",
        )
        .await;
    for _ in 0..2 {
        install(&server.url(), &guard(&["ledger"])).await.expect("also the second time");
    }
    Some(server)
}

async fn app(server: &Postgres) -> Client {
    connect(&server.config("app")).await.expect("over the unix socket")
}

/// The code of the error that came.
fn code(result: Result<(), Error>) -> String {
    let error = result.expect_err("it is refused");
    error.code().unwrap_or_else(|| panic!("{error:?}")).code().to_owned()
}

/// One transaction that shows a token and writes.
fn write(token: u64, statement: &str) -> String {
    format!("BEGIN; SET LOCAL primacy.token = '{token} orders'; {statement}; COMMIT")
}

async fn run(client: &Client, statements: &str) -> Result<(), Error> {
    let result = client.batch_execute(statements).await;
    if result.is_err() {
        client.batch_execute("ROLLBACK").await?;
    }
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_needs_a_token_that_is_not_stale() {
    let Some(server) = guarded().await else { return };
    let client = app(&server).await;
    for statement in [
        "INSERT INTO ledger VALUES (1)",
        "UPDATE ledger SET body = 'x'",
        "DELETE FROM ledger",
        "TRUNCATE ledger",
        "INSERT INTO ledger VALUES (1) ON CONFLICT DO NOTHING",
        "WITH done AS (INSERT INTO ledger VALUES (1) RETURNING id) SELECT * FROM done",
    ] {
        assert_eq!(code(run(&client, statement).await), NO_TOKEN, "{statement}");
    }
    // Only the superuser may read a file of the server; the guard is no other for it.
    assert_eq!(code(run(&server.connect().await, "COPY ledger FROM '/dev/null'").await), NO_TOKEN);
    run(&client, &write(7, "INSERT INTO ledger VALUES (7)")).await.unwrap();
    run(
        &client,
        &format!("BEGIN; {}; INSERT INTO ledger VALUES (9); COMMIT", show("orders", FencingToken(9))),
    )
    .await
    .unwrap();
    assert_eq!(code(run(&client, &write(7, "INSERT INTO ledger VALUES (8)")).await), STALE);
    assert_eq!(code(run(&client, "SELECT primacy_token('orders', 7)").await), STALE);
    assert_eq!(code(run(&client, "SELECT primacy_token('others', 7)").await), NOT_INSTALLED);
    assert_eq!(code(run(&client, "SELECT primacy_token('orders', -7)").await), MALFORMED);
    // A text that is no token of this election is refused as missing.
    for shown in ["9", "orders 9", "9 others", "-9 orders", "9x orders", "999999999999999999999 orders", ""] {
        let statements = format!("BEGIN; SET LOCAL primacy.token = '{shown}'; DELETE FROM ledger; COMMIT");
        assert_eq!(code(run(&client, &statements).await), NO_TOKEN, "{shown:?}");
    }
    // It ends with its transaction, and what was rolled back has not been seen.
    assert_eq!(code(run(&client, "DELETE FROM ledger").await), NO_TOKEN);
    run(&client, "BEGIN; SELECT primacy_token('orders', 11); ROLLBACK").await.unwrap();
    run(&client, &write(9, "DELETE FROM ledger WHERE id = 7")).await.unwrap();
    let message = run(&client, &write(8, "DELETE FROM ledger")).await.unwrap_err();
    let message = message.as_db_error().unwrap().message().to_owned();
    assert!(message.contains("token 8 of the election orders is stale: a leader with token 9"), "{message}");
    assert_eq!(server.run_sql("SELECT id FROM ledger").await, [Some("9".to_owned())]);
    // The setting takes each number that the function takes, and says where one is too high.
    let (long, highest) = (1_000_000_000_000_000_000, u64::MAX / 2);
    run(&client, &format!("SELECT primacy_token('orders', {long})")).await.unwrap();
    run(&client, &write(long, "DELETE FROM ledger")).await.unwrap();
    assert_eq!(code(run(&client, &write(long - 1, "DELETE FROM ledger")).await), STALE);
    run(&client, &write(highest, "DELETE FROM ledger")).await.unwrap();
    assert_eq!(code(run(&client, &write(highest + 1, "DELETE FROM ledger")).await), MALFORMED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_token_waits_for_writes_under_way_and_lower_ones_wait_for_it() {
    let Some(server) = guarded().await else { return };
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let base: u64 =
            server.run_sql("SELECT highest FROM primacy_fence").await[0].as_deref().unwrap().parse().unwrap();
        run(&app(&server).await, &write(base, "TRUNCATE ledger")).await.unwrap();
        let (old, new, late) = (app(&server).await, app(&server).await, app(&server).await);
        let begin = |token: u64| {
            format!("BEGIN ISOLATION LEVEL {level}; SET LOCAL primacy.token = '{} orders'", base + token)
        };
        // It has raised the fence, and is in the middle of a transaction.
        run(&old, &write(base + 1, "DELETE FROM ledger WHERE false")).await.unwrap();
        run(&old, &format!("{}; INSERT INTO ledger VALUES (1)", begin(1))).await.unwrap();
        // A second one of it is not kept waiting by the first.
        run(&late, &format!("{}; INSERT INTO ledger VALUES (2); COMMIT", begin(1))).await.unwrap();
        let taking_over = format!("{}; INSERT INTO ledger VALUES (3)", begin(2));
        let taking_over = tokio::spawn(async move { (run(&new, &taking_over).await, new) });
        until_waiting(&server, 1).await;
        // Behind it, a transaction of the old leader waits too, and has a view of the data from before.
        let writing =
            format!("{}; SELECT count(*) FROM ledger; INSERT INTO ledger VALUES (4); COMMIT", begin(1));
        let writing = tokio::spawn(async move { run(&late, &writing).await });
        until_waiting(&server, 2).await;
        run(&old, "COMMIT").await.expect("it was there first");
        let (taken, new) = taking_over.await.unwrap();
        taken.unwrap();
        // Still not committed: a lower token is not refused yet.
        assert!(!writing.is_finished());
        run(&new, "COMMIT").await.unwrap();
        let refused = code(writing.await.unwrap());
        // Where a transaction keeps to its view, PostgreSQL itself refuses it.
        assert!(refused == STALE || (refused == "40001" && level != "READ COMMITTED"), "{refused}");
        let found = server.run_sql("SELECT id FROM ledger ORDER BY id").await;
        assert_eq!(found, ["1", "2", "3"].map(|id| Some(id.to_owned())), "{level}");
        let stale = code(run(&old, &format!("{}; DELETE FROM ledger; COMMIT", begin(1))).await);
        assert_eq!(stale, STALE, "{level}");
    }
}

/// Waits until so many connections wait for a lock.
pub(super) async fn until_waiting(server: &Postgres, count: usize) {
    let began = Instant::now();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while server.run_sql(waiting).await != [Some(count.to_string())] {
        assert!(began.elapsed() < PATIENCE, "nobody waits");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_is_rolled_back_has_not_been() {
    let Some(server) = guarded().await else { return };
    let (old, new) = (app(&server).await, app(&server).await);
    run(&new, "BEGIN; SELECT primacy_token('orders', 5)").await.unwrap();
    let writing = tokio::spawn(async move { run(&old, &write(4, "INSERT INTO ledger VALUES (4)")).await });
    until_waiting(&server, 1).await;
    run(&new, "ROLLBACK").await.unwrap();
    writing.await.unwrap().expect("nobody has taken over");
    // A savepoint that is rolled back takes the token with it.
    let statements =
        "BEGIN; SAVEPOINT a; SELECT primacy_token('orders', 5); ROLLBACK TO a; DELETE FROM ledger; COMMIT";
    assert_eq!(code(run(&new, statements).await), NO_TOKEN);
    run(&new, &write(4, "DELETE FROM ledger")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_connections_of_a_new_leader_do_not_stand_in_each_others_way() {
    let Some(server) = guarded().await else { return };
    for token in 1..=20 {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            let client = app(&server).await;
            let statement = write(token, &format!("INSERT INTO ledger VALUES ({})", token * 10 + number));
            tasks.spawn(async move { run(&client, &statement).await });
        }
        for result in tasks.join_all().await {
            result.expect("none is refused, and none waits for ever");
        }
    }
    assert_eq!(server.run_sql("SELECT count(*) FROM ledger").await, [Some("160".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_writer_may_do_does_not_get_around_it() {
    let Some(server) = guarded().await else { return };
    let client = app(&server).await;
    run(&client, &write(9, "INSERT INTO ledger VALUES (1)")).await.unwrap();
    for statement in [
        "UPDATE primacy_fence SET highest = 0",
        "DELETE FROM primacy_fence",
        "ALTER TABLE ledger DISABLE TRIGGER primacy_guard",
        "DROP TRIGGER primacy_guard ON ledger",
        "SET session_replication_role = replica",
        "SELECT primacy_admit('orders', 100)",
    ] {
        assert_eq!(code(run(&client, statement).await), "42501", "{statement}");
    }
    // The client's own names are not taken for names of the system.
    let own = "CREATE TEMPORARY TABLE primacy_fence(election text, highest bigint); \
               INSERT INTO pg_temp.primacy_fence VALUES ('orders', 0); \
               CREATE FUNCTION pg_temp.strpos(text, text) RETURNS int LANGUAGE sql AS 'SELECT 0'; \
               SET search_path = pg_temp, pg_catalog, public";
    run(&client, own).await.unwrap();
    assert_eq!(code(run(&client, &write(8, "DELETE FROM public.ledger")).await), STALE);
    // Nor are its functions and operators, and its own guess of what is the highest decides nothing.
    server.run_sql("CREATE SCHEMA own AUTHORIZATION app").await;
    let own = "CREATE FUNCTION own.same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; \
               CREATE OPERATOR own.= (LEFTARG = text, RIGHTARG = text, FUNCTION = own.same); \
               CREATE FUNCTION own.concat(bigint, text, text) RETURNS text LANGUAGE sql AS 'SELECT $a$8 orders$a$'; \
               CREATE FUNCTION own.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT $a$8 orders$a$'; \
               SET search_path = own, pg_catalog, public; SET primacy.admitted = '\"public\" 8 orders'";
    run(&client, own).await.unwrap();
    for token in [8, 8, 7] {
        assert_eq!(code(run(&client, &write(token, "DELETE FROM public.ledger")).await), STALE);
    }
    // The owner can lower it only if it means to; and a guard that does not run for replicas runs.
    assert_eq!(code(run(&server.connect().await, "UPDATE primacy_fence SET highest = 0").await), KEPT);
    assert_eq!(code(run(&server.connect().await, "TRUNCATE primacy_fence").await), KEPT);
    let replica = "SET session_replication_role = replica; DELETE FROM ledger";
    assert_eq!(code(run(&server.connect().await, replica).await), NO_TOKEN);
    // A fence that was lost lets no write through.
    server
        .run_sql("ALTER TABLE primacy_fence DISABLE TRIGGER primacy_keeps; DELETE FROM primacy_fence")
        .await;
    let forged = "SET primacy.admitted = '\"public\"  orders'; SET primacy.token = ' orders'";
    run(&client, forged).await.unwrap();
    assert_eq!(code(run(&client, "DELETE FROM public.ledger").await), NO_TOKEN);
    assert_eq!(code(run(&client, &write(9, "DELETE FROM public.ledger")).await), NOT_INSTALLED);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_guarded_and_what_cannot_be_is_said() {
    let Some(server) = guarded().await else { return };
    server
        .run_sql(
            "CREATE TABLE \"Parts\"(id int) PARTITION BY RANGE (id); \
             CREATE TABLE part PARTITION OF \"Parts\" FOR VALUES FROM (0) TO (9); CREATE VIEW view AS SELECT 1; \
             GRANT ALL ON \"Parts\", part TO app",
        )
        .await;
    install(&server.url(), &guard(&["public.\"Parts\""])).await.unwrap();
    let client = app(&server).await;
    for table in ["\"Parts\"", "part"] {
        assert_eq!(code(run(&client, &format!("INSERT INTO {table} VALUES (1)")).await), NO_TOKEN);
        run(&client, &write(1, &format!("INSERT INTO {table} VALUES (1)"))).await.unwrap();
    }
    let refused = async |guard: Guard| match install(&server.url(), &guard).await {
        Err(OpenError::Refused { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(guard(&["view"])).await.contains("no table"));
    assert!(refused(guard(&["none"])).await.contains("42P01"));
    let other = Guard { election: "others".to_owned(), ..guard(&["ledger"]) };
    assert!(refused(other.clone()).await.contains("guarded for another election"));
    assert_eq!(
        server.run_sql("SELECT count(*) FROM primacy_fence").await,
        [Some("1".to_owned())],
        "nothing was left"
    );
    // A transaction under two elections shows two tokens.
    server.run_sql("CREATE TABLE theirs(id int); GRANT ALL ON theirs TO app").await;
    install(&server.url(), &Guard { tables: vec!["theirs".to_owned()], ..other }).await.unwrap();
    let both = "BEGIN; SELECT primacy_token('orders', 3); SELECT primacy_token('others', 5); \
                INSERT INTO ledger VALUES (3); INSERT INTO theirs VALUES (5); COMMIT";
    run(&client, both).await.unwrap();
}
