//! The instants of a replica, for a search.

use primacy_core::state_reduction::{StateReduction, Use};
use primacy_core::time::Instant;

use super::{Replica, Replicated, Role};

/// The round that every follower was last sent, once [`simplify`](StateReduction::simplify) has made all rounds alike.
pub const ROUND: u64 = 2;

impl<S: Replicated> StateReduction for Replica<S> {
    /// The instants of work that is due at once come first, and then those of messages that are sent again without an
    /// answer.
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        let Self { flush_at, recovery, incoming, outgoing, role, .. } = self;
        let ends = [
            flush_at.as_mut(),
            recovery.as_mut().map(|recovery| &mut recovery.ask_at),
            incoming.as_mut().map(|incoming| &mut incoming.ask_at),
            outgoing.as_mut().map(|outgoing| &mut outgoing.until),
        ];
        ends.into_iter().flatten().for_each(|end| visit(Use::End, end));
        match role {
            Role::Follower { .. } => {}
            Role::Passive(sync) => visit(Use::End, &mut sync.resend_at),
            Role::Leader(lead) => {
                lead.learners.values_mut().for_each(|learner| visit(Use::Start, &mut learner.asked_at));
                let ends = lead.followers.values_mut().filter_map(|follower| follower.resend_at.as_mut());
                let next = lead.next.as_mut().map(|next| &mut next.until);
                ends.chain(next).for_each(|end| visit(Use::End, end));
            }
        }
    }

    /// Numbers that only spare a leader messages bear on nothing else. Rounds become few: any answer may be to the
    /// newest one, and of a follower it matters only whether anything was sent since it was last rewound. The end of a
    /// follower's log is known or asked for, so an answer is always waited for. The messages under way matter only
    /// where the window can be full.
    fn simplify(&mut self) {
        let window = self.config.window;
        let Role::Leader(lead) = &mut self.role else { return };
        for follower in lead.followers.values_mut() {
            follower.rewound = if follower.round > follower.rewound { ROUND - 1 } else { ROUND };
            follower.round = ROUND;
            if follower.sent_id.is_some() {
                follower.resend_at = Some(Instant::NEVER);
            }
            if window == usize::MAX {
                follower.in_flight.clear();
            }
        }
    }
}
