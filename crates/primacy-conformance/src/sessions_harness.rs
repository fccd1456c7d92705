//! The interface that the laws need of a store that keeps sessions.

use std::sync::Arc;
use std::time::Duration;

use primacy_stores::{Pending, Sessions};

/// A store that keeps sessions, under the laws.
pub trait SessionsHarness: Send + Sync {
    /// The store's name, for the report.
    fn name(&self) -> String;

    /// The claims of the store beyond the minimum.
    fn capabilities(&self) -> SessionCapabilities;

    /// The bound that the store states for the delay of its [`changed`](Sessions::changed).
    fn change_bound(&self) -> Duration;

    /// A timeout that is short enough to wait for its end. Called only if [`SessionCapabilities::expiry`] is claimed.
    fn short_timeout(&self) -> Duration {
        unreachable!("{} claims no expiry", self.name())
    }

    /// The documented bound on the time after its timeout until a session has ended. Called only if
    /// [`SessionCapabilities::expiry`] is claimed.
    fn expiry_bound(&self) -> Duration {
        unreachable!("{} claims no expiry", self.name())
    }

    /// A timeout longer than any law takes. The store may grant another one.
    fn long_timeout(&self) -> Duration {
        self.patience()
    }

    /// The time that a law waits for an expected event before it fails.
    fn patience(&self) -> Duration {
        // Far longer than anything that works takes.
        Duration::from_secs(60)
    }

    /// Checks that the store is available; the error is the reason why it is not.
    fn reach(&self) -> Pending<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// Opens a new handle on an election, as another process would. A new election has no entries. Laws use their own
    /// names.
    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>>;

    /// Removes the first entry from the queue by hand, as an operator could. Called only if
    /// [`SessionCapabilities::deletion`] is claimed.
    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        let _ = election;
        unreachable!("{} claims no deletion", self.name())
    }

    /// Restarts everything, and returns when the store serves again. Called only if [`SessionCapabilities::restart`]
    /// is claimed.
    fn restart(&self) -> Pending<'_, ()> {
        unreachable!("{} claims no restart", self.name())
    }
}

/// The claims of a store, or the requirements of a law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCapabilities {
    /// Waiting candidates form a queue, in the order in which they entered it.
    pub ordered: bool,
    /// A session that is not kept alive ends after its timeout.
    pub expiry: bool,
    /// The first in the queue can be asked to resign.
    pub requests: bool,
    /// The harness can remove an entry directly.
    pub deletion: bool,
    /// The harness can restart the store.
    pub restart: bool,
}

impl SessionCapabilities {
    /// No claims beyond the minimum.
    pub const NONE: Self =
        Self { ordered: false, expiry: false, requests: false, deletion: false, restart: false };

    /// True if all of `needs` are claimed.
    #[must_use]
    pub const fn contain(self, needs: Self) -> bool {
        (self.ordered || !needs.ordered)
            && (self.expiry || !needs.expiry)
            && (self.requests || !needs.requests)
            && (self.deletion || !needs.deletion)
            && (self.restart || !needs.restart)
    }
}
