//! The checks of a command before it is replicated, which need no state.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use primacy_core::time::Duration;

use super::{Command, Compared, Comparison, Keys, Operation, Refusal, Replace, Transaction};
use crate::encoding::NESTING_MAX;
use crate::partitions;

/// The longest time to live of a session, which is etcd's.
pub const TIME_TO_LIVE_MAX: Duration = Duration::from_secs(TIME_TO_LIVE_SECONDS_MAX);

const TIME_TO_LIVE_SECONDS_MAX: u64 = 9_000_000_000;

/// The default limit on the bytes of a request: 1.5 MiB.
pub const REQUEST_BYTES_MAX: usize = 3 << 19;

/// The default limit on the operations of a transaction.
pub const OPERATIONS_MAX: usize = 128;

/// The default limit on all comparisons and operations of a transaction, over all nested ones and both branches: twice
/// three full lists.
pub const OPERATIONS_IN_ALL_MAX: usize = 6 * OPERATIONS_MAX;

/// The limit on the entries that an operation may visit in addition to twice all entries and changes of the history.
/// Comparisons, reads and deletions count together, and an entry or a deleted key counts at each visit.
pub const VISITS_MAX: u64 = 1_000_000;

/// The limit on the entries that an operation may write and delete, and on the entries of a session, which the last
/// transaction may exceed. Every node applies them in one step, on the thread that renews the lead: this takes some 25
/// ms, and ten times as long in a debug build.
pub const CHANGES_MAX: u64 = 25_000;

/// The limit on the bytes of an operation's answer: keys and values, with 88 for each entry.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The bytes that the bounds and the order of a read count in addition.
const READ_BYTES: usize = 64;

/// The bytes that each operation counts in addition to its keys and values: no less than its encoding takes.
const OPERATION_BYTES: usize = 16;

/// The limits on the size of a request. Only the node that receives a request checks them; a replicated request is
/// applied without this check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestLimits {
    /// The limit on keys and values, with a few bytes for each operation.
    pub bytes: usize,
    /// The limit on each of the three lists of a transaction. For nested transactions it is lower by the length of the
    /// longest list.
    pub operations: usize,
    /// The limit on comparisons and operations in a transaction and all nested ones, in both branches of each.
    pub operations_in_all: usize,
}

impl Default for RequestLimits {
    /// [`REQUEST_BYTES_MAX`], [`OPERATIONS_MAX`] and [`OPERATIONS_IN_ALL_MAX`].
    fn default() -> Self {
        Self {
            bytes: REQUEST_BYTES_MAX,
            operations: OPERATIONS_MAX,
            operations_in_all: OPERATIONS_IN_ALL_MAX,
        }
    }
}

impl Command {
    /// The size in bytes: keys and values, with a few bytes for each operation.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Operate(operation) => operation.bytes(),
            Self::Compact(_) | Self::Begin { .. } | Self::End { .. } | Self::Expire { .. } => OPERATION_BYTES,
            Self::Forget { .. } | Self::Limit(_) | Self::Share(_) | Self::Partitions(_) => OPERATION_BYTES,
        }
    }

    /// Checks that the command may be replicated, as far as that can be decided without the state.
    ///
    /// # Errors
    /// The first fault: [`Refusal::EmptyKey`], [`Refusal::TooManyOperations`], [`Refusal::DuplicateKey`],
    /// [`Refusal::TimeToLiveTooLong`] or [`Refusal::RequestTooLarge`].
    pub fn check(&self, limits: RequestLimits) -> Result<(), Refusal> {
        match self {
            Self::Operate(operation) => {
                operation.check(limits)?;
            }
            Self::Begin { time_to_live, .. }
            | Self::Partitions(partitions::Command::Join { time_to_live, .. }) => {
                if *time_to_live > TIME_TO_LIVE_MAX {
                    return Err(Refusal::TimeToLiveTooLong);
                }
            }
            Self::Compact(_) | Self::End { .. } | Self::Expire { .. } => {}
            Self::Forget { .. } | Self::Limit(_) | Self::Share(_) | Self::Partitions(_) => {}
        }
        Ok(())
    }
}

impl Operation {
    /// Like [`Command::check`], for an operation that only reads and is not replicated.
    ///
    /// # Errors
    /// As [`Command::check`].
    pub fn check(&self, limits: RequestLimits) -> Result<(), Refusal> {
        self.check_keys(limits.operations, 0)?;
        if self.count() > limits.operations_in_all {
            return Err(Refusal::TooManyOperations);
        }
        if let Self::Transaction(transaction) = self {
            overlaps(&transaction.then)?;
            overlaps(&transaction.otherwise)?;
        }
        if self.bytes() > limits.bytes {
            return Err(Refusal::RequestTooLarge);
        }
        Ok(())
    }

    fn check_keys(&self, operations_max: usize, depth: usize) -> Result<(), Refusal> {
        let key = match self {
            Self::Read(read) => read.keys.first(),
            Self::Write(write) => &write.key,
            Self::Delete(delete) => delete.keys.first(),
            Self::Transaction(transaction) => return transaction.check_keys(operations_max, depth + 1),
        };
        if key.is_empty() { Err(Refusal::EmptyKey) } else { Ok(()) }
    }

    /// The number of comparisons and operations, itself and all nested ones included.
    fn count(&self) -> usize {
        match self {
            Self::Read(_) | Self::Write(_) | Self::Delete(_) => 1,
            Self::Transaction(transaction) => {
                let operations = transaction.then.iter().chain(&transaction.otherwise);
                1 + transaction.comparisons.len() + operations.map(Self::count).sum::<usize>()
            }
        }
    }

    fn bytes(&self) -> usize {
        OPERATION_BYTES
            + match self {
                Self::Read(read) => READ_BYTES + read.keys.bytes(),
                Self::Write(write) => {
                    let value = match &write.value {
                        Replace::With(value) => value.len(),
                        Replace::Keep => 0,
                    };
                    write.key.len() + value
                }
                Self::Delete(delete) => delete.keys.bytes(),
                Self::Transaction(transaction) => {
                    let operations = transaction.then.iter().chain(&transaction.otherwise);
                    transaction.comparisons.iter().map(Comparison::bytes).sum::<usize>()
                        + operations.map(Self::bytes).sum::<usize>()
                }
            }
    }
}

impl Comparison {
    fn bytes(&self) -> usize {
        let value = match &self.compared {
            Compared::Value(value) => value.len(),
            Compared::Writes(_) | Compared::MadeAt(_) | Compared::ChangedAt(_) | Compared::Session(_) => 0,
        };
        OPERATION_BYTES + self.keys.bytes() + value
    }
}

impl Keys {
    fn bytes(&self) -> usize {
        match self {
            Self::One(key) | Self::From(key) => key.len(),
            Self::Between(key, end) => key.len() + end.len(),
        }
    }
}

impl Transaction {
    fn check_keys(&self, operations_max: usize, depth: usize) -> Result<(), Refusal> {
        let longest = self.comparisons.len().max(self.then.len()).max(self.otherwise.len());
        if longest > operations_max || depth > NESTING_MAX {
            return Err(Refusal::TooManyOperations);
        }
        if self.comparisons.iter().any(|comparison| comparison.keys.first().is_empty()) {
            return Err(Refusal::EmptyKey);
        }
        let mut operations = self.then.iter().chain(&self.otherwise);
        operations.try_for_each(|operation| operation.check_keys(operations_max - longest, depth))
    }
}

/// The keys that a list of operations changes.
#[derive(Default)]
struct Touched<'a> {
    written: BTreeSet<&'a [u8]>,
    deleted: Vec<&'a Keys>,
}

impl<'a> Touched<'a> {
    /// Adds the write of a key. Refuses it if the key is deleted, or written other than in the excluded branch.
    fn write(&mut self, key: &'a [u8], excluded: &BTreeSet<&'a [u8]>) -> Result<(), Refusal> {
        // As in etcd, an open-ended range does not count as overlapping.
        let covers = |keys: &&Keys| !matches!(keys, Keys::From(_)) && keys.contain(key);
        if self.deleted.iter().any(covers) || (self.written.contains(key) && !excluded.contains(key)) {
            return Err(Refusal::DuplicateKey);
        }
        self.written.insert(key);
        Ok(())
    }
}

/// Refuses a key that would be written twice, or deleted and written. A key that one nested transaction writes and a
/// later one deletes is accepted, as in etcd: the order decides.
fn overlaps(operations: &[Operation]) -> Result<Touched<'_>, Refusal> {
    let mut touched = Touched::default();
    for operation in operations {
        if let Operation::Delete(delete) = operation {
            touched.deleted.push(&delete.keys);
        }
    }
    for operation in operations {
        if let Operation::Transaction(transaction) = operation {
            let then = overlaps(&transaction.then)?;
            let otherwise = overlaps(&transaction.otherwise)?;
            for key in &then.written {
                touched.write(key, &BTreeSet::new())?;
            }
            for key in &otherwise.written {
                touched.write(key, &then.written)?;
            }
            touched.deleted.extend(then.deleted);
            touched.deleted.extend(otherwise.deleted);
        }
    }
    for operation in operations {
        if let Operation::Write(write) = operation {
            touched.write(&write.key, &BTreeSet::new())?;
        }
    }
    Ok(touched)
}

#[cfg(test)]
mod tests;
