//! The messages between the replicas of a log.
//!
//! Every message belongs to a term: one that does not name the term to which its receiver is bound is ignored. Answers
//! name the incarnation that asked, because an answer to an earlier one may be about a log that is lost.

use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::id::Incarnation;
use primacy_core::term::LeaderSequence;

use super::log::Record;
use super::voters::Voters;

/// The content of a message between replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// "I was elected in my term. How far is your log? And promise to take nothing from an earlier leader."
    Sync,
    /// The answer, which is that promise.
    SyncReply {
        /// The incarnation that asked.
        to: Incarnation,
        /// The last number of the log, all of it durable.
        last: LeaderSequence,
    },
    /// "Your log is longer: send the records after this number."
    Fetch {
        /// The last number of the node that asks.
        after: LeaderSequence,
    },
    /// The answer, if the log passes over that number.
    Fetched {
        /// The incarnation that asked.
        to: Incarnation,
        /// The number that was named.
        after: LeaderSequence,
        /// The records after it, or the first part of them.
        records: Vec<Record>,
    },
    /// From the leader: "These come after that number, and so far all is committed."
    Append {
        /// The number of the round, which grows with each that is sent to one follower.
        round: u64,
        /// The number before the first of the records.
        after: LeaderSequence,
        /// The records; none, if only the rest is news.
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
        /// True if the records did not fit behind that.
        gap: bool,
        /// True if the follower has lost its log: its records do not count yet.
        recovering: bool,
    },
    /// "The records that you need are not in my log any more, or your log went another way: take this snapshot."
    Offer {
        /// The last number in it.
        number: LeaderSequence,
    },
    /// "Send the snapshot of this number from here on."
    Part {
        /// The number of the snapshot.
        number: LeaderSequence,
        /// The number of bytes of it that are there.
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
        /// The number of bytes of the whole.
        length: u64,
        /// The part.
        bytes: Arc<[u8]>,
    },
    /// "I have lost my log. Who leads?"
    Recover,
    /// The answer of a node that has not.
    RecoverReply {
        /// The incarnation that asked.
        to: Incarnation,
        /// The last number of the node that answers, if it leads and has committed the first record of its term.
        leads_up_to: Option<LeaderSequence>,
    },
}

impl Body {
    /// True if only a leader sends it: then its term binds the receiver, as a heartbeat of it would.
    #[must_use]
    pub const fn leads(&self) -> bool {
        matches!(self, Self::Sync | Self::Append { .. })
    }
}
