//! The servers of networked stores, and a proxy between them and each node that can lose what a network can lose.

use std::fmt;
use std::net::SocketAddr;

use primacy_conformance::live::azurite::Azurite;
use primacy_conformance::live::consul::Consul;
use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::live::kubernetes::ApiServer;
use primacy_conformance::live::moto::{BUCKET, Moto};
use primacy_conformance::live::mysql::{self, MariaDb};
use primacy_conformance::live::nats::Nats;
use primacy_conformance::live::postgres::Postgres;
use primacy_conformance::live::proxy::Proxy;
use primacy_conformance::live::redis::Redis;
use primacy_conformance::live::zookeeper::ZooKeeper;

use crate::chaos::fault::Kind;
use primacy_testbed::run_error::RunError;

/// The kind of server, and how elections use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    /// PostgreSQL.
    Postgres,
    /// The same, with session advisory locks.
    PostgresAdvisory,
    /// MariaDB.
    Mysql,
    /// Three members of etcd, each node connected to one of them; `session`.
    Etcd,
    /// The same members, with a record and `lease`.
    EtcdLease,
    /// Three servers of ZooKeeper, each node connected to one of them.
    ZooKeeper,
    /// A fake of Consul.
    Consul,
    /// A fake of the API server of Kubernetes.
    Kubernetes,
    /// moto.
    S3,
    /// Azurite.
    Az,
    /// NATS, one server.
    Nats,
    /// Redis, one server.
    Redis,
}

impl Make {
    /// True if its election is `session` rather than `lease`.
    pub(crate) const fn keeps_sessions(self) -> bool {
        matches!(self, Self::PostgresAdvisory | Self::Etcd | Self::ZooKeeper | Self::Consul)
    }

    /// True if it may be killed: a server that keeps its data only in memory loses the tokens with it, as its page states.
    pub(crate) const fn keeps_what_it_answered(self) -> bool {
        matches!(
            self,
            Self::Postgres
                | Self::PostgresAdvisory
                | Self::Mysql
                | Self::Etcd
                | Self::EtcdLease
                | Self::ZooKeeper
                | Self::Nats
        )
    }
}

/// A running server.
#[derive(Debug)]
enum Running {
    Postgres(Postgres),
    Mysql(MariaDb),
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
    Consul(Consul),
    Kubernetes(ApiServer),
    S3(Moto),
    Az(Azurite),
    Nats(Nats),
    Redis(Redis),
}

/// A store on a server, with the proxy of each node.
pub(crate) struct Store {
    runtime: tokio::runtime::Runtime,
    make: Make,
    server: Running,
    /// The proxy of each node, which forwards to the node's own member if there are several.
    ways: Vec<Proxy>,
    /// The active faults: the kind, the nodes whose proxies it affects, and the count of what those proxies had
    /// hindered before.
    made: Vec<(Kind, Vec<usize>, u64)>,
    /// The member that was killed.
    killed: Option<usize>,
}

impl Store {
    /// Starts the store, for this many nodes.
    ///
    /// # Errors
    /// [`RunError`] if it cannot be started.
    pub(crate) fn start(make: Make, nodes: usize) -> Result<Self, RunError> {
        let failed = |said: String| RunError::Program { line: format!("the server of {make:?}"), said };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        let server = runtime.block_on(Running::start(make)).map_err(failed)?;
        let address = |node| server.address(node).ok_or_else(|| failed("it has no address".to_owned()));
        let ways = (0..nodes).map(|node| address(node).map(Proxy::start)).collect::<Result<_, _>>()?;
        Ok(Self { runtime, make, server, ways, made: Vec::new(), killed: None })
    }

    /// The URL for a node: that of its own proxy.
    pub(crate) fn url(&self, node: usize) -> String {
        let own = self.server.address(node).map(|address| address.to_string()).unwrap_or_default();
        let proxy = self.ways[node].address();
        let through = |url: String| url.replace(&own, &proxy.to_string());
        match &self.server {
            Running::Postgres(postgres) => {
                let recipe = if self.make == Make::PostgresAdvisory { "?recipe=advisory" } else { "" };
                through(format!("{}{recipe}", postgres.url()))
            }
            Running::Etcd(etcd) => {
                let recipe = if self.make == Make::EtcdLease { "?recipe=lease" } else { "" };
                through(etcd.url_of(&[node % MEMBERS], &format!("/chaos{recipe}")))
            }
            Running::Mysql(_) => mysql::url_at(proxy),
            Running::ZooKeeper(_) => format!("zookeeper://{proxy}/chaos"),
            Running::Consul(consul) => through(consul.url("chaos")),
            Running::S3(moto) => moto.url_through(BUCKET, proxy.port()),
            Running::Az(azurite) => through(azurite.url()),
            Running::Nats(_) => Nats::url_at(&[proxy]),
            Running::Redis(_) => Redis::url_at(proxy),
            Running::Kubernetes(server) => server.url_through(proxy.port()),
        }
    }

    /// Injects a fault; a fault of one node, at its proxy. Whether it took effect is known at the healing.
    pub(crate) fn make(&mut self, kind: Kind, node: usize) {
        let all = (0..self.ways.len()).collect();
        let nodes = if matches!(kind, Kind::StoreOutage | Kind::StoreKilled) { all } else { vec![node] };
        let before = self.hindered(&nodes);
        if kind == Kind::StoreKilled {
            self.kill();
        } else {
            for way in nodes.iter().map(|&node| &self.ways[node]) {
                if kind == Kind::StoreStall {
                    way.stall();
                } else if kind == Kind::StoreRepliesLost {
                    way.drop_replies();
                } else {
                    way.refuse();
                }
            }
        }
        self.made.push((kind, nodes, before));
    }

    /// Undoes all faults; returns those that had an effect.
    pub(crate) fn heal(&mut self) -> Vec<Kind> {
        let mut met = Vec::new();
        for (kind, nodes, before) in std::mem::take(&mut self.made) {
            if kind == Kind::StoreKilled || self.hindered(&nodes) > before {
                met.push(kind);
            }
            if kind == Kind::StoreRepliesLost {
                // A node that waits for an answer learns that none will come.
                nodes.iter().for_each(|&node| self.ways[node].cut());
            }
            nodes.iter().for_each(|&node| self.ways[node].pass());
        }
        if let Some(member) = self.killed.take() {
            self.revive(member);
        }
        met
    }

    fn hindered(&self, nodes: &[usize]) -> u64 {
        nodes.iter().map(|&node| self.ways[node].hindered()).sum()
    }

    /// Kills the server, or its leading member.
    fn kill(&mut self) {
        if self.killed.is_some() {
            return;
        }
        let runtime = &self.runtime;
        let member = match &mut self.server {
            Running::Postgres(postgres) => {
                runtime.block_on(postgres.kill());
                0
            }
            Running::Mysql(mariadb) => {
                mariadb.kill();
                0
            }
            Running::Etcd(etcd) => {
                let leader = runtime.block_on(etcd.leader());
                etcd.kill(leader);
                leader
            }
            Running::ZooKeeper(zookeeper) => {
                let leader = zookeeper.leader().unwrap_or(0);
                zookeeper.kill(leader);
                leader
            }
            Running::Nats(nats) => {
                nats.kill(0);
                0
            }
            // `Make::keeps_what_it_answered` is false for these servers.
            Running::Consul(_) | Running::Kubernetes(_) | Running::S3(_) => return,
            Running::Az(_) | Running::Redis(_) => return,
        };
        self.killed = Some(member);
    }

    fn revive(&mut self, member: usize) {
        match &mut self.server {
            Running::Postgres(postgres) => self.runtime.block_on(postgres.restart()),
            Running::Mysql(mariadb) => self.runtime.block_on(mariadb.restart()),
            Running::Etcd(etcd) => self.runtime.block_on(etcd.restart(member)),
            Running::ZooKeeper(zookeeper) => zookeeper.restart(member),
            Running::Nats(nats) => nats.restart(member),
            Running::Consul(_) | Running::Kubernetes(_) | Running::S3(_) => {}
            Running::Az(_) | Running::Redis(_) => {}
        }
    }
}

/// The number of members of stores with several members.
const MEMBERS: usize = 3;

impl Running {
    async fn start(make: Make) -> Result<Self, String> {
        Ok(match make {
            Make::Postgres | Make::PostgresAdvisory => Self::Postgres(Postgres::start(&[]).await?),
            Make::Mysql => Self::Mysql(MariaDb::start(&[]).await?),
            Make::Etcd | Make::EtcdLease => Self::Etcd(Etcd::start(None).await?),
            Make::ZooKeeper => Self::ZooKeeper(ZooKeeper::start().await?),
            Make::Consul => Self::Consul(Consul::start().await?),
            Make::Kubernetes => Self::Kubernetes(ApiServer::start().await?),
            Make::S3 => Self::S3(Moto::start().await?),
            Make::Az => Self::Az(Azurite::start().await?),
            Make::Nats => Self::Nats(Nats::start(1).await?),
            Make::Redis => Self::Redis(Redis::start(&[]).await?),
        })
    }

    /// The address of a node's member.
    fn address(&self, node: usize) -> Option<SocketAddr> {
        let local = |port: u16| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        match self {
            Self::Postgres(postgres) => Some(postgres.address()),
            Self::Mysql(mariadb) => Some(mariadb.address()),
            Self::Etcd(etcd) => local(etcd.address(node % MEMBERS).1),
            Self::ZooKeeper(zookeeper) => zookeeper.address(node % MEMBERS).parse().ok(),
            Self::Consul(consul) => local(consul.port()),
            Self::Kubernetes(server) => local(server.port()),
            Self::S3(moto) => local(moto.port()),
            Self::Az(azurite) => Some(azurite.address()),
            Self::Nats(nats) => nats.addresses().first().copied(),
            Self::Redis(redis) => Some(redis.address()),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("make", &self.make).field("made", &self.made).finish_non_exhaustive()
    }
}
