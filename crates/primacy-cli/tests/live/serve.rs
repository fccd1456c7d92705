//! The door for clients of etcd, beside etcd: the same is asked of both, and the answers must be the same.

mod cluster;
#[path = "../support/door.rs"]
mod door;
mod failover;
mod laws;
mod questions;
mod quota;
mod runs;
mod script;
mod strangers;
mod waits;
mod without_majority;

use primacy_conformance::live::etcd::Etcd;

/// An etcd of one member, and where it is.
async fn etcd() -> Result<(Etcd, String), String> {
    let etcd = Etcd::start_of(1, None).await?;
    let (host, port) = etcd.address(0);
    Ok((etcd, format!("{host}:{port}")))
}
