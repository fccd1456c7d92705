//! Metadata: a versioned map with sessions, written by the leader of an election and replicated to all nodes.
//!
//! This module has the parts that use the disk and the program's requests; the state machines are in [`primacy_kv`].

mod map;
mod shared;

#[cfg(feature = "metrics")]
pub(crate) use map::gauges::Gauges;
pub use map::{Board, Map, MapError};
pub(crate) use map::{MapEnd, MapRequest, REQUESTS_MAX, maps};
pub use primacy_core::hard_state::Durability;
pub use primacy_kv::replication::replica::{Progress, Refusal, VoterChange};

pub(crate) use shared::SharedState;
