//! The elections that are compared, with the settings that `primacy run` gives them.

use primacy_core::Duration;
use primacy_core::election::confirmed::DAMPING_COUNT;
use primacy_core::election::seniority::SEEDS_MAX;

use super::{Setup, names};
use crate::swarm::text;

/// An election that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// Among peers, by a majority.
    Quorum,
    /// Over an expiring record in a store.
    Lease,
    /// Over a queue of sessions in a store.
    Session,
    /// Among peers, by a majority of votes for the best claim.
    Ranked,
    /// Bully nominates, a quorum confirms.
    Confirmed,
    /// Bully nominates, a lease in a store confirms.
    ConfirmedLease,
    /// The oldest member of a cluster.
    Seniority(Split),
    /// Bully: the highest name leads.
    Bully,
    /// Chang and Roberts' ring: the highest name leads.
    Ring,
    /// Hirschberg and Sinclair's bidirectional ring: the highest name leads.
    RingBidirectional,
    /// Omega: the lowest name leads.
    Omega,
}

/// The split policy of a cluster by seniority: the policies with the most visible differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Split {
    /// The larger part goes on.
    KeepMajority,
    /// The part with the oldest member goes on.
    KeepOldest,
    /// The part that wins a lease in a store goes on.
    Lease,
    /// All parts go on.
    Available,
}

impl Contender {
    /// All contenders, in the order of the tables.
    pub const ALL: &[Self] = &[
        Self::Quorum,
        Self::Lease,
        Self::Session,
        Self::Ranked,
        Self::Confirmed,
        Self::ConfirmedLease,
        Self::Seniority(Split::KeepMajority),
        Self::Seniority(Split::KeepOldest),
        Self::Seniority(Split::Lease),
        Self::Seniority(Split::Available),
        Self::Bully,
        Self::Ring,
        Self::RingBidirectional,
        Self::Omega,
    ];

    /// The name of the election and its variant.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Lease => "lease",
            Self::Session => "session",
            Self::Ranked => "ranked",
            Self::Confirmed => "confirmed",
            Self::ConfirmedLease => "confirmed_lease",
            Self::Seniority(Split::KeepMajority) => "seniority",
            Self::Seniority(Split::KeepOldest) => "seniority_keep_oldest",
            Self::Seniority(Split::Lease) => "seniority_lease",
            Self::Seniority(Split::Available) => "seniority_available",
            Self::Bully => "bully",
            Self::Ring => "ring",
            Self::RingBidirectional => "ring_bidirectional",
            Self::Omega => "omega",
        }
    }

    /// The contender of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|contender| contender.name() == name)
    }

    /// True if its leaders have a token, so that a resource can refuse a replaced leader.
    #[must_use]
    pub const fn is_fenced(self) -> bool {
        match self {
            Self::Quorum | Self::Lease | Self::Session | Self::Ranked => true,
            Self::Confirmed | Self::ConfirmedLease => true,
            Self::Seniority(_) | Self::Bully | Self::Ring | Self::RingBidirectional | Self::Omega => false,
        }
    }

    /// Returns the settings of each of its nodes.
    pub(super) fn settings(self, setup: &Setup) -> Vec<(String, String)> {
        let twice = |lease: Duration| text(lease.times(2));
        let damping = text(setup.peers.renewal.times(u64::from(DAMPING_COUNT)));
        let nominates = || bully("nominate.", setup).into_iter().chain(pairs([("damping", damping.clone())]));
        match self {
            Self::Quorum => quorum(setup),
            Self::Lease => lease(setup),
            Self::Session => session(setup),
            Self::Ranked => ranked(setup),
            Self::Confirmed => {
                let patience = pairs([("patience", twice(setup.peers.lease))]);
                nominates().chain(patience).chain(quorum(setup)).collect()
            }
            Self::ConfirmedLease => {
                let patience = pairs([("patience", twice(setup.store.lease))]);
                nominates().chain(patience).chain(lease(setup)).collect()
            }
            Self::Seniority(split) => seniority(setup, split),
            Self::Bully | Self::Omega => bully("", setup),
            Self::Ring | Self::RingBidirectional => ring(setup),
        }
    }
}

fn pairs<const N: usize>(pairs: [(&str, String); N]) -> Vec<(String, String)> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn quorum(Setup { peers, .. }: &Setup) -> Vec<(String, String)> {
    pairs([
        ("heartbeat_interval", text(peers.renewal)),
        ("miss_count", peers.miss_count.to_string()),
        ("promise_duration", text(peers.lease)),
        ("initial_wait", text(peers.initial_wait)),
        ("random_wait_max", text(peers.random_wait_max)),
        ("round_timeout", text(peers.answer_timeout)),
        ("stagger", text(peers.stagger)),
    ])
}

fn lease(Setup { store, .. }: &Setup) -> Vec<(String, String)> {
    pairs([
        ("duration", text(store.lease)),
        ("renew_interval", text(store.renewal)),
        ("request_timeout", text(store.answer_timeout)),
        ("poll_interval", text(store.poll_interval)),
    ])
}

fn session(Setup { store, .. }: &Setup) -> Vec<(String, String)> {
    pairs([
        ("timeout", text(store.lease)),
        ("keep_alive_interval", text(store.renewal)),
        ("look_interval", text(store.renewal)),
        ("request_timeout", text(store.answer_timeout)),
        ("poll_interval", text(store.poll_interval)),
    ])
}

fn ranked(Setup { peers, .. }: &Setup) -> Vec<(String, String)> {
    pairs([
        ("heartbeat_interval", text(peers.renewal)),
        ("miss_count", peers.miss_count.to_string()),
        ("gathering", text(peers.stagger)),
    ])
}

fn bully(prefix: &str, Setup { peers, .. }: &Setup) -> Vec<(String, String)> {
    let settings = pairs([
        ("heartbeat_interval", text(peers.renewal)),
        ("miss_count", peers.miss_count.to_string()),
        ("answer_timeout", text(peers.answer_timeout)),
    ]);
    settings.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)).collect()
}

fn ring(Setup { peers, .. }: &Setup) -> Vec<(String, String)> {
    pairs([
        ("heartbeat_interval", text(peers.renewal)),
        ("miss_count", peers.miss_count.to_string()),
        ("hop_timeout", text(peers.answer_timeout)),
    ])
}

fn seniority(Setup { peers, nodes, .. }: &Setup, split: Split) -> Vec<(String, String)> {
    let seeds: Vec<String> = names(*nodes).into_iter().take(SEEDS_MAX).map(|name| name.to_string()).collect();
    let policy = match split {
        Split::KeepMajority => "keep-majority",
        Split::KeepOldest => "keep-oldest",
        Split::Lease => "lease",
        Split::Available => "available",
    };
    pairs([
        ("policy", policy.to_owned()),
        ("seeds", seeds.join(",")),
        ("heartbeat_interval", text(peers.renewal)),
        ("miss_count", peers.miss_count.to_string()),
        ("stable_after", text(peers.lease)),
        ("store_wait", text(peers.lease)),
        ("join_interval", text(peers.lease)),
        ("answer_wait", text(peers.answer_timeout)),
        ("probe_interval", text(peers.lease)),
    ])
}
