#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
mod arbitrary;
pub mod command;
pub mod encoding;
pub mod entry;
pub mod machine;
pub mod partitions;
pub mod replication;
mod session_id;
pub mod state;
