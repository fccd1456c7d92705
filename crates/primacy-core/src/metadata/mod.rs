//! Metadata: a state that the leader of an election writes, and all nodes keep.

pub mod log;
pub mod message;
pub mod replica;
pub mod voters;
