//! A leader's announcements to all others: a few bytes of the application, with a number that never goes back.
//!
//! Only the election `ranked` has them: it carries them in every message of the leader.

use std::fmt;
use std::sync::Arc;

use primacy_core::election::bully::Bully;
use primacy_core::election::confirmed::Confirmed;
use primacy_core::election::lease::Lease;
use primacy_core::election::on_a_ring::{OnARing, Probing};
use primacy_core::election::quorum::Quorum;
use primacy_core::election::ranked::{Ranked, STATE_MAX};
use primacy_core::election::seniority::Seniority;
use primacy_core::{Instant, LeaderSequence, NodeId, Protocol, Term};
use tokio::sync::{oneshot, watch};

use crate::driver::{Desk, Order};
use crate::elector::Elector;
use crate::leadership::Leadership;

/// The longest state that a leader can announce, in bytes.
pub const ANNOUNCEMENT_MAX: usize = STATE_MAX;

/// An announcement of a leader, as one node has received it.
#[derive(Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The message of the leader with which it came: the larger, the later. It grows with every message, whether the state has
    /// changed or not, and on one node it never goes back while the process runs.
    pub number: LeaderSequence,
    /// The state. Empty as long as no leader has announced any.
    pub state: Arc<[u8]>,
}

/// The state is the application's, and may be long.
impl fmt::Debug for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaderSequence { term, counter } = self.number;
        write!(f, "Announcement({} bytes, number {term}.{counter})", self.state.len())
    }
}

/// The reason why a state is not announced. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Only the leader announces, until its work shall stop.
    #[error("{node} does not lead: {}; let the leader publish it", leader.map_or_else(|| "nobody does, as far as it knows".to_owned(), |leader| format!("{leader} does")))]
    NotLeading {
        /// The node that should have announced it.
        node: NodeId,
        /// The leader, as far as the node knows.
        leader: Option<NodeId>,
    },
    /// The leader drains its work, and announces nothing more.
    #[error("{node} is giving up its lead; let the next leader publish it")]
    GivingUp {
        /// The node that still leads.
        node: NodeId,
    },
    /// Every message of the leader carries it, so it is short.
    #[error(
        "a leader publishes at most {ANNOUNCEMENT_MAX} bytes, and this has {length}; publish where the rest can be found"
    )]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// Messages of this election's leader carry nothing of the application's.
    #[error(
        "only a leader that is elected by `ranked` announces a state to the others; choose that election"
    )]
    NotCarried,
    /// The node is ending, or has ended.
    #[error("the node takes no part in the election any more")]
    Closed,
}

/// Shows the leaders' announcements, as this node receives them; made by [`Elector::announcements`].
///
/// An observer delays nothing. It sees the newest state and not each one: of two that are announced in a row, it may see the
/// later one only.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use primacy::{Algorithm, Elector};
///
/// let peers = "a=10.0.0.1:7400,b=10.0.0.2:7400,c=10.0.0.3:7400".parse()?;
/// let builder = Elector::builder().election("shards").node("a".parse()?).algorithm(Algorithm::Ranked);
/// let elector = builder.insecure_cleartext(true).peers(peers).await?;
///
/// // On every node, for as long as it lives:
/// let mut announcements = elector.announcements();
/// tokio::spawn(async move {
///     while let Some(announcement) = announcements.changed().await {
///         println!("{}: {}", announcement.number, String::from_utf8_lossy(&announcement.state));
///     }
/// });
///
/// // On the one that leads:
/// let leadership = elector.campaign().await?;
/// leadership.publish("shard 1 on b, shard 2 on c").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Announcements {
    newest: watch::Receiver<Option<Announcement>>,
    seen: Option<Announcement>,
}

impl Announcements {
    pub(crate) const fn new(newest: watch::Receiver<Option<Announcement>>) -> Self {
        Self { newest, seen: None }
    }

    /// The newest announcement that this node has received or, as the leader, has sent; `None` if it has heard no leader yet.
    #[must_use]
    pub fn newest(&self) -> Option<Announcement> {
        self.newest.borrow().clone()
    }

    /// The next state: another one, or the same from another leader that has taken it over. The first one is the state known at
    /// the start. Numbers grow. `None` when the elector is gone; in an election that carries no state, nothing comes before.
    ///
    /// Cancel safe: a state is seen or will be seen next time.
    pub async fn changed(&mut self) -> Option<Announcement> {
        let seen = self.seen.as_ref().map(|seen| (seen.number.term, Arc::clone(&seen.state)));
        let is_another = |newest: &Option<Announcement>| match (newest, &seen) {
            (Some(newest), Some((term, state))) => newest.number.term != *term || newest.state != *state,
            (newest, None) => newest.is_some(),
            (None, Some(_)) => false,
        };
        let next = self.newest.wait_for(is_another).await.ok()?.clone();
        self.seen.clone_from(&next);
        next
    }
}

impl<M: Copy> Leadership<M> {
    /// Publishes this state to all nodes: at once, and again with every later message of this node as the leader. In the election
    /// `ranked` only. It replaces the state published before. Returns the number of the message that first carried it; it is
    /// none of those that [`next_sequence`](Self::next_sequence) gives.
    ///
    /// A state is as safe as the next message: one that no other node has heard is forgotten with this leader. The next leader
    /// goes on with the last one that it has heard, until it publishes another; see [`Elector::announcements`].
    ///
    /// Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`PublishError`], after which nothing has changed.
    pub async fn publish(&self, state: impl AsRef<[u8]>) -> Result<LeaderSequence, PublishError> {
        publish(state.as_ref(), Some(self.term()), |order| self.order(order)).await
    }
}

impl Elector {
    /// Publishes as [`Leadership::publish`] does, without the [`Leadership`] of this node.
    ///
    /// # Errors
    /// As there.
    pub async fn publish(&self, state: impl AsRef<[u8]>) -> Result<LeaderSequence, PublishError> {
        publish(state.as_ref(), None, |order| self.orders.send(order).is_ok()).await
    }
}

/// An order to announce.
#[derive(Debug)]
pub(crate) struct Announce {
    /// The leadership in which alone it is announced.
    term: Option<Term>,
    state: Arc<[u8]>,
    answer: oneshot::Sender<Result<LeaderSequence, PublishError>>,
}

async fn publish(
    state: &[u8],
    term: Option<Term>,
    order: impl FnOnce(Order) -> bool,
) -> Result<LeaderSequence, PublishError> {
    if state.len() > ANNOUNCEMENT_MAX {
        return Err(PublishError::TooLong { length: state.len() });
    }
    let (answer, answered) = oneshot::channel();
    if !order(Order::Announce(Announce { term, state: state.into(), answer })) {
        return Err(PublishError::Closed);
    }
    answered.await.unwrap_or(Err(PublishError::Closed))
}

/// A machine, as far as its leader can tell the others something of the application's.
pub(crate) trait Announces {
    /// True if messages of the leader carry an announcement.
    const CARRIES: bool = false;

    /// Announces the state, and returns its number; `None` if this node does not lead, or messages carry nothing.
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
impl Announces for Bully {}
impl<A: Probing> Announces for OnARing<A> {}
impl Announces for Seniority {}
impl Announces for Lease {}
impl<N: Protocol, C: Protocol> Announces for Confirmed<N, C> {}

impl Desk {
    /// Announces, and answers the order. The outputs of the machine must be drained afterwards.
    pub(crate) fn on_announce<P: Announces>(&self, now: Instant, order: Announce, machine: &mut P) {
        let Announce { term, state, answer } = order;
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
        // The caller may have gone away.
        let _ = answer.send(announced);
    }

    /// Shows the observers the machine's last announcement, if it is newer than theirs.
    pub(crate) fn tell_announced(&self, machine: &impl Announces) {
        if let Some((number, state)) = machine.announced() {
            self.publisher.announced(number, state);
        }
    }
}
