//! The guardian's notice of the supervisor's death to other nodes. A thread of its own prepares the connections: it may
//! have to read files or program text from a disk, and the end of a job must not wait for a disk.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy::death_notice::{DeathNoticeSpec, DeathNotifier};
use primacy::transport::Limits;

use super::warnings::Warnings;

/// The time after which an unfinished change of the receivers is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The stack size of the thread, which needs little.
const STACK_LENGTH: usize = 256 * 1024;

/// Notifies other nodes of the supervisor's death.
pub(super) struct Notifier {
    inner: Arc<Mutex<Option<DeathNotifier>>>,
    orders: Sender<String>,
}

impl Notifier {
    /// Prepares the notice. Without a specification there is no node to notify, and the other nodes notice the death by
    /// silence.
    pub(super) fn new(spec: Option<&DeathNoticeSpec>, warnings: &Warnings) -> Self {
        let (notifier, received) = Self::without_receivers();
        let mut undone = None;
        match spec.map(|spec| (spec, DeathNotifier::new(spec, Limits::default()))) {
            Some((_, Ok(inner))) => *lock(&notifier.inner) = Some(inner),
            Some((spec, Err(error))) => {
                warnings.warn(&format!(
                    "a crash of this node would be noticed by silence only, until it is mended: {error}"
                ));
                undone = serde_json::to_string(spec).ok();
            }
            None => {}
        }
        let inner = Arc::clone(&notifier.inner);
        let thread = std::thread::Builder::new().name("death notice".to_owned()).stack_size(STACK_LENGTH);
        let heard = warnings.clone();
        if let Err(error) = thread.spawn(move || obey(&received, &inner, undone, &heard)) {
            warnings.warn(&format!(
                "nodes that vote later will notice a crash of this one by silence only: {error}"
            ));
        }
        notifier
    }

    /// Returns a notifier without receivers, and the channel of the specifications sent to it.
    pub(super) fn without_receivers() -> (Self, Receiver<String>) {
        let (orders, received) = mpsc::channel();
        (Self { inner: Arc::default(), orders }, received)
    }

    /// Replaces the nodes to be notified by those of this specification. Never blocks.
    pub(super) fn reach(&self, spec: String) {
        // Without the thread, the receivers stay as they were. That was reported.
        let _ = self.orders.send(spec);
    }

    /// Notifies the other nodes of the death, for this time at the most.
    pub(super) fn notify(&self, bound: Duration) {
        if let Some(notifier) = lock(&self.inner).as_mut() {
            notifier.notify(bound);
        }
    }
}

/// Applies each new specification, and retries unfinished ones, until the sender is gone.
fn obey(
    orders: &Receiver<String>,
    notifier: &Mutex<Option<DeathNotifier>>,
    mut undone: Option<String>,
    warnings: &Warnings,
) {
    loop {
        let ordered = match &undone {
            None => orders.recv().map_err(RecvTimeoutError::from),
            Some(_) => orders.recv_timeout(AGAIN),
        };
        let is_new = match ordered {
            Ok(spec) => {
                undone = Some(spec);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(spec) = &undone else { continue };
        let reached = reach(spec, &mut lock(notifier));
        match reached {
            Ok(()) => undone = None,
            Err(error) if is_new => {
                warnings.warn(&format!(
                    "some nodes would notice a crash of this one by silence only, until it is mended: {error}"
                ));
            }
            Err(_) => {} // That was said.
        }
    }
}

fn reach(spec: &str, notifier: &mut Option<DeathNotifier>) -> Result<(), String> {
    let spec: DeathNoticeSpec = serde_json::from_str(spec).map_err(|error| error.to_string())?;
    match notifier {
        Some(notifier) => notifier.reach(&spec).map_err(|error| error.to_string()),
        // There was no notifier before.
        None => {
            *notifier =
                Some(DeathNotifier::new(&spec, Limits::default()).map_err(|error| error.to_string())?);
            Ok(())
        }
    }
}

/// Locks the notifier. After a panic of the thread, it still notifies the nodes that it knows.
fn lock(notifier: &Mutex<Option<DeathNotifier>>) -> MutexGuard<'_, Option<DeathNotifier>> {
    notifier.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use primacy::transport::TlsFiles;
    use primacy::{Elector, NodeId};
    use primacy_conformance::live::free_port;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn files_that_are_not_there_at_first_are_read_when_they_are() {
        let dir = std::env::temp_dir().join(format!("primacy-notifier-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = |name: &str| dir.join(name);
        let (mut ca, ca_key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        fs::write(path("ca.pem"), ca.self_signed(&ca_key).unwrap().pem()).unwrap();
        let (params, key) = (CertificateParams::new(["a".to_owned()]).unwrap(), KeyPair::generate().unwrap());
        let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        fs::write(path("a.pem"), certificate.pem()).unwrap();
        fs::write(path("a.key"), key.serialize_pem()).unwrap();
        fs::set_permissions(path("a.key"), Permissions::from_mode(0o600)).unwrap();

        let files = TlsFiles { certificate: path("a.pem"), key: path("a.key"), ca: path("ca.pem") };
        let b = format!("127.0.0.1:{}", free_port());
        let peers = format!("a=127.0.0.1:{},b={b}", free_port()).parse().unwrap();
        let node = Elector::builder().election("e").cluster("c").node(NodeId::new("a").unwrap());
        let node = node.state_dir(path("a")).tls(files).peers(peers).await.unwrap();
        let spec = node.death_notice_spec().unwrap();
        node.close().await;

        fs::rename(path("a.key"), path("away")).unwrap();
        let notifier = Notifier::new(Some(&spec), &Warnings::new("a", false));
        assert!(lock(&notifier.inner).is_none(), "it cannot speak as the node");
        fs::rename(path("away"), path("a.key")).unwrap();
        let b = TcpListener::bind(b).await.unwrap();
        let dialled = tokio::time::timeout(PATIENCE, b.accept()).await;
        dialled.expect("it has tried again, and so reaches for the others").unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
