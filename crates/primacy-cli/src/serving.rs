//! The door of a node: clients of etcd are answered on threads of their own.

use std::sync::Arc;
use std::time::Duration;

use primacy::Elector;
use primacy::metadata::MapError;
use rustix::process::{Resource, getrlimit};

use crate::entry::serving::Serving;
use crate::exit::{Exit, Failure};
use crate::report::{Event, Reporter};
use crate::serve::{Backend, Door, DoorTls, Replicated, Users, acceptor, read_users};

/// How many threads answer clients at the most.
const THREADS_MAX: usize = 4;

/// How long a node waits before it tries again to know what the others know.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(100);

/// How many descriptors a node keeps for itself: its log, its peers, its job, and whoever asks how it is.
const DESCRIPTORS_KEPT: u64 = 256;

/// How many connections clients may have, so that they leave the node what it needs for itself.
fn connections() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most.saturating_sub(DESCRIPTORS_KEPT).max(most / 2)).unwrap_or(usize::MAX)
}

/// What is known to be right before the node takes part.
pub(crate) struct Checked {
    listener: std::net::TcpListener,
    users: Option<Users>,
    tls: Option<tokio_rustls::TlsAcceptor>,
}

/// The threads of a door. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Serves(Option<tokio::runtime::Runtime>);

impl Drop for Serves {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Takes the address, and reads the files.
pub(crate) fn check(serving: &Serving, may_send_cleartext: bool) -> Result<Option<Checked>, Failure> {
    let Some(address) = serving.serve else { return Ok(None) };
    let wrong = |why: String| Failure::new(Exit::Config, why);
    if !address.ip().is_loopback() && serving.serve_certificate.is_none() && !may_send_cleartext {
        return Err(wrong(format!(
            "`serve` {address} is not on this machine alone, and what clients say there, their passwords too, would be in \
             cleartext: give `serve-certificate` and `serve-key`, or say `insecure-cleartext`"
        )));
    }
    let users = serving.serve_users.as_deref().map(read_users).transpose().map_err(wrong)?;
    let tls = match (&serving.serve_certificate, &serving.serve_key) {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (certificate.clone(), key.clone());
            let files = DoorTls { certificate, key, ca: serving.serve_ca.clone() };
            Some(acceptor(&files).map_err(wrong)?)
        }
        (None, _) | (_, None) => None,
    };
    let listener = std::net::TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| wrong(format!("clients cannot be served at {address}: {error}")))?;
    Ok(Some(Checked { listener, users, tls }))
}

impl Checked {
    /// Opens the door of a node.
    pub(crate) fn serve(
        self,
        elector: &Elector,
        cluster: &str,
        reporter: &Reporter,
    ) -> Result<Serves, Failure> {
        let Self { listener, users, tls } = self;
        let map = elector.map().expect("who serves keeps metadata").clone();
        let address = listener.local_addr()?;
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("primacy-door")
            .enable_all()
            .build()?;
        let replicated =
            Replicated::new(map.clone(), cluster, elector.identity().node, address, tls.is_some());
        let backend: Arc<dyn Backend> = Arc::new(replicated);
        let door = {
            let _within = runtime.enter();
            Door::on(tokio::net::TcpListener::from_std(listener)?, backend, users, tls, connections())
        };
        runtime.spawn(async move {
            // A node that has just started knows nothing new. Nobody is to watch or read what has long been different.
            while let Err(error) = map.catch_up().await {
                match error {
                    MapError::Closed => return,
                    MapError::Timeout | MapError::Busy => tokio::time::sleep(CATCH_UP_PAUSE).await,
                    MapError::AnswerLost | MapError::Unreadable | MapError::Voter { .. } => {
                        unreachable!("nothing was written")
                    }
                }
            }
            door.serve().await;
        });
        reporter.tell(&Event::ServingClients { address: address.to_string() });
        Ok(Serves(Some(runtime)))
    }
}
