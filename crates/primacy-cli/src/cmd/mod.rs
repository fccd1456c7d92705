//! The verbs, one file each.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cordon;
#[cfg(feature = "sqlite")]
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod fence;
pub(crate) mod init;
pub(crate) mod log;
pub(crate) mod member;
pub(crate) mod node;
pub(crate) mod partitions;
#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "the doctor's drill needs less than the demo"))]
mod process_group;
pub(crate) mod publish;
pub(crate) mod resign;
pub(crate) mod run;
pub(crate) mod status;
mod store;
mod target;
pub(crate) mod transfer;
pub(crate) mod watch;
