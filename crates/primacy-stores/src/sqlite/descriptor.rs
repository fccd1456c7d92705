//! The descriptor of the store `sqlite:`.

use crate::descriptor::{Login, StoreDescriptor, Support, built_in};
#[cfg(feature = "sqlite")]
use crate::diagnostics;
#[cfg(feature = "sqlite")]
use crate::sqlite;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "SQLite",
    scheme: "sqlite",
    form: "sqlite:PATH",
    feature: Some("sqlite"),
    keeps: "a record",
    shared_by: "the processes of one machine",
    login: Login::Local,
    page: Some("docs/stores/sqlite.md"),
    server: None,
    support: built_in!("sqlite", sqlite::open_url, diagnostics::of_one_machine),
};
