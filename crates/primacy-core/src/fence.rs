//! Fencing: the resource's side of an election.
//!
//! A leader that was paused does not know that it has been replaced. Only the resource that it writes to can refuse it,
//! and for that the resource needs one number: the highest token that it has seen.

use core::fmt;

/// The number that a leader presents with every request. In one election each leadership has a higher token than all
/// earlier ones, even if every node has restarted in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

impl FencingToken {
    /// The token of the next leadership.
    ///
    /// # Panics
    /// After 2⁶⁴ leaderships.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("an election does not see 2^64 leaderships"))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The check that every resource of an election must make: it admits tokens that are not stale.
///
/// The check and the write that it protects must be one step for the resource: both under one lock, in one transaction,
/// or in one statement. A `Fence` in memory is lost with the process; a durable resource stores the highest token with
/// its data.
///
/// ```
/// use primacy_core::fence::{Fence, FencingToken, FenceError};
///
/// let mut fence = Fence::default();
/// fence.admit(FencingToken(7))?;
/// fence.admit(FencingToken(7))?; // The same leader again.
/// fence.admit(FencingToken(9))?; // Its successor.
/// let late = fence.admit(FencingToken(7));
/// assert_eq!(late, Err(FenceError::Stale { presented: FencingToken(7), highest: FencingToken(9) }));
/// # Ok::<(), FenceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    highest: FencingToken,
}

/// The reason why a token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceError {
    /// A later leader has used this resource.
    Stale {
        /// The token that was presented.
        presented: FencingToken,
        /// The highest token that this resource has seen.
        highest: FencingToken,
    },
}

impl Fence {
    /// A fence that has seen `highest` already.
    #[must_use]
    pub const fn new(highest: FencingToken) -> Self {
        Self { highest }
    }

    /// Admits `presented` and remembers it, or refuses it.
    ///
    /// # Errors
    /// [`FenceError::Stale`] if a higher token has been seen. The fence is not changed.
    pub fn admit(&mut self, presented: FencingToken) -> Result<(), FenceError> {
        if presented < self.highest {
            return Err(FenceError::Stale { presented, highest: self.highest });
        }
        self.highest = presented;
        Ok(())
    }

    /// The highest token that was admitted.
    #[must_use]
    pub const fn highest(&self) -> FencingToken {
        self.highest
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { presented, highest } => write!(
                f,
                "the token {presented} is stale: a leader with token {highest} has been here; stop, another leads"
            ),
        }
    }
}

impl core::error::Error for FenceError {}
