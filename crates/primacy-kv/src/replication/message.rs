//! The messages between the replicas of a log.
//!
//! Every message has a term, and is ignored if its receiver is bound to another one. Answers name the incarnation that
//! asked, because an answer to an earlier incarnation may refer to a lost log.

use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::id::Incarnation;
use primacy_core::term::LeaderSequence;

use super::log::Record;
use super::voters::Voters;

/// The content of a message between replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// From a new leader: "I was elected in my term. Promise to take no record of an earlier term, and report the end
    /// of your log."
    Sync,
    /// The answer, and the promise.
    SyncReply {
        /// The incarnation that asked.
        to: Incarnation,
        /// The last number of the log, all of it durable.
        last: LeaderSequence,
    },
    /// From a new leader: "Your log is longer: send the records after this number."
    Fetch {
        /// The last number of the leader's log.
        after: LeaderSequence,
    },
    /// The answer, if the log contains that number.
    Fetched {
        /// The incarnation that asked.
        to: Incarnation,
        /// The number in the request.
        after: LeaderSequence,
        /// The records after it, or the first part of them.
        records: Vec<Record>,
    },
    /// From the leader: "Append these records after that number; all records up to `committed` are committed."
    Append {
        /// The round: the number of this message among those to the same follower.
        round: u64,
        /// The number before the first of the records.
        after: LeaderSequence,
        /// The records; none, if the message only reports the commit number, or asks for an answer.
        records: Vec<Record>,
        /// The last number that is committed, as far as the leader knows.
        committed: LeaderSequence,
    },
    /// The answer: the end of the follower's log, all of it durable.
    AppendReply {
        /// The incarnation that asked.
        to: Incarnation,
        /// The round that is answered.
        round: u64,
        /// The last number of the follower's log.
        last: LeaderSequence,
        /// True if the records did not follow the end of the log.
        gap: bool,
        /// True if the follower is recovering from the loss of its log: its records do not count yet.
        recovering: bool,
    },
    /// "My log no longer has the records that you need, or your log has diverged from it: fetch this snapshot."
    Offer {
        /// The number of the last record in the snapshot.
        number: LeaderSequence,
    },
    /// "Send the snapshot with this number from this offset on."
    Part {
        /// The number of the snapshot.
        number: LeaderSequence,
        /// The number of bytes that are already received.
        offset: u64,
    },
    /// A part of a snapshot.
    PartReply {
        /// The incarnation that asked.
        to: Incarnation,
        /// The number of the snapshot.
        number: LeaderSequence,
        /// The voters in it.
        voters: Arc<Voters>,
        /// The number of bytes before this part.
        offset: u64,
        /// The length of the whole snapshot, in bytes.
        length: u64,
        /// The part.
        bytes: Arc<[u8]>,
    },
    /// "I have lost my log: report whether you lead."
    Recover,
    /// The answer of a node that has not lost its log.
    RecoverReply {
        /// The incarnation that asked.
        to: Incarnation,
        /// The last number of the sender's log, if the sender leads and has committed the first record of its term.
        leads_up_to: Option<LeaderSequence>,
    },
}

impl Body {
    /// True if only a leader sends it: then its term binds the receiver, as a heartbeat does.
    #[must_use]
    pub const fn leads(&self) -> bool {
        matches!(self, Self::Sync | Self::Append { .. })
    }
}
