//! The descriptor of the store `postgres:`.

use crate::descriptor::{Login, StoreDescriptor, Support, TestServer, built_in};
#[cfg(feature = "postgres")]
use crate::postgres;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "PostgreSQL",
    scheme: "postgres",
    form: "postgres://HOST/DATABASE",
    feature: Some("postgres"),
    keeps: "a record; with `recipe=advisory` sessions",
    shared_by: "clients that reach the server",
    login: Login::UserIsPublic,
    page: Some("docs/stores/postgres.md"),
    server: Some(TestServer { program: "postgres", package: "postgresql" }),
    support: built_in!("postgres", postgres::open_url, postgres::examine),
};
