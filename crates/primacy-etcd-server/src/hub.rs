//! The hub, which distributes changes to watchers.
//!
//! One task takes each change from the map once, and finds the watchers of its key by an index: so ten thousand watchers cost
//! a change no more than a few do. The changes for a stream wait in its line, which has a limit. A watcher without room in its
//! line falls behind: it is removed from the hub, and catches up from the history of the map by itself, at the pace at which
//! its client reads.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use primacy_kv::command::{Bytes, Change, Happened, Keys, Previous, Version};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::backend::Backend;
use super::budget::Charge;
use super::client::Client;

/// The most changes that wait for one stream, before its watchers fall behind.
const LINE_CHANGES_MAX: usize = 1024;

/// The most bytes of keys and values that wait for one stream. The version that exceeds it is completed.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The most changes that are taken from the map at a time.
const TAKEN_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// The interval at which it is checked whether there is a leader.
const LEADER_LOOK: Duration = Duration::from_millis(250);

/// The time without a leader after which clients that require one are notified: three times the wait of etcd's members.
const LEADERLESS_MAX: Duration = Duration::from_secs(3);

/// The time without a leader after which new requests that require one are refused: the time that a member of etcd may
/// take to notice that its leader is gone. Clients of etcd end their watches on this error; and a client that was
/// connected to the former leader connects here while the next one is being elected.
const LEADERLESS_MIN: Duration = Duration::from_secs(2);

/// The kinds of changes that a watcher receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) writes: bool,
    pub(super) deletions: bool,
}

impl Kinds {
    pub(super) fn contain(self, change: &Change) -> bool {
        match change.happened {
            Happened::Written(_) => self.writes,
            Happened::Deleted(_) => self.deletions,
        }
    }
}

/// A watcher's subscription.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) keys: Keys,
    pub(super) previous: Previous,
    pub(super) kinds: Kinds,
}

/// Changes of one version for one watcher.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) watcher: i64,
    pub(super) version: Version,
    pub(super) changes: Vec<Change>,
}

/// The bytes of a change's key and values.
pub(super) fn bytes_of(change: &Change) -> usize {
    let (Happened::Written(entry) | Happened::Deleted(entry)) = &change.happened;
    let before = change.previous.as_ref().map_or(0, |entry| entry.value().len());
    entry.key().len() + entry.value().len() + before
}

/// The queue of changes for one stream.
#[derive(Debug, Default)]
pub(super) struct Line(Mutex<Waiting>);

#[derive(Debug, Default)]
pub(super) struct Waiting {
    batches: VecDeque<Batch>,
    /// The number of changes in `batches`, and the bytes of their keys and values.
    changes: usize,
    bytes: usize,
    /// The bytes that are charged, and the charge itself.
    charged: usize,
    charge: Option<Charge>,
    /// The watchers that have fallen behind, each with the first version that it has not received.
    fallen: Vec<(i64, Version)>,
    pub(super) leaderless: bool,
    waker: Option<Waker>,
}

impl Line {
    /// Creates a line whose changes are charged to a client, as unread answers.
    pub(super) fn charged_to(client: &Client) -> Self {
        Self(Mutex::new(Waiting { charge: Some(client.no_answer()), ..Waiting::default() }))
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a change, if there is room.
    fn push(&self, watcher: i64, change: Change) -> bool {
        let mut waiting = self.waiting();
        let (version, bytes) = (change.version, bytes_of(&change));
        let same_version = waiting.batches.iter_mut().rev().take_while(|batch| batch.version == version);
        // Changes of one version are sent together, so a version that was begun is completed.
        let begun = same_version.into_iter().find(|batch| batch.watcher == watcher);
        if let Some(batch) = begun {
            batch.changes.push(change);
            let _ = waiting.take(bytes);
        } else if waiting.changes >= LINE_CHANGES_MAX
            || waiting.bytes >= LINE_BYTES_MAX
            || !waiting.take(bytes)
        {
            waiting.fallen.push((watcher, version));
            return false;
        } else {
            waiting.batches.push_back(Batch { watcher, version, changes: vec![change] });
        }
        waiting.changes += 1;
        waiting.bytes += bytes;
        waiting.wake();
        true
    }
}

impl Waiting {
    pub(super) fn pop(&mut self) -> Option<Batch> {
        let batch = self.batches.pop_front()?;
        self.forget(&batch);
        Some(batch)
    }

    /// Charges more bytes, if they fit.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.charge.as_ref().is_none_or(|charge| charge.grow(bytes));
        self.charged += if fits { bytes } else { 0 };
        fits
    }

    fn forget(&mut self, batch: &Batch) {
        let bytes = batch.changes.iter().map(bytes_of).sum::<usize>();
        self.changes -= batch.changes.len();
        self.bytes -= bytes;
        let charged = self.charged.saturating_sub(self.bytes);
        self.charged -= charged;
        if let Some(charge) = &self.charge {
            charge.shrink(charged);
        }
    }

    /// Drops the batches of a watcher that has ended: another one may get its number.
    pub(super) fn drop_those_of(&mut self, watcher: i64) {
        let (dropped, left) = self.batches.drain(..).partition(|batch| batch.watcher == watcher);
        let dropped: VecDeque<Batch> = dropped;
        self.batches = left;
        dropped.iter().for_each(|batch| self.forget(batch));
        self.fallen.retain(|&(number, _)| number != watcher);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.fallen.is_empty()
    }

    pub(super) fn take_fallen(&mut self) -> Vec<(i64, Version)> {
        std::mem::take(&mut self.fallen)
    }

    pub(super) fn wake_with(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A watcher that has received all changes so far.
#[derive(Debug)]
struct Live {
    line: Arc<Line>,
    watcher: i64,
    wish: Wish,
    /// Changes before this version are not sent to it.
    from: Version,
}

impl Live {
    /// Queues a change for the watcher, if it subscribes to it; returns false if the line is full.
    fn offer(&self, change: &Change) -> bool {
        if change.version < self.from || !self.wish.kinds.contain(change) {
            return true;
        }
        let mut change = change.clone();
        if self.wish.previous == Previous::Unwanted {
            change.previous = None;
        }
        self.line.push(self.watcher, change)
    }
}

/// The part of the index in which a watcher is found.
#[derive(PartialEq, Eq, Hash)]
enum Place {
    One(Bytes),
    /// All keys with this prefix.
    Beginning(Bytes),
    /// Any other range, which is compared with each key.
    Other,
}

impl Place {
    fn of(keys: &Keys) -> Self {
        match keys {
            Keys::One(key) => Self::One(Bytes::clone(key)),
            Keys::Between(first, end) if after_all_with(first).as_deref() == Some(&**end) => {
                Self::Beginning(Bytes::clone(first))
            }
            // No key is empty, so none is below a single zero byte.
            Keys::From(first) if matches!(**first, [] | [0]) => Self::Beginning(Bytes::from([])),
            Keys::Between(..) | Keys::From(_) => Self::Other,
        }
    }
}

/// Returns the first key after all keys with this prefix; `None` if there is none.
pub(super) fn after_all_with(beginning: &[u8]) -> Option<Vec<u8>> {
    let last = beginning.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut end = beginning[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[derive(Debug)]
struct Index {
    /// All changes up to this version were distributed.
    told: Version,
    one: HashMap<Bytes, Vec<Live>>,
    beginnings: HashMap<Bytes, Vec<Live>>,
    /// The number of different prefixes of each length.
    lengths: BTreeMap<usize, usize>,
    others: Vec<Live>,
    /// The number of watchers that want previous entries.
    wanting_previous: usize,
    /// The lines of clients that require a leader.
    anxious: HashMap<u64, Arc<Line>>,
    next_anxious: u64,
}

impl Index {
    fn is_empty(&self) -> bool {
        self.one.is_empty() && self.beginnings.is_empty() && self.others.is_empty()
    }

    fn insert(&mut self, live: Live) {
        if live.wish.previous == Previous::Wanted {
            self.wanting_previous += 1;
        }
        match Place::of(&live.wish.keys) {
            Place::One(key) => self.one.entry(key).or_default().push(live),
            Place::Beginning(beginning) => {
                let length = beginning.len();
                let there = self.beginnings.entry(beginning).or_default();
                if there.is_empty() {
                    *self.lengths.entry(length).or_default() += 1;
                }
                there.push(live);
            }
            Place::Other => self.others.push(live),
        }
    }

    /// Removes these watchers of a line, which are all in the given part of the index.
    fn remove(&mut self, line: &Arc<Line>, watchers: &BTreeSet<i64>, place: Place) {
        let stays = |live: &Live| !(Arc::ptr_eq(&live.line, line) && watchers.contains(&live.watcher));
        match place {
            Place::One(key) => {
                if let Some(there) = self.one.get_mut(&key) {
                    retain(there, &mut self.wanting_previous, stays);
                    if there.is_empty() {
                        self.one.remove(&key);
                    }
                }
            }
            Place::Beginning(beginning) => {
                if let Some(there) = self.beginnings.get_mut(&beginning) {
                    retain(there, &mut self.wanting_previous, stays);
                    if there.is_empty() {
                        self.forget_beginning(&beginning);
                    }
                }
            }
            Place::Other => retain(&mut self.others, &mut self.wanting_previous, stays),
        }
    }

    fn forget_beginning(&mut self, beginning: &[u8]) {
        self.beginnings.remove(beginning);
        if let Some(count) = self.lengths.get_mut(&beginning.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&beginning.len());
            }
        }
    }

    fn tell(&mut self, change: &Change) {
        let key = change.key();
        if let Some(there) = self.one.get_mut(key) {
            retain(there, &mut self.wanting_previous, |live| live.offer(change));
            if there.is_empty() {
                self.one.remove(key);
            }
        }
        let mut deserted = Vec::new();
        for &length in self.lengths.keys().take_while(|&&length| length <= key.len()) {
            if let Some(there) = self.beginnings.get_mut(&key[..length]) {
                retain(there, &mut self.wanting_previous, |live| live.offer(change));
                if there.is_empty() {
                    deserted.push(length);
                }
            }
        }
        for length in deserted {
            self.forget_beginning(&key[..length]);
        }
        retain(&mut self.others, &mut self.wanting_previous, |live| {
            !live.wish.keys.contain(key) || live.offer(change)
        });
    }

    /// Makes all watchers fall behind, so that each catches up by itself.
    fn let_all_fall(&mut self) {
        let from = self.told.next();
        let one = self.one.drain().flat_map(|(_, there)| there);
        let beginnings = self.beginnings.drain().flat_map(|(_, there)| there);
        for live in one.chain(beginnings).chain(self.others.drain(..)) {
            let mut waiting = live.line.waiting();
            waiting.fallen.push((live.watcher, from.max(live.from)));
            waiting.wake();
        }
        self.lengths.clear();
        self.wanting_previous = 0;
    }
}

/// Removes the other watchers, and updates the number of those that want previous entries.
fn retain(there: &mut Vec<Live>, wanting_previous: &mut usize, stays: impl Fn(&Live) -> bool) {
    there.retain(|live| {
        let stays = stays(live);
        if !stays && live.wish.previous == Previous::Wanted {
            *wanting_previous -= 1;
        }
        stays
    });
}

/// Distributes a map's changes to watchers.
pub(super) struct Hub {
    pub(super) backend: Arc<dyn Backend>,
    index: Mutex<Index>,
    /// The last time at which a check found a leader.
    led_at: Mutex<Instant>,
}

impl Hub {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        let index = Index {
            told: backend.now(),
            one: HashMap::new(),
            beginnings: HashMap::new(),
            lengths: BTreeMap::new(),
            others: Vec::new(),
            wanting_previous: 0,
            anxious: HashMap::new(),
            next_anxious: 0,
        };
        Self { backend, index: Mutex::new(index), led_at: Mutex::new(Instant::now()) }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Distributes all changes up to now; returns the version up to which all were distributed.
    pub(super) fn hand_all_on(&self) -> Version {
        let newest = self.backend.now();
        loop {
            let told = self.hand_on();
            // The map's version may go back.
            if told >= newest.min(self.backend.now()) {
                return told;
            }
        }
    }

    /// Adds a watcher, which receives all changes from now on whose version is at least `from`. Returns `false` and
    /// does nothing if changes were distributed already that it has not received: it has received those up to `known`.
    pub(super) fn admit(
        &self,
        line: &Arc<Line>,
        watcher: i64,
        wish: &Wish,
        from: Version,
        known: Version,
    ) -> bool {
        let mut index = self.index();
        if index.told > known {
            return false;
        }
        index.insert(Live { line: Arc::clone(line), watcher, wish: wish.clone(), from });
        true
    }

    /// Removes these watchers of a line. Each part of the index is searched once, however many watchers are in it.
    pub(super) fn dismiss<'a>(&self, line: &Arc<Line>, watchers: impl IntoIterator<Item = (i64, &'a Wish)>) {
        let mut places: HashMap<Place, BTreeSet<i64>> = HashMap::new();
        for (watcher, wish) in watchers {
            places.entry(Place::of(&wish.keys)).or_default().insert(watcher);
        }
        for (place, watchers) in places {
            self.index().remove(line, &watchers, place);
        }
    }

    /// Notifies this line when there was no leader for too long, until it is [calmed](Self::calm) with the returned
    /// number.
    pub(super) fn warn(&self, line: &Arc<Line>) -> u64 {
        let mut index = self.index();
        let number = index.next_anxious;
        index.next_anxious += 1;
        index.anxious.insert(number, Arc::clone(line));
        number
    }

    pub(super) fn calm(&self, number: u64) {
        self.index().anxious.remove(&number);
    }

    /// Distributes changes, without end.
    pub(super) async fn run(self: Arc<Self>) {
        let mut version = self.backend.version();
        let mut looks = interval(LEADER_LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.led_now();
        loop {
            tokio::select! {
                changed = version.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let newest = *version.borrow_and_update();
                    while self.hand_on() < newest.min(self.backend.now()) {
                        // Yields, so that a burst of changes does not block other tasks.
                        tokio::task::yield_now().await;
                    }
                }
                _ = looks.tick() => {
                    if self.backend.vitals().leader.is_some() {
                        self.led_now();
                    } else if self.leaderless_for() >= LEADERLESS_MAX {
                        self.tell_of_no_leader();
                    }
                }
            }
        }
    }

    /// Distributes new changes, or a part of them; returns the version up to which all were distributed.
    pub(super) fn hand_on(&self) -> Version {
        let mut index = self.index();
        let now = self.backend.now();
        if now < index.told {
            // The map's version went back: an operator has accepted the loss of a log.
            index.told = now;
            index.let_all_fall();
        }
        if index.is_empty() {
            index.told = now;
            return index.told;
        }
        let previous = if index.wanting_previous > 0 { Previous::Wanted } else { Previous::Unwanted };
        match self.backend.news(index.told.next(), previous, TAKEN_MAX) {
            Ok(changes) => {
                for change in &changes.list {
                    index.tell(change);
                }
                index.told = index.told.max(changes.through);
            }
            // Some of the changes were compacted already. The watchers notice that when they catch up.
            Err(_) => {
                index.let_all_fall();
                index.told = now;
            }
        }
        index.told
    }

    /// Returns whether the hub has no watchers.
    #[cfg(test)]
    pub(super) fn is_deserted(&self) -> bool {
        self.index().is_empty()
    }

    fn led_now(&self) {
        *self.led_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns the time since a leader was last known.
    fn leaderless_for(&self) -> Duration {
        self.led_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Returns whether there is a leader, or was one a moment ago, so that there may be one again when the request is
    /// answered.
    pub(super) fn may_have_leader(&self) -> bool {
        self.backend.vitals().leader.is_some() || self.leaderless_for() < LEADERLESS_MIN
    }

    fn tell_of_no_leader(&self) {
        for (_, line) in self.index().anxious.drain() {
            let mut waiting = line.waiting();
            waiting.leaderless = true;
            waiting.wake();
        }
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("told", &self.index().told).finish_non_exhaustive()
    }
}
