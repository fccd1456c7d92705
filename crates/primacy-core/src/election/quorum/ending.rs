//! The end of a leadership in a [quorum election](super): by resignation, by expiry, or by a message of a peer.

use super::{Body, Quorum, Resignation, Role};
use crate::hard_state::TERM_MAX;
use crate::id::{Identity, NodeId};
use crate::protocol::{ElectionTrigger, Event, Reason};
use crate::term::Term;
use crate::time::Instant;

impl Quorum {
    /// Ends a leadership whose lease has run out, before any input is handled. Its heartbeats stop too; otherwise
    /// followers would stick to a leader without a lease.
    pub(super) fn expire(&mut self, now: Instant) {
        if let Role::Leader(lead) = &self.role
            && now >= lead.valid_until.unwrap_or(lead.confirm_by)
        {
            self.step_down(Reason::Expired);
            self.shorten_promise_to_itself(now);
            self.campaign_after_random_wait(now);
        }
    }

    /// Ends a candidacy, or resigns the lead in order.
    pub(super) fn retire(&mut self, now: Instant, reason: Reason) {
        match &self.role {
            Role::Leader(_) => self.resign(now, reason),
            Role::PreCandidate(_) | Role::Candidate(_) => self.role = Role::Follower { leader: None },
            Role::Follower { .. } => {} // It does not lead.
        }
    }

    /// Asks the application to drain. The lead is kept until it has drained, so that no other node starts work before.
    pub(super) fn resign(&mut self, now: Instant, reason: Reason) {
        let Role::Leader(lead) = &mut self.role else { return };
        match (lead.valid_until, lead.resigning) {
            (Some(_), None) => {
                lead.resigning = Some(reason);
                self.tell(Event::Resigning(reason));
            }
            (Some(_), Some(_)) => {}                // It does so already.
            (None, _) => self.give_up(now, reason), // Nobody was told to work, so there is nothing to drain.
        }
    }

    /// Gives up the lead for good, and then tells the others that they need not wait for the end of the lease.
    pub(super) fn give_up(&mut self, now: Instant, reason: Reason) {
        let (resignation, earlier) =
            (Resignation { leader: self.config.me, term: self.hard.term }, self.works_until);
        self.step_down(reason);
        self.works_until = earlier; // The work of this leadership has ended.
        self.shorten_promise_to_itself(now);
        if now < earlier {
            // The work of an earlier leadership may still be draining, protected by the others' promises: let them run
            // out.
            return self.campaign_after_random_wait(now.after(self.config.promise_duration));
        }
        self.resignation = Some(resignation);
        let successor = match reason {
            Reason::Transferred(to) => Some(to),
            Reason::Resigned | Reason::Unhealthy | Reason::Expired | Reason::HigherTerm(_) => None,
            Reason::Undecided | Reason::Overwritten | Reason::Removed | Reason::SessionEnded => None,
            Reason::DiskLost | Reason::Violation | Reason::Halted => None,
        };
        self.send_all(Body::Resigned { successor });
        // Let the others campaign first.
        self.campaign_after_random_wait(now.after(self.config.promise_duration));
    }

    /// Ends this node's leadership, if it has one. Its promise to itself holds on, like the promise of any follower:
    /// until the application's work or the lease has ended, this node must not support another.
    pub(super) fn step_down(&mut self, reason: Reason) {
        let Role::Leader(lead) = &self.role else { return };
        if let Some(until) = lead.valid_until {
            // The lease of an earlier leadership may end later: other voters, with longer promises, may have given it.
            self.works_until = self.works_until.max(until);
            self.tell(Event::Deposed(reason));
        }
        self.trigger = ElectionTrigger::Silence;
        self.role = Role::Follower { leader: None };
    }

    /// Shortens the promise to itself to the end of the work that it still protects: that of earlier leaderships. The
    /// work of the latest one has ended.
    fn shorten_promise_to_itself(&mut self, now: Instant) {
        let Some(promise) = self.promise.as_mut().filter(|promise| promise.to == self.config.me) else {
            return;
        };
        promise.until = promise.until.min(self.works_until);
        if now >= promise.until {
            self.promise = None;
        }
    }

    pub(super) fn on_resigned(
        &mut self,
        now: Instant,
        from: Identity,
        term: Term,
        successor: Option<NodeId>,
    ) {
        let known = self.resignation.is_some_and(|resignation| term <= resignation.term);
        if term < self.hard.term || known {
            return; // Of an earlier leadership, or a copy.
        }
        self.learn_resignation(now, Some(Resignation { leader: from, term }));
        if term > self.hard.term && self.hears().is_none() && !matches!(self.role, Role::Leader(_)) {
            // This node has not heard of that leadership; it can only succeed it in a higher term.
            self.fail_round(now);
            self.adopt_term(term);
        }
        if !matches!(self.role, Role::Follower { leader: None }) {
            return; // Another leads already, or this node stands.
        }
        if successor == Some(self.config.me.node) {
            self.trigger = ElectionTrigger::Transferred;
            self.campaign_at = now;
            if self.can_campaign() && now >= self.silent_until {
                self.campaign(now);
            }
        } else if successor.is_some() {
            self.campaign_at = self.campaign_at.after(self.stagger());
        }
    }

    /// Applies a resignation, heard from the leader itself or passed on by a candidate: the promise to it has ended.
    pub(super) fn learn_resignation(&mut self, now: Instant, resignation: Option<Resignation>) {
        let own = |resignation: &Resignation| resignation.leader == self.config.me;
        let Some(resignation) =
            resignation.filter(|resignation| !own(resignation) && resignation.term <= TERM_MAX)
        else {
            return;
        };
        self.release(now, resignation.leader, resignation.term, ElectionTrigger::Resigned);
        if resignation.term >= self.hard.term
            && self.resignation.is_none_or(|known| resignation.term > known.term)
        {
            self.resignation = Some(resignation);
        }
    }
}
