//! The replicated log: records, the voters that hold them, and the log of one node.

pub mod log;
pub mod message;
pub mod replica;
pub mod voters;
