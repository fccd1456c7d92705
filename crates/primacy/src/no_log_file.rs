//! The log of a program that is built without elections among peers: there is none.

/// An error of a log without this feature: it has no value.
#[derive(Debug, thiserror::Error)]
pub enum LogError {}
