//! One election with a foreign client: the leader election of the Python package `kubernetes`, which reads and writes a Lease as client-go
//! does, but for `leaseTransitions`, which it does not count.

use std::process::{Command, Stdio};
use std::time::Duration;

use primacy::Elector;
use primacy_conformance::live::kubernetes::{ApiServer, stand_in};
use primacy_conformance::live::program;
use primacy_stores::open;
use tokio::time::timeout;

use super::{NAME, PATIENCE, Speaker, server};

/// The number of its rounds. A second each, they are longer than the five seconds after which it takes a Lease that does not change.
const ROUNDS: usize = 8;

const LEASE: Duration = Duration::from_secs(2);

struct Stranger(Speaker);

impl Stranger {
    fn start(server: &ApiServer, identity: &str) -> Self {
        let mut command = Command::new(program("python3").expect("the server runs by it"));
        command.arg(stand_in("kube_stranger.py")).args([&server.address(), "shared", identity]);
        Self(Speaker::start(command))
    }

    /// Waits until it has printed this so often; no other line may have `never`.
    async fn says(&mut self, what: &str, count: usize, never: &str) {
        for _ in 0..count {
            self.0.says(what, Some(never)).await;
        }
    }
}

/// Checks that the foreign client's package is there.
fn has_package() -> Result<(), String> {
    let mut python = Command::new(program("python3")?);
    let found = python.args(["-c", "import kubernetes.leaderelection"]).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        Ok(_) | Err(_) => {
            Err("Python has no package `kubernetes`; `cargo xtask live` installs it".to_owned())
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_and_primacy_hand_over_to_each_other_and_never_both_lead() {
    let Some(server) = server().await else { return };
    let Some(()) = crate::found(NAME, has_package()) else { return };
    let elector = Elector::builder().election("shared").lease(LEASE).connect(&server.url()).await.unwrap();
    let first = timeout(PATIENCE, elector.campaign()).await.unwrap().unwrap();
    let token = first.token();

    let mut stranger = Stranger::start(&server, "python-1");
    stranger.says("has not expired", ROUNDS, "leads").await;
    first.check().expect("it sees the renewals");

    first.resign().await;
    stranger.says("leads", 1, "leads no more").await;
    let register = open(&server.url(), "shared").await.unwrap();
    let (record, _) = register.read().await.unwrap().unwrap();
    assert_eq!(record.holder.unwrap().identity.node.as_str(), "python-1");
    // By one; or by more, where the Lease was made just when a second began: the API server knows when that was in whole ones.
    assert!(record.token > token, "{:?} after {token:?}", record.token);

    let standing =
        tokio::spawn(async move { elector.campaign().await.map(|leadership| (elector, leadership)) });
    stranger.says("successfully acquired", ROUNDS, "leads no more").await;
    assert!(!standing.is_finished(), "it renews, and is waited for");
    drop(stranger);
    let (elector, second) = timeout(PATIENCE, standing).await.unwrap().unwrap().unwrap();
    assert_eq!(second.token(), record.token.next());

    let lease = server.lease("shared").await.unwrap();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
    assert!(holder.starts_with(elector.identity().node.as_str()), "{holder}");
    let mut stranger = Stranger::start(&server, "python-2");
    stranger.says("has not expired", 2, "leads").await;
    second.resign().await;
    stranger.says("leads", 1, "leads no more").await;
}

/// Without this, tests on the fake would prove nothing for Kubernetes.
#[tokio::test(flavor = "multi_thread")]
async fn the_stand_in_answers_a_stranger_as_an_api_server_does() {
    let Some(server) = server().await else { return };
    let Some(()) = crate::found(NAME, has_package()) else { return };
    let mut check = Command::new(program("python3").unwrap());
    check.arg(stand_in("kube_check.py")).arg(server.address());
    let ended = tokio::task::spawn_blocking(move || check.status()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
}
