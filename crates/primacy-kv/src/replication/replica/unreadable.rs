//! Intact records and snapshots that this program cannot decode, because another version has written them.
//!
//! They must not be skipped: the other nodes may apply them, and this node's state would silently diverge. So a replica
//! that receives one neither takes nor acknowledges it, and stops; its own records stay as they are, for a program that
//! can decode them.

use core::fmt;

use primacy_core::term::LeaderSequence;

use super::{Replica, Replicated};
use crate::encoding::DecodeError;
use crate::replication::log::{Record, RecordBody};

/// A part of a log that this program cannot decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unreadable {
    /// The kind of the part.
    pub what: PartOfLog,
    /// The number of the record, or of the last one in the snapshot.
    pub number: LeaderSequence,
    /// The reason why it cannot be decoded.
    pub why: DecodeError,
}

/// A kind of part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartOfLog {
    /// A record.
    Record,
    /// A snapshot.
    Snapshot,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, number, why } = self;
        match what {
            PartOfLog::Record => write!(f, "the record {number} cannot be read: {why}"),
            PartOfLog::Snapshot => write!(f, "the snapshot up to the record {number} cannot be read: {why}"),
        }
    }
}

impl Unreadable {
    /// Checks that the state `S` can decode the record.
    pub(super) fn check<S: Replicated>(record: &Record) -> Result<(), Self> {
        match &record.body {
            RecordBody::Payload(payload) => {
                S::check(payload).map_err(|why| Self { what: PartOfLog::Record, number: record.number, why })
            }
            RecordBody::Begin { .. } | RecordBody::Voters(_) => Ok(()),
        }
    }
}

impl<S: Replicated> Replica<S> {
    /// The first part that this replica cannot decode. The replica handles no more messages, and its process must
    /// report the part and exit.
    #[must_use]
    pub const fn unreadable(&self) -> Option<Unreadable> {
        self.unreadable
    }

    /// True if this record can be decoded. Otherwise this replica stops.
    pub(super) fn can_read(&mut self, record: &Record) -> bool {
        match Unreadable::check::<S>(record) {
            Ok(()) => true,
            Err(unreadable) => {
                self.unreadable.get_or_insert(unreadable);
                false
            }
        }
    }
}
