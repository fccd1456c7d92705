//! The verbs, one file each.

pub(crate) mod bench;
pub(crate) mod completions;
#[cfg(feature = "sqlite")]
pub(crate) mod demo;
pub(crate) mod run;
