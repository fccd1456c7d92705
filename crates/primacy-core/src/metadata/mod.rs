//! Metadata: a state that the leader of an election writes, and all nodes keep.
//!
//! It is a versioned map with sessions, in which clients without a store of their own can hold elections.

pub mod clients;
pub mod command;
#[cfg(test)]
mod drawn;
pub mod encoding;
pub mod entry;
mod expiry;
mod history;
pub mod log;
pub mod machine;
mod map;
pub mod message;
pub mod partitions;
pub mod replica;
pub mod requests;
mod session_id;
pub mod sessions;
pub mod state;
pub mod voters;
