//! Builders of the most common commands: read one key, write it, or write it unless it was changed meanwhile.
//!
//! Each fills in the fields that have a usual value.

use alloc::boxed::Box;
use alloc::vec;

use super::{
    Command, Compared, Comparison, Delete, Keys, Operation, Previous, Read, Relation, Replace, SessionId,
    Transaction, Write,
};
use crate::entry::Entry;
use crate::partitions;

impl Read {
    /// A request for the present entry of this key.
    #[must_use]
    pub fn one(key: impl AsRef<[u8]>) -> Self {
        Self::of(Keys::One(key.as_ref().into()))
    }
}

impl Write {
    /// Writes this value under this key, without a session, and without returning the entry before it.
    #[must_use]
    pub fn new(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        Self {
            key: key.as_ref().into(),
            value: Replace::With(value.as_ref().into()),
            session: Replace::With(None),
            previous: Previous::Unwanted,
        }
    }

    /// The same write, with an entry that is deleted when this session ends.
    #[must_use]
    pub fn in_session(self, session: SessionId) -> Self {
        Self { session: Replace::With(Some(session)), ..self }
    }

    /// Compare-and-set: the same write, only if the key was neither written nor deleted since it was read. `before` is
    /// the entry that was read, `None` if there was none. [`Answer::Decided`](super::Answer::Decided) reports whether
    /// the key was written.
    #[must_use]
    pub fn if_unchanged(self, before: Option<&Entry>) -> Transaction {
        Transaction {
            comparisons: vec![Comparison::unchanged(&self.key, before)],
            then: vec![self.into()],
            ..Transaction::default()
        }
    }
}

impl Comparison {
    /// A condition that this key was neither written nor deleted since it was read. `before` is the entry that was
    /// read, `None` if there was none.
    #[must_use]
    pub fn unchanged(key: impl AsRef<[u8]>, before: Option<&Entry>) -> Self {
        // A version changes a key at most once, so equal versions mean the same entry.
        let changed_at = before.map_or(0, |entry| entry.changed_at().0);
        Self {
            keys: Keys::One(key.as_ref().into()),
            relation: Relation::Equal,
            // A version that does not fit belongs to no entry.
            compared: Compared::ChangedAt(i64::try_from(changed_at).unwrap_or(i64::MAX)),
        }
    }
}

impl From<Read> for Operation {
    fn from(read: Read) -> Self {
        Self::Read(Box::new(read))
    }
}

impl From<Write> for Operation {
    fn from(write: Write) -> Self {
        Self::Write(write)
    }
}

impl From<Delete> for Operation {
    fn from(delete: Delete) -> Self {
        Self::Delete(delete)
    }
}

impl From<Transaction> for Operation {
    fn from(transaction: Transaction) -> Self {
        Self::Transaction(transaction)
    }
}

impl From<Operation> for Command {
    fn from(operation: Operation) -> Self {
        Self::Operate(operation)
    }
}

impl From<Write> for Command {
    fn from(write: Write) -> Self {
        Self::Operate(write.into())
    }
}

impl From<Delete> for Command {
    fn from(delete: Delete) -> Self {
        Self::Operate(delete.into())
    }
}

impl From<Transaction> for Command {
    fn from(transaction: Transaction) -> Self {
        Self::Operate(transaction.into())
    }
}

impl From<partitions::Command> for Command {
    fn from(command: partitions::Command) -> Self {
        Self::Partitions(command)
    }
}

#[cfg(test)]
mod tests {
    use primacy_core::id::{Identity, Incarnation, NodeId};
    use primacy_core::time::Duration;

    use super::*;
    use crate::command::{Answer, Applied, Request};
    use crate::state::State;

    #[derive(Default)]
    struct StateFixture {
        state: State,
        sequence: u64,
    }

    impl StateFixture {
        fn tell(&mut self, command: impl Into<Command>) -> Answer {
            self.sequence += 1;
            let client = Identity {
                node: NodeId::new("n1").unwrap(),
                incarnation: Incarnation { count: 1, nonce: 7 },
            };
            let (sequence, command) = (self.sequence, command.into());
            let request = Request { client, sequence, done_below: sequence, command };
            match self.state.apply(&request) {
                Applied::First(outcome) => outcome.result.unwrap(),
                Applied::Duplicate => panic!("each request has a number of its own"),
            }
        }

        /// Applies a transaction; returns true if its comparisons held.
        fn decides(&mut self, transaction: Transaction) -> bool {
            let answer = self.tell(transaction);
            let Answer::Decided { held, .. } = answer else { panic!("{answer:?}") };
            held
        }

        fn entry(&self, key: &str) -> Option<Entry> {
            let mut found = self.state.read(&Read::one(key)).unwrap();
            assert!(found.entries.len() <= 1 && !found.more);
            found.entries.pop()
        }
    }

    #[test]
    fn a_key_is_written_only_if_it_is_as_it_was_read() {
        let mut fixture = StateFixture::default();
        let write = |value: &str| Write::new("key", value);
        assert!(fixture.decides(write("first").if_unchanged(None)));
        assert!(!fixture.decides(write("too late").if_unchanged(None)), "there is an entry now");
        let first = fixture.entry("key");
        assert_eq!(first.as_ref().unwrap().value(), b"first");
        // Writing the same value again is another write; so is a write after a deletion.
        fixture.tell(write("first"));
        assert!(!fixture.decides(write("too late").if_unchanged(first.as_ref())));
        let again = fixture.entry("key");
        assert!(fixture.decides(write("second").if_unchanged(again.as_ref())));
        assert_eq!(fixture.entry("key").unwrap().value(), b"second");
        let second = fixture.entry("key");
        fixture.tell(Delete { keys: Keys::One(b"key".as_slice().into()), previous: Previous::Unwanted });
        assert!(!fixture.decides(write("too late").if_unchanged(second.as_ref())), "there is none");
        fixture.tell(write("second"));
        assert!(!fixture.decides(write("too late").if_unchanged(second.as_ref())), "it is another one");
        // The operations that another key guards.
        let guarded = |before: Option<&Entry>| Transaction {
            comparisons: vec![Comparison::unchanged("key", before)],
            then: vec![Write::new("other", "value").into()],
            ..Transaction::default()
        };
        assert!(!fixture.decides(guarded(second.as_ref())) && fixture.entry("other").is_none());
        let third = fixture.entry("key");
        assert!(fixture.decides(guarded(third.as_ref())) && fixture.entry("other").is_some());
    }

    #[test]
    fn what_is_written_in_a_session_goes_with_it_and_what_is_not_stays() {
        let mut fixture = StateFixture::default();
        let session = SessionId::new(7).unwrap();
        fixture.tell(Command::Begin { session, time_to_live: Duration::from_secs(1) });
        fixture.tell(Write::new("goes", "value").in_session(session));
        fixture.tell(Operation::from(Write::new("stays", "value")));
        assert_eq!(fixture.entry("goes").unwrap().session(), Some(session));
        assert_eq!(fixture.tell(Command::End { session }), Answer::Ended { count: 1 });
        assert!(fixture.entry("goes").is_none() && fixture.entry("stays").is_some());
    }
}
