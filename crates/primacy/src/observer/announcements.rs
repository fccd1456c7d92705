//! Announcements: a small state that a leader publishes to all nodes, with a number that never goes back.
//!
//! Only the election `ranked` has them: it carries them in every message of the leader.

use std::fmt;
use std::sync::Arc;

use primacy_core::LeaderSequence;
use primacy_core::election::ranked::STATE_MAX;
use tokio::sync::watch;

/// The longest state that a leader can announce, in bytes.
pub const ANNOUNCEMENT_MAX: usize = STATE_MAX;

/// An announcement of a leader, as one node has received it.
#[derive(Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The number of the leader's message that carried it. It grows with every message, whether or not the state has changed,
    /// and on one node it never goes back while the process runs.
    pub number: LeaderSequence,
    /// The state. Empty as long as no leader has announced any.
    pub state: Arc<[u8]>,
}

/// Omits the state, which may be long.
impl fmt::Debug for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaderSequence { term, counter } = self.number;
        write!(f, "Announcement({} bytes, number {term}.{counter})", self.state.len())
    }
}

/// Shows the leaders' announcements, as this node receives them; made by [`Elector::announcements`](crate::Elector::announcements).
///
/// Delays nothing. It sees the newest state and may skip older ones: of two in quick succession, it may see only the later
/// one.
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

    /// The next state: another one, or the same from another leader that has adopted it. The first one is the state known at
    /// the start. Numbers grow. `None` when the elector is gone; in other elections than `ranked` it returns nothing before
    /// that.
    ///
    /// Cancel safe: a state that a dropped future did not return is returned by the next call.
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
