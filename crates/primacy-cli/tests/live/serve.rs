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

use primacy_conformance::live::Ground;
use primacy_conformance::live::etcd::Etcd;

use self::door::{Asked, Door};
use crate::started;

/// An etcd of one member, and where it is.
async fn etcd() -> Result<(Etcd, String), String> {
    let etcd = Etcd::start_of(1, None).await?;
    let (host, port) = etcd.address(0);
    Ok((etcd, format!("{host}:{port}")))
}

/// What etcd, and what ours, answers to the same story; `None` where there is no etcd to compare with.
fn told_by_both<T>(name: &str, story: impl AsyncFn(&Asked) -> T) -> Option<(T, T)> {
    let (runtime, (_etcd, address)) = started("etcd", etcd())?;
    let ground = Ground::new(name);
    runtime.block_on(async {
        let door = Door::open(&ground, &[]).await;
        let theirs = story(&Asked::new(&address).await).await;
        Some((theirs, story(&Asked::new(&door.address).await).await))
    })
}
