//! An election among peers: its machine with a disk and a mesh of connections.
//!
//! Each election's interface to the driver is in `peer_node/elections.rs`.

mod elections;
mod metadata;
mod presence;
mod state_dir;

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use primacy_core::election::confirmed::Confirmed;
use primacy_core::election::quorum::{DiskState, HardState, Quorum};
use primacy_core::election::{self, Algorithm};
use primacy_core::{Duration, Endpoint, Identity, Input, Instant, LeaderSequence, NodeId, Protocol, Term};
use primacy_stores::Register;
use tokio::sync::{mpsc, oneshot, watch};

use self::elections::{AmongPeers, Beat, Setup};
pub(crate) use self::metadata::Keeping;
use self::presence::Presence;

use crate::clock;
use crate::codec::peer_elections;
use crate::config::{Config, ConfigError};
use crate::disk::{self, StateFile};
use crate::driver::announce::Announces;
use crate::driver::{AdminView, EffectHandler, Frontend, Halt, Quiescent, drive};
use crate::error::AdminError;
use crate::error::ConnectError;
use crate::handshake::{DiskId, Hello, Role, Voters};
use crate::lease_node::StoreEffects;
use crate::peers::Peers;
use crate::stats::{HeartbeatTimes, Stats};
use crate::status::{ElectionView, PeersView, View};
use crate::transport::{Arrival, Limits, Mesh, MeshConfig, Sides, TransportError, check_form};
use crate::versions::SPOKEN;

/// The most arrivals that may wait for the driver; beyond it, connections stop reading.
const INBOX: usize = 1024;

/// The disk and the mesh of one node.
#[derive(Debug)]
pub(crate) struct PeersEffects {
    me: Hello,
    state: StateFile,
    mesh: Mesh,
    inbox: mpsc::Receiver<Arrival>,
    stats: Arc<Stats>,
    heartbeats: HeartbeatTimes,
    mismatch: MismatchWatch,
    presence: Presence,
}

/// Decides whether a configuration mismatch with a peer must end this node.
#[derive(Debug)]
struct MismatchWatch {
    /// The configuration mismatch with a peer.
    reason: watch::Receiver<Option<String>>,
    /// The time since which the mismatch is known.
    since: Option<Instant>,
    /// The time to wait for another peer that agrees. No node leads earlier, except the only seed of a cluster, which founds it at
    /// once.
    patience: Duration,
    /// True if this node has known a leader, or a peer that agrees; then it continues.
    settled: bool,
}

/// As [`PeersEffects`], with a store that confirms the leader or decides splits.
#[derive(Debug)]
struct PeersAndStore {
    peers: PeersEffects,
    store: StoreEffects,
}

/// The state and the listener of a node that has not entered the election yet.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) hello: Hello,
    state: StateFile,
    stored: disk::Stored,
    listener: std::net::TcpListener,
    listen: SocketAddr,
    peers: Vec<(NodeId, String)>,
}

/// Opens the state and binds the address: all errors of the configuration are known after this.
pub(crate) fn enter(config: &Config, peers: &Peers, state_dir: &Path) -> Result<Entry, ConnectError> {
    let Some(address) = peers.address(config.node) else {
        let names = peers.iter().map(|(node, _)| node.to_string()).collect::<Vec<_>>().join(", ");
        return Err(ConfigError::NotAPeer { node: config.node, peers: names }.into());
    };
    if let Some(problem) = config.problems_among(&names(peers)).into_iter().next() {
        return Err(ConfigError::from(problem).into());
    }
    let listen = resolve(address)?;
    // The state comes first: a second process of this node gets that error, and not that its port is in use.
    let voters = peers.iter().map(|(node, _)| node);
    let (mut state, mut stored) = state_dir::open_state(state_dir, &config.election, config.node, voters)?;
    let voters = Voters::new(peers.iter().map(|(node, _)| node));
    if config.metadata.is_none() && config.kind.needs_majority() {
        state_dir::check_voters(&stored, &voters)?;
    }
    if config.metadata.is_some() {
        // Other nodes remember the requests of a node's earlier processes, and do not answer an incarnation with a lower count.
        // The node may have lost its disk since, or got an older copy. Milliseconds grow faster than a node can restart.
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        stored.incarnation.count = state.count_lives_from(u64::try_from(millis).unwrap_or_default())?;
    }
    let listener = Mesh::bind(listen, &config.security)?;
    let hello = Hello {
        versions: SPOKEN,
        cluster: config.cluster.clone(),
        election: config.election.clone(),
        identity: Identity::new(config.node, stored.incarnation),
        role: Role::Node,
        disk: stored.disk,
        known_disk: None,
        voters,
        voters_number: LeaderSequence::NONE,
        safety: config.safety,
        priority: config.priority,
        witness: config.witness,
        kind: config.kind,
        split_brain: (config.kind.algorithm == Algorithm::Seniority)
            .then_some(config.seniority.split_brain.policy()),
        store: None,
        metadata: config.metadata,
    };
    let others = peers.iter().filter(|&(node, _)| node != config.node);
    let peers = others.map(|(node, address)| (node, address.to_owned())).collect();
    Ok(Entry { hello, state, stored, listener, listen, peers })
}

/// The errors of the configuration that can be found without entering.
pub(crate) fn problems(config: &Config, peers: &Peers) -> Vec<ConnectError> {
    let (me, security) = (config.node, &config.security);
    let mut problems = Vec::new();
    match peers.address(me) {
        None => {
            let names = peers.iter().map(|(node, _)| node.to_string()).collect::<Vec<_>>().join(", ");
            problems.push(ConfigError::NotAPeer { node: me, peers: names }.into());
        }
        Some(address) => {
            let permitted =
                resolve(address).and_then(|listen| Ok(security.permits("the address to listen on", listen)?));
            problems.extend(permitted.err());
        }
    }
    let of_members = config.problems_among(&names(peers)).into_iter();
    problems.extend(of_members.map(|problem| ConfigError::from(problem).into()));
    if config.metadata.is_some() {
        problems.extend(disk::check_room(&metadata::members(peers)).err().map(ConnectError::from));
    }
    let others: Vec<(NodeId, &str)> = peers.iter().filter(|&(node, _)| node != me).collect();
    for &(node, address) in &others {
        let found = check_form(node, address).map(|()| address.to_socket_addrs());
        let permitted = found.and_then(|found| security.permits_peer(node, found.into_iter().flatten()));
        problems.extend(permitted.err().map(ConnectError::from));
    }
    let opened = security.open(me, &config.cluster, others.iter().map(|&(node, _)| node), Sides::Both);
    problems.extend(opened.err().map(|error| ConnectError::from(TransportError::from(error))));
    problems
}

fn names(peers: &Peers) -> BTreeSet<NodeId> {
    peers.iter().map(|(node, _)| node).collect()
}

impl Entry {
    /// The peers' addresses.
    pub(crate) fn peers(&self) -> &[(NodeId, String)] {
        &self.peers
    }

    /// Takes part until the node leaves or halts, with the store if there is one. Must be called inside a `LocalSet`; the
    /// driver reports why it ended.
    pub(crate) async fn live(
        self,
        config: &Config,
        register: Option<Arc<dyn Register>>,
        frontend: Frontend,
        ready: oneshot::Sender<Result<(), ConnectError>>,
    ) {
        macro_rules! live {
            ($($way:ident $variant:ident($($machine:tt)*), $encoding:ident;)*) => {
                match config.kind.algorithm {
                    $(Algorithm::$variant => live!(@$way election::$($machine)*),)*
                }
            };
            (@majority $machine:ty) => { self.live_as::<$machine>(config, frontend, ready).await };
            (@advisory $machine:ty) => { self.live_confirmed::<$machine>(config, register, frontend, ready).await };
            (@cluster $machine:ty) => {
                match (config.kind.confirmation, register) {
                    // The store decides splits, and confirms no leader.
                    (None, Some(register)) => {
                        self.live_with_store(config, register, frontend, ready, <$machine>::begin).await
                    }
                    (_, register) => self.live_confirmed::<$machine>(config, register, frontend, ready).await,
                }
            };
        }
        peer_elections!(live);
    }

    /// Runs an advisory election, on its own or as the nomination of a confirmed one.
    async fn live_confirmed<N: AmongPeers<Durable = ()>>(
        self,
        config: &Config,
        register: Option<Arc<dyn Register>>,
        frontend: Frontend,
        ready: oneshot::Sender<Result<(), ConnectError>>,
    ) {
        let Some(register) = register else {
            return match config.kind.confirmation {
                Some(_) => self.live_as::<Confirmed<N, Quorum>>(config, frontend, ready).await,
                None => self.live_as::<N>(config, frontend, ready).await,
            };
        };
        self.live_with_store(config, register, frontend, ready, elections::confirmed_by_store::<N>).await;
    }

    /// Runs an election that uses the peers and a store.
    async fn live_with_store<P>(
        self,
        config: &Config,
        register: Arc<dyn Register>,
        mut frontend: Frontend,
        ready: oneshot::Sender<Result<(), ConnectError>>,
        begin: impl FnOnce(Setup<'_>, Instant) -> P,
    ) where
        P: Protocol + Quiescent + Announces,
        PeersAndStore: AdminView<P>,
    {
        let stats = Arc::clone(&frontend.stats);
        match self.start(config, Arc::clone(&stats), begin).await {
            Ok((mut machine, peers)) => {
                let mut effects = PeersAndStore {
                    peers,
                    store: StoreEffects::measured(register, stats, config.timers.lease.into()),
                };
                let _ = ready.send(Ok(()));
                let _ = drive(&mut machine, &mut effects, &mut frontend).await;
                effects.peers.close().await;
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    }

    async fn live_as<P: AmongPeers>(
        self,
        config: &Config,
        mut frontend: Frontend,
        ready: oneshot::Sender<Result<(), ConnectError>>,
    ) {
        match self.start(config, Arc::clone(&frontend.stats), P::begin).await {
            Ok((mut machine, mut effects)) => {
                let _ = ready.send(Ok(()));
                let _ = drive(&mut machine, &mut effects, &mut frontend).await;
                // A caller that waits for the end may enter again at once, with the same address and state.
                effects.close().await;
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    }

    /// Starts to listen and to dial, and creates the machine.
    async fn start<P>(
        self,
        config: &Config,
        stats: Arc<Stats>,
        begin: impl FnOnce(Setup<'_>, Instant) -> P,
    ) -> Result<(P, PeersEffects), ConnectError> {
        let seed = u64::from_be_bytes(disk::entropy()?);
        let voters: BTreeSet<NodeId> = self.hello.voters.iter().collect();
        let hard = self.stored.hard_state;
        let (me, timers) = (self.hello.identity, &config.nomination_timers);
        let machine = begin(Setup { me, voters, config, timers, seed, hard }, clock::now());
        let (arrivals, inbox) = mpsc::channel(INBOX);
        let me = self.hello.clone();
        if hard.disk_state == DiskState::Lost {
            say_disk_lost(&me);
        }
        let limits = match config.metadata {
            Some(_) => Limits { buffer_max: metadata::BUFFER_MAX, ..Limits::default() },
            None => Limits::default(),
        };
        let mesh_config = MeshConfig {
            me: self.hello,
            listen: self.listen,
            peers: self.peers,
            peer_disks: self.stored.peer_disks,
            term: term_to_tell(&self.stored.hard_state),
            security: config.security.clone(),
            limits,
        };
        let mesh = Mesh::start_on(self.listener, mesh_config, arrivals).await?;
        // Set once: these stats belong to this node alone.
        let _ = stats.connections.set(mesh.shared_counters());
        if let Some(certificate) = mesh.shared_certificate() {
            let _ = stats.certificate.set(certificate);
        }
        let (state, heartbeats) = (self.state, HeartbeatTimes::default());
        let (reason, patience) = (mesh.config_mismatch(), timers.answer_timeout.into());
        let mismatch = MismatchWatch { reason, since: None, patience, settled: false };
        let presence = Presence::new();
        Ok((machine, PeersEffects { me, state, mesh, inbox, stats, heartbeats, mismatch, presence }))
    }
}

impl MismatchWatch {
    /// Resolves when the mismatch must be judged: a peer has another configuration, or the patience is over.
    async fn changed(&mut self) {
        let patience = self.patience;
        match self.since.filter(|_| !self.settled) {
            Some(since) => {
                let left = since.after(patience).since(clock::now());
                tokio::time::sleep(left.into()).await;
            }
            None => {
                if self.reason.changed().await.is_err() {
                    std::future::pending().await // The mesh is at its end, and says so.
                }
            }
        }
    }
}

impl PeersEffects {
    fn time(&self, from: NodeId, beat: Option<Beat>) {
        if let Some(Beat::Answered { number, to }) = beat
            && to == self.me.identity.incarnation
            && let Some(took) = self.heartbeats.replied(from, number, clock::now())
        {
            self.stats.heartbeat_round_trips.observe(took);
        }
    }

    /// Closes all connections, the listener and the state.
    pub(crate) async fn close(self) {
        self.mesh.shutdown().await;
    }
}

impl<P: AmongPeers> EffectHandler<P> for PeersEffects {
    fn persist(&mut self, durable: P::Durable) -> Result<(), Halt> {
        let hard = P::hard(durable);
        let began = clock::now();
        self.state.persist(&hard).map_err(|error| Halt::Failed { why: error.to_string() })?;
        self.stats.state_writes.observe(clock::now().since(began));
        if hard.disk_state == DiskState::Lost && self.mesh.term().is_some() {
            say_disk_lost(&self.me);
        }
        let told = self.mesh.term().unwrap_or_default();
        // A term that was heard of is reported to other nodes, though it is on no disk.
        self.mesh.set_term(term_to_tell(&hard).map(|term| term.max(told)));
        Ok(())
    }

    fn send(&mut self, to: Endpoint, message: P::Message) {
        match to {
            Endpoint::Node(node) => {
                if let Some(Beat::Asked { number }) = P::beat(&message) {
                    self.heartbeats.sent(node, number, clock::now());
                }
                // The mesh counts lost messages, and the election repeats them.
                let _ = self.mesh.send(node, P::say(message));
            }
            Endpoint::Store | Endpoint::Client => {} // This election has neither.
        }
    }

    async fn arrival(&mut self) -> Result<Input<P::Message>, Halt> {
        loop {
            let arrival = tokio::select! {
                biased;
                () = self.presence.due() => {
                    self.state.check_in_place().map_err(|error| Halt::Failed { why: error.to_string() })?;
                    continue;
                }
                arrival = self.inbox.recv() => arrival,
                // A timeout is a harmless input, because machines accept early ones; `after` judges the mismatch.
                () = self.mismatch.changed() => return Ok(Input::Timeout),
            };
            match arrival {
                Some(Arrival::Message { from, message }) => {
                    // A node with another election was refused in the handshake; if it sends messages nevertheless, they are
                    // dropped.
                    let Some(message) = P::hear(message) else { continue };
                    self.time(from, P::beat(&message));
                    return Ok(Input::Message { from: Endpoint::Node(from), message });
                }
                Some(Arrival::Evidence(evidence)) => return Ok(Input::Evidence(evidence)),
                Some(Arrival::PeerDisk { node, disk }) => {
                    let recorded = self.state.record_peer_disk(node, disk);
                    recorded.map_err(|error| Halt::Failed { why: error.to_string() })?;
                }
                None => {
                    return Err(Halt::Failed { why: "the connections to the peers have ended".to_owned() });
                }
            }
        }
    }
}

impl<P: AmongPeers> AdminView<P> for PeersEffects {
    fn after(&mut self, machine: &P, led: bool) -> Result<(), Halt> {
        self.may_continue(led)?;
        // While this node has lost its own disk it reports no term, even if it has heard of one.
        if let (Some(term), Some(heard)) = (self.mesh.term(), machine.heard_of())
            && heard > term
        {
            self.mesh.set_term(Some(heard));
        }
        self.mesh.set_reached(machine.reached());
        Ok(())
    }

    fn view(&self, machine: &P) -> View {
        self.view_with(machine.view())
    }

    fn readmit(&mut self, node: NodeId) -> Result<DiskId, AdminError> {
        let by = self.me.identity.node;
        let disk = self.mesh.disk_to_readmit(node).ok_or(AdminError::NotRefused { node, by })?;
        self.state.readmit(node, disk)?;
        self.mesh.readmit(node, disk);
        tracing::warn!(%node, %disk, "readmitted by the operator");
        Ok(disk)
    }
}

impl PeersEffects {
    /// Halts this node on a configuration mismatch, if the election lets a node lead without the others. A node that has known
    /// a leader, or has a peer that agrees, continues; then the other node must give way.
    fn may_continue(&mut self, led: bool) -> Result<(), Halt> {
        let why = self.mismatch.reason.borrow().clone();
        let (Some(why), false) = (why, self.mismatch.settled || self.me.kind.needs_majority()) else {
            return Ok(());
        };
        let now = clock::now();
        let since = *self.mismatch.since.get_or_insert(now);
        self.mismatch.settled =
            led || self.mesh.peers().iter().any(|peer| peer.inbound.is_some() || peer.outbound.is_some());
        let is_over = !self.mismatch.settled && now >= since.after(self.mismatch.patience);
        if is_over { Err(Halt::ConfigMismatch { why }) } else { Ok(()) }
    }

    /// The state of the peers, with that of this election.
    fn view_with(&self, election: ElectionView) -> View {
        let (peers, (voters, _)) = (self.mesh.peers(), self.mesh.voters());
        View::Peers(Box::new(PeersView {
            kind: self.me.kind,
            election,
            connected: peers.iter().filter(|peer| peer.inbound.is_some()).map(|peer| peer.node).collect(),
            voters,
            metadata: None,
            awaited: BTreeSet::new(),
            safety: self.me.safety,
            priority: self.me.priority,
            witness: self.me.witness,
            disk: self.me.disk,
            peers,
            counters: self.mesh.counters(),
            certificate: self.mesh.certificate(),
            unidentified_refused: self.mesh.unidentified_refused(),
        }))
    }
}

/// Logs that this node waits to be readmitted.
fn say_disk_lost(me: &Hello) {
    let (node, election) = (me.identity.node, &me.election);
    tracing::error!(
        %node, disk = %me.disk,
        "{node} has lost its disk: others know it with another one, and with that it may have voted. It neither votes nor leads until \
         all others have readmitted it. Bring the state directory back that it had; if that is lost, start it with an empty one and \
         with the voters of now in --peers, and say `primacy member readmit --election {election} {node}` to each of the others"
    );
}

/// The term that a node with this state may report to others: none while it has lost an earlier state.
fn term_to_tell(hard: &HardState) -> Option<Term> {
    Some(hard.term).filter(|_| hard.disk_state != DiskState::Lost)
}

fn resolve(address: &str) -> Result<SocketAddr, ConnectError> {
    let unresolved = |why: String| ConfigError::Unresolved { address: address.to_owned(), why };
    let resolved = address.to_socket_addrs().map_err(|error| unresolved(error.to_string()))?.next();
    resolved.ok_or_else(|| unresolved("its name has no address".to_owned()).into())
}

impl From<state_dir::OpenError> for ConnectError {
    fn from(error: state_dir::OpenError) -> Self {
        match error {
            state_dir::OpenError::Disk(error) => error.into(),
            state_dir::OpenError::Log(error) => error.into(),
        }
    }
}

impl From<TransportError> for Halt {
    fn from(error: TransportError) -> Self {
        Self::Failed { why: error.to_string() }
    }
}
