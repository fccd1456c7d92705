//! [`ProcessSlot`]: the number of a place where a process runs.

/// The number of a place where a process runs: a node, or the guardian of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessSlot(pub usize);
