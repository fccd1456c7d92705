//! The number of a session.

use core::fmt;
use core::num::NonZeroI64;

/// The number of a session, chosen by the client that begins it: any number except 0, which means none.
///
/// Signed, because clients may choose negative numbers, and comparisons order them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(NonZeroI64);

impl SessionId {
    /// The session of this number; `None` for 0.
    #[must_use]
    pub const fn new(number: i64) -> Option<Self> {
        match NonZeroI64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0.get()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
