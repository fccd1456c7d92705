//! etcd: its columns of the tables, and the tests that only etcd's own members can pass.

use primacy_conformance::live::etcd::{Etcd, Tls};
use primacy_conformance::{LAWS, Outcome, SESSION_LAWS};

use self::store::laws;
use crate::{Column, to_be_tried};

mod rotation;
mod store;
mod watching;

/// A cluster, if there can be one; else `None`, with a line that says so.
async fn cluster(tls: Option<Tls>) -> Option<Etcd> {
    to_be_tried("etcd", Etcd::start(tls)).await
}

/// A cluster whose user `elector` has the password `secret-of-elector`, and the right to write below `app/`.
async fn cluster_with_users() -> Option<Etcd> {
    let etcd = cluster(None).await?;
    for command in [
        "user add root:secret-of-root",
        "user grant-role root root",
        "user add elector:secret-of-elector",
        "role add election",
        "role grant-permission election --prefix=true readwrite app/",
        "user grant-role elector election",
        "auth enable",
    ] {
        let _ = etcd.told(&command.split(' ').collect::<Vec<_>>());
    }
    Some(etcd)
}

/// The laws of records.
pub(crate) async fn check() -> Vec<Column> {
    let outcomes = match cluster(None).await {
        Some(etcd) => laws::check(&etcd).await,
        None => LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect(),
    };
    vec![(laws::RECORDS.to_owned(), outcomes)]
}

/// The laws of sessions.
pub(crate) async fn check_sessions() -> Vec<Column> {
    let outcomes = match cluster(None).await {
        Some(etcd) => laws::check_sessions(etcd).await,
        None => SESSION_LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect(),
    };
    vec![(laws::SESSIONS.to_owned(), outcomes)]
}
