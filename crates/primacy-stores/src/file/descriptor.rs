//! The descriptor of the store `file:`.

use crate::descriptor::{Login, StoreDescriptor, Support, built_in};
#[cfg(feature = "file")]
use crate::diagnostics;
#[cfg(feature = "file")]
use crate::file;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "file",
    scheme: "file",
    form: "file:DIRECTORY",
    feature: Some("file"),
    keeps: "a record",
    shared_by: "the processes of one machine",
    login: Login::Local,
    page: Some("docs/stores/file.md"),
    server: None,
    support: built_in!("file", file::open_url, diagnostics::of_one_machine),
};
