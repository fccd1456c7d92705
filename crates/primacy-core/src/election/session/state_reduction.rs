//! The reduction of the states of a candidate in a queue, for an exhaustive search.

use super::{Asked, Eviction, Lead, Line, RequestId, RequestKind, Role, Session};
use crate::state_reduction::{StateReduction, Use};
use crate::time::Instant;

impl StateReduction for Session {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        // Every field is named, so that a new one must be thought of here.
        let Self {
            config: _,
            role,
            campaigning: _,
            healthy: _,
            line,
            asked,
            keeping,
            last_request: _,
            changed: _,
            act_at,
            campaign_from,
            begin_from,
            too_short: _,
            seen,
            first: _,
            spent: _,
            told_leader: _,
            outputs: _,
        } = self;
        visit(Use::End, act_at);
        visit(Use::End, campaign_from);
        visit(Use::End, begin_from);
        if let Some(Line { session: _, timeout: _, kept_at, keep_at }) = line {
            visit(Use::Start, kept_at);
            visit(Use::End, keep_at);
        }
        if let Some(Asked { request: _, at, what }) = asked {
            // A session counts from when it was asked for.
            visit(if *what == RequestKind::Begin { Use::Start } else { Use::Asked }, at);
        }
        if let Some((_, at)) = keeping {
            visit(Use::Start, at);
        }
        if let Some((_, at)) = seen {
            visit(Use::Start, at);
        }
        match role {
            Role::Waiting => {}
            Role::Leading(Lead { token: _, valid_until, told_until, resigning: _ }) => {
                visit(Use::End, valid_until);
                visit(Use::End, told_until);
            }
            Role::Leaving { until, left: _ } => visit(Use::End, until),
        }
    }

    fn simplify(&mut self) {
        // The time of the look only bounds for how long the leader is reported.
        if let Some((_, at)) = &mut self.seen {
            *at = Instant::NEVER;
        }
    }
}

impl StateReduction for Eviction {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        let Self {
            dead: _,
            until,
            poll_interval: _,
            asked,
            last_request: _,
            act_at,
            found: _,
            evicted: _,
            ending: _,
            outputs: _,
        } = self;
        visit(Use::End, until);
        visit(Use::End, act_at);
        if let Some((_, at)) = asked {
            visit(Use::Asked, at);
        }
    }

    fn simplify(&mut self) {} // It draws nothing.
}

impl Session {
    /// Renumbers the requests under way, so that a search does not distinguish states by the number of requests. Only
    /// whether an answer has the same number matters.
    pub fn renumber(&mut self, asked: RequestId, keeping: RequestId) {
        if let Some(request) = &mut self.asked {
            request.request = asked;
        }
        if let Some((request, _)) = &mut self.keeping {
            *request = keeping;
        }
        self.last_request = asked.max(keeping);
    }

    /// The numbers of the request to the queue, and of the keep-alive.
    #[must_use]
    pub fn under_way(&self) -> [Option<RequestId>; 2] {
        [self.asked.map(|asked| asked.request), self.keeping.map(|(request, _)| request)]
    }
}

impl Eviction {
    /// Renumbers the last request, as [`Session::renumber`] does.
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
