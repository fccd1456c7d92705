//! The record of an election in a Lease of Kubernetes (`coordination.k8s.io/v1`): for pods, in one election with controllers that use
//! client-go or a compatible client.
//!
//! Promises  linearizable, and as durable when a write returns as the cluster's etcd; [`changed`](Register::changed) by a watch.
//! Assumes   that a Lease is not deleted while it is held, and that the cluster's etcd is not restored from a backup.
//! Leaves    labels, owners, other annotations and all fields that are not its own as they are.
//!
//! Each write is a create, or an update that names the `resourceVersion` and the `uid` of the last read; the API server refuses it with 409
//! if they have changed. `kubernetes/lease.rs` describes how a Lease represents a record, and how tokens grow when other programs hold it
//! in between.
//!
//! Requests use this module's own client, or the application's, as a [`Transport`]. The crate `primacy-kube` makes one of a `kube::Client`.

mod api;
mod clients;
mod diagnostics;
mod exec;
mod kubeconfig;
mod lease;
mod name;
mod transport;
mod trust;
mod watch;
mod yaml;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use primacy_core::election::lease::{Record, Version};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use self::api::Api;
use self::clients::Clients;
pub(crate) use self::diagnostics::examine;
use self::lease::Lease;
pub use self::transport::{Body, Bytes, Transport, TransportError};
use self::watch::News;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::register::{Pending, ReadError, Register, SetError};
use crate::runtime::{self, Aborted};
use crate::shared_connections::{Share, SharedConnections};
use crate::store_url::StoreUrl;

/// The longest time until [`changed`](Register::changed) resolves, without delays of the machine and the network. A watch takes
/// milliseconds; without one, the Lease is read twice a second.
pub const CHANGE_BOUND: Duration = Duration::from_secs(1);

/// The form of its URL.
const FORM: &str = "kubernetes://NAMESPACE";

/// The longest name of a namespace.
const NAMESPACE_LENGTH_MAX: usize = 63;

/// The time in which the configuration must be read.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The clients of this process, one for each configuration.
static CLIENTS: SharedConnections<OnceCell<Connected>> = SharedConnections::new();

/// A handle on one election, in one Lease.
pub struct KubernetesRegister {
    api: Api,
    /// The Lease that the server returned last, because an update replaces the whole object.
    shown: Arc<Mutex<Option<Lease>>>,
    news: Arc<News>,
    /// Started by the first wait for a change.
    watcher: OnceLock<Option<Aborted<()>>>,
    _share: Option<Share<OnceCell<Connected>>>,
}

/// The client and the namespace of a configuration.
#[derive(Clone)]
struct Connected {
    clients: Clients,
    /// The namespace for a URL that names none.
    namespace: String,
}

/// The source of the API server's address and of our credentials.
#[derive(Clone, Debug)]
struct Source {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
}

/// Opens `kubernetes://NAMESPACE?kubeconfig=PATH&context=NAME`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let (source, namespace) = Source::parse(&address.rest)?;
        let share = CLIENTS.join(&format!("{source:?}"), &address.election, || Ok(OnceCell::new()))?;
        let Connected { clients, namespace: default } =
            share.get_or_try_init(|| connect(source)).await?.clone();
        let namespace = namespace.unwrap_or(default);
        let register = KubernetesRegister::open(clients, &namespace, &address.election, Some(share)).await?;
        Ok(Opened::Register(Arc::new(register)))
    })
}

/// Makes clients whose connections are on the stores' thread.
async fn connect(source: Source) -> Result<Connected, OpenError> {
    let refused = |why: String| OpenError::Refused { why };
    let made = runtime::run(async move {
        let clients = source.clients()?;
        let namespace = clients.current().namespace;
        Ok(Connected { clients, namespace })
    });
    let late = || OpenError::Unavailable {
        why: format!("the configuration of Kubernetes was not there within {OPEN_TIMEOUT:?}"),
    };
    let made = timeout(OPEN_TIMEOUT, made).await.map_err(|_| late())?;
    made.map_err(refused)?
}

impl Source {
    /// Parses a URL without its scheme; returns the namespace, too, if it names one.
    fn parse(rest: &str) -> Result<(Self, Option<String>), OpenError> {
        let mut url = StoreUrl::parse(rest, FORM)?;
        let source =
            Self { kubeconfig: url.take("kubeconfig").map(PathBuf::from), context: url.take("context") };
        url.finish()?;
        let namespace = match url.hosts.as_slice() {
            [] => None,
            [host] if host.port.is_none() => Some(host.name.clone()),
            [_, ..] => return Err(url.malformed("there is one namespace, and no port")),
        };
        if !url.path.is_empty() || url.user.is_some() {
            return Err(
                url.malformed("the Lease has the name of the election, and the kubeconfig says who you are")
            );
        }
        Ok((source, namespace))
    }
}

impl KubernetesRegister {
    /// Opens `election` in a Lease of `namespace`, with the application's own client.
    ///
    /// The client may repeat a request: so a failed write is always [`SetError::Unknown`] here, because the failure may be that of a
    /// repetition.
    ///
    /// # Errors
    /// [`OpenError::Refused`] if the server does not accept the credentials or the role allows too little,
    /// [`OpenError::Unavailable`] if it was not reached.
    pub async fn with_transport(
        transport: Arc<dyn Transport>,
        namespace: &str,
        election: &str,
    ) -> Result<Self, OpenError> {
        crate::election_name::check_election(election)?;
        Self::open(Clients::Given(transport), namespace, election, None).await
    }

    async fn open(
        clients: Clients,
        namespace: &str,
        election: &str,
        share: Option<Share<OnceCell<Connected>>>,
    ) -> Result<Self, OpenError> {
        if !name::is_label(namespace) || namespace.len() > NAMESPACE_LENGTH_MAX {
            let why = format!(
                "the name of a namespace has at most {NAMESPACE_LENGTH_MAX} lower-case letters, digits and hyphens"
            );
            return Err(OpenError::Malformed { form: FORM, why });
        }
        let api = Api::new(clients, namespace, name::lease_name(election)?, share.is_none());
        let register = Self {
            api,
            shown: Arc::default(),
            news: Arc::new(News::new()),
            watcher: OnceLock::new(),
            _share: share,
        };
        let api = register.api.clone();
        // Wrong credentials or a wrong role fail here, before an election relies on them.
        let looked = runtime::run(async move { api.read().await.map(drop) }).await;
        looked.map_err(|why| OpenError::Unavailable { why })?.map_err(api::Failure::of_open)?;
        Ok(register)
    }

    fn show(&self, lease: Option<Lease>, asked: u64) {
        self.news.saw(lease.as_ref().map(|lease| lease.version_text().to_owned()), asked);
        *lock(&self.shown) = lease;
    }

    /// Returns the whole Lease of this version.
    async fn whole(&self, version: &Version) -> Result<Lease, SetError> {
        let shown = lock(&self.shown).clone();
        if let Some(lease) = shown.filter(|lease| lease.version() == *version) {
            return Ok(lease);
        }
        let api = self.api.clone();
        let found = runtime::run(async move { api.read().await }).await;
        let unavailable = |why: String| SetError::Unavailable { why };
        let found = found.map_err(unavailable)?.map_err(|failure| unavailable(failure.to_string()))?;
        found.filter(|lease| lease.version() == *version).ok_or(SetError::Conflict)
    }
}

impl Register for KubernetesRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async move {
            let (api, asked) = (self.api.clone(), self.news.count());
            let found = runtime::run(async move { api.read().await }).await;
            let found =
                found.map_err(|why| ReadError::Unavailable { why })?.map_err(api::Failure::of_read)?;
            // Noted also for a Lease without a valid record, which must not be reported as a change again and again.
            self.show(found.clone(), asked);
            let Some(lease) = found else { return Ok(None) };
            let record = lease.record().map_err(|error| ReadError::Malformed { error })?;
            Ok(Some((record, lease.version())))
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let (api, asked, now) = (self.api.clone(), self.news.count(), SystemTime::now());
            let written = match expect {
                None => {
                    let body = Lease::first(api.name(), record, now)?;
                    runtime::run(async move { api.create(body).await }).await
                }
                Some(version) => {
                    let body = self.whole(version).await?.replaced(record, now)?;
                    runtime::run(async move { api.update(body).await }).await
                }
            };
            let lease = written.unwrap_or_else(|why| Err(SetError::Unknown { why }))?;
            let version = lease.version();
            self.show(Some(lease), asked);
            Ok(version)
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let follow = || runtime::spawn(watch::follow(self.api.clone(), Arc::clone(&self.news))).ok();
            if self.watcher.get_or_init(follow).is_none() {
                // No change can be noticed here; the caller's periodic reads find it.
                std::future::pending::<()>().await;
            }
            self.news.changed().await;
        })
    }
}

/// Leaves out the client, which holds credentials.
impl fmt::Debug for KubernetesRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesRegister").field("lease", &self.api.name()).finish_non_exhaustive()
    }
}
