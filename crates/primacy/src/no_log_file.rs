//! The log in a program that is built without elections among peers: a type without values.

/// An error of a log: has no value without the feature `peers`.
#[derive(Debug, thiserror::Error)]
pub enum LogError {}
