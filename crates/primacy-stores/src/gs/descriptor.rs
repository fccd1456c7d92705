//! The descriptor of the store `gs:`.

use crate::descriptor::{Login, StoreDescriptor, Support, built_in};
#[cfg(feature = "gs")]
use crate::gs;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "Google Cloud Storage",
    scheme: "gs",
    form: "gs://BUCKET/PREFIX",
    feature: Some("gs"),
    keeps: "a record",
    shared_by: "clients that reach the bucket",
    login: Login::Secret,
    page: Some("docs/stores/gs.md"),
    server: None,
    support: built_in!("gs", gs::open_url, gs::examine),
};
