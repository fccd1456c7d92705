//! Metadata that nodes keep together: a versioned map with sessions, which the leader writes.

pub(crate) mod log_file;
mod map;

pub use map::{Map, MapError, MapStatus};
pub(crate) use map::{Asked, Board, maps};
pub use primacy_core::metadata::replica::Durability;
