//! The descriptor of the store `nats:`.

use crate::descriptor::{Login, StoreDescriptor, Support, TestServer, built_in};
#[cfg(feature = "nats")]
use crate::nats;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "NATS",
    scheme: "nats",
    form: "nats://HOST/BUCKET",
    feature: Some("nats"),
    keeps: "a record",
    shared_by: "clients that reach the servers",
    login: Login::Secret,
    page: Some("docs/stores/nats.md"),
    server: Some(TestServer { program: "nats-server", package: "nats-server" }),
    support: built_in!("nats", nats::open_url, nats::examine),
};
