//! I2: tokens strictly grow, in the order of elections, and in the order of the writes that a resource accepts.

use primacy_core::{Event, Mandate};

use super::{Invariant, Observation};
use crate::clock::Moment;
use crate::leadership_intervals::LeadershipIntervals;

/// Remembers the highest token given, and the highest number accepted.
#[derive(Debug)]
pub struct TokensGrow {
    in_order_of_elections: bool,
    given: u64,
    accepted: u64,
}

impl TokensGrow {
    /// For elections with at most one leader at a time: each token is higher than all tokens given before.
    #[must_use]
    pub const fn in_order_of_elections() -> Self {
        Self { in_order_of_elections: true, given: 0, accepted: 0 }
    }

    /// For elections that rely on the resource's check: a lower token may be given shortly after a higher one, and
    /// the resource refuses one of the two leaders.
    #[must_use]
    pub const fn at_the_resource() -> Self {
        Self { in_order_of_elections: false, given: 0, accepted: 0 }
    }
}

impl Invariant for TokensGrow {
    fn name(&self) -> &'static str {
        "I2"
    }

    fn observe(
        &mut self,
        _now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        match *seen {
            Observation::Told { who, event: &Event::Elected { mandate: Mandate::Fenced(token), .. } } => {
                let before = self.given;
                self.given = before.max(token.0);
                if self.in_order_of_elections && token.0 <= before {
                    return Err(format!("{} is given token {token} after token {before}", who.node));
                }
                Ok(())
            }
            Observation::Accepted { number } => {
                let before = self.accepted;
                self.accepted = before.max(number);
                if number < before {
                    return Err(format!("a write of leadership {number} is accepted after one of {before}"));
                }
                Ok(())
            }
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Metadata(_)
            | Observation::ClockChanged
            | Observation::Ended { .. }
            | Observation::Phase(_)
            | Observation::Looked { .. }
            | Observation::DiskLost { .. }
            | Observation::Viewed { .. } => Ok(()),
        }
    }
}
