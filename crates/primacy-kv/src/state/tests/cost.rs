//! The cost of applying is bounded for every request, and all nodes refuse the same.

use super::*;
use crate::command::{
    ANSWER_BYTES_MAX, CHANGES_MAX, Compared, Comparison, Order, Relation, SortKey, VISITS_MAX, Wanted,
};
use crate::state::cost::{CHANGE_LOOKS, COMPARED_BYTES, LOOKS_MAX};

const ENTRIES: u64 = 10_000;

fn all(wanted: Wanted) -> Operation {
    Operation::Read(Box::new(Read { wanted, ..Read::of(Keys::all()) }))
}

fn transaction(then: Vec<Operation>) -> Operation {
    Operation::Transaction(Transaction { then, ..Transaction::default() })
}

fn many(count: usize, operation: &Operation) -> Vec<Operation> {
    vec![operation.clone(); count]
}

/// A state with so many entries whose values have this length.
fn filled(entries: u64, length: usize) -> StateFixture {
    let mut fixture = StateFixture::default();
    let value = "v".repeat(length);
    for number in 0..entries {
        fixture.operate(write(&format!("{number:06}"), &value)).unwrap();
    }
    fixture
}

/// Checks that it is refused, where answers are wanted and where they are not, and changes nothing.
fn refuses(fixture: &mut StateFixture, operation: &Operation, refusal: Refusal) {
    let before = (fixture.state.version(), fixture.state.size());
    for answers in [Answers::Wanted, Answers::Unwanted] {
        fixture.sequence += 1;
        let request = request(fixture.sequence, Command::Operate(operation.clone()));
        let Applied::First(outcome) = fixture.state.apply_for(&request, answers) else { panic!("it is new") };
        assert_eq!(outcome.result, Err(refusal), "{answers:?}");
    }
    assert_eq!((fixture.state.version(), fixture.state.size()), before);
}

/// The number of times that an operation of one node may look at so many keys.
fn looks_allowed(fixture: &StateFixture, keys: u64) -> usize {
    let all = fixture.state.size().entries + fixture.state.size().history_changes;
    usize::try_from((2 * all + VISITS_MAX) / (keys + 1)).unwrap()
}

/// The number of times that a replicated one may.
fn replicated_looks_allowed(keys: u64) -> usize {
    usize::try_from(LOOKS_MAX / keys).unwrap()
}

/// Looks by reads and looks by comparisons, each at all entries.
fn looks(count: usize) -> [Operation; 2] {
    let comparison =
        Comparison { keys: Keys::all(), relation: Relation::Less, compared: Compared::ChangedAt(i64::MAX) };
    let compares = Transaction { comparisons: vec![comparison; count], ..Transaction::default() };
    let compares = transaction(vec![write("w", "w"), Operation::Transaction(compares)]);
    [transaction([many(count, &all(Wanted::Count)), vec![write("w", "w")]].concat()), compares]
}

#[test]
fn a_request_looks_at_no_more_than_so_many_entries() {
    let mut fixture = filled(ENTRIES - 1, 1);
    fixture.operate(write("w", "w")).unwrap();
    let allowed = replicated_looks_allowed(ENTRIES);
    for (fit, exceed) in looks(allowed - 1).iter().zip(&looks(allowed + 1)) {
        assert!(fixture.operate(fit.clone()).is_ok());
        refuses(&mut fixture, exceed, Refusal::TooManyEntries);
    }
    // Also if none of the nested transactions has many.
    let reads = [vec![write("w", "w")], many(allowed + 1, &all(Wanted::Count))].concat();
    let halves = reads.chunks(allowed / 2 + 1).map(|some| transaction(some.to_vec())).collect();
    refuses(&mut fixture, &transaction(halves), Refusal::TooManyEntries);
    // An operation that only reads keeps no other node busy.
    let allowed = looks_allowed(&fixture, ENTRIES);
    let observe =
        |count| fixture.state.observe(&transaction(many(count, &all(Wanted::Count)))).unwrap().result;
    assert!(observe(allowed - 1).is_ok());
    assert_eq!(observe(allowed + 1), Err(Refusal::TooManyEntries));
}

#[test]
fn a_request_changes_no_more_than_so_many_entries() {
    let mut fixture = filled(CHANGES_MAX + 1, 1);
    let delete = |keys| Operation::Delete(Delete { keys, previous: Previous::Wanted });
    refuses(&mut fixture, &delete(Keys::all()), Refusal::TooManyEntries);
    let half = Keys::Between(bytes("0"), bytes("020000"));
    refuses(
        &mut fixture,
        &transaction(vec![delete(half), delete(Keys::From(bytes("010000")))]),
        Refusal::TooManyEntries,
    );
    let all_but_one = Keys::From(bytes("000001"));
    let Ok(Answer::Deleted { count, .. }) = fixture.operate(delete(all_but_one)) else {
        panic!("it is allowed")
    };
    assert_eq!(count, CHANGES_MAX);
}

#[test]
fn no_more_than_so_many_entries_go_with_a_session() {
    let mut fixture = StateFixture::default();
    let session = SessionId::new(7).unwrap();
    fixture.tell(Command::Begin { session, time_to_live: Duration::from_secs(1) }).result.unwrap();
    for number in 0..CHANGES_MAX {
        fixture.operate(attached(&format!("{number:06}"), session)).unwrap();
    }
    refuses(&mut fixture, &attached("another", session), Refusal::SessionFull);
    fixture.operate(attached("000007", session)).expect("it goes with it already");
    fixture.state.take_cost();
    fixture.tell(Command::End { session }).result.unwrap();
    assert!(fixture.state.take_cost() >= CHANGES_MAX * 8 * CHANGE_LOOKS);
    assert_eq!(fixture.state.size().entries, 0);
}

/// A node applies its log again when it starts, so a record must not cost much more than its length.
#[test]
fn what_applying_has_cost_is_told_once_whether_it_was_refused_or_not() {
    let mut fixture = filled(ENTRIES, 1);
    fixture.state.take_cost();
    let allowed = replicated_looks_allowed(ENTRIES);
    for count in [1, allowed / 2, 2 * allowed] {
        for operation in looks(count) {
            let _ = fixture.operate(operation);
            let at_least = ENTRIES * u64::try_from(count.min(allowed)).unwrap();
            assert!(fixture.state.take_cost() >= at_least, "{count}");
            assert_eq!(fixture.state.take_cost(), 0);
        }
    }
    // A transaction of many small changes costs much more than its length.
    let keys: Vec<String> = (0..100).map(|number| format!("{number:06}")).collect();
    let delete = |key: &String| {
        Operation::Delete(Delete { keys: Keys::One(bytes(key)), previous: Previous::Unwanted })
    };
    for changes in [keys.iter().map(|key| write(key, "w")).collect(), keys.iter().map(delete).collect()] {
        fixture.operate(transaction(changes)).unwrap();
        assert!(fixture.state.take_cost() >= 100 * 8 * CHANGE_LOOKS);
    }
}

/// Deleted keys that the history remembers are stepped over, and so count, on a node that has them from a snapshot as well.
#[test]
fn deleted_keys_are_looked_at_as_long_as_the_history_remembers_them() {
    let mut fixture = filled(ENTRIES, 1);
    let delete = Operation::Delete(Delete { keys: Keys::all(), previous: Previous::Unwanted });
    fixture.operate(delete).unwrap();
    let allowed = replicated_looks_allowed(ENTRIES);
    let count = all(Wanted::Count);
    assert!(fixture.operate(transaction(many(allowed - 1, &count))).is_ok());
    let too_many = transaction([vec![write("w", "w")], many(allowed + 1, &count)].concat());
    refuses(&mut fixture, &too_many, Refusal::TooManyEntries);
    let allowed = looks_allowed(&fixture, ENTRIES);
    let outcome = fixture.state.observe(&transaction(many(allowed + 1, &count))).unwrap();
    assert_eq!(outcome.result, Err(Refusal::TooManyEntries));
    let comparison =
        Comparison { keys: Keys::all(), relation: Relation::Less, compared: Compared::ChangedAt(1) };
    let compares = Transaction { comparisons: vec![comparison; allowed + 1], ..Transaction::default() };
    refuses(&mut fixture, &Operation::Transaction(compares), Refusal::TooManyEntries);
    // A compacted deletion is forgotten, on each node in its own time, and counts on none.
    fixture.sequence += 1;
    let compact = request(fixture.sequence, Command::Compact(fixture.state.version()));
    assert!(matches!(fixture.state.apply(&compact), Applied::First(Outcome { result: Ok(_), .. })));
    let of_snapshot = State::restore(&fixture.state.snapshot()).unwrap();
    let allowed = looks_allowed(&fixture, ENTRIES);
    for count in [allowed / 2, allowed - 1, allowed + 1, 2 * allowed] {
        let looks = transaction(many(count, &all(Wanted::Count)));
        assert_eq!(fixture.state.observe(&looks), of_snapshot.observe(&looks), "{count}");
    }
}

#[test]
fn an_answer_has_no_more_than_so_many_bytes() {
    let (entries, length) = (64, 64 << 10);
    let mut fixture = filled(entries, length);
    let allowed = usize::try_from(ANSWER_BYTES_MAX / (entries * (length as u64 + 200))).unwrap();
    let read = all(Wanted::Entries);
    assert!(fixture.operate(transaction(many(allowed, &read))).is_ok());
    let reads = [vec![write("w", "w")], many(allowed + 2, &read)].concat();
    refuses(&mut fixture, &transaction(reads), Refusal::AnswerTooLarge);
    let outcome = fixture.state.observe(&transaction(many(allowed + 2, &read))).unwrap();
    assert_eq!(outcome.result, Err(Refusal::AnswerTooLarge));
    // A limit makes it shorter, in whatever order.
    let few = Read {
        limit: NonZeroU64::new(1),
        order: Order { key: SortKey::ChangedAt, ..Order::default() },
        ..Read::of(Keys::all())
    };
    let few = Operation::Read(Box::new(few));
    assert!(fixture.operate(transaction(many(20 * allowed, &few))).is_ok());
    // The writes of the request itself count as often as they are read.
    let long = "v".repeat(1 << 20);
    let one = Operation::Read(Box::new(Read::of(Keys::One(bytes("w")))));
    let own = |count| [vec![write("w", &long)], many(count, &one)].concat();
    assert!(fixture.operate(transaction(own(60))).is_ok());
    refuses(&mut fixture, &transaction(own(65)), Refusal::AnswerTooLarge);
    // So do entries that were there.
    let delete = Operation::Delete(Delete { keys: Keys::all(), previous: Previous::Wanted });
    let deletes = [many(allowed + 2, &read), vec![delete]].concat();
    refuses(&mut fixture, &transaction(deletes), Refusal::AnswerTooLarge);
}

#[test]
fn the_answer_of_a_single_read_has_no_more_than_so_many_bytes() {
    let (length, allowed) = (1 << 20, usize::try_from(ANSWER_BYTES_MAX >> 20).unwrap());
    let mut fixture = filled(u64::try_from(allowed).unwrap() - 1, length);
    let read = all(Wanted::Entries);
    assert!(fixture.state.observe(&read).unwrap().result.is_ok());
    fixture.operate(write("one more", &"v".repeat(length))).unwrap();
    assert_eq!(fixture.state.observe(&read).unwrap().result, Err(Refusal::AnswerTooLarge));
    // Keys, a number, and some entries are still returned.
    let few = Read { limit: NonZeroU64::new(10), ..Read::of(Keys::all()) };
    for read in [all(Wanted::Keys), all(Wanted::Count), Operation::Read(Box::new(few))] {
        assert!(fixture.state.observe(&read).unwrap().result.is_ok(), "{read:?}");
    }
}

/// 400 transactions of 1,500 bytes once copied 140 MB each, and again when a node applied its log.
#[test]
fn a_value_that_is_kept_is_not_copied() {
    let mut fixture = filled(2, 1 << 20);
    let keep = |key| {
        let (value, session) = (Replace::Keep, Replace::With(None));
        Operation::Write(Write { key: bytes(key), value, session, previous: Previous::Unwanted })
    };
    let places = |fixture: &StateFixture| -> Vec<*const u8> {
        let now = fixture.state.read(&Read::of(Keys::all())).unwrap().entries;
        let all = Keys::all();
        let changes = fixture.state.changes(&all, fixture.state.version(), Previous::Wanted).unwrap();
        let entries = changes.filter_map(|change| change.previous).chain(now);
        entries.filter(|entry| entry.value().len() > 100).map(|entry| entry.value().as_ptr()).collect()
    };
    let before = places(&fixture);
    for _ in 0..3 {
        let deleted = vec![delete("000001"), keep("000001")];
        fixture.operate(transaction([vec![keep("000000"), write("w", "w")], deleted].concat())).unwrap();
    }
    let after = places(&fixture);
    assert_eq!(after.iter().filter(|place| before.contains(place)).count(), after.len());
    assert_eq!(after.len(), 4, "those before the last version as well");
    // It counts as if it were another one.
    assert!(fixture.state.size().history_bytes > 1 << 21);
    assert_eq!(State::restore(&fixture.state.snapshot()).unwrap().size(), fixture.state.size());
}

#[test]
fn values_that_are_compared_or_sorted_count_by_their_length() {
    let (entries, length) = (16, 1 << 20);
    let mut fixture = filled(entries, length);
    let order = Order { key: SortKey::Value, ..Order::default() };
    let sorted = |wanted| Operation::Read(Box::new(Read { wanted, order, ..Read::of(Keys::all()) }));
    let value = bytes(&"v".repeat(length));
    let comparison =
        Comparison { keys: Keys::all(), relation: Relation::Equal, compared: Compared::Value(value) };
    let compares =
        |count| Transaction { comparisons: vec![comparison.clone(); count], ..Transaction::default() };
    let looks = entries * (length as u64 / COMPARED_BYTES);
    let compared = usize::try_from(LOOKS_MAX / looks).unwrap();
    // 16 values are sorted as if each were compared five times.
    let is_sorted = usize::try_from(LOOKS_MAX / (5 * looks)).unwrap();
    let writes_and = |operations| transaction([vec![write("w", "w")], operations].concat());
    fixture.state.take_cost();
    assert!(fixture.operate(writes_and(many(is_sorted, &sorted(Wanted::Keys)))).is_ok());
    assert!(fixture.state.take_cost() >= 8 * looks * 5);
    refuses(&mut fixture, &writes_and(many(is_sorted + 1, &sorted(Wanted::Keys))), Refusal::TooManyEntries);
    assert!(fixture.operate(writes_and(many(100, &sorted(Wanted::Count)))).is_ok(), "none is compared");
    let all_hold = |count| Operation::Transaction(compares(count));
    assert!(matches!(fixture.operate(all_hold(1)), Ok(Answer::Decided { .. })));
    let shorter = all_hold(compared + 1);
    assert!(fixture.operate(shorter).is_ok(), "the first one that does not hold is the last one");
    fixture.operate(delete("w")).unwrap();
    refuses(&mut fixture, &all_hold(compared + 1), Refusal::TooManyEntries);
    // An operation that only reads may sort all that there is, but not as often as it likes.
    let observe =
        |count| fixture.state.observe(&transaction(many(count, &sorted(Wanted::Keys)))).unwrap().result;
    let allowed = usize::try_from((VISITS_MAX + 200) / (5 * looks)).unwrap();
    assert!(observe(allowed - 1).is_ok());
    assert_eq!(observe(allowed + 1), Err(Refusal::TooManyEntries));
}

/// The effect on a state does not depend on whether a client waits.
#[test]
fn where_nobody_waits_the_same_is_done_and_no_answer_is_made() {
    for seed in 0..60 {
        let mut drawn = Arbitrary { rng: Rng::new(seed), version: 1 };
        let (mut fixture, mut silent) = (State::new(), State::new());
        for sequence in 1..100 {
            let request = request(sequence, drawn.command());
            let Applied::First(answered) = fixture.apply_for(&request, Answers::Wanted) else { continue };
            let Applied::First(done) = silent.apply_for(&request, Answers::Unwanted) else {
                panic!("it is as new there")
            };
            assert_eq!(
                (done.version, done.result.as_ref().err()),
                (answered.version, answered.result.as_ref().err())
            );
            assert!(
                !matches!(&done.result, Ok(Answer::Found(_) | Answer::Decided { .. })),
                "an answer for nobody: {done:?}"
            );
            drawn.version = fixture.version().0;
        }
        assert_eq!(fixture.digest(), silent.digest(), "seed {seed}");
    }
}
