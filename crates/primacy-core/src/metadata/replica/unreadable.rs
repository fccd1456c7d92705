//! What this program cannot read, though it is whole: another version has written it.
//!
//! It must not be skipped. The other nodes may make something of it, and this one would have another state than they from then on,
//! and not know it. So a replica that is given such a thing neither takes nor acknowledges it, and goes no further; what it holds
//! stays as it is, for the program that can read it.

use core::fmt;

use super::{Replica, Replicated};
use crate::metadata::encoding::DecodeError;
use crate::metadata::log::{Record, RecordBody};
use crate::term::LeaderSequence;

/// Something of a log that this program cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unreadable {
    /// What it is.
    pub what: PartOfLog,
    /// The number of the record, or of the last one in the snapshot.
    pub number: LeaderSequence,
    /// Why it cannot be read.
    pub why: DecodeError,
}

/// What a log is made of.
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
    /// Whether a state of this kind can be told of the record.
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
    /// What this replica was given and cannot read. It takes nothing more, and its node must end and say so.
    #[must_use]
    pub const fn unreadable(&self) -> Option<Unreadable> {
        self.unreadable
    }

    /// Whether this record can be taken. If it cannot be read, this replica goes no further.
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
