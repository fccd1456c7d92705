//! The log: records in the order of their numbers. A snapshot replaces the oldest.
//!
//! A term has one leader, which numbers its records from 1 without gaps, and whose first record names the record before
//! it. So a number identifies not only a record but all records up to it: two logs with the same last number are equal.
//! That is why a node only ever reports one number about its log.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::term::LeaderSequence;

use super::voters::Voters;

/// The approximate overhead of a record in addition to its payload, in bytes, in memory and on disk.
const RECORD_OVERHEAD: usize = 64;

/// The longest payload of a record, in bytes: longer than any valid request.
pub const PAYLOAD_MAX: usize = 2 << 20;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its number, above the numbers of all records before it.
    pub number: LeaderSequence,
    /// The content.
    pub body: RecordBody,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordBody {
    /// The first record of a term.
    Begin {
        /// The last record before it; [`LeaderSequence::NONE`] if there is none.
        after: LeaderSequence,
        /// The voters, restated.
        voters: Arc<Voters>,
    },
    /// The new voters, from this record on.
    Voters(Arc<Voters>),
    /// A payload for the replicated state, opaque to the log.
    Payload(Arc<[u8]>),
}

/// The state after all records up to a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The last record in it.
    pub number: LeaderSequence,
    /// The voters at that record.
    pub voters: Arc<Voters>,
    /// The state at that record, in its own encoding.
    pub state: Arc<[u8]>,
}

/// A write to the disk of a log. The last number on a disk never decreases: records are removed only when a snapshot
/// with a number not below theirs replaces them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Append these records.
    Append(Vec<Record>),
    /// Replace all records up to the snapshot's number by the snapshot; keep the later ones.
    Snapshot(Arc<Snapshot>),
}

/// The contents of the disk of a log; empty if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The latest snapshot.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The records after it.
    pub records: Vec<Record>,
}

/// The records that a node has in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    /// The number before the first record in memory.
    base: LeaderSequence,
    records: VecDeque<Record>,
    /// The approximate size of the records, in bytes.
    bytes: usize,
}

impl Record {
    /// Its approximate size, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        RECORD_OVERHEAD
            + match &self.body {
                RecordBody::Begin { voters, .. } | RecordBody::Voters(voters) => {
                    voters.members.values().map(|address| RECORD_OVERHEAD + address.len()).sum()
                }
                RecordBody::Payload(payload) => payload.len(),
            }
    }

    /// True if this record may directly follow the record with the number `last`.
    #[must_use]
    pub fn follows(&self, last: LeaderSequence) -> bool {
        match &self.body {
            RecordBody::Begin { after, .. } => {
                *after == last && self.number.counter == 1 && self.number.term > last.term
            }
            RecordBody::Voters(_) | RecordBody::Payload(_) => {
                last.counter > 0 && last.counter < u64::MAX && self.number == last.next()
            }
        }
    }

    /// The voters that it states, if it states any.
    #[must_use]
    pub const fn voters(&self) -> Option<&Arc<Voters>> {
        match &self.body {
            RecordBody::Begin { voters, .. } | RecordBody::Voters(voters) => Some(voters),
            RecordBody::Payload(_) => None,
        }
    }
}

impl Log {
    /// An empty log that begins after the record with this number.
    #[must_use]
    pub const fn after(base: LeaderSequence) -> Self {
        Self { base, records: VecDeque::new(), bytes: 0 }
    }

    /// The last number; the base if there is no record.
    #[must_use]
    pub fn last(&self) -> LeaderSequence {
        self.records.back().map_or(self.base, |record| record.number)
    }

    /// The number before the first record in memory.
    #[must_use]
    pub const fn base(&self) -> LeaderSequence {
        self.base
    }

    /// The approximate size of the records, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of records in memory.
    #[must_use]
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// Appends a record.
    ///
    /// # Panics
    /// If it does not follow the last one.
    pub fn push(&mut self, record: Record) {
        assert!(record.follows(self.last()), "a log has no gaps");
        self.bytes += record.size();
        self.records.push_back(record);
    }

    /// The number of records in memory up to this number; `None` if the log does not contain it, or it is below the
    /// base.
    #[must_use]
    pub fn position(&self, number: LeaderSequence) -> Option<usize> {
        if number == self.base {
            return Some(0);
        }
        self.records.binary_search_by_key(&number, |record| record.number).ok().map(|index| index + 1)
    }

    /// The number of records after this number; if the log does not contain that number, or it is below the base, the
    /// number of records in memory.
    #[must_use]
    pub fn count_after(&self, number: LeaderSequence) -> u64 {
        let last = self.last();
        if number.term == last.term {
            return last.counter.saturating_sub(number.counter); // There are no gaps in a term.
        }
        (self.records.len() - self.position(number).unwrap_or(0)) as u64
    }

    /// The records after this number, as many as fit into `bytes`, but at least one if there is any; `None` if the log
    /// does not contain that number, or no longer has the records after it.
    #[must_use]
    pub fn since(&self, number: LeaderSequence, bytes: usize) -> Option<Vec<Record>> {
        let mut room = bytes;
        let mut records = Vec::new();
        for record in self.records.range(self.position(number)?..) {
            let size = record.size();
            if size > room && !records.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            records.push(record.clone());
        }
        Some(records)
    }

    /// The first record after this number.
    #[must_use]
    pub fn next_after(&self, number: LeaderSequence) -> Option<&Record> {
        self.records.get(self.position(number)?)
    }

    /// Drops the oldest records, none above `number`, until the rest take at most `bytes`.
    pub fn forget(&mut self, number: LeaderSequence, bytes: usize) {
        while self.bytes > bytes
            && self.records.front().is_some_and(|record| record.number <= number)
            && let Some(record) = self.records.pop_front()
        {
            self.bytes -= record.size();
            self.base = record.number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use primacy_core::term::Term;

    fn number(term: u64, counter: u64) -> LeaderSequence {
        LeaderSequence { term: Term(term), counter }
    }

    fn begin(term: u64, after: LeaderSequence) -> Record {
        let number = number(term, 1);
        let voters = Arc::new(Voters { number, members: BTreeMap::new() });
        Record { number, body: RecordBody::Begin { after, voters } }
    }

    fn payload(term: u64, counter: u64) -> Record {
        Record { number: number(term, counter), body: RecordBody::Payload(Arc::from([0; 36])) }
    }

    fn log() -> Log {
        let mut log = Log::after(LeaderSequence::NONE);
        log.push(begin(2, LeaderSequence::NONE));
        log.push(payload(2, 2));
        log.push(begin(5, number(2, 2)));
        log.push(payload(5, 2));
        log
    }

    #[test]
    fn a_number_names_all_records_up_to_it() {
        let log = log();
        assert_eq!(log.last(), number(5, 2));
        assert_eq!(log.position(LeaderSequence::NONE), Some(0));
        assert_eq!(log.position(number(2, 2)), Some(2));
        // Written by the leader of term 2, and never seen by the one of term 5.
        assert_eq!(log.position(number(2, 3)), None);
        assert_eq!(log.since(number(2, 3), usize::MAX), None);
        let numbers = |records: Vec<Record>| records.iter().map(|record| record.number).collect::<Vec<_>>();
        assert_eq!(log.since(number(2, 2), usize::MAX).map(numbers), Some(vec![number(5, 1), number(5, 2)]));
        assert_eq!(log.since(number(2, 2), 1).map(numbers), Some(vec![number(5, 1)]));
        assert_eq!(log.since(number(5, 2), 1), Some(vec![]));
        assert_eq!(log.next_after(number(2, 2)).map(|record| record.number), Some(number(5, 1)));
        let counted = [number(5, 2), number(5, 1), number(2, 2), LeaderSequence::NONE];
        assert_eq!(counted.map(|number| log.count_after(number)), [0, 1, 2, 4]);
    }

    #[test]
    fn only_what_comes_next_follows() {
        assert!(payload(2, 3).follows(number(2, 2)));
        for (record, last) in [
            (payload(2, 4), number(2, 2)),
            (payload(2, 2), number(2, 2)),
            (payload(3, 1), number(2, 2)),
            (payload(3, 3), number(2, 2)),
            (payload(0, 1), LeaderSequence::NONE),
            (payload(2, 1), number(2, u64::MAX)),
            (begin(5, number(2, 1)), number(2, 2)),
            (begin(2, number(2, 2)), number(2, 2)),
        ] {
            assert!(!record.follows(last), "{record:?} after {last}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten_up_to_a_number_and_a_size() {
        let mut log = log();
        let whole = log.bytes();
        log.forget(number(2, 2), whole - 1);
        assert_eq!((log.base(), log.count()), (number(2, 1), 3));
        assert_eq!(log.since(LeaderSequence::NONE, usize::MAX), None);
        assert_eq!(log.position(number(2, 1)), Some(0));
        log.forget(number(2, 2), 0);
        assert_eq!((log.base(), log.count(), log.last()), (number(2, 2), 2, number(5, 2)));
        assert_eq!([number(2, 1), number(2, 2)].map(|number| log.count_after(number)), [2, 2]);
        log.forget(number(5, 2), 0);
        assert_eq!((log.bytes(), log.count(), log.last()), (0, 0, number(5, 2)));
        assert_eq!(log.count_after(number(5, 1)), 1, "also of those that are here no more");
    }
}
