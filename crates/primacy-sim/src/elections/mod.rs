//! The elections that the simulator runs: one file for each, with its adapter to the world and the worlds that are drawn for it.

pub mod appointed;
pub mod arbitrary_nominator;
pub mod blazingmq_naive;
pub mod bully;
pub mod confirmed;
pub mod emergent;
pub mod gmt2000;
pub mod lease;
pub mod metadata;
pub mod omega;
pub mod quorum;
pub mod ranked;
pub mod ring;
pub mod seniority;
pub mod session;

use crate::algorithm::Algorithm;
use crate::script::{Recorded, Script};
use crate::swarm::{Beyond, Run, drawn_faults, run_again};
use crate::trace::{Level, Trace};

/// Defines [`Election`] from the single list of elections for which worlds are drawn: the variant, its name, its adapter,
/// and the function that draws a world.
macro_rules! elections {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $algorithm:ty, $draw:expr;)*) => {
        /// The elections for which worlds are drawn.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Election {
            $($(#[$doc])* $variant,)*
        }

        impl Election {
            /// All elections.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name, which is also that of the folder of its scripts.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Runs the world of this seed with a violated assumption, if one is given.
            #[must_use]
            pub fn run_beyond(self, seed: u64, beyond: Option<Beyond>, trace: Trace) -> Run {
                match self {
                    $(Self::$variant => $draw(seed, beyond, trace).run(),)*
                }
            }

            /// Runs commands that were drawn before, or a part of them; commands that cannot be carried out are skipped.
            #[must_use]
            pub fn run_again(self, commands: &[String], trace: Trace) -> Run {
                match self {
                    $(Self::$variant => run_again::<$algorithm>(commands, trace),)*
                }
            }

            fn script(self) -> Box<dyn Recorded> {
                match self {
                    $(Self::$variant => script::<$algorithm>(),)*
                }
            }

            fn counted(self) -> Counted {
                match self {
                    $(Self::$variant => counted::<$algorithm>(),)*
                }
            }
        }
    };
}

elections! {
    /// Among peers, by a majority.
    Quorum, "quorum", quorum::Quorum, quorum::draw;
    /// Among peers, by a majority of votes for the best claim.
    Ranked, "ranked", ranked::Ranked, ranked::draw;
    /// Among peers: bully, the highest name leads.
    Bully, "bully", bully::Bully, bully::draw;
    /// Among peers: Chang and Roberts' ring, the highest name leads.
    Ring, "ring", ring::Ring, ring::draw::<ring::Ring>;
    /// Among peers: Hirschberg and Sinclair's bidirectional ring, the highest name leads.
    RingBidirectional, "ring_bidirectional", ring::RingBidirectional, ring::draw::<ring::RingBidirectional>;
    /// Among peers: omega, the lowest name leads.
    Omega, "omega", omega::Omega, omega::draw;
    /// The oldest member of a cluster.
    Seniority, "seniority", seniority::Seniority, seniority::draw;
    /// Over an expiring record in a store.
    Lease, "lease", lease::Lease, lease::draw;
    /// In the queue of a store that keeps sessions.
    Session, "session", session::Session, session::draw;
    /// Bully nominates, a quorum confirms.
    Confirmed, "confirmed", confirmed::Confirmed<bully::Bully, quorum::Quorum>, confirmed::by_quorum;
    /// Bully nominates, a lease in a store confirms.
    ConfirmedLease, "confirmed_lease", confirmed::Confirmed<bully::Bully, lease::Lease>, confirmed::by_lease;
    /// Seniority nominates, a quorum confirms.
    ConfirmedSeniority, "confirmed_seniority", confirmed::Confirmed<seniority::Seniority, quorum::Quorum>,
        confirmed::of_the_oldest;
    /// Each node nominates at random, and a quorum confirms.
    ConfirmedWhim, "confirmed_whim", confirmed::Confirmed<arbitrary_nominator::ArbitraryNominator, quorum::Quorum>,
        confirmed::by_arbitrary_nomination;
    /// Among peers, by a majority, with a state that the leader replicates.
    Metadata, "metadata", metadata::Metadata, metadata::draw;
}

impl Election {
    /// The election of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|election| election.name() == name)
    }

    /// Runs the world of this seed.
    #[must_use]
    pub fn run(self, seed: u64, trace: Trace) -> Run {
        self.run_beyond(seed, None, trace)
    }

    /// The counters that a search of [`ENOUGH_SEEDS`](crate::swarm::ENOUGH_SEEDS) or more must have incremented.
    pub fn must_meet(self) -> impl Iterator<Item = &'static str> {
        let Counted { of_its_kind, own } = self.counted();
        // Only the worlds of `quorum` set different promises for that.
        let reelected = (self == Self::Quorum).then_some("ploy: elected again");
        drawn_faults::MUST_MEET.iter().chain(own).copied().chain(of_its_kind).chain(reelected)
    }
}

/// The counters that the worlds of an election must have incremented.
struct Counted {
    of_its_kind: Vec<&'static str>,
    own: &'static [&'static str],
}

fn counted<A: Algorithm>() -> Counted {
    let kinds = [
        ("calm", A::SETTLES),
        ("ploy: wound", A::SETTLES && !A::ADVISORY),
        ("stale write refused", A::FENCED),
    ];
    let of_its_kind = kinds.into_iter().filter(|&(_, meets)| meets).map(|(what, _)| what).collect();
    Counted { of_its_kind, own: A::must_meet() }
}

fn script<A: Algorithm>() -> Box<dyn Recorded> {
    Box::new(Script::<A>::new(Trace::keeping(&[Level::Event, Level::Message])))
}

/// Opens a script about the election with this folder of scripts.
///
/// # Errors
/// If there is no election of this name.
pub fn open(election: &str) -> Result<Box<dyn Recorded>, String> {
    match election {
        // For these, scripts are written and no worlds are drawn.
        "appointed" => Ok(script::<appointed::Appointed>()),
        "emergent" => Ok(script::<emergent::Emergent>()),
        "blazingmq_naive" => Ok(script::<blazingmq_naive::BlazingmqNaive>()),
        "gmt2000" => Ok(script::<gmt2000::Gmt2000>()),
        name => Election::find(name)
            .map(Election::script)
            .ok_or_else(|| format!("there is no election {election}")),
    }
}
