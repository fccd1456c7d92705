//! The reduction of the states of a replica, for an exhaustive search.

use primacy_core::state_reduction::{StateReduction, Use};
use primacy_core::time::Instant;

use super::{Replica, Replicated, Role};

/// The last round of every follower after [`simplify`](StateReduction::simplify).
pub const ROUND: u64 = 2;

impl<S: Replicated> StateReduction for Replica<S> {
    /// Visits the instants of work that is due at once first, and then those of resent messages.
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

    /// Reduces the numbers that only save a leader messages. Rounds become few: any answer may be to the newest round,
    /// and it only matters whether anything was sent to a follower since it was last rewound. The end of a follower's
    /// log is known or requested, so an answer is always awaited. The messages in flight only matter if they can fill
    /// the window.
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
