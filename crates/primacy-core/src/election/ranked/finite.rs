//! The states of a ranked machine, made few for an exhaustive search.

use super::{Candidate, Elector, Lead, Ranked};
use crate::finite::{Finite, Use};
use crate::rng::Rng;
use crate::time::Instant;

impl Finite for Ranked {
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
            heard_of: _,
            led: _,
            seen: _,
            favourite: _,
            tally: _,
            hears: _,
            rounds: _,
            round_ends,
            hearsay: _,
            state: _,
            connected: _,
            dead: _,
            reports: _,
            occasion: _,
            told_leader: _,
            rng: _,
            outputs: _,
        } = self;
        visit(Use::End, yields_until);
        visit(Use::End, round_ends);
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
        self.rng = Rng::new(0); // It draws waits, and nothing else.
    }
}
