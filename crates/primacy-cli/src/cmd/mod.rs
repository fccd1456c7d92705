//! The verbs, one file each.

pub(crate) mod announce;
pub(crate) mod completions;
pub(crate) mod config;
#[cfg(feature = "sqlite")]
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod fence;
pub(crate) mod init;
pub(crate) mod node;
pub(crate) mod partitions;
pub(crate) mod readmit;
pub(crate) mod recover;
pub(crate) mod resign;
pub(crate) mod run;
mod stage;
pub(crate) mod stand;
mod store;
mod target;
pub(crate) mod transfer;
pub(crate) mod voters;
pub(crate) mod watch;
pub(crate) mod who;
