//! The simple twin of the state: a full copy of everything for each version, and nothing clever.

use core::num::NonZeroU64;
use std::collections::BTreeMap;

use crate::command::{
    Answer, Command, Compared, Comparison, Direction, Found, Happened, Keys, Operation, Outcome, Previous,
    Read, Refusal, Relation, Replace, SessionId, SortKey, Transaction, Version, Wanted,
};
use crate::command::{Change, Write};
use crate::entry::{Entry, Stamp};

type Rows = BTreeMap<Vec<u8>, Entry>;

pub(super) struct Twin {
    /// The entries as of version 1, 2, …
    copies: Vec<Rows>,
    /// The version of each change, and the entry of the key before and after it.
    changes: Vec<(u64, Option<Entry>, Option<Entry>)>,
    compacted: Option<u64>,
    sessions: BTreeMap<SessionId, u64>,
    /// The entries as they become while a command is done, and whether it has changed anything.
    rows: Rows,
    changed: bool,
}

impl Twin {
    pub(super) fn new() -> Self {
        Self {
            copies: vec![Rows::new()],
            changes: Vec::new(),
            compacted: None,
            sessions: BTreeMap::new(),
            rows: Rows::new(),
            changed: false,
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.copies.len() as u64 + u64::from(self.changed)
    }

    pub(super) fn apply(&mut self, command: &Command) -> Outcome {
        let result = self.execute(command);
        if self.changed {
            self.copies.push(self.rows.clone());
            self.changed = false;
        }
        Outcome { version: Version(self.version()), result }
    }

    fn execute(&mut self, command: &Command) -> Result<Answer, Refusal> {
        match command {
            Command::Operate(operation) => {
                if let Operation::Write(write) = operation {
                    self.check_session(write)?;
                }
                let branches = self.branches(operation);
                for operation in &branches {
                    self.check_write(operation)?;
                }
                for operation in &branches {
                    self.check_read(operation)?;
                }
                let before = self.rows.clone();
                Ok(self.perform(operation, &before))
            }
            Command::Compact(Version(version)) => {
                if let Some(compacted) = self.compacted.filter(|kept| version <= kept) {
                    return Err(Refusal::Compacted { compacted: Version(compacted) });
                }
                if *version > self.version() {
                    return Err(Refusal::Future { version: Version(self.version()) });
                }
                self.compacted = Some(*version);
                Ok(Answer::Done)
            }
            Command::Begin { session, time_to_live } => {
                if self.sessions.contains_key(session) {
                    return Err(Refusal::SessionExists);
                }
                self.sessions.insert(*session, time_to_live.as_nanos());
                Ok(Answer::Done)
            }
            Command::End { session } | Command::Expire { session } => {
                self.sessions.remove(session).ok_or(Refusal::SessionNotFound)?;
                let keys = self.keys_of(*session);
                for key in &keys {
                    self.delete(key);
                }
                Ok(Answer::Ended { count: keys.len() as u64 })
            }
            Command::Forget { .. } | Command::Limit(_) | Command::Share(_) => Ok(Answer::Done),
            Command::Partitions(_) => unreachable!("partitions have a twin of their own"),
        }
    }

    pub(super) fn keys_of(&self, session: SessionId) -> Vec<Vec<u8>> {
        let mine = self.rows.iter().filter(|(_, entry)| entry.session() == Some(session));
        mine.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn sessions(&self) -> Vec<(SessionId, u64)> {
        self.sessions.iter().map(|(&id, &live)| (id, live)).collect()
    }

    /// All single operations that are reached.
    fn branches<'a>(&self, operation: &'a Operation) -> Vec<&'a Operation> {
        match operation {
            Operation::Transaction(transaction) => {
                let branch = self.branch(transaction, &self.rows).1;
                branch.iter().flat_map(|operation| self.branches(operation)).collect()
            }
            Operation::Read(_) | Operation::Write(_) | Operation::Delete(_) => vec![operation],
        }
    }

    fn branch<'a>(&self, transaction: &'a Transaction, rows: &Rows) -> (bool, &'a [Operation]) {
        let held = transaction.comparisons.iter().all(|comparison| holds(rows, comparison));
        (held, if held { &transaction.then } else { &transaction.otherwise })
    }

    fn check_write(&self, operation: &Operation) -> Result<(), Refusal> {
        let Operation::Write(write) = operation else { return Ok(()) };
        let keeps = write.value == Replace::Keep || write.session == Replace::Keep;
        if keeps && !self.rows.contains_key(&*write.key) {
            return Err(Refusal::KeyNotFound);
        }
        self.check_session(write)
    }

    fn check_session(&self, write: &Write) -> Result<(), Refusal> {
        match write.session {
            Replace::With(Some(id)) if !self.sessions.contains_key(&id) => Err(Refusal::SessionNotFound),
            Replace::With(_) | Replace::Keep => Ok(()),
        }
    }

    fn check_read(&self, operation: &Operation) -> Result<(), Refusal> {
        let Operation::Read(read) = operation else { return Ok(()) };
        let Some(Version(at)) = read.at else { return Ok(()) };
        if at > self.version() {
            return Err(Refusal::Future { version: Version(self.version()) });
        }
        match self.compacted {
            Some(compacted) if at < compacted => Err(Refusal::Compacted { compacted: Version(compacted) }),
            Some(_) | None => Ok(()),
        }
    }

    fn perform(&mut self, operation: &Operation, before: &Rows) -> Answer {
        match operation {
            Operation::Read(read) => Answer::Found(self.found(read)),
            Operation::Write(write) => {
                let previous = self.write(write, before);
                let previous = previous.filter(|_| write.previous == Previous::Wanted);
                Answer::Written { version: Version(self.version()), previous }
            }
            Operation::Delete(delete) => {
                let keys: Vec<Vec<u8>> =
                    self.rows.keys().filter(|key| delete.keys.contain(key)).cloned().collect();
                let mut previous: Vec<Entry> = keys.iter().map(|key| self.delete(key)).collect();
                if delete.previous == Previous::Unwanted {
                    previous.clear();
                }
                Answer::Deleted { version: Version(self.version()), count: keys.len() as u64, previous }
            }
            Operation::Transaction(transaction) => {
                let (held, branch) = self.branch(transaction, before);
                let branch = branch.to_vec();
                let answers = branch.iter().map(|operation| self.perform(operation, before)).collect();
                Answer::Decided { held, answers }
            }
        }
    }

    fn write(&mut self, write: &Write, before: &Rows) -> Option<Entry> {
        let old = self.rows.get(&*write.key).cloned();
        let kept = old.clone().or_else(|| before.get(&*write.key).cloned());
        let value = match &write.value {
            Replace::With(value) => value.to_vec(),
            Replace::Keep => kept.as_ref().unwrap().value().to_vec(),
        };
        let session = match write.session {
            Replace::With(session) => session,
            Replace::Keep => kept.as_ref().unwrap().session(),
        };
        let now = Version(self.copies.len() as u64 + 1);
        let made_at = old.as_ref().map_or(now, Entry::made_at);
        let writes = NonZeroU64::new(old.as_ref().map_or(0, Entry::writes) + 1).unwrap();
        let entry = Entry::new(&write.key, &value, Stamp { session, made_at, changed_at: now, writes });
        self.rows.insert(write.key.to_vec(), entry.clone());
        self.changes.push((now.0, old.clone(), Some(entry)));
        self.changed = true;
        old
    }

    fn delete(&mut self, key: &[u8]) -> Entry {
        let entry = self.rows.remove(key).unwrap();
        self.changes.push((self.copies.len() as u64 + 1, Some(entry.clone()), None));
        self.changed = true;
        entry
    }

    pub(super) fn read(&self, read: &Read) -> Result<Found, Refusal> {
        self.check_read(&Operation::Read(Box::new(read.clone())))?;
        Ok(self.found(read))
    }

    fn found(&self, read: &Read) -> Found {
        let index = read.at.filter(|&Version(at)| at <= self.copies.len() as u64);
        let none = Rows::new();
        let rows = match index {
            Some(Version(0)) => &none,
            Some(Version(at)) => &self.copies[usize::try_from(at).unwrap() - 1],
            None => &self.rows,
        };
        let mut entries: Vec<Entry> =
            rows.values().filter(|entry| read.keys.contain(entry.key())).cloned().collect();
        let count = entries.len() as u64;
        let is_meant = |entry: &Entry| {
            let made = read.made.from <= entry.made_at() && entry.made_at() <= read.made.to;
            made && read.changed.from <= entry.changed_at() && entry.changed_at() <= read.changed.to
        };
        entries.retain(is_meant);
        let ascending = read.order.direction == Direction::Ascending;
        // So the equal ones stay in order either way.
        if !ascending {
            entries.reverse();
        }
        match read.order.key {
            SortKey::Key => {}
            SortKey::Writes => entries.sort_by_key(Entry::writes),
            SortKey::MadeAt => entries.sort_by_key(Entry::made_at),
            SortKey::ChangedAt => entries.sort_by_key(Entry::changed_at),
            SortKey::Value => entries.sort_by_key(|entry| entry.value().to_vec()),
        }
        if !ascending && read.order.key != SortKey::Key {
            entries.reverse();
        }
        let mut more = false;
        if let Some(limit) = read.limit {
            more = entries.len() as u64 > limit.get();
            entries.truncate(usize::try_from(limit.get()).unwrap());
        }
        match read.wanted {
            Wanted::Entries => {}
            Wanted::Keys => entries.iter_mut().for_each(|entry| *entry = entry.without_value()),
            Wanted::Count => (entries, more) = (Vec::new(), false),
        }
        Found { version: Version(self.version()), entries, more, count }
    }

    pub(super) fn changes(
        &self,
        keys: &Keys,
        Version(from): Version,
        previous: Previous,
    ) -> Result<Vec<Change>, Refusal> {
        if let Some(compacted) = self.compacted.filter(|&compacted| from < compacted) {
            return Err(Refusal::Compacted { compacted: Version(compacted) });
        }
        let meant = self.changes.iter().filter(|(at, ..)| *at >= from);
        let told = meant.map(|(at, before, after)| {
            let happened = match after {
                Some(entry) => Happened::Written(entry.clone()),
                None => Happened::Deleted(before.clone().unwrap()),
            };
            let mut change = Change { version: Version(*at), happened, previous: None };
            let is_kept = self.compacted.is_none_or(|compacted| *at > compacted);
            let is_made = after.as_ref().is_some_and(|entry| entry.made_at().0 == *at);
            if previous == Previous::Wanted && is_kept && !is_made {
                change.previous = self.copies[usize::try_from(at - 2).unwrap()].get(change.key()).cloned();
            }
            change
        });
        Ok(told.filter(|change| keys.contain(change.key())).collect())
    }
}

fn holds(rows: &Rows, comparison: &Comparison) -> bool {
    let meant: Vec<&Entry> = rows.values().filter(|entry| comparison.keys.contain(entry.key())).collect();
    if meant.is_empty() {
        return !matches!(comparison.compared, Compared::Value(_)) && of_numbers(comparison, None);
    }
    meant.into_iter().all(|entry| of_numbers(comparison, Some(entry)))
}

fn of_numbers(comparison: &Comparison, entry: Option<&Entry>) -> bool {
    let of = |number: fn(&Entry) -> i128| entry.map_or(0, number);
    let (there, given) = match &comparison.compared {
        Compared::Value(value) => {
            let there = entry.unwrap().value();
            return related(comparison.relation, there, value);
        }
        Compared::Writes(given) => (of(|entry| entry.writes().into()), given),
        Compared::MadeAt(given) => (of(|entry| entry.made_at().0.into()), given),
        Compared::ChangedAt(given) => (of(|entry| entry.changed_at().0.into()), given),
        Compared::Session(given) => (of(|entry| entry.session().map_or(0, SessionId::get).into()), given),
    };
    related(comparison.relation, there, i128::from(*given))
}

fn related<T: PartialOrd>(relation: Relation, there: T, given: T) -> bool {
    match relation {
        Relation::Equal => there == given,
        Relation::NotEqual => there != given,
        Relation::Greater => there > given,
        Relation::Less => there < given,
    }
}
