//! The etcd API compared with etcd: both get the same requests, and the answers must be the same.

mod failover;
mod questions;
mod quota;
mod runs;
mod script;
mod store;
mod strangers;
mod waits;
mod without_majority;

use primacy_conformance::live::etcd::{Etcd, MEMBERS};

use primacy_testbed::etcd_api::{self, Asked};
use primacy_testbed::started;

/// Returns the name of the cluster's kind, for reports.
fn name(cluster: &Etcd) -> &'static str {
    if cluster.is_ours() { "primacy" } else { "etcd" }
}

/// A node of ours that does not lead.
async fn follower(cluster: &Etcd) -> String {
    cluster.endpoint((cluster.leader().await + 1) % MEMBERS)
}

/// Returns the answers of etcd, and of ours, to the same story; `None` where there is no etcd to compare
/// with. Of ours, a follower is asked.
fn told_by_both<T>(story: impl AsyncFn(&Asked) -> T) -> Option<(T, T)> {
    let (runtime, etcd) = started("etcd", Etcd::start_of(1, None))?;
    runtime.block_on(async {
        let cluster = etcd_api::open(&[]).await;
        let theirs = story(&Asked::new(&etcd.endpoint(0)).await).await;
        Some((theirs, story(&Asked::new(&follower(&cluster).await).await).await))
    })
}
