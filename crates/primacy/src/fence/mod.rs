//! Fences: the resource refuses the writes of a leader that has been replaced.
//!
//! A paused leader does not know that it has been replaced, and no lease helps when clocks stand still. Only the resource
//! can refuse its late write, by comparing the write's token with the highest token that it has seen. The resource must
//! compare and write in one step. The fences:
//! | fence | for | remembers |
//! |---|---|---|
//! | [`Fence`] | a resource in memory | as long as the process |
//! | [`DurableFence`] | files, devices, anything on one machine | in a file of its own |
//! | [`HeldFence`] | the same, locked by one process for as long as it runs | in a file of its own |
//! | `http` (feature `tower`) | HTTP services: a layer over a held fence | in a file of its own |
//! | `postgres` (feature `postgres`) | tables of a PostgreSQL database | in the database, which checks every writer itself |
//! | `object` (feature `object`) | an object of an object store | in the object |
//! | the crate `primacy-kube` | objects of Kubernetes | in an annotation of each object |
//! | the crate `primacy-fence-redis` | writes to a Redis server that go through the fence | under a key of that server |
//! | the crate `primacy-fence-sqlite` | tables of an SQLite database | in the database, which checks every writer itself |
//! | `etcd` (feature `etcd`) | keys of an etcd | in etcd: the leader's own key, or a key of its own |
//! | the crate `primacy-fence-zookeeper` | znodes in ZooKeeper | in a znode, in the transaction that writes |
//!
//! `docs/fencing.md` explains how to use them, also from other languages, and their gaps.

mod answer;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod file;
#[cfg(feature = "tower")]
pub mod gate;
pub mod held;
#[cfg(feature = "tower")]
pub mod http;
mod inherited_lock;
#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;

use std::sync::atomic::{AtomicU64, Ordering};

pub use primacy_core::fence::{Fence, FenceError, FencingToken};

pub use self::answer::Answer;
pub use self::file::{DurableFence, DurableFenceError};
pub use self::held::HeldFence;

/// The number of stale writes that this process's fences have refused. A [`Fence`] in memory is not counted: its owner sees
/// its refusals.
static STALE_WRITES_REFUSED: AtomicU64 = AtomicU64::new(0);

/// The number of writes that the durable fences and gates of this process have refused because their token was stale.
/// Requests that a `gate` admitted and revoked later are not counted.
#[must_use]
pub fn stale_writes_refused() -> u64 {
    STALE_WRITES_REFUSED.load(Ordering::Relaxed)
}

/// Counts a refused write; for fences in other crates.
#[doc(hidden)]
pub fn count_refused() {
    STALE_WRITES_REFUSED.fetch_add(1, Ordering::Relaxed);
}
