//! The verbs, one file each.

pub(crate) mod completions;
#[cfg(feature = "sqlite")]
pub(crate) mod demo;
pub(crate) mod init;
pub(crate) mod readmit;
pub(crate) mod resign;
pub(crate) mod run;
pub(crate) mod stand;
mod store;
mod target;
pub(crate) mod transfer;
pub(crate) mod watch;
pub(crate) mod who;
