//! The watch of an election's key: a query that Consul answers when the key has changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::api::{Api, Entry, LOCK_FLAG};
use crate::mutex::lock;
use crate::runtime::{self, Aborted};

/// The maximum number of elections of a process with such a query: each takes a connection, and an agent allows 200
/// from one address (`http_max_conns_per_client`), of which other clients need some. The other elections poll.
const WATCHES_MAX: usize = 100;

/// The pause after a query without an answer.
const RETRY: Duration = Duration::from_millis(500);

/// The pause before the next query. If the key does not exist, a write to any other key may end the query.
const PAUSE: Duration = Duration::from_millis(20);

/// The limit on open queries.
#[derive(Debug)]
pub(super) struct Watches(Arc<Semaphore>);

/// The state of a key at one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyObservation {
    /// Consul's index.
    pub(super) index: u64,
    /// The index of its last change; `None` if the key did not exist.
    pub(super) modified: Option<u64>,
    /// True if the key is a lock without a holder.
    pub(super) is_free: bool,
    /// The number of times that the index went backwards, as it does after a restore.
    pub(super) resets: u64,
}

/// The query of one election.
#[derive(Debug)]
pub(super) struct Watch {
    latest: watch::Sender<KeyObservation>,
    asking: Mutex<Option<Aborted<()>>>,
}

impl Default for Watches {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(WATCHES_MAX)))
    }
}

impl KeyObservation {
    pub(super) fn new(index: u64, entry: Option<&Entry>, resets: u64) -> Self {
        let is_free = entry.is_some_and(|entry| entry.session.is_none() && entry.flags == LOCK_FLAG);
        Self { index, modified: entry.map(|entry| entry.modified), is_free, resets }
    }

    /// Returns whether this is later than `told`, and different from it.
    pub(super) fn is_news_to(&self, told: &Self) -> bool {
        self.resets > told.resets || (self.index > told.index && self.modified != told.modified)
    }
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { latest: watch::Sender::new(KeyObservation::default()), asking: Mutex::new(None) }
    }

    /// Returns the state seen last.
    pub(super) fn latest(&self) -> KeyObservation {
        *self.latest.borrow()
    }

    /// Returns a receiver of the states seen from now on, and of the last one.
    pub(super) fn subscribe(&self) -> watch::Receiver<KeyObservation> {
        self.latest.subscribe()
    }

    /// Starts the query, which is repeated until this is dropped.
    pub(super) fn start(&self, api: &Arc<Api>, watches: &Watches, key: &str) {
        let mut asking = lock(&self.asking);
        if asking.is_none() {
            let (api, permits, key) = (Arc::clone(api), Arc::clone(&watches.0), key.to_owned());
            let latest = self.latest.clone();
            // If the thread cannot be started, requests report it.
            *asking = runtime::spawn(async move { ask(&api, &permits, &key, &latest).await }).ok();
        }
    }
}

async fn ask(api: &Api, permits: &Semaphore, key: &str, latest: &watch::Sender<KeyObservation>) {
    let Ok(_permit) = permits.acquire().await else { return };
    let (mut index, mut resets) = (0, 0);
    loop {
        let Ok(found) = api.watch(key, index).await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        // Consul's documentation requires a restart from 0 after the index has gone backwards.
        let is_reset = found.index < index;
        resets += u64::from(is_reset);
        index = if is_reset { 0 } else { found.index };
        let seen = KeyObservation::new(found.index, found.entry.as_ref(), resets);
        latest.send_if_modified(|latest| std::mem::replace(latest, seen) != seen);
        // Consul answers a query with the index 0 at once.
        tokio::time::sleep(if found.index == 0 { RETRY } else { PAUSE }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_later_and_other_is_news() {
        let seen = |index, modified| KeyObservation { index, modified, is_free: false, resets: 0 };
        let told = seen(7, Some(7));
        assert!(seen(9, Some(9)).is_news_to(&told) && seen(9, None).is_news_to(&told));
        assert!(!told.is_news_to(&told) && !seen(5, Some(5)).is_news_to(&told), "what was before");
        assert!(!seen(9, None).is_news_to(&seen(8, None)), "another key has changed");
        assert!(KeyObservation { resets: 1, ..seen(2, Some(2)) }.is_news_to(&told));
    }
}
