//! The interface that the laws need of a store.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};
use primacy_stores::{Pending, Register};

/// A store under the laws.
pub trait Harness: Send + Sync {
    /// The store's name, for the report.
    fn name(&self) -> String;

    /// The claims of the store beyond what every store must do.
    fn capabilities(&self) -> Capabilities;

    /// The bound that the store states for the delay of its [`changed`](Register::changed).
    fn change_bound(&self) -> Duration;

    /// The time that a law waits for something that must come, before it is taken not to come.
    fn patience(&self) -> Duration {
        // Far longer than anything takes that works.
        Duration::from_secs(60)
    }

    /// Checks that the store is there; an error gives the reason.
    fn reach(&self) -> Pending<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// A new handle on an election, as another process would have it. An election that was not named before has
    /// no record. Laws name theirs after themselves.
    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>>;

    /// Puts these bytes in the place of the record, as another program could. Asked for only where
    /// [`Capabilities::raw_bytes`] is claimed.
    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        let _ = (election, bytes);
        unreachable!("{} claims no raw bytes", self.name())
    }

    /// Deletes the record, as an operator could by hand. Asked for only where [`Capabilities::deletion`] is claimed.
    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        let _ = election;
        unreachable!("{} claims no raw bytes", self.name())
    }

    /// The bytes that are kept. Asked for only where [`Capabilities::raw_bytes`] is claimed.
    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        let _ = election;
        unreachable!("{} claims no raw bytes", self.name())
    }

    /// A process that runs [`rival::play_if_told`](crate::rival::play_if_told) on a handle of its own, with `number` as
    /// the rival's, until the token is `last`: as a rule [`rival::command`](crate::rival::command). Asked for only where [`Capabilities::processes`] is claimed.
    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        let _ = (election, number, last);
        unreachable!("{} claims no processes", self.name())
    }
}

/// The claims of a store, and the needs of a law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Processes share a record.
    pub processes: bool,
    /// A record outlives all handles.
    pub lasting: bool,
    /// The harness can get at the bytes behind the store's back.
    pub raw_bytes: bool,
    /// The harness can delete the record behind the store's back.
    pub deletion: bool,
}

impl Capabilities {
    /// Every claim, as of a store between processes.
    pub const ALL: Self = Self { processes: true, lasting: true, raw_bytes: true, deletion: true };

    /// No claims beyond what every store must do.
    pub const NONE: Self = Self { processes: false, lasting: false, raw_bytes: false, deletion: false };

    /// True if all of `needs` is claimed.
    #[must_use]
    pub fn contain(self, needs: Self) -> bool {
        (self.processes || !needs.processes)
            && (self.lasting || !needs.lasting)
            && (self.raw_bytes || !needs.raw_bytes)
            && (self.deletion || !needs.deletion)
    }
}

/// Returns what the register holds.
pub(crate) async fn read(register: &Arc<dyn Register>) -> Option<(Record, Version)> {
    register.read().await.expect("the store is there")
}

/// Waits for something that must come within the patience of the harness.
pub(crate) async fn within<T>(harness: &dyn Harness, what: &str, wait: impl Future<Output = T>) -> T {
    let patience = harness.patience();
    match tokio::time::timeout(patience, wait).await {
        Ok(done) => done,
        Err(_) => panic!("waited {patience:?} in vain for {what}"),
    }
}
