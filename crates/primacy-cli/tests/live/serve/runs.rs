//! `primacy run --store etcd://A,B,C` behaves the same over etcd and over three nodes of Primacy.

use std::time::Duration;

use primacy_conformance::live::etcd::Etcd;

use super::{etcd_api, name};
use crate::stories::{self, Store};
use primacy_testbed::started;

/// The lease of the nodes: half of it is more than their store takes to elect another leader, on a machine that has much to do.
const LEASE: Duration = Duration::from_secs(20);

/// Runs the story over this cluster; the node that dies is the leader of the store.
fn tell(mut cluster: Etcd, runtime: &tokio::runtime::Runtime) {
    let url = format!("etcd://{}/runs", cluster.endpoints());
    let store = Store { name: name(&cluster), url, lease: LEASE };
    stories::a_lead_outlives_a_node_of_its_store(&store, || {
        let leader = runtime.block_on(cluster.leader());
        cluster.kill(leader);
    });
}

#[test]
fn a_lead_outlives_the_leader_of_etcd() {
    let Some((runtime, etcd)) = started("etcd", Etcd::start(None)) else { return };
    tell(etcd, &runtime);
}

#[test]
fn a_lead_outlives_the_leader_of_our_nodes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ours = runtime.block_on(etcd_api::open(&[]));
    tell(ours, &runtime);
}
