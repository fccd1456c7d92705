//! I6: after the world heals there is one leader, known to all, within a stated time.

use super::{Invariant, Observation, Phase};
use crate::clock::Moment;
use crate::leadership_intervals::LeadershipIntervals;

/// Checks that all nodes agree on one leader once the bound that the election states for itself has passed.
#[derive(Debug, Default)]
pub struct LeaderAfterHealing {
    healed: Option<(Moment, Moment)>,
}

impl Invariant for LeaderAfterHealing {
    fn name(&self) -> &'static str {
        "I6"
    }

    fn observe(
        &mut self,
        now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        match *seen {
            Observation::Phase(Phase::Healed { until }) => self.healed = Some((now, until)),
            Observation::Phase(Phase::Faults | Phase::Calm) => self.healed = None,
            Observation::Looked { agreed, .. } => {
                if let Some((at, until)) = self.healed.filter(|&(_, until)| now >= until && !agreed) {
                    self.healed = None;
                    return Err(format!("{} after the healing not all name one leader", until.since(at)));
                }
            }
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Metadata(_)
            | Observation::Accepted { .. }
            | Observation::ClockChanged
            | Observation::Ended { .. }
            | Observation::DiskLost { .. }
            | Observation::Viewed { .. } => {}
        }
        Ok(())
    }
}
