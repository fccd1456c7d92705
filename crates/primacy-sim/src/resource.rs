//! The resource to which leaders write: it checks the token of every write that has one.

use primacy_core::{Fence, FenceError, Mandate};

/// A resource behind a fence.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    fence: Fence,
    /// The number of accepted writes.
    pub accepted: u64,
    /// The number of refused writes.
    pub refused: u64,
}

impl Resource {
    /// Makes a write with its leader's mandate. An advisory mandate has no token to check, and so is admitted.
    ///
    /// # Errors
    /// [`FenceError`] if the token of a later leader was seen.
    pub fn write(&mut self, mandate: Mandate) -> Result<(), FenceError> {
        let answer = match mandate {
            Mandate::Fenced(token) => self.fence.admit(token),
            Mandate::Advisory => Ok(()),
        };
        match answer {
            Ok(()) => self.accepted += 1,
            Err(_) => self.refused += 1,
        }
        answer
    }
}
