//! Errors of entering an election and of campaigning in it.

use crate::config::ConfigError;
use crate::connections::TransportError;
use crate::disk::DiskError;
use primacy_core::metadata::encoding::DecodeError;
use primacy_core::metadata::replica::Unreadable;
use primacy_stores::{MarkError, OpenError, ReadError, SessionError, SetError, is_passing};

/// The reason why an election could not be entered.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store's URL is wrong, or the store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store could be opened and its record not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store could be opened and its queue not be looked at.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The store that all nodes are to share has no mark yet by which it could be told from others.
    #[error("the store has no mark yet, by which the nodes would see that they share it, and {0}")]
    Mark(SetError),
    /// This node's state cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// This node cannot listen or talk to its peers.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// This node's log cannot be used.
    #[error(transparent)]
    Log(#[from] crate::metadata::LogError),
    /// The log is whole, and its content cannot be read, mostly because a later version has written it.
    #[error("in the log of this node, {0}. {advice}; the log is left as it is", advice = advice(.0))]
    LaterLog(Unreadable),
    /// The thread that drives the election could not be started.
    #[error("the thread of the election could not be started: {0}")]
    Thread(std::io::Error),
}

impl ConnectError {
    /// Returns whether the same may succeed a little later, without that anybody mends anything: the store is not reached yet, has too
    /// much to do, or this machine is short of memory, descriptors or threads.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Open(error) => error.is_passing(),
            Self::Read(ReadError::Unavailable { .. }) => true,
            Self::Session(SessionError::NoAnswer { .. } | SessionError::Ended { .. }) => true,
            Self::Mark(SetError::Conflict | SetError::Unknown { .. } | SetError::Unavailable { .. }) => true,
            Self::Thread(error) => is_passing(error),
            Self::Read(ReadError::Malformed { .. }) | Self::Session(SessionError::Refused { .. }) => false,
            Self::Config(_) | Self::Disk(_) | Self::Transport(_) | Self::Log(_) | Self::LaterLog(_) => false,
        }
    }
}

impl ConnectError {
    /// Returns whether this machine is short of something that entering takes, or its store did not answer a first look.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Open(OpenError::Shortage { .. }) | Self::Read(ReadError::Unavailable { .. }) => true,
            Self::Thread(error) => is_passing(error),
            Self::Open(_) | Self::Read(_) | Self::Session(_) | Self::Mark(_) => false,
            Self::Config(_) | Self::Disk(_) | Self::Transport(_) | Self::Log(_) | Self::LaterLog(_) => false,
        }
    }
}

fn advice(unreadable: &Unreadable) -> &'static str {
    match unreadable.why {
        DecodeError::Format(_) => "A newer Primacy has written it: start the newer one",
        DecodeError::Short | DecodeError::Long | DecodeError::Number | DecodeError::Kind(_) => BEGIN_ANEW,
        DecodeError::Value(_) | DecodeError::Nesting => BEGIN_ANEW,
    }
}

/// Advice for a log that makes no sense, though its checksums are right.
const BEGIN_ANEW: &str = "No version writes that: start this node with an empty state directory, and have another readmit it (`primacy member readmit`)";

impl From<MarkError> for ConnectError {
    fn from(error: MarkError) -> Self {
        match error {
            MarkError::Open(error) => Self::Open(error),
            MarkError::Read(error) => Self::Read(error),
            MarkError::Write(error) => Self::Mark(error),
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
    /// The others are configured differently for the election, and this node, which could lead without them, has known no leader and
    /// no peer that agrees with it.
    #[error(
        "this node was told otherwise about the election than the others, and ends before it leads beside them: {why}"
    )]
    AtOdds {
        /// The node that differs, and both configurations.
        why: String,
    },
    /// This node could not go on, because its state cannot be written for example.
    #[error("this node takes no part in the election any more: {why}")]
    Halted {
        /// The failure.
        why: String,
    },
}
