//! Changes of a record: the versions that this process was notified of, and the version that a handle has seen. A wait for a change ends
//! when the two differ.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy_core::election::lease::Record;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::mutex::lock;
use crate::runtime;

/// The version that a handle has read or written last (0 if there was no record), and the time of its next poll for another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenVersion {
    version: Arc<AtomicU64>,
    /// The time of the next poll by any wait for a change: a wait that is dropped and begun again keeps the schedule.
    read_at: Arc<Mutex<Option<Instant>>>,
}

impl SeenVersion {
    pub(crate) fn set(&self, version: u64) {
        self.version.store(version, Ordering::SeqCst);
    }

    fn is(&self, version: u64) -> bool {
        self.version.load(Ordering::SeqCst) == version
    }

    /// Calls `read` every `interval` on the stores' thread, and resolves when it returns a version other than the seen one; never if that
    /// thread cannot be started. `read` returns `None` where it has no answer: requests report their own errors.
    pub(crate) async fn other<F>(&self, interval: Duration, read: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = Option<u64>> + Send,
    {
        let seen = self.clone();
        let reading = runtime::run(async move {
            loop {
                let due = || Instant::now() + interval;
                let at = *lock(&seen.read_at).get_or_insert_with(due);
                sleep_until(at).await;
                let found = read().await;
                *lock(&seen.read_at) = Some(due());
                if found.is_some_and(|found| !seen.is(found)) {
                    return;
                }
            }
        });
        if reading.await.is_err() {
            // The caller's periodic reads find changes instead.
            std::future::pending::<()>().await;
        }
    }
}

/// The notifications received for an election.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// The number of notifications.
    count: u64,
    /// The version in the latest one; 0 if there is no record.
    version: u64,
}

/// The elections that are open over a connection, and the notifications received for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners(Arc<Mutex<HashMap<String, watch::Sender<Heard>>>>);

impl Listeners {
    /// Adds an election, for the one handle that uses this connection for it.
    pub(crate) fn add(&self, election: &str) -> Changes {
        let (sender, heard) = watch::channel(Heard::default());
        lock(&self.0).insert(election.to_owned(), sender);
        Changes { heard, looked_at: AtomicU64::new(0), seen: SeenVersion::default() }
    }

    pub(crate) fn remove(&self, election: &str) {
        lock(&self.0).remove(election);
    }

    pub(crate) fn contain(&self, election: &str) -> bool {
        lock(&self.0).contains_key(election)
    }

    /// Notifies the handle on `election`, if there is one, of a version; 0 is absence.
    pub(crate) fn notify(&self, election: &str, version: u64) {
        if let Some(heard) = lock(&self.0).get(election) {
            heard.send_modify(|heard| *heard = Heard { count: heard.count + 1, version });
        }
    }

    /// Returns the number of notifications of each election, for [`notify_read`](Self::notify_read).
    pub(crate) fn counts(&self) -> HashMap<String, u64> {
        lock(&self.0).iter().map(|(name, heard)| (name.clone(), heard.borrow().count)).collect()
    }

    /// Notifies the handles of the versions that were read since `counts`. A notification received since then may be newer, and stays.
    pub(crate) fn notify_read(&self, versions: &HashMap<String, u64>, counts: &HashMap<String, u64>) {
        for (name, heard) in lock(&self.0).iter() {
            let version = versions.get(name).copied().unwrap_or(0);
            heard.send_if_modified(|heard| {
                let is_newest = counts.get(name) == Some(&heard.count);
                if is_newest {
                    *heard = Heard { count: heard.count + 1, version };
                }
                is_newest
            });
        }
    }
}

/// A handle's receiver of the notifications for its election.
#[derive(Debug)]
pub(crate) struct Changes {
    heard: watch::Receiver<Heard>,
    /// The number of notifications when the last answered request began.
    looked_at: AtomicU64,
    seen: SeenVersion,
}

impl Changes {
    /// Returns the number of notifications; to be called before a request is sent, for [`saw`](Self::saw).
    pub(crate) fn count(&self) -> u64 {
        self.heard.borrow().count
    }

    /// Returns the number of notifications, and the version in the latest one.
    #[cfg(test)]
    pub(crate) fn last(&self) -> (u64, u64) {
        let heard = *self.heard.borrow();
        (heard.count, heard.version)
    }

    /// Notes the version that a request has seen; `count` is the number of notifications when it began.
    pub(crate) fn saw(&self, count: u64, version: u64) {
        self.seen.set(version);
        self.looked_at.store(count, Ordering::SeqCst);
    }

    /// Resolves when a notification names a version other than the seen one.
    pub(crate) async fn heard(&self) {
        let is_news = |heard: &Heard| {
            heard.count > self.looked_at.load(Ordering::SeqCst) && !self.seen.is(heard.version)
        };
        if self.heard.clone().wait_for(is_news).await.is_err() {
            // The caller's periodic reads find changes instead.
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when a version other than the seen one was named by a notification, or [found](SeenVersion::other).
    pub(crate) async fn heard_or_read<F>(&self, interval: Duration, read: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = Option<u64>> + Send,
    {
        tokio::select! {
            () = self.heard() => {}
            () = self.seen.other(interval, read) => {}
        }
    }
}

/// The record that a handle has read or written last, and its version; `None` if there was no valid record.
#[derive(Debug, Default)]
pub(crate) struct LastRecord(Mutex<Option<(u64, Record)>>);

impl LastRecord {
    pub(crate) fn set(&self, version: u64, record: Option<&Record>) {
        *lock(&self.0) = record.map(|record| (version, record.clone()));
    }

    /// Returns whether other processes must be notified of a write over `expect` at once. A renewal is found by polling, which is soon
    /// enough.
    pub(crate) fn is_news(&self, expect: Option<u64>, record: &Record) -> bool {
        let last = lock(&self.0);
        let before = last.as_ref().filter(|(version, _)| Some(*version) == expect).map(|(_, before)| before);
        before.is_none_or(|before| {
            before.holder != record.holder
                || before.token != record.token
                || before.young != record.young
                || before.resign_request != record.resign_request
        })
    }
}
