//! The laws of elections over every store that is a server: three processes each, which are killed and stopped.

use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use primacy_conformance::Outcome;
use primacy_conformance::elections::LAWS;
use primacy_conformance::elections::deployment::{Attention, Server};
use primacy_conformance::elections::processes::{campaign_if_told, hold};
use primacy_conformance::live::azurite::Azurite;
use primacy_conformance::live::consul::Consul;
use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::live::kubernetes::ApiServer;
use primacy_conformance::live::moto::Moto;
use primacy_conformance::live::mysql::MariaDb;
use primacy_conformance::live::nats::Nats;
use primacy_conformance::live::only_test;
use primacy_conformance::live::postgres::Postgres;
use primacy_conformance::live::redis::Redis;
use primacy_conformance::live::zookeeper::ZooKeeper;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use crate::{Column, is_wanted, keep, registers, to_be_tried};

const TABLE: (&str, &str) = (
    "<!-- of elections, made by `UPDATE_GOLDENFILES=1 cargo test -p primacy-conformance --test live` -->\n\n",
    "\n<!-- end -->",
);

/// The number of servers that are at work at a time; their elections do little but wait.
const AT_A_TIME: usize = 5;

/// The time that a server's timers and a busy machine add to a session's timeout: etcd looks twice a second, and a new leader of its gives
/// every session its whole time again.
const LATE: Duration = Duration::from_secs(5);

/// Consul gives no shorter session, and waits twice as long.
const CONSUL: Duration = Duration::from_secs(10);

/// A server that keeps a record.
fn record(url: String) -> Server {
    Server::of_records(url)
}

/// moto answers one request after the other, and waits for the rest of one whose sender was stopped.
fn object_on_moto(url: String) -> Server {
    Server { attention: Attention::One, ..record(url) }
}

/// A server that ends sessions.
fn sessions(url: String) -> Server {
    Server { expires_late: LATE, ..record(url) }
}

fn sessions_of_consul(url: String) -> Server {
    Server { lease_min: CONSUL, expires_late: CONSUL + LATE, ..record(url) }
}

/// A NATS server that has its bucket.
async fn one_nats() -> Result<Nats, String> {
    let server = Nats::start(1).await?;
    drop(registers::open_in_the_end(&server.url(), "first").await);
    Ok(server)
}

/// This program once more, with nothing to do but [`campaign_as_a_candidate`].
fn candidate() -> Command {
    only_test(module_path!(), "campaign_as_a_candidate")
}

/// Not a test of its own: the process of each candidate.
#[tokio::test]
async fn campaign_as_a_candidate() {
    campaign_if_told().await;
}

/// Three processes in one store.
async fn column(name: &'static str, server: Server) -> Column {
    (name.to_owned(), hold(name, server, candidate).await)
}

/// Servers, each with the stores that are tried on it.
struct Stores {
    turns: Rc<Semaphore>,
    columns: Vec<JoinHandle<Vec<Column>>>,
}

impl Stores {
    /// Starts a server when it is its turn, and holds elections in all its stores at once.
    fn add<S: 'static>(
        &mut self,
        name: &'static str,
        start: impl Future<Output = Result<S, String>> + 'static,
        stores: impl FnOnce(&S) -> Vec<(&'static str, Server)> + 'static,
    ) {
        if !is_wanted(name) {
            return;
        }
        let turns = Rc::clone(&self.turns);
        self.columns.push(spawn_local(async move {
            let _turn = turns.acquire().await.expect("it is never closed");
            let Some(server) = to_be_tried(name, start).await else {
                return vec![(name.to_owned(), LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect())];
            };
            let held = stores(&server).into_iter().map(|(name, server)| spawn_local(column(name, server)));
            all(held.collect()).await
        }));
    }
}

/// The results of all tasks, in order.
async fn all<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("all laws are kept"));
    }
    results
}

#[rustfmt::skip]
async fn columns() -> Vec<Column> {
    let mut stores = Stores { turns: Rc::new(Semaphore::new(AT_A_TIME)), columns: Vec::new() };
    // The longest begins first.
    stores.add("consul", Consul::start(), |consul| vec![("consul (a stand-in)", sessions_of_consul(consul.url("elections")))]);
    stores.add("postgres", Postgres::start(&[]), |postgres| vec![
        ("postgres", record(postgres.url())),
        ("postgres, recipe=advisory", sessions(format!("{}?recipe=advisory", postgres.url()))),
    ]);
    stores.add("mysql", MariaDb::start(&[]), |mysql| vec![("mysql (MariaDB)", record(mysql.url()))]);
    stores.add("etcd", Etcd::start(None), |etcd| vec![
        ("etcd", sessions(etcd.url("", "/elections"))),
        ("etcd, recipe=lease", record(etcd.url("", "/records?recipe=lease"))),
    ]);
    stores.add("zookeeper", ZooKeeper::start(), |zookeeper| ["curator", "kazoo"].map(|layout| {
        let name = if layout == "curator" { "zookeeper (curator)" } else { "zookeeper (kazoo)" };
        (name, sessions(format!("zookeeper://{}/{layout}?layout={layout}", zookeeper.addresses())))
    }).into());
    stores.add("kubernetes", ApiServer::start(), |api| vec![("kubernetes (stand-in)", record(api.url()))]);
    stores.add("s3", Moto::start(), |moto| vec![("s3 (moto)", object_on_moto(moto.url()))]);
    stores.add("az", Azurite::start(), |azurite| vec![("az (Azurite)", record(azurite.url()))]);
    stores.add("nats", one_nats(), |nats| vec![("nats, one server", record(nats.url()))]);
    stores.add("redis", Redis::start(&[]), |redis| vec![("redis", record(redis.url()))]);
    all(stores.columns).await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_over_every_live_store_keep_the_laws_and_the_table_says_so() {
    let columns = LocalSet::new().run_until(columns()).await;
    keep(&columns, &LAWS.map(|law| law.name), TABLE);
}
