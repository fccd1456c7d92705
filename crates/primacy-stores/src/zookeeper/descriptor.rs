//! The descriptor of the store `zookeeper:`.

use crate::descriptor::{Login, StoreDescriptor, Support, built_in};
#[cfg(feature = "zookeeper")]
use crate::zookeeper;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "ZooKeeper",
    scheme: "zookeeper",
    form: "zookeeper://HOST/PATH",
    feature: Some("zookeeper"),
    keeps: "sessions",
    shared_by: "clients that reach the ensemble, and users of Curator or kazoo",
    login: Login::Secret,
    page: Some("docs/stores/zookeeper.md"),
    server: None,
    support: built_in!("zookeeper", zookeeper::open_url, zookeeper::examine),
};
