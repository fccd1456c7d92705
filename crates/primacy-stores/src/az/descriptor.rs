//! The descriptor of the store `az:`.

#[cfg(feature = "az")]
use crate::az;
use crate::descriptor::{Login, StoreDescriptor, Support, built_in};

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "Azure Blob Storage",
    scheme: "az",
    form: "az://CONTAINER/PREFIX",
    feature: Some("az"),
    keeps: "a record",
    shared_by: "clients that reach the container",
    login: Login::Secret,
    page: Some("docs/stores/az.md"),
    server: None,
    support: built_in!("az", az::open_url, az::examine),
};
