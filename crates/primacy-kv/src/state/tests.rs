//! The state against its twin, which is simple and right; and the parts that the twin lacks: requests, limits,
//! snapshots.

mod cost;
mod twin;

use core::num::NonZeroU64;
use std::slice;

use twin::Twin;

use primacy_core::id::{Identity, Incarnation, NodeId};
use primacy_core::rng::Rng;

use super::*;
use crate::arbitrary::Arbitrary;
use crate::command::{Bytes, Delete, Happened, Replace, Transaction, Write};
use crate::encoding::push_bytes;
use crate::entry::{Entry, Stamp};
use crate::state::history::LINGERING_CHANGES;
use crate::state::requests::{CLIENTS_MAX, OPEN_MAX};

fn identity(name: &str, count: u64) -> Identity {
    Identity { node: NodeId::new(name).unwrap(), incarnation: Incarnation { count, nonce: 7 } }
}

fn request(sequence: u64, command: Command) -> Request {
    Request { client: identity("n1", 1), sequence, done_below: sequence, command }
}

fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

fn write(key: &str, value: &str) -> Operation {
    Operation::Write(Write {
        key: bytes(key),
        value: Replace::With(bytes(value)),
        session: Replace::With(None),
        previous: Previous::Wanted,
    })
}

fn attached(key: &str, session: SessionId) -> Operation {
    Operation::Write(Write {
        key: bytes(key),
        value: Replace::With(bytes("x")),
        session: Replace::With(Some(session)),
        previous: Previous::Unwanted,
    })
}

fn delete(key: &str) -> Operation {
    Operation::Delete(Delete { keys: Keys::One(bytes(key)), previous: Previous::Wanted })
}

/// A state to which commands are given one after the other.
#[derive(Default)]
struct StateFixture {
    state: State,
    sequence: u64,
}

impl StateFixture {
    fn tell(&mut self, command: Command) -> Outcome {
        self.sequence += 1;
        match self.state.apply(&request(self.sequence, command)) {
            Applied::First(outcome) => outcome,
            Applied::Duplicate => panic!("each request has a number of its own"),
        }
    }

    fn operate(&mut self, operation: Operation) -> Result<Answer, Refusal> {
        self.tell(Command::Operate(operation)).result
    }

    fn value(&self, key: &str, at: u64) -> Result<Option<String>, Refusal> {
        let read = Read { at: Some(Version(at)), ..Read::of(Keys::One(bytes(key))) };
        let value = |entry: &Entry| String::from_utf8(entry.value().to_vec()).unwrap();
        Ok(self.state.read(&read)?.entries.first().map(value))
    }
}

/// Checks that both answer every question in the same way.
fn compare(state: &State, twin: &Twin, drawn: &mut Arbitrary) {
    assert_eq!(state.version().0, twin.version());
    for version in 0..=twin.version() + 1 {
        for keys in [Keys::all(), drawn.keys()] {
            let read = Read { at: Some(Version(version)), ..Read::of(keys.clone()) };
            assert_eq!(state.read(&read), twin.read(&read), "{read:?}");
            for previous in [Previous::Unwanted, Previous::Wanted] {
                let fixture = state.changes(&keys, Version(version), previous).map(Iterator::collect);
                assert_eq!(fixture, twin.changes(&keys, Version(version), previous), "{keys:?} {version}");
                // The changes of the next few versions are the beginning of it.
                let few = Version(version)..Version(version + 3);
                let begins = fixture.map(|mut all: Vec<Change>| {
                    all.retain(|change| few.contains(&change.version));
                    all
                });
                let fixture = state.changes_in(&keys, few.clone(), previous).map(Iterator::collect);
                assert_eq!(fixture, begins, "{keys:?} {few:?}");
            }
        }
        let read = drawn.read();
        assert_eq!(state.read(&read), twin.read(&read), "{read:?}");
    }
    let sessions = state.sessions().map(|(id, session)| (id, session.time_to_live().as_nanos()));
    assert_eq!(sessions.collect::<Vec<_>>(), twin.sessions());
    for (id, session) in state.sessions() {
        let keys = session.keys().map(|key| key.to_vec()).collect::<Vec<_>>();
        assert_eq!(keys, twin.keys_of(id), "{id}");
    }
    let all = state.read(&Read::of(Keys::all())).unwrap();
    assert_eq!(all.count, state.size().entries);
}

#[test]
fn the_state_answers_as_its_twin() {
    let mut met = [0; 4];
    for seed in 0..200 {
        let mut drawn = Arbitrary { rng: Rng::new(seed), version: 1 };
        let (mut fixture, mut twin) = (StateFixture::default(), Twin::new());
        for step in 0..120 {
            let command = drawn.command();
            let expected = twin.apply(&command);
            let outcome = fixture.tell(command.clone());
            assert_eq!(outcome, expected, "seed {seed}, step {step}: {command:?}");
            match outcome.result {
                Ok(Answer::Decided { .. }) => met[0] += 1,
                Ok(Answer::Ended { count: 1.. }) => met[1] += 1,
                Err(Refusal::Compacted { .. }) => met[2] += 1,
                Err(Refusal::SessionNotFound | Refusal::KeyNotFound) => met[3] += 1,
                _ => {}
            }
            drawn.version = twin.version();
            if step % 20 == 0 {
                compare(&fixture.state, &twin, &mut drawn);
            }
            if drawn.rng.up_to(15) == 0 {
                fixture.state = restored(&fixture.state);
            }
        }
        compare(&fixture.state, &twin, &mut drawn);
    }
    assert!(met.iter().all(|&times| times > 20), "the worlds are dull: {met:?}");
}

#[test]
fn operations_that_only_read_are_answered_as_if_they_were_applied() {
    let mut seen = 0;
    for seed in 0..40 {
        let mut drawn = Arbitrary { rng: Rng::new(seed), version: 1 };
        let mut fixture = StateFixture::default();
        for _ in 0..200 {
            let operation = drawn.operation(2);
            let observed = fixture.state.observe(&operation);
            assert_eq!(observed.is_some(), operation.only_reads());
            let applied = fixture.tell(Command::Operate(operation));
            if let Some(observed) = observed {
                assert_eq!(observed, applied);
                seen += 1;
            }
            drawn.version = fixture.state.version().0;
        }
    }
    assert!(seen > 1000, "{seen}");
}

fn restored(state: &State) -> State {
    let snapshot = state.snapshot();
    let restored = State::restore(&snapshot).unwrap();
    assert_eq!(restored.snapshot(), snapshot);
    assert_eq!(restored.digest(), state.digest());
    assert_eq!((restored.size(), restored.compacted()), (state.size(), state.compacted()));
    restored
}

/// Nodes that restart at different times have the same state, and compact the same by themselves.
#[test]
fn the_same_requests_make_the_same_state_wherever_it_is_restored() {
    let limits = Limits { quota: 750, history_bytes: 2000, history_changes: 12 };
    let (mut compacted, mut full) = (0, 0);
    for seed in 0..40 {
        let mut drawn = Arbitrary { rng: Rng::new(seed), version: 1 };
        let (mut one, mut other) = (StateFixture::default(), StateFixture::default());
        one.tell(Command::Limit(limits));
        other.tell(Command::Limit(limits));
        for _ in 0..300 {
            let command = drawn.command();
            let outcome = one.tell(command.clone());
            assert_eq!(other.tell(command), outcome);
            full += u64::from(outcome.result == Err(Refusal::NoSpace));
            if drawn.rng.up_to(20) == 0 {
                other.state = restored(&one.state);
            }
            drawn.version = outcome.version.0;
        }
        assert_eq!(one.state.snapshot(), other.state.snapshot());
        compacted += one.state.compacted().map_or(0, |version| version.0);
    }
    assert!(compacted > 1000 && full > 10, "{compacted} {full}");
}

#[test]
fn a_request_is_applied_once() {
    let mut state = State::new();
    let command = || Command::Operate(write("a", "1"));
    let ask = |sequence, done_below| Request {
        client: identity("n1", 1),
        sequence,
        done_below,
        command: command(),
    };
    assert!(matches!(state.apply(&ask(5, 5)), Applied::First(_)));
    assert!(matches!(state.apply(&ask(7, 5)), Applied::First(_)));
    assert!(matches!(state.apply(&ask(6, 5)), Applied::First(_)), "not in order, but not applied before");
    for (sequence, done_below) in [(5, 5), (6, 0), (7, 7), (7, 8), (6, 8), (7, 0), (3, 4)] {
        assert_eq!(state.apply(&ask(sequence, done_below)), Applied::Duplicate, "{sequence} {done_below}");
        state = restored(&state);
    }
    assert_eq!(state.version(), Version(4));
    assert!(matches!(state.apply(&ask(8, 8)), Applied::First(_)));
    let other = Request { client: identity("n2", 1), ..ask(8, 8) };
    assert!(matches!(state.apply(&other), Applied::First(_)), "another client has numbers of its own");
}

#[test]
fn a_later_life_ends_what_is_known_of_the_former_one() {
    let mut state = State::new();
    let ask = |client, sequence| Request {
        client,
        sequence,
        done_below: 1,
        command: Command::Operate(write("a", "1")),
    };
    let refused = |applied| match applied {
        Applied::First(outcome) => outcome.result.err(),
        Applied::Duplicate => panic!("nothing is a duplicate here"),
    };
    assert_eq!(refused(state.apply(&ask(identity("n1", 4), 1))), None);
    assert_eq!(refused(state.apply(&ask(identity("n1", 5), 1))), None);
    let former = ask(identity("n1", 4), 2);
    assert_eq!(refused(state.apply(&former)), Some(Refusal::FormerLife));
    let twin = Identity { incarnation: Incarnation { count: 5, nonce: 8 }, ..identity("n1", 5) };
    assert_eq!(refused(state.apply(&ask(twin, 1))), None, "one of the two has lost its disk");
    assert_eq!(state.apply(&ask(identity("n1", 5), 1)), Applied::Duplicate, "both are remembered");
    let forget = Command::Forget { node: NodeId::new("n1").unwrap() };
    state.apply(&Request { command: forget, ..ask(identity("n2", 1), 1) });
    assert_eq!(refused(state.apply(&former)), None);
}

#[test]
fn what_is_remembered_of_requests_is_bounded() {
    let mut state = State::new();
    let nothing = || Command::Compact(Version(9));
    let mut last = |sequence, client| {
        let request = Request { client, sequence, done_below: 0, command: nothing() };
        match state.apply(&request) {
            Applied::First(outcome) => outcome.result.unwrap_err(),
            Applied::Duplicate => panic!("nothing is a duplicate here"),
        }
    };
    let future = Refusal::Future { version: Version(1) };
    for sequence in 0..OPEN_MAX as u64 {
        assert_eq!(last(sequence, identity("n1", 1)), future);
    }
    assert_eq!(last(OPEN_MAX as u64, identity("n1", 1)), Refusal::TooManyRequests);
    for client in 1..CLIENTS_MAX {
        assert_eq!(last(0, identity(&format!("c{client}"), 1)), future);
    }
    assert_eq!(last(0, identity("one-more", 1)), Refusal::TooManyClients);
    assert_eq!(last(0, identity("c1", 2)), future, "a later life takes the room of the former one");
}

#[test]
fn one_command_makes_one_version_whatever_it_changes() {
    let mut fixture = StateFixture::default();
    let all = Operation::Transaction(Transaction {
        then: vec![write("a", "1"), write("b", "1"), Operation::Read(Box::new(Read::of(Keys::all())))],
        ..Transaction::default()
    });
    let Ok(Answer::Decided { held: true, answers }) = fixture.operate(all) else {
        panic!("nothing is compared")
    };
    let Answer::Found(found) = &answers[2] else { panic!("the third one reads") };
    assert_eq!((found.version, found.count), (Version(2), 2), "it reads what was just written");
    assert_eq!(fixture.tell(Command::Operate(delete("c"))).version, Version(2), "nothing has changed");
    assert_eq!(fixture.tell(Command::Operate(delete("a"))).version, Version(3));
    assert_eq!(fixture.tell(Command::Operate(write("a", "2"))).version, Version(4));
    let found = fixture.state.read(&Read::of(Keys::One(bytes("a")))).unwrap();
    let entry = &found.entries[0];
    assert_eq!((entry.made_at(), entry.writes()), (Version(4), 1), "it was made anew");
}

/// Changes of one key in one version are reported in order; the entry before them is the one before the version.
#[test]
fn a_key_may_change_more_than_once_in_a_version() {
    let mut fixture = StateFixture::default();
    fixture.operate(write("a", "1")).unwrap();
    let both =
        Transaction { then: vec![delete("a"), write("a", "2"), delete("a")], ..Transaction::default() };
    fixture.operate(Operation::Transaction(both)).unwrap();
    let changes: Vec<Change> =
        fixture.state.changes(&Keys::all(), Version(3), Previous::Wanted).unwrap().collect();
    let deleted = |change: &Change| matches!(change.happened, Happened::Deleted(_));
    assert_eq!(changes.iter().map(deleted).collect::<Vec<_>>(), [true, false, true]);
    let previous = |change: &Change| change.previous.as_ref().map(|entry| entry.value().to_vec());
    let one = Some(b"1".to_vec());
    assert_eq!(
        changes.iter().map(previous).collect::<Vec<_>>(),
        [one.clone(), None, one],
        "the second is made anew"
    );
    assert_eq!((fixture.value("a", 2), fixture.value("a", 3)), (Ok(Some("1".to_owned())), Ok(None)));
}

#[test]
fn a_session_takes_its_entries_with_it_and_no_others() {
    let mut fixture = StateFixture::default();
    let [one, other] = [1, -2].map(|number| SessionId::new(number).unwrap());
    for session in [one, other] {
        let begin = Command::Begin { session, time_to_live: Duration::from_secs(5) };
        assert_eq!(fixture.tell(begin.clone()).result, Ok(Answer::Done));
        assert_eq!(fixture.tell(begin).result, Err(Refusal::SessionExists));
    }
    for (key, session) in [("a", one), ("b", one), ("c", one), ("d", one), ("a", other)] {
        fixture.operate(attached(key, session)).unwrap();
    }
    fixture.operate(write("b", "it stays")).unwrap();
    fixture.operate(delete("c")).unwrap();
    let before = fixture.state.version();
    let ended = fixture.tell(Command::End { session: one });
    assert_eq!((ended.version, ended.result), (before.next(), Ok(Answer::Ended { count: 1 })));
    let left = fixture.state.read(&Read::of(Keys::all())).unwrap().entries;
    assert_eq!(left.iter().map(Entry::key).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!(fixture.tell(Command::End { session: one }).result, Err(Refusal::SessionNotFound));
    assert_eq!(fixture.operate(attached("e", one)), Err(Refusal::SessionNotFound));
}

#[test]
fn what_grows_is_refused_when_there_is_no_room_and_nothing_else_is() {
    let mut fixture = StateFixture::default();
    let session = SessionId::new(1).unwrap();
    fixture.operate(write("a", "1234")).unwrap();
    fixture.operate(write("b", "1")).unwrap();
    let quota = fixture.state.size().bytes;
    fixture.tell(Command::Limit(Limits { quota, ..Limits::default() }));
    let begin = Command::Begin { session, time_to_live: Duration::from_secs(5) };
    let mut twice = Transaction { then: vec![write("b", "12"), write("a", "123")], ..Transaction::default() };
    assert_eq!(fixture.operate(write("b", "12")), Err(Refusal::NoSpace));
    assert_eq!(fixture.operate(write("c", "")), Err(Refusal::NoSpace));
    assert_eq!(fixture.tell(begin.clone()).result, Err(Refusal::NoSpace));
    assert!(
        fixture.operate(Operation::Transaction(twice.clone())).is_ok(),
        "the one grows as the other shrinks"
    );
    twice.then[1] = write("a", "123");
    assert!(fixture.operate(Operation::Transaction(twice)).is_ok(), "it does not grow");
    fixture.tell(Command::Limit(Limits { quota: quota + 1, ..Limits::default() }));
    assert_eq!(fixture.operate(write("b", "1234")), Err(Refusal::NoSpace), "one byte too many");
    assert!(fixture.operate(write("b", "123")).is_ok(), "the last byte can be used");
    fixture.tell(Command::Limit(Limits { quota: 1, ..Limits::default() }));
    assert!(fixture.operate(write("a", "12")).is_ok(), "what shrinks is let through however full it is");
    assert!(fixture.operate(delete("a")).is_ok());
    assert!(fixture.tell(Command::Compact(fixture.state.version())).result.is_ok());
    fixture.tell(Command::Limit(Limits::default()));
    assert!(fixture.operate(write("c", "1")).is_ok());
    assert!(fixture.tell(begin).result.is_ok());
}

#[test]
fn history_ends_where_it_is_compacted() {
    let mut fixture = StateFixture::default();
    for value in ["1", "2", "3", "4"] {
        fixture.operate(write("a", value)).unwrap();
    }
    assert_eq!(
        fixture.tell(Command::Compact(Version(0))).result,
        Ok(Answer::Done),
        "once, it changes nothing"
    );
    let compacted = |version| Err(Refusal::Compacted { compacted: Version(version) });
    assert_eq!(fixture.tell(Command::Compact(Version(0))).result, compacted(0));
    assert_eq!(
        fixture.tell(Command::Compact(Version(6))).result,
        Err(Refusal::Future { version: Version(5) })
    );
    assert_eq!(fixture.tell(Command::Compact(Version(4))).result, Ok(Answer::Done));
    assert_eq!(fixture.tell(Command::Compact(Version(4))).result, compacted(4));
    assert_eq!(fixture.value("a", 3), Err(compacted(4).unwrap_err()));
    assert_eq!(fixture.value("a", 4), Ok(Some("3".to_owned())));
    let all = Keys::all();
    let changes = |from| fixture.state.changes(&all, Version(from), Previous::Wanted);
    assert!(changes(3).is_err());
    let had = changes(4).unwrap().map(|change| change.previous.is_some());
    assert_eq!(
        had.collect::<Vec<bool>>(),
        [false, true],
        "what was before version 4 cannot be read any more"
    );
    assert!(changes(9).unwrap().next().is_none(), "that is yet to come");
}

#[test]
fn history_is_bounded_and_dropped_a_little_at_a_time() {
    let mut fixture = StateFixture::default();
    let changes_max = LINGERING_CHANGES + 1000;
    fixture.tell(Command::Limit(Limits { history_changes: changes_max, ..Limits::default() }));
    for _ in 0..2 * changes_max {
        fixture.operate(write("a", "1")).unwrap();
    }
    let size = fixture.state.size();
    assert_eq!((size.history_changes, size.entries), (changes_max, 1));
    assert_eq!(fixture.state.compacted(), Some(Version(changes_max + 2)));
    fixture.operate(delete("a")).unwrap();
    fixture.tell(Command::Compact(fixture.state.version()));
    assert_eq!(fixture.state.size().history_changes, 1);
    let waiting = fixture.state.map.history().waiting();
    assert!(waiting > LINGERING_CHANGES + 900, "they are not dropped all at once");
    while fixture.state.map.history().waiting() > LINGERING_CHANGES {
        fixture.tell(Command::Compact(Version(0)));
    }
    for _ in 0..=LINGERING_CHANGES {
        fixture.operate(write("b", "1")).unwrap();
    }
    fixture.tell(Command::Compact(fixture.state.version()));
    while fixture.state.map.history().waiting() > LINGERING_CHANGES {
        fixture.tell(Command::Compact(Version(0)));
    }
    assert_eq!(fixture.state.map.slots(), 1, "nothing is left of a deleted key without history");
    fixture.tell(Command::Limit(Limits { history_bytes: 0, ..Limits::default() }));
    fixture.operate(write("b", "2")).unwrap();
    assert_eq!(fixture.state.size().history_changes, 1, "the changes of the last version stay");
}

/// A state with a bit of everything, and its bytes, forever.
#[test]
fn a_snapshot_is_these_bytes_for_ever() {
    use crate::partitions::{Command as About, GroupName};
    let mut fixture = StateFixture::default();
    let (session, of_node) = (SessionId::new(5).unwrap(), SessionId::new(-6).unwrap());
    let time_to_live = Duration::from_nanos(300);
    let limits = Limits { quota: 10_000, history_bytes: 1_000, history_changes: 100 };
    let group = |name| GroupName::new(name).unwrap();
    for command in [
        Command::Limit(limits),
        Command::Begin { session, time_to_live },
        Command::Operate(attached("a", session)),
        Command::Operate(write("b", "1")),
        Command::Operate(write("b", "2")),
        Command::Operate(delete("a")),
        Command::Operate(attached("c", session)),
        Command::Compact(Version(4)),
        Command::Partitions(About::Create { group: group("g"), count: 3 }),
        Command::Partitions(About::Join { session: of_node, time_to_live }),
    ] {
        let outcome = fixture.tell(command);
        assert!(outcome.result.is_ok(), "{outcome:?}");
    }
    let hex: String = fixture.state.snapshot().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, SNAPSHOT);
    restored(&fixture.state);
}

const SNAPSHOT: &str = concat!(
    "01904ee807640601040207016200030102320701630a06000178030402070162000300013101020701610a02000178",
    "01010163010aac020201026e31010bac0201000000000000000701016700030301000001026e310100000000000000070a0100",
);

/// A signature of one node is accepted by all others, after a restart as well.
#[test]
fn the_first_secret_that_is_shared_stays_also_in_a_snapshot() {
    let mut fixture = StateFixture::default();
    fixture.operate(write("k", "v")).unwrap();
    let before = fixture.state.snapshot();
    for byte in [7, 8] {
        fixture.tell(Command::Share(Secret([byte; 32])));
        assert_eq!(fixture.state.secret(), Some(Secret([7; 32])));
    }
    let restored = State::restore(&fixture.state.snapshot()).unwrap();
    assert_eq!((restored.secret(), restored.digest()), (fixture.state.secret(), fixture.state.digest()));
    assert_eq!(State::restore(&before).unwrap().secret(), None);
}

#[test]
fn a_snapshot_that_is_none_is_refused() {
    let mut drawn = Arbitrary { rng: Rng::new(1), version: 1 };
    let mut fixture = StateFixture::default();
    for _ in 0..150 {
        drawn.version = fixture.tell(drawn.command()).version.0;
    }
    let snapshot = fixture.state.snapshot();
    for length in 0..snapshot.len() {
        assert!(State::restore(&snapshot[..length]).is_err(), "{length}");
    }
    let longer = [&snapshot[..], &[0]].concat();
    assert_eq!(State::restore(&longer).unwrap_err(), DecodeError::Long);
    let mut rng = Rng::new(2);
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut bytes = snapshot.clone();
        for _ in 0..=rng.up_to(2) {
            let place = usize::try_from(rng.up_to(bytes.len() as u64 - 1)).unwrap();
            bytes[place] = u8::try_from(rng.up_to(255)).unwrap();
        }
        let Ok(mut state) = State::restore(&bytes) else { continue };
        taken += 1;
        assert_eq!(state.snapshot(), bytes, "what is taken is what there is");
        drawn.version = state.version().0;
        for sequence in 0..20 {
            let client = identity("another", u64::MAX);
            let request = Request { client, sequence, done_below: 0, command: drawn.command() };
            state.apply(&request);
            let _ = state.changes(&drawn.keys(), Version(0), Previous::Wanted).map(Iterator::count);
        }
    }
    assert!(taken > 100, "most bytes are those of values: {taken}");
}

/// A snapshot of a map at version 4 with these entries and these changes: the distance of each to the one before, and
/// the entry before it or else the key that it made.
fn crafted(entries: &[Entry], changes: &[(u64, Result<&Entry, &str>)]) -> Result<(), DecodeError> {
    let mut to = Vec::new();
    for number in [FORMAT, u64::MAX, u64::MAX, u64::MAX, 4, 0, entries.len() as u64] {
        push_number(&mut to, number);
    }
    entries.iter().for_each(|entry| push_bytes(&mut to, &entry.to_bytes()));
    push_number(&mut to, changes.len() as u64);
    for (later, before) in changes {
        push_number(&mut to, *later);
        push_number(&mut to, if before.is_ok() { 2 } else { 1 });
        push_bytes(&mut to, &before.map_or_else(|key| key.as_bytes().into(), Entry::to_bytes));
    }
    to.extend([0; 5]); // No sessions, no partitions, and no requests.
    State::restore(&to).map(|state| assert_eq!(state.snapshot(), to))
}

#[test]
fn a_snapshot_says_nothing_that_cannot_be() {
    let entry = |key: &str, version, session| {
        let (changed_at, writes) = (Version(version), NonZeroU64::MIN);
        Entry::new(key.as_bytes(), b"", Stamp { session, made_at: Version(2), changed_at, writes })
    };
    let [second, third, fifth] = [2, 3, 5].map(|version| entry("a", version, None));
    let wrong = |what| Err(DecodeError::Value(what));
    assert_eq!(crafted(slice::from_ref(&third), &[(2, Err("a")), (1, Ok(&second))]), Ok(()));
    assert_eq!(crafted(&[], &[(2, Err("a")), (2, Ok(&second))]), Ok(()), "it was deleted");
    assert_eq!(crafted(&[entry("b", 2, None), third.clone()], &[]), wrong("the order of the entries"));
    assert_eq!(crafted(slice::from_ref(&fifth), &[]), wrong("the version of an entry"));
    assert_eq!(crafted(&[], &[(5, Ok(&third))]), wrong("the version of a change"));
    assert_eq!(crafted(&[], &[(1, Ok(&third))]), wrong("the version of a change"), "nothing makes version 1");
    assert_eq!(crafted(&[], &[(2, Err("a"))]), wrong("a change"), "neither before nor after it");
    assert_eq!(crafted(slice::from_ref(&third), &[(2, Err("a"))]), wrong("a change"), "it was written later");
    assert_eq!(crafted(&[], &[(2, Ok(&third))]), wrong("a change"), "what was before was written later");
    let attached = entry("a", 2, SessionId::new(1));
    assert_eq!(crafted(&[attached], &[]), wrong("the session of an entry"));
}

/// A watcher that follows the map must not miss changes that were written and compacted between two looks.
#[test]
fn what_is_compacted_is_news_still_for_a_while() {
    let mut fixture = StateFixture::default();
    for value in ["1", "2", "3"] {
        fixture.operate(write("a", value)).unwrap();
    }
    fixture.operate(delete("a")).unwrap();
    fixture.tell(Command::Compact(fixture.state.version()));
    let all = Keys::all();
    assert!(fixture.state.changes(&all, Version(3), Previous::Wanted).is_err());
    let news = |state: &State, from: u64| -> Result<Vec<(u64, bool)>, Refusal> {
        let news = state.news(Version(from), Previous::Wanted)?;
        Ok(news.map(|change| (change.version.0, change.previous.is_some())).collect())
    };
    assert_eq!(news(&fixture.state, 2), Ok(vec![(2, false), (3, true), (4, true), (5, true)]));
    assert_eq!(news(&fixture.state, 4), Ok(vec![(4, true), (5, true)]));
    // A node that has fetched a snapshot has none of them.
    let restored = State::restore(&fixture.state.snapshot()).unwrap();
    assert_eq!(news(&restored, 4), Err(Refusal::Compacted { compacted: Version(5) }));
    assert_eq!(news(&restored, 5), Ok(vec![(5, true)]));
    for _ in 0..=LINGERING_CHANGES {
        fixture.operate(write("b", "1")).unwrap();
    }
    assert_eq!(news(&fixture.state, 4).map(|news| news.len()), Ok(2 + 4097));
    fixture.tell(Command::Compact(fixture.state.version()));
    assert!(news(&fixture.state, 4).is_err(), "nothing stays for ever");
}
