//! Proposing requests to the leader's log: each once, and only if it can be decoded.

use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::id::{Identity, NodeId};
use primacy_core::term::Term;
use primacy_core::time::Instant;

use super::{Answer, Keeps, Lead, Message, Metadata};
use crate::command::{OPERATIONS_IN_ALL_MAX, OPERATIONS_MAX, Request, RequestLimits};
use crate::replication::log::PAYLOAD_MAX;

/// The limit on the bytes of other nodes' writes that wait while a new leader catches up. Beyond it they are dropped,
/// and the other nodes send them again.
const EARLY_MAX: usize = 4 << 20;

/// The limits on a request in a log. The limit on its bytes is checked on the encoded request.
pub(super) const LIMITS: RequestLimits =
    RequestLimits { bytes: usize::MAX, operations: OPERATIONS_MAX, operations_in_all: OPERATIONS_IN_ALL_MAX };

/// Requests that arrive at a leader before it is active.
#[derive(Clone, Debug, Default)]
pub(super) struct Early {
    term: Term,
    requests: Vec<Arc<[u8]>>,
    bytes: usize,
}

impl Early {
    fn push(&mut self, term: Term, request: Arc<[u8]>) {
        if self.term != term {
            *self = Self { term, ..Self::default() };
        }
        if self.bytes + request.len() <= EARLY_MAX {
            self.bytes += request.len();
            self.requests.push(request);
        }
    }

    /// The requests that arrived at the leader of this term.
    pub(super) fn of(self, term: Term) -> Vec<Arc<[u8]>> {
        if self.term == term { self.requests } else { Vec::new() }
    }
}

impl<S: Keeps> Metadata<S> {
    pub(super) fn on_propose(&mut self, now: Instant, from: Identity, requests: Vec<Arc<[u8]>>) {
        let leads = match self.lead {
            Lead::Held { .. } => true,
            Lead::Elected { .. } | Lead::None => self.quorum.has_won(),
        };
        if !leads {
            return; // They tell the next leader, or this one again.
        }
        let is_new = |request: &Arc<[u8]>| Request::sender(request).is_none_or(|sender| !self.has(&sender));
        // Every node must be able to decode and apply every record in the log. All nodes check their own clients'
        // requests, so a request that fails here comes from a faulty node, or from another version.
        let may_stand = |request: &Arc<[u8]>| {
            Request::decode(request).is_ok_and(|request| request.command.check(LIMITS).is_ok())
        };
        let (readable, others): (Vec<_>, Vec<_>) = requests.into_iter().filter(is_new).partition(may_stand);
        let unreadable: Vec<u64> = others
            .iter()
            .filter_map(|request| Request::sender(request))
            .filter_map(|(client, sequence)| (client == from).then_some(sequence))
            .collect();
        if !unreadable.is_empty() {
            let (incarnation, to, read) = (self.me.incarnation, from.incarnation, None);
            let told = Message::Told { incarnation, to, read, sessions: Vec::new(), unreadable };
            self.send(from.node, told);
        }
        for request in readable {
            match self.lead {
                // A request without room is dropped, and its node sends it again.
                Lead::Held { .. } if self.replica.has_room() && request.len() <= PAYLOAD_MAX => {
                    self.propose(now, request);
                }
                Lead::Held { .. } => {}
                // Other nodes may learn of this leader before it is active, or even before it knows that it has won.
                Lead::Elected { .. } | Lead::None => self.early.push(self.quorum.term(), request),
            }
        }
    }

    /// Handles the leader's report that it cannot decode these requests of this node.
    pub(super) fn on_unreadable(&mut self, from: NodeId, sequences: &[u64]) {
        let leads = self.leader.is_some_and(|leader| leader.identity.node == from);
        if !leads || self.serves() {
            return; // Another one was told them meanwhile, or this node writes them itself.
        }
        for &sequence in sequences {
            if let Some(ticket) = self.clients.applied(self.me, sequence) {
                self.answer(Answer::Unreadable(ticket));
            }
        }
    }

    /// Proposes a request, unless it is in the log already: a node that is behind resends its requests, and copies in
    /// the log would keep it behind forever.
    pub(super) fn propose(&mut self, now: Instant, request: Arc<[u8]>) {
        let Some(sender) = Request::sender(&request) else { return };
        if !self.has(&sender) {
            self.proposed.insert(sender);
            self.replica.propose(now, request);
        }
    }

    /// True if this leader has proposed or applied this request.
    fn has(&self, sender: &(Identity, u64)) -> bool {
        self.proposed.contains(sender) || self.replica.state().has_applied(&sender.0, sender.1)
    }

    /// Answers requests of this node's clients that were applied as part of a snapshot, for which there are no
    /// outcomes.
    pub(super) fn answer_applied(&mut self) {
        if !self.replica.is_current() {
            return; // A snapshot may have what is not committed.
        }
        let state = self.replica.state();
        for ticket in self.clients.settle(|me, sequence| state.has_applied(me, sequence)) {
            self.answer(Answer::Done(ticket));
        }
    }
}
