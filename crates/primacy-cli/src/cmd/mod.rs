//! The verbs, one file each.

pub(crate) mod completions;
pub(crate) mod config;
#[cfg(feature = "sqlite")]
pub(crate) mod demo;
pub(crate) mod fence;
pub(crate) mod node;
pub(crate) mod run;
