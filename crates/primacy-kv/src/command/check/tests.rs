use super::*;
use crate::command::{Bytes, Delete, Previous, Read, SessionId, Write};

fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

fn write(key: &str) -> Operation {
    let (value, session) = (Replace::With(bytes("1")), Replace::Keep);
    Operation::Write(Write { key: bytes(key), value, session, previous: Previous::Unwanted })
}

fn delete(keys: Keys) -> Operation {
    Operation::Delete(Delete { keys, previous: Previous::Unwanted })
}

fn read(key: &str) -> Operation {
    Operation::Read(Box::new(Read::of(Keys::One(bytes(key)))))
}

fn either(then: Vec<Operation>, otherwise: Vec<Operation>) -> Operation {
    Operation::Transaction(Transaction { comparisons: Vec::new(), then, otherwise })
}

fn all(then: Vec<Operation>) -> Operation {
    either(then, Vec::new())
}

fn one(key: &str) -> Operation {
    delete(Keys::One(bytes(key)))
}

fn between(from: &str, end: &str) -> Operation {
    delete(Keys::Between(bytes(from), bytes(end)))
}

fn checked(operation: Operation) -> Result<(), Refusal> {
    Command::Operate(operation).check(RequestLimits::default())
}

/// Refuses and admits the same as the server whose clients ask.
#[test]
fn a_key_is_written_once_or_deleted() {
    let doubled = [
        all(vec![write("a"), write("a")]),
        all(vec![write("a"), one("a")]),
        all(vec![one("a"), write("a")]),
        all(vec![write("b"), between("a", "c")]),
        all(vec![all(vec![write("a")]), write("a")]),
        all(vec![all(vec![write("a")]), all(vec![write("a")])]),
        all(vec![all(vec![write("a")]), either(vec![], vec![write("a")])]),
        all(vec![all(vec![one("a")]), write("a")]),
        all(vec![all(vec![write("a")]), one("a")]),
        all(vec![all(vec![one("a")]), all(vec![write("a")])]),
        either(vec![], vec![write("a"), write("a")]),
    ];
    for operation in doubled {
        assert_eq!(checked(operation.clone()), Err(Refusal::DuplicateKey), "{operation:?}");
    }
    let single = [
        all(vec![write("a"), write("b"), one("c"), one("c")]),
        all(vec![write("c"), between("a", "c")]),
        all(vec![write("b"), between("c", "a")]),
        either(vec![write("a")], vec![write("a"), one("b")]),
        all(vec![either(vec![write("a")], vec![write("a")])]),
        all(vec![all(vec![write("a")]), all(vec![one("a")])]),
        all(vec![write("b"), delete(Keys::From(bytes("a")))]),
        all(vec![read("a"), write("a"), read("a")]),
    ];
    for operation in single {
        assert_eq!(checked(operation.clone()), Ok(()), "{operation:?}");
    }
}

#[test]
fn a_key_is_not_empty() {
    let compared = Comparison {
        keys: Keys::One(bytes("")),
        relation: crate::command::Relation::Equal,
        compared: Compared::Writes(0),
    };
    let compares = Transaction { comparisons: vec![compared], ..Transaction::default() };
    let empty = [
        write(""),
        read(""),
        one(""),
        between("", "b"),
        all(vec![write("a"), write("")]),
        either(vec![], vec![read("")]),
        Operation::Transaction(compares),
    ];
    for operation in empty {
        assert_eq!(checked(operation.clone()), Err(Refusal::EmptyKey), "{operation:?}");
    }
    assert_eq!(checked(between("a", "")), Ok(()), "an end may be empty: then there are none");
}

#[test]
fn a_transaction_has_not_too_many_operations() {
    let many = |count: usize| (0..count).map(|key| write(&format!("{key}"))).collect::<Vec<Operation>>();
    assert_eq!(checked(all(many(OPERATIONS_MAX))), Ok(()));
    assert_eq!(checked(all(many(OPERATIONS_MAX + 1))), Err(Refusal::TooManyOperations));
    assert_eq!(checked(either(Vec::new(), many(OPERATIONS_MAX + 1))), Err(Refusal::TooManyOperations));
    // The length of the longest list is taken off for those within.
    assert_eq!(checked(all(vec![all(many(OPERATIONS_MAX - 1))])), Ok(()));
    assert_eq!(checked(all(vec![all(many(OPERATIONS_MAX))])), Err(Refusal::TooManyOperations));
    let nested = |depth| (0..depth).fold(write("a"), |within, _| all(vec![within]));
    assert_eq!(checked(nested(NESTING_MAX)), Ok(()));
    assert_eq!(checked(nested(NESTING_MAX + 1)), Err(Refusal::TooManyOperations));
}

/// Lists of lists within the limit of each are many: 26³ reads of all keys once ended every node, at each restart.
#[test]
fn operations_are_counted_over_all_that_stand_within_and_both_branches() {
    let reads = |count: usize| vec![read("a"); count];
    let (half, third) = (OPERATIONS_IN_ALL_MAX / 2, OPERATIONS_IN_ALL_MAX / 3);
    let lists = |count: usize| (0..count).map(|_| all(reads(9))).collect::<Vec<Operation>>();
    // Each of the lists is one, too, and so is the transaction around them.
    let most = (OPERATIONS_IN_ALL_MAX - 1) / 10;
    assert_eq!(checked(all(lists(most))), Ok(()));
    assert_eq!(checked(all(lists(most + 1))), Err(Refusal::TooManyOperations));
    assert_eq!(checked(either(lists(half / 10), lists(half / 10 + 1))), Err(Refusal::TooManyOperations));
    let cube = |count| all(vec![all(vec![all(reads(count)); count]); count]);
    assert_eq!(checked(cube(8)), Ok(()));
    assert_eq!(checked(cube(26)), Err(Refusal::TooManyOperations));
    // A transaction may have three full lists.
    let comparison = Comparison {
        keys: Keys::One(bytes("a")),
        relation: crate::command::Relation::Equal,
        compared: Compared::Writes(0),
    };
    let full = Transaction {
        comparisons: vec![comparison; OPERATIONS_MAX],
        then: reads(OPERATIONS_MAX),
        otherwise: reads(OPERATIONS_MAX),
    };
    assert!(third > OPERATIONS_MAX && checked(Operation::Transaction(full)) == Ok(()));
}

#[test]
fn a_request_is_not_too_large() {
    let limits = RequestLimits { bytes: 1000, ..RequestLimits::default() };
    let check = |operation: Operation| Command::Operate(operation).check(limits);
    let long = |length| write(&"k".repeat(length));
    assert_eq!(check(long(1000 - OPERATION_BYTES - 1)), Ok(()));
    assert_eq!(check(long(1000 - OPERATION_BYTES)), Err(Refusal::RequestTooLarge));
    assert_eq!(check(all(vec![long(900), read(&"k".repeat(100))])), Err(Refusal::RequestTooLarge));
}

#[test]
fn a_session_lives_not_too_long() {
    let begin = |time_to_live| Command::Begin { session: SessionId::new(1).unwrap(), time_to_live };
    let check = |live| begin(live).check(RequestLimits::default());
    assert_eq!(check(TIME_TO_LIVE_MAX), Ok(()));
    let longer = Duration::from_nanos(TIME_TO_LIVE_MAX.as_nanos() + 1);
    assert_eq!(check(longer), Err(Refusal::TimeToLiveTooLong));
}
