//! A fence in a database, or a schema, whose owner is not the role that installs it.

use primacy::fence::Answer;
use primacy::fence::postgres::{FenceState, Guard, attempt, install};
use primacy::stores::{Verdict, open_any};
use primacy_conformance::live::postgres::{Postgres, connect};
use tokio_postgres::Client;

use super::server;

/// A server whose database belongs to the role `dba`, no superuser, which has made the table `ledger`.
async fn prepared() -> Option<(Postgres, Client)> {
    let server = server(&[]).await?;
    for role in ["dba", "app", "reader"] {
        server.run_sql(&format!("CREATE ROLE {role} LOGIN PASSWORD '{role}'")).await;
    }
    server.run_sql("ALTER DATABASE postgres OWNER TO dba").await;
    // As of PostgreSQL 15 it is so; an earlier one has another owner there.
    server
        .run_sql("ALTER SCHEMA public OWNER TO pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC")
        .await;
    let dba = connect(&server.config("dba")).await.expect("over the unix socket");
    dba.batch_execute("CREATE TABLE ledger(id int); GRANT ALL ON ledger TO app").await.unwrap();
    Some((server, dba))
}

fn guard(schema: &str) -> Guard {
    Guard {
        election: "orders".to_owned(),
        tables: vec!["public.ledger".to_owned()],
        schema: schema.to_owned(),
        writers: vec!["app".to_owned()],
    }
}

fn url_of(server: &Postgres, role: &str) -> String {
    format!("postgres://{role}:{role}@{}/postgres", server.address())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_of_a_database_does_not_gain_the_rights_of_who_installs() {
    let Some((server, dba)) = prepared().await else { return };
    let witness = "CREATE TABLE witnessed(who name); GRANT INSERT ON witnessed TO PUBLIC; \
        CREATE FUNCTION evil(bigint) RETURNS bigint LANGUAGE plpgsql AS \
        'BEGIN INSERT INTO public.witnessed VALUES (current_user); RETURN $1; END'";
    dba.batch_execute(witness).await.unwrap();
    let columns = "(election text COLLATE \"C\" PRIMARY KEY, highest bigint NOT NULL";
    for made in [
        format!("CREATE TABLE primacy_fence{columns})"),
        format!("CREATE TABLE primacy_fence{columns} CHECK (evil(highest) >= 0))"),
        format!("CREATE TABLE primacy_fence_hold{columns} DEFAULT evil(0))"),
    ] {
        dba.batch_execute(&made).await.unwrap();
        let refused = install(&server.url(), &guard("public")).await.expect_err(&made).to_string();
        assert!(refused.contains("belongs to the role"), "{made}: {refused}");
        dba.batch_execute("DROP TABLE IF EXISTS primacy_fence, primacy_fence_hold").await.unwrap();
    }
    // It could drop objects in its schema and put its own there; so nothing is put there by another role.
    let refused = install(&server.url(), &guard("public")).await.expect_err("the schema of dba").to_string();
    assert!(refused.contains("the schema public") && refused.contains("--schema"), "{refused}");

    // A schema of the installing role is out of its reach.
    install(&server.url(), &guard("primacy")).await.expect("in a schema that is made");
    for change in [
        "DROP TABLE primacy.primacy_fence CASCADE",
        "DROP SCHEMA primacy CASCADE",
        "ALTER SCHEMA primacy RENAME TO gone",
        "ALTER SCHEMA primacy OWNER TO dba",
        "CREATE TABLE primacy.other()",
        "CREATE TRIGGER evil BEFORE UPDATE ON primacy.primacy_fence EXECUTE FUNCTION primacy.primacy_guard('orders')",
        "CREATE INDEX evil ON primacy.primacy_fence (evil(highest))",
    ] {
        let refused = dba.batch_execute(change).await.expect_err(change);
        assert_eq!(refused.code().unwrap().code(), "42501", "{change}: {refused}");
    }
    let app = connect(&server.config("app")).await.unwrap();
    app.batch_execute("BEGIN; SET LOCAL primacy.token = '7 orders'; DELETE FROM ledger; COMMIT")
        .await
        .unwrap();
    let found = attempt(&url_of(&server, "dba"), "ledger").await.unwrap();
    assert_eq!((found.without, found.fence), (Answer::Refused, Some(FenceState::Current)));
    assert_eq!(server.run_sql("SELECT count(*) FROM witnessed").await, [Some("0".to_owned())]);

    // An earlier fence, or a database with another owner since.
    server.run_sql("ALTER SCHEMA primacy OWNER TO dba").await;
    let found = attempt(&server.url(), "ledger").await.unwrap();
    let Some(FenceState::Foreign { why }) = found.fence else { panic!("{:?}", found.fence) };
    assert!(why.contains("the schema primacy belongs to the role dba"), "{why}");
}

/// `ALTER DATABASE … SET role` has a superuser's sessions act as the owner of the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_the_owner_of_a_database_sets_is_not_taken_for_the_login() {
    let Some((server, dba)) = prepared().await else { return };
    let login = server.run_sql("SELECT session_user::text").await.remove(0).unwrap();
    // As `dba` alone may: the table of an election and a guarded table, each with a trigger that returns to the login's role.
    open_any(&url_of(&server, "dba"), "orders").await.expect("its own table");
    let evil = format!(
        "CREATE SEQUENCE seen; CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         SET LOCAL ROLE {login}; PERFORM nextval('public.seen'); RETURN NULL; END $$; \
         CREATE TRIGGER evil AFTER INSERT OR UPDATE OR DELETE ON ledger EXECUTE FUNCTION evil(); \
         CREATE TRIGGER evil AFTER INSERT OR UPDATE OR DELETE ON primacy_record EXECUTE FUNCTION evil(); \
         ALTER DATABASE postgres SET role = 'dba'"
    );
    dba.batch_execute(&evil).await.unwrap();
    let opened = open_any(&server.url(), "orders").await.expect_err("the table of dba").to_string();
    assert!(opened.contains("its table public.primacy_record, of the role dba"), "{opened}");
    let Answer::Failed { why } = attempt(&server.url(), "ledger").await.unwrap().without else {
        panic!("a write was tried")
    };
    assert!(why.contains("belongs to the role dba"), "{why}");
    let installed = install(&server.url(), &guard("primacy")).await.expect_err("as dba").to_string();
    assert!(installed.contains("acts as the role dba"), "{installed}");
    // Its owner may use it.
    open_any(&url_of(&server, "dba"), "orders").await.expect("its own table");
    assert_eq!(server.run_sql("SELECT is_called FROM seen").await, [Some("f".to_owned())]);
}

/// A login that may become a superuser by `SET ROLE` lends that to triggers of others on a table.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_a_superusers_role_trusts_superusers_alone() {
    let Some((server, _dba)) = prepared().await else { return };
    let login = server.run_sql("SELECT session_user::text").await.remove(0).unwrap();
    let grant = format!(
        "CREATE ROLE admin LOGIN NOINHERIT PASSWORD 'admin'; GRANT {login} TO admin; GRANT ALL ON ledger TO admin"
    );
    server.run_sql(&grant).await;
    let Answer::Failed { why } = attempt(&url_of(&server, "admin"), "ledger").await.unwrap().without else {
        panic!("a write was tried")
    };
    assert!(why.contains("belongs to the role dba"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_stays_out_of_a_schema_in_which_others_may_make_functions() {
    let Some((server, dba)) = prepared().await else { return };
    let as_dba = url_of(&server, "dba");
    let refused = async |who: &str| install(&as_dba, &guard("public")).await.expect_err(who).to_string();
    // PUBLIC may until PostgreSQL 14. The server calls the function whose parameters fit best.
    server.run_sql("CREATE ROLE evil; GRANT CREATE ON SCHEMA public TO PUBLIC").await;
    let evil = "SET ROLE evil; CREATE FUNCTION public.primacy_token(text, int) RETURNS text RETURN 'evil'";
    server.run_sql(evil).await;
    let why = refused("the function of evil").await;
    assert!(why.contains("primacy_token(text,integer) belongs to the role evil"), "{why}");
    server.run_sql("DROP FUNCTION public.primacy_token(text, int)").await;
    let why = refused("the right of PUBLIC").await;
    assert!(why.contains("make functions in the schema public belongs to the role PUBLIC"), "{why}");
    assert!(why.contains("REVOKE CREATE ON SCHEMA"), "{why}");
    dba.batch_execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC").await.unwrap();
    install(&as_dba, &guard("public")).await.expect("as the owner of the database");
    assert_eq!(attempt(&as_dba, "ledger").await.unwrap().fence, Some(FenceState::Current));
    // A role that gets the right later is named.
    dba.batch_execute("GRANT CREATE ON SCHEMA public TO evil").await.unwrap();
    let Some(FenceState::Foreign { why }) = attempt(&as_dba, "ledger").await.unwrap().fence else {
        panic!("the right of evil was overlooked")
    };
    assert!(why.contains("make functions in the schema public belongs to the role evil"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn default_privileges_give_no_rights_on_a_fence() {
    let Some((server, dba)) = prepared().await else { return };
    dba.batch_execute(
        "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO reader; \
         ALTER DEFAULT PRIVILEGES GRANT INSERT, UPDATE, DELETE ON TABLES TO reader, app",
    )
    .await
    .unwrap();
    for _ in 0..2 {
        install(&url_of(&server, "dba"), &guard("public")).await.expect("as the owner of the database");
    }
    let granted = "SELECT concat(proname, proacl) FROM pg_proc WHERE proname ~ '^primacy_' AND proacl::text ~ 'reader|app' UNION ALL \
         SELECT concat(relname, relacl) FROM pg_class WHERE relname ~ '^primacy_' AND relacl::text ~ 'reader|app'";
    let granted = server.run_sql(granted).await;
    assert!(
        matches!(&granted[..], [Some(token)] if token.contains("app=X") && !token.contains("reader")),
        "{granted:?}"
    );
    // Nor on the schema that is made for it, in which writers keep the right that they need.
    dba.batch_execute(
        "ALTER DEFAULT PRIVILEGES GRANT USAGE, CREATE ON SCHEMAS TO reader, app; \
         ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO PUBLIC; DROP TRIGGER primacy_guard ON ledger",
    )
    .await
    .unwrap();
    for _ in 0..2 {
        install(&url_of(&server, "dba"), &guard("kept")).await.expect("in a schema of its own");
        let granted = server.run_sql("SELECT nspacl FROM pg_namespace WHERE nspname = 'kept'").await;
        assert_eq!(granted, [Some("{dba=UC/dba,app=U/dba}".to_owned())]);
        // It is made so again.
        dba.batch_execute("REVOKE ALL ON SCHEMA kept FROM app; GRANT ALL ON SCHEMA kept TO reader")
            .await
            .unwrap();
    }
    let reader = connect(&server.config("reader")).await.unwrap();
    let refused =
        reader.batch_execute("SELECT primacy_token('orders', 9223372036854775807)").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501");
}

#[tokio::test(flavor = "multi_thread")]
async fn default_privileges_give_no_rights_on_the_table_of_an_election() {
    let Some((server, dba)) = prepared().await else { return };
    dba.batch_execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO reader, PUBLIC").await.unwrap();
    let reader = connect(&server.config("reader")).await.unwrap();
    for (table, recipe) in [("primacy_record", "lease"), ("primacy_lock", "advisory")] {
        let url = |role| format!("{}?recipe={recipe}", url_of(&server, role));
        open_any(&url("dba"), "e").await.expect("the table is made");
        let granted = format!(
            "SELECT relacl FROM pg_class WHERE relname = '{table}' \
             AND EXISTS (SELECT FROM aclexplode(relacl) WHERE grantee <> relowner)"
        );
        assert_eq!(server.run_sql(&granted).await, []);
        let trigger = format!(
            "CREATE TRIGGER evil BEFORE UPDATE ON {table} EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        );
        let refused = reader.batch_execute(&trigger).await.expect_err("no right TRIGGER");
        assert_eq!(refused.code().unwrap().code(), "42501", "{refused}");
        // Rights of a candidate are granted by hand, and the doctor names the roles that have them.
        dba.batch_execute(&format!("GRANT SELECT, INSERT, UPDATE ON {table} TO reader")).await.unwrap();
        open_any(&url("reader"), "e").await.expect("a second candidate");
        open_any(&format!("{}&schema=public", url("dba")), "e").await.expect("the first one");
        let checks = primacy::stores::examine(&url("dba")).await.unwrap();
        let writers =
            checks.iter().find(|check| check.name == "no other role may write to the table").unwrap();
        assert!(writers.verdict == Verdict::Warn && writers.found.ends_with(": reader"), "{writers:?}");
        // More than that is refused: each URL here is a connection of its own, which looks at the table.
        for (number, right) in
            ["TRIGGER", "REFERENCES", "TRUNCATE", "REFERENCES (election)"].iter().enumerate()
        {
            dba.batch_execute(&format!("GRANT {right} ON {table} TO reader")).await.unwrap();
            let again = format!("{}&application_name=n{number}", url("dba"));
            let refused = open_any(&again, "e").await.expect_err(right).to_string();
            let name = right.split(' ').next().unwrap();
            let fix = format!("REVOKE {name} ON public.{table} FROM reader");
            assert!(refused.contains("gives reader more") && refused.contains(&fix), "{right}: {refused}");
            dba.batch_execute(&fix).await.unwrap();
            open_any(&again, "e").await.expect("what the error says mends it");
        }
    }
}

/// Every role can keep the lock that installations take, and then they meet in the catalog.
#[tokio::test(flavor = "multi_thread")]
async fn installations_at_once_all_succeed_also_while_a_stranger_keeps_their_lock() {
    let Some((server, _dba)) = prepared().await else { return };
    let stranger = connect(&server.config("reader")).await.unwrap();
    stranger.batch_execute("SELECT pg_advisory_lock(1347571033, 0)").await.unwrap();
    let url = url_of(&server, "dba");
    let installing = (0..3).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { install(&url, &guard("kept")).await })
    });
    let installing: Vec<_> = installing.collect();
    // It gives the lock back when the first one has waited long enough.
    let made = "SELECT 1 FROM pg_namespace WHERE nspname = 'kept'";
    while server.run_sql(made).await.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    drop(stranger);
    for installed in installing {
        installed.await.unwrap().expect("it is installed");
    }
    assert_eq!(attempt(&url, "ledger").await.unwrap().without, Answer::Refused);
}
