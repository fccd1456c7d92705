//! Versions of the protocol: its own, and the one before. The formats that go with each are in `formats.rs`.
//!
//! Two nodes talk in the highest version that both speak, so nodes of two neighbouring versions are one cluster, and its nodes can be
//! upgraded one after the other. How a version is added, and why a cluster of two versions is safe, is in
//! `docs/decisions/0025-formats-are-read-one-version-before-they-are-written.md`.

use std::fmt;

/// The version of the protocol that this program has: of the frames, and of what all nodes must make of them alike.
pub const PROTOCOL_VERSION: u32 = 1;

/// The versions of the protocol that this program speaks: its own, and the one before once there is one.
pub const SPOKEN: Versions = Versions { lowest: 1, highest: PROTOCOL_VERSION };

/// Versions of the protocol, from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// The oldest.
    pub lowest: u32,
    /// The newest.
    pub highest: u32,
}

impl Versions {
    /// The newest version that both sides speak: the one in which they talk. `None` if there is none.
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
