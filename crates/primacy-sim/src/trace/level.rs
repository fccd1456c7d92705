//! How much an entry matters, and which entries are wanted.

/// How much an entry matters: the first the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What applications are told, crashes, and broken invariants.
    Event,
    /// What a script says in its commands, and a drawing needs all the same: what is done to nodes, links and clocks,
    /// and who campaigns.
    Scene,
    /// What nodes say to each other and to the store.
    Message,
    /// What they say all the time, and the renewals that come of it.
    Heartbeat,
    /// What is written to disks, and who connects.
    Disk,
}

/// Some of the levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels(u8);

impl Levels {
    /// This level and all that matter more.
    #[must_use]
    pub const fn down_to(level: Level) -> Self {
        Self((2 << level as u8) - 1)
    }

    /// Whether a level is among them.
    #[must_use]
    pub const fn contain(self, level: Level) -> bool {
        self.0 & (1 << level as u8) != 0
    }

    /// The same with this level, or without it.
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
