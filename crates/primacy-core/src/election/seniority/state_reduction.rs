//! The reduction of the states of a machine, for an exhaustive search.

use super::{Gathering, Lead, Member, Membership, Merge, Seniority};
use crate::state_reduction::{StateReduction, Use};
use crate::time::Instant;

impl StateReduction for Seniority {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        // Every field is named, so that a new one must be thought of here.
        let Self {
            config: _,
            membership,
            joining: _,
            claimed: _,
            request: _,
            campaigning: _,
            healthy: _,
            told_leader: _,
            outputs: _,
        } = self;
        match membership {
            Membership::Outside(outside) => {
                visit(Use::End, &mut outside.asks_at);
                visit(Use::End, &mut outside.founds_at);
            }
            Membership::Member(member) => member.visit_instants(visit),
        }
    }

    fn simplify(&mut self) {}
}

impl Member {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        let Self { view: _, lead, watch, gone: _, heard_of: _, beat_at, asked_until, decision, held: _ } =
            self;
        visit(Use::End, beat_at);
        visit(Use::End, asked_until);
        visit(Use::Start, &mut watch.since);
        visit(Use::End, &mut watch.check_at);
        for detector in watch.detectors.values_mut() {
            visit(Use::Start, detector.heard_at_mut());
        }
        for (_, until) in watch.told.values_mut() {
            visit(Use::End, until);
        }
        if let Some(decision) = decision {
            visit(Use::End, &mut decision.until);
            visit(Use::End, &mut decision.stops_at);
        }
        let Some(Lead { gathering, joiners: _, probe_at, merge, resigning: _ }) = lead else { return };
        visit(Use::End, probe_at);
        if let Some(Gathering { waits_for: _, until, welcomes: _ }) = gathering {
            visit(Use::End, until);
        }
        match merge {
            Merge::None => {}
            Merge::Asks { of: _, until } | Merge::Stays { until } => visit(Use::End, until),
        }
    }
}
