//! Many elections of one process over one connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use primacy::config::{self, Venue};
use primacy::{Elector, Leadership, Timers};
use primacy_conformance::live::postgres::{PgBouncer, SUPERUSER};
use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::postgres::Postgres;
use primacy_stores::{Register, open};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

use super::server;

const ELECTIONS: u64 = 1000;

/// The number of renewals of each.
const RENEWALS: u64 = 5;

/// The lease of each election that the library leads. A leader renews it each sixth, so a round of renewals must take less.
const LEASE: Duration = config::LEASE;

/// The number of renewals of each of those until they are counted.
const RENEWALS_SEEN: u32 = 3;

/// Files that the thread of an election needs, with some to spare.
const FILES_EACH: u64 = 6;

/// Far longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(120);

/// The number of connections that Primacy has to the server.
const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy'";

/// The interval between a leader's renewals.
fn renewal_interval() -> Duration {
    Timers::new(Venue::Store, Some(LEASE)).renewal
}

/// Checks that all can be renewed as often as they must be: most rounds are done before the next one is due, whatever else the machine has
/// done during one of them.
fn keep_up(mut rounds: Vec<Duration>) {
    rounds.sort();
    let (middle, interval) = (rounds[rounds.len() / 2], renewal_interval());
    assert!(
        middle < interval,
        "of {rounds:?} most must take less than {interval:?}, after which the next is due"
    );
}

fn record(renewal: u64) -> Record {
    let mut record = Record::released(FencingToken(1), primacy_core::Duration::from_secs(10));
    (record.renewal, record.nonce) = (renewal, renewal);
    record
}

/// Takes each, and renews all at once again and again; returns the times of the first writes and of each round of renewals.
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
    assert_eq!(server.run_sql(CONNECTIONS).await, [Some("1".to_owned())]);
    // Each waits for changes, too, as candidates do.
    let kept: Vec<_> = registers.iter().map(Arc::clone).collect();
    let mut watching = JoinSet::new();
    for register in registers.iter().map(Arc::clone) {
        watching.spawn(async move { register.changed().await });
    }
    let (taken, rounds) = renew_all(registers).await;
    assert_eq!(server.run_sql(CONNECTIONS).await, [Some("2".to_owned())], "one listens");
    drop(kept);
    eprintln!(
        "postgres: {ELECTIONS} elections over one connection: opened in {opened:?}, taken in {taken:?}, all renewed in {rounds:?}"
    );
    keep_up(rounds);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_elections_share_one_connection_to_a_pooler() {
    let Some(server) = server(&[]).await else { return };
    let pooler = PgBouncer::start(&server, 2).await.expect("it is installed with the server");
    let (taken, rounds) = renew_all(open_all(&pooler.url()).await).await;
    eprintln!(
        "postgres, through PgBouncer: {ELECTIONS} elections: taken in {taken:?}, all renewed in {rounds:?}"
    );
    keep_up(rounds);
}

/// Elects a leader by the library, and returns when its lease was renewed a few times.
async fn lead(url: String, number: u64) -> (Elector, Leadership) {
    let builder = Elector::builder().election(format!("led-{number}")).lease(LEASE);
    let elector = builder.connect(&url).await.expect("the server is there");
    let lead = elector.campaign().await.expect("nobody else stands");
    let mut until = lead.valid_until();
    for _ in 0..RENEWALS_SEEN {
        until = lead.renewed(until).await.expect("it goes on");
    }
    (elector, lead)
}

/// Threads and files of this process.
fn threads_and_files() -> [usize; 2] {
    ["/proc/self/task", "/proc/self/fd"].map(|of| std::fs::read_dir(of).expect("Linux tells it").count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_electors_of_the_library_lead_over_one_connection() {
    let Some(server) = server(&[]).await else { return };
    // Many systems give a process a thousand files, and more if it asks.
    let limit = getrlimit(Resource::Nofile);
    let files = limit.current.map(|now| now.max(limit.maximum.unwrap_or(ELECTIONS * FILES_EACH)));
    setrlimit(Resource::Nofile, Rlimit { current: files, ..limit }).expect("below what it may have");
    let before = threads_and_files();
    let began = Instant::now();
    let mut leading = JoinSet::new();
    for number in 0..ELECTIONS {
        leading.spawn(lead(server.url(), number));
    }
    let led = tokio::time::timeout(PATIENCE, leading.join_all()).await.expect("all are elected");
    let took = began.elapsed();
    let after = threads_and_files();
    assert_eq!(server.run_sql(CONNECTIONS).await, [Some("2".to_owned())], "one listens");
    let lost = led.iter().filter(|(_, lead)| lead.check().is_err()).count();
    assert_eq!(lost, 0, "of {ELECTIONS} leads");
    eprintln!(
        "postgres: {ELECTIONS} electors of the library over one connection: elected (after one lease, for there was no record) and \
         each renewed {RENEWALS_SEEN} times in {took:.1?}, none lost; threads and files before: {before:?}, then: {after:?}"
    );
    let mut closing = JoinSet::new();
    for (elector, lead) in led {
        closing.spawn(async move {
            drop(lead);
            elector.close().await;
        });
    }
    tokio::time::timeout(PATIENCE, closing.join_all()).await.expect("all are closed");
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
