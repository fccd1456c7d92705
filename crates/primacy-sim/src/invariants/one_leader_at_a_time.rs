//! I3: leadership intervals never overlap, under the drift bound.

use std::collections::BTreeSet;

use primacy_core::{Event, Identity};

use super::{Invariant, Observation};
use crate::clock::Moment;
use crate::leadership_intervals::LeadershipIntervals;
use crate::trace::until;

/// Compares the leadership intervals that are in force.
///
/// Two overlapping intervals overlap at the beginning of the later one. So it suffices to check when an interval
/// begins, is extended, or has its end moved by a change of the clock.
#[derive(Debug, Default)]
pub struct OneLeaderAtATime {
    reported: BTreeSet<(Identity, Identity)>,
}

impl Invariant for OneLeaderAtATime {
    fn name(&self) -> &'static str {
        "I3"
    }

    fn observe(
        &mut self,
        now: Moment,
        seen: &Observation<'_>,
        leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        match *seen {
            Observation::Told { event: Event::Elected { .. } | Event::Renewed { .. }, .. }
            | Observation::ClockChanged => {}
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Metadata(_)
            | Observation::Accepted { .. }
            | Observation::Ended { .. }
            | Observation::Phase(_)
            | Observation::Looked { .. }
            | Observation::DiskLost { .. }
            | Observation::Viewed { .. } => return Ok(()),
        }
        let mut in_force = leaderships.in_force(now);
        let Some(one) = in_force.next() else { return Ok(()) };
        let Some(other) = in_force.find(|other| other.who != one.who) else { return Ok(()) };
        if !self.reported.insert((one.who, other.who)) {
            return Ok(());
        }
        let (a, b) = (one.who.node, other.who.node);
        Err(format!("{a} believes {}, and {b} {}", until(one.until()), until(other.until())))
    }
}
