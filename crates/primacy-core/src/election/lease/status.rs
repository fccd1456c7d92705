//! The status of a candidate over a store.

use super::{Found, Lease, Record};
use crate::protocol::Leader;
use crate::time::Instant;

/// The state of a candidate, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its role: `waiting`, `claiming`, `holding` or `releasing`.
    pub role: &'static str,
    /// The record as the store showed it last; `None` if it has shown none.
    pub record: Option<Record>,
    /// The time since which, as this node saw it, the record has not changed.
    pub unchanged_since: Option<Instant>,
    /// The leader, as far as it knows.
    pub leader: Option<Leader>,
}

impl Lease {
    /// The state of this node.
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
