//! A Kubernetes controller with several pods, of which one is active. Each reconciliation is a fenced write. On SIGTERM the
//! leader finishes its work and then hands over.
//!
//! `docs/stores/kubernetes.md` has the manifests. Outside of a cluster it uses the kubeconfig:
//! `cargo run -p primacy-kube --example kubernetes_controller -- kubernetes://default`

use std::error::Error;
use std::time::Duration;

use primacy::{Elector, FencingToken, Leadership, NodeId};
use primacy_kube::fence::{GuardError, create, fenced};
use primacy_kube::kube;
use primacy_kube::kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The name of the election and of its Lease; also part of the annotation with the highest token.
const ELECTION: &str = "orders-controller";

/// The interval between reconciliations without an event.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(2);

/// Runs the example.
///
/// # Errors
/// If the election cannot be entered, or the API server refuses what the controller needs.
pub fn main() -> Result<(), Box<dyn Error>> {
    run(&std::env::args().nth(1).unwrap_or_else(|| "kubernetes://".to_owned()))
}

/// Campaigns, and reconciles whenever this node leads, until SIGTERM.
///
/// # Errors
/// As [`main`].
pub fn run(url: &str) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let mut terminated = signal(SignalKind::terminate())?;
        let client = kube::Client::try_default().await?;
        let controller = control(url, client, stopped);
        tokio::pin!(controller);
        tokio::select! {
            ended = &mut controller => return ended,
            _ = terminated.recv() => {}
        }
        // Kubernetes waits `terminationGracePeriodSeconds` for the following steps.
        println!("is told to end");
        stop.send_replace(true);
        controller.await
    })
}

/// Campaigns, and reconciles whenever this node leads, until it is stopped.
async fn control(
    url: &str,
    client: kube::Client,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Box<dyn Error>> {
    let mut builder = Elector::builder().election(ELECTION);
    // The pod's name, from the Downward API. It is in the Lease's `holderIdentity`, with this incarnation's number.
    if let Ok(pod) = std::env::var("POD_NAME") {
        builder = builder.node(NodeId::new(&pod)?);
    }
    let elector = builder.connect(url).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let state = kube::Api::default_namespaced_with(client, &kind);
    while !*stopped.borrow() {
        println!("{} stands", elector.identity());
        let leadership = tokio::select! {
            leadership = elector.campaign() => leadership?,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        if let Err(error) = lead(leadership, &state, &mut stopped).await {
            println!("{error}");
        }
    }
    // Also cancels a campaign in progress.
    elector.close().await;
    println!("has left the election");
    Ok(())
}

/// Works until it is stopped, and then hands over; or until it loses the lead.
async fn lead(
    leadership: Leadership,
    state: &kube::Api<DynamicObject>,
    stopped: &mut watch::Receiver<bool>,
) -> Result<(), Box<dyn Error>> {
    let token = leadership.token();
    println!("leads with token {token}");
    let work = async {
        while !*stopped.borrow() {
            reconcile(state, token).await?;
            // A reconciliation that was begun is finished before it stops.
            let _ = tokio::time::timeout(RECONCILE_INTERVAL, stopped.wait_for(|stopped| *stopped)).await;
        }
        Ok::<(), GuardError>(())
    };
    // Dropped if the lead is lost. When the work has ended, the Lease is released, and the next pod leads at once.
    Ok(leadership.run(work).await??)
}

/// Reconciles the desired state; may be repeated. The write of a former leader is refused here.
async fn reconcile(state: &kube::Api<DynamicObject>, token: FencingToken) -> Result<(), GuardError> {
    let work = |object: &mut DynamicObject| {
        let rounds =
            object.data["data"]["rounds"].as_str().and_then(|rounds| rounds.parse().ok()).unwrap_or(0);
        object.data["data"]["rounds"] = (rounds + 1_u64).to_string().into();
        Ok(())
    };
    match fenced(state, ELECTION, ELECTION, token, work).await {
        Err(GuardError::Kube(kube::Error::Api(status))) if status.code == 404 => {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
            create(state, ELECTION, token, DynamicObject::new(ELECTION, &kind)).await.map(drop)
        }
        written => written.map(drop),
    }
}
