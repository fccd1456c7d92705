//! What the replicas of a log say to each other.
//!
//! Everything is said in a term: what does not name the term to which its receiver is bound is not heard. Answers name the process
//! life that asked, because an answer to an earlier one may speak of a log that is lost.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::log::Record;
use super::voters::Voters;
use crate::id::Incarnation;
use crate::term::LeaderSequence;

/// What replicas say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// "I was elected in my term. How far is your log? And promise to take nothing from an earlier leader."
    Sync,
    /// The answer, which is that promise.
    SyncReply {
        /// The process life that asked.
        to: Incarnation,
        /// The last number of the log, all of it durable.
        last: LeaderSequence,
    },
    /// "Your log is longer: send what comes after this number."
    Fetch {
        /// The last number of the one that asks.
        after: LeaderSequence,
    },
    /// The answer, if the log passes over that number.
    Fetched {
        /// The process life that asked.
        to: Incarnation,
        /// The number that was named.
        after: LeaderSequence,
        /// What comes after it, or the first part of that.
        records: Vec<Record>,
    },
    /// From the leader: "These come after that number, and so far all is committed."
    Append {
        /// Grows with each that is sent to one follower.
        round: u64,
        /// The number before the first of the records.
        after: LeaderSequence,
        /// The records; none, if only the rest is news.
        records: Vec<Record>,
        /// The last number that is committed, as far as the leader knows.
        committed: LeaderSequence,
    },
    /// The answer: how far the follower's log is, all of it durable.
    AppendReply {
        /// The process life that asked.
        to: Incarnation,
        /// The round that is answered.
        round: u64,
        /// The last number of the follower's log.
        last: LeaderSequence,
        /// Whether the records did not fit behind that.
        gap: bool,
        /// The follower has lost its log, and what it holds does not count yet.
        recovering: bool,
    },
    /// "What you need is not in my log any more, or your log went another way: take this snapshot."
    Offer {
        /// The last number in it.
        number: LeaderSequence,
    },
    /// "Send the snapshot of this number from here on."
    Part {
        /// Which one.
        number: LeaderSequence,
        /// How many bytes of it are there.
        offset: u64,
    },
    /// A part of a snapshot.
    PartReply {
        /// The process life that asked.
        to: Incarnation,
        /// Which one.
        number: LeaderSequence,
        /// The voters in it.
        voters: Arc<Voters>,
        /// How many bytes come before this part.
        offset: u64,
        /// How many bytes the whole has.
        length: u64,
        /// The part.
        bytes: Arc<[u8]>,
    },
    /// "I have lost my log. Who leads?"
    Recover,
    /// The answer of one that has not.
    RecoverReply {
        /// The process life that asked.
        to: Incarnation,
        /// If the one that answers leads and has committed the begin of its term: its last number.
        leads_up_to: Option<LeaderSequence>,
    },
}

impl Body {
    /// Whether only who leads says it: then the term binds whoever hears it, as a heartbeat of it would.
    #[must_use]
    pub const fn leads(&self) -> bool {
        matches!(self, Self::Sync | Self::Append { .. })
    }
}
