//! The elections.
//!
//! | file | elects | guarantee |
//! |---|---|---|
//! | [`appointed`] | the node that the configuration names | advisory: two configurations, two leaders |
//! | [`bully`] | the highest name that is alive | advisory: a partition, two leaders |
//! | [`quorum`] | by a majority of voters | a token; with `Safety::Lease` also one leader at a time |
//! | [`ranked`] | by a majority of votes, each for the best claim | a token |
//! | [`ring`] | the highest name on a ring | advisory: a partition, two leaders |
//! | [`ring_bidirectional`] | the same, with fewer messages on large rings | advisory |
//! | [`seniority`] | the oldest member of a cluster | advisory: a partition may have two, as its policy says |
//! | [`confirmed`] | the node that one election nominates and another one confirms | that of the one that confirms |
//! | [`lease`] | over an expiring record in any compare-and-set store | a token, and one leader at a time |
//! | [`session`] | the first in the queue of a store that keeps sessions | a token, and one leader at a time |
//!
//! In addition, [`record_update`] changes the record of a lease for a process that does not campaign. The shared part
//! of the two rings is [`on_a_ring`].

use core::fmt;
use core::str::FromStr;

pub mod appointed;
pub mod bully;
pub mod confirmed;
pub mod lease;
pub mod on_a_ring;
pub mod quorum;
pub mod ranked;
pub mod record_update;
pub mod ring;
pub mod ring_bidirectional;
pub mod seniority;
pub mod session;

/// The elections among peers, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// See [`quorum`].
    #[default]
    Quorum,
    /// See [`ranked`].
    Ranked,
    /// See [`bully`].
    Bully,
    /// See [`ring`].
    Ring,
    /// See [`ring_bidirectional`].
    RingBidirectional,
    /// See [`seniority`].
    Seniority,
}

/// Error: the name of no election among peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAlgorithm;

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Quorum, Self::Ranked, Self::Bully, Self::Ring, Self::RingBidirectional, Self::Seniority];

    /// The name of the algorithm, such as `ring-bidirectional`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Ranked => "ranked",
            Self::Bully => "bully",
            Self::Ring => "ring",
            Self::RingBidirectional => "ring-bidirectional",
            Self::Seniority => "seniority",
        }
    }

    /// True if its leaders have a fencing token: no two leaderships of the election ever have the same term.
    #[must_use]
    pub const fn is_fenced(self) -> bool {
        match self {
            Self::Quorum | Self::Ranked => true,
            Self::Bully | Self::Ring | Self::RingBidirectional | Self::Seniority => false,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = NoAlgorithm;

    fn from_str(name: &str) -> Result<Self, NoAlgorithm> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or(NoAlgorithm)
    }
}

impl fmt::Display for NoAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no election among peers has this name; there are")?;
        for (place, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            write!(f, "{}{algorithm}", if place == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for NoAlgorithm {}
