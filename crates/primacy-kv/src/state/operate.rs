//! The effects of operations on entries, and on their sessions.
//!
//! A transaction is checked before anything is changed: which branches are taken, and whether all operations in them
//! are possible. After that nothing can fail, so a transaction is performed in full or not at all.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::cost::Budget;
use super::{Answers, State};
use crate::command::{
    Answer, CHANGES_MAX, Compared, Comparison, Delete, Keys, Operation, Previous, Refusal, Relation, Replace,
    SessionId, Transaction, Write,
};
use crate::entry::Entry;
use crate::state::map::{Map, entry_bytes};

/// The branches that are taken: for each executed transaction, in order, whether its comparisons held.
pub(super) struct Path(Vec<bool>);

impl Path {
    fn of(map: &Map, operation: &Operation, budget: &mut Budget) -> Result<Self, Refusal> {
        let mut path = Self(Vec::new());
        path.add(map, operation, budget)?;
        Ok(path)
    }

    fn add(&mut self, map: &Map, operation: &Operation, budget: &mut Budget) -> Result<(), Refusal> {
        let Operation::Transaction(transaction) = operation else { return Ok(()) };
        let mut held = true;
        for comparison in &transaction.comparisons {
            held = held && holds(map, comparison, budget)?;
        }
        self.0.push(held);
        transaction.branch(held).iter().try_for_each(|operation| self.add(map, operation, budget))
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = bool> {
        self.0.iter().copied()
    }
}

impl Transaction {
    pub(super) fn branch(&self, held: bool) -> &[Operation] {
        if held { &self.then } else { &self.otherwise }
    }
}

impl State {
    pub(super) fn operate(&mut self, operation: &Operation, answers: Answers) -> Result<Answer, Refusal> {
        if let Operation::Write(write) = operation {
            // As in etcd, a single write with two faults is refused for its session, and a write in a transaction for
            // the other fault.
            self.check_session(write)?;
        }
        let mut budget = Budget::of_all_nodes(&self.map);
        let path = self.judge(operation, &mut budget);
        if path.is_err() {
            budget.changes_nothing();
        }
        self.cost = self.cost.saturating_add(budget.cost());
        Ok(self.perform(operation, &mut path?.steps(), answers))
    }

    /// Finds the branches that are taken, and checks that all operations in them are possible.
    fn judge(&self, operation: &Operation, budget: &mut Budget) -> Result<Path, Refusal> {
        let path = Path::of(&self.map, operation, budget)?;
        self.check_writes(operation, &mut path.steps())?;
        self.check_reads(operation, &mut path.steps())?;
        self.check_cost(operation, &path, budget)?;
        self.check_space(operation, &path)?;
        Ok(path)
    }

    pub(super) fn only_read(&self, operation: &Operation, looks: u64) -> Result<Answer, Refusal> {
        let mut budget = Budget::of_one_node(&self.map, looks);
        let path = Path::of(&self.map, operation, &mut budget)?;
        self.check_reads(operation, &mut path.steps())?;
        self.check_cost(operation, &path, &mut budget)?;
        Ok(self.answer(operation, &mut path.steps()))
    }

    fn answer(&self, operation: &Operation, path: &mut impl Iterator<Item = bool>) -> Answer {
        match operation {
            Operation::Read(read) => Answer::Found(self.map.read(read).expect("checked before")),
            Operation::Transaction(transaction) => {
                let held = next(path);
                let operations = transaction.branch(held).iter();
                Answer::Decided { held, answers: operations.map(|one| self.answer(one, path)).collect() }
            }
            Operation::Write(_) | Operation::Delete(_) => unreachable!("it only reads"),
        }
    }

    /// Refuses impossible writes.
    fn check_writes(
        &self,
        operation: &Operation,
        path: &mut impl Iterator<Item = bool>,
    ) -> Result<(), Refusal> {
        match operation {
            Operation::Write(write) => {
                self.check_kept(write)?;
                self.check_session(write)
            }
            Operation::Transaction(transaction) => {
                let branch = transaction.branch(next(path));
                branch.iter().try_for_each(|operation| self.check_writes(operation, path))
            }
            Operation::Read(_) | Operation::Delete(_) => Ok(()),
        }
    }

    fn check_kept(&self, write: &Write) -> Result<(), Refusal> {
        let keeps = write.value == Replace::Keep || write.session == Replace::Keep;
        if keeps && self.map.entry(&write.key).is_none() { Err(Refusal::KeyNotFound) } else { Ok(()) }
    }

    fn check_session(&self, write: &Write) -> Result<(), Refusal> {
        match write.session {
            Replace::With(Some(session)) => {
                let session = self.sessions.find(session).ok_or(Refusal::SessionNotFound)?;
                let is_full = session.keys().len() as u64 >= CHANGES_MAX && !session.has(&write.key);
                if is_full { Err(Refusal::SessionFull) } else { Ok(()) }
            }
            Replace::With(None) | Replace::Keep => Ok(()),
        }
    }

    /// Refuses reads of a compacted or future version.
    fn check_reads(
        &self,
        operation: &Operation,
        path: &mut impl Iterator<Item = bool>,
    ) -> Result<(), Refusal> {
        match operation {
            Operation::Read(read) => read.at.map_or(Ok(()), |at| self.map.check_readable(at)),
            Operation::Transaction(transaction) => {
                let branch = transaction.branch(next(path));
                branch.iter().try_for_each(|operation| self.check_reads(operation, path))
            }
            Operation::Write(_) | Operation::Delete(_) => Ok(()),
        }
    }

    /// Refuses an operation that enlarges entries beyond the quota. Deletions in the same transaction do not make room.
    fn check_space(&self, operation: &Operation, path: &Path) -> Result<(), Refusal> {
        let after = self.sum(operation, &mut path.steps(), &|write| {
            let (value, session) = self.written(write);
            entry_bytes(&write.key, value, session)
        });
        // If there is room for all writes, the sizes of the present entries do not matter.
        if self.bytes().saturating_add(after) <= self.limits.quota {
            return Ok(());
        }
        let before = self.sum(operation, &mut path.steps(), &|write| {
            self.map.entry(&write.key).map_or(0, |old| entry_bytes(old.key(), old.value(), old.session()))
        });
        let would_be = self.bytes().saturating_add(after).saturating_sub(before);
        if after > before && would_be > self.limits.quota { Err(Refusal::NoSpace) } else { Ok(()) }
    }

    /// The sum of `of` over all writes in the branches that are taken.
    fn sum(
        &self,
        operation: &Operation,
        path: &mut impl Iterator<Item = bool>,
        of: &impl Fn(&Write) -> u64,
    ) -> u64 {
        match operation {
            Operation::Write(write) => of(write),
            Operation::Transaction(transaction) => {
                let branch = transaction.branch(next(path));
                branch.iter().map(|operation| self.sum(operation, path, of)).sum()
            }
            Operation::Read(_) | Operation::Delete(_) => 0,
        }
    }

    fn perform(
        &mut self,
        operation: &Operation,
        path: &mut impl Iterator<Item = bool>,
        answers: Answers,
    ) -> Answer {
        match (operation, answers) {
            (Operation::Read(read), Answers::Wanted) => {
                Answer::Found(self.map.read(read).expect("checked before"))
            }
            (Operation::Read(_), Answers::Unwanted) => Answer::Done,
            (Operation::Write(write), _) => self.write(write),
            (Operation::Delete(delete), _) => self.delete(delete, answers),
            (Operation::Transaction(transaction), Answers::Wanted) => {
                let held = next(path);
                let operations = transaction.branch(held).iter();
                let done = operations.map(|one| self.perform(one, path, answers));
                Answer::Decided { held, answers: done.collect() }
            }
            (Operation::Transaction(transaction), Answers::Unwanted) => {
                for one in transaction.branch(next(path)) {
                    self.perform(one, path, answers);
                }
                Answer::Done
            }
        }
    }

    /// The value and the session of the entry after a write. The kept parts of an entry that the same transaction has
    /// deleted are its parts before the deletion.
    pub(super) fn written<'a>(&'a self, write: &'a Write) -> (&'a [u8], Option<SessionId>) {
        let value = match &write.value {
            Replace::With(value) => value,
            Replace::Keep => self.kept(write).map_or(&[][..], Entry::value),
        };
        let session = match write.session {
            Replace::With(session) => session,
            Replace::Keep => self.kept(write).and_then(Entry::session),
        };
        (value, session)
    }

    fn kept(&self, write: &Write) -> Option<&Entry> {
        self.map.entry(&write.key).or_else(|| self.map.entry_before(&write.key))
    }

    fn write(&mut self, write: &Write) -> Answer {
        let session = match write.session {
            Replace::With(session) => session,
            Replace::Keep => self.kept(write).and_then(Entry::session),
        };
        let before = match &write.value {
            Replace::With(value) => self.map.write(&write.key, value, session),
            Replace::Keep => {
                let kept = self.kept(write).expect("checked before").clone();
                self.map.rewrite(&kept, session)
            }
        };
        self.sessions.move_key(&write.key, before.as_ref().and_then(Entry::session), session);
        let previous = match write.previous {
            Previous::Wanted => before,
            Previous::Unwanted => None,
        };
        Answer::Written { version: self.map.version(), previous }
    }

    fn delete(&mut self, delete: &Delete, answers: Answers) -> Answer {
        let entries = match &delete.keys {
            Keys::One(key) => self.map.delete(key).into_iter().collect::<Vec<Entry>>(),
            Keys::Between(..) | Keys::From(_) => {
                let entries = self.map.entries(&delete.keys).cloned().collect::<Vec<Entry>>();
                for entry in &entries {
                    self.map.delete(entry.key());
                }
                entries
            }
        };
        for entry in &entries {
            self.sessions.move_key(entry.key(), entry.session(), None);
        }
        let count = u64::try_from(entries.len()).expect("a length fits");
        let previous = match (delete.previous, answers) {
            (Previous::Wanted, Answers::Wanted) => entries,
            (Previous::Unwanted, _) | (_, Answers::Unwanted) => Vec::new(),
        };
        Answer::Deleted { version: self.map.version(), count, previous }
    }
}

pub(super) fn next(path: &mut impl Iterator<Item = bool>) -> bool {
    path.next().expect("the same transactions are reached in the same order")
}

/// True if a comparison holds for all entries of its keys; if there are none, for an entry whose numbers are 0.
fn holds(map: &Map, comparison: &Comparison, budget: &mut Budget) -> Result<bool, Refusal> {
    budget.look()?;
    let mut is_there = false;
    for entry in map.steps(&comparison.keys, None) {
        budget.look()?;
        is_there |= entry.is_some();
        if let (Some(entry), Compared::Value(given)) = (entry, &comparison.compared) {
            budget.compare(entry.value().len().min(given.len()))?;
        }
        if entry.is_some_and(|entry| !relates(comparison, Some(entry))) {
            return Ok(false);
        }
    }
    Ok(is_there || relates(comparison, None))
}

fn relates(comparison: &Comparison, entry: Option<&Entry>) -> bool {
    let number = |of: fn(&Entry) -> u64, given: &i64| {
        // An entry's numbers are far below the limit, because they count changes.
        i64::try_from(entry.map_or(0, of)).unwrap_or(i64::MAX).cmp(given)
    };
    let ordering = match &comparison.compared {
        Compared::Writes(given) => number(Entry::writes, given),
        Compared::MadeAt(given) => number(|entry| entry.made_at().0, given),
        Compared::ChangedAt(given) => number(|entry| entry.changed_at().0, given),
        Compared::Session(given) => entry.and_then(Entry::session).map_or(0, SessionId::get).cmp(given),
        Compared::Value(given) => match entry {
            Some(entry) => entry.value().cmp(given),
            None => return false,
        },
    };
    match comparison.relation {
        Relation::Equal => ordering == Ordering::Equal,
        Relation::NotEqual => ordering != Ordering::Equal,
        Relation::Greater => ordering == Ordering::Greater,
        Relation::Less => ordering == Ordering::Less,
    }
}
