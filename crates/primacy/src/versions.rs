//! The versions of the protocol that this program speaks. The formats of each version are in `formats.rs`.
//!
//! Two nodes talk in the highest version that both speak, so nodes of two adjacent versions form one cluster, and can be upgraded one
//! after the other. `docs/decisions/0025-formats-are-read-one-version-before-they-are-written.md` explains how to add a version, and
//! why a cluster of two versions is safe.

use std::fmt;

/// This program's version of the protocol: of the frames, and of the rules by which all nodes treat them alike.
pub const PROTOCOL_VERSION: u32 = 1;

/// The versions of the protocol that this program speaks: its own, and the one before once there is one.
pub const SPOKEN: Versions = Versions { lowest: 1, highest: PROTOCOL_VERSION };

/// A range of versions of the protocol, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// The oldest.
    pub lowest: u32,
    /// The newest.
    pub highest: u32,
}

impl Versions {
    /// The newest version that both sides speak, in which they talk. `None` if there is none.
    #[must_use]
    pub const fn common(self, other: Self) -> Option<u32> {
        let highest = if self.highest < other.highest { self.highest } else { other.highest };
        if highest < self.lowest || highest < other.lowest { None } else { Some(highest) }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lowest, highest } = self;
        if lowest == highest {
            write!(f, "version {highest}")
        } else {
            write!(f, "versions {lowest} to {highest}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_talk_in_the_newest_version_that_both_speak() {
        let versions = |lowest, highest| Versions { lowest, highest };
        for (mine, theirs, common) in [
            (versions(1, 1), versions(1, 1), Some(1)),
            (versions(1, 1), versions(1, 2), Some(1)),
            (versions(1, 2), versions(2, 3), Some(2)),
            (versions(2, 3), versions(2, 3), Some(3)),
            (versions(1, 1), versions(2, 3), None),
            (versions(1, 2), versions(3, 4), None),
            (versions(1, 1), versions(0, 0), None),
        ] {
            assert_eq!((mine.common(theirs), theirs.common(mine)), (common, common), "{mine} and {theirs}");
        }
        assert_eq!(
            (versions(2, 2).to_string(), versions(2, 3).to_string()),
            ("version 2".into(), "versions 2 to 3".into())
        );
    }
}
