//! The door for clients of etcd, beside etcd: the same is asked of both, and the answers must be the same.

#[path = "../support/door.rs"]
mod door;
mod laws;
mod questions;
mod script;
mod strangers;

use primacy_conformance::live::etcd::Etcd;

/// An etcd of one member, and where it is.
async fn etcd() -> Result<(Etcd, String), String> {
    let etcd = Etcd::start_of(1, None).await?;
    let (host, port) = etcd.address(0);
    Ok((etcd, format!("{host}:{port}")))
}
