//! I1: at most one leader per term, over all history.

use std::collections::BTreeMap;

use primacy_core::{Event, Identity, Term};

use super::{Invariant, Meaning, Observation};
use crate::clock::Moment;
use crate::leadership_intervals::LeadershipIntervals;

/// Remembers the leaders of each term, including nodes that only claimed to lead in a message.
#[derive(Debug, Default)]
pub struct OneLeaderPerTerm {
    leaders: BTreeMap<Term, Vec<Identity>>,
    /// The leader checked last: a leader repeats its claim with every heartbeat.
    latest: Option<(Identity, Term)>,
}

impl Invariant for OneLeaderPerTerm {
    fn name(&self) -> &'static str {
        "I1"
    }

    fn observe(
        &mut self,
        _now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        let (who, term) = match *seen {
            Observation::Told { who, event: &Event::Elected { term, .. } } => (who, term),
            Observation::Said { who, meaning: Meaning::Leads { term, .. } } => (who, term),
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Metadata(_)
            | Observation::Accepted { .. }
            | Observation::ClockChanged
            | Observation::Ended { .. }
            | Observation::Phase(_)
            | Observation::Looked { .. }
            | Observation::DiskLost { .. }
            | Observation::Viewed { .. } => return Ok(()),
        };
        if self.latest.replace((who, term)) == Some((who, term)) {
            return Ok(());
        }
        let leaders = self.leaders.entry(term).or_default();
        if leaders.contains(&who) {
            return Ok(());
        }
        let before = leaders.first().copied();
        leaders.push(who);
        before.map_or(Ok(()), |first| Err(format!("{} and {} lead in term {term}", first.node, who.node)))
    }
}
