//! Bounds on the log from the state file: if the two contradict each other, neither is trusted.

use std::path::Path;

use primacy_core::Term;

use super::LogError;
use crate::disk::{LogReach, Stored};

/// The bounds of a log's extent, from the state file beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The extent that the log must have at least; zero if it may lack records that this node has held.
    at_least: LogReach,
    /// No record has a later term, because a node persists a term before it takes a record of it.
    term: Term,
}

impl Bounds {
    /// The bounds from a state file.
    pub(crate) fn of(stored: &Stored, log_lost: bool) -> Self {
        let at_least = if log_lost { LogReach::default() } else { stored.log_reach };
        Self { at_least, term: stored.hard_state.term }
    }

    /// No bounds.
    pub(crate) fn none() -> Self {
        Self { at_least: LogReach::default(), term: Term(u64::MAX) }
    }

    /// Refuses the log in this directory if it contradicts the state file.
    pub(super) fn check(&self, dir: &Path, reach: LogReach) -> Result<(), LogError> {
        if reach.last.term > self.term {
            return Err(LogError::StateBehind { path: dir.to_owned(), last: reach.last, term: self.term });
        }
        let LogReach { segment, last } = self.at_least;
        let found = if reach.segment < segment {
            format!(
                "its newest segment is {:016x}, and the state file knows of {segment:016x}",
                reach.segment
            )
        } else if reach.last < last {
            format!("it ends with the record {}, and the state file knows of {last}", reach.last)
        } else {
            return Ok(());
        };
        Err(LogError::Damaged { path: dir.to_owned(), found })
    }
}
