//! I5: no change of leader without need.

use primacy_core::Event;

use super::{Invariant, Observation, Phase};
use crate::clock::Moment;
use crate::leadership_intervals::LeadershipIntervals;

/// Requires the same leader during a calm, in which no fault strikes the leader, nor so many other nodes that it
/// lacks a majority. The faults of a calm: one other node is cut off for a while, restarts or loses connections, and
/// messages are doubled.
#[derive(Debug, Default)]
pub struct NoNeedlessChange {
    calm: bool,
}

impl Invariant for NoNeedlessChange {
    fn name(&self) -> &'static str {
        "I5"
    }

    fn observe(
        &mut self,
        _now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        let (who, does) = match *seen {
            Observation::Phase(phase) => {
                self.calm = phase == Phase::Calm;
                return Ok(());
            }
            Observation::Told { who, event: Event::Elected { .. } } => (who, "is elected"),
            Observation::Told { who, event: Event::Resigning(_) } => (who, "resigns"),
            Observation::Told { who, event: Event::Deposed(_) } => (who, "is deposed"),
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Metadata(_)
            | Observation::Accepted { .. }
            | Observation::ClockChanged
            | Observation::Ended { .. }
            | Observation::Looked { .. }
            | Observation::DiskLost { .. }
            | Observation::Viewed { .. } => return Ok(()),
        };
        if self.calm {
            Err(format!("{} {does}, and nothing has befallen the leader", who.node))
        } else {
            Ok(())
        }
    }
}
