//! The levels of trace entries, and sets of levels.

/// The importance of an entry, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Events for applications, crashes, and broken invariants.
    Event,
    /// The commands of a script that a drawing needs too: deeds on nodes, links and clocks, and campaigns.
    Scene,
    /// Messages between nodes, and with the store.
    Message,
    /// Routine messages, and the renewals that follow from them.
    Heartbeat,
    /// Writes to disks, and connections.
    Disk,
}

/// A set of levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels(u8);

impl Levels {
    /// Returns this level and all more important ones.
    #[must_use]
    pub const fn down_to(level: Level) -> Self {
        Self((2 << level as u8) - 1)
    }

    /// True if the set contains a level.
    #[must_use]
    pub const fn contain(self, level: Level) -> bool {
        self.0 & (1 << level as u8) != 0
    }

    /// Returns the set with this level, or without it.
    #[must_use]
    pub const fn with(self, level: Level, wanted: bool) -> Self {
        let bit = 1 << level as u8;
        Self(if wanted { self.0 | bit } else { self.0 & !bit })
    }
}

impl From<&[Level]> for Levels {
    fn from(levels: &[Level]) -> Self {
        levels.iter().fold(Self::default(), |all, &level| all.with(level, true))
    }
}
