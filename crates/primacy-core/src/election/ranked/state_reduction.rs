//! The reduction of the states of a ranked machine, for an exhaustive search.

use super::{Candidate, Elector, Lead, Ranked};
use crate::protocol::ElectionTrigger;
use crate::rng::Rng;
use crate::state_reduction::{StateReduction, Use};
use crate::term::Term;
use crate::time::Instant;

/// A generator whose first number is 0, so that every wait is short.
const DRAWS_NOTHING: u64 = 0_u64.wrapping_sub(0x9E37_79B9_7F4A_7C15);

impl StateReduction for Ranked {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        // Every field is named, so that a new one must be thought of here.
        let Self {
            config: _,
            hard: _,
            elector,
            candidate,
            campaigning: _,
            healthy: _,
            yields_until,
            works_until,
            heard_of: _,
            proposed: _,
            led: _,
            resigned: _,
            seen: _,
            favourite: _,
            tally: _,
            hears: _,
            rounds: _,
            asked: _,
            round_ends,
            votes_from,
            hearsay: _,
            state: _,
            connected: _,
            dead: _,
            reports: _,
            trigger: _,
            told_leader: _,
            rng: _,
            outputs: _,
        } = self;
        visit(Use::End, yields_until);
        visit(Use::End, works_until);
        visit(Use::End, round_ends);
        visit(Use::End, votes_from);
        match elector {
            Elector::Watching { leader: _, until } | Elector::Voting { ballot: _, slate: _, until } => {
                visit(Use::End, until);
            }
        }
        if let Candidate::Leader(Lead { number: _, beat_at, sent, support, valid_until, resigning: _ }) =
            candidate
        {
            visit(Use::End, beat_at);
            visit(Use::End, valid_until);
            for (_, at) in sent {
                visit(Use::Start, at);
            }
            for at in support.values_mut() {
                visit(Use::Start, at);
            }
        }
    }

    fn simplify(&mut self) {
        self.hearsay.clear(); // It lengthens a wait, and a search lets every wait be short or long.
        self.trigger = ElectionTrigger::Silence; // For people.
        self.proposed = Term(0); // It is told to those who have lost their disk, and a search has none.
        self.rng = Rng::new(DRAWS_NOTHING);
        // The number of doublings of the gathering time, up to its limit.
        while self.rounds > 0 {
            let now = self.gathering();
            self.rounds -= 1;
            if self.gathering() != now {
                self.rounds += 1;
                break;
            }
        }
    }
}
