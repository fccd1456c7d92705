//! Errors of entering an election, of campaigns, and of requests to a node.

use std::io;
use std::path::PathBuf;

use crate::config::ConfigError;
use crate::connections::TransportError;
use crate::disk::DiskError;
use crate::handshake::ElectionKind;
use crate::log_file::LogError;
use crate::observer::ANNOUNCEMENT_MAX;
use primacy_core::{NodeId, Term};
#[cfg(feature = "peers")]
use primacy_kv::encoding::DecodeError;
#[cfg(feature = "peers")]
use primacy_kv::replication::replica::Unreadable;
use primacy_stores::{OpenError, ReadError, SessionError, SetError, StoreIdError, is_passing};

/// The reason why an election could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store's URL is wrong, or the store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store was opened, and its record could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store was opened, and its queue could not be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The id of the store that all nodes are to share could not be written.
    #[error("the store has no mark yet, by which the nodes would see that they share it, and {0}")]
    StoreId(SetError),
    /// This node's state cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// This node cannot listen, or cannot reach its peers.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// This node's log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log is intact and cannot be decoded, in most cases because a later version has written it.
    #[cfg(feature = "peers")]
    #[error("in the log of this node, {0}. {advice}; the log is left as it is", advice = advice(.0))]
    LaterLog(Unreadable),
    /// The thread that drives the election could not be started.
    #[error("the thread of the election could not be started: {0}")]
    Thread(io::Error),
}

impl ConnectError {
    /// Returns whether a later attempt may succeed without any repair: the store is not reached or overloaded, or this machine is
    /// short of memory, descriptors or threads.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Open(error) => error.is_passing(),
            Self::Read(ReadError::Unavailable { .. }) => true,
            Self::Session(SessionError::NoAnswer { .. } | SessionError::Ended { .. }) => true,
            Self::StoreId(SetError::Conflict | SetError::Unknown { .. } | SetError::Unavailable { .. }) => {
                true
            }
            Self::Thread(error) => is_passing(error),
            Self::Read(ReadError::Malformed { .. }) | Self::Session(SessionError::Refused { .. }) => false,
            Self::Config(_) | Self::Disk(_) | Self::Transport(_) | Self::Log(_) => false,
            #[cfg(feature = "peers")]
            Self::LaterLog(_) => false,
        }
    }
}

impl ConnectError {
    /// Returns whether this machine lacks a resource for entering the election, or the store did not answer the first
    /// read.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Open(OpenError::Shortage { .. }) | Self::Read(ReadError::Unavailable { .. }) => true,
            Self::Thread(error) => is_passing(error),
            Self::Open(_) | Self::Read(_) | Self::Session(_) | Self::StoreId(_) => false,
            Self::Config(_) | Self::Disk(_) | Self::Transport(_) | Self::Log(_) => false,
            #[cfg(feature = "peers")]
            Self::LaterLog(_) => false,
        }
    }
}

#[cfg(feature = "peers")]
fn advice(unreadable: &Unreadable) -> &'static str {
    match unreadable.why {
        DecodeError::Format(_) => "A newer Primacy has written it: start the newer one",
        DecodeError::Short | DecodeError::Long | DecodeError::Number | DecodeError::Kind(_) => BEGIN_ANEW,
        DecodeError::Value(_) | DecodeError::Nesting => BEGIN_ANEW,
    }
}

/// Advice for a log with right checksums and invalid content.
#[cfg(feature = "peers")]
const BEGIN_ANEW: &str = "No version writes that: start this node with an empty state directory, and have another readmit it (`primacy member readmit`)";

impl From<StoreIdError> for ConnectError {
    fn from(error: StoreIdError) -> Self {
        match error {
            StoreIdError::Open(error) => Self::Open(error),
            StoreIdError::Read(error) => Self::Read(error),
            StoreIdError::Write(error) => Self::StoreId(error),
        }
    }
}

/// The reason why a campaign ended without a leadership.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CampaignError {
    /// The elector was closed.
    #[error("the elector is closed")]
    Closed,
    /// Another campaign of this elector is under way. A node has one campaign at a time.
    #[error("another campaign of this elector is under way; await that one, or drop it")]
    AlreadyCampaigning,
    /// This node leads already.
    #[error("this node leads already; the leadership that it holds must end before it can campaign again")]
    AlreadyLeading,
    /// Leaders of this election have no token.
    #[error(
        "this election is advisory: its leaders have no token; use campaign_any, or an election that is fenced"
    )]
    Advisory,
    /// This node votes only.
    #[error("this node is a witness: it votes and never stands")]
    Witness,
    /// The peers' configuration of the election differs from this node's. This node could lead without them, and has known no leader
    /// and no peer that agrees with it.
    #[error("configuration mismatch with peers; shutting down rather than risk a second leader: {why}")]
    ConfigMismatch {
        /// The node that differs, and both configurations.
        why: String,
    },
    /// This node halted after a failure, for example because its state could not be written.
    #[error("this node takes no part in the election any more: {why}")]
    Halted {
        /// The failure.
        why: String,
    },
}

/// The reason why a state was not published. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Only the leader can publish, and only until its work must stop.
    #[error("{node} does not lead: {}; let the leader publish it", leader.map_or_else(|| "nobody does, as far as it knows".to_owned(), |leader| format!("{leader} does")))]
    NotLeading {
        /// The node that was asked.
        node: NodeId,
        /// The leader, as far as the node knows.
        leader: Option<NodeId>,
    },
    /// The leader drains its work, and publishes nothing more.
    #[error("{node} is giving up its lead; let the next leader publish it")]
    GivingUp {
        /// The node that still leads.
        node: NodeId,
    },
    /// The state is too long: every message of the leader carries it.
    #[error(
        "a leader publishes at most {ANNOUNCEMENT_MAX} bytes, and this has {length}; publish where the rest can be found"
    )]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// Only in the election `ranked` do the leader's messages carry a state.
    #[error(
        "only a leader that is elected by `ranked` announces a state to the others; choose that election"
    )]
    NotCarried,
    /// The node is ending, or has ended.
    #[error("the node takes no part in the election any more")]
    Closed,
}

/// The durability of an operator's request over a restart of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is on the disk, and holds after a restart.
    Durably,
    /// The node has no state directory; the request holds until the process ends.
    UntilRestart,
}

/// The reason why a node does not carry out an operator's request. Every text names an alternative.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Only the leader can give up the lead.
    #[error(
        "{node} does not lead: {}; ask the leader{}",
        leader.map_or_else(|| "nobody does, as far as it knows".to_owned(), |leader| format!("{leader} does")),
        not_campaigning.as_ref().map(|why| format!("; {node} does not campaign: {why}")).unwrap_or_default()
    )]
    NotLeading {
        /// The node that was asked.
        node: NodeId,
        /// The leader, as far as it knows.
        leader: Option<NodeId>,
        /// The reason why the node's application does not campaign, if it has stated one.
        not_campaigning: Option<String>,
    },
    /// The node is giving up its lead already, and can no longer transfer it.
    #[error(
        "{node} is giving up the lead of term {term} already; wait for its end, or ask {node} to resign, which says what keeps the lead"
    )]
    GivingUp {
        /// The node that was asked.
        node: NodeId,
        /// The term of the lead.
        term: Term,
    },
    /// The lead can only be transferred to a voter.
    #[error("{to} is none of the voters ({voters}); name one of them")]
    NotAVoter {
        /// The intended successor.
        to: NodeId,
        /// The voters.
        voters: String,
    },
    /// The lead can only be transferred to a connected node: otherwise it would be given up without a successor.
    #[error(
        "{to} is not connected to the leader, so the lead would be given up and not go there; name a node that is connected"
    )]
    NotConnected {
        /// The intended successor.
        to: NodeId,
    },
    /// A witness never leads.
    #[error("{to} is a witness: it votes and never leads; name another node")]
    ToWitness {
        /// The intended successor.
        to: NodeId,
    },
    /// The node leads already.
    #[error("{to} leads already")]
    ToItself {
        /// The intended successor.
        to: NodeId,
    },
    /// Where the algorithm chooses the leader, the lead cannot be transferred.
    #[error(
        "by {kind}, the rule of the election says who leads next, and nobody else would lead for long; use resign, and cordon the nodes that shall not lead"
    )]
    ByRule {
        /// The election.
        kind: ElectionKind,
    },
    /// Over a store the candidates do not know each other, and no disk is recorded.
    #[error(
        "over a store the lead cannot be given to a certain node, nor need a node be readmitted; use resign, and cordon the nodes that shall not lead"
    )]
    OverAStore,
    /// A witness never leads.
    #[error("{node} is a witness: it votes and never leads")]
    Witness {
        /// This node.
        node: NodeId,
    },
    /// Only a cluster by seniority has members that can be removed.
    #[error("only an election by seniority has members; here the configuration says who takes part")]
    NoMembers,
    /// The node that was asked does not know it as a member.
    #[error("{node} is no member of the cluster that {by} belongs to ({members}); name one of them")]
    NotAMember {
        /// The node to remove.
        node: NodeId,
        /// The node that was asked.
        by: NodeId,
        /// The members that it knows.
        members: String,
    },
    /// A node cannot be removed by a request to itself.
    #[error("{node} cannot vouch for its own death; let it resign, or cordon it")]
    Itself {
        /// This node.
        node: NodeId,
    },
    /// The node that was asked belongs to no cluster, and only the founder waits for other nodes.
    #[error(
        "{by} belongs to no cluster, and it is not for {node} that it waits: {} founds one, as the first of the seeds; start that one, or name another first with --seeds, on all nodes",
        founder.map_or_else(|| "nobody".to_owned(), |founder| founder.to_string())
    )]
    NotAwaited {
        /// The node that should not be waited for.
        node: NodeId,
        /// The node that was asked.
        by: NodeId,
        /// The node that founds clusters.
        founder: Option<NodeId>,
    },
    /// The node has not presented another disk, and has not reported that it has lost one.
    #[error(
        "{node} has not come to {by} with another disk than the recorded one, nor said that it has lost one, so there is nothing to readmit; start it first, and ask again"
    )]
    NotRefused {
        /// The node to readmit.
        node: NodeId,
        /// The node that was asked.
        by: NodeId,
    },
    /// The node that was asked has lost its own votes, so it cannot report its term to another node that has.
    #[error(
        "{by} has lost its own disk and has not heard from all others yet; let it be readmitted first, and ask again"
    )]
    Recovering {
        /// The node that was asked.
        by: NodeId,
    },
    /// A cordon that must survive a restart could not be written. Nothing has changed.
    #[error("nothing has changed: {} cannot be written: {source}; make room or mend the directory, and ask again", path.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The state of the node could not be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The node is ending, or has ended.
    #[error("the node takes no part in the election any more; look at its log, and start it again")]
    Closed,
}
