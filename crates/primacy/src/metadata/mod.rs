//! Metadata: a versioned map with sessions, which the leader of an election writes, and all nodes keep.
//!
//! Here is what touches the disk and the program's requests; the machines are in [`primacy_core::metadata`].

pub(crate) mod log_file;
mod map;
pub(crate) mod partitions;
mod shared;

pub use log_file::{LogError, Repair, repair};
#[cfg(feature = "metrics")]
pub(crate) use map::gauges::Gauges;
pub(crate) use map::{Asked, MapEnd, REQUESTS_MAX, maps};
pub use map::{Board, Map, MapError};
pub use partitions::{End, Joining, News, PartitionLost, Partitions, PartitionsError, Primary};
pub use primacy_core::metadata::replica::{Durability, Progress, Refusal, Wish};

pub(crate) use shared::SharedState;
