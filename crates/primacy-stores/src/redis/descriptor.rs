//! The descriptor of the store `redis:`.

use crate::descriptor::{Login, StoreDescriptor, Support, TestServer, built_in};
#[cfg(feature = "redis")]
use crate::redis;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "Redis",
    scheme: "redis",
    form: "redis://HOST/PREFIX",
    feature: Some("redis"),
    keeps: "a record",
    shared_by: "clients that reach the server; not safe over a failover",
    login: Login::Secret,
    page: Some("docs/stores/redis.md"),
    server: Some(TestServer { program: "redis-server", package: "redis-server" }),
    support: built_in!("redis", redis::open_url, redis::examine),
};
