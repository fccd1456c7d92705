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

    /// The claims of the store beyond the minimum.
    fn capabilities(&self) -> Capabilities;

    /// The bound that the store states for the delay of its [`changed`](Register::changed).
    fn change_bound(&self) -> Duration;

    /// The time that a law waits for an expected event before it fails.
    fn patience(&self) -> Duration {
        // Far longer than anything that works takes.
        Duration::from_secs(60)
    }

    /// Checks that the store is available; the error is the reason why it is not.
    fn reach(&self) -> Pending<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// Opens a new handle on an election, as another process would. A new election has no record. Laws use their own
    /// names.
    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>>;

    /// Replaces the record by these bytes, as another program could. Called only if [`Capabilities::raw_bytes`] is
    /// claimed.
    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        let _ = (election, bytes);
        unreachable!("{} claims no raw bytes", self.name())
    }

    /// Deletes the record by hand, as an operator could. Called only if [`Capabilities::deletion`] is claimed.
    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        let _ = election;
        unreachable!("{} claims no raw bytes", self.name())
    }

    /// Returns the stored bytes. Called only if [`Capabilities::raw_bytes`] is claimed.
    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        let _ = election;
        unreachable!("{} claims no raw bytes", self.name())
    }

    /// Returns the command of a process that runs [`rival::play_if_told`](crate::rival::play_if_told) on its own
    /// handle, as rival `number`, until the token is `last`; usually [`rival::command`](crate::rival::command).
    /// Called only if [`Capabilities::processes`] is claimed.
    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        let _ = (election, number, last);
        unreachable!("{} claims no processes", self.name())
    }
}

/// The claims of a store, or the requirements of a law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Several processes can share a record.
    pub processes: bool,
    /// A record survives the end of all handles.
    pub lasting: bool,
    /// The harness can read and write the stored bytes directly.
    pub raw_bytes: bool,
    /// The harness can delete the record directly.
    pub deletion: bool,
}

impl Capabilities {
    /// All claims, as for a store between processes.
    pub const ALL: Self = Self { processes: true, lasting: true, raw_bytes: true, deletion: true };

    /// No claims beyond the minimum.
    pub const NONE: Self = Self { processes: false, lasting: false, raw_bytes: false, deletion: false };

    /// True if all of `needs` are claimed.
    #[must_use]
    pub fn contain(self, needs: Self) -> bool {
        (self.processes || !needs.processes)
            && (self.lasting || !needs.lasting)
            && (self.raw_bytes || !needs.raw_bytes)
            && (self.deletion || !needs.deletion)
    }
}

/// Returns the content of the register.
pub(crate) async fn read(register: &Arc<dyn Register>) -> Option<(Record, Version)> {
    register.read().await.expect("the store is there")
}

/// Waits for an expected result within the patience of the harness.
pub(crate) async fn within<T>(harness: &dyn Harness, what: &str, wait: impl Future<Output = T>) -> T {
    let patience = harness.patience();
    match tokio::time::timeout(patience, wait).await {
        Ok(done) => done,
        Err(_) => panic!("waited {patience:?} in vain for {what}"),
    }
}
