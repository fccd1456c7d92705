//! Watching the leader of an election.

mod announcements;
mod members;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock;
use primacy_core::{Instant, Leader, LeaderSequence, Violation};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;

pub use announcements::{ANNOUNCEMENT_MAX, Announcement, Announcements};
pub(crate) use members::tell;
pub use members::{Members, Membership};

/// The most changes an observer may lag before the oldest are dropped and shown as a gap.
const BACKLOG: usize = 256;

/// One change that this node learned, in the order in which it learned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The present leader, as far as this node knows; `None` if there is none.
    Leader(Option<Leader>),
    /// A violation of an invariant, which an operator should examine.
    Violation(Violation),
    /// The number of changes that were dropped because this observer lagged.
    Missed(u64),
}

/// Shows every change of leader that this node learns, in order, gaps and "no leader" included.
///
/// An observer takes no part in the election and delays nothing: an observer that lags sees [`Change::Missed`].
#[derive(Debug)]
pub struct Observer {
    current: Option<Leader>,
    first: VecDeque<Change>,
    changes: broadcast::Receiver<Change>,
}

impl Observer {
    /// The leader as of the last change that [`changed`](Self::changed) returned.
    #[must_use]
    pub const fn leader(&self) -> Option<Leader> {
        self.current
    }

    /// The next change; the first one is the leader at the start. `None` when the elector is gone.
    ///
    /// Cancel safe: a change that a dropped future did not return is returned by the next call.
    pub async fn changed(&mut self) -> Option<Change> {
        let change = match self.first.pop_front() {
            Some(change) => change,
            None => match self.changes.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(missed)) => Change::Missed(missed),
                Err(RecvError::Closed) => return None,
            },
        };
        if let Change::Leader(leader) = change {
            self.current = leader;
        }
        Some(change)
    }
}

/// The driver's side of all observers.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    /// The leader, and the time since which it is known.
    current: Arc<Mutex<(Option<Leader>, Instant)>>,
    changes: broadcast::Sender<Change>,
    announced: watch::Sender<Option<Announcement>>,
    pub(crate) members: watch::Sender<Membership>,
}

impl Publisher {
    pub(crate) fn new() -> Self {
        let current = Arc::new(Mutex::new((None, clock::now())));
        let (announced, members) = (watch::Sender::new(None), watch::Sender::new(Membership::Outside));
        Self { current, changes: broadcast::channel(BACKLOG).0, announced, members }
    }

    /// Publishes the announcement with this number, unless a newer one was published.
    pub(crate) fn announced(&self, number: LeaderSequence, state: &Arc<[u8]>) {
        self.announced.send_if_modified(|newest| {
            let is_newer = newest.as_ref().is_none_or(|newest| newest.number < number);
            if is_newer {
                *newest = Some(Announcement { number, state: Arc::clone(state) });
            }
            is_newer
        });
    }

    /// The newest announcement.
    pub(crate) fn newest_announced(&self) -> Option<Announcement> {
        self.announced.borrow().clone()
    }

    pub(crate) fn announcements(&self) -> watch::Receiver<Option<Announcement>> {
        self.announced.subscribe()
    }

    pub(crate) fn publish(&self, change: Change) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Change::Leader(leader) = change
            && leader != current.0
        {
            *current = (leader, clock::now());
        }
        // There may be no observer.
        let _ = self.changes.send(change);
    }

    /// The leader, as far as this node knows, and the time since which it is known.
    pub(crate) fn leader_since(&self) -> (Option<Leader>, Instant) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The leader, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<Leader> {
        self.leader_since().0
    }

    /// A new observer. It misses nothing: the present leader and the subscription are taken under one lock.
    pub(crate) fn observe(&self) -> Observer {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let first = VecDeque::from([Change::Leader(current.0)]);
        Observer { current: None, first, changes: self.changes.subscribe() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primacy_core::{Identity, Incarnation, NodeId, Term};

    fn leader(term: u64) -> Change {
        let incarnation = Incarnation { count: 1, nonce: 1 };
        let identity = Identity { node: NodeId::new("a").unwrap(), incarnation };
        Change::Leader(Some(Leader { identity, term: Term(term) }))
    }

    #[tokio::test]
    async fn changes_come_in_order_and_gaps_are_shown() {
        let publisher = Publisher::new();
        publisher.publish(leader(1));
        let mut observer = publisher.observe();
        let behind = BACKLOG as u64 + 5;
        for term in 2..=behind + 1 {
            publisher.publish(leader(term));
        }
        publisher.publish(Change::Leader(None));
        assert_eq!(observer.changed().await, Some(leader(1)));
        assert_eq!(observer.changed().await, Some(Change::Missed(6)));
        assert_eq!(observer.changed().await, Some(leader(8)));
        for _ in 0..BACKLOG - 2 {
            assert!(matches!(observer.changed().await, Some(Change::Leader(Some(_)))));
        }
        assert_eq!(observer.changed().await, Some(Change::Leader(None)));
        assert_eq!(observer.leader(), None);
        drop(publisher);
        assert_eq!(observer.changed().await, None);
    }
}
