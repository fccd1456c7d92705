//! Watching the members of a cluster in an election by seniority.

use std::sync::Arc;

use primacy_core::membership::View;
use tokio::sync::watch;

/// The membership of this node in a cluster, as far as it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It is a member: the latest view, with the members, the oldest first, each with its age and attributes.
    Member(Arc<View>),
    /// It belongs to no cluster: it has not joined one yet, or has left it.
    Outside,
}

/// Shows the changes of the members, as this node learns them; made by [`Elector::members`](crate::Elector::members).
///
/// Delays nothing. It sees the latest view and may skip older ones: of two in quick succession, it may see only the later
/// one. In elections without members it sees one [`Membership::Outside`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use primacy::{Algorithm, Elector, Membership};
///
/// let peers = "a=10.0.0.1:7400,b=10.0.0.2:7400,c=10.0.0.3:7400".parse()?;
/// let builder = Elector::builder().election("shards").node("a".parse()?).algorithm(Algorithm::Seniority).allow_advisory(true);
/// let elector = builder.insecure_cleartext(true).peers(peers).await?;
///
/// let mut members = elector.members();
/// while let Some(Membership::Member(view)) = members.changed().await {
///     for member in view.members() {
///         println!("{} in {:?}", member.identity.node, member.attributes.zone());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Members {
    latest: watch::Receiver<Membership>,
    begun: bool,
}

impl Members {
    pub(crate) const fn new(latest: watch::Receiver<Membership>) -> Self {
        Self { latest, begun: false }
    }

    /// The latest known membership.
    #[must_use]
    pub fn latest(&self) -> Membership {
        self.latest.borrow().clone()
    }

    /// The next view; the first one is the view known at the start. `None` when the elector is gone.
    ///
    /// Cancel safe: a view that a dropped future did not return is returned by the next call.
    pub async fn changed(&mut self) -> Option<Membership> {
        if self.begun {
            self.latest.changed().await.ok()?;
        }
        self.begun = true;
        Some(self.latest.borrow_and_update().clone())
    }
}

/// Publishes the membership, unless it is unchanged.
pub(crate) fn tell(latest: &watch::Sender<Membership>, view: Option<&Arc<View>>) {
    latest.send_if_modified(|known| {
        let is_same = match (&*known, view) {
            (Membership::Member(known), Some(view)) => Arc::ptr_eq(known, view) || known == view,
            (Membership::Outside, None) => true,
            (Membership::Member(_), None) | (Membership::Outside, Some(_)) => false,
        };
        if !is_same {
            *known = view.map_or(Membership::Outside, |view| Membership::Member(Arc::clone(view)));
        }
        !is_same
    });
}
