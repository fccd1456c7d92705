//! [`ProcessSlot`]: the number of a simulated process.

/// The number of a simulated process: a node's, or its guardian's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessSlot(pub usize);
