//! What replicas keep: a versioned map with sessions, and how they keep it the same.

pub mod command;
#[cfg(test)]
mod drawn;
pub mod encoding;
pub mod entry;
mod history;
mod map;
pub mod requests;
pub mod sessions;
pub mod state;
