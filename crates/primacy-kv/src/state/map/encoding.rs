//! The encoding of the map in a snapshot, without anything that may differ between nodes with the same state.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Map, Slot, entry_bytes};
use crate::command::{Bytes, Keys, Version};
use crate::encoding::{DecodeError, Reader, push_bytes, push_number};
use crate::entry::Entry;
use crate::state::history::History;
use crate::state::history::Trail;

/// The tag before a change of the history.
mod tag {
    /// There was no entry before; the key follows.
    pub(super) const MADE: u8 = 1;
    /// There was an entry before, which follows.
    pub(super) const BEFORE: u8 = 2;
}

/// A change of the history, as a snapshot encodes it.
struct FormerEntry<'a> {
    version: Version,
    key: &'a [u8],
    before: Option<Entry>,
}

impl Map {
    /// Appends the map. No version may be open.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        push_number(to, self.version.0);
        to.push(u8::from(self.compacted.is_some()));
        if let Some(compacted) = self.compacted {
            push_number(to, compacted.0);
        }
        push_number(to, self.count);
        for entry in self.entries(&Keys::From(Bytes::from([]))) {
            push_bytes(to, &entry.to_bytes());
        }
        push_number(to, self.history.changes());
        let mut version = Version(0);
        for record in self.history.counted() {
            push_number(to, record.version.0 - version.0);
            version = record.version;
            match &record.before {
                None => {
                    to.push(tag::MADE);
                    push_bytes(to, record.named().key());
                }
                Some(before) => {
                    to.push(tag::BEFORE);
                    push_bytes(to, &before.to_bytes());
                }
            }
        }
    }

    /// The map that was appended.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = Version(from.number()?);
        let compacted = match from.byte()? {
            0 => None,
            1 => Some(Version(from.number()?)),
            _ => return Err(DecodeError::Kind("the compacted version")),
        };
        // Versions begin with the first one, and leave room for a next one.
        if version < Version::FIRST || version > VERSION_MAX || compacted.is_some_and(|kept| kept > version) {
            return Err(DecodeError::Value("the version of the map"));
        }
        let history = History::from_version(compacted.unwrap_or_default());
        let mut map = Self { version, compacted, history, ..Self::new() };
        let entries = from.list(|from| entry(from, version))?;
        map.take_entries(entries)?;
        let mut last = 0;
        let former = from.list(|from| {
            let later = from.number()?;
            last = u64::checked_add(last, later).ok_or(DecodeError::Value("the version of a change"))?;
            former(from, Version(last))
        })?;
        let counts = Version::FIRST.next().max(compacted.unwrap_or_default())..=version;
        if former.iter().any(|former| !counts.contains(&former.version)) {
            return Err(DecodeError::Value("the version of a change"));
        }
        map.take_history(former)?;
        Ok(map)
    }

    fn take_entries(&mut self, entries: Vec<Entry>) -> Result<(), DecodeError> {
        if !entries.is_sorted_by(|one, next| one.key() < next.key()) {
            return Err(DecodeError::Value("the order of the entries"));
        }
        self.count = u64::try_from(entries.len()).expect("a length fits");
        self.bytes =
            entries.iter().map(|entry| entry_bytes(entry.key(), entry.value(), entry.session())).sum();
        let slots = entries.into_iter().map(|entry| Slot { entry, trail: Trail::default() });
        // A set is built from a sorted iterator in linear time.
        self.slots = BTreeSet::from_iter(slots);
        Ok(())
    }

    /// Restores the history. The entry after a change is the entry before the next change of the same key, or the
    /// present entry; so the changes are first visited from the last one.
    fn take_history(&mut self, former: Vec<FormerEntry<'_>>) -> Result<(), DecodeError> {
        let mut later: BTreeMap<&[u8], Option<Entry>> = BTreeMap::new();
        let mut after = Vec::with_capacity(former.len());
        for former in former.iter().rev() {
            let here = later.entry(former.key).or_insert_with(|| self.entry(former.key).cloned());
            let entry = core::mem::replace(here, former.before.clone());
            let is_written_then = entry.as_ref().is_none_or(|entry| entry.changed_at() == former.version);
            let is_written_before =
                former.before.as_ref().is_none_or(|before| before.changed_at() <= former.version);
            let is_something = entry.is_some() || former.before.is_some();
            if !(is_written_then && is_written_before && is_something) {
                return Err(DecodeError::Value("a change"));
            }
            after.push(entry);
        }
        for former in former {
            let after = after.pop().expect("one for each change");
            let trail = self.slots.get(former.key).map_or(Trail::default(), |slot| slot.trail);
            let named = after.clone().or_else(|| former.before.clone()).expect("checked above");
            let is_deleted = after.is_none();
            let place = self.history.push(former.version, former.before, after, trail);
            let trail = if is_deleted { Trail::deleted(place) } else { Trail::present(place) };
            // The last change of a key leaves the present entry in the slot, or marks the key as deleted.
            self.slots.replace(Slot { entry: named, trail });
        }
        Ok(())
    }
}

/// The limit on versions: to exceed it would take a million changes a second for 292,000 years.
const VERSION_MAX: Version = Version(u64::MAX / 2);

fn entry(from: &mut Reader<'_>, last: Version) -> Result<Entry, DecodeError> {
    let entry = Entry::from_bytes(from.bytes()?).ok_or(DecodeError::Value("an entry"))?;
    if entry.changed_at() > last { Err(DecodeError::Value("the version of an entry")) } else { Ok(entry) }
}

fn former<'a>(from: &mut Reader<'a>, version: Version) -> Result<FormerEntry<'a>, DecodeError> {
    match from.byte()? {
        tag::MADE => Ok(FormerEntry { version, key: from.bytes()?, before: None }),
        tag::BEFORE => {
            let bytes = from.bytes()?;
            let before = Entry::from_bytes(bytes).ok_or(DecodeError::Value("an entry"))?;
            let key = Reader::new(bytes).bytes()?;
            Ok(FormerEntry { version, key, before: Some(before) })
        }
        _ => Err(DecodeError::Kind("a change")),
    }
}
