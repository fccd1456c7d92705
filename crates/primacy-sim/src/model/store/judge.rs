//! The safety checks on the tokens that were given and on the work that runs.

use primacy_core::Reason;

use super::node::{ContenderResults, Fact, SEATS};
use super::store_kind::StoreKind;
use super::{Contenders, State};
use crate::model::coverage::Coverage;

impl<K: StoreKind> Contenders<K> {
    /// Returns the marks that a node's step reaches, and the invariant that it breaks.
    pub(super) fn judge(
        &self,
        next: &mut State,
        seat: usize,
        results: &ContenderResults<K::Message>,
    ) -> (Coverage, Option<&'static str>) {
        let mut coverage = Coverage::default();
        let mut broken = results.broken;
        for fact in &results.facts {
            coverage.0 |= match *fact {
                Fact::Elected(term) => {
                    // The token must exceed all tokens given before: so no term has two leaders, and tokens grow.
                    if term.0 <= next.given {
                        broken = broken.or(Some("I2"));
                    }
                    let is_other = next.given_to < SEATS && usize::from(next.given_to) != seat;
                    coverage.set_if(Coverage::TAKEN_OVER, is_other);
                    let crashed = next.left.crashes < self.bounds.crashes;
                    coverage.set_if(Coverage::TAKEN_OVER_AFTER_CRASH, is_other && crashed);
                    next.given = next.given.max(term.0);
                    next.given_to = u8::try_from(seat).expect("a seat");
                    Coverage::ELECTED
                }
                Fact::Renewed => Coverage::RENEWED,
                Fact::Deposed(Reason::Expired) => Coverage::EXPIRED,
                Fact::Deposed(Reason::SessionEnded) => Coverage::SESSION_ENDED,
                Fact::Deposed(_) => Coverage::DEPOSED,
                Fact::Released(token) => {
                    // The work under the released token must have drained, whichever process releases it.
                    let holder = next.nodes.get(usize::from(next.given_to));
                    let is_its = token.is_some_and(|token| token.0 == next.given);
                    if is_its && holder.is_some_and(|&node| self.signs[node as usize].works) {
                        broken = broken.or(Some("I8"));
                    }
                    Coverage::RELEASED
                }
                Fact::Violation => Coverage::VIOLATION,
                Fact::GuardianDone => Coverage::GUARDIAN_DONE,
                Fact::JobExited => Coverage::JOB_EXITED,
            };
        }
        let working = next.nodes.iter().filter(|&&node| self.signs[node as usize].works).count();
        if working > 1 {
            broken = broken.or(Some("I3"));
        }
        (coverage, broken)
    }
}
