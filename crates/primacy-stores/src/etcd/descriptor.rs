//! The descriptor of the store `etcd:`.

use crate::descriptor::{Login, StoreDescriptor, Support, TestServer, built_in};
#[cfg(feature = "etcd")]
use crate::etcd;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "etcd",
    scheme: "etcd",
    form: "etcd://HOST/PREFIX",
    feature: Some("etcd"),
    keeps: "sessions; with `recipe=lease` a record",
    shared_by: "clients that reach the cluster, and other clients of etcd",
    login: Login::Secret,
    page: Some("docs/stores/etcd.md"),
    server: Some(TestServer { program: "etcd", package: "etcd-server" }),
    support: built_in!("etcd", etcd::open_url, etcd::examine),
};
