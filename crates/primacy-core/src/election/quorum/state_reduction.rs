//! The reduction of the states of a quorum machine, for an exhaustive search.

use super::{Following, Lead, Poll, Promise, Quorum, Role};
use crate::rng::Rng;
use crate::state_reduction::{StateReduction, Use};
use crate::time::Instant;

impl StateReduction for Quorum {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        // Every field is named, so that a new one must be thought of here.
        let Self {
            config: _,
            hard: _,
            role,
            campaigning: _,
            healthy: _,
            silent_until,
            promise,
            works_until,
            reports: _,
            known: _,
            resignation: _,
            gone: _,
            trigger: _,
            campaign_at,
            lost_elections: _,
            round: _,
            connected: _,
            dead: _,
            refusals: _,
            told_leader: _,
            rng: _,
            outputs: _,
        } = self;
        visit(Use::End, silent_until);
        visit(Use::End, campaign_at);
        visit(Use::End, works_until);
        if let Some(Promise { to: _, term: _, until }) = promise {
            visit(Use::End, until);
        }
        match role {
            Role::Follower { leader: None } => {} // It waits for `campaign_at`.
            Role::Follower { leader: Some(Following { leader: _, detector }) } => {
                visit(Use::Start, detector.heard_at_mut());
            }
            Role::PreCandidate(poll) | Role::Candidate(poll) => poll.visit_instants(visit),
            Role::Leader(lead) => lead.visit_instants(visit),
        }
    }

    fn simplify(&mut self) {
        self.refusals.clear(); // Only people read it.
        self.rng = Rng::new(0); // It draws waits, and nothing else.
    }
}

impl Poll {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        let Self { round: _, asked_at, until, yes: _, no } = self;
        visit(Use::Start, asked_at);
        visit(Use::End, until);
        for (_, at) in no.values_mut() {
            visit(Use::Start, at);
        }
    }
}

impl Lead {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        let Self { valid_until, confirm_by, beat_at, sent, support, promises: _, resigning: _ } = self;
        if let Some(until) = valid_until {
            visit(Use::End, until);
        }
        visit(Use::End, confirm_by);
        visit(Use::End, beat_at);
        for (_, at) in sent {
            visit(Use::Start, at);
        }
        for until in support.values_mut() {
            visit(Use::End, until);
        }
    }
}
