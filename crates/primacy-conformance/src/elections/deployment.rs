//! The place of a live election, in a form that can be passed in an environment variable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use primacy::disk::DiskError;
use primacy::{Builder, ConnectError, Elector, NodeId, Peers, Timers, config};
use primacy_stores::faulty::{FaultSwitch, FaultyRegister, FaultySessions};
use primacy_stores::{OpenError, Opened, ReadError, SessionError, open_any};

use super::harness::{Bounds, NAMES, Pace};
use super::listener::PATIENCE;
use crate::live::free_port;

/// A lease short enough for a law to wait for its end.
const QUICK: Duration = Duration::from_secs(2);

/// The place of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// In the store of this URL.
    Store(String),
    /// In a store that is a server.
    Server(Server),
    /// Among peers on this machine's loopback, with their state in this directory.
    Peers(PathBuf),
}

/// A store that is a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its URL.
    pub url: String,
    /// The shortest lease that it grants; shorter leases of the laws are raised to it.
    pub lease_min: Duration,
    /// The documented time after the lease within which it notices the expiry of a silent holder; zero if the other
    /// nodes measure the expiry themselves.
    pub expires_late: Duration,
    /// The effect of a client that is stopped in the middle of a request.
    pub attention: Attention,
}

impl Server {
    /// A server that keeps records: the nodes measure the lease themselves.
    #[must_use]
    pub const fn of_records(url: String) -> Self {
        Self { url, lease_min: Duration::ZERO, expires_late: Duration::ZERO, attention: Attention::All }
    }
}

/// The concurrency with which a server serves its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// All at once: a process that is stopped at any moment blocks no other.
    All,
    /// One at a time, until that client has sent its whole request.
    One,
}

/// The parameters with which a node enters an election.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) election: String,
    pub(crate) node: usize,
    pub(crate) lease: Duration,
    /// The store's URL; or the peers, and the directory of the node's state.
    pub(crate) place: ElectionLocation,
}

/// The place of one election.
#[derive(Clone, Debug)]
pub(crate) enum ElectionLocation {
    Store(String),
    Peers { peers: String, dir: PathBuf },
}

impl Deployment {
    /// The lease at this pace.
    pub(crate) fn lease(&self, pace: Pace) -> Duration {
        match (self, pace) {
            (Self::Server(server), Pace::Quick) => QUICK.max(server.lease_min),
            (Self::Store(_) | Self::Peers(_), Pace::Quick) => QUICK,
            (Self::Store(_) | Self::Server(_), Pace::Patient) => Duration::from_secs(60),
            // The nodes listen for as long before the first election.
            (Self::Peers(_), Pace::Patient) => Duration::from_secs(6),
        }
    }

    /// Creates the place of a new election. A store gets a first record, so that no node waits for a possible earlier holder.
    pub(crate) async fn place(&self, election: &str, pace: Pace) -> ElectionLocation {
        if let Self::Store(url) | Self::Server(Server { url, .. }) = self {
            primacy::init(url, election, self.lease(pace)).await.expect("a new record");
        }
        match self {
            Self::Store(url) | Self::Server(Server { url, .. }) => ElectionLocation::Store(url.clone()),
            Self::Peers(dir) => ElectionLocation::Peers { peers: free_peers(), dir: dir.join(election) },
        }
    }

    /// The documented bounds of a leader change, with the maximum duration of each request.
    pub(crate) fn bounds(&self, pace: Pace) -> Bounds {
        let venue = match self {
            Self::Store(_) | Self::Server(_) => config::Venue::Store,
            Self::Peers(_) => config::Venue::Peers,
        };
        let timers = Timers::new(venue, Some(self.lease(pace)));
        let lease: Duration = timers.drift_max.lengthen(timers.lease.into()).into();
        match self {
            Self::Store(_) => over_a_store(&timers, lease),
            Self::Server(server) => over_a_store(&timers, lease + server.expires_late),
            // Three round trips, and a random wait before them without a notice.
            Self::Peers(_) => {
                let release = 3 * timers.answer_timeout;
                Bounds { release, expiry: lease + timers.random_wait_max + release }
            }
        }
    }
}

/// The change is noticed by an event or the next poll; then a read and a write.
fn over_a_store(timers: &Timers, expiry: Duration) -> Bounds {
    let release = timers.poll_interval + 2 * timers.answer_timeout;
    Bounds { release, expiry: expiry + release }
}

/// Returns three names with free ports.
fn free_peers() -> String {
    NAMES.map(|name| format!("{name}=127.0.0.1:{}", free_port())).join(",")
}

/// Enters an election among peers. A process that another arm is starting inherits the open files of all arms until
/// it executes its program, and so may hold the lock of a released state for a moment.
async fn enter_among(builder: &Builder, peers: &Peers) -> Elector {
    let began = std::time::Instant::now();
    loop {
        match builder.clone().peers(peers.clone()).await {
            Ok(elector) => return elector,
            Err(ConnectError::Disk(DiskError::Locked { .. })) if began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("the election can be entered: {error}"),
        }
    }
}

/// Enters an election in a store. Other nodes create it at the same moment, and a server on a busy machine may not
/// answer in time.
async fn enter_store(builder: &Builder, url: &str, election: &str) -> (Elector, FaultSwitch) {
    let began = std::time::Instant::now();
    loop {
        let entering = async {
            let builder = builder.clone();
            Ok(match open_any(url, election).await? {
                Opened::Register(register) => {
                    let (register, switch) = FaultyRegister::new(register);
                    (builder.register(Arc::new(register)).await?, switch)
                }
                Opened::Sessions(sessions) => {
                    let (sessions, switch) = FaultySessions::new(sessions);
                    (builder.sessions(Arc::new(sessions)).await?, switch)
                }
            })
        };
        match entering.await {
            Ok(entered) => return entered,
            Err(
                ConnectError::Open(OpenError::Unavailable { .. } | OpenError::Shortage { .. })
                | ConnectError::Read(ReadError::Unavailable { .. })
                | ConnectError::Session(SessionError::NoAnswer { .. }),
            ) if began.elapsed() < PATIENCE => tokio::task::yield_now().await,
            Err(error) => panic!("the election can be entered: {error}"),
        }
    }
}

impl Entry {
    /// Enters the election; over a store, through a switch that can cut the node off from it.
    pub(crate) async fn enter(&self) -> (Elector, FaultSwitch) {
        let node = NodeId::new(NAMES[self.node]).expect("a name");
        let builder = Elector::builder().election(&self.election).node(node).lease(self.lease);
        match &self.place {
            ElectionLocation::Store(url) => enter_store(&builder, url, &self.election).await,
            ElectionLocation::Peers { peers, dir } => {
                let peers: Peers = peers.parse().expect("a list of peers");
                let builder = builder.state_dir(dir.join(NAMES[self.node]));
                (enter_among(&builder, &peers).await, FaultSwitch::default())
            }
        }
    }

    /// Encodes the entry as lines, for a separate process.
    pub(crate) fn told(&self) -> String {
        let (place, dir) = match &self.place {
            ElectionLocation::Store(url) => (url.clone(), String::new()),
            ElectionLocation::Peers { peers, dir } => (peers.clone(), dir.display().to_string()),
        };
        format!("{}\n{}\n{}\n{place}\n{dir}", self.election, self.node, self.lease.as_millis())
    }

    /// Parses such lines; `None` if they are malformed.
    pub(crate) fn from_told(told: &str) -> Option<Self> {
        let [election, node, lease, place, dir] = told.split('\n').collect::<Vec<_>>().try_into().ok()?;
        let place = if dir.is_empty() {
            ElectionLocation::Store(place.to_owned())
        } else {
            ElectionLocation::Peers { peers: place.to_owned(), dir: Path::new(dir).to_owned() }
        };
        let lease = Duration::from_millis(lease.parse().ok()?);
        Some(Self { election: election.to_owned(), node: node.parse().ok()?, lease, place })
    }
}
