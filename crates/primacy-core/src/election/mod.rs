//! The elections.
//!
//! | file | elects | guarantee |
//! |---|---|---|
//! | [`appointed`] | the node that the configuration names | advisory: two configurations, two leaders |
//! | [`bully`] | the highest name that is alive | advisory: a partition, two leaders |
//! | [`omega`] | the lowest name that is alive | advisory: a partition, two leaders |
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

use alloc::collections::BTreeSet;
use core::fmt;
use core::str::FromStr;

use crate::id::{Identity, NodeId};
use crate::protocol::{ElectionTrigger, Protocol};
use crate::term::Term;
use crate::time::{Duration, Instant};

pub mod appointed;
pub mod bully;
pub mod confirmed;
pub mod lease;
pub mod omega;
pub mod on_a_ring;
pub mod quorum;
pub mod ranked;
pub mod record_update;
pub mod ring;
pub mod ring_bidirectional;
pub mod seniority;
pub mod session;

/// The facts about an election among peers that are known without running it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionDescriptor {
    /// The name, such as `ring-bidirectional`: in options, in settings, and of its page.
    pub name: &'static str,
    /// The reason to choose it, after "choose it when".
    pub choose_when: &'static str,
    /// Its guarantee, in a few words.
    pub guarantee: &'static str,
    /// True if its leaders have a fencing token: no two leaderships of the election ever have the same term.
    pub is_fenced: bool,
}

/// The settings of a node in an [`Advisory`] election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdvisorySettings {
    /// This node, with the incarnation of this process.
    pub me: Identity,
    /// All nodes, this one among them. The order of their names decides.
    pub nodes: BTreeSet<NodeId>,
    /// The interval at which the leader sends heartbeats.
    pub heartbeat_interval: Duration,
    /// The number of consecutive heartbeats missed before the leader is taken to be dead.
    pub miss_count: u32,
    /// The time for which a node waits for an answer; in [`omega`], for the heartbeat of a lower name. Must be longer than any round trip: a node that answers later is passed
    /// over, and may lead beside another leader.
    pub answer_timeout: Duration,
    /// True if a node that comes back leaves the lead to the current leader. Must be the same on all nodes.
    pub sticky: bool,
}

/// An advisory election among a fixed list of nodes, as a node runs it.
pub trait Advisory: Protocol<Durable = ()> + Sized {
    /// Creates the machine of `settings.me`. It listens first, and does not campaign until commanded to.
    ///
    /// # Panics
    /// If this node is not among the nodes.
    fn begin(settings: AdvisorySettings, now: Instant) -> Self;

    /// The role, for people.
    fn role(&self) -> &'static str;

    /// The highest number of an election that this node has heard of.
    fn round(&self) -> Term;

    /// The event that made this node campaign, if it campaigns or leads.
    fn trigger(&self) -> ElectionTrigger;
}

/// Defines [`Algorithm`] from the single list of elections among peers.
macro_rules! algorithms {
    ($(#[$default:meta])* $first:ident: $first_module:ident, $($variant:ident: $module:ident,)*) => {
        /// The elections among peers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Algorithm {
            #[doc = concat!("See [`", stringify!($first_module), "`].")]
            $(#[$default])*
            $first,
            $(#[doc = concat!("See [`", stringify!($module), "`].")] $variant,)*
        }

        impl Algorithm {
            /// All of them.
            pub const ALL: &[Self] = &[Self::$first, $(Self::$variant),*];

            /// The facts about the election.
            #[must_use]
            pub const fn descriptor(self) -> &'static ElectionDescriptor {
                match self {
                    Self::$first => &$first_module::DESCRIPTOR,
                    $(Self::$variant => &$module::DESCRIPTOR,)*
                }
            }
        }
    };
}

algorithms! {
    #[default]
    Quorum: quorum,
    Ranked: ranked,
    Bully: bully,
    Ring: ring,
    RingBidirectional: ring_bidirectional,
    Seniority: seniority,
    Omega: omega,
}

/// Error: the name of no election among peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAlgorithm;

impl Algorithm {
    /// The name of the algorithm, such as `ring-bidirectional`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.descriptor().name
    }

    /// True if its leaders have a fencing token: no two leaderships of the election ever have the same term.
    #[must_use]
    pub const fn is_fenced(self) -> bool {
        self.descriptor().is_fenced
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
        Self::ALL.iter().copied().find(|algorithm| algorithm.name() == name).ok_or(NoAlgorithm)
    }
}

impl fmt::Display for NoAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no election among peers has this name; there are")?;
        for (place, algorithm) in Algorithm::ALL.iter().enumerate() {
            write!(f, "{}{algorithm}", if place == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for NoAlgorithm {}
