//! The history of entries: the changes since the last compaction, in order.
//!
//! Each change stores the entry before it, so that no entry is stored twice: the present entry is in the map, and the
//! entry at a version is the one before the first change after that version. Changes of one key are linked from the
//! newest to the oldest; in addition each has a longer jump (Myers, "An applicative random-access stack", 1983), so
//! that any version of a key is found in a logarithmic number of steps.
//!
//! A compaction only moves the start. Each command drops a few of the changes before it; the newest of these changes
//! linger, so that a watcher that follows the map closely, and has not been sent them yet, misses nothing.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::entry::{Entry, Version};

/// The size of a change without the entry before it, in bytes. The same on all platforms, because all nodes must
/// compact alike.
pub(super) const CHANGE_BYTES: u64 = 88;

const _: () = assert!(size_of::<Record>() as u64 <= CHANGE_BYTES);

/// The limit on lingering compacted changes; the next constant limits their bytes.
pub(super) const LINGERING_CHANGES: u64 = 4096;
const LINGERING_BYTES: u64 = 4 << 20;

/// The capacity that is kept when there are few changes.
const ROOM_MIN: usize = 1024;

/// The index of a change, counted from the first change that this process has seen. Not part of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

/// A link to an older change of the same key, which may have been dropped.
type Link = Option<Place>;

/// An optional [`Place`] and a bit for a deleted key, in eight bytes. Every key has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trail(u64);

impl Trail {
    /// The trail of a key with an entry that was last changed at `newest`.
    pub(super) fn present(newest: Place) -> Self {
        Self((newest.0 + 1) << 1)
    }

    /// The trail of a key that was deleted at `at`.
    pub(super) fn deleted(at: Place) -> Self {
        Self(((at.0 + 1) << 1) | 1)
    }

    pub(super) fn newest(self) -> Link {
        (self.0 >> 1).checked_sub(1).map(Place)
    }

    pub(super) fn is_deleted(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A change, with the entry before it, the entry after it, or both.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) version: Version,
    pub(super) before: Option<Entry>,
    pub(super) after: Option<Entry>,
    /// The next older change of the same key.
    older: Packed,
    /// A much older change of the same key.
    jump: Packed,
    /// The number of older changes that the key had.
    depth: u64,
    /// The cumulative bytes of all changes up to this one. Only differences are used.
    bytes_until: u64,
}

impl Record {
    /// An entry with the key.
    pub(super) fn named(&self) -> &Entry {
        self.before.as_ref().or(self.after.as_ref()).expect("a change has an entry before or after it")
    }
}

/// A link in eight bytes.
#[derive(Clone, Copy, Debug)]
struct Packed(u64);

impl From<Link> for Packed {
    fn from(link: Link) -> Self {
        Self(link.map_or(0, |place| place.0 + 1))
    }
}

impl From<Packed> for Link {
    fn from(packed: Packed) -> Self {
        packed.0.checked_sub(1).map(Place)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    records: VecDeque<Record>,
    /// The place of the first record.
    first: u64,
    /// The place of the first change after compaction; earlier changes wait to be dropped.
    start: u64,
    /// The bytes of all changes before `start`, and of those before `first`.
    bytes_before_start: u64,
    bytes_before_first: u64,
    /// The version from which all changes are present.
    whole_from: Version,
}

impl History {
    /// An empty history for changes from this version on.
    pub(super) fn from_version(version: Version) -> Self {
        Self { whole_from: version, ..Self::default() }
    }

    fn end(&self) -> u64 {
        self.first + length(&self.records)
    }

    fn record(&self, link: Link) -> Option<&Record> {
        let offset = link?.0.checked_sub(self.first)?;
        self.records.get(usize::try_from(offset).ok()?)
    }

    /// Adds a change of the key whose current trail is `trail`.
    pub(super) fn push(
        &mut self,
        version: Version,
        before: Option<Entry>,
        after: Option<Entry>,
        trail: Trail,
    ) -> Place {
        let older = trail.newest().filter(|place| place.0 >= self.first);
        let (jump, depth) = self.jump(older);
        let bytes_until = self.bytes_until(self.end()) + CHANGE_BYTES + bytes(before.as_ref());
        let place = Place(self.end());
        let (older, jump) = (older.into(), jump.into());
        self.records.push_back(Record { version, before, after, older, jump, depth, bytes_until });
        place
    }

    /// The jump target and the depth of a new change after `older`.
    fn jump(&self, older: Link) -> (Link, u64) {
        let Some(next) = self.record(older) else { return (None, 0) };
        let depth = next.depth + 1;
        let Some(far) = self.record(next.jump.into()) else { return (older, depth) };
        let Some(further) = self.record(far.jump.into()) else { return (older, depth) };
        // Two jumps of equal length are followed by one over both.
        let is_even = next.depth - far.depth == far.depth - further.depth;
        (if is_even { far.jump.into() } else { older }, depth)
    }

    /// The oldest change of a key after this version; `None` if there was none since.
    pub(super) fn first_after(&self, trail: Trail, version: Version) -> Option<&Record> {
        let mut record = self.record(trail.newest()).filter(|newest| newest.version > version)?;
        while let Some(older) = self.older_after(record, version) {
            record = older;
        }
        Some(record)
    }

    /// An older change of the same key after this version: the jump target if possible, else the next older one.
    fn older_after(&self, record: &Record, version: Version) -> Option<&Record> {
        let linked = [record.jump, record.older].map(|link| self.record(link.into()));
        linked.into_iter().flatten().find(|older| older.version > version)
    }

    /// The changes of one key in these versions, the newest first.
    pub(super) fn of_key(&self, trail: Trail, versions: Range<Version>) -> impl Iterator<Item = &Record> {
        let later = self.first_after(trail, Version(versions.end.0.saturating_sub(1)));
        let newest = later.map_or_else(|| trail.newest(), |later| later.older.into());
        core::iter::successors(self.record(newest), |record| self.record(record.older.into()))
            .take_while(move |record| record.version >= versions.start)
    }

    /// All changes in these versions, the oldest first.
    pub(super) fn between(&self, versions: Range<Version>) -> impl Iterator<Item = &Record> {
        self.since(versions.start).take_while(move |record| record.version < versions.end)
    }

    /// All changes from this version on, the oldest first.
    pub(super) fn since(&self, from: Version) -> impl Iterator<Item = &Record> {
        let first = self.records.partition_point(|record| record.version < from);
        self.records.range(first..)
    }

    /// The entry before the first change of the same key in the same version.
    pub(super) fn before_version<'a>(&'a self, record: &'a Record) -> Option<&'a Entry> {
        let mut first = record;
        while let Some(older) =
            self.record(first.older.into()).filter(|older| older.version == record.version)
        {
            first = older;
        }
        first.before.as_ref()
    }

    /// The number of changes that are not compacted.
    pub(super) fn changes(&self) -> u64 {
        self.end() - self.start
    }

    /// True if the newest change of a key is not compacted.
    pub(super) fn counts(&self, trail: Trail) -> bool {
        trail.newest().is_some_and(|newest| newest.0 >= self.start)
    }

    /// The number of compacted changes that wait to be dropped.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u64 {
        self.start - self.first
    }

    /// The bytes of the changes that are not compacted.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes_until(self.end()) - self.bytes_before_start
    }

    /// The changes that are not compacted, in order.
    pub(super) fn counted(&self) -> impl DoubleEndedIterator<Item = &Record> {
        let waiting = usize::try_from(self.start - self.first).expect("they are in memory");
        self.records.range(waiting..)
    }

    /// The cumulative bytes of all changes before a place.
    fn bytes_until(&self, end: u64) -> u64 {
        let last = end.checked_sub(1).map(Place);
        self.record(last).map_or(self.bytes_before_start, |record| record.bytes_until)
    }

    /// The version of the oldest change that is not compacted.
    pub(super) fn oldest(&self) -> Option<Version> {
        self.record(Some(Place(self.start))).map(|record| record.version)
    }

    /// Compacts all changes before this version.
    pub(super) fn start_from(&mut self, version: Version) {
        let waiting = usize::try_from(self.start - self.first).expect("they are in memory");
        let next_starts = self.records.get(waiting + 1).is_none_or(|next| next.version >= version);
        let first = match self.records.get(waiting) {
            None => return,
            Some(oldest) if oldest.version >= version => return,
            // The usual case: each new change compacts one old change.
            Some(_) if next_starts => waiting + 1,
            Some(_) => self.records.partition_point(|record| record.version < version),
        };
        let start = self.first + u64::try_from(first).expect("a length fits");
        self.bytes_before_start = self.bytes_until(start);
        self.start = start;
    }

    /// True if all changes from this version on are present, compacted or not.
    pub(super) fn is_whole_from(&self, version: Version) -> bool {
        version >= self.whole_from
    }

    /// True if more compacted changes are present than may linger.
    pub(super) fn is_too_long(&self) -> bool {
        self.start - self.first > LINGERING_CHANGES
            || self.bytes_before_start - self.bytes_before_first > LINGERING_BYTES
    }

    /// Drops the oldest compacted change; returns its place and the change.
    pub(super) fn drop_one(&mut self) -> Option<(Place, Record)> {
        if self.first == self.start {
            return None;
        }
        let record = self.records.pop_front()?;
        let place = Place(self.first);
        self.first += 1;
        self.bytes_before_first = record.bytes_until;
        self.whole_from = record.version.next();
        if self.records.capacity() > ROOM_MIN && self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.capacity() / 2);
        }
        Some((place, record))
    }
}

fn length<T>(records: &VecDeque<T>) -> u64 {
    u64::try_from(records.len()).expect("a length fits")
}

fn bytes(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, Entry::length)
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::*;
    use crate::entry::Stamp;

    fn entry(version: u64) -> Entry {
        let writes = NonZeroU64::new(version).unwrap();
        let stamp = Stamp { session: None, made_at: Version(1), changed_at: Version(version), writes };
        Entry::new(b"a", &[], stamp)
    }

    /// The history of a key that was changed at each version up to `last`.
    fn changed_up_to(last: u64) -> (History, Trail) {
        let (mut history, mut trail) = (History::default(), Trail::default());
        for version in 2..=last {
            let after = Some(entry(version));
            trail = Trail::present(history.push(Version(version), Some(entry(version - 1)), after, trail));
        }
        (history, trail)
    }

    /// The number of links followed from the newest change to the first one after a version.
    fn steps(history: &History, trail: Trail, version: Version) -> u32 {
        let (mut record, mut steps) = (history.record(trail.newest()).unwrap(), 0);
        while let Some(older) = history.older_after(record, version) {
            (record, steps) = (older, steps + 1);
        }
        steps
    }

    #[test]
    fn any_version_is_found_in_few_steps_also_after_a_compaction() {
        const LAST: u64 = 40_000;
        let (mut history, mut trail) = changed_up_to(LAST / 2);
        history.start_from(Version(LAST / 2 - LAST / 40));
        while history.drop_one().is_some() {}
        assert!(history.records.capacity() <= 4 * history.records.len(), "room is given back");
        for version in LAST / 2 + 1..=LAST {
            let after = Some(entry(version));
            trail = Trail::present(history.push(Version(version), Some(entry(version - 1)), after, trail));
        }
        for version in LAST / 2 - LAST / 40..LAST {
            let record = history.first_after(trail, Version(version)).unwrap();
            assert_eq!(record.version, Version(version + 1));
            let most = 3 * LAST.ilog2();
            assert!(steps(&history, trail, Version(version)) <= most, "version {version}");
        }
        assert!(history.first_after(trail, Version(LAST)).is_none());
        assert_eq!(history.changes(), LAST / 2 + LAST / 40 + 1);
    }

    #[test]
    fn bytes_are_those_of_the_changes_that_count() {
        let (mut history, _) = changed_up_to(300);
        let counted = |history: &History| {
            history.counted().map(|record| CHANGE_BYTES + bytes(record.before.as_ref())).sum::<u64>()
        };
        assert_eq!(history.bytes(), counted(&history));
        for version in [2, 3, 4, 150, 150, 299, 300] {
            history.start_from(Version(version));
            assert_eq!((history.oldest(), history.bytes()), (Some(Version(version)), counted(&history)));
        }
        while history.drop_one().is_some() {}
        assert_eq!((history.changes(), history.bytes()), (1, counted(&history)));
        history.start_from(Version(301));
        assert_eq!((history.changes(), history.bytes()), (0, 0));
        while history.drop_one().is_some() {}
        assert_eq!((history.changes(), history.bytes(), history.oldest()), (0, 0, None));
    }
}
