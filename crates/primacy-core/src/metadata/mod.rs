//! Metadata: a state that the leader of an election writes, and all nodes keep.
//!
//! It is a versioned map with sessions, on which whoever has no store of his own can hold elections.

pub mod clients;
pub mod command;
pub mod encoding;
pub mod entry;
mod expiry;
pub mod log;
pub mod machine;
pub mod message;
pub mod replica;
pub mod state;
pub mod voters;
