//! The hellos that two nodes exchange before they talk, and the reasons for which they refuse to.
//!
//! Nodes that are configured differently for the election must not vote together: two nodes that count majorities of different voter
//! sets can elect two leaders. So each side judges the other's [`Hello`], and a [`Refusal`] names both sides' values, because its
//! reader sees only one side's configuration.
//!
//! Where metadata is kept, voters come and go, and nodes learn of it one after the other. The election ensures that no node is elected
//! by an old set. So nodes whose sets differ talk there, as long as it is plain which set is the newer one; they must, for only so does
//! the other side learn of it.
//!
//! This file is pure: it judges, and `transport/` carries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use primacy_core::election::Algorithm;
use primacy_core::election::quorum::Safety;
use primacy_core::hard_state::Durability;
use primacy_core::membership::Policy;
use primacy_core::{Identity, Incarnation, LeaderSequence, NodeId};
use primacy_stores::StoreId;

use crate::versions::Versions;

/// The first message of each side of a connection, which describes its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions of the protocol that it speaks: [`SPOKEN`](crate::versions::SPOKEN).
    pub versions: Versions,
    /// The cluster that it belongs to: a name that keeps two installations apart which reach each other's
    /// ports.
    pub cluster: String,
    /// The election that it takes part in.
    pub election: String,
    /// Its incarnation; of a guardian, the incarnation that it guards.
    pub identity: Identity,
    /// The process that sends it: the node itself, or its guardian.
    pub role: Role,
    /// The number that was drawn when its durable state was made.
    pub disk: DiskId,
    /// The node that it dials and the disk with which it knows that one, if it has met it before. Another node may answer.
    pub known_disk: Option<(NodeId, DiskId)>,
    /// Every node whose vote it counts.
    pub voters: Voters,
    /// The record that states these voters, where metadata is kept; [`LeaderSequence::NONE`] if they are those of its
    /// configuration.
    pub voters_number: LeaderSequence,
    /// The safety that it takes the election to promise.
    pub safety: Safety,
    /// Its priority: nodes of higher priority campaign first.
    pub priority: u32,
    /// True if it only votes and never campaigns.
    pub witness: bool,
    /// The kind of election.
    pub kind: ElectionKind,
    /// The policy for parts of the cluster that have lost each other; in an election by seniority.
    pub split_brain: Option<Policy>,
    /// The store that they meet in besides, which confirms leaders or decides about splits.
    pub store: Option<StoreId>,
    /// The condition under which a node holds a record of the metadata, if the nodes keep any together.
    pub metadata: Option<Durability>,
}

/// The way in which a leader is found among peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElectionKind {
    /// The algorithm of the election; in a confirmed election, of the nomination.
    pub algorithm: Algorithm,
    /// The confirmation of a nominee, if it needs one.
    pub confirmation: Option<Confirmation>,
}

/// The means by which a nomination is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confirmation {
    /// A majority of the peers.
    Quorum,
    /// A lease in a store.
    Store,
}

impl ElectionKind {
    /// True if its leaders have a token.
    #[must_use]
    pub const fn is_fenced(self) -> bool {
        self.algorithm.is_fenced() || self.confirmation.is_some()
    }
}

impl ElectionKind {
    /// True if a leader can transfer its lead to a node of its choice. Elsewhere the algorithm determines the next leader.
    #[must_use]
    pub const fn can_transfer(self) -> bool {
        self.algorithm.is_fenced()
    }

    /// True if no node leads without a majority of the peers.
    #[must_use]
    pub const fn needs_majority(self) -> bool {
        self.algorithm.is_fenced() || matches!(self.confirmation, Some(Confirmation::Quorum))
    }
}

impl fmt::Display for ElectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.algorithm.fmt(f)?;
        match self.confirmation {
            Some(Confirmation::Quorum) => f.write_str(", confirmed by a quorum"),
            Some(Confirmation::Store) => f.write_str(", confirmed by a store"),
            None => Ok(()),
        }
    }
}

/// The role of the process at one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The node itself: what comes over this connection takes part in the election.
    Node,
    /// The guardian of the incarnation that the [`Hello`] names: it may only report that incarnation's death.
    GuardianOf,
}

/// The number of a node's durable state, drawn at random when that was made.
///
/// A node whose disk was wiped comes back with another one. It has forgotten its votes, so its peers must
/// notice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub [u8; DiskId::LENGTH]);

/// A node's record of a peer's durable state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerDisk {
    /// The disk that counts.
    pub disk: DiskId,
    /// True if an operator has readmitted the peer with it, because it may have lost an earlier one.
    pub readmitted: bool,
    /// The disks that were replaced. None of them comes back: none of them holds the votes cast since.
    pub former: BTreeSet<DiskId>,
}

/// A set of voters, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voters(Vec<NodeId>);

/// The reason why one node does not talk to another. Its text names both sides' values, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The node that refuses.
    pub by: NodeId,
    /// The node that is refused.
    pub of: NodeId,
    /// The configuration mismatch.
    pub reason: ConfigMismatch,
}

/// A configuration mismatch between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigMismatch {
    /// There is no version of the protocol that both speak.
    ProtocolVersion {
        /// The refuser's.
        mine: Versions,
        /// The refused one's.
        theirs: Versions,
    },
    /// They belong to different clusters.
    Cluster {
        /// The refuser's.
        mine: String,
        /// The refused one's.
        theirs: String,
    },
    /// They take part in different elections.
    Election {
        /// The refuser's.
        mine: String,
        /// The refused one's.
        theirs: String,
    },
    /// The other side has the refuser's own name; with the same incarnation it is the refuser itself.
    MyOwnName {
        /// The refuser's.
        mine: Incarnation,
        /// The refused one's.
        theirs: Incarnation,
    },
    /// The node that answers at an address is not the one that the configuration names.
    OtherNode {
        /// The node that the refuser expected to find.
        expected: NodeId,
    },
    /// They count the votes of different sets.
    Voters {
        /// The refuser's.
        mine: Voters,
        /// The refused one's.
        theirs: Voters,
        /// The record that states them, by both sides' account; none if they are from a configuration.
        number: LeaderSequence,
    },
    /// The other side is none of the voters. It may have been removed, or was not added yet.
    NotAVoter {
        /// The refuser's.
        voters: Voters,
        /// The record that states them, where voters can be added; none if they are from a configuration.
        number: Option<LeaderSequence>,
    },
    /// They hold different elections.
    Algorithm {
        /// The refuser's.
        mine: ElectionKind,
        /// The refused one's.
        theirs: ElectionKind,
    },
    /// They take the election to promise different things.
    Safety {
        /// The refuser's.
        mine: Safety,
        /// The refused one's.
        theirs: Safety,
    },
    /// They would do different things when they lose each other.
    SplitBrain {
        /// The refuser's.
        mine: Option<Policy>,
        /// The refused one's.
        theirs: Option<Policy>,
    },
    /// Each asks another store.
    Store {
        /// The refuser's.
        mine: Option<StoreId>,
        /// The refused one's.
        theirs: Option<StoreId>,
    },
    /// They keep metadata together, and one of them does not, or means something else by holding it.
    Metadata {
        /// The refuser's.
        mine: Option<Durability>,
        /// The refused one's.
        theirs: Option<Durability>,
    },
    /// The other side's durable state is not the one that the refuser has recorded.
    Disk {
        /// The disk that the refuser has recorded.
        recorded: DiskId,
        /// The disk that the refused node has now.
        presented: DiskId,
        /// True if it had that one earlier, and came with another since.
        former: bool,
        /// True if it is one of the refuser's voters.
        votes: bool,
    },
}

/// The kinds of [`ConfigMismatch`], to count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalKind {
    /// See [`ConfigMismatch::ProtocolVersion`].
    ProtocolVersion,
    /// See [`ConfigMismatch::Cluster`].
    Cluster,
    /// See [`ConfigMismatch::Election`].
    Election,
    /// See [`ConfigMismatch::MyOwnName`].
    MyOwnName,
    /// See [`ConfigMismatch::OtherNode`].
    OtherNode,
    /// See [`ConfigMismatch::Voters`].
    Voters,
    /// See [`ConfigMismatch::NotAVoter`].
    NotAVoter,
    /// See [`ConfigMismatch::Algorithm`].
    Algorithm,
    /// See [`ConfigMismatch::Safety`].
    Safety,
    /// See [`ConfigMismatch::SplitBrain`].
    SplitBrain,
    /// See [`ConfigMismatch::Store`].
    Store,
    /// See [`ConfigMismatch::Metadata`].
    Metadata,
    /// See [`ConfigMismatch::Disk`].
    Disk,
    /// The other side's disk was replaced by the recorded one; see [`ConfigMismatch::Disk`].
    DiskReplaced,
    /// Transport security failed before any message.
    Tls(TlsProblem),
    /// A reason that only a later version knows; its text has more.
    Unknown,
}

/// The reason why two nodes have no protected connection, or must not have an unprotected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsProblem {
    /// One speaks cleartext where TLS is expected.
    Cleartext,
    /// One speaks TLS where cleartext is expected.
    NotCleartext,
    /// There is no certificate.
    NoCertificate,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// Expired or not valid yet: what is heard from the other side does not tell which.
    OutOfDate,
    /// The certificate is of an authority that does not count.
    UnknownIssuer,
    /// The certificate is of another node.
    OtherName,
    /// The certificate may not be used on this side of a connection.
    Purpose,
    /// The certificate is damaged or wrongly signed, or it is refused without a reason.
    BadCertificate,
    /// They have no version or method of TLS in common.
    Incompatible,
    /// The bytes are not TLS, or were tampered with.
    Garbled,
}

impl RefusalKind {
    /// True if the two nodes are configured differently for the election that both mean to take part in.
    #[must_use]
    pub const fn is_about_the_election(self) -> bool {
        match self {
            Self::Voters | Self::Algorithm | Self::Safety | Self::SplitBrain | Self::Store => true,
            Self::Metadata => true,
            Self::ProtocolVersion | Self::Cluster | Self::Election | Self::MyOwnName => false,
            Self::OtherNode | Self::NotAVoter | Self::Disk | Self::DiskReplaced => false,
            Self::Tls(_) | Self::Unknown => false,
        }
    }

    /// The kind as figures and JSON name it, such as `voters` or `tls_expired`. These names do not change.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ProtocolVersion => "protocol_version",
            Self::Cluster => "cluster",
            Self::Election => "election",
            Self::MyOwnName => "my_own_name",
            Self::OtherNode => "other_node",
            Self::Voters => "voters",
            Self::NotAVoter => "not_a_voter",
            Self::Algorithm => "algorithm",
            Self::Safety => "safety",
            Self::SplitBrain => "split_brain",
            Self::Metadata => "metadata",
            Self::Store => "store",
            Self::Disk => "disk",
            Self::DiskReplaced => "disk_replaced",
            Self::Tls(problem) => problem.name(),
            Self::Unknown => "unknown",
        }
    }
}

impl TlsProblem {
    fn name(self) -> &'static str {
        match self {
            Self::Cleartext => "tls_cleartext",
            Self::NotCleartext => "tls_not_cleartext",
            Self::NoCertificate => "tls_no_certificate",
            Self::Expired => "tls_expired",
            Self::NotYetValid => "tls_not_yet_valid",
            Self::OutOfDate => "tls_out_of_date",
            Self::UnknownIssuer => "tls_unknown_issuer",
            Self::OtherName => "tls_other_name",
            Self::Purpose => "tls_purpose",
            Self::BadCertificate => "tls_bad_certificate",
            Self::Incompatible => "tls_incompatible",
            Self::Garbled => "tls_garbled",
        }
    }
}

/// A node's knowledge of others before they send anything.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The disks that it has seen its peers with.
    pub disks: &'a BTreeMap<NodeId, PeerDisk>,
    /// The nodes that it is to reach. Where metadata is kept, these may be more than the voters.
    pub peers: &'a BTreeSet<NodeId>,
}

/// Checks that `mine` may talk to `theirs`, with this node's knowledge of others.
///
/// A peer without a recorded disk is taken at its word; the caller records the disk before it counts a
/// message.
///
/// # Errors
/// The first [`Refusal`] in an order that puts the causes before their consequences: nodes of two clusters
/// also differ in their voters, and the cluster is what an operator must hear of.
pub fn judge(mine: &Hello, known: Known<'_>, theirs: &Hello) -> Result<(), Box<Refusal>> {
    let node = theirs.identity.node;
    if mine.versions.common(theirs.versions).is_none() {
        return Err(Box::new(mine.of_other_version(node, theirs.versions)));
    }
    // Where no vote counts, none can be forgotten.
    let counts = mine.kind.needs_majority() && mine.kind == theirs.kind;
    let other_disk = known.disks.get(&node).filter(|seen| counts && seen.disk != theirs.disk);
    let other_disk = other_disk.map(|seen| {
        let former = seen.former.contains(&theirs.disk);
        let votes = mine.voters.contains(node);
        ConfigMismatch::Disk { recorded: seen.disk, presented: theirs.disk, former, votes }
    });
    let reason = if mine.cluster != theirs.cluster {
        ConfigMismatch::Cluster { mine: mine.cluster.clone(), theirs: theirs.cluster.clone() }
    } else if mine.election != theirs.election {
        ConfigMismatch::Election { mine: mine.election.clone(), theirs: theirs.election.clone() }
    } else if mine.identity.node == node {
        ConfigMismatch::MyOwnName { mine: mine.identity.incarnation, theirs: theirs.identity.incarnation }
    } else if let Some(other_disk) = other_disk {
        // It may count other voters because it has lost its disk, even if it was removed: it must not elect among the former voters.
        other_disk
    } else if mine.voters_number == theirs.voters_number && mine.voters != theirs.voters {
        let (mine, number) = (mine.voters.clone(), mine.voters_number);
        ConfigMismatch::Voters { mine, theirs: theirs.voters.clone(), number }
    } else if !mine.is_concerned_with(known.peers, theirs) {
        let number = mine.metadata.map(|_| mine.voters_number);
        ConfigMismatch::NotAVoter { voters: mine.voters.clone(), number }
    } else if mine.kind != theirs.kind {
        ConfigMismatch::Algorithm { mine: mine.kind, theirs: theirs.kind }
    } else if mine.safety != theirs.safety {
        ConfigMismatch::Safety { mine: mine.safety, theirs: theirs.safety }
    } else if mine.split_brain != theirs.split_brain {
        ConfigMismatch::SplitBrain { mine: mine.split_brain, theirs: theirs.split_brain }
    } else if mine.store != theirs.store {
        ConfigMismatch::Store { mine: mine.store, theirs: theirs.store }
    } else if mine.metadata != theirs.metadata {
        ConfigMismatch::Metadata { mine: mine.metadata, theirs: theirs.metadata }
    } else {
        return Ok(());
    };
    Err(Box::new(Refusal { by: mine.identity.node, of: node, reason }))
}

/// Judges as [`judge`] does, on the dialling side, which also knows the node that it meant to reach.
///
/// # Errors
/// As [`judge`], and if another node than `expected` has answered.
pub fn judge_answer(
    mine: &Hello,
    known: Known<'_>,
    expected: NodeId,
    theirs: &Hello,
) -> Result<(), Box<Refusal>> {
    judge(mine, known, theirs)?;
    let node = theirs.identity.node;
    if node != expected {
        let reason = ConfigMismatch::OtherNode { expected };
        return Err(Box::new(Refusal { by: mine.identity.node, of: node, reason }));
    }
    Ok(())
}

impl Hello {
    /// The reason why this node does not talk to a node that speaks none of its versions. It can be given even if the rest of that
    /// node's hello cannot be read.
    #[must_use]
    pub fn of_other_version(&self, node: NodeId, theirs: Versions) -> Refusal {
        let reason = ConfigMismatch::ProtocolVersion { mine: self.versions, theirs };
        Refusal { by: self.identity.node, of: node, reason }
    }

    /// True if `theirs`, the hello of a voter that counts this node as a voter, shows that this node has another disk than that voter
    /// has recorded.
    ///
    /// The dialling side reports it, because this node may refuse the voter for another reason: the voters that it assumed when it had
    /// lost its disk.
    #[must_use]
    pub fn is_known_otherwise_by(&self, theirs: &Self) -> bool {
        let same =
            self.cluster == theirs.cluster && self.election == theirs.election && self.kind == theirs.kind;
        let me = self.identity.node;
        let is_of_a_voter =
            theirs.role == Role::Node && theirs.identity.node != me && theirs.voters.contains(me);
        let differs = theirs.known_disk.is_some_and(|(node, known)| node == me && known != self.disk);
        same && self.kind.needs_majority() && is_of_a_voter && differs
    }

    /// The hello of this node's guardian: the same, in its role.
    #[must_use]
    pub fn of_guardian(&self) -> Self {
        Self { role: Role::GuardianOf, ..self.clone() }
    }

    /// True if the other side has a part in the same election, as far as this one knows: it votes, or is about to.
    fn is_concerned_with(&self, peers: &BTreeSet<NodeId>, theirs: &Self) -> bool {
        let node = theirs.identity.node;
        // A node that was away while all others were replaced knows none of them, and no other node can tell it. A hello with a newer
        // set is enough to talk; in an election it is weighed again. The set need not name this node: a leader that brings a removed
        // node up to date does not count it yet.
        let knows_more = theirs.voters_number > self.voters_number && theirs.voters.contains(node);
        self.voters.contains(node) || self.metadata.is_some() && (peers.contains(&node) || knows_more)
    }
}

impl PeerDisk {
    /// A disk that is seen for the first time.
    #[must_use]
    pub const fn first(disk: DiskId) -> Self {
        Self { disk, readmitted: false, former: BTreeSet::new() }
    }

    /// Records that the peer counts with this disk from now on, and never again with its former one.
    pub fn readmit(&mut self, disk: DiskId) {
        let before = std::mem::replace(&mut self.disk, disk);
        if before != disk {
            self.former.insert(before);
        }
        self.readmitted = true;
    }
}

impl DiskId {
    /// The length of an id, in bytes.
    pub const LENGTH: usize = 16;

    /// Parses what [`fmt::Display`] prints: 32 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::LENGTH || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

impl Voters {
    /// The set of these nodes; their order does not matter, nor does a repeated name.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
        nodes.sort_unstable();
        nodes.dedup();
        Self(nodes)
    }

    /// True if this node's vote counts.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.binary_search(&node).is_ok()
    }

    /// The voters, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().copied()
    }

    /// A number that tells sets apart: FNV-1a of the names, each ended by a zero byte. It does not protect from forgery, and need not:
    /// any node that may take part can claim any voters.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let names = self.0.iter().flat_map(|node| node.as_str().bytes().chain([0]));
        for byte in names {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash
    }
}

impl Refusal {
    /// The kind under which it is counted.
    #[must_use]
    pub const fn kind(&self) -> RefusalKind {
        match self.reason {
            ConfigMismatch::ProtocolVersion { .. } => RefusalKind::ProtocolVersion,
            ConfigMismatch::Cluster { .. } => RefusalKind::Cluster,
            ConfigMismatch::Election { .. } => RefusalKind::Election,
            ConfigMismatch::MyOwnName { .. } => RefusalKind::MyOwnName,
            ConfigMismatch::OtherNode { .. } => RefusalKind::OtherNode,
            ConfigMismatch::Voters { .. } => RefusalKind::Voters,
            ConfigMismatch::NotAVoter { .. } => RefusalKind::NotAVoter,
            ConfigMismatch::Algorithm { .. } => RefusalKind::Algorithm,
            ConfigMismatch::Safety { .. } => RefusalKind::Safety,
            ConfigMismatch::SplitBrain { .. } => RefusalKind::SplitBrain,
            ConfigMismatch::Metadata { .. } => RefusalKind::Metadata,
            ConfigMismatch::Store { .. } => RefusalKind::Store,
            ConfigMismatch::Disk { former: false, .. } => RefusalKind::Disk,
            ConfigMismatch::Disk { former: true, .. } => RefusalKind::DiskReplaced,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, of, reason } = self;
        write!(f, "{by} refuses {of}: ")?;
        match reason {
            ConfigMismatch::ProtocolVersion { mine, theirs } => {
                let older = if mine.highest < theirs.lowest { by } else { of };
                write!(
                    f,
                    "{of} speaks {theirs} of the protocol, {by} speaks {mine}, and they have none in common; upgrade {older}, one \
                     version after the other"
                )
            }
            ConfigMismatch::Cluster { mine, theirs } => write!(
                f,
                "{of} belongs to the cluster {theirs:?}, {by} to {mine:?}; correct the cluster or the address"
            ),
            ConfigMismatch::Election { mine, theirs } => write!(
                f,
                "{of} takes part in the election {theirs:?}, {by} in {mine:?}; correct the name or the address"
            ),
            ConfigMismatch::MyOwnName { mine, theirs } if mine == theirs => {
                write!(f, "this address leads {by} back to itself; correct the addresses of the peers")
            }
            ConfigMismatch::MyOwnName { mine, theirs } => write!(
                f,
                "two processes are called {by} (incarnations {mine} and {theirs}); give each node its own name"
            ),
            ConfigMismatch::OtherNode { expected } => {
                write!(f, "{of} answers where {expected} should be; correct the addresses of the peers")
            }
            ConfigMismatch::Voters { mine, theirs, number } => self.of_voters(f, mine, theirs, *number),
            ConfigMismatch::NotAVoter { voters, number } => self.of_no_voter(f, voters, *number),
            ConfigMismatch::Algorithm { mine, theirs } => {
                write!(f, "{of} elects by {theirs}, {by} by {mine}; give all nodes the same")
            }
            ConfigMismatch::Safety { mine, theirs } => {
                let (mine, theirs) = (safety_name(*mine), safety_name(*theirs));
                write!(f, "{of} has safety = {theirs}, {by} has safety = {mine}; give all nodes the same")
            }
            ConfigMismatch::SplitBrain { mine, theirs } => {
                let (mine, theirs) = (policy_name(*mine), policy_name(*theirs));
                write!(
                    f,
                    "in a split {of} does {theirs}, {by} does {mine}; give all nodes the same split-brain policy"
                )
            }
            ConfigMismatch::Metadata { mine, theirs } => {
                let (mine, theirs) = (durability_name(*mine), durability_name(*theirs));
                write!(f, "{of} keeps {theirs}, {by} keeps {mine}; give all nodes the same")
            }
            ConfigMismatch::Store { mine, theirs } => {
                let (mine, theirs) = (store_id_name(*mine), store_id_name(*theirs));
                write!(
                    f,
                    "{of} asks the store with the mark {theirs}, {by} the one with the mark {mine}, so each could let \
                     another lead; give all nodes the same store, which all of them reach"
                )
            }
            ConfigMismatch::Disk { recorded, presented, votes: false, .. } => write!(
                f,
                "{of} comes with the disk {presented}, {by} knows it with the disk {recorded}, and it is none of the voters any more: \
                 stop it, or start it under another name and add that: `primacy member add NAME=HOST:PORT`"
            ),
            ConfigMismatch::Disk { recorded, presented, former, votes: true } => {
                self.of_disk(f, *recorded, *presented, *former)
            }
        }
    }
}

impl Refusal {
    fn of_voters(
        &self,
        f: &mut fmt::Formatter<'_>,
        mine: &Voters,
        theirs: &Voters,
        number: LeaderSequence,
    ) -> fmt::Result {
        let Self { by, of, .. } = self;
        match number {
            LeaderSequence::NONE => write!(
                f,
                "their voters differ: {of} has {theirs}, {by} has {mine}; give all nodes the same voters"
            ),
            number => write!(
                f,
                "their voters differ, and both are stated by a record {number}: {of} has {theirs}, {by} has {mine}; these \
                 are two clusters, so give one of them another name and begin it anew"
            ),
        }
    }

    fn of_no_voter(
        &self,
        f: &mut fmt::Formatter<'_>,
        voters: &Voters,
        number: Option<LeaderSequence>,
    ) -> fmt::Result {
        let of = self.of;
        let stated = match number {
            None => {
                return write!(
                    f,
                    "{of} is none of the voters {voters}; add it to all nodes' voters, or stop it"
                );
            }
            Some(LeaderSequence::NONE) => "of the configuration".to_owned(),
            Some(number) => format!("of the record {number}"),
        };
        write!(
            f,
            "{of} is none of the voters {voters} {stated}; stop it, or add it on a node of the cluster: \
             `primacy member add {of}=HOST:PORT`, with the address at which the others reach it"
        )
    }

    fn of_disk(
        &self,
        f: &mut fmt::Formatter<'_>,
        recorded: DiskId,
        presented: DiskId,
        former: bool,
    ) -> fmt::Result {
        let Self { by, of, .. } = self;
        match former {
            false => write!(
                f,
                "{of} comes with the disk {presented}, {by} knows it with the disk {recorded}. It may have \
                 forgotten its votes: an operator must readmit it, or bring the old state directory back"
            ),
            true => write!(
                f,
                "{of} comes with the disk {presented}, which was replaced by the disk {recorded} and has missed \
                 what {of} voted with that one: bring the newer state directory back, or move this one away and \
                 start {of} with an empty one"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

pub(crate) const fn safety_name(safety: Safety) -> &'static str {
    match safety {
        Safety::Lease => "lease",
        Safety::Fenced => "fenced",
    }
}

fn policy_name(policy: Option<Policy>) -> String {
    policy.map_or_else(|| "nothing".to_owned(), |policy| policy.to_string())
}

fn durability_name(durability: Option<Durability>) -> &'static str {
    match durability {
        None => "no metadata",
        Some(Durability::Fsync) => "metadata on its disk",
        Some(Durability::Memory) => "metadata in memory",
    }
}

fn store_id_name(mark: Option<StoreId>) -> String {
    mark.map_or_else(|| "of none".to_owned(), |mark| mark.to_string())
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Voters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (position, node) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{node}")?;
        }
        f.write_str("}")
    }
}

impl FromIterator<NodeId> for Voters {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        Self::new(nodes)
    }
}

#[cfg(test)]
pub(crate) mod tests;
