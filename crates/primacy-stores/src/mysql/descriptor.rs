//! The descriptor of the store `mysql:`.

use crate::descriptor::{Login, StoreDescriptor, Support, TestServer, built_in};
#[cfg(feature = "mysql")]
use crate::mysql;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "MySQL and MariaDB",
    scheme: "mysql",
    form: "mysql://HOST/DATABASE",
    feature: Some("mysql"),
    keeps: "a record",
    shared_by: "clients that reach the server; not safe over a failover",
    login: Login::UserIsPublic,
    page: Some("docs/stores/mysql.md"),
    server: Some(TestServer { program: "mariadbd", package: "mariadb-server" }),
    support: built_in!("mysql", mysql::open_url, mysql::examine),
};
