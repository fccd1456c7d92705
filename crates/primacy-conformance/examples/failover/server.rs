//! The stores' servers.

use std::convert::Infallible;
use std::time::Duration;

use primacy_conformance::live::Ground;
use primacy_conformance::live::azurite::Azurite;
use primacy_conformance::live::consul::Consul;
use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::live::kubernetes::ApiServer;
use primacy_conformance::live::moto::Moto;
use primacy_conformance::live::nats::Nats;
use primacy_conformance::live::postgres::{Pair, Postgres};
use primacy_conformance::live::redis::Redis;
use primacy_conformance::live::zookeeper::ZooKeeper;

/// The interval between two checks whether the store's leader was killed, or there is another one.
const LOOK: Duration = Duration::from_millis(20);

/// A store, as it runs here.
pub(crate) enum Server {
    Sqlite(Ground),
    Postgres(Pair),
    PostgresAdvisory(Postgres),
    Etcd(Etcd),
    EtcdLease(Etcd),
    ZooKeeper(ZooKeeper),
    Consul(Consul),
    Kubernetes(ApiServer),
    Moto(Moto),
    Azurite(Azurite),
    Nats(Nats),
    Redis(Redis),
}

impl Server {
    /// Starts the store of this name.
    ///
    /// # Errors
    /// The program that is missing.
    pub(crate) async fn start(store: &str) -> Result<Self, String> {
        Ok(match store {
            "sqlite" => Self::Sqlite(Ground::new("sqlite")),
            "postgres" => Self::Postgres(Pair::start().await?),
            "postgres, `recipe=advisory`" => Self::PostgresAdvisory(Postgres::start(&[]).await?),
            "etcd" => Self::Etcd(Etcd::start(None).await?),
            "etcd, `recipe=lease`" => Self::EtcdLease(Etcd::start(None).await?),
            "zookeeper" => Self::ZooKeeper(ZooKeeper::start().await?),
            "consul (stand-in)" => Self::Consul(Consul::start().await?),
            "kubernetes (stand-in)" => Self::Kubernetes(ApiServer::start().await?),
            "s3 (moto)" => Self::Moto(Moto::start().await?),
            "az (Azurite)" => Self::Azurite(Azurite::start().await?),
            // Servers before 2.11 must not replicate an election, and Debian has none later.
            "nats" => Self::Nats(Nats::start(1).await?),
            "redis" => Self::Redis(Redis::start(&[]).await?),
            other => return Err(format!("nobody knows how to start {other}")),
        })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(ground) => format!("sqlite:{}", ground.at("elections.db").display()),
            Self::Postgres(server) => server.url(),
            Self::PostgresAdvisory(server) => format!("{}?recipe=advisory", server.url()),
            Self::Etcd(server) => server.url("", "/bench"),
            Self::EtcdLease(server) => server.url("", "/bench?recipe=lease"),
            Self::ZooKeeper(server) => format!("zookeeper://{}/bench", server.addresses()),
            Self::Consul(server) => server.url("bench"),
            Self::Kubernetes(server) => server.url(),
            Self::Moto(server) => server.url(),
            Self::Azurite(server) => server.url(),
            Self::Nats(server) => server.url(),
            Self::Redis(server) => server.url(),
        }
    }

    /// Its servers, if they are several, one of which leads.
    pub(crate) const fn members(&mut self) -> Option<Members<'_>> {
        match self {
            Self::Postgres(pair) => Some(Members::Postgres(pair)),
            Self::Etcd(server) | Self::EtcdLease(server) => Some(Members::Etcd(server)),
            Self::ZooKeeper(server) => Some(Members::ZooKeeper(server)),
            Self::Sqlite(_) | Self::PostgresAdvisory(_) | Self::Consul(_) => None,
            Self::Kubernetes(_) | Self::Moto(_) | Self::Azurite(_) | Self::Nats(_) | Self::Redis(_) => None,
        }
    }
}

/// Several servers, one of which leads.
pub(crate) enum Members<'a> {
    Postgres(&'a mut Pair),
    Etcd(&'a mut Etcd),
    ZooKeeper(&'a mut ZooKeeper),
}

/// The leader's process id is in this file while all serve.
const LEADER: &str = "leader";

/// The file has this name while the leader is dead.
const STRUCK: &str = "struck";

/// Kills the leader.
pub(crate) fn fault_command(ground: &Ground) -> String {
    let (leader, struck) = (ground.at(LEADER), ground.at(STRUCK));
    let (leader, struck) = (leader.display(), struck.display());
    format!("kill -9 $(cat '{leader}') && mv '{leader}' '{struck}'")
}

/// Waits until the leader is started again, and all serve.
pub(crate) fn mend_command(ground: &Ground) -> String {
    let (leader, struck) = (ground.at(LEADER), ground.at(STRUCK));
    format!("rm '{}'; until [ -s '{}' ]; do sleep 0.1; done", struck.display(), leader.display())
}

impl Members<'_> {
    /// Does its part in both commands.
    pub(crate) async fn keep(&mut self, ground: &Ground) -> Infallible {
        let (file, struck, new) = (ground.at(LEADER), ground.at(STRUCK), ground.at("new"));
        loop {
            let leader = self.leader().await;
            std::fs::write(&new, self.process(leader).to_string()).expect("the ground can be written");
            std::fs::rename(&new, &file).expect("the ground can be written");
            // In this order: the one becomes the other.
            while file.exists() {
                tokio::time::sleep(LOOK).await;
            }
            self.elect().await;
            while struck.exists() {
                tokio::time::sleep(LOOK).await;
            }
            self.restart(leader).await;
        }
    }

    /// Makes another server lead, where they do not elect it themselves.
    async fn elect(&mut self) {
        match self {
            Self::Postgres(pair) => pair.promote().await,
            Self::Etcd(_) | Self::ZooKeeper(_) => {}
        }
    }

    async fn leader(&self) -> usize {
        match self {
            Self::Postgres(pair) => pair.leader(),
            Self::Etcd(server) => server.leader().await,
            Self::ZooKeeper(server) => loop {
                if let Some(leader) = server.leader() {
                    return leader;
                }
                tokio::time::sleep(LOOK).await;
            },
        }
    }

    fn process(&self, member: usize) -> u32 {
        match self {
            Self::Postgres(pair) => pair.process(member),
            Self::Etcd(server) => server.process(member),
            Self::ZooKeeper(server) => server.process(member),
        }
    }

    async fn restart(&mut self, member: usize) {
        match self {
            Self::Postgres(pair) => pair.follow().await.expect("what makes a standby is there"),
            Self::Etcd(server) => {
                server.kill(member);
                server.restart(member).await;
            }
            Self::ZooKeeper(server) => {
                server.kill(member);
                server.restart(member);
                server.serves().await;
            }
        }
    }
}
