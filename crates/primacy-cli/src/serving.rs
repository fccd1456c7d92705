//! The etcd API of a node, served on threads of its own.

use std::sync::Arc;
use std::time::Duration;

use primacy::Elector;
use primacy::metadata::MapError;
use primacy::transport::{ServerFiles, ServerTls};
use primacy_etcd_server::{EtcdApi, EtcdApiFigures, GRPC, Replicated, Users, Whereabouts, open_users};
use rustix::process::{Resource, getrlimit};

use crate::entry::Entry;
use crate::exit::{Exit, Failure};
use crate::report::{Event, Reporter};

/// The most threads that answer clients.
const THREADS_MAX: usize = 4;

/// The pause before a node retries to catch up with the other nodes.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(100);

/// The interval at which the TLS files are read again, besides at each handshake, as between nodes.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(10);

/// The descriptors that a node keeps for itself: its log, its peers, its job, and its control socket.
const DESCRIPTORS_KEPT: u64 = 256;

/// Returns the most connections of clients, so that the node keeps the descriptors that it needs for itself.
fn connections() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most.saturating_sub(DESCRIPTORS_KEPT).max(most / 2)).unwrap_or(usize::MAX)
}

/// The parts of an etcd API that are checked before the node takes part.
pub(crate) struct Checked {
    listener: std::net::TcpListener,
    users: Option<Users>,
    tls: Option<Arc<ServerTls>>,
    whereabouts: Whereabouts,
}

/// The threads of an etcd API. Dropping this closes the API.
#[derive(Debug)]
pub(crate) struct Serves {
    runtime: Option<tokio::runtime::Runtime>,
    figures: EtcdApiFigures,
}

impl Serves {
    /// Returns the API's metrics, for a registry.
    pub(crate) fn figures(&self) -> Box<EtcdApiFigures> {
        Box::new(self.figures.clone())
    }
}

impl Drop for Serves {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Binds the address, and reads the files.
pub(crate) fn check(entry: &Entry) -> Result<Option<Checked>, Failure> {
    let serving = &entry.serving;
    let Some(address) = serving.etcd_api else { return Ok(None) };
    let wrong = |why: String| Failure::new(Exit::Config, why);
    if !address.ip().is_loopback() && serving.etcd_api_certificate.is_none() && !entry.may_send_cleartext() {
        return Err(wrong(format!(
            "`etcd-api` {address} is not on this machine alone, and what clients say there, their passwords too, would be in \
             cleartext: give `etcd-api-certificate` and `etcd-api-key`, or say `insecure-cleartext`"
        )));
    }
    let users = serving.etcd_api_users.as_deref().map(open_users).transpose().map_err(wrong)?;
    let tls = match (&serving.etcd_api_certificate, &serving.etcd_api_key) {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (certificate.clone(), key.clone());
            let files = ServerFiles { certificate, key, ca: serving.etcd_api_ca.clone() };
            Some(Arc::new(ServerTls::open(files, &[GRPC]).map_err(|error| wrong(error.to_string()))?))
        }
        (None, _) | (_, None) => None,
    };
    let listener = std::net::TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| wrong(format!("clients cannot be served at {address}: {error}")))?;
    let whereabouts = Whereabouts {
        listens: listener.local_addr()?,
        advertised: serving.etcd_api_advertise.clone(),
        clients_by_tls: tls.is_some(),
        nodes_by_tls: entry.tls_certificate.is_some(),
    };
    Ok(Some(Checked { listener, users, tls, whereabouts }))
}

impl Checked {
    /// Opens the etcd API of a node.
    pub(crate) fn serve(
        self,
        elector: &Elector,
        cluster: &str,
        reporter: &Reporter,
    ) -> Result<Serves, Failure> {
        let Self { listener, users, tls, whereabouts } = self;
        let map = elector.map().expect("who serves keeps metadata").clone();
        let address = whereabouts.listens;
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("primacy-etcd")
            .enable_all()
            .build()?;
        let node = elector.identity().node;
        let replicated = Replicated::new(map.clone(), cluster, node, whereabouts);
        if let Some(tls) = &tls {
            runtime.spawn(look_at_files(Arc::clone(tls)));
        }
        let etcd_api = {
            let _within = runtime.enter();
            EtcdApi::on(tokio::net::TcpListener::from_std(listener)?, replicated, users, tls, connections())
        };
        let figures = etcd_api.figures(elector.election(), node.as_str());
        runtime.spawn(async move {
            // A node that has just started may have an old state. No client may watch or read values that have long
            // changed.
            while let Err(error) = map.catch_up().await {
                match error {
                    MapError::Closed => return,
                    MapError::Timeout | MapError::Busy => tokio::time::sleep(CATCH_UP_PAUSE).await,
                    MapError::AnswerLost | MapError::Unreadable | MapError::Voter { .. } => {
                        unreachable!("nothing was written")
                    }
                }
            }
            etcd_api.serve().await;
        });
        reporter.tell(&Event::ServingClients { address: address.to_string() });
        Ok(Serves { runtime: Some(runtime), figures })
    }
}

/// Reads the files again when they have changed, even if no client connects for long, so that errors in them are
/// reported early.
async fn look_at_files(tls: Arc<ServerTls>) {
    loop {
        tokio::time::sleep(CERTIFICATE_LOOK).await;
        let _ = tls.current();
    }
}
