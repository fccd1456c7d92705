//! Entering an election and campaigning in it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use primacy_core::election::Algorithm;
use primacy_core::election::quorum::Safety;
use primacy_core::membership::{Attributes, TooFewMembers};
use primacy_core::{Drift, Identity, Incarnation, LeaderSequence, Mandate, NodeId};
use primacy_stores::{Opened, Register, Sessions, url_without_login};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;

mod admin;
#[cfg(feature = "peers")]
mod peers;

use crate::clock;
use crate::config::{self, Config, ConfigError, Timers, Venue};
use crate::config::{SeniorityOptions, SplitBrain};
use crate::connections::TlsFiles;
use crate::cordon::Cordon;
use crate::death_notice::{DeathNoticeSpec, StoreSpec};
use crate::disk;
use crate::driver::{Frontend, drive};
use crate::error::{CampaignError, ConnectError, PublishError};
use crate::handshake::{Confirmation, ElectionKind};
use crate::leadership::Leadership;
use crate::leadership::request::{Request, publish};
use crate::lease_node::{self, StoreEffects};
#[cfg(feature = "metrics")]
use crate::metadata::Gauges;
use crate::metadata::{Durability, Map};
use crate::observer::{Announcements, Members, Membership};
use crate::observer::{Observer, Publisher};
use crate::progress::Promises;
use crate::session_node::{self, SessionsEffects};
use crate::stats::Stats;

/// One node's part in one election.
///
/// Handles can be cloned and all denote the same node. When the last handle, leadership and guard are dropped, the node
/// leaves the election in order.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use primacy::Elector;
///
/// let elector = Elector::builder().election("billing").connect("memory:example").await?;
/// let leadership = elector.campaign().await?;
/// let token = leadership.token(); // For every resource that is written to.
/// leadership.check()?;            // Right before each act.
/// leadership.resign().await;
/// # let _ = token;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Elector {
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) publisher: Publisher,
    about: Arc<About>,
}

/// Values that do not change while the node runs.
#[derive(Debug)]
struct About {
    election: String,
    identity: Identity,
    kind: ElectionKind,
    witness: bool,
    timers: Timers,
    /// The minimum number of members, by seniority.
    minimum_members: Option<usize>,
    /// The specification with the configured peers. Where voters can change, the peers come from the map instead.
    death_notice_spec: Option<DeathNoticeSpec>,
    map: Option<Map>,
    /// True if a leadership ends when it is not renewed.
    has_lease: bool,
    /// One permit: a node joins the partitions at most once at a time.
    place: Arc<Semaphore>,
    #[cfg(feature = "metrics")]
    stats: Arc<Stats>,
    /// Set when the node halts after a failure.
    halted: Arc<OnceLock<CampaignError>>,
}

/// The means by which the leader that an election among peers names is confirmed.
#[derive(Clone, PartialEq, Eq)]
pub enum Confirm {
    /// A majority of the peers.
    Quorum,
    /// A lease in the store at this URL.
    Store(String),
}

/// Hides the store's URL, which may contain a password.
impl fmt::Debug for Confirm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quorum => "Quorum",
            Self::Store(_) => "Store",
        })
    }
}

/// The options of a node in an election; made by [`Elector::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    election: Option<String>,
    node: Option<NodeId>,
    address: String,
    algorithm: Option<Algorithm>,
    confirm: Option<Confirm>,
    seniority: Option<SeniorityOptions>,
    allow_advisory: bool,
    safety: Option<Safety>,
    priority: u32,
    witness: bool,
    metadata: Option<Durability>,
    state_dir: Option<PathBuf>,
    lease: Option<Duration>,
    renewal: Option<Duration>,
    drain: Option<Duration>,
    kill_margin: Option<Duration>,
    drift_max: Option<Drift>,
    random_wait_max: Option<Duration>,
    cluster: Option<String>,
    tls: Option<TlsFiles>,
    insecure_cleartext: bool,
}

impl Elector {
    /// Returns the builder of an elector.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Campaigns until elected.
    ///
    /// Cancel safe: dropping the future ends the candidacy. If this node was elected at that very moment, it resigns.
    ///
    /// # Errors
    /// [`CampaignError`]; waiting for another leader to go is no error.
    pub async fn campaign(&self) -> Result<Leadership, CampaignError> {
        if !self.about.kind.is_fenced() {
            return Err(CampaignError::Advisory);
        }
        self.campaign_any().await?.fenced().map_err(|_| CampaignError::Advisory)
    }

    /// Campaigns in any election, also in an advisory one: see [`Leadership::mandate`].
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign), but for [`CampaignError::Advisory`].
    pub async fn campaign_any(&self) -> Result<Leadership<Mandate>, CampaignError> {
        if self.about.witness {
            return Err(CampaignError::Witness);
        }
        let (answer, elected) = oneshot::channel();
        self.requests.send(Request::Campaign(answer)).map_err(|_| self.end())?;
        elected.await.unwrap_or_else(|_| Err(self.end()))
    }

    /// Waits until this node has left the election: [`CampaignError::Halted`] if it halted after a failure, and [`CampaignError::Closed`]
    /// if it was closed. For nodes that only vote: a campaign or a leadership reports it by itself.
    pub async fn closed(&self) -> CampaignError {
        self.requests.closed().await;
        self.end()
    }

    /// The reason why this node has left the election.
    fn end(&self) -> CampaignError {
        self.about.halted.get().cloned().unwrap_or(CampaignError::Closed)
    }

    /// Watches changes of the leader, from now on.
    #[must_use]
    pub fn observe(&self) -> Observer {
        self.publisher.observe()
    }

    /// Watches the announcements of leaders, from now on; see [`Leadership::publish`].
    #[must_use]
    pub fn announcements(&self) -> Announcements {
        Announcements::new(self.publisher.announcements())
    }

    /// Publishes as [`Leadership::publish`] does, without the [`Leadership`] of this node.
    ///
    /// # Errors
    /// As [`Leadership::publish`].
    pub async fn publish(&self, state: impl AsRef<[u8]>) -> Result<LeaderSequence, PublishError> {
        publish(state.as_ref(), None, |request| self.requests.send(request).is_ok()).await
    }

    /// Watches the members of this node's cluster, from now on.
    #[must_use]
    pub fn members(&self) -> Members {
        Members::new(self.publisher.members.subscribe())
    }

    /// Checks that the cluster is large enough to serve a request; call it before each request. In `seniority` the cluster must have
    /// [`SeniorityOptions::minimum_members`] members, and this node must be one of them. Other elections have no cluster, and there
    /// the check always succeeds. The check sends nothing: a part that was cut off from the others notices only after its failure
    /// detection.
    ///
    /// # Errors
    /// [`TooFewMembers`], with the present and the required number.
    pub fn check_members(&self) -> Result<(), TooFewMembers> {
        let Some(minimum) = self.minimum_members() else { return Ok(()) };
        let members = match &*self.publisher.members.borrow() {
            Membership::Member(view) => view.members().len(),
            Membership::Outside => 0,
        };
        if members == 0 || members < minimum { Err(TooFewMembers { members, minimum }) } else { Ok(()) }
    }

    /// Sets whether this node is fit to lead. An unfit node does not campaign, and gives up the lead in order.
    pub fn set_healthy(&self, healthy: bool) {
        // If the driver has ended, this node does not lead.
        let _ = self.requests.send(Request::Healthy(healthy));
    }

    /// States why the application does not [campaign](Self::campaign), for
    /// [`Status::not_campaigning`](crate::Status::not_campaigning). Replaces an earlier statement.
    pub fn explain_not_campaigning(&self, why: Option<String>) {
        let _ = self.requests.send(Request::NotCampaigning(why));
    }

    /// The election's name.
    #[must_use]
    pub fn election(&self) -> &str {
        &self.about.election
    }

    /// The kind of election. An election over a store reports that of a quorum: fenced by a token.
    #[must_use]
    pub fn kind(&self) -> ElectionKind {
        self.about.kind
    }

    /// This node, in its present incarnation.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.about.identity
    }

    /// The timers that are in force.
    #[must_use]
    pub fn timers(&self) -> &Timers {
        &self.about.timers
    }

    /// The minimum number of members; `None` if this election has none.
    pub(crate) fn minimum_members(&self) -> Option<usize> {
        self.about.minimum_members
    }

    /// The specification with which a guardian of this process reports its death; `None` over a store that has no URL. With a guardian,
    /// the lead and the partitions of a dead process pass to other nodes at once. Where voters can change, the specification names the
    /// present voters and the nodes that are being added or removed.
    #[must_use]
    pub fn death_notice_spec(&self) -> Option<DeathNoticeSpec> {
        let spec = self.about.death_notice_spec.clone()?;
        let Some(map) = &self.about.map else { return Some(spec) };
        let reached = map.reached().borrow().clone();
        let others = reached.into_iter().filter(|(node, _)| *node != self.about.identity.node);
        Some(spec.to(others.map(|(node, address)| (node, address.to_string()))))
    }

    /// True if a leadership of this election ends when it is not renewed.
    pub(crate) fn has_lease(&self) -> bool {
        self.about.has_lease
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.about.stats)
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn gauges(&self) -> Option<Gauges> {
        self.about.map.as_ref().map(Map::gauges)
    }

    pub(crate) fn is_witness(&self) -> bool {
        self.about.witness
    }

    /// Leaves the election: gives up the lead if this node has it, once all guards are dropped, and returns when that is done. If
    /// the future is dropped, the node still leaves, and leads until the guards are dropped or the process ends.
    pub async fn close(self) {
        let (closed, done) = oneshot::channel();
        if self.requests.send(Request::Close(closed)).is_ok() {
            // An error means that the driver has ended already.
            let _ = done.await;
        }
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Elector({} in {})", self.about.identity, self.about.election)
    }
}

impl Builder {
    /// The election's name: 1 to 63 letters, digits, `.`, `_` and `-`. Nodes that name the same election and the same store or peers
    /// compete with each other.
    pub fn election(mut self, name: impl Into<String>) -> Self {
        self.election = Some(name.into());
        self
    }

    /// This node's name; the host's name and the process id if none is given. Among peers it is required.
    pub const fn node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// The address of this node, for clients that look for the leader; goes into a store's record.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// The time for which a leader may lead without renewing: the longest outage after a silent death. Among peers it is the promise.
    /// Default: 1 s among peers, 10 s over a store.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The interval at which the leader renews; among peers, the heartbeat interval.
    pub const fn renewal(mut self, renewal: Duration) -> Self {
        self.renewal = Some(renewal);
        self
    }

    /// The time for the work to end in order. Default: a quarter of the lease among peers, a sixth over a store.
    pub const fn drain(mut self, drain: Duration) -> Self {
        self.drain = Some(drain);
        self
    }

    /// The time before the end of the lease at which unfinished work is killed.
    pub const fn kill_margin(mut self, kill_margin: Duration) -> Self {
        self.kill_margin = Some(kill_margin);
        self
    }

    /// The most by which the rates of two clocks may differ. Default: one per cent.
    pub const fn drift_max(mut self, drift_max: Drift) -> Self {
        self.drift_max = Some(drift_max);
        self
    }

    /// Among peers: the longest random wait before a campaign.
    pub const fn random_wait_max(mut self, wait: Duration) -> Self {
        self.random_wait_max = Some(wait);
        self
    }

    /// Among peers: the algorithm that finds the leader. Default: a quorum. All nodes must agree.
    ///
    /// An advisory algorithm must be [allowed](Self::allow_advisory).
    pub const fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    /// Among peers: requires a quorum or a store to confirm the node that the election names. Confirmed leaders have a token and a
    /// lease. All nodes must agree.
    pub fn confirm(mut self, by: Confirm) -> Self {
        self.confirm = Some(by);
        self
    }

    /// By seniority: sets the options of the cluster.
    pub fn seniority(mut self, options: SeniorityOptions) -> Self {
        self.seniority = Some(options);
        self
    }

    /// Allows an advisory election, in which two nodes can lead at once, for example during a partition: its leaderships
    /// have no token, and only [`Elector::campaign_any`] returns them.
    pub const fn allow_advisory(mut self, allowed: bool) -> Self {
        self.allow_advisory = allowed;
        self
    }

    /// Among peers, by a quorum: the promised safety. Default: [`Safety::Lease`]. All nodes must agree. No other election among peers can
    /// promise a lease.
    pub const fn safety(mut self, safety: Safety) -> Self {
        self.safety = Some(safety);
        self
    }

    /// Among peers: nodes of higher priority campaign first.
    pub const fn priority(mut self, priority: u32) -> Self {
        self.priority = priority;
        self
    }

    /// Among peers: this node votes and never campaigns.
    pub const fn witness(mut self, witness: bool) -> Self {
        self.witness = witness;
        self
    }

    /// Among peers, by a quorum: the nodes replicate a map, see [`Elector::map`]. All nodes must agree.
    pub const fn metadata(mut self, durability: Durability) -> Self {
        self.metadata = Some(durability);
        self
    }

    /// Sets the directory for this node's durable state: among peers its votes, see [`default_state_dir`](config::default_state_dir) for
    /// the default; over a store only its operator's cordon, and nothing by default.
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(dir.into());
        self
    }

    /// Among peers: the name of the installation; the election's name if none is given. All nodes must agree. Nodes of
    /// two installations that reach each other's ports refuse each other by it.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = Some(name.into());
        self
    }

    /// Among peers: protects the connections between nodes by mutual TLS, with these files. Without it, all peers must be on this
    /// machine.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Among peers: allows cleartext to other machines. Then anyone who reaches a port can take part in the election, and anyone on the
    /// network path can forge messages; so this is for networks that are protected otherwise.
    pub const fn insecure_cleartext(mut self, allowed: bool) -> Self {
        self.insecure_cleartext = allowed;
        self
    }

    /// Enters an election over the store at this URL.
    ///
    /// # Errors
    /// [`ConnectError`] if the configuration or the URL is wrong, or the store cannot be used.
    pub async fn connect(self, url: &str) -> Result<Elector, ConnectError> {
        let config = self.config(Venue::Store)?;
        match primacy_stores::open_any(url, &config.election).await? {
            Opened::Register(register) => self.enter_store(config, register, Some(url)).await,
            Opened::Sessions(store) => self.enter_sessions(config, store, Some(url)).await,
        }
    }

    /// Enters an election over the given [`Register`].
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn register(self, register: Arc<dyn Register>) -> Result<Elector, ConnectError> {
        let config = self.config(Venue::Store)?;
        self.enter_store(config, register, None).await
    }

    /// Enters an election over the given store with [`Sessions`].
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn sessions(self, store: Arc<dyn Sessions>) -> Result<Elector, ConnectError> {
        let config = self.config(Venue::Store)?;
        self.enter_sessions(config, store, None).await
    }

    /// Enters an election over a store of either kind, without a guardian.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn opened(self, opened: Opened) -> Result<Elector, ConnectError> {
        match opened {
            Opened::Register(register) => self.register(register).await,
            Opened::Sessions(store) => self.sessions(store).await,
        }
    }

    async fn enter_sessions(
        self,
        config: Config,
        store: Arc<dyn Sessions>,
        url: Option<&str>,
    ) -> Result<Elector, ConnectError> {
        let cordon = Cordon::load(self.state_dir.as_deref(), &config.election, config.node)?;
        // Fail at once if the store cannot be read.
        store.first().await?;
        let identity = Identity::new(config.node, incarnation()?);
        let spec = |url| StoreSpec::new(url, &config.election, identity, config.timers.lease);
        let death_notice = url.map(|url| DeathNoticeSpec::Store(spec(url)));
        let name = url.map(url_without_login);
        start(config, identity, cordon, death_notice, None, move |config, mut frontend, ready| async move {
            frontend.stats.store.describe(name.as_deref(), &config.timers);
            let mut machine = session_node::machine(&config, identity);
            let timeout_min = config.timers.session_min().into();
            let mut effects = SessionsEffects::new(
                store,
                Arc::clone(&frontend.stats),
                config.timers.lease.into(),
                timeout_min,
            );
            let _ = ready.send(Ok(()));
            // The driver reports the end of a leadership.
            let _ = drive(&mut machine, &mut effects, &mut frontend).await;
        })
        .await
    }

    async fn enter_store(
        self,
        config: Config,
        register: Arc<dyn Register>,
        url: Option<&str>,
    ) -> Result<Elector, ConnectError> {
        let cordon = Cordon::load(self.state_dir.as_deref(), &config.election, config.node)?;
        // Fail at once if the store cannot be read.
        register.read().await?;
        let identity = Identity::new(config.node, incarnation()?);
        let seed = u64::from_be_bytes(disk::entropy()?);
        let spec = |url| StoreSpec::new(url, &config.election, identity, config.timers.lease);
        let death_notice = url.map(|url| DeathNoticeSpec::Store(spec(url)));
        let name = url.map(url_without_login);
        start(config, identity, cordon, death_notice, None, move |config, mut frontend, ready| async move {
            frontend.stats.store.describe(name.as_deref(), &config.timers);
            let mut machine = lease_node::machine(&config, identity, seed);
            let mut effects =
                StoreEffects::measured(register, Arc::clone(&frontend.stats), config.timers.lease.into());
            let _ = ready.send(Ok(()));
            // The driver reports the end of a leadership.
            let _ = drive(&mut machine, &mut effects, &mut frontend).await;
        })
        .await
    }

    /// Checks the options without entering the election, and returns the timers that would be in force at `venue`.
    ///
    /// # Errors
    /// [`ConfigError`]; all wrong relations between timers are in one error.
    pub fn check(&self, venue: Venue) -> Result<Timers, ConfigError> {
        self.config(venue).map(|config| config.timers)
    }

    fn config(&self, venue: Venue) -> Result<Config, ConfigError> {
        let election = self.election.clone().unwrap_or_default();
        config::check_election(&election)?;
        let node = self.node.map_or_else(config::default_node, Ok)?;
        let venue_of_lease = match &self.confirm {
            Some(Confirm::Store(_)) => Venue::Store,
            Some(Confirm::Quorum) | None => venue,
        };
        let derived = Timers::new(venue_of_lease, self.lease);
        let timers = Timers {
            renewal: self.renewal.unwrap_or(derived.renewal),
            drain: self.drain.unwrap_or(derived.drain),
            kill_margin: self.kill_margin.unwrap_or(derived.kill_margin),
            drift_max: self.drift_max.unwrap_or(derived.drift_max),
            random_wait_max: self.random_wait_max.unwrap_or(derived.random_wait_max),
            ..derived
        };
        timers.check()?;
        let nomination_timers = match venue == venue_of_lease {
            true => timers.clone(),
            // The nominee is known as soon as in any other election among peers.
            false => Timers::new(venue, Some(timers.lease.min(config::PROMISE))),
        };
        let address = self.address.clone();
        let Self { priority, witness, .. } = *self;
        let (kind, safety) = match venue {
            Venue::Peers => self.promised()?,
            Venue::Store => (self.over_a_store()?, Safety::Lease),
        };
        let seniority = self.membership(kind)?;
        let SeniorityOptions { zone, labels, .. } = seniority.clone();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let attributes = Arc::new(Attributes::new(address.clone(), zone, version, labels)?);
        if kind.algorithm == Algorithm::Seniority {
            seniority.check(node, &attributes, &nomination_timers)?;
        }
        let cluster = self.cluster.clone().unwrap_or_else(|| election.clone());
        let security = config::security(self.tls.as_ref(), self.insecure_cleartext)?;
        config::check_cluster(&cluster)?;
        Ok(Config {
            election,
            node,
            address,
            kind,
            safety,
            priority,
            witness,
            metadata: self.metadata,
            cluster,
            security,
            timers,
            seniority,
            attributes,
            nomination_timers,
        })
    }

    /// Among peers: the algorithm, and the safety that it promises.
    fn promised(&self) -> Result<(ElectionKind, Safety), ConfigError> {
        let confirmation = self.confirm.as_ref().map(|confirm| match confirm {
            Confirm::Quorum => Confirmation::Quorum,
            Confirm::Store(_) => Confirmation::Store,
        });
        let kind = ElectionKind { algorithm: self.algorithm.unwrap_or_default(), confirmation };
        let safety = config::promised(kind, self.safety, self.priority, self.allow_advisory)?;
        if self.witness && !kind.needs_majority() {
            return Err(ConfigError::NothingToVote { kind });
        }
        // Reads and sessions of the map depend on the leader's lease.
        if self.metadata.is_some() && (kind != ElectionKind::default() || safety != Safety::Lease) {
            return Err(ConfigError::Metadata { kind, safety });
        }

        Ok((kind, safety))
    }

    /// The kind of election over a store. Options for elections among peers are refused.
    fn over_a_store(&self) -> Result<ElectionKind, ConfigError> {
        let among_peers = [
            (self.algorithm.is_some(), "an algorithm (algorithm)"),
            (self.confirm.is_some(), "a confirmation (confirm)"),
            (self.seniority.is_some(), "options for seniority (seniority)"),
            (self.safety.is_some(), "a choice of safety (safety)"),
            (self.priority != 0, "a priority (priority)"),
            (self.metadata.is_some(), "metadata (metadata)"),
        ];
        match among_peers.into_iter().find(|(given, _)| *given) {
            Some((_, what)) => Err(ConfigError::OnlyAmongPeers { what }),
            None => Ok(ElectionKind::default()),
        }
    }

    /// The membership options of the cluster, by seniority.
    fn membership(&self, kind: ElectionKind) -> Result<SeniorityOptions, ConfigError> {
        let Some(options) = &self.seniority else { return Ok(SeniorityOptions::default()) };
        if kind.algorithm != Algorithm::Seniority {
            return Err(ConfigError::OnlySeniority { kind });
        }
        match (&options.split_brain, &self.confirm) {
            (SplitBrain::Lease(_), Some(_)) => Err(ConfigError::TwoStores),
            (_, _) => Ok(options.clone()),
        }
    }
}

/// Returns the incarnation of a node without durable state.
fn incarnation() -> Result<Incarnation, ConnectError> {
    Ok(Incarnation { count: clock::wall_millis(), nonce: u64::from_be_bytes(disk::entropy()?) })
}

/// Starts the election's thread, and waits until the node has entered the election.
async fn start<F, L>(
    config: Config,
    identity: Identity,
    cordon: Cordon,
    death_notice_spec: Option<DeathNoticeSpec>,
    map: Option<Map>,
    life: L,
) -> Result<Elector, ConnectError>
where
    L: FnOnce(Config, Frontend, oneshot::Sender<Result<(), ConnectError>>) -> F + Send + 'static,
    F: Future<Output = ()>,
{
    let (requests, received) = mpsc::unbounded_channel();
    let publisher = Publisher::new();
    let stats = Arc::new(Stats::new());
    let halted = Arc::default();
    let frontend = Frontend {
        election: config.election.clone(),
        identity,
        witness: config.witness,
        cordon,
        healthy: true,
        not_campaigning: None,
        has_campaigned: false,
        stopped: None,
        timers: config.timers.clone(),
        requests: received,
        sender: requests.downgrade(),
        publisher: publisher.clone(),
        stats: Arc::clone(&stats),
        halted: Arc::clone(&halted),
        promises: Promises::default(),
        candidate: None,
        cell: None,
        drain_until: None,
        promises_of_others: BTreeMap::new(),
        releasing: None,
        closing: None,
    };
    let about = Arc::new(About {
        election: config.election.clone(),
        identity,
        kind: config.kind,
        witness: config.witness,
        timers: config.timers.clone(),
        minimum_members: config.minimum_members(),
        death_notice_spec,
        map,
        has_lease: config.safety == Safety::Lease,
        place: Arc::new(Semaphore::new(1)),
        #[cfg(feature = "metrics")]
        stats,
        halted,
    });
    let (ready, started) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::MAX)
        .build()
        .map_err(ConnectError::Thread)?;
    // Names are looked up on a second thread. It is started now, because tokio panics later if the system cannot start
    // a thread.
    runtime.spawn_blocking(|| ());
    std::thread::Builder::new()
        .name("primacy".to_owned())
        .spawn(move || LocalSet::new().block_on(&runtime, life(config, frontend, ready)))
        .map_err(ConnectError::Thread)?;
    started.await.map_err(|_| ConnectError::Thread(std::io::Error::other("it ended at once")))??;
    Ok(Elector { requests, publisher, about })
}
