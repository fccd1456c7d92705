//! The hellos that two nodes exchange when they connect, and the reasons to refuse the connection.
//!
//! Nodes with different configurations of the election must not vote together: two nodes that count majorities of different voter
//! sets can elect two leaders. So each side judges the other's [`Hello`]. A [`Refusal`] names both sides' values, because its reader
//! sees only one side's configuration.
//!
//! With metadata, voters are added and removed, and nodes learn of it one after the other. The election ensures that no node is elected
//! by an outdated set. So nodes with different sets may connect if it is clear which set is newer; they must, because that is how the
//! other side learns the newer set.
//!
//! This file only judges; `transport/` sends and receives.

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
    /// The cluster to which it belongs. Two installations that reach each other's ports refuse each other by it.
    pub cluster: String,
    /// The election that it takes part in.
    pub election: String,
    /// Its incarnation; for a guardian, that of its node.
    pub identity: Identity,
    /// The sender: the node itself, or its guardian.
    pub role: Role,
    /// The disk id of its durable state.
    pub disk: DiskId,
    /// The node that it dials, with the disk that it has recorded for that node, if any. Another node may answer.
    pub known_disk: Option<(NodeId, DiskId)>,
    /// Every node whose vote it counts.
    pub voters: Voters,
    /// With metadata: the record that states these voters; [`LeaderSequence::NONE`] if they are the configured ones.
    pub voters_number: LeaderSequence,
    /// The configured safety of the election.
    pub safety: Safety,
    /// Its priority: nodes of higher priority campaign first.
    pub priority: u32,
    /// True if it only votes and never campaigns.
    pub witness: bool,
    /// The kind of election.
    pub kind: ElectionKind,
    /// The policy for parts of the cluster that have lost each other; in an election by seniority.
    pub split_brain: Option<Policy>,
    /// The store that the nodes share, which confirms leaders or decides splits.
    pub store: Option<StoreId>,
    /// The durability of the metadata; `None` if the nodes keep none.
    pub metadata: Option<Durability>,
}

/// The kind of an election among peers: its algorithm and its confirmation.
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
    /// True if a leader can transfer its lead to a chosen node. In other elections the algorithm determines the next
    /// leader.
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
    /// The node itself, which takes part in the election.
    Node,
    /// The guardian of the incarnation in the [`Hello`]: it may only report that incarnation's death.
    GuardianOf,
}

/// The id of a node's durable state, drawn at random when that is created.
///
/// A node whose disk was wiped comes back with another id. It has forgotten its votes, so its peers must notice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub [u8; DiskId::LENGTH]);

/// A node's record of a peer's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerDisk {
    /// The accepted disk.
    pub disk: DiskId,
    /// True if an operator has readmitted the peer with this disk, because it may have lost an earlier one.
    pub readmitted: bool,
    /// Former disks. They are never accepted again: they lack the votes cast since.
    pub former: BTreeSet<DiskId>,
}

/// A set of voters, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voters(Vec<NodeId>);

/// The refusal of one node by another. Its text names both sides' values, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The node that refuses.
    pub by: NodeId,
    /// The node that is refused.
    pub of: NodeId,
    /// The configuration mismatch.
    pub reason: ConfigMismatch,
}

/// A configuration mismatch between two nodes, as the refusing node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigMismatch {
    /// There is no version of the protocol that both speak.
    ProtocolVersion {
        /// The refusing node's.
        mine: Versions,
        /// The refused node's.
        theirs: Versions,
    },
    /// They belong to different clusters.
    Cluster {
        /// The refusing node's.
        mine: String,
        /// The refused node's.
        theirs: String,
    },
    /// They take part in different elections.
    Election {
        /// The refusing node's.
        mine: String,
        /// The refused node's.
        theirs: String,
    },
    /// The other side has this node's own name; with the same incarnation it is this node itself.
    MyOwnName {
        /// The refusing node's.
        mine: Incarnation,
        /// The refused node's.
        theirs: Incarnation,
    },
    /// Another node answers at an address than the one that the configuration names.
    OtherNode {
        /// The node that the refusing node has dialled.
        expected: NodeId,
    },
    /// They count the votes of different voters.
    Voters {
        /// The refusing node's.
        mine: Voters,
        /// The refused node's.
        theirs: Voters,
        /// The record that states them, on both sides; none if they are the configured ones.
        number: LeaderSequence,
    },
    /// The other side is not a voter: it may have been removed, or not added yet.
    NotAVoter {
        /// The refusing node's.
        voters: Voters,
        /// With metadata, the record that states them; none if they are the configured ones.
        number: Option<LeaderSequence>,
    },
    /// They have different kinds of election.
    Algorithm {
        /// The refusing node's.
        mine: ElectionKind,
        /// The refused node's.
        theirs: ElectionKind,
    },
    /// They are configured with different safety.
    Safety {
        /// The refusing node's.
        mine: Safety,
        /// The refused node's.
        theirs: Safety,
    },
    /// They have different policies for a split cluster.
    SplitBrain {
        /// The refusing node's.
        mine: Option<Policy>,
        /// The refused node's.
        theirs: Option<Policy>,
    },
    /// They use different stores.
    Store {
        /// The refusing node's.
        mine: Option<StoreId>,
        /// The refused node's.
        theirs: Option<StoreId>,
    },
    /// Only one of them keeps metadata, or they differ in its durability.
    Metadata {
        /// The refusing node's.
        mine: Option<Durability>,
        /// The refused node's.
        theirs: Option<Durability>,
    },
    /// The other side's disk is not the recorded one.
    Disk {
        /// The disk that the refusing node has recorded.
        recorded: DiskId,
        /// The disk that the refused node has presented.
        presented: DiskId,
        /// True if that is a former disk, which another one has replaced.
        former: bool,
        /// True if the refused node is one of the refusing node's voters.
        votes: bool,
    },
}

/// The kinds of refusals, for counters.
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
    /// The presented disk was replaced by the recorded one; see [`ConfigMismatch::Disk`].
    DiskReplaced,
    /// Transport security failed before any message.
    Tls(TlsProblem),
    /// A reason that only a later version knows; the text states it.
    Unknown,
}

/// The reason why two nodes cannot have a TLS connection, or must not have a cleartext one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsProblem {
    /// One side speaks cleartext where the other expects TLS.
    Cleartext,
    /// One side speaks TLS where the other expects cleartext.
    NotCleartext,
    /// There is no certificate.
    NoCertificate,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// Expired or not valid yet; the other side's alert does not tell which.
    OutOfDate,
    /// The certificate's authority is not accepted.
    UnknownIssuer,
    /// The certificate names another node.
    OtherName,
    /// The certificate does not permit this side of a connection.
    Purpose,
    /// The certificate is damaged or wrongly signed, or was refused without a reason.
    BadCertificate,
    /// They have no version or method of TLS in common.
    Incompatible,
    /// The bytes are not TLS, or were changed on the way.
    Garbled,
}

impl RefusalKind {
    /// True if the two nodes are configured differently for an election in which both take part.
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

    /// The name of the kind in metrics and JSON, such as `voters` or `tls_expired`. These names do not change.
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

/// A node's knowledge of its peers before they send anything.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The recorded disks of its peers.
    pub disks: &'a BTreeMap<NodeId, PeerDisk>,
    /// The nodes to which it connects. With metadata, these may be more than the voters.
    pub peers: &'a BTreeSet<NodeId>,
}

/// Checks whether the nodes of `mine` and `theirs` may connect.
///
/// A peer without a recorded disk is accepted with any; the caller must record the disk before it acts on a message.
///
/// # Errors
/// The first [`Refusal`] in an order that puts causes before consequences: nodes of two clusters also differ in their
/// voters, but the cluster is the cause that an operator must see.
pub fn judge(mine: &Hello, known: Known<'_>, theirs: &Hello) -> Result<(), Box<Refusal>> {
    let node = theirs.identity.node;
    if mine.versions.common(theirs.versions).is_none() {
        return Err(Box::new(mine.of_other_version(node, theirs.versions)));
    }
    // Where no vote counts, a lost disk has lost no votes.
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
        // Before the voters are compared: a node that has lost its disk may count other voters, even if it was removed, and must not
        // be elected by the former ones.
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

/// As [`judge`], on the dialling side, which also knows the node that it has dialled.
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
    /// The refusal of a node that speaks none of this node's versions. It needs only the part of the other hello that every
    /// version can read.
    #[must_use]
    pub fn of_other_version(&self, node: NodeId, theirs: Versions) -> Refusal {
        let reason = ConfigMismatch::ProtocolVersion { mine: self.versions, theirs };
        Refusal { by: self.identity.node, of: node, reason }
    }

    /// True if `theirs`, the hello of a voter that counts this node as a voter, shows that the voter has recorded another disk of
    /// this node.
    ///
    /// The dialling side tells its recorded disk, because this node may refuse that voter for another reason: after the loss of its
    /// disk it may assume other voters.
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

    /// The hello of this node's guardian: differs in its role only.
    #[must_use]
    pub fn of_guardian(&self) -> Self {
        Self { role: Role::GuardianOf, ..self.clone() }
    }

    /// True if the other side has a part in the same election, as far as this node knows: it is a voter, or may become
    /// one.
    fn is_concerned_with(&self, peers: &BTreeSet<NodeId>, theirs: &Self) -> bool {
        let node = theirs.identity.node;
        // A node that was away while all others were replaced knows none of them, and no other node can tell it. A hello with newer
        // voters is enough to connect; the election judges it again. The newer voters need not include this node: a leader that
        // brings a removed node up to date does not count it yet.
        let knows_more = theirs.voters_number > self.voters_number && theirs.voters.contains(node);
        self.voters.contains(node) || self.metadata.is_some() && (peers.contains(&node) || knows_more)
    }
}

impl PeerDisk {
    /// Records a disk that is seen for the first time.
    #[must_use]
    pub const fn first(disk: DiskId) -> Self {
        Self { disk, readmitted: false, former: BTreeSet::new() }
    }

    /// Accepts this disk of the peer from now on, and never again its former one.
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

    /// True if this node is a voter.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.binary_search(&node).is_ok()
    }

    /// The voters, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().copied()
    }

    /// A hash of the set: FNV-1a of the names, each terminated by a zero byte. It does not protect against forgery, and need not: any
    /// node that may take part can claim any voters.
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
    /// The kind of the refusal, for counters.
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
