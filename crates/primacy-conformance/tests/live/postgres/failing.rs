//! The errors of a caller when the server, the network or a right fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::postgres::{PgBouncer, Postgres, SUPERUSER, url};
use primacy_conformance::live::proxy::Proxy;
use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use primacy_stores::record::LENGTH_MAX;
use primacy_stores::{OpenError, ReadError, RecordError, Register, SetError, open, open_existing};

use super::server;
use crate::registers::refusal;

/// The time to wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The interval between two attempts.
const POLL: Duration = Duration::from_millis(20);

fn record(token: u64) -> Record {
    let mut record = Record::released(FencingToken(token), primacy_core::Duration::from_secs(10));
    record.nonce = token;
    record
}

async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Reads until the store is there again.
async fn read_again(register: &Arc<dyn Register>) -> Option<(Record, Version)> {
    until("the store", async || register.read().await.ok()).await
}

async fn opened(address: SocketAddr) -> Arc<dyn Register> {
    open(&url(SUPERUSER, address), "failing").await.expect("the server is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_killed_is_unavailable_and_used_again_when_it_is_back() {
    let Some(mut server) = server(&[]).await else { return };
    let register = opened(server.address()).await;
    let version = register.compare_and_set(None, &record(1)).await.unwrap();
    server.kill().await;
    // The first may meet the broken connection; later requests find no server to connect to.
    let _ = register.read().await;
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    let refused = register.compare_and_set(Some(&version), &record(2)).await;
    assert!(matches!(refused, Err(SetError::Unavailable { .. })), "{refused:?}");
    let asked = refusal(&server.url()).await;
    assert!(matches!(asked, OpenError::Unavailable { .. }), "{asked}");
    server.restart().await;
    assert_eq!(read_again(&register).await, Some((record(1), version.clone())), "what was answered is kept");
    register.compare_and_set(Some(&version), &record(2)).await.unwrap();
    // Changes are noticed over the new connection, too.
    let changed = register.changed();
    let other = opened(server.address()).await;
    let (_, version) = other.read().await.unwrap().unwrap();
    other.compare_and_set(Some(&version), &record(3)).await.unwrap();
    tokio::time::timeout(PATIENCE, changed).await.expect("it is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_reply_is_lost_is_unknown_and_may_be_done() {
    let Some(server) = server(&[]).await else { return };
    let proxy = Proxy::start(server.address());
    let register = opened(proxy.address()).await;
    let mut version = register.compare_and_set(None, &record(1)).await.unwrap();
    for token in 2..6 {
        // Cut when the server has answered; or never, without notice.
        let is_cut = token % 2 == 0;
        let dropped = proxy.dropped();
        proxy.drop_replies();
        let lost = record(token);
        let writing = register.compare_and_set(Some(&version), &lost);
        let losing = async {
            if is_cut {
                proxy.until_dropped(dropped).await;
                // The watcher's answer may have been the first; the write's comes within the time of a request.
                until("the write", async || {
                    let token = server.run_sql("SELECT token FROM primacy_record").await;
                    (token == [Some(lost.token.to_string())]).then_some(())
                })
                .await;
                proxy.cut();
            }
        };
        let (written, ()) = tokio::join!(writing, losing);
        assert!(matches!(written, Err(SetError::Unknown { .. })), "{written:?}");
        proxy.pass();
        let (found, newest) = read_again(&register).await.unwrap();
        assert_eq!(found, record(token), "it was done");
        version = newest;
    }
    // A request that never reaches the server is not known to the caller either, and is not done.
    proxy.stall();
    let written = register.compare_and_set(Some(&version), &record(9)).await;
    assert!(matches!(written, Err(SetError::Unknown { .. })), "{written:?}");
    proxy.cut();
    proxy.refuse();
    let refused = until("the connection to be given up", async || {
        let written = register.compare_and_set(Some(&version), &record(9)).await;
        matches!(written, Err(SetError::Unavailable { .. })).then_some(written)
    });
    refused.await.unwrap_err();
    proxy.pass();
    assert_eq!(read_again(&register).await, Some((record(5), version)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_keeps_locked_is_unavailable_and_others_go_on() {
    let Some(server) = server(&[]).await else { return };
    let held = open(&server.url(), "held").await.unwrap();
    let free = open(&server.url(), "free").await.unwrap();
    let version = held.compare_and_set(None, &record(1)).await.unwrap();
    let mut operator = server.connect().await;
    let transaction = operator.transaction().await.unwrap();
    let locking = "SELECT 1 FROM primacy_record WHERE election = 'held' FOR UPDATE";
    transaction.batch_execute(locking).await.unwrap();
    let refused = held.compare_and_set(Some(&version), &record(2)).await;
    assert!(matches!(&refused, Err(SetError::Unavailable { why }) if why.contains("55P03")), "{refused:?}");
    free.compare_and_set(None, &record(1)).await.expect("it is another row");
    transaction.rollback().await.unwrap();
    held.compare_and_set(Some(&version), &record(2)).await.expect("it is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_waits_for_the_standbys_whatever_the_role_says() {
    let Some(server) = server(&["synchronous_standby_names=nobody"]).await else { return };
    // A user's own setting must not weaken the promise; the superuser here only makes the table.
    server.run_sql("SET synchronous_commit = off; ALTER ROLE postgres SET synchronous_commit = off").await;
    let register = opened(server.address()).await;
    let written = register.compare_and_set(None, &record(1)).await;
    assert!(matches!(written, Err(SetError::Unknown { .. })), "there is no such standby: {written:?}");
    // No reader sees it before a standby has it.
    assert_eq!(read_again(&register).await, None);
    server.run_sql("ALTER SYSTEM SET synchronous_standby_names = ''").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_asked_for_and_not_shown() {
    let Some(server) = server(&[]).await else { return };
    server.run_sql("CREATE ROLE app LOGIN PASSWORD 'right'; GRANT CREATE ON SCHEMA public TO app").await;
    let with = |login: &str| format!("postgres://{login}@{}/postgres", server.address());
    for (login, part) in
        [("app:wrong-secret", "28P01"), ("app", "password"), ("nobody:wrong-secret", "28P01")]
    {
        let error = refusal(&with(login)).await;
        assert!(matches!(error, OpenError::Refused { .. }), "{error}");
        let told = error.to_string();
        assert!(told.contains(part) && !told.contains("secret"), "{told}");
    }
    let none = refusal(&format!("postgres://app:right@{}/none", server.address())).await;
    assert!(matches!(&none, OpenError::Refused { why } if why.contains("3D000")), "{none}");
    let register = open(&with("app:right"), "failing").await.unwrap();
    register.compare_and_set(None, &record(1)).await.unwrap();
    let socket = format!(
        "postgres://app@/postgres?host={}&port={}",
        server.ground().path().display(),
        server.address().port()
    );
    let register = open(&socket, "failing").await.expect("over the unix socket, without a password");
    assert!(register.read().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_rights_are_enough_and_less_is_refused_with_what_to_do() {
    let Some(server) = server(&[]).await else { return };
    server.run_sql("CREATE ROLE app LOGIN PASSWORD 'app'").await;
    let url = format!("postgres://app:app@{}/postgres", server.address());
    let register = open_existing(&url, "failing").await.expect("looking needs no table");
    assert_eq!(register.read().await, Ok(None));
    let refused = register.compare_and_set(None, &record(1)).await;
    assert!(
        matches!(&refused, Err(SetError::Unavailable { why }) if why.contains("CREATE TABLE")),
        "{refused:?}"
    );
    let error = refusal(&url).await;
    let OpenError::Refused { why } = &error else { panic!("{error}") };
    // The statement in the error can be run as it is.
    let statement = why.split("run: ").nth(1).unwrap().split("; GRANT").next().unwrap();
    server.run_sql(statement).await;
    server.run_sql("GRANT SELECT, INSERT, UPDATE ON primacy_record TO app").await;
    let register = open(&url, "failing").await.unwrap();
    let version = register.compare_and_set(None, &record(1)).await.unwrap();
    register.compare_and_set(Some(&version), &record(2)).await.unwrap();
    assert_eq!(server.run_sql("SELECT token FROM primacy_record").await, [Some("2".to_owned())]);
    server.run_sql("DROP TABLE primacy_record; CREATE TABLE primacy_record(mine int)").await;
    assert!(register.read().await.is_err(), "another table is in its place");
    let foreign = refusal(&server.url()).await;
    assert!(matches!(&foreign, OpenError::Refused { why } if why.contains("mine integer")), "{foreign}");
    server.run_sql("DROP TABLE primacy_record").await;
    assert_eq!(register.read().await, Ok(None), "what is not there is absent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_passed_over_and_used_when_it_is_promoted() {
    let Some(mut server) = server(&[]).await else { return };
    let standby = server.standby().await.expect("it is installed with the server");
    let refused = refusal(&standby.url()).await;
    assert!(matches!(&refused, OpenError::Unavailable { why } if why.contains("no writes")), "{refused}");
    let both = format!("postgres://{SUPERUSER}@{},{}/postgres", standby.address(), server.address());
    let register = open(&both, "failing").await.expect("the second one takes writes");
    let version = register.compare_and_set(None, &record(1)).await.unwrap();
    until("the standby to have it", async || caught_up(&standby).await.then_some(())).await;
    server.kill().await;
    standby.promote().await;
    assert_eq!(read_again(&register).await, Some((record(1), version.clone())));
    register.compare_and_set(Some(&version), &record(2)).await.expect("it takes writes now");
}

async fn caught_up(standby: &Postgres) -> bool {
    let exists = standby.run_sql("SELECT to_regclass('primacy_record') IS NOT NULL").await;
    exists == [Some("t".to_owned())]
        && standby.run_sql("SELECT token FROM primacy_record").await == [Some("1".to_owned())]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_does_not_keep_the_next_one_from_being_used() {
    let Some(server) = server(&[]).await else { return };
    let proxy = Proxy::start(server.address());
    proxy.stall();
    let both = format!("postgres://{SUPERUSER}@{},{}/postgres", proxy.address(), server.address());
    let register = open(&both, "failing").await.expect("the second one answers");
    register.compare_and_set(None, &record(1)).await.unwrap();
    // Only the watcher asks, which notices the silence, and goes on with the next server.
    proxy.pass();
    let register = open(&format!("{both}?application_name=watched"), "failing").await.unwrap();
    let changed = register.changed();
    proxy.stall();
    let other = opened(server.address()).await;
    let (_, version) = other.read().await.unwrap().unwrap();
    other.compare_and_set(Some(&version), &record(2)).await.unwrap();
    tokio::time::timeout(PATIENCE, changed).await.expect("it is noticed over the other server");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_verified_and_insisted_on() {
    let Some(plain) = server(&[]).await else { return };
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::from_params(&parameters, &key);
    let server_key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&server_key, &issuer).unwrap();
    let Some(mut server) = server(&[]).await else { return };
    let at = |name: &str| server.ground().at(name);
    let (ca, data) = (at("ca.pem"), at("data"));
    std::fs::write(&ca, authority.pem()).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&data).unwrap());
    for (name, text) in [("server.crt", certificate.pem()), ("server.key", server_key.serialize_pem())] {
        let path = data.join(name);
        std::fs::write(&path, text).unwrap();
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    server.run_sql("ALTER SYSTEM SET ssl = on").await;
    server.stop().await;
    server.restart().await;
    let with = |host: &str, settings: &str| {
        format!("postgres://{SUPERUSER}@{host}:{}/postgres?{settings}", server.address().port())
    };
    let ca = ca.display();
    let register = open(&with("localhost", &format!("ca={ca}")), "failing")
        .await
        .expect("a certificate that is trusted");
    register.compare_and_set(None, &record(1)).await.unwrap();
    let encrypted = server.run_sql("SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'primacy'");
    assert_eq!(encrypted.await, [Some("1".to_owned())]);
    let unknown = refusal(&with("localhost", "sslmode=require")).await;
    assert!(matches!(unknown, OpenError::Refused { .. }), "{unknown}");
    let required = format!("postgres://{SUPERUSER}@{}/postgres?sslmode=require", plain.address());
    let refused = refusal(&required).await;
    assert!(matches!(&refused, OpenError::Refused { why } if why.contains("TLS")), "{refused}");
    let preferred = format!("postgres://{SUPERUSER}@{}/postgres?sslmode=prefer", plain.address());
    open(&preferred, "failing").await.expect("where there is no TLS, `prefer` goes without");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_found_out_and_changes_are_looked_for() {
    let Some(server) = server(&[]).await else { return };
    let pooler = PgBouncer::start(&server, 2).await.expect("it is installed with the server");
    let register = open(&pooler.url(), "failing").await.unwrap();
    let version = register.compare_and_set(None, &record(1)).await.unwrap();
    let changed = register.changed();
    server.run_sql("UPDATE primacy_record SET version = version % 1000 + 1").await;
    tokio::time::timeout(PATIENCE, changed).await.expect("it is noticed");
    assert_eq!(register.compare_and_set(Some(&version), &record(2)).await, Err(SetError::Conflict));
    let settings = "SELECT DISTINCT current_setting('lock_timeout') || current_setting('application_name')";
    assert_eq!(server.run_sql(settings).await, [Some("0".to_owned())]);
    // No session listens on a connection that is lent to others, and nothing that was set has stayed there.
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    assert_eq!(server.run_sql(idle).await, [Some("0".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_record_that_is_too_long_no_more_is_read_than_tells_so() {
    let Some(server) = server(&[]).await else { return };
    let register = opened(server.address()).await;
    register.compare_and_set(None, &record(1)).await.unwrap();
    let long =
        format!("UPDATE primacy_record SET record = convert_to(repeat(' ', {}), 'UTF8')", 10 * LENGTH_MAX);
    server.run_sql(&long).await;
    let error = RecordError::TooLong { length: LENGTH_MAX + 1 };
    assert_eq!(register.read().await, Err(ReadError::Malformed { error }));
}
