//! The keys that a connection subscribes to, and the messages of these subscriptions, which are only hints.
//!
//! A client with a right to publish on a key's subject can send any message there, and a message arrives before the stream has stored it.
//! So a message only causes a read, which counts; and a key is read at most once in [`READ_PAUSE`], however many messages arrive.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::connection::INBOX_SID;
use crate::changes::Listeners;
use crate::mutex::lock;

/// The pause after the keys with hints were read.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// The maximum number of reads that follow a message, until one finds a change: the write may be on its way to the disks of replicas.
const READS_MAX: u32 = 5;

/// The keys of the open elections that wait for changes.
#[derive(Debug)]
pub(super) struct Subscriptions {
    /// The keys to subscribe to, by the numbers of their subscriptions.
    wanted: watch::Sender<BTreeMap<u64, String>>,
    last_sid: AtomicU64,
    /// The keys that may have changed.
    hinted: Mutex<BTreeSet<String>>,
    arrived: Notify,
    /// True if the warning about a refused subscription has been logged.
    is_refused: AtomicBool,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            wanted: watch::Sender::default(),
            last_sid: AtomicU64::new(INBOX_SID),
            hinted: Mutex::default(),
            arrived: Notify::default(),
            is_refused: AtomicBool::new(false),
        }
    }
}

impl Subscriptions {
    pub(super) fn wanted(&self) -> watch::Receiver<BTreeMap<u64, String>> {
        self.wanted.subscribe()
    }

    /// Subscribes to a key, unless that has been done.
    pub(super) fn add(&self, key: &str) {
        self.wanted.send_if_modified(|wanted| {
            let is_new = wanted.values().all(|known| known != key);
            if is_new {
                wanted.insert(self.last_sid.fetch_add(1, Ordering::SeqCst) + 1, key.to_owned());
            }
            is_new
        });
    }

    pub(super) fn remove(&self, key: &str) {
        self.wanted.send_if_modified(|wanted| {
            let before = wanted.len();
            wanted.retain(|_, known| known != key);
            wanted.len() < before
        });
    }

    /// Notes that a key may have changed.
    pub(super) fn hint(&self, key: &str) {
        lock(&self.hinted).insert(key.to_owned());
        self.arrived.notify_one();
    }

    /// Notes that the server refuses a subscription.
    pub(super) fn refuse(&self, bucket: &str, why: &str) {
        if !self.is_refused.swap(true, Ordering::SeqCst) {
            tracing::warn!(
                bucket,
                "NATS: changes are noticed by polling only, once a second, because the login has no right to subscribe to \
                 $KV.{bucket}.>: {why}"
            );
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::SeqCst)
    }

    /// Reads the keys that may have changed, and notifies their elections, until the future is dropped. `read` returns the version of a
    /// key, and `None` where it has no answer: requests report their own errors.
    pub(super) async fn follow<F>(&self, elections: &Listeners, read: impl Fn(String) -> F)
    where
        F: Future<Output = Option<u64>>,
    {
        let mut found: HashMap<String, u64> = HashMap::new();
        // The keys to read, with the number of reads that are left.
        let mut due: BTreeMap<String, u32> = BTreeMap::new();
        loop {
            if due.is_empty() {
                self.arrived.notified().await;
            }
            due.extend(std::mem::take(&mut *lock(&self.hinted)).into_iter().map(|key| (key, READS_MAX)));
            due.retain(|key, _| elections.contain(key));
            found.retain(|key, _| elections.contain(key));
            for (key, left) in &mut due {
                *left -= 1;
                let Some(version) = read(key.clone()).await else { continue };
                if found.insert(key.clone(), version) != Some(version) {
                    *left = 0;
                }
                elections.notify(key, version);
            }
            due.retain(|_, left| *left > 0);
            sleep(READ_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_messages_causes_few_reads_and_a_write_that_comes_later_is_found() {
        let (subscriptions, elections) = (Subscriptions::default(), Listeners::default());
        let changes = elections.add("e");
        let (reads, stored) = (Cell::new(0), Cell::new(1));
        let read = |key: String| {
            assert_eq!(key, "e");
            reads.set(reads.get() + 1);
            std::future::ready(Some(stored.get()))
        };
        let flood = async {
            for number in 0..1000 {
                subscriptions.hint("e");
                subscriptions.hint(&format!("closed-{number}"));
                sleep(Duration::from_millis(1)).await;
            }
            let reads_max = 1 + Duration::from_secs(1).as_millis() / READ_PAUSE.as_millis();
            assert!((20..=reads_max).contains(&reads.get()), "{} reads in a second", reads.get());
            assert_eq!(changes.last().1, 1);
            sleep(Duration::from_secs(1)).await;
            let idle = reads.get();
            sleep(Duration::from_secs(60)).await;
            assert_eq!(reads.get(), idle, "without a message, nothing is read");
            // The message arrives before the write is stored.
            subscriptions.hint("e");
            sleep(READ_PAUSE / 2).await;
            assert_eq!((changes.last().1, reads.get()), (1, idle + 1));
            stored.set(2);
            sleep(Duration::from_secs(1)).await;
            assert_eq!((changes.last().1, reads.get()), (2, idle + 2));
        };
        tokio::select! {
            () = subscriptions.follow(&elections, read) => unreachable!("it has no end"),
            () = flood => {}
        }
    }

    #[tokio::test]
    async fn each_key_is_subscribed_to_once_and_no_number_is_used_again() {
        let subscriptions = Subscriptions::default();
        let wanted = subscriptions.wanted();
        let seen = RefCell::new(Vec::new());
        let note = || seen.borrow_mut().push(wanted.borrow().clone().into_iter().collect::<Vec<_>>());
        for key in ["a", "a", "b"] {
            subscriptions.add(key);
        }
        note();
        subscriptions.remove("a");
        subscriptions.add("a");
        note();
        let named =
            |pairs: &[(u64, &str)]| pairs.iter().map(|(sid, key)| (*sid, (*key).to_owned())).collect();
        assert_eq!(
            *seen.borrow(),
            [named(&[(2, "a"), (3, "b")]), named(&[(3, "b"), (4, "a")])] as [Vec<_>; 2]
        );
    }
}
