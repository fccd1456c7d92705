//! I8: no lead is released before its work has drained.

use primacy_core::Mandate;

use super::{Invariant, Meaning, Observation};
use crate::clock::Moment;
use crate::leadership_intervals::LeadershipIntervals;

/// Checks at every release that no work may still be running under the released token.
#[derive(Debug, Default)]
pub struct DrainedBeforeReleased;

impl Invariant for DrainedBeforeReleased {
    fn name(&self) -> &'static str {
        "I8"
    }

    fn observe(
        &mut self,
        now: Moment,
        seen: &Observation<'_>,
        leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        let Observation::Said { who, meaning } = *seen else { return Ok(()) };
        let (token, earlier) = match meaning {
            Meaning::Releases { token } => (token, true),
            Meaning::Withdraws { token } => (token, false),
            Meaning::Nothing | Meaning::Votes { .. } | Meaning::Leads { .. } => return Ok(()),
        };
        let running = leaderships.in_force(now).find(|interval| match interval.mandate {
            Mandate::Fenced(held) => held == token || (earlier && interval.who == who && held <= token),
            // Without tokens, only the leadership of the released term is checked; earlier ones are not guarded.
            Mandate::Advisory => interval.who == who && interval.term.0 == token.0,
        });
        running.map_or(Ok(()), |interval| {
            Err(format!(
                "{} releases token {token}, and the work of {} has not drained",
                who.node, interval.who.node
            ))
        })
    }
}
