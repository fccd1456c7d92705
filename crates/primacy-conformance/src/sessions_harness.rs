//! The interface that the laws need of a store that keeps sessions.

use std::sync::Arc;
use std::time::Duration;

use primacy_stores::{Pending, Sessions};

/// A store that keeps sessions, under the laws.
pub trait SessionsHarness: Send + Sync {
    /// The store's name, for the report.
    fn name(&self) -> String;

    /// The claims of the store beyond what every such store must do.
    fn capabilities(&self) -> SessionCapabilities;

    /// The bound that the store states for the delay of its [`changed`](Sessions::changed).
    fn change_bound(&self) -> Duration;

    /// A timeout that is short enough to wait for its end. Asked for only where [`SessionCapabilities::expiry`] is claimed.
    fn short_timeout(&self) -> Duration {
        unreachable!("{} claims no expiry", self.name())
    }

    /// The bound that the store states for the time after its timeout until it has ended a session. Asked for only where
    /// [`SessionCapabilities::expiry`] is claimed.
    fn expiry_bound(&self) -> Duration {
        unreachable!("{} claims no expiry", self.name())
    }

    /// A timeout that is longer than a law takes. The store may give another one.
    fn long_timeout(&self) -> Duration {
        self.patience()
    }

    /// The time that a law waits for something that must come, before it is taken not to come.
    fn patience(&self) -> Duration {
        // Far longer than anything takes that works.
        Duration::from_secs(60)
    }

    /// Checks that the store is there; an error gives the reason.
    fn reach(&self) -> Pending<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// A new handle on an election, as another process would have it. An election that was not named before has no entries. Laws name
    /// theirs after themselves.
    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>>;

    /// Takes the first entry out of the queue, as an operator could by hand. Asked for only where
    /// [`SessionCapabilities::deletion`] is claimed.
    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        let _ = election;
        unreachable!("{} claims no deletion", self.name())
    }

    /// Restarts everything, and returns when the store serves again. Asked for only where
    /// [`SessionCapabilities::restart`] is claimed.
    fn restart(&self) -> Pending<'_, ()> {
        unreachable!("{} claims no restart", self.name())
    }
}

/// The claims of a store, and the needs of a law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCapabilities {
    /// Waiting candidates are in a queue, in the order in which they entered it.
    pub ordered: bool,
    /// A session that is not kept alive ends after its timeout.
    pub expiry: bool,
    /// The first in the queue can be asked to resign.
    pub requests: bool,
    /// The harness can take an entry out behind the store's back.
    pub deletion: bool,
    /// The harness can restart the store.
    pub restart: bool,
}

impl SessionCapabilities {
    /// No claims beyond what every such store must do.
    pub const NONE: Self =
        Self { ordered: false, expiry: false, requests: false, deletion: false, restart: false };

    /// True if all of `needs` is claimed.
    #[must_use]
    pub const fn contain(self, needs: Self) -> bool {
        (self.ordered || !needs.ordered)
            && (self.expiry || !needs.expiry)
            && (self.requests || !needs.requests)
            && (self.deletion || !needs.deletion)
            && (self.restart || !needs.restart)
    }
}
