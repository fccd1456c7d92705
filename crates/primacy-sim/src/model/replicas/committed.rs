//! The order of committed records, including the records that have no payload.

use primacy_core::LeaderSequence;
use primacy_kv::replication::log::Log;

/// Committed records, each with its predecessor. The oldest ones of a log may have been replaced by its snapshot, and
/// are then not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CommittedRecords(Vec<RecordLink>);

/// A record and its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct RecordLink {
    number: LeaderSequence,
    behind: LeaderSequence,
}

impl CommittedRecords {
    /// Returns the records of a log in order, up to the last one that is known to be committed.
    pub(super) fn of(log: &Log, committed: LeaderSequence) -> Self {
        let records = log.since(log.base(), usize::MAX).unwrap_or_default();
        let mut behind = log.base();
        let mut places = Vec::new();
        for record in records.iter().take_while(|record| record.number <= committed) {
            places.push(RecordLink { number: record.number, behind });
            behind = record.number;
        }
        Self(places)
    }

    /// True if both can be parts of one log: where one has a record, the other has the same record after the same
    /// predecessor, or none.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let apart = |one: &RecordLink, two: &RecordLink| one.number <= two.behind || two.number <= one.behind;
        self.0.iter().all(|one| other.0.iter().all(|two| one == two || apart(one, two)))
    }

    /// Returns the union of both.
    pub(super) fn with(&self, other: &Self) -> Self {
        let mut places = [&*self.0, &*other.0].concat();
        places.sort_unstable();
        places.dedup();
        Self(places)
    }

    /// Returns the first records of terms.
    pub(super) fn begins(&self) -> impl Iterator<Item = LeaderSequence> {
        self.0.iter().map(|place| place.number).filter(|number| *number == LeaderSequence::first(number.term))
    }
}
