//! The descriptor of the store `s3:`.

use crate::descriptor::{Login, StoreDescriptor, Support, built_in};
#[cfg(feature = "s3")]
use crate::s3;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "S3",
    scheme: "s3",
    form: "s3://BUCKET/PREFIX",
    feature: Some("s3"),
    keeps: "a record",
    shared_by: "clients that reach the bucket",
    login: Login::Secret,
    page: Some("docs/stores/s3.md"),
    server: None,
    support: built_in!("s3", s3::open_url, s3::examine),
};
