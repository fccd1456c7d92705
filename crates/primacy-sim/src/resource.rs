//! What leaders write to: a resource that checks the token of every write, where there is one.

use primacy_core::{Fence, FenceError, Mandate};

/// A resource behind a fence.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    fence: Fence,
    /// How many writes it has taken.
    pub accepted: u64,
    /// How many it has refused.
    pub refused: u64,
}

impl Resource {
    /// A write comes, with what its leader was given. An advisory mandate has nothing to check, and so gets in.
    ///
    /// # Errors
    /// [`FenceError`] if a later leader has been here.
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
