//! The guardian's notice of the supervisor's death to other nodes. A thread of its own prepares the
//! connections: that may have to read files, or program text, from a disk, and the end of a job may not wait
//! for one.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy::transport::Limits;
use primacy::witness::{Witness, WitnessSpec};

use super::warnings::Warnings;

/// When what could not be done whole is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The thread keeps little on its stack.
const STACK_LENGTH: usize = 256 * 1024;

/// Tells others of the supervisor's death.
pub(super) struct Testifier {
    witness: Arc<Mutex<Option<Witness>>>,
    orders: Sender<String>,
}

impl Testifier {
    /// Gets ready to notify. Without a specification there is no node to notify, and others find out by
    /// silence.
    pub(super) fn new(spec: Option<&WitnessSpec>, warnings: &Warnings) -> Self {
        let (testifier, received) = Self::heard_by_nobody();
        let mut undone = None;
        match spec.map(|spec| (spec, Witness::new(spec, Limits::default()))) {
            Some((_, Ok(witness))) => *lock(&testifier.witness) = Some(witness),
            Some((spec, Err(error))) => {
                warnings.warn(&format!(
                    "a crash of this node would be noticed by silence only, until it is mended: {error}"
                ));
                undone = serde_json::to_string(spec).ok();
            }
            None => {}
        }
        let witness = Arc::clone(&testifier.witness);
        let thread = std::thread::Builder::new().name("whom to tell".to_owned()).stack_size(STACK_LENGTH);
        let heard = warnings.clone();
        if let Err(error) = thread.spawn(move || obey(&received, &witness, undone, &heard)) {
            warnings.warn(&format!(
                "nodes that vote later will notice a crash of this one by silence only: {error}"
            ));
        }
        testifier
    }

    /// Returns a testifier that does nothing, and the orders that it gets.
    pub(super) fn heard_by_nobody() -> (Self, Receiver<String>) {
        let (orders, received) = mpsc::channel();
        (Self { witness: Arc::default(), orders }, received)
    }

    /// Replaces the nodes to be notified by those of this specification. Waits for nothing.
    pub(super) fn reach(&self, spec: String) {
        // Without the thread it stays as it was, which was reported.
        let _ = self.orders.send(spec);
    }

    /// Tells of the death, for so long at the most.
    pub(super) fn testify(&self, bound: Duration) {
        if let Some(witness) = lock(&self.witness).as_mut() {
            witness.testify(bound);
        }
    }
}

/// Does what is still undone, and what is ordered, until the sender of orders is gone.
fn obey(
    orders: &Receiver<String>,
    witness: &Mutex<Option<Witness>>,
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
        let reached = reach(spec, &mut lock(witness));
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

fn reach(spec: &str, witness: &mut Option<Witness>) -> Result<(), String> {
    let spec: WitnessSpec = serde_json::from_str(spec).map_err(|error| error.to_string())?;
    match witness {
        Some(witness) => witness.reach(&spec).map_err(|error| error.to_string()),
        // It could not be had before.
        None => {
            *witness = Some(Witness::new(&spec, Limits::default()).map_err(|error| error.to_string())?);
            Ok(())
        }
    }
}

/// Locks the witness. Also after a panic: it then notifies the nodes that it knows.
fn lock(witness: &Mutex<Option<Witness>>) -> MutexGuard<'_, Option<Witness>> {
    witness.lock().unwrap_or_else(PoisonError::into_inner)
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
        let dir = std::env::temp_dir().join(format!("primacy-testifier-{}", std::process::id()));
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
        let spec = node.witness_spec().unwrap();
        node.close().await;

        fs::rename(path("a.key"), path("away")).unwrap();
        let testifier = Testifier::new(Some(&spec), &Warnings::new("a", false));
        assert!(lock(&testifier.witness).is_none(), "it cannot speak as the node");
        fs::rename(path("away"), path("a.key")).unwrap();
        let b = TcpListener::bind(b).await.unwrap();
        let dialled = tokio::time::timeout(PATIENCE, b.accept()).await;
        dialled.expect("it has tried again, and so reaches for the others").unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}
