//! The descriptor of the store `kubernetes:`.

use crate::descriptor::{Login, StoreDescriptor, Support, built_in};
#[cfg(feature = "kubernetes")]
use crate::kubernetes;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "Kubernetes",
    scheme: "kubernetes",
    form: "kubernetes://NAMESPACE",
    feature: Some("kubernetes"),
    keeps: "a record",
    shared_by: "clients that reach the API server, and controllers that use client-go",
    login: Login::Secret,
    page: Some("docs/stores/kubernetes.md"),
    server: None,
    support: built_in!("kubernetes", kubernetes::open_url, kubernetes::examine),
};
