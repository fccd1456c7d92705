//! The watch of an election's key: a query that Consul answers when the key has changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::api::{Api, Entry, LOCK_FLAG};
use crate::mutex::lock;
use crate::runtime::{self, Aborted};

/// The number of elections of a process that may have such a query open: each takes a connection, and an agent allows 200
/// from one address (`http_max_conns_per_client`), of which other clients need some. The elections above it look now and
/// then.
const WATCHES_MAX: usize = 100;

/// The pause after a query without an answer.
const RETRY: Duration = Duration::from_millis(500);

/// Before the next question. Where there is no key, any other that is written may be the answer.
const PAUSE: Duration = Duration::from_millis(20);

/// The questions that may be open.
#[derive(Debug)]
pub(super) struct Watches(Arc<Semaphore>);

/// The state of a key at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyObservation {
    /// Consul's index.
    pub(super) index: u64,
    /// Of its last change; `None` where there was no key.
    pub(super) modified: Option<u64>,
    /// True if the key is a lock without a holder.
    pub(super) is_free: bool,
    /// The number of times that Consul was seen counting backwards, as it does when it was restored.
    pub(super) resets: u64,
}

/// The question of one election.
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

    /// Returns whether this is later than `told`, and different.
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

    /// Asks from now on, until this is dropped.
    pub(super) fn start(&self, api: &Arc<Api>, watches: &Watches, key: &str) {
        let mut asking = lock(&self.asking);
        if asking.is_none() {
            let (api, permits, key) = (Arc::clone(api), Arc::clone(&watches.0), key.to_owned());
            let latest = self.latest.clone();
            // Where the thread cannot be started, the requests say so.
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
        // As Consul's documentation requires: after an index that goes backwards, all begins anew.
        let is_reset = found.index < index;
        resets += u64::from(is_reset);
        index = if is_reset { 0 } else { found.index };
        let seen = KeyObservation::new(found.index, found.entry.as_ref(), resets);
        latest.send_if_modified(|latest| std::mem::replace(latest, seen) != seen);
        // To one with the index 0 Consul would not wait.
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
