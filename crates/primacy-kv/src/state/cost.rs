//! The cost of an operation: the number of entries that it visits, and the length of its answer. Both are checked
//! before anything is changed, so that the cost of applying a record is bounded.
//!
//! All nodes apply the same records, and must refuse the same ones. So the cost depends only on the operation and the
//! entries, and is counted even if no client awaits the answer.
//!
//! The law: *an operation visits at most twice all entries and changes of the history, and [`VISITS_MAX`] more, and its
//! answer takes at most [`ANSWER_BYTES_MAX`]*. A deleted key in the history counts like an entry, because a scan of a
//! range steps over it. If values are compared or sorted, every [`COMPARED_BYTES`] of them count as one more visit. A
//! write that keeps a value shares it, so its cost is bounded by the length of its request.
//!
//! Every node applies a replicated operation, on the thread that renews the lead, and applies it again from its log
//! after a restart. So its comparisons and reads look at most at [`LOOKS_MAX`] entries, and the operation visits at
//! most twice all entries and changes of the history, and [`LOOKS_MAX`] more. The cost of applying it
//! [counts](State::take_cost) as part of the log's length.

use alloc::collections::BTreeMap;
use core::ops::Bound;

use super::State;
use super::operate::Path;
use crate::command::{
    ANSWER_BYTES_MAX, Bounds, CHANGES_MAX, Delete, Keys, Operation, Order, Previous, Read, Refusal, SortKey,
    VISITS_MAX, Version, Wanted, Write,
};
use crate::entry::Entry;
use crate::state::map::{Map, entry_bytes};

/// The limit on entries that the comparisons and reads of a replicated operation look at, together. It is above the
/// number of deleted keys in a history of the default size, so that the queue of a lock in constant use can still be
/// read in a transaction.
pub const LOOKS_MAX: u64 = 100_000;

/// The bytes of values whose comparison takes about as long as a look at one entry.
pub const COMPARED_BYTES: u64 = 1024;

/// The bytes of records whose application takes about as long as a look at one entry.
const VISIT_BYTES: u64 = 8;

/// The number of looks that take about as long as writing or deleting one entry.
pub const CHANGE_LOOKS: u64 = 16;

/// The bytes of each answer in addition to its entries.
const OPERATION_BYTES: u64 = 128;

/// The cost of changing `count` entries, in bytes of records.
pub(super) fn of_changes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(CHANGE_LOOKS).saturating_mul(VISIT_BYTES)
}

/// The remaining budget of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// The number of entries that comparisons and reads may still look at.
    looks: u64,
    visits: u64,
    /// The number of visits so far.
    spent: u64,
    /// The number of entries that are written or deleted.
    changes: u64,
    answer_bytes: u64,
}

impl Budget {
    /// The budget of an operation that only one node performs.
    pub(super) fn of_one_node(map: &Map, looks: u64) -> Self {
        Self::new(map, VISITS_MAX, looks)
    }

    /// The budget of an operation that is replicated.
    pub(super) fn of_all_nodes(map: &Map) -> Self {
        Self::new(map, LOOKS_MAX, LOOKS_MAX)
    }

    fn new(map: &Map, more: u64, looks: u64) -> Self {
        let all = map.count().saturating_add(map.history().changes());
        let visits = all.saturating_mul(2).saturating_add(more);
        Self { looks, visits, spent: 0, changes: 0, answer_bytes: ANSWER_BYTES_MAX }
    }

    /// The cost of applying the operation, in bytes of records.
    pub(super) fn cost(&self) -> u64 {
        self.changes.saturating_mul(CHANGE_LOOKS).saturating_add(self.spent).saturating_mul(VISIT_BYTES)
    }

    /// Resets the count of changes, because the operation is refused.
    pub(super) fn changes_nothing(&mut self) {
        self.changes = 0;
    }

    /// Counts a look at an entry in order to compare or read it.
    pub(super) fn look(&mut self) -> Result<(), Refusal> {
        self.look_at(1)
    }

    /// Counts the comparison of `bytes` bytes of values.
    pub(super) fn compare(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.look_at(u64::try_from(bytes).expect("a length fits") / COMPARED_BYTES)
    }

    fn look_at(&mut self, entries: u64) -> Result<(), Refusal> {
        self.looks = self.looks.checked_sub(entries).ok_or(Refusal::TooManyEntries)?;
        self.visit_all(entries)
    }

    /// Counts a look at an entry in order to delete it, or at an operation.
    pub(super) fn visit(&mut self) -> Result<(), Refusal> {
        self.visit_all(1)
    }

    fn visit_all(&mut self, entries: u64) -> Result<(), Refusal> {
        self.visits = self.visits.checked_sub(entries).ok_or(Refusal::TooManyEntries)?;
        self.spent += entries;
        Ok(())
    }

    /// Counts an entry that is written or deleted.
    fn change(&mut self) -> Result<(), Refusal> {
        self.changes += 1;
        if self.changes > CHANGES_MAX { Err(Refusal::TooManyEntries) } else { Ok(()) }
    }

    fn answer(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.answer_bytes = self.answer_bytes.checked_sub(bytes).ok_or(Refusal::AnswerTooLarge)?;
        Ok(())
    }
}

/// The entries that the same operation has written so far, with the bytes of each: later parts may return them.
type Written<'a> = BTreeMap<&'a [u8], u64>;

impl State {
    /// Refuses an operation whose taken branches would cost too much.
    pub(super) fn check_cost(
        &self,
        operation: &Operation,
        path: &Path,
        budget: &mut Budget,
    ) -> Result<(), Refusal> {
        self.spend(operation, &mut path.steps(), &mut Written::new(), budget)
    }

    fn spend<'a>(
        &'a self,
        operation: &'a Operation,
        path: &mut impl Iterator<Item = bool>,
        written: &mut Written<'a>,
        budget: &mut Budget,
    ) -> Result<(), Refusal> {
        budget.visit()?;
        budget.answer(OPERATION_BYTES)?;
        match operation {
            Operation::Read(read) => self.spend_on_read(read, written, budget),
            Operation::Delete(delete) => self.spend_on_delete(delete, written, budget),
            Operation::Write(write) => self.spend_on_write(write, written, budget),
            Operation::Transaction(transaction) => {
                let branch = transaction.branch(super::operate::next(path));
                branch.iter().try_for_each(|operation| self.spend(operation, path, written, budget))
            }
        }
    }

    fn spend_on_read(&self, read: &Read, written: &Written<'_>, budget: &mut Budget) -> Result<(), Refusal> {
        let mut sum = Sum::of(read);
        for entry in self.map.steps(&read.keys, read.at) {
            budget.look()?;
            entry.into_iter().for_each(|entry| sum.add(entry));
        }
        budget.compare(sum.compared())?;
        budget.answer(sum.bytes())?;
        // A read of an earlier version does not return these entries, but they are counted as if it did.
        if read.wanted == Wanted::Count { Ok(()) } else { spend_on_written(&read.keys, written, budget) }
    }

    fn spend_on_delete(
        &self,
        delete: &Delete,
        written: &Written<'_>,
        budget: &mut Budget,
    ) -> Result<(), Refusal> {
        let answers = delete.previous == Previous::Wanted;
        for entry in self.map.steps(&delete.keys, None) {
            budget.visit()?;
            if entry.is_some() {
                budget.change()?;
            }
            if answers {
                budget.answer(entry.map_or(0, bytes_of))?;
            }
        }
        if answers { spend_on_written(&delete.keys, written, budget) } else { Ok(()) }
    }

    fn spend_on_write<'a>(
        &'a self,
        write: &'a Write,
        written: &mut Written<'a>,
        budget: &mut Budget,
    ) -> Result<(), Refusal> {
        budget.change()?;
        if write.previous == Previous::Wanted {
            let there = self.map.entry(&write.key).map_or(0, bytes_of);
            budget.answer(there.max(written.get(&*write.key).copied().unwrap_or(0)))?;
        }
        let (value, session) = self.written(write);
        written.insert(&write.key, entry_bytes(&write.key, value, session));
        Ok(())
    }
}

/// Counts the entries written so far that a read or deletion of these keys may return.
fn spend_on_written(keys: &Keys, written: &Written<'_>, budget: &mut Budget) -> Result<(), Refusal> {
    let bounds: (Bound<&[u8]>, Bound<&[u8]>) = match keys {
        Keys::One(key) => (Bound::Included(&**key), Bound::Included(&**key)),
        Keys::Between(from, end) if from >= end => return Ok(()),
        Keys::Between(from, end) => (Bound::Included(&**from), Bound::Excluded(&**end)),
        Keys::From(from) => (Bound::Included(&**from), Bound::Unbounded),
    };
    written.range::<[u8], _>(bounds).try_for_each(|(_, &bytes)| {
        budget.visit()?;
        budget.answer(bytes)
    })
}

fn bytes_of(entry: &Entry) -> u64 {
    entry_bytes(entry.key(), entry.value(), entry.session())
}

/// An upper bound on the bytes of a read's answer, and the bytes of values that it compares.
struct Sum<'a> {
    read: &'a Read,
    limit: u64,
    /// True if the first entries in the order of the keys are returned.
    takes_first: bool,
    /// True if the values are sorted.
    sorts_values: bool,
    count: u64,
    bytes: u64,
    longest: u64,
    values: usize,
}

impl<'a> Sum<'a> {
    fn of(read: &'a Read) -> Self {
        let is_bounded = read.made != Bounds::default() || read.changed != Bounds::default();
        let limit = read.limit.map_or(u64::MAX, core::num::NonZeroU64::get);
        let takes_first = !is_bounded && read.order == Order::default();
        let sorts_values = read.order.key == SortKey::Value && read.wanted != Wanted::Count;
        Self { read, limit, takes_first, sorts_values, count: 0, bytes: 0, longest: 0, values: 0 }
    }

    fn add(&mut self, entry: &Entry) {
        let is_meant = |bounds: Bounds, version: Version| bounds.contain(version);
        if !is_meant(self.read.made, entry.made_at()) || !is_meant(self.read.changed, entry.changed_at()) {
            return;
        }
        if self.takes_first && self.count >= self.limit {
            return;
        }
        let bytes = match self.read.wanted {
            Wanted::Entries => bytes_of(entry),
            Wanted::Keys => entry_bytes(entry.key(), &[], None),
            Wanted::Count => 0,
        };
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.longest = self.longest.max(bytes);
        if self.sorts_values {
            self.values = self.values.saturating_add(entry.value().len());
        }
    }

    /// The compared bytes, if the values differ only at their ends: sorting compares each value about log₂ of the count
    /// times.
    fn compared(&self) -> usize {
        let times = self.count.checked_ilog2().map_or(0, |log| log + 1);
        self.values.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
    }

    /// An upper bound on the bytes of the answer. Which entries are within the limit depends on the order, so each
    /// counts as the longest.
    fn bytes(&self) -> u64 {
        self.bytes.min(self.longest.saturating_mul(self.limit))
    }
}
