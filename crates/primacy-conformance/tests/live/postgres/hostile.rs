//! A role that may write to a guarded table, and makes objects under every name that the SQL of Primacy uses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use primacy::FencingToken;
use primacy::fence::Answer;
use primacy::fence::postgres::{FenceState, Guard, attempt, install, show};
use primacy::stores::{OpenError, Opened, open, open_any};
use primacy_conformance::live::postgres::{Postgres, connect};
use primacy_core::election::lease::{Holder, Record};
use primacy_core::{Identity, Incarnation, NodeId};
use tokio_postgres::Client;

use super::server;

/// The settings with which the server logs each statement, and the application that sent it.
const LOGGED: [&str; 2] = ["log_statement=all", "log_line_prefix=%a|"];

/// A fence that `primacy fence install` made before fences had a version.
const VERSION_1: &str = include_str!("fence_v1.sql");

pub(super) fn guard() -> Guard {
    Guard {
        election: "orders".to_owned(),
        tables: vec!["public.ledger".to_owned()],
        schema: "public".to_owned(),
        writers: vec!["app".to_owned()],
    }
}

/// A server with a table that the role `app` may write to, and a schema in which it may make any object.
pub(super) async fn prepared() -> Option<Postgres> {
    let server = server(&LOGGED).await?;
    server
        .run_sql(
            "CREATE ROLE app LOGIN; CREATE ROLE squatter LOGIN; CREATE TABLE ledger(id int PRIMARY KEY, body text); \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ledger TO app; \
             CREATE SCHEMA own AUTHORIZATION app; CREATE SCHEMA other AUTHORIZATION app; \
             CREATE TABLE witnessed(who name, what text); GRANT INSERT ON witnessed TO PUBLIC",
        )
        .await;
    Some(server)
}

pub(super) async fn app(server: &Postgres) -> Client {
    connect(&server.config("app")).await.expect("over the unix socket")
}

/// Runs everything that Primacy sends to a server, once: an election by each recipe, a guard, and the doctor's look at both.
async fn use_all(server: &Postgres) {
    let url = server.url();
    install(&url, &guard()).await.expect("a guard");
    let found = attempt(&url, "public.ledger").await.expect("a look at it");
    assert_eq!((found.without, found.fence), (Answer::Refused, Some(FenceState::Current)));
    let names: Vec<String> = (0..4).map(|number| format!("e{number}")).collect();
    let mut registers = Vec::new();
    for name in &names {
        registers.push(open(&url, name).await.expect("an election"));
    }
    let record = Record::released(FencingToken(7), primacy_core::Duration::from_secs(1));
    for _ in 0..2 {
        let writes = registers.iter().map(|register| async {
            let before = register.read().await.expect("it is readable").map(|(_, version)| version);
            register.compare_and_set(before.as_ref(), &record).await.expect("it is written")
        });
        all_of(writes).await;
    }
    let _ = tokio::time::timeout(Duration::from_millis(1500), registers[0].changed()).await;
    let Opened::Sessions(sessions) =
        open_any(&format!("{url}?recipe=advisory"), "e0").await.expect("an election by locks")
    else {
        panic!("the recipe keeps sessions");
    };
    let begun = sessions.begin(Duration::from_secs(3)).await.expect("a session");
    let identity = Identity {
        node: NodeId::new("n").expect("it is a name"),
        incarnation: Incarnation { count: 1, nonce: 1 },
    };
    let holder = Holder { identity, address: String::new() };
    sessions.campaign(&begun.session, &holder).await.expect("a place");
    sessions.keep_alive(&begun.session).await.expect("it lives");
    sessions.first().await.expect("somebody is first");
    sessions.ask_to_resign(FencingToken(1), "operator").await.expect("an answer");
    sessions.leave(&begun.session).await.expect("it has left");
    sessions.evict(&identity).await.expect("nothing to evict");
    sessions.end(&begun.session).await.expect("it has ended");
    for suffix in ["", "?recipe=advisory"] {
        primacy::stores::examine(&format!("{url}{suffix}")).await.expect("its settings");
    }
}

async fn all_of<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => {
                done.push(value);
                false
            }
            std::task::Poll::Pending => true,
        });
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

/// The statements that Primacy has sent, from the server's log.
fn sent(server: &Postgres) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    for line in server.printed().lines() {
        if let Some(continued) = line.strip_prefix('\t') {
            if let Some(last) = statements.last_mut() {
                last.push('\n');
                last.push_str(continued);
            }
        } else if let Some(entry) = line.strip_prefix("primacy|")
            && let Some(text) = entry.strip_prefix("LOG:  statement: ").or_else(|| {
                entry
                    .strip_prefix("LOG:  execute ")
                    .and_then(|text| text.split_once(": "))
                    .map(|(_, text)| text)
            })
        {
            statements.push(text.to_owned());
        } else {
            statements.push(String::new());
        }
    }
    statements.into_iter().filter(|text| !text.is_empty()).collect::<BTreeSet<_>>().into_iter().collect()
}

const OPERATORS: &str = "+-*/<>=~!@#%^&|`?";

/// The words of a statement; also of functions in it. A text is one word, and comments are none.
fn words(sql: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$';
        let length = if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            continue;
        } else if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        } else if first == '$' && !rest[1..].starts_with(|letter: char| letter.is_ascii_digit()) {
            // The text between dollar quotes is that of a function.
            rest = rest[1..].split_once('$').map_or("", |(_, rest)| rest);
            continue;
        } else if first == '\'' || rest.starts_with("E'") {
            let begin = if first == 'E' { 2 } else { 1 };
            begin + rest[begin..].find('\'').map_or(rest.len() - begin, |at| at + 1)
        } else if first == '"' {
            1 + rest[1..].find('"').map_or(rest.len() - 1, |at| at + 1)
        } else if first.is_ascii_alphabetic() || first == '_' || first == '$' {
            rest.find(|letter| !is_name(letter)).unwrap_or(rest.len())
        } else if first.is_ascii_digit() {
            rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len())
        } else if rest.starts_with("::") || rest.starts_with(":=") {
            2
        } else if OPERATORS.contains(first) {
            rest.find(|letter| !OPERATORS.contains(letter)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        words.push(rest[..length].to_owned());
        rest = &rest[length..];
    }
    words
}

/// Keywords behind which a parenthesis opens that is no call.
const NO_CALL: &str = "coalesce greatest least values and or not exists any all as on key check operator from select where filter \
                       with then when into if elsif union join return case rows materialized recursive by in array conflict";

/// Names and operators of a statement that do not say their schema, each with its surroundings.
fn unqualified(sql: &str) -> Vec<String> {
    let words = words(sql);
    let lower: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let at = |index: usize| lower.get(index).map_or("", String::as_str);
    let before = |index: usize| index.checked_sub(1).map_or("", at);
    let is_name =
        |word: &str| word.starts_with(|letter: char| letter.is_ascii_alphabetic() || "_\"".contains(letter));
    let local: BTreeSet<&str> = (0..lower.len())
        .filter(|&index| {
            before(index) == "recursive"
                || (at(index + 1) == "as" && ["(", "materialized"].contains(&at(index + 2)))
        })
        .map(at)
        .collect();
    let mut found = Vec::new();
    let (mut depth, mut assigning, mut declaring) = (0_i32, None, false);
    for index in 0..lower.len() {
        let word = at(index);
        match word {
            "(" => depth += 1,
            ")" => depth -= 1,
            "set" => assigning = Some(depth),
            "where" | "from" | "returning" | ";" | "as" | "begin" | "if" => assigning = None,
            _ => {}
        }
        declaring = match word {
            "declare" => true,
            "begin" => false,
            _ => declaring,
        };
        let is_operator = word.starts_with(|letter| OPERATORS.contains(letter));
        let is_assignment = word == "="
            && (assigning == Some(depth)
                || ["errcode", "message", "hint", "fillfactor"].contains(&before(index)));
        let is_star = word == "*" && ["select", ".", "("].contains(&before(index));
        let fault = (is_operator && before(index) != "." && !is_assignment && !is_star)
            || (at(index + 1) == "("
                && is_name(word)
                && before(index) != "."
                && !NO_CALL.split(' ').any(|known| known == word)
                && !["as", "recursive"].contains(&before(index)))
            || (["in", "using"].contains(&word) && at(index + 1) == "(")
            || ["between", "nullif", "like", "ilike", "similar", "distinct"].contains(&word)
            || (word == "case" && at(index + 1) != "when" && before(index) != "end")
            || (["::", "collate"].contains(&word) && at(index + 1) != "pg_catalog")
            || (["from", "join"].contains(&word)
                && is_name(at(index + 1))
                && ![".", "("].contains(&at(index + 2))
                && !["select", "rows", "public"].contains(&at(index + 1))
                && !local.contains(at(index + 1)))
            || (declaring
                && [";", "declare"].contains(&word)
                && at(index + 1) != "begin"
                && at(index + 2) != "pg_catalog");
        if fault {
            found.push(words[index.saturating_sub(6)..(index + 5).min(words.len())].join(" "));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_in_what_is_sent_says_its_schema() {
    let Some(server) = prepared().await else { return };
    use_all(&server).await;
    let statements = sent(&server);
    for part in [
        "primacy_guard()",
        "primacy_attempt",
        "unnest",
        "pg_try_advisory_lock",
        "relpersistence",
        "pg_stat_replication",
    ] {
        assert!(statements.iter().any(|statement| statement.contains(part)), "{part}: {statements:?}");
    }
    let faults: BTreeSet<String> = statements.iter().flat_map(|statement| unqualified(statement)).collect();
    // A table is made by the name that the settings lead to.
    let faults: Vec<&String> = faults.iter().filter(|fault| !fault.contains("NOT EXISTS primacy_")).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    // The check itself is tested: it must find these.
    for bad in [
        "SELECT a = b",
        "SELECT strpos(a, b)",
        "SELECT x::text",
        "SELECT a FROM b",
        "SELECT a IN (1)",
        "DECLARE line text; BEGIN",
    ] {
        assert!(!unqualified(bad).is_empty(), "{bad}");
    }
}

/// A full queue of notifications, which every role can fill, makes a transaction fail that has notified, and keeps a `LISTEN` for as long as
/// it is.
#[tokio::test(flavor = "multi_thread")]
async fn no_write_waits_for_a_notification() {
    let Some(server) = prepared().await else { return };
    use_all(&server).await;
    let statements = sent(&server);
    let with = |part: &str| statements.iter().filter(|text| text.contains(part)).cloned().collect::<Vec<_>>();
    let (notifying, writing) = (with("pg_notify"), [with("UPDATE "), with("INSERT ")].concat());
    assert!(!notifying.is_empty() && !writing.is_empty(), "{statements:?}");
    assert!(writing.iter().all(|text| !text.contains("pg_notify")), "{writing:?}");
    // The connection that listens has sent nothing else since, but to find a pooler.
    let listening =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy' AND query LIKE 'LISTEN%'";
    let register = open(&server.url(), "listening").await.expect("an election");
    let _ = tokio::time::timeout(Duration::from_millis(1), register.changed()).await;
    let listens = async {
        while server.run_sql(listening).await != [Some("1".to_owned())] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), listens).await.expect("one connection listens");
    let record = Record::released(FencingToken(7), primacy_core::Duration::from_secs(1));
    register.compare_and_set(None, &record).await.expect("a write");
    assert_eq!(server.run_sql(listening).await, [Some("1".to_owned())], "requests go over another one");
}

/// Statements that make, in a schema, functions, operators, types and collations of these names; each one that runs logs the role that runs
/// it.
fn planted(schema: &str, names: &BTreeSet<String>, operators: &BTreeSet<String>) -> Vec<String> {
    let types = ["text", "int8", "int4", "name", "oid", "bool", "xid", "\"char\"", "regclass"];
    let mut lists: Vec<Vec<&str>> =
        vec![vec![], vec!["anyarray"], vec!["text", "text", "bool"], vec!["text", "text", "text"]];
    lists.extend([
        vec!["text", "int4", "int4"],
        vec!["text", "text", "int4"],
        vec!["text", "bool"],
        vec!["bytea", "int4", "int4"],
    ]);
    lists.extend(types.iter().map(|kind| vec![*kind]));
    for left in ["text", "int8", "int4", "oid"] {
        lists.extend(["text", "int8", "int4"].map(|right| vec![left, right]));
    }
    let body = |name: &str, result: &str| {
        let name = name.replace('\'', "''");
        format!(
            "LANGUAGE plpgsql AS $evil$ BEGIN IF current_user OPERATOR(pg_catalog.<>) 'app'::pg_catalog.name THEN \
             INSERT INTO public.witnessed VALUES (current_user, '{name}'); END IF; RETURN {result}; END $evil$"
        )
    };
    let mut statements = Vec::new();
    for name in names {
        let quoted = format!("\"{name}\"");
        for list in &lists {
            let list: Vec<String> = list.iter().map(|kind| format!("pg_catalog.{kind}")).collect();
            let (list, body) = (list.join(", "), body(name, "NULL"));
            statements
                .push(format!("CREATE FUNCTION {schema}.{quoted}({list}) RETURNS pg_catalog.text {body}"));
        }
        statements.push(format!("CREATE COLLATION {schema}.{quoted} FROM pg_catalog.\"POSIX\""));
    }
    for (number, symbol) in operators.iter().enumerate() {
        for kind in types {
            let (function, kind) = (format!("{schema}.operator_{number}"), format!("pg_catalog.{kind}"));
            let body = body(symbol, "true");
            statements
                .push(format!("CREATE FUNCTION {function}({kind}, {kind}) RETURNS pg_catalog.bool {body}"));
            statements.push(format!(
                "CREATE OPERATOR {schema}.{symbol} (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = {function})"
            ));
        }
    }
    statements
}

/// Types that check their values, or views that call a function; both go under the same names.
fn shadows(schema: &str, names: &BTreeSet<String>, kind: &str) -> Vec<String> {
    let check = format!(
        "CREATE FUNCTION {schema}.evil_{kind}(pg_catalog.text) RETURNS pg_catalog.bool LANGUAGE plpgsql AS $evil$ BEGIN \
         IF current_user OPERATOR(pg_catalog.<>) 'app'::pg_catalog.name THEN INSERT INTO public.witnessed VALUES \
         (current_user, '{kind}'); END IF; RETURN true; END $evil$"
    );
    let of_name = |name: &String| {
        if kind == "domain" {
            format!(
                "CREATE DOMAIN {schema}.\"{name}\" AS pg_catalog.text CHECK ({schema}.evil_domain(VALUE))"
            )
        } else {
            format!(
                "CREATE VIEW {schema}.\"{name}\" AS SELECT 'orders'::pg_catalog.text AS election, 0::pg_catalog.int8 AS highest \
                 WHERE {schema}.evil_view('')"
            )
        }
    };
    std::iter::once(check).chain(names.iter().map(of_name)).collect()
}

/// Runs the statements, and returns how many succeeded; a statement that the server refuses plants nothing.
async fn plant(client: &Client, statements: &[String]) -> usize {
    let mut planted = 0;
    // Some at a time: each object takes a lock until the end of the transaction.
    for some in statements.chunks(50) {
        let texts: Vec<String> = some.iter().map(|text| format!("$text${text}$text$")).collect();
        let run = format!(
            "DO $run$ DECLARE statement pg_catalog.text; planted pg_catalog.int4 := 0; BEGIN \
             FOREACH statement IN ARRAY ARRAY[{}] LOOP BEGIN EXECUTE statement; planted := planted OPERATOR(pg_catalog.+) 1; \
             EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; \
             PERFORM pg_catalog.set_config('test.planted', planted::pg_catalog.text, false); END $run$; \
             SELECT pg_catalog.current_setting('test.planted')",
            texts.join(", ")
        );
        let messages = client.simple_query(&run).await.expect("each failure is caught");
        let row = messages.iter().find_map(|message| {
            let tokio_postgres::SimpleQueryMessage::Row(row) = message else { return None };
            row.get(0)?.parse::<usize>().ok()
        });
        planted += row.expect("a number");
    }
    planted
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_writer_plants_runs_with_the_rights_of_nobody_else() {
    let Some(server) = prepared().await else { return };
    use_all(&server).await;
    let all: Vec<String> = sent(&server).iter().flat_map(|statement| words(statement)).collect();
    let names: BTreeSet<String> = all
        .iter()
        .filter(|word| word.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '"'))
        .map(|word| word.trim_matches('"').to_owned())
        .filter(|name| !["pg_catalog", "public", "app", "orders"].contains(&name.as_str()))
        .collect();
    let operators: BTreeSet<String> =
        all.iter().filter(|word| word.starts_with(|letter| OPERATORS.contains(letter))).cloned().collect();
    assert!(
        names.contains("strpos") && names.contains("text") && operators.contains("~"),
        "{names:?} {operators:?}"
    );

    // Each session has its own pg_temp: types there and views in the path, or the other way about.
    let (first, second) = (app(&server).await, app(&server).await);
    let mut count = 0;
    for (client, schema, temporary, lasting) in
        [(&first, "own", "domain", "view"), (&second, "other", "view", "domain")]
    {
        count += plant(client, &planted(schema, &names, &operators)).await;
        count += plant(client, &shadows(schema, &names, lasting)).await;
        count += plant(client, &planted("pg_temp", &names, &operators)).await;
        count += plant(client, &shadows("pg_temp", &names, temporary)).await;
        let cast = format!(
            "CREATE TYPE {schema}.planted_token AS ENUM ('9'); CREATE FUNCTION {schema}.planted_cast({schema}.planted_token) RETURNS pg_catalog.int8 \
             LANGUAGE plpgsql AS $evil$ BEGIN IF current_user OPERATOR(pg_catalog.<>) 'app'::pg_catalog.name THEN \
             INSERT INTO public.witnessed VALUES (current_user, 'cast'); END IF; RETURN 9; END $evil$; \
             CREATE CAST ({schema}.planted_token AS pg_catalog.int8) WITH FUNCTION {schema}.planted_cast({schema}.planted_token) AS IMPLICIT"
        );
        assert_eq!(plant(client, &[cast]).await, 1);
    }
    assert!(count > 2 * (names.len() * 10 + operators.len()), "{count} of names {}", names.len());

    let mut token = 10_u64;
    for (client, own) in [(&first, "own"), (&second, "other")] {
        for path in
            ["OWN, pg_catalog, public", "pg_temp, OWN, pg_catalog, public", "pg_temp, pg_catalog, OWN"]
        {
            let path = path.replace("OWN", own);
            token += 10;
            for statements in [
                format!(
                    "{}; DELETE FROM public.ledger; INSERT INTO public.ledger VALUES (1)",
                    in_public(token)
                ),
                format!("SET LOCAL primacy.token = '{} orders'; DELETE FROM public.ledger", token + 1),
                format!(
                    "SET LOCAL primacy.token = '{} orders'; DELETE FROM public.ledger; UPDATE public.ledger SET id = 2",
                    token + 1
                ),
                format!("SET LOCAL primacy.token = '{} orders'; DELETE FROM public.ledger", token - 1),
                "DELETE FROM public.ledger".to_owned(),
                format!("SELECT public.primacy_token('orders', '9'::{own}.planted_token)"),
            ] {
                // Some are refused, by the guard or by the objects of the writer's own.
                let _ = client
                    .batch_execute(&format!("BEGIN; SET LOCAL search_path = {path}; {statements}; COMMIT"))
                    .await;
                let _ = client.batch_execute("ROLLBACK").await;
            }
        }
    }
    let highest = server.run_sql("SELECT highest FROM primacy_fence").await;
    assert_eq!(highest, [Some((token + 1).to_string())], "the honest statements came through");

    // A superuser, whose path names the writer's schemas first.
    server.run_sql("ALTER ROLE postgres SET search_path = own, other, pg_catalog, public").await;
    let url = format!("{}?schema=public", server.url());
    install(&server.url(), &guard()).await.expect("once more");
    let found = attempt(&server.url(), "public.ledger").await.expect("a look");
    assert_eq!((found.without, found.stale), (Answer::Refused, Some(Answer::Refused)));
    let register = open(&url, "hostile").await.expect("an election");
    let record = Record::released(FencingToken(7), primacy_core::Duration::from_secs(1));
    let version = register.compare_and_set(None, &record).await.expect("a record");
    register.compare_and_set(Some(&version), &record).await.expect("another");
    // Without a schema, the path leads to an object that is not ours.
    let refused = open(&server.url(), "hostile").await.expect_err("a view of another role");
    assert!(matches!(&refused, OpenError::Refused { why } if why.contains("of the role app")), "{refused}");
    let witnessed = "SELECT DISTINCT pg_catalog.concat(who, ' ', what) FROM public.witnessed";
    let witnessed = server.run_sql(&format!("SET search_path = pg_catalog; {witnessed}")).await;
    assert!(witnessed.is_empty(), "these have run: {witnessed:?}");
}

fn in_public(token: u64) -> String {
    show("orders", FencingToken(token)).replace("primacy_token", "public.primacy_token")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_of_version_1_is_told_and_brought_up_to_date() {
    let Some(server) = prepared().await else { return };
    server.run_sql(VERSION_1).await;
    let client = app(&server).await;
    let evil = "CREATE FUNCTION pg_temp.evil(pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN \
                IF current_user <> 'app' THEN INSERT INTO public.witnessed VALUES (current_user, 'text'); END IF; \
                RETURN true; END $$; CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.evil(VALUE))";
    client.batch_execute(evil).await.unwrap();
    let write =
        |token: u64| format!("BEGIN; SET LOCAL primacy.token = '{token} orders'; DELETE FROM ledger; COMMIT");
    client.batch_execute(&write(7)).await.unwrap();
    let count = "SELECT count(*) FROM witnessed WHERE who = 'postgres'";
    assert_ne!(server.run_sql(count).await, [Some("0".to_owned())], "the fault is there in version 1");
    let found = attempt(&server.url(), "ledger").await.unwrap();
    assert_eq!((found.fence, found.highest), (Some(FenceState::Version(1)), Some(FencingToken(7))));

    server.run_sql("ALTER TABLE primacy_fence DISABLE TRIGGER primacy_keeps").await;

    // A statement of the old version is under way: it is not overtaken by one of the new.
    let old = app(&server).await;
    old.batch_execute("BEGIN; SET LOCAL primacy.token = '7 orders'; INSERT INTO ledger VALUES (7)")
        .await
        .unwrap();
    let url = server.url();
    let installing = tokio::spawn(async move { install(&url, &guard()).await });
    super::fence::until_waiting(&server, 1).await;
    old.batch_execute("COMMIT").await.unwrap();
    installing.await.unwrap().expect("it is brought up to date");
    // A trigger that may have been turned off by the fault of version 1 is on again.
    let lowering =
        server.connect().await.batch_execute("UPDATE primacy_fence SET highest = 0").await.unwrap_err();
    assert_eq!(lowering.code().unwrap().code(), "PRM04");
    server.run_sql("TRUNCATE witnessed").await;
    let fresh = app(&server).await;
    fresh.batch_execute(evil).await.unwrap();
    for client in [&client, &fresh] {
        client.batch_execute(&write(8)).await.unwrap();
        let stale = client.batch_execute(&write(7)).await.unwrap_err();
        assert_eq!(stale.code().unwrap().code(), "PRM02");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    assert_eq!(server.run_sql("SELECT count(*) FROM witnessed").await, [Some("0".to_owned())]);
    let found = attempt(&server.url(), "ledger").await.unwrap();
    assert_eq!((found.fence, found.highest), (Some(FenceState::Current), Some(FencingToken(8))));
    server.run_sql("CREATE OR REPLACE FUNCTION primacy_fence_keeps() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'").await;
    assert_eq!(attempt(&server.url(), "ledger").await.unwrap().fence, Some(FenceState::Altered));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_role_has_made_is_refused_with_its_name() {
    let Some(server) = prepared().await else { return };
    server.run_sql("GRANT CREATE, USAGE ON SCHEMA public TO squatter").await;
    let squatter = connect(&server.config("squatter")).await.unwrap();
    let of_record = "(election text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL, token numeric NOT NULL, record bytea NOT NULL)";
    for (made, drop, part) in [
        (
            "CREATE TABLE primacy_fence(election text COLLATE \"C\" PRIMARY KEY, highest bigint NOT NULL CHECK (highest >= 0))",
            "DROP TABLE primacy_fence",
            "primacy_fence",
        ),
        ("CREATE VIEW primacy_fence_hold AS SELECT 1", "DROP VIEW primacy_fence_hold", "primacy_fence_hold"),
        (
            "CREATE FUNCTION primacy_admit(text, bigint) RETURNS void LANGUAGE sql AS ''",
            "DROP FUNCTION primacy_admit(text, bigint)",
            "primacy_admit",
        ),
        (
            "CREATE FUNCTION primacy_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "DROP FUNCTION primacy_guard()",
            "primacy_guard",
        ),
    ] {
        squatter.batch_execute(made).await.unwrap();
        let refused = install(&server.url(), &guard()).await.expect_err(made).to_string();
        assert!(refused.contains(part), "{made}: {refused}");
        squatter.batch_execute(drop).await.unwrap();
    }
    squatter
        .batch_execute(&format!(
            "CREATE TABLE primacy_record {of_record}; GRANT ALL ON primacy_record TO PUBLIC"
        ))
        .await
        .unwrap();
    let why = |error: OpenError| {
        let OpenError::Refused { why } = error else { panic!("{error:?}") };
        why
    };
    let refused = why(open(&server.url(), "e").await.expect_err("the table of a squatter"));
    assert!(refused.contains("of the role squatter") && refused.contains("owner=squatter"), "{refused}");
    let refused =
        why(open(&format!("{}?owner=squatter", server.url()), "e").await.expect_err("everybody may write"));
    assert!(refused.contains("PUBLIC"), "{refused}");
    squatter.batch_execute("REVOKE ALL ON primacy_record FROM PUBLIC").await.unwrap();
    open(&format!("{}?owner=squatter", server.url()), "e").await.expect("whom the operator trusts");

    // An object that belongs to us, and does not do what it should.
    squatter.batch_execute("DROP TABLE primacy_record").await.unwrap();
    server.run_sql(&format!("CREATE TABLE primacy_record {of_record}")).await;
    let trigger = "RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'";
    server.run_sql(&format!("CREATE FUNCTION ours() {trigger}")).await;
    // It logs its run in a way that no rollback takes back.
    squatter
        .batch_execute(&format!(
            "CREATE FUNCTION their_trigger() {trigger}; CREATE DOMAIN their_number AS int; CREATE SEQUENCE ran; \
             CREATE FUNCTION theirs(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS \
             'BEGIN RETURN nextval(''public.ran'') > 0; END'"
        ))
        .await
        .unwrap();
    let has_run = "SELECT last_value FROM ran WHERE is_called";
    for (change, back, part) in [
        ("ALTER TABLE primacy_record SET UNLOGGED", "ALTER TABLE primacy_record SET LOGGED", "not logged"),
        (
            "CREATE RULE deaf AS ON INSERT TO primacy_record DO INSTEAD NOTHING",
            "DROP RULE deaf ON primacy_record",
            "rules",
        ),
        ("GRANT UPDATE ON primacy_record TO PUBLIC", "REVOKE UPDATE ON primacy_record FROM PUBLIC", "PUBLIC"),
        (
            "GRANT UPDATE (version, token) ON primacy_record TO PUBLIC",
            "REVOKE UPDATE (version, token) ON primacy_record FROM PUBLIC",
            "PUBLIC",
        ),
        (
            "ALTER TABLE primacy_record ADD CONSTRAINT theirs CHECK (theirs(1) AND version <> 0)",
            "ALTER TABLE primacy_record DROP CONSTRAINT theirs",
            "the function theirs(integer), which squatter can change",
        ),
        (
            "ALTER TABLE primacy_record ADD COLUMN more boolean DEFAULT theirs(1)",
            "ALTER TABLE primacy_record DROP COLUMN more",
            "the function theirs(integer), which squatter can change",
        ),
        (
            "ALTER TABLE primacy_record ADD COLUMN more their_number",
            "ALTER TABLE primacy_record DROP COLUMN more",
            "the domain their_number, which squatter can change",
        ),
        (
            "CREATE INDEX theirs ON primacy_record (theirs(1), version)",
            "DROP INDEX theirs",
            "the function theirs(integer), which squatter can change",
        ),
        (
            "CREATE STATISTICS theirs ON (theirs(1)), version FROM primacy_record",
            "DROP STATISTICS theirs",
            "the function theirs(integer), which squatter can change",
        ),
        (
            "CREATE TRIGGER theirs BEFORE DELETE ON primacy_record WHEN (theirs(1)) EXECUTE FUNCTION ours()",
            "DROP TRIGGER theirs ON primacy_record",
            "the function theirs(integer), which squatter can change",
        ),
        (
            "CREATE TRIGGER theirs BEFORE DELETE ON primacy_record EXECUTE FUNCTION their_trigger()",
            "DROP TRIGGER theirs ON primacy_record",
            "the function their_trigger(), which squatter can change",
        ),
        ("CREATE TABLE child() INHERITS (primacy_record)", "DROP TABLE child", "inherit"),
    ] {
        server.run_sql(change).await;
        let before = server.run_sql(has_run).await;
        let refused = why(open(&server.url(), "e").await.expect_err(change));
        assert!(refused.contains(part), "{refused}");
        assert_eq!(server.run_sql(has_run).await, before, "{change}: it has run");
        server.run_sql(back).await;
    }
    server
        .run_sql("CREATE TRIGGER ours BEFORE DELETE ON primacy_record EXECUTE FUNCTION ours(); CREATE STATISTICS ours ON version, token FROM primacy_record")
        .await;
    open(&server.url(), "e").await.expect("what is of the system or of a trusted role may be there");
    server.run_sql("REVOKE CREATE ON SCHEMA public FROM squatter").await;
    install(&server.url(), &guard()).await.expect("nothing is left of them");
    server.run_sql("GRANT UPDATE ON primacy_fence TO app").await;
    let refused = install(&server.url(), &guard()).await.expect_err("others may write").to_string();
    assert!(refused.contains("others than its owner may write"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_lends_its_rights_to_nobody_whose_table_it_tries() {
    let Some(server) = prepared().await else { return };
    let evil = "CREATE FUNCTION own.evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                INSERT INTO public.witnessed VALUES (current_user, 'trigger'); PERFORM nextval('own.seen'); RETURN NULL; END $$; \
                CREATE FUNCTION own.fold() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN \
                PERFORM nextval('own.seen'); RETURN 1; END $$; \
                CREATE SEQUENCE own.seen; CREATE TABLE own.ledger(id int DEFAULT own.fold()); \
                CREATE TRIGGER evil BEFORE DELETE ON own.ledger EXECUTE FUNCTION own.evil(); \
                CREATE VIEW own.shown AS SELECT * FROM own.ledger";
    app(&server).await.batch_execute(evil).await.unwrap();
    for (table, part) in
        [("own.ledger", "the table own.ledger belongs to the role app"), ("own.shown", "it is no table")]
    {
        let found = attempt(&server.url(), table).await.unwrap();
        let Answer::Failed { why } = &found.without else { panic!("{table}: {found:?}") };
        assert!(why.contains(part) && (why.contains("ask as that role") || table == "own.shown"), "{why}");
    }
    // A sequence would keep what a rollback takes back.
    assert_eq!(server.run_sql("SELECT is_called FROM own.seen").await, [Some("f".to_owned())]);
    server.run_sql("ALTER ROLE app PASSWORD 'app'").await;
    let as_owner = format!("postgres://app:app@{}/postgres", server.address());
    assert_eq!(attempt(&as_owner, "own.ledger").await.unwrap().without, Answer::Admitted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_rights_on_the_fence_stops_nobody() {
    let Some(server) = prepared().await else { return };
    install(&server.url(), &guard()).await.unwrap();
    let squatter = connect(&server.config("squatter")).await.unwrap();
    // Every lock that it can take: the numbers of the old guard, the relations by a sequence's way, and what can be prepared.
    for statement in [
        "BEGIN",
        "SELECT pg_advisory_lock(1347571033, 0), pg_advisory_lock(1347571033, hashtext('orders'))",
        "SAVEPOINT a",
        "SELECT nextval('primacy_fence_hold'::regclass)",
        "ROLLBACK TO a",
        "SELECT nextval('primacy_fence'::regclass)",
        "ROLLBACK TO a",
        "SELECT nextval('ledger'::regclass)",
        "ROLLBACK TO a",
        "PREPARE held AS UPDATE primacy_fence SET highest = 1",
        "SELECT * FROM primacy_fence FOR SHARE",
        "ROLLBACK TO a",
        "LOCK TABLE primacy_fence IN SHARE MODE",
        "ROLLBACK TO a",
        "SELECT * FROM primacy_fence",
    ] {
        // Statements that are refused keep what they have locked before.
        let _ = squatter.batch_execute(statement).await;
    }
    let client = app(&server).await;
    let patient = async {
        for token in 1..=3 {
            let write =
                format!("BEGIN; SET LOCAL primacy.token = '{token} orders'; DELETE FROM ledger; COMMIT");
            client.batch_execute(&write).await.unwrap();
            client.batch_execute(&format!("SELECT primacy_token('orders', {token})")).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), patient).await.expect("nobody keeps it waiting");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_is_let_in_though_the_old_one_never_pauses() {
    let Some(server) = prepared().await else { return };
    install(&server.url(), &guard()).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(app(&server).await);
    }
    let writers = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let writers = Arc::clone(&writers);
        tasks.spawn(async move {
            // Each transaction is open for a while, and begins while another one is. It goes on writing while a new leader waits.
            let write = format!(
                "BEGIN; SET LOCAL primacy.token = '7 orders'; DELETE FROM ledger WHERE id = {number}; SELECT pg_sleep(0.05); \
                 DELETE FROM ledger WHERE id = {number}; COMMIT"
            );
            loop {
                if let Err(error) = client.batch_execute(&write).await {
                    return error.code().unwrap().code().to_owned();
                }
                writers.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
    }
    while writers.load(std::sync::atomic::Ordering::SeqCst) < 30 {
        tokio::task::yield_now().await;
    }
    let client = app(&server).await;
    let taking_over = client.batch_execute("SELECT primacy_token('orders', 8)");
    tokio::time::timeout(Duration::from_secs(60), taking_over).await.expect("it is not kept out").unwrap();
    for code in tasks.join_all().await {
        assert_eq!(code, "PRM02");
    }
}
