//! I8: no lead is released before its work has drained.

use primacy_core::Mandate;

use super::{Invariant, Meaning, Observation};
use crate::beliefs::Beliefs;
use crate::clock::Moment;

/// Checks at every release that no work may still be running under the released token.
#[derive(Debug, Default)]
pub struct DrainedBeforeReleased;

impl Invariant for DrainedBeforeReleased {
    fn name(&self) -> &'static str {
        "I8"
    }

    fn observe(&mut self, now: Moment, seen: &Observation<'_>, beliefs: &Beliefs) -> Result<(), String> {
        let Observation::Said { who, meaning } = *seen else { return Ok(()) };
        let (token, earlier) = match meaning {
            Meaning::Releases { token } => (token, true),
            Meaning::Withdraws { token } => (token, false),
            Meaning::Nothing | Meaning::Votes { .. } | Meaning::Leads { .. } => return Ok(()),
        };
        let running = beliefs.in_force(now).find(|belief| match belief.mandate {
            Mandate::Fenced(held) => held == token || (earlier && belief.who == who && held <= token),
            // Without tokens, nothing guards earlier leaderships.
            Mandate::Advisory => belief.who == who && belief.term.0 == token.0,
        });
        running.map_or(Ok(()), |belief| {
            Err(format!(
                "{} releases token {token}, and the work of {} has not drained",
                who.node, belief.who.node
            ))
        })
    }
}
