//! The changes that a handle has heard of its election, and those that it has seen.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::sync::watch;

use super::link::{Heard, Link};

/// One handle's view of the notifications of its election.
#[derive(Debug)]
pub(super) struct Notifications {
    heard: watch::Receiver<Heard>,
    /// The count of heard changes when the last answered request began.
    looked_at: AtomicU64,
    /// The version that was last read or written through this handle; 0 is absence.
    seen: AtomicI64,
}

impl Notifications {
    pub(super) fn new(link: &Link, election: &str) -> Self {
        Self { heard: link.listen_for(election), looked_at: AtomicU64::new(0), seen: AtomicI64::new(0) }
    }

    /// Returns the count of heard changes; to be called before a request is sent, for
    /// [`look`](Self::look).
    pub(super) fn count(&self) -> u64 {
        self.heard.borrow().count
    }

    /// Notes the version that was seen, by a request that began when `count` changes had been
    /// heard.
    pub(super) fn look(&self, count: u64, version: i64) {
        self.seen.store(version, Ordering::SeqCst);
        self.looked_at.store(count, Ordering::SeqCst);
    }

    /// Resolves when something else was heard than was seen; never, if nothing will be noticed.
    pub(super) async fn news(&self, link: &Link) {
        let is_watched = link.watch();
        let is_news = |heard: &Heard| {
            heard.count > self.looked_at.load(Ordering::SeqCst)
                && heard.version != self.seen.load(Ordering::SeqCst)
        };
        if !is_watched || self.heard.clone().wait_for(is_news).await.is_err() {
            // The caller's own reading now and then has to do.
            std::future::pending::<()>().await;
        }
    }
}
