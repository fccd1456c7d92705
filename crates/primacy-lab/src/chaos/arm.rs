//! The arms: the elections under test, one each.

use std::path::Path;
use std::time::Duration;

use crate::chaos::fault::Kind;
use crate::chaos::server::Make;

/// The table of all arms: one line for each election and store. Arms outside the usual run must be named: a machine
/// that runs all of them at once would only measure its own overload. An advisory election gives no guarantee to
/// check, so each of those runs as a nominator.
#[rustfmt::skip]
pub(crate) const ARMS: &[Arm] = &[
    Arm { name: "peers-3",    nodes: 3, usual: true,  lease: LEASE, held: Held::AmongPeers(PeerElection::Quorum), ..ARM },
    Arm { name: "peers-5",    nodes: 5, usual: true,  lease: LEASE, held: Held::AmongPeers(PeerElection::Quorum), ..ARM },
    Arm { name: "sqlite",     nodes: 3, usual: true,  lease: LEASE, held: Held::OverStore("sqlite:{store}/election.db"), ..ARM },
    Arm { name: "file",       nodes: 3, usual: true,  lease: LEASE, held: Held::OverStore("file:{store}/election"), ..ARM },
    Arm { name: "leases",     nodes: 3, usual: false, lease: LEASE_MIXED, held: Held::AmongPeers(PeerElection::Quorum), leases_differ: true, ..ARM },
    Arm { name: "crowd",      nodes: 3, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::Quorum), crowd: 500, ..ARM },
    Arm { name: "unkillable", nodes: 3, usual: false, lease: LEASE_OUTLIVED, held: Held::AmongPeers(PeerElection::Quorum), unkillable: true, ..ARM },
    Arm { name: "ranked",     nodes: 5, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::Ranked), ..ARM },
    Arm { name: "bully",      nodes: 5, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::ByQuorum("bully")), ..ARM },
    Arm { name: "ring",       nodes: 5, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::ByStore("ring", SQLITE)), ..ARM },
    Arm { name: "ring-bidirectional", nodes: 5, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::ByQuorum("ring-bidirectional")), ..ARM },
    Arm { name: "omega",      nodes: 5, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::ByQuorum("omega")), ..ARM },
    Arm { name: "seniority",  nodes: 5, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::ByQuorum("seniority")), ..ARM },
    Arm { name: "metadata",   nodes: 5, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::Metadata), ..ARM },
    // A single node commits by its own disk, and is replaced by way of two voters.
    Arm { name: "metadata-1", nodes: 1, usual: false, lease: LEASE, held: Held::AmongPeers(PeerElection::Metadata), ..ARM },
    Arm { name: "postgres",   nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::Postgres), ..ARM },
    Arm { name: "postgres-advisory", nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::PostgresAdvisory), ..ARM },
    Arm { name: "mysql",      nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::Mysql), ..ARM },
    Arm { name: "etcd",       nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::Etcd), ..ARM },
    Arm { name: "etcd-lease", nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::EtcdLease), ..ARM },
    Arm { name: "zookeeper",  nodes: 3, usual: false, lease: LEASE_LONG, held: Held::OnServer(Make::ZooKeeper), ..ARM },
    Arm { name: "consul",     nodes: 3, usual: false, lease: LEASE_LONG, held: Held::OnServer(Make::Consul), ..ARM },
    Arm { name: "kubernetes", nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::Kubernetes), ..ARM },
    Arm { name: "s3",         nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::S3), ..ARM },
    Arm { name: "az",         nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::Az), ..ARM },
    Arm { name: "nats",       nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::Nats), ..ARM },
    Arm { name: "redis",      nodes: 3, usual: false, lease: LEASE_OVER_NETWORK, held: Held::OnServer(Make::Redis), ..ARM },
];

/// The default column values.
const ARM: Arm = Arm {
    name: "",
    nodes: 0,
    usual: false,
    lease: LEASE,
    held: Held::AmongPeers(PeerElection::Quorum),
    leases_differ: false,
    crowd: 0,
    unkillable: false,
};

const SQLITE: &str = "sqlite:{store}/election.db";

/// The default lease: short, so that an hour has many leaders; and the default of `primacy run` among peers.
const LEASE: Duration = Duration::from_secs(1);
/// For stores over a network, because a request may take this long before its server is given up.
const LEASE_OVER_NETWORK: Duration = Duration::from_secs(3);
/// Much shorter than the duration of unkillable jobs, and long enough that a busy machine loses no lease.
const LEASE_OUTLIVED: Duration = Duration::from_secs(2);
/// The longest of different leases: its default heartbeat interval exceeds the shortest lease, which is that of most arms.
const LEASE_MIXED: Duration = Duration::from_secs(8);
/// The shortest lease that Consul grants; long enough for ZooKeeper.
const LEASE_LONG: Duration = Duration::from_secs(10);
/// The time that a job has to end in order, and the time before the end of the lease at which it is killed: the
/// margin of a longer lease, for a busy machine.
pub(crate) const DRAIN: Duration = Duration::from_millis(250);
pub(crate) const KILL_MARGIN: Duration = Duration::from_millis(200);

/// The name of the election, in every arm.
pub(crate) const ELECTION: &str = "chaos";

/// One election under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    /// Its name on the command line and in the table.
    pub(crate) name: &'static str,
    /// The number of nodes that compete.
    pub(crate) nodes: usize,
    /// True if it runs when no arm is named.
    pub(crate) usual: bool,
    /// The time for which a leader may lead without a renewal.
    pub(crate) lease: Duration,
    /// The place of the election.
    pub(crate) held: Held,
    /// True if the nodes have different leases, as during a rolling change; `lease` is the longest.
    pub(crate) leases_differ: bool,
    /// The number of detached processes that each job starts, each of which holds the job's lock.
    pub(crate) crowd: u32,
    /// True if the jobs run as a user whose processes the nodes may not signal, and end by themselves after a while.
    pub(crate) unkillable: bool,
}

/// The place of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Among the nodes, each in a network namespace of its own.
    AmongPeers(PeerElection),
    /// In the store of this URL, in which `{store}` is replaced by a directory.
    OverStore(&'static str),
    /// On a server that the run starts, with a proxy between it and each node.
    OnServer(Make),
}

/// The variable with which a node gets the URL of a store on a server: the URL may contain a password.
pub(crate) const STORE_VARIABLE: &str = "PRIMACY_CHAOS_STORE";

/// The way in which nodes among peers find a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerElection {
    /// By a majority.
    Quorum,
    /// By a majority that also replicates a map on its disks; each node serves the etcd API.
    Metadata,
    /// By a majority of votes, each for the best claim.
    Ranked,
    /// This election nominates, a quorum confirms.
    ByQuorum(&'static str),
    /// This election nominates, a lease in the store of this URL confirms.
    ByStore(&'static str, &'static str),
}

impl Arm {
    /// The arm of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ARMS.iter().copied().find(|arm| arm.name == name)
    }

    /// The names of the nodes, in alphabetical order.
    pub(crate) fn node_names(&self) -> Vec<String> {
        ('a'..='z').take(self.nodes).map(String::from).collect()
    }

    /// True if the nodes send messages to each other over links that can be cut.
    pub(crate) fn has_network(&self) -> bool {
        matches!(self.held, Held::AmongPeers(_))
    }

    /// True if the lead can be transferred to a chosen node. If one election nominates, its rule decides instead.
    fn chooses_successor(&self) -> bool {
        matches!(
            self.held,
            Held::AmongPeers(PeerElection::Quorum | PeerElection::Metadata | PeerElection::Ranked)
        )
    }

    /// True if its nodes serve clients, and its voters are replaced.
    pub(crate) fn serves_clients(&self) -> bool {
        self.held == Held::AmongPeers(PeerElection::Metadata)
    }

    /// True if this fault is applicable to the arm.
    pub(crate) fn knows(&self, kind: Kind) -> bool {
        let enough = self.nodes >= kind.nodes_min();
        let server = if let Held::OnServer(make) = self.held { Some(make) } else { None };
        enough
            && (!self.unkillable || kind.leaves_the_lead())
            && (self.has_network() || !kind.is_of_network())
            && (server.is_some() || !kind.is_of_store())
            && (kind != Kind::StoreKilled || server.is_some_and(Make::keeps_what_it_answered))
            && (self.chooses_successor() || kind != Kind::Transfer)
            && (self.serves_clients() || kind != Kind::ReplaceVoter)
            // The disk that is filled is a store's, which all nodes share. A peer's state file is allocated at its
            // first start and written in place; a server has its own disk. The log of a node with a replicated map
            // does grow, but each node would need a small disk of its own, with room for the records and snapshots of
            // the whole run. `tests/disk_full.rs` of the command has such disks.
            && (matches!(self.held, Held::OverStore(_)) || kind != Kind::FullDisk)
    }

    /// The configured lease of the node of this name. If leases differ, only the last node has the longest.
    fn lease_of(&self, node: &str) -> Duration {
        let is_last = self.node_names().last().is_some_and(|last| last == node);
        if self.leases_differ && !is_last { LEASE } else { self.lease }
    }

    /// The options of `primacy run` that state the place of the election, except the list of peers and the address of the etcd API.
    pub(crate) fn options(&self, node: &str, state: &Path, store: &Path) -> Vec<String> {
        let mut options: Vec<String> = vec!["--state-dir".into(), state.display().to_string()];
        match self.held {
            Held::AmongPeers(way) => {
                options.extend(match way {
                    PeerElection::Quorum => vec!["--safety".into(), "lease".into()],
                    PeerElection::Metadata => {
                        ["--safety", "lease", "--metadata", "fsync"].into_iter().map(String::from).collect()
                    }
                    PeerElection::Ranked => vec!["--algorithm".into(), "ranked".into()],
                    PeerElection::ByQuorum(by) => {
                        ["--algorithm", by, "--confirm", "quorum"].into_iter().map(String::from).collect()
                    }
                    PeerElection::ByStore(by, url) => {
                        let url = url.replace("{store}", &store.display().to_string());
                        vec!["--algorithm".into(), by.into(), "--confirm".into(), url]
                    }
                });
                // The traffic stays in the run's own namespaces.
                options.push("--insecure-cleartext".into());
            }
            Held::OverStore(url) => {
                let url = url.replace("{store}", &store.display().to_string());
                options.extend(["--store".into(), url]);
            }
            Held::OnServer(_) => options.extend(["--store".into(), format!("env:{STORE_VARIABLE}")]),
        }
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        options.extend(["--lease".into(), millis(self.lease_of(node)), "--drain".into(), millis(DRAIN)]);
        options.extend(["--kill-margin".into(), millis(KILL_MARGIN)]);
        options
    }
}
