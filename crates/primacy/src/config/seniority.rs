//! Options of an election by seniority, beside its nodes' names and timers.

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

/// The likelihoods, in tenths, at which phi-accrual may suspect: below the first it suspects members that are merely late, and above the
/// last one waits longer than with any sensible timeout.
const PHI_TENTHS: std::ops::RangeInclusive<u32> = 10..=200;

/// Options of an election by seniority; for [`Builder::seniority`](crate::Builder::seniority). The default is good for a few
/// nodes on one network.
///
/// `seeds` and their order, `neighbours` and `split_brain` must be the same on all nodes; and `detection` and `stable_after` should be,
/// for parts that judge silence differently do not stop and go on at the same time. The others are each node's own.
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
    /// The nodes that a node asks to join, at most 16, of the peers. The first one founds the cluster if no other one belongs to one, and
    /// no other node does: if it is gone for good before there is a cluster, name another one first, on all nodes. Empty: the peers in
    /// the order of their names, the first 16 if there are more.
    pub seeds: Vec<NodeId>,
    /// The number of members next to it on the ring of ages to which a member shows itself; `None`: all. Of three peers or more at least
    /// two, unless each part goes on: so many links must be cut to make others take a living member for lost.
    pub neighbours: Option<u32>,
    /// The rule by which silence is judged; `None`: by as many missed heartbeats as in other elections, see [`Timers`].
    pub detection: Option<Detection>,
    /// The time for which the same members must have been lost before they are removed, or a part stops; at most an hour. `None`: the
    /// lease.
    pub stable_after: Option<Duration>,
    /// The minimum number of members, see [`Elector::check_members`](crate::Elector::check_members); `None`: one.
    pub minimum_members: Option<usize>,
    /// The policy for parts of the cluster that have lost each other.
    pub split_brain: SplitBrain,
    /// The zone that this node tells the other members.
    pub zone: String,
    /// Other attributes for the members, at most eight; with the node's address, its version and the zone 512 bytes together, and fewer
    /// where there are more than a hundred peers, so that a view of all fits into a message.
    pub labels: BTreeMap<String, String>,
}

/// The policy for parts of a cluster that have lost each other.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum SplitBrain {
    /// The part with most of the members goes on; of two halves, the one with the smallest name.
    #[default]
    KeepMajority,
    /// A part of at least this many goes on: more than half of the peers, so that no two parts have that many.
    StaticQuorum(usize),
    /// The part with the oldest member goes on; but where that one is alone, of three or more, it stops, and the others go on if they are
    /// all together.
    KeepOldest,
    /// The part that is first with the store at this URL goes on.
    Lease(String),
    /// Every part goes on, each with a leader.
    Available,
}

/// The reason why a cluster cannot be held with these options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeniorityError {
    /// Seeds, heartbeats or timers cannot work.
    #[error(transparent)]
    Machine(#[from] seniority::ConfigError),
    /// Only peers can be reached.
    #[error("the seed {seed} is not one of the peers ({peers}); name peers as seeds")]
    SeedNotAPeer {
        /// The seed.
        seed: NodeId,
        /// The peers' names.
        peers: String,
    },
    /// No member would ever be removed, or each at once.
    #[error(
        "members that are lost are removed after {given:?}: state more than nothing, or a message that is late costs a \
         member its place, and at most {STABLE_AFTER_MAX:?}"
    )]
    StableAfter {
        /// The configured time.
        given: Duration,
    },
    /// Phi-accrual would suspect every member, or none.
    #[error("phi-accrual suspects at a likelihood from 1 to 20, and this is {}.{}; 8 is usual", .tenths / 10, .tenths % 10)]
    Threshold {
        /// The likelihood, in tenths.
        tenths: u32,
    },
    /// Phi-accrual would suspect a member that is late once.
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
    /// Silence would never be suspicious.
    #[error("a member would be suspected after {patience} of silence; state at most {STABLE_AFTER_MAX:?}")]
    Patience {
        /// The silence after which a member is suspected.
        patience: core::Duration,
    },
    /// No cluster is that small, or that large.
    #[error(
        "a minimum of {minimum} members cannot be: state at least 1, and at most all peers, which are {peers}"
    )]
    Minimum {
        /// The configured number.
        minimum: usize,
        /// The number of peers.
        peers: usize,
    },
    /// No part could go on, or two could.
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
    /// One cut link would remove a living member, and its part would still be connected to the others.
    #[error(
        "with 1 neighbour among {peers} peers one cut link removes a member that all others still reach, and two parts go on at the \
         same time: state at least 2 neighbours, leave it out, or choose available if two leaders may be"
    )]
    OneNeighbour {
        /// The number of peers.
        peers: usize,
    },
    /// A view could not be sent.
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

/// A URL may have a password.
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

    /// Checks the options, as far as that is possible without the peers.
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

    /// Checks that phi-accrual is sound at the strictest that its bounds allow.
    fn check_grace(&self, interval: core::Duration) -> Result<(), SeniorityError> {
        let Some(phi @ Detection::PhiAccrual { .. }) = self.detection else { return Ok(()) };
        // The wait above the mean of the intervals, when they do not spread.
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
        // Of two, either is the only other one.
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
    /// The minimum number of members; `None` where there are none.
    pub(crate) fn minimum_members(&self) -> Option<usize> {
        (self.kind.algorithm == core::election::Algorithm::Seniority).then(|| self.seniority.minimum())
    }

    /// All that is wrong with the cluster, as far as it can be known only with the peers.
    #[cfg(feature = "peers")]
    pub(crate) fn problems_among(&self, peers: &BTreeSet<NodeId>) -> Vec<SeniorityError> {
        match self.kind.algorithm {
            core::election::Algorithm::Seniority => self.seniority.problems_among(peers, &self.attributes),
            core::election::Algorithm::Quorum
            | core::election::Algorithm::Ranked
            | core::election::Algorithm::Bully
            | core::election::Algorithm::Ring
            | core::election::Algorithm::RingBidirectional => Vec::new(),
        }
    }
}

#[cfg(feature = "peers")]
#[cfg(test)]
mod tests;
