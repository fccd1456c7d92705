//! The reduction of the states of a candidate over a store, for an exhaustive search.

use super::{Asked, Hold, Lease, RequestId, Role, Seen, Write};
use crate::state_reduction::{StateReduction, Use};
use crate::time::Instant;

impl StateReduction for Lease {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        // Every field is named, so that a new one must be thought of here.
        let Self {
            config: _,
            role,
            campaigning: _,
            unknown_before: _,
            waits_until,
            healthy: _,
            seen,
            highest: _,
            pending,
            asked,
            last_request: _,
            changed: _,
            act_at,
            campaign_from,
            young_since,
            longest: _,
            told_leader: _,
            rng: _,
            outputs: _,
        } = self;
        visit(Use::End, act_at);
        visit(Use::End, campaign_from);
        visit(Use::End, waits_until);
        if let Some(since) = young_since {
            visit(Use::Start, since);
        }
        if let Some(Seen { found: _, since }) = seen {
            visit(Use::Start, since);
        }
        for Write { nonce: _, asked_at } in pending {
            visit(Use::Start, asked_at);
        }
        if let Some(Asked { request: _, at, record: _ }) = asked {
            visit(Use::Start, at);
        }
        match role {
            Role::Waiting | Role::Claiming => {} // What they wait for is above.
            Role::Releasing { until } => visit(Use::End, until),
            Role::Holding(Hold { token: _, valid_until, believes_from, renew_at, resigning: _ }) => {
                visit(Use::End, valid_until);
                visit(Use::End, renew_at);
                if let Some(from) = believes_from {
                    visit(Use::End, from);
                }
            }
        }
    }

    fn simplify(&mut self) {} // Its generator draws nonces, which must stay apart.
}

impl Lease {
    /// Renumbers the last request, so that a search does not distinguish states by the number of requests. Only
    /// equality with the last number matters.
    pub fn renumber(&mut self, last: RequestId) {
        if let Some(asked) = &mut self.asked {
            asked.request = last;
        }
        self.last_request = last;
    }

    /// The number of the last request.
    #[must_use]
    pub const fn last_request(&self) -> RequestId {
        self.last_request
    }
}
