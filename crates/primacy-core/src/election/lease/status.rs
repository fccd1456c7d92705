//! What a candidate over a store can tell of itself.

use super::{Found, Lease, Record};
use crate::protocol::Leader;
use crate::time::Instant;

/// What a candidate knows, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its role: `waiting`, `claiming`, `holding` or `releasing`.
    pub role: &'static str,
    /// The record as the store showed it last; `None` if it has shown none.
    pub record: Option<Record>,
    /// Since when, as this node saw it, the record has not changed.
    pub unchanged_since: Option<Instant>,
    /// Who leads, as far as it knows.
    pub leader: Option<Leader>,
}

impl Lease {
    /// What this node knows.
    #[must_use]
    pub fn status(&self) -> Status {
        let seen = self.seen.as_ref();
        Status {
            role: self.role(),
            record: seen.and_then(|seen| match &seen.found {
                Found::Record { record, .. } => Some(record.clone()),
                Found::Absent { .. } => None,
            }),
            unchanged_since: seen.map(|seen| seen.since),
            leader: self.told_leader,
        }
    }
}
