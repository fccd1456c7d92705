//! The safety checks on the history in a state.
//!
//! The rules are those of `invariants/`, in a hashable form: the leader of each term, the vote of each node in each
//! term, and the tokens given, packed into one number.

use primacy_core::election::quorum::Safety;
use primacy_core::{Identity, Term};

use super::node::{Fact, SEATS_MAX, seat};

/// The highest term that fits into the history.
pub(super) const TERMS_MAX: u8 = 4;
/// The maximum number of starts of a node.
pub(super) const STARTS_MAX: u8 = 3;

/// The leaders, the votes, and the tokens given. Each process is encoded in four bits, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct History(pub(super) u128);

const LEADERS: u32 = 0;
const VOTES: u32 = LEADERS + 4 * TERMS_MAX as u32;
const GIVEN: u32 = VOTES + 4 * TERMS_MAX as u32 * SEATS_MAX as u32;

fn number(who: Identity) -> u128 {
    let starts = who.incarnation.count;
    assert!((1..=u64::from(STARTS_MAX)).contains(&starts), "the number of starts is bounded");
    u128::from(seat(who.node)) * u128::from(STARTS_MAX) + u128::from(starts)
}

impl History {
    /// Records `who` at `place`. Returns true if another process is recorded there already.
    fn is_second(&mut self, place: u32, who: u128) -> bool {
        let first = (self.0 >> place) & 15;
        if first == 0 {
            self.0 |= who << place;
        }
        first != 0 && first != who
    }

    /// True if another node than this one has led in a lower term.
    pub(super) fn has_led_before(self, who: Identity, term: Term) -> bool {
        (1..term.0)
            .map(|term| (self.0 >> (LEADERS + 4 * below(term))) & 15)
            .any(|led| led != 0 && (led - 1) / u128::from(STARTS_MAX) != u128::from(seat(who.node)))
    }

    /// True if two nodes have received votes in a term.
    pub(super) fn is_split(self, term: Term) -> bool {
        let votes = (0..u32::from(SEATS_MAX)).map(|seat| {
            let row = seat * u32::from(TERMS_MAX) + below(term.0);
            (self.0 >> (VOTES + 4 * row)) & 15
        });
        let votes: std::collections::BTreeSet<u128> = votes.filter(|&vote| vote != 0).collect();
        votes.len() > 1
    }

    /// Records a fact. Returns the invariant that it breaks.
    pub(super) fn take(&mut self, who: Identity, fact: Fact, safety: Safety) -> Option<&'static str> {
        match fact {
            Fact::Votes { term, candidate } => {
                let row = u32::from(seat(who.node)) * u32::from(TERMS_MAX) + below(term.0);
                self.is_second(VOTES + 4 * row, number(candidate)).then_some("I4")
            }
            Fact::Leads { term, by_own_vote } => {
                if self.is_second(LEADERS + 4 * below(term.0), number(who)) {
                    return Some("I1");
                }
                by_own_vote.then(|| self.take(who, Fact::Votes { term, candidate: who }, safety)).flatten()
            }
            Fact::Elected { term, .. } => {
                if self.is_second(LEADERS + 4 * below(term.0), number(who)) {
                    return Some("I1");
                }
                let token = 1 << (GIVEN + below(term.0));
                let above = match safety {
                    // Each token must be higher than all tokens given before.
                    Safety::Lease => self.0 >> (GIVEN + below(term.0)) != 0,
                    // A lower token may be given later, and the resource orders them; but each token is given once.
                    Safety::Fenced => self.0 & token != 0,
                };
                self.0 |= token;
                above.then_some("I2")
            }
            Fact::Renewed | Fact::Deposed(_) | Fact::Resigned | Fact::Refuses | Fact::JobExited => None,
        }
    }
}

fn below(term: u64) -> u32 {
    assert!((1..=u64::from(TERMS_MAX)).contains(&term), "terms are bounded");
    u32::try_from(term - 1).expect("a small number")
}
