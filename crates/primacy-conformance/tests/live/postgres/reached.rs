//! Tables, trusted and the fence's own, for which PostgreSQL runs code of another role.

use primacy::fence::Answer;
use primacy::fence::postgres::{FenceState, attempt, install};
use primacy::stores::open_any;

use super::hostile::{app, guard, prepared};

/// A trusted table, called `t`, that reaches an object of the role `app`: the statements that make it, the name in the error, and whether a
/// statement on no row runs it.
const REACHING: [(&str, &str, bool); 19] = [
    ("CREATE TABLE t(id int DEFAULT own.fold())", "the function own.fold()", true),
    (
        "CREATE TABLE t(id int); CREATE TRIGGER evil BEFORE DELETE ON t EXECUTE FUNCTION own.evil()",
        "own.evil()",
        true,
    ),
    (
        "CREATE TABLE t(id int); CREATE TRIGGER evil BEFORE DELETE ON t WHEN (own.fold() = 1) EXECUTE FUNCTION ours()",
        "own.fold()",
        true,
    ),
    (
        "CREATE TABLE t(id int, v int); CREATE STATISTICS evil ON (own.fold() + id), v FROM t",
        "own.fold()",
        true,
    ),
    (
        "CREATE TABLE t(id int) PARTITION BY RANGE ((own.fold() + id)); CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (9)",
        "own.fold()",
        true,
    ),
    (
        "CREATE TABLE parent(id int) PARTITION BY RANGE ((own.fold() + id)); CREATE TABLE t PARTITION OF parent FOR VALUES FROM (0) TO (9)",
        "own.fold()",
        false,
    ),
    ("CREATE TABLE t(id int); CREATE INDEX ON t ((own.fold() + id))", "own.fold()", true),
    ("CREATE TABLE t(id int); CREATE INDEX ON t (id) WHERE own.fold() = id", "own.fold()", true),
    ("CREATE TABLE t(id int, v int GENERATED ALWAYS AS (own.fold() + id) STORED)", "own.fold()", true),
    ("CREATE TABLE t(id int CHECK (own.fold() < id))", "own.fold()", false),
    ("CREATE TABLE t(id own.number)", "the domain own.number", false),
    ("CREATE DOMAIN mine AS int DEFAULT own.fold(); CREATE TABLE t(id mine)", "own.fold()", true),
    ("CREATE DOMAIN mine AS int CHECK (own.fold() < VALUE); CREATE TABLE t(id mine[])", "own.fold()", false),
    (
        "CREATE OPERATOR @+@ (LEFTARG = int, RIGHTARG = int, FUNCTION = own.add); CREATE TABLE t(id int DEFAULT 1 @+@ 1)",
        "the function own.add(integer,integer)",
        true,
    ),
    (
        "CREATE OPERATOR CLASS mine FOR TYPE int USING hash AS OPERATOR 1 =, FUNCTION 2 own.hash(int, bigint); \
         CREATE TABLE t(id int) PARTITION BY HASH (id mine); CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        "own.hash",
        false,
    ),
    (
        "CREATE AGGREGATE total(int) (SFUNC = own.add, STYPE = int, INITCOND = '0'); CREATE TABLE t(id int); \
         CREATE POLICY evil ON t USING (id > (SELECT total(id) FROM ledger))",
        "own.add",
        false,
    ),
    (
        "CREATE TABLE t(id int); CREATE RULE evil AS ON DELETE TO t DO ALSO DELETE FROM own.ledger",
        "own.ledger",
        true,
    ),
    (
        "CREATE VIEW shown AS SELECT id FROM own.ledger; CREATE TABLE t(id int); \
         CREATE POLICY evil ON t USING (id = (SELECT id FROM shown))",
        "own.ledger",
        false,
    ),
    (
        "CREATE TABLE t(id int); CREATE TABLE own.child() INHERITS (t); ALTER TABLE own.child OWNER TO app",
        "own.child",
        false,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_tried_on_a_table_that_reaches_what_another_role_has_made() {
    let Some(server) = prepared().await else { return };
    let evil = |name: &str, result: &str| {
        format!(
            "CREATE FUNCTION own.{name} RETURNS {result} IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM nextval('own.seen'); RETURN 1; END $$; "
        )
    };
    let theirs = [
        evil("fold()", "int"),
        evil("add(int, int)", "int"),
        evil("hash(int, bigint)", "bigint"),
        "CREATE FUNCTION own.evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('own.seen'); RETURN NULL; END $$; \
         CREATE SEQUENCE own.seen; CREATE DOMAIN own.number AS int; CREATE TABLE own.ledger(id int); \
         CREATE TRIGGER evil BEFORE DELETE ON own.ledger EXECUTE FUNCTION own.evil()"
            .to_owned(),
    ];
    app(&server).await.batch_execute(&theirs.concat()).await.unwrap();
    let ours = "CREATE FUNCTION ours() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'";
    server.run_sql(ours).await;
    let ran = "SELECT is_called FROM own.seen";
    for (number, (made, part, runs)) in REACHING.into_iter().enumerate() {
        let schema = format!("s{number}");
        let client = server.connect().await;
        let made_in = format!("CREATE SCHEMA {schema}; SET search_path = {schema}, public; {made}");
        client.batch_execute(&made_in).await.unwrap_or_else(|error| panic!("{made}: {error:?}"));
        server.run_sql("SELECT setval('own.seen', 1, false)").await;
        let found = attempt(&server.url(), &format!("{schema}.t")).await.unwrap();
        let Answer::Failed { why } = &found.without else { panic!("{made}: {found:?}") };
        assert!(why.contains(part) && why.contains("belongs to the role app"), "{made}: {why}");
        assert_eq!(server.run_sql(ran).await, [Some("f".to_owned())], "{made}: it has run");
        // The statement that is avoided: the statements of the attempt do run it.
        client
            .batch_execute("DELETE FROM t WHERE false; UPDATE t SET id = DEFAULT WHERE false")
            .await
            .unwrap();
        assert_eq!(server.run_sql(ran).await, [Some(if runs { "t" } else { "f" }.to_owned())], "{made}");
    }
    // A foreign key, a sequence, an enumeration and a trusted function lend nothing.
    let harmless = "CREATE SCHEMA plain; SET search_path = plain, public; CREATE TYPE own.colour AS ENUM ('red'); \
                    ALTER TYPE own.colour OWNER TO app; ALTER TABLE own.ledger ADD PRIMARY KEY (id); \
                    CREATE TABLE t(id serial CHECK (id > 0), of int REFERENCES own.ledger, c own.colour, v int DEFAULT nextval('own.seen')); \
                    CREATE INDEX ON t (id) WHERE id > 3; CREATE STATISTICS few ON id, (v + 1) FROM t; \
                    CREATE TRIGGER ours BEFORE DELETE ON t EXECUTE FUNCTION ours()";
    server.connect().await.batch_execute(harmless).await.unwrap();
    assert_eq!(attempt(&server.url(), "plain.t").await.unwrap().without, Answer::Admitted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_reaches_a_function_of_another_role_is_refused_and_told() {
    let Some(server) = prepared().await else { return };
    install(&server.url(), &guard()).await.unwrap();
    let evil = "CREATE SEQUENCE own.seen; GRANT ALL ON own.seen TO PUBLIC; CREATE FUNCTION own.fold() RETURNS int IMMUTABLE \
                LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('own.seen'); RETURN 1; END $$";
    app(&server).await.batch_execute(evil).await.unwrap();
    for table in ["primacy_fence", "primacy_fence_hold"] {
        for (made, drop) in [
            ("CREATE STATISTICS evil ON (own.fold() + highest), election FROM TABLE", "DROP STATISTICS evil"),
            ("CREATE INDEX evil ON TABLE ((own.fold() + highest))", "DROP INDEX evil"),
            (
                "CREATE TRIGGER evil BEFORE INSERT ON TABLE WHEN (own.fold() = 1) EXECUTE FUNCTION primacy_fence_keeps()",
                "DROP TRIGGER evil ON TABLE",
            ),
        ] {
            let (made, drop) = (made.replace("TABLE", table), drop.replace("TABLE", table));
            server.run_sql(&made).await;
            server.run_sql("SELECT setval('own.seen', 1, false)").await;
            let refused = install(&server.url(), &guard()).await.expect_err(&made).to_string();
            assert!(refused.contains("the function own.fold() belongs to the role app"), "{made}: {refused}");
            let found = attempt(&server.url(), "ledger").await.unwrap();
            let Some(FenceState::Foreign { why }) = found.fence else { panic!("{made}: {:?}", found.fence) };
            assert!(why.contains("the function own.fold() belongs to the role app"), "{made}: {why}");
            assert_eq!(
                server.run_sql("SELECT is_called FROM own.seen").await,
                [Some("f".to_owned())],
                "{made}"
            );
            server.run_sql(&drop).await;
        }
    }
    // Of the system, and yet not as the fence is made.
    server.run_sql("CREATE STATISTICS more ON highest, election FROM primacy_fence").await;
    let refused = install(&server.url(), &guard()).await.expect_err("statistics").to_string();
    assert!(refused.contains("extended statistics"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_where_an_event_trigger_runs_a_function_of_another_role() {
    let Some(server) = prepared().await else { return };
    let evil = "CREATE SEQUENCE own.seen; CREATE FUNCTION own.evil() RETURNS event_trigger LANGUAGE plpgsql AS \
                $$ BEGIN PERFORM nextval('own.seen'); END $$";
    app(&server).await.batch_execute(evil).await.unwrap();
    let election = async |recipe: &str| {
        let url = format!("{}?recipe={recipe}", server.url());
        open_any(&url, "e").await.map(|_| ()).map_err(|error| error.to_string())
    };
    for event in ["ddl_command_start", "ddl_command_end", "sql_drop", "table_rewrite"] {
        server.run_sql(&format!("CREATE EVENT TRIGGER evil ON {event} EXECUTE FUNCTION own.evil()")).await;
        server.run_sql("ALTER EVENT TRIGGER evil ENABLE ALWAYS").await;
        let refused = [
            install(&server.url(), &guard()).await.expect_err(event).to_string(),
            election("lease").await.expect_err(event),
            election("advisory").await.expect_err(event),
        ];
        for refused in refused {
            assert!(
                refused.contains("the function own.evil() of the event trigger evil"),
                "{event}: {refused}"
            );
            assert!(
                refused.contains("app") && refused.contains("the rights of postgres"),
                "{event}: {refused}"
            );
        }
        server.run_sql("DROP EVENT TRIGGER evil").await;
    }
    let made = "SELECT is_called::text FROM own.seen UNION ALL SELECT relname FROM pg_class WHERE relname ~ '^primacy_'";
    assert_eq!(server.run_sql(made).await, [Some("false".to_owned())], "it has run, or something is made");

    // A trigger that is turned off runs nothing, and a superuser's trigger runs nothing of another role's.
    let off = "CREATE EVENT TRIGGER evil ON ddl_command_end EXECUTE FUNCTION own.evil(); ALTER EVENT TRIGGER evil DISABLE";
    server.run_sql(off).await;
    install(&server.url(), &guard()).await.expect("it is turned off");
    election("lease").await.expect("it is turned off");
    server.run_sql("ALTER FUNCTION own.evil() OWNER TO postgres; ALTER EVENT TRIGGER evil ENABLE").await;
    install(&server.url(), &guard()).await.expect("it is trusted");
    election("advisory").await.expect("it is trusted");
}
