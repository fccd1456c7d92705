//! The smallest state that records what was applied: all payloads in order, each with the number of its record.

use std::sync::Arc;

use primacy_core::{Identity, LeaderSequence, Term};
use primacy_kv::encoding::DecodeError;
use primacy_kv::replication::replica::Replicated;

/// The applied records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct AppliedLog(pub(super) Vec<Entry>);

/// An applied record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) number: LeaderSequence,
    pub(super) payload: u8,
}

/// The number of bytes of an entry in a snapshot.
const LENGTH: usize = 3;

impl Replicated for AppliedLog {
    type Outcome = ();

    fn apply(&mut self, number: LeaderSequence, payload: &[u8], _: Identity) {
        self.0.push(Entry { number, payload: payload.first().copied().unwrap_or_default() });
    }

    fn snapshot(&self) -> Arc<[u8]> {
        let small = |number: u64| u8::try_from(number).expect("terms and records are few");
        let bytes = |entry: &Entry| [small(entry.number.term.0), small(entry.number.counter), entry.payload];
        self.0.iter().flat_map(bytes).collect()
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        let entry = |bytes: &[u8]| {
            let [term, counter, payload] = *bytes else { return Err(DecodeError::Short) };
            let number = LeaderSequence { term: Term(u64::from(term)), counter: u64::from(counter) };
            Ok(Entry { number, payload })
        };
        bytes.chunks(LENGTH).map(entry).collect::<Result<Vec<Entry>, DecodeError>>().map(Self)
    }

    fn empty() -> Self {
        Self::default()
    }
}
