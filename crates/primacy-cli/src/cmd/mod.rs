//! The verbs, one file each.

pub(crate) mod completions;
#[cfg(feature = "sqlite")]
pub(crate) mod demo;
pub(crate) mod fence;
pub(crate) mod run;
