//! The reduction of the states of an update, for an exhaustive search.

use super::RecordUpdate;
use crate::election::lease::RequestId;
use crate::state_reduction::{StateReduction, Use};
use crate::time::Instant;

impl StateReduction for RecordUpdate {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        // Every field is named, so that a new one must be thought of here.
        let Self {
            task: _,
            until,
            poll_interval: _,
            asked,
            last_request: _,
            nonce: _,
            act_at,
            unknown_before: _,
            waits_until,
            nothing_to_do: _,
            ending: _,
            rng: _,
            outputs: _,
        } = self;
        visit(Use::End, until);
        visit(Use::End, act_at);
        visit(Use::End, waits_until);
        if let Some((_, at)) = asked {
            visit(Use::Start, at);
        }
    }

    fn simplify(&mut self) {} // Its generator draws nonces, which must stay apart.
}

impl RecordUpdate {
    /// Renumbers the last request, so that a search does not distinguish states by the number of requests. Only
    /// equality with the last number matters.
    pub fn renumber(&mut self, last: RequestId) {
        if let Some((request, _)) = &mut self.asked {
            *request = last;
        }
        self.last_request = last;
    }

    /// The number of the last request.
    #[must_use]
    pub const fn last_request(&self) -> RequestId {
        self.last_request
    }
}
