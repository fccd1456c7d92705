//! Many elections of one process over one connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use primacy_conformance::live::postgres::{PgBouncer, SUPERUSER};
use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::postgres::Postgres;
use primacy_stores::{Register, open};
use tokio::task::JoinSet;

use super::server;

const ELECTIONS: u64 = 1000;

/// How often each is renewed.
const RENEWALS: u64 = 5;

fn record(renewal: u64) -> Record {
    let mut record = Record::released(FencingToken(1), primacy_core::Duration::from_secs(10));
    (record.renewal, record.nonce) = (renewal, renewal);
    record
}

/// Takes each, and renews all at once again and again; how long the first writes and each round of renewals took.
async fn renew_all(registers: Vec<Arc<dyn Register>>) -> (Duration, Vec<Duration>) {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for register in registers {
        tasks.spawn(async move {
            let version = register.compare_and_set(None, &record(0)).await.expect("nobody else writes");
            (register, version)
        });
    }
    let mut held = tasks.join_all().await;
    let (took, mut rounds) = (began.elapsed(), Vec::new());
    for renewal in 1..=RENEWALS {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for (register, version) in held {
            tasks.spawn(async move {
                let newest = register.compare_and_set(Some(&version), &record(renewal)).await;
                (register, newest.expect("nobody else writes"))
            });
        }
        held = tasks.join_all().await;
        rounds.push(began.elapsed());
    }
    (took, rounds)
}

async fn open_all(url: &str) -> Vec<Arc<dyn Register>> {
    let mut tasks = JoinSet::new();
    for number in 0..ELECTIONS {
        let url = url.to_owned();
        tasks.spawn(async move { open(&url, &format!("many-{number}")).await.expect("the server is there") });
    }
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_elections_share_one_connection() {
    let Some(server) = server(&[]).await else { return };
    let began = Instant::now();
    let registers = open_all(&server.url()).await;
    let opened = began.elapsed();
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy'";
    assert_eq!(server.run_sql(connections).await, [Some("1".to_owned())]);
    // Each waits for changes, too, as candidates do.
    let kept: Vec<_> = registers.iter().map(Arc::clone).collect();
    let mut watching = JoinSet::new();
    for register in registers.iter().map(Arc::clone) {
        watching.spawn(async move { register.changed().await });
    }
    let (taken, rounds) = renew_all(registers).await;
    assert_eq!(server.run_sql(connections).await, [Some("1".to_owned())]);
    drop(kept);
    eprintln!(
        "postgres: {ELECTIONS} elections over one connection: opened in {opened:?}, taken in {taken:?}, all renewed in {rounds:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_elections_share_one_connection_to_a_pooler() {
    let Some(server) = server(&[]).await else { return };
    let pooler = PgBouncer::start(&server, 2).await.expect("it is installed with the server");
    let (taken, rounds) = renew_all(open_all(&pooler.url()).await).await;
    eprintln!(
        "postgres, through PgBouncer: {ELECTIONS} elections: taken in {taken:?}, all renewed in {rounds:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_of_a_configuration_that_the_application_has_share_a_connection() {
    let Some(server) = server(&[]).await else { return };
    let mut config = server.config(SUPERUSER);
    config.application_name("theirs");
    let store = Postgres::new(&config, None).unwrap();
    let (one, two) = (store.open("one").await.unwrap(), store.open("two").await.unwrap());
    one.compare_and_set(None, &record(0)).await.unwrap();
    assert_eq!(two.read().await, Ok(None));
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'theirs'";
    assert_eq!(server.run_sql(connections).await, [Some("1".to_owned())]);
    assert!(store.open("").await.is_err());
}
