//! Publishing announcements: the application's request, and the elections that carry announcements.

use std::sync::Arc;

use primacy_core::election::confirmed::Confirmed;
use primacy_core::election::lease::Lease;
use primacy_core::election::quorum::Quorum;
use primacy_core::election::ranked::Ranked;
use primacy_core::election::seniority::Seniority;
use primacy_core::{Instant, LeaderSequence, Protocol};

use super::Frontend;
use crate::error::PublishError;
use crate::leadership::request::PublishRequest;

/// A machine that may carry a leader's announcements.
pub(crate) trait Announces {
    /// True if the leader's messages carry an announcement.
    const CARRIES: bool = false;

    /// Announces the state, and returns its number; `None` if this node does not lead, or if messages carry no
    /// announcement.
    fn announce(&mut self, _: Instant, _: Arc<[u8]>) -> Option<LeaderSequence> {
        None
    }

    /// The last announcement of the leader, as far as this node knows.
    fn announced(&self) -> Option<(LeaderSequence, &Arc<[u8]>)> {
        None
    }
}

impl Announces for Ranked {
    const CARRIES: bool = true;

    fn announce(&mut self, now: Instant, state: Arc<[u8]>) -> Option<LeaderSequence> {
        let told = Self::announce(self, now, state);
        self.state().filter(|_| told).map(|(number, _)| number)
    }

    fn announced(&self) -> Option<(LeaderSequence, &Arc<[u8]>)> {
        self.state()
    }
}

impl Announces for Quorum {}
impl Announces for Seniority {}
impl Announces for Lease {}
impl<N: Protocol, C: Protocol> Announces for Confirmed<N, C> {}

impl Frontend {
    /// Announces the state, and answers the request. The machine's effects must be performed afterwards.
    pub(crate) fn on_publish<P: Announces>(&self, now: Instant, order: PublishRequest, machine: &mut P) {
        let PublishRequest { term, state, answer } = order;
        let current = self.cell.as_ref().filter(|cell| !cell.is_ending());
        let leads = current.is_some_and(|cell| term.is_none_or(|term| term == cell.term()));
        let number = if leads { machine.announce(now, state) } else { None };
        let node = self.identity.node;
        let announced = number.ok_or_else(|| {
            let leader = self.publisher.leader().map(|leader| leader.identity.node);
            if P::CARRIES && leader == Some(node) {
                return PublishError::GivingUp { node };
            }
            let leader = leader.filter(|&leader| leader != node);
            if P::CARRIES { PublishError::NotLeading { node, leader } } else { PublishError::NotCarried }
        });
        // The caller may have stopped waiting.
        let _ = answer.send(announced);
    }

    /// Publishes the machine's last announcement to the observers, if it is newer than theirs.
    pub(crate) fn tell_announced(&self, machine: &impl Announces) {
        if let Some((number, state)) = machine.announced() {
            self.publisher.announced(number, state);
        }
    }
}
