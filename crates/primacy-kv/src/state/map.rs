//! The versioned map: the present entries, and former entries since the last compaction.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cmp;
use core::num::NonZeroU64;
use core::ops::{Bound, Range};

use super::history::{History, Record, Trail};
use crate::command::{
    Bounds, Change, Direction, Found, Happened, Keys, Limits, Order, Previous, Read, Refusal, SessionId,
    SortKey, Version, Wanted,
};
use crate::entry::{Entry, Stamp};

mod encoding;

/// The overhead of an entry in addition to its key and its value, in bytes: its numbers, its slot, and the allocation.
pub(super) const ENTRY_BYTES: u64 = 88;

/// The overhead of an entry's key in its session, in addition to the key, in bytes.
pub(super) const ATTACHMENT_BYTES: u64 = 56;

/// The number of compacted changes that each command drops, in addition to two for each change that it makes.
const DROPPED_WITH_A_COMMAND: u64 = 64;

/// A key that has an entry, or a deleted key that still has history.
#[derive(Clone, Debug)]
struct Slot {
    /// The entry; for a deleted key, its last one.
    entry: Entry,
    trail: Trail,
}

impl Slot {
    fn present(&self) -> Option<&Entry> {
        (!self.trail.is_deleted()).then_some(&self.entry)
    }
}

impl Borrow<[u8]> for Slot {
    fn borrow(&self) -> &[u8] {
        self.entry.key()
    }
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.entry.key().cmp(other.entry.key())
    }
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.entry.key() == other.entry.key()
    }
}

impl Eq for Slot {}

/// The map. Changes go into an open version, which [`Map::close`] ends.
#[derive(Clone, Debug)]
pub(super) struct Map {
    slots: BTreeSet<Slot>,
    history: History,
    version: Version,
    /// The first version that can be read; `None` as long as nothing was compacted.
    compacted: Option<Version>,
    /// The number of changes of the open version.
    open: u64,
    /// The number of keys that have an entry.
    count: u64,
    /// The size of the entries, in bytes.
    bytes: u64,
}

/// The size at which an entry counts, in bytes.
pub(super) fn entry_bytes(key: &[u8], value: &[u8], session: Option<SessionId>) -> u64 {
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).expect("a length fits");
    let attachment = if session.is_some() { ATTACHMENT_BYTES + length(key) } else { 0 };
    ENTRY_BYTES + length(key) + length(value) + attachment
}

impl Map {
    /// The empty map.
    pub(super) fn new() -> Self {
        Self {
            slots: BTreeSet::new(),
            history: History::default(),
            version: Version::FIRST,
            compacted: None,
            open: 0,
            count: 0,
            bytes: 0,
        }
    }

    /// The version of the last change, or the open version if it has changes.
    pub(super) fn version(&self) -> Version {
        if self.open > 0 { self.version.next() } else { self.version }
    }

    pub(super) fn compacted(&self) -> Option<Version> {
        self.compacted
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// The number of keys that are remembered.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The present entry of a key.
    pub(super) fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.slots.get(key)?.present()
    }

    /// The entry of a key before the open version.
    pub(super) fn entry_before(&self, key: &[u8]) -> Option<&Entry> {
        self.slots.get(key).and_then(|slot| self.as_of(slot, self.version))
    }

    fn as_of<'a>(&'a self, slot: &'a Slot, version: Version) -> Option<&'a Entry> {
        match self.history.first_after(slot.trail, version) {
            None => slot.present(),
            Some(record) => record.before.as_ref(),
        }
    }

    /// Checks that the entries as of a version can be read.
    pub(super) fn check_readable(&self, version: Version) -> Result<(), Refusal> {
        if version > self.version() {
            return Err(Refusal::Future { version: self.version() });
        }
        self.check_kept(version)
    }

    fn check_kept(&self, version: Version) -> Result<(), Refusal> {
        match self.compacted {
            Some(compacted) if version < compacted => Err(Refusal::Compacted { compacted }),
            Some(_) | None => Ok(()),
        }
    }

    /// The present entries of some keys, in the order of the keys.
    pub(super) fn entries<'a>(&'a self, keys: &'a Keys) -> impl Iterator<Item = &'a Entry> {
        self.slots_of(keys).filter_map(Slot::present)
    }

    fn slots_of<'a>(&'a self, keys: &'a Keys) -> Box<dyn Iterator<Item = &'a Slot> + 'a> {
        let bounds = match keys {
            Keys::One(key) => return Box::new(self.slots.get(&**key).into_iter()),
            Keys::Between(from, end) if from >= end => return Box::new(core::iter::empty()),
            Keys::Between(from, end) => (Bound::Included(&**from), Bound::Excluded(&**end)),
            Keys::From(from) => (Bound::Included(&**from), Bound::Unbounded),
        };
        Box::new(self.slots.range::<[u8], _>(bounds))
    }

    /// The steps of a scan of some keys, in order: the entries, now or at a readable version, and `None` for each
    /// remembered key without one. They are the same on all nodes.
    pub(super) fn steps<'a>(
        &'a self,
        keys: &'a Keys,
        at: Option<Version>,
    ) -> impl Iterator<Item = Option<&'a Entry>> {
        let at = at.filter(|&at| at != self.version());
        // Keys whose deletion is compacted are left out, because nodes drop them at different times.
        let is_counted = |slot: &&Slot| !slot.trail.is_deleted() || self.history.counts(slot.trail);
        self.slots_of(keys).filter(is_counted).map(move |slot| match at {
            Some(version) => self.as_of(slot, version),
            None => slot.present(),
        })
    }

    /// Reads entries.
    pub(super) fn read(&self, read: &Read) -> Result<Found, Refusal> {
        let at = read.at.filter(|&at| at != self.version());
        at.map_or(Ok(()), |at| self.check_readable(at))?;
        let entries = self.slots_of(&read.keys).filter_map(|slot| match at {
            Some(version) => self.as_of(slot, version),
            None => slot.present(),
        });
        Ok(find(read, entries, self.version()))
    }

    /// Writes an entry in the open version, and returns the entry before it.
    pub(super) fn write(&mut self, key: &[u8], value: &[u8], session: Option<SessionId>) -> Option<Entry> {
        self.put(key, session, |stamp| Entry::new(key, value, stamp))
    }

    /// Writes the key and the value of a present or former entry again, with another session.
    pub(super) fn rewrite(&mut self, entry: &Entry, session: Option<SessionId>) -> Option<Entry> {
        self.put(entry.key(), session, |stamp| entry.rewritten(stamp))
    }

    fn put(
        &mut self,
        key: &[u8],
        session: Option<SessionId>,
        make: impl FnOnce(Stamp) -> Entry,
    ) -> Option<Entry> {
        let changed_at = self.version.next();
        let slot = self.slots.get(key);
        let trail = slot.map_or(Trail::default(), |slot| slot.trail);
        let before = slot.and_then(Slot::present).cloned();
        let first = Stamp { session, made_at: changed_at, changed_at, writes: NonZeroU64::MIN };
        let stamp = before.as_ref().map_or(first, |before| {
            let Stamp { made_at, writes, .. } = before.stamp();
            Stamp { session, made_at, changed_at, writes: writes.saturating_add(1) }
        });
        let entry = make(stamp);
        self.bytes += entry_bytes(key, entry.value(), session);
        match &before {
            Some(before) => self.bytes -= entry_bytes(before.key(), before.value(), before.session()),
            None => self.count += 1,
        }
        let place = self.history.push(changed_at, before.clone(), Some(entry.clone()), trail);
        self.slots.replace(Slot { entry, trail: Trail::present(place) });
        self.open += 1;
        before
    }

    /// Deletes an entry in the open version, and returns it.
    pub(super) fn delete(&mut self, key: &[u8]) -> Option<Entry> {
        let slot = self.slots.get(key)?;
        let (trail, entry) = (slot.trail, slot.present()?.clone());
        self.bytes -= entry_bytes(key, entry.value(), entry.session());
        self.count -= 1;
        let place = self.history.push(self.version.next(), Some(entry.clone()), None, trail);
        self.slots.replace(Slot { entry: entry.clone(), trail: Trail::deleted(place) });
        self.open += 1;
        Some(entry)
    }

    /// Closes the open version, if it has changes, and drops some of the compacted changes.
    pub(super) fn close(&mut self, limits: Limits) {
        if self.open > 0 {
            self.version = self.version.next();
        }
        self.keep_within(limits);
        for _ in 0..DROPPED_WITH_A_COMMAND + 2 * core::mem::take(&mut self.open) {
            let dropped = if self.history.is_too_long() { self.history.drop_one() } else { None };
            let Some((place, record)) = dropped else { break };
            if record.after.is_none() {
                self.forget_deleted(record.named().key(), Trail::deleted(place));
            }
        }
    }

    /// Removes a deleted key, when the last change of its history is dropped.
    fn forget_deleted(&mut self, key: &[u8], trail: Trail) {
        if self.slots.get(key).is_some_and(|slot| slot.trail == trail) {
            self.slots.remove(key);
        }
    }

    /// Compacts the oldest changes until the history is within its limits, but never those of the last version.
    fn keep_within(&mut self, limits: Limits) {
        while self.history.bytes() > limits.history_bytes || self.history.changes() > limits.history_changes {
            match self.history.oldest() {
                Some(oldest) if oldest < self.version => self.compact_to(oldest.next()),
                Some(_) | None => break,
            }
        }
    }

    fn compact_to(&mut self, version: Version) {
        self.compacted = Some(version);
        self.history.start_from(version);
    }

    /// Removes the history before a version.
    pub(super) fn compact(&mut self, version: Version) -> Result<(), Refusal> {
        if let Some(compacted) = self.compacted.filter(|&compacted| version <= compacted) {
            return Err(Refusal::Compacted { compacted });
        }
        if version > self.version {
            return Err(Refusal::Future { version: self.version });
        }
        self.compact_to(version);
        Ok(())
    }

    /// The changes of some keys in a range of versions, in order. The time depends only on the changes in that range.
    pub(super) fn changes<'a>(
        &'a self,
        keys: &'a Keys,
        versions: Range<Version>,
        previous: Previous,
    ) -> Result<Box<dyn Iterator<Item = Change> + 'a>, Refusal> {
        self.check_kept(versions.start)?;
        if let Keys::One(key) = keys {
            let trail = self.slots.get(&**key).map_or(Trail::default(), |slot| slot.trail);
            let mut records = self.history.of_key(trail, versions).collect::<Vec<&Record>>();
            records.reverse();
            return Ok(Box::new(records.into_iter().map(move |record| self.change(record, previous))));
        }
        let is_meant = |record: &&Record| keys.contain(record.named().key());
        let records = self.history.between(versions).filter(is_meant);
        Ok(Box::new(records.map(move |record| self.change(record, previous))))
    }

    /// The changes of all keys from a version on, in order, for a watcher that has been sent all earlier ones. It
    /// includes compacted changes that are not dropped yet.
    pub(super) fn news(
        &self,
        from: Version,
        previous: Previous,
    ) -> Result<impl Iterator<Item = Change> + '_, Refusal> {
        if !self.history.is_whole_from(from) {
            self.check_kept(from)?;
        }
        Ok(self.history.since(from).map(move |record| self.change_as_it_was(record, previous)))
    }

    /// Returns a change, without the entry before it if that is compacted, even if it is still in memory.
    fn change(&self, record: &Record, previous: Previous) -> Change {
        let is_kept = self.compacted.is_none_or(|compacted| record.version > compacted);
        self.change_as_it_was(record, if is_kept { previous } else { Previous::Unwanted })
    }

    fn change_as_it_was(&self, record: &Record, previous: Previous) -> Change {
        let happened = match &record.after {
            Some(entry) => Happened::Written(entry.clone()),
            None => Happened::Deleted(record.named().clone()),
        };
        // An entry that was created in this version has no entry before it, even if the same transaction deleted one.
        let is_made = record.after.as_ref().is_some_and(|entry| entry.made_at() == record.version);
        let previous = match previous {
            Previous::Wanted if !is_made => self.history.before_version(record).cloned(),
            Previous::Wanted | Previous::Unwanted => None,
        };
        Change { version: record.version, happened, previous }
    }
}

/// Selects the result of a read from `entries`, which are in the order of their keys.
fn find<'a>(read: &Read, mut entries: impl Iterator<Item = &'a Entry>, version: Version) -> Found {
    let mut found = Found { version, entries: Vec::new(), more: false, count: 0 };
    let limit = read.limit.map_or(usize::MAX, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
    let mut chosen = Vec::new();
    match read.wanted {
        Wanted::Count => {}
        Wanted::Entries | Wanted::Keys => {
            let is_bounded = read.made != Bounds::default() || read.changed != Bounds::default();
            // Without bounds and order, only the first entries are kept, and the others counted.
            let needs_all = is_bounded || read.order != Order::default();
            let taken = if needs_all { usize::MAX } else { limit.saturating_add(1) };
            chosen.extend(entries.by_ref().take(taken));
            found.count = count(chosen.len());
            if is_bounded {
                chosen.retain(|entry| {
                    read.made.contain(entry.made_at()) && read.changed.contain(entry.changed_at())
                });
            }
        }
    }
    found.count += count(entries.count());
    sort(&mut chosen, read.order);
    found.more = chosen.len() > limit;
    chosen.truncate(limit);
    found.entries = match read.wanted {
        Wanted::Keys => chosen.into_iter().map(Entry::without_value).collect(),
        Wanted::Entries | Wanted::Count => chosen.into_iter().cloned().collect(),
    };
    found
}

fn count(entries: usize) -> u64 {
    u64::try_from(entries).expect("a length fits")
}

/// Sorts entries that are already in the order of their keys. It compares no keys, and decodes each number once.
fn sort(entries: &mut [&Entry], Order { key, direction }: Order) {
    let number = match (key, direction) {
        (SortKey::Key, Direction::Ascending) => return,
        (SortKey::Key, Direction::Descending) => return entries.reverse(),
        (SortKey::Value, Direction::Ascending) => {
            return entries.sort_by(|one, other| one.value().cmp(other.value()));
        }
        (SortKey::Value, Direction::Descending) => {
            return entries.sort_by(|one, other| other.value().cmp(one.value()));
        }
        (SortKey::Writes, _) => Entry::writes,
        (SortKey::MadeAt, _) => |entry: &Entry| entry.made_at().0,
        (SortKey::ChangedAt, _) => |entry: &Entry| entry.changed_at().0,
    };
    match direction {
        Direction::Ascending => entries.sort_by_cached_key(|entry| number(entry)),
        Direction::Descending => entries.sort_by_cached_key(|entry| cmp::Reverse(number(entry))),
    }
}
