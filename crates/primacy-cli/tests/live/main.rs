//! The command `primacy` over every store with a network protocol, on real servers or on fakes.
//!
//! `cargo xtask live` installs the servers.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod doctor;
mod guards;
mod pages;
mod pods;
mod serve;
mod stories;

use std::net::SocketAddr;
use std::time::Duration;

use primacy_conformance::live::azurite::Azurite;
use primacy_conformance::live::consul::Consul;
use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::live::kubernetes::ApiServer;
use primacy_conformance::live::moto::{BUCKET, Moto};
use primacy_conformance::live::mysql::MariaDb;
use primacy_conformance::live::nats::Nats;
use primacy_conformance::live::postgres::Postgres;
use primacy_conformance::live::proxy::Proxy;
use primacy_conformance::live::redis::Redis;
use primacy_conformance::live::zookeeper::ZooKeeper;
use primacy_testbed::{Place, started};
use stories::Store;

/// The lease that most stores grant.
const LEASE: Duration = Duration::from_secs(4);

/// The shortest that Consul grants, and what is long enough for ZooKeeper, which believes a tick and a half less than it grants.
const LONG_LEASE: Duration = Duration::from_secs(10);

/// Not a test of its own: the process of each rival in the laws of stores.
#[tokio::test]
async fn play_as_a_rival() {
    let open = async |url: &str, election: &str| primacy_stores::open(url, election).await.unwrap();
    primacy_conformance::rival::play_if_told(open).await;
}

/// Runs all stories over one store, whose URL has the server's address in it.
fn tell(name: &'static str, url: &str, server: SocketAddr, lease: Duration) {
    let through = |proxy: &Proxy| {
        let replaced = url.replace(&server.to_string(), &proxy.address().to_string());
        assert_ne!(replaced, url, "the URL has the address");
        replaced
    };
    tell_through(name, (url, Lead::Lasts), server, lease, &through);
}

/// The fate of a lead while its store is away.
#[derive(Clone, Copy)]
enum Lead {
    /// It lasts for as long as it is valid.
    Lasts,
    /// It goes with its connection.
    GoesWithItsConnection,
}

/// Runs them over a store that is reached through a proxy at another URL. The stories have elections of their
/// own and mostly wait, so those that need the store at all times run beside those that take it away.
fn tell_through(
    name: &'static str,
    (url, lead): (&str, Lead),
    server: SocketAddr,
    lease: Duration,
    through: &(dyn Fn(&Proxy) -> String + Sync),
) {
    let direct = Store { name, url: url.to_owned(), lease };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stories::a_paused_leader_does_no_harm(&direct);
            stories::a_guardian_that_wakes_first_ends_the_job(&direct);
            let cut = Proxy::start(server);
            stories::a_leader_without_its_store_stops_in_time(&direct, &through(&cut), || cut.refuse());
        });
        scope.spawn(|| {
            let proxy = Proxy::start(server);
            let store = Store { name, url: through(&proxy), lease };
            proxy.refuse();
            stories::a_store_that_is_away_at_start_is_waited_for(&store, || proxy.pass());
            stories::a_store_that_falls_silent_is_told(&store, || proxy.stall(), || proxy.pass());
        });
        let proxy = Proxy::start(server);
        let store = Store { name, url: through(&proxy), lease };
        let outage = |time: Duration| {
            proxy.refuse();
            std::thread::sleep(time);
            proxy.pass();
        };
        match lead {
            Lead::Lasts => stories::a_short_outage_changes_no_leader(&store, outage),
            Lead::GoesWithItsConnection => stories::a_short_outage_ends_the_lead_at_once(&store, outage),
        }
        stories::a_long_outage_deposes_and_the_same_processes_lead_again(&store, outage);
    });
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Of stores that need no server, for comparison.
#[test]
fn over_sqlite_a_paused_leader_does_no_harm() {
    let place = Place::new("live-sqlite");
    let url = format!("sqlite:{}", place.text("election.db"));
    let store = Store { name: "sqlite", url, lease: Duration::from_secs(2) };
    stories::a_paused_leader_does_no_harm(&store);
    stories::a_guardian_that_wakes_first_ends_the_job(&store);
}

#[test]
fn over_postgres() {
    let Some((_runtime, postgres)) = started("postgres", Postgres::start(&[])) else { return };
    tell("postgres", &postgres.url(), postgres.address(), LEASE);
}

#[test]
fn over_postgres_by_an_advisory_lock() {
    let Some((_runtime, postgres)) = started("postgres", Postgres::start(&[])) else { return };
    let url = format!("{}?recipe=advisory", postgres.url());
    let own = postgres.address();
    let through = |proxy: &Proxy| url.replace(&own.to_string(), &proxy.address().to_string());
    tell_through("postgres-advisory", (&url, Lead::GoesWithItsConnection), own, LEASE, &through);
}

#[test]
fn over_mysql() {
    let Some((_runtime, mariadb)) = started("mysql", MariaDb::start(&[])) else { return };
    tell("mysql", &mariadb.url(), mariadb.address(), LEASE);
}

#[test]
fn over_etcd() {
    let Some((_runtime, etcd)) = started("etcd", Etcd::start(None)) else { return };
    tell("etcd", &etcd.url_of(&[0], "/stories"), address(&etcd.endpoint(0)), LEASE);
}

/// The stories over etcd, with three of our nodes in its place.
#[test]
fn over_our_nodes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(primacy_testbed::etcd_api::open(&[]));
    tell("primacy", &cluster.url_of(&[0], "/stories"), address(&cluster.endpoint(0)), LEASE);
}

#[test]
fn over_zookeeper() {
    let Some((_runtime, zookeeper)) = started("zookeeper", ZooKeeper::start()) else { return };
    let server = zookeeper.address(0);
    tell("zookeeper", &format!("zookeeper://{server}/stories"), address(&server), LONG_LEASE);
}

#[test]
fn over_s3() {
    let Some((_runtime, moto)) = started("s3", Moto::start()) else { return };
    let server = SocketAddr::from(([127, 0, 0, 1], moto.port()));
    tell("s3", &moto.url_through(BUCKET, moto.port()), server, LEASE);
}

#[test]
fn over_az() {
    let Some((_runtime, azurite)) = started("az", Azurite::start()) else { return };
    tell("az", &azurite.url(), azurite.address(), LEASE);
}

#[test]
fn over_a_stand_in_for_kubernetes() {
    let Some((_runtime, kubernetes)) = started("kubernetes", ApiServer::start()) else { return };
    let server = SocketAddr::from(([127, 0, 0, 1], kubernetes.port()));
    let through = |proxy: &Proxy| kubernetes.url_through(proxy.address().port());
    tell_through("kubernetes", (&kubernetes.url(), Lead::Lasts), server, LEASE, &through);
}

#[test]
fn over_redis() {
    let Some((_runtime, redis)) = started("redis", Redis::start(&[])) else { return };
    tell("redis", &redis.url(), redis.address(), LEASE);
}

#[test]
fn over_nats() {
    let Some((_runtime, nats)) = started("nats", Nats::start(1)) else { return };
    tell("nats", &nats.url(), nats.addresses()[0], LEASE);
}

#[test]
fn over_a_stand_in_for_consul() {
    let Some((_runtime, consul)) = started("consul", Consul::start()) else { return };
    let server = SocketAddr::from(([127, 0, 0, 1], consul.port()));
    tell("consul", &consul.url("stories"), server, LONG_LEASE);
}
