//! I4: no node votes twice in a term, across restarts.

use std::collections::BTreeMap;

use primacy_core::{Identity, NodeId, Term};

use super::{Invariant, Meaning, Observation};
use crate::beliefs::Beliefs;
use crate::clock::Moment;

/// Remembers every vote. A node that leads has voted for itself; asking for votes is not yet a vote, for the
/// request may leave before the vote is on disk.
#[derive(Debug, Default)]
pub struct OneVotePerTerm {
    votes: BTreeMap<(NodeId, Term), Vec<Identity>>,
}

impl Invariant for OneVotePerTerm {
    fn name(&self) -> &'static str {
        "I4"
    }

    fn observe(&mut self, _now: Moment, seen: &Observation<'_>, _beliefs: &Beliefs) -> Result<(), String> {
        let (voter, term, candidate) = match *seen {
            Observation::Said { who, meaning: Meaning::Votes { term, candidate } } => (who, term, candidate),
            Observation::Said { who, meaning: Meaning::Leads { term } } => (who, term, who),
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Accepted { .. }
            | Observation::ClockChanged => return Ok(()),
        };
        let votes = self.votes.entry((voter.node, term)).or_default();
        if votes.contains(&candidate) {
            return Ok(());
        }
        let before = votes.first().copied();
        votes.push(candidate);
        let (voter, other) = (voter.node, candidate.node);
        before.map_or(Ok(()), |first| {
            Err(format!("{voter} votes for {} and for {other} in term {term}", first.node))
        })
    }
}
