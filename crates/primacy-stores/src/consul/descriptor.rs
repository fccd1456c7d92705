//! The descriptor of the store `consul:`.

#[cfg(feature = "consul")]
use crate::consul;
use crate::descriptor::{Login, StoreDescriptor, Support, built_in};

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "Consul",
    scheme: "consul",
    form: "consul://HOST/PREFIX",
    feature: Some("consul"),
    keeps: "sessions",
    shared_by: "clients that reach its agents, and users of `consul lock`",
    login: Login::Secret,
    page: Some("docs/stores/consul.md"),
    server: None,
    support: built_in!("consul", consul::open_url, consul::examine),
};
