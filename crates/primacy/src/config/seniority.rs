//! Options of an election by seniority, in addition to its nodes' names and timers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::detector::Detection;
use primacy_core::election::seniority::{self, SEEDS_MAX};
use primacy_core::membership::{Age, Attributes, Policy};
use primacy_core::{self as core, Identity, Incarnation, NodeId, majority};

use super::{Config, STABLE_AFTER_MAX, Timers};
#[cfg(feature = "peers")]
use crate::codec::{TooLong, length_of_view};
use crate::connections::FRAME_LENGTH_MAX;

/// The range of phi-accrual's threshold, in tenths: below it, members that are merely late are suspected; above it, detection takes
/// longer than with any sensible timeout.
const PHI_TENTHS: std::ops::RangeInclusive<u32> = 10..=200;

/// Options of an election by seniority; for [`Builder::seniority`](crate::Builder::seniority). The default is good for a few
/// nodes on one network.
///
/// `seeds` and their order, `neighbours` and `split_brain` must be the same on all nodes. `detection` and `stable_after` should be the
/// same: otherwise one part does not stop when the other goes on. The other options are each node's own.
///
/// ```
/// use std::time::Duration;
/// use primacy::{Algorithm, Detection, Elector, SeniorityOptions, SplitBrain};
///
/// let options = SeniorityOptions {
///     seeds: vec!["b".parse()?, "a".parse()?], // `b` founds the cluster.
///     detection: Some(Detection::Deadline { timeout: primacy::core::Duration::from_secs(2) }),
///     stable_after: Some(Duration::from_secs(5)),
///     split_brain: SplitBrain::KeepOldest,
///     zone: "east".to_owned(),
///     ..SeniorityOptions::default()
/// };
/// let builder = Elector::builder().election("shards").algorithm(Algorithm::Seniority).seniority(options);
/// # let _ = builder;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeniorityOptions {
    /// The nodes that a node asks to join, at most 16, all of them peers. Only the first seed founds a cluster, and only if no other node
    /// belongs to one. If the first seed is gone for good before there is a cluster, put another node first, on all nodes. Empty: the
    /// peers in the order of their names, the first 16 if there are more.
    pub seeds: Vec<NodeId>,
    /// The number of neighbours on the ring of ages to which a member sends heartbeats; `None`: all. With three peers or more at least
    /// two, unless every part goes on: as many links must be cut before a living member is taken for lost.
    pub neighbours: Option<u32>,
    /// The failure detector; `None`: the number of missed heartbeats as in other elections, see [`Timers`].
    pub detection: Option<Detection>,
    /// The time for which the same members must be lost before they are removed, or before a part stops; at most an hour. `None`: the
    /// lease.
    pub stable_after: Option<Duration>,
    /// The minimum number of members, see [`Elector::check_members`](crate::Elector::check_members); `None`: one.
    pub minimum_members: Option<usize>,
    /// The policy for parts of the cluster that have lost each other.
    pub split_brain: SplitBrain,
    /// The zone of this node, as the other members see it.
    pub zone: String,
    /// Other attributes that the members see, at most eight. Together with the node's address, version and zone at most 512 bytes, and
    /// fewer with more than a hundred peers, so that a view of all members fits into a message.
    pub labels: BTreeMap<String, String>,
}

/// The policy for parts of a cluster that have lost each other.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum SplitBrain {
    /// The part with most of the members goes on; of two halves, the one with the smallest name.
    #[default]
    KeepMajority,
    /// A part of at least this many members goes on: more than half of the peers, so that no two parts reach it.
    StaticQuorum(usize),
    /// The part with the oldest member goes on. If that member is alone, of three or more, it stops, and the others go on if they are all
    /// together.
    KeepOldest,
    /// The part that first takes the lease in the store at this URL goes on.
    Lease(String),
    /// Every part goes on, each with a leader.
    Available,
}

/// The reason why the options of a cluster are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeniorityError {
    /// The seeds, heartbeats or timers are wrong.
    #[error(transparent)]
    Machine(#[from] seniority::ConfigError),
    /// A seed is not one of the peers.
    #[error("the seed {seed} is not one of the peers ({peers}); name peers as seeds")]
    SeedNotAPeer {
        /// The seed.
        seed: NodeId,
        /// The peers' names.
        peers: String,
    },
    /// The time is zero, so that any late message would remove a member, or too long.
    #[error(
        "members that are lost are removed after {given:?}: state more than nothing, or a message that is late costs a \
         member its place, and at most {STABLE_AFTER_MAX:?}"
    )]
    StableAfter {
        /// The configured time.
        given: Duration,
    },
    /// The threshold of phi-accrual is out of range.
    #[error("phi-accrual suspects at a likelihood from 1 to 20, and this is {}.{}; 8 is usual", .tenths / 10, .tenths % 10)]
    Threshold {
        /// The likelihood, in tenths.
        tenths: u32,
    },
    /// Phi-accrual would suspect a member after a single late heartbeat.
    #[error(
        "where heartbeats have come evenly, phi-accrual would suspect a member that is {grace} late, and they come every {interval}: \
         state a pause of {interval} or more, so that one of them may be lost"
    )]
    Grace {
        /// The least lateness at which a member is suspected.
        grace: core::Duration,
        /// The heartbeat interval.
        interval: core::Duration,
    },
    /// Members would be suspected too late to matter.
    #[error("a member would be suspected after {patience} of silence; state at most {STABLE_AFTER_MAX:?}")]
    Patience {
        /// The silence after which a member is suspected.
        patience: core::Duration,
    },
    /// The minimum is zero or above the number of peers.
    #[error(
        "a minimum of {minimum} members cannot be: state at least 1, and at most all peers, which are {peers}"
    )]
    Minimum {
        /// The configured number.
        minimum: usize,
        /// The number of peers.
        peers: usize,
    },
    /// The size for `StaticQuorum` lets no part go on, or two.
    #[error(
        "static-quorum:{size} of {peers} peers {}; state at least {}, and at most {peers}",
        if *.size > *.peers { "lets no part go on" } else { "lets two parts go on at the same time (if that is wanted, choose available)" },
        majority::needed(*.peers)
    )]
    StaticQuorum {
        /// The configured size.
        size: usize,
        /// The number of peers.
        peers: usize,
    },
    /// One neighbour is too few: a single cut link would remove a living member that the others still reach.
    #[error(
        "with 1 neighbour among {peers} peers one cut link removes a member that all others still reach, and two parts go on at the \
         same time: state at least 2 neighbours, leave it out, or choose available if two leaders may be"
    )]
    OneNeighbour {
        /// The number of peers.
        peers: usize,
    },
    /// A view of all members would not fit into a message.
    #[error(
        "a view of {peers} members that all tell as much of themselves as this one has {length} bytes, and a message has \
         at most {}; shorten address, zone and labels, or have fewer peers",
        FRAME_LENGTH_MAX
    )]
    ViewTooLong {
        /// The number of peers.
        peers: usize,
        /// The length of the view, in bytes.
        length: usize,
    },
}

impl SplitBrain {
    pub(crate) const fn policy(&self) -> Policy {
        match self {
            Self::KeepMajority => Policy::KeepMajority,
            Self::StaticQuorum(count) => Policy::StaticQuorum(*count),
            Self::KeepOldest => Policy::KeepOldest,
            Self::Lease(_) => Policy::Lease,
            Self::Available => Policy::Available,
        }
    }
}

/// Hides the store's URL, which may contain a password.
impl fmt::Debug for SplitBrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy().fmt(f)
    }
}

impl SeniorityOptions {
    /// The configuration of a machine.
    pub(crate) fn machine(
        &self,
        me: Identity,
        peers: &BTreeSet<NodeId>,
        attributes: &Arc<Attributes>,
        timers: &Timers,
    ) -> seniority::Config {
        let by_name = || peers.iter().copied().take(SEEDS_MAX).collect();
        seniority::Config {
            me,
            seeds: if self.seeds.is_empty() { by_name() } else { self.seeds.clone() },
            attributes: Arc::clone(attributes),
            heartbeat_interval: timers.renewal.into(),
            neighbours: self.neighbours,
            detection: self.detection.unwrap_or(Detection::Missed { count: timers.miss_count }),
            stable_after: self.stable_after.unwrap_or(timers.lease).into(),
            policy: self.split_brain.policy(),
            store_wait: timers.lease.into(),
            minimum: self.minimum(),
            join_interval: timers.lease.into(),
            answer_wait: timers.answer_timeout.into(),
            probe_interval: timers.lease.into(),
            last_age: Age::MAX,
        }
    }

    pub(crate) fn minimum(&self) -> usize {
        self.minimum_members.unwrap_or(1)
    }

    /// Checks the options that do not depend on the peers.
    pub(crate) fn check(
        &self,
        node: NodeId,
        attributes: &Arc<Attributes>,
        timers: &Timers,
    ) -> Result<(), SeniorityError> {
        if let Some(given) = self.stable_after.filter(|given| given.is_zero() || *given > STABLE_AFTER_MAX) {
            return Err(SeniorityError::StableAfter { given });
        }
        if let Some(Detection::PhiAccrual { threshold_tenths: tenths, .. }) = self.detection
            && !PHI_TENTHS.contains(&tenths)
        {
            return Err(SeniorityError::Threshold { tenths });
        }
        let me = Identity::new(node, Incarnation { count: 0, nonce: 0 });
        let machine = self.machine(me, &BTreeSet::from([node]), attributes, timers);
        machine.check()?;
        let patience = machine.patience();
        if patience > STABLE_AFTER_MAX.into() {
            return Err(SeniorityError::Patience { patience });
        }
        self.check_grace(timers.renewal.into())
    }

    /// Checks that phi-accrual with its shortest patience outlasts one heartbeat interval.
    fn check_grace(&self, interval: core::Duration) -> Result<(), SeniorityError> {
        let Some(phi @ Detection::PhiAccrual { .. }) = self.detection else { return Ok(()) };
        // The patience for intervals without any spread.
        let grace = phi.patience(core::Duration::ZERO);
        if grace < interval { Err(SeniorityError::Grace { grace, interval }) } else { Ok(()) }
    }

    /// All defects of the options among these peers.
    #[cfg(feature = "peers")]
    pub(crate) fn problems_among(
        &self,
        peers: &BTreeSet<NodeId>,
        attributes: &Arc<Attributes>,
    ) -> Vec<SeniorityError> {
        let mut problems = Vec::new();
        if let Some(&seed) = self.seeds.iter().find(|seed| !peers.contains(seed)) {
            let peers = peers.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(", ");
            problems.push(SeniorityError::SeedNotAPeer { seed, peers });
        }
        let (count, minimum) = (peers.len(), self.minimum());
        if minimum == 0 || minimum > count {
            problems.push(SeniorityError::Minimum { minimum, peers: count });
        }
        if let SplitBrain::StaticQuorum(size) = self.split_brain
            && (size > count || self.split_brain.policy().allows_two(count))
        {
            problems.push(SeniorityError::StaticQuorum { size, peers: count });
        }
        // With two peers, one neighbour is all there are.
        if self.neighbours == Some(1) && count > 2 && self.split_brain != SplitBrain::Available {
            problems.push(SeniorityError::OneNeighbour { peers: count });
        }
        if let Err(TooLong(length)) = length_of_view(peers, attributes) {
            problems.push(SeniorityError::ViewTooLong { peers: count, length });
        }
        problems
    }
}

impl Config {
    /// The minimum number of members; `None` if the election has none.
    pub(crate) fn minimum_members(&self) -> Option<usize> {
        (self.kind.algorithm == core::election::Algorithm::Seniority).then(|| self.seniority.minimum())
    }

    /// All problems of the cluster's options that depend on the peers.
    #[cfg(feature = "peers")]
    pub(crate) fn problems_among(&self, peers: &BTreeSet<NodeId>) -> Vec<SeniorityError> {
        let has_cluster = self.kind.algorithm == core::election::Algorithm::Seniority;
        if has_cluster { self.seniority.problems_among(peers, &self.attributes) } else { Vec::new() }
    }
}

#[cfg(feature = "peers")]
#[cfg(test)]
mod tests;
