//! The laws of [`Register`].

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use primacy_core::election::lease::{Holder, Record, ResignRequest, Version};
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use primacy_stores::{Pending, ReadError, Register, SetError};
// On the simulated arm, this is simulated time.
use tokio::time::Instant;

use crate::harness::{Capabilities, Harness, read, within};
use crate::process_laws::{
    Rival, answers_to_many_processes_fit_one_order, assert_outcomes_differ, changed_wakes_across_processes,
    killed_writers_leave_the_old_or_the_new, of_many_processes_exactly_one_wins,
};
use crate::stalls::Stalls;
use crate::{history, rival};

/// A guarantee of stores.
#[derive(Debug)]
pub struct Law {
    /// Its name, which states the guarantee.
    pub name: &'static str,
    /// The capabilities that a store needs to be checked.
    pub needs: Capabilities,
    run: for<'a> fn(&'a dyn Harness) -> Pending<'a, ()>,
}

impl Law {
    /// Checks a store against this law.
    ///
    /// # Panics
    /// If it is broken.
    pub async fn check(&self, harness: &dyn Harness) {
        (self.run)(harness).await;
    }
}

const PROCESSES: Capabilities = Capabilities { processes: true, ..Capabilities::NONE };
const LASTING: Capabilities = Capabilities { lasting: true, ..Capabilities::NONE };
const DELETION: Capabilities = Capabilities { deletion: true, ..Capabilities::NONE };
const RAW_BYTES: Capabilities = Capabilities { raw_bytes: true, ..Capabilities::NONE };

macro_rules! law {
    ($law:ident) => {
        law!($law, Capabilities::NONE)
    };
    ($law:ident, $needs:expr) => {
        Law { name: stringify!($law), needs: $needs, run: |harness| Box::pin($law(harness)) }
    };
}

/// The single list of all laws.
pub const LAWS: [Law; 23] = [
    law!(a_record_that_nobody_wrote_is_absent),
    law!(creating_twice_conflicts),
    law!(a_write_with_an_old_version_is_refused),
    law!(a_version_of_a_record_that_is_absent_is_refused),
    law!(a_refused_write_changes_nothing),
    law!(writing_the_same_again_makes_a_new_version),
    law!(a_version_is_never_reused_after_delete_and_restart, DELETION),
    law!(of_many_rivals_exactly_one_wins),
    law!(of_many_processes_exactly_one_wins, PROCESSES),
    law!(answers_fit_one_order),
    law!(answers_to_many_processes_fit_one_order, PROCESSES),
    law!(killed_writers_leave_the_old_or_the_new, PROCESSES),
    law!(a_reader_never_sees_the_past),
    law!(a_lost_reply_is_unknown_not_failed),
    law!(a_write_that_was_given_up_is_done_before_the_next_or_never),
    law!(a_record_is_kept_whole_with_unknown_fields),
    law!(a_record_outlives_its_handles, LASTING),
    law!(elections_do_not_touch_each_other),
    law!(changed_wakes_a_waiter),
    law!(changed_wakes_within_its_documented_bound),
    law!(changed_wakes_across_processes, PROCESSES),
    law!(changed_rests_until_something_changes),
    law!(what_is_no_record_is_refused_and_kept, RAW_BYTES),
];

/// A new election has no record.
pub async fn a_record_that_nobody_wrote_is_absent(harness: &dyn Harness) {
    let register = harness.open("a_record_that_nobody_wrote_is_absent").await;
    assert_eq!(read(&register).await, None);
    assert_eq!(read(&register).await, None, "reading makes none");
}

/// An existing record is not created again, by any handle.
pub async fn creating_twice_conflicts(harness: &dyn Harness) {
    let [one, two] = open_twice(harness, "creating_twice_conflicts").await;
    let version = set(&one, None, 1).await.expect("the first creates it");
    assert_eq!(set(&two, None, 2).await, Err(SetError::Conflict));
    assert_eq!(set(&one, None, 2).await, Err(SetError::Conflict));
    assert_eq!(read(&two).await, Some((record(1), version)));
}

/// A write with a version that was overwritten is refused.
pub async fn a_write_with_an_old_version_is_refused(harness: &dyn Harness) {
    let [one, two] = open_twice(harness, "a_write_with_an_old_version_is_refused").await;
    let first = set(&one, None, 1).await.expect("created");
    let second = set(&two, Some(&first), 2).await.expect("the newest version");
    assert_eq!(set(&one, Some(&first), 3).await, Err(SetError::Conflict));
    let third = set(&one, Some(&second), 3).await.expect("the newest version");
    for old in [&first, &second] {
        assert_eq!(set(&two, Some(old), 4).await, Err(SetError::Conflict));
    }
    assert_eq!(read(&two).await, Some((record(3), third)));
}

/// If there is no record, every version is refused, even one that the store never gave.
pub async fn a_version_of_a_record_that_is_absent_is_refused(harness: &dyn Harness) {
    let other = harness.open("a_version_of_another_election").await;
    let foreign = set(&other, None, 1).await.expect("created");
    let register = harness.open("a_version_of_a_record_that_is_absent_is_refused").await;
    let odd = [foreign, Version::from(0), Version::from(u64::MAX), Version::new(b""), Version::new(b"odd")];
    for version in &odd {
        assert_eq!(set(&register, Some(version), 1).await, Err(SetError::Conflict), "{version:?}");
    }
    assert_eq!(read(&register).await, None);
    set(&register, None, 1).await.expect("created");
    for version in &odd[1..] {
        assert_eq!(set(&register, Some(version), 2).await, Err(SetError::Conflict), "{version:?}");
    }
}

/// After a refusal, the record and its version are unchanged.
pub async fn a_refused_write_changes_nothing(harness: &dyn Harness) {
    let [one, two] = open_twice(harness, "a_refused_write_changes_nothing").await;
    let first = set(&one, None, 1).await.expect("created");
    let second = set(&one, Some(&first), 2).await.expect("the newest version");
    assert_eq!(set(&two, Some(&first), 3).await, Err(SetError::Conflict));
    let mut long = record(3);
    long.resign_request = Some(ResignRequest { token: FencingToken(3), by: "x".repeat(1 << 20) });
    let refused = two.compare_and_set(Some(&second), &long).await;
    assert!(matches!(refused, Err(SetError::Unavailable { .. })), "too long: {refused:?}");
    assert_eq!(read(&two).await, Some((record(2), second.clone())));
    set(&one, Some(&second), 3).await.expect("the version is still the newest");
}

/// A version identifies a write, not a content: no two writes have the same version.
pub async fn writing_the_same_again_makes_a_new_version(harness: &dyn Harness) {
    let register = harness.open("writing_the_same_again_makes_a_new_version").await;
    let mut versions = vec![set(&register, None, 1).await.expect("created")];
    for _ in 0..5 {
        let next = set(&register, versions.last(), 1).await.expect("the newest version");
        assert!(!versions.contains(&next), "{next:?} was there before: {versions:?}");
        versions.push(next);
    }
}

/// No write gets the version of another one, even if the record was deleted in between and all processes with it open
/// have ended; and the version of a deleted record is invalid for a new one.
pub async fn a_version_is_never_reused_after_delete_and_restart(harness: &dyn Harness) {
    const ROUNDS: u64 = 6;
    let election = "a_version_is_never_reused_after_delete_and_restart";
    let kept = harness.open(election).await;
    let mut versions: Vec<String> = Vec::new();
    let mut note = |version: String| {
        assert!(!versions.contains(&version), "{version} was there before: {versions:?}");
        versions.push(version);
    };
    for round in 1..=ROUNDS {
        let fresh = harness.open(election).await;
        let mut version = set(&fresh, None, 1).await.expect("created");
        note(rival::hexadecimal(&version));
        for _ in 0..8 {
            version = set(&fresh, Some(&version), 1).await.expect("the newest version");
            note(rival::hexadecimal(&version));
        }
        if harness.capabilities().processes {
            for operation in Rival::start(harness, election, round, 4).finish() {
                if let history::Kind::Won { version } = operation.kind {
                    note(version);
                }
            }
        }
        let (found, old) = read(&fresh).await.expect("a record");
        harness.erase(election).await;
        for register in [&kept, &fresh] {
            assert_eq!(read(register).await, None, "it was deleted");
            assert_eq!(set(register, Some(&old), 9).await, Err(SetError::Conflict));
        }
        // Equal content must not cause an equal version.
        let new = kept.compare_and_set(None, &found).await.expect("created");
        note(rival::hexadecimal(&new));
        assert_eq!(set(&fresh, Some(&old), 9).await, Err(SetError::Conflict));
        harness.erase(election).await;
    }
}

/// With many concurrent rivals, each version is followed by one write.
pub async fn of_many_rivals_exactly_one_wins(harness: &dyn Harness) {
    const LAST: u64 = 50;
    let history = compete(harness, "of_many_rivals_exactly_one_wins", 8, LAST, None).await;
    history::check(&history).unwrap_or_else(|error| panic!("{error}"));
    let won = history.iter().filter(|operation| matches!(operation.kind, history::Kind::Won { .. })).count();
    assert_eq!(u64::try_from(won), Ok(LAST), "each token has a winner");
}

/// The answers to callers are linearizable, while requests are delayed, lost, or abandoned and delivered late, and
/// replies are lost.
pub async fn answers_fit_one_order(harness: &dyn Harness) {
    for (round, callers) in (1..).zip([2, 4, 8]) {
        let election = format!("answers_fit_one_order {round}");
        let history = compete(harness, &election, callers, 120, Some(100 * round)).await;
        history::check(&history).unwrap_or_else(|error| panic!("{error}"));
        assert_outcomes_differ(&history);
    }
}

/// Runs this many competing rivals until the token is `last`, and returns their operations.
async fn compete(
    harness: &dyn Harness,
    election: &str,
    rivals: u64,
    last: u64,
    faults: Option<u64>,
) -> Vec<history::Operation> {
    let mut playing = Vec::new();
    for number in 1..=rivals {
        let register = harness.open(election).await;
        playing.push(tokio::spawn(async move {
            let mut history = Vec::new();
            rival::play(register, number, last, faults, |operation| history.push(operation)).await;
            history
        }));
    }
    let mut all = Vec::new();
    for rival in playing {
        all.extend(within(harness, "a rival's end", rival).await.expect("a rival that does not panic"));
    }
    all
}

/// A read that begins after the answer to a write returns that write or a later one; and no reader goes back in time.
pub async fn a_reader_never_sees_the_past(harness: &dyn Harness) {
    const LAST: u64 = 40;
    let election = "a_reader_never_sees_the_past";
    let writer = harness.open(election).await;
    let mut version = set(&writer, None, 1).await.expect("created");
    let mut readers = Vec::new();
    for _ in 0..3 {
        let register = harness.open(election).await;
        readers.push(tokio::spawn(async move {
            let mut seen = 0;
            while seen < LAST {
                let (record, _) = read(&register).await.expect("a record that was written is never absent");
                assert!(record.token.0 >= seen, "from {seen} back to {}", record.token);
                seen = record.token.0;
                tokio::task::yield_now().await;
            }
        }));
    }
    let fresh = harness.open(election).await;
    for token in 2..=LAST {
        version = set(&writer, Some(&version), token).await.expect("nobody else writes");
        assert_eq!(read(&fresh).await, Some((record(token), version.clone())));
    }
    for reader in readers {
        within(harness, "a reader's end", reader).await.expect("a reader that does not panic");
    }
}

/// A write whose reply is lost either took effect completely, under a new version, or had no effect. A read shows
/// which; the next write depends on what it finds, and a repetition of a write that took effect is refused.
pub async fn a_lost_reply_is_unknown_not_failed(harness: &dyn Harness) {
    const LOST: u64 = 8;
    // On a fast store most replies arrive before the kill.
    const ROUNDS_MAX: u32 = 500;
    let election = "a_lost_reply_is_unknown_not_failed";
    let register = harness.open(election).await;
    let mut old = (record(1), set(&register, None, 1).await.expect("created"));
    let (mut lost, mut took) = (0, Duration::ZERO);
    for round in 1..=ROUNDS_MAX {
        let mut new = record(old.0.token.0 + 1);
        new.nonce = u64::from(round);
        let answered = lose_the_reply(harness, &old.1, &new, took * (round % 8) / 4).await;
        old = loop {
            let found = read(&register).await.expect("a record");
            let is_new = found.0 == new && found.1 != old.1;
            assert!(is_new || (found == old && !answered), "neither the old one nor the new one: {found:?}");
            if is_new {
                assert_eq!(register.compare_and_set(Some(&old.1), &new).await, Err(SetError::Conflict));
            }
            let (token, asked_at) = (found.0.token.0 + 1, Instant::now());
            match set(&register, Some(&found.1), token).await {
                Ok(version) => {
                    took = asked_at.elapsed();
                    break (record(token), version);
                }
                // The request of a dead process may arrive late over a network, but only before the next write.
                Err(error) => assert!(error == SetError::Conflict && !is_new, "nobody else writes: {error}"),
            }
        };
        lost += u64::from(!answered);
        if lost == LOST {
            return;
        }
    }
    panic!("only {lost} replies of {ROUNDS_MAX} could be lost");
}

/// Sends a write in such a way that its reply is lost unless the store is faster; returns whether it was answered.
/// Over a network, the request may still be under way when this returns.
async fn lose_the_reply(harness: &dyn Harness, expect: &Version, new: &Record, delay: Duration) -> bool {
    let (election, number, token) = ("a_lost_reply_is_unknown_not_failed", new.nonce, new.token.0);
    if harness.capabilities().processes {
        // The process dies with the reply, or before it.
        let history = Rival::start(harness, election, number, token).kill_after(delay);
        return history.iter().any(|operation| matches!(operation.kind, history::Kind::Won { .. }));
    }
    // Within one process, only the caller itself or an earlier request can lose it.
    if number.is_multiple_of(2) {
        let _ = harness.open(election).await.compare_and_set(Some(expect), new).await;
    }
    false
}

/// A caller that abandons a write does not know its outcome. The write may still take effect, but only until another
/// write: it names its expected version, however late it arrives.
pub async fn a_write_that_was_given_up_is_done_before_the_next_or_never(harness: &dyn Harness) {
    let [one, two] = open_twice(harness, "a_write_that_was_given_up_is_done_before_the_next_or_never").await;
    let mut version = set(&one, None, 1).await.expect("created");
    for round in 1..=20 {
        let (given_up, next) = (record(10 * round), record(10 * round + 1));
        let mut writing = one.compare_and_set(Some(&version), &given_up);
        // Polled once, and dropped before its answer.
        let _ = poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await;
        drop(writing);
        version = loop {
            let (found, newest) = read(&two).await.expect("a record");
            assert!(newest == version || found == given_up, "it is the old one or the new one: {found:?}");
            match two.compare_and_set(Some(&newest), &next).await {
                Ok(version) => break version,
                Err(error) => assert_eq!(error, SetError::Conflict, "then it was done in between"),
            }
        };
        for register in [&one, &two, &one] {
            assert_eq!(read(register).await, Some((next.clone(), version.clone())));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Every field is returned as it was written, including values at the ends of their range, and so are unknown fields
/// of a later version.
pub async fn a_record_is_kept_whole_with_unknown_fields(harness: &dyn Harness) {
    let [one, two] = open_twice(harness, "a_record_is_kept_whole_with_unknown_fields").await;
    let mut version = None;
    for number in [0, 1, 1 << 53, u64::MAX] {
        for (text, unknown) in [("", ""), ("host:1 \"é\"\n\u{1F600}", r#"{"later":[1e999,{"a":"b"}]}"#)] {
            let node = NodeId::new("node-1").expect("a name");
            let incarnation = Incarnation { count: number, nonce: number };
            let identity = Identity::new(node, incarnation);
            let whole = Record {
                holder: Some(Holder { identity, address: text.to_owned() }),
                // The end of the range of tokens: a greater number is no valid token.
                token: FencingToken(number / 2),
                duration: primacy_core::Duration::from_nanos(number),
                renewal: number,
                nonce: number,
                resign_request: Some(ResignRequest { token: FencingToken(number), by: text.to_owned() }),
                young: number % 2 == 1,
                unknown: unknown.as_bytes().into(),
            };
            let next = one.compare_and_set(version.as_ref(), &whole).await.expect("nobody else writes");
            assert_eq!(read(&two).await, Some((whole, next.clone())));
            version = Some(next);
        }
    }
}

/// When no handle is left, the record still exists, with its version.
pub async fn a_record_outlives_its_handles(harness: &dyn Harness) {
    let election = "a_record_outlives_its_handles";
    let register = harness.open(election).await;
    let first = set(&register, None, 1).await.expect("created");
    drop(register);
    let register = harness.open(election).await;
    assert_eq!(read(&register).await, Some((record(1), first.clone())));
    set(&register, Some(&first), 2).await.expect("the version still counts");
}

/// A write in one election does not affect another, however similar their names.
pub async fn elections_do_not_touch_each_other(harness: &dyn Harness) {
    let names = ["election", "Election", "election ", "election/a", "élection", "election%", "election'--"];
    for (token, name) in (1..).zip(names) {
        let register = harness.open(name).await;
        assert_eq!(read(&register).await, None, "{name:?}");
        set(&register, None, token).await.expect("created");
    }
    for (token, name) in (1..).zip(names) {
        let (found, _) = read(&harness.open(name).await).await.expect("it was created");
        assert_eq!(found, record(token), "{name:?}");
    }
}

/// A caller that waits for a change is woken by it, even by a change between the read and the wait; and it may
/// abandon the wait and begin again.
pub async fn changed_wakes_a_waiter(harness: &dyn Harness) {
    let [waiter, writer] = open_twice(harness, "changed_wakes_a_waiter").await;
    let mut version = set(&writer, None, 1).await.expect("created");
    for token in 2..12 {
        read_until(&waiter, token - 1).await;
        let woken = match token % 3 {
            0 => {
                // Polled, dropped, and polled again after the write.
                drop(tokio::time::timeout(Duration::ZERO, waiter.changed()).await);
                version = set(&writer, Some(&version), token).await.expect("nobody else writes");
                waiter.changed()
            }
            1 => {
                version = set(&writer, Some(&version), token).await.expect("nobody else writes");
                waiter.changed()
            }
            _ => {
                let mut waiting = waiter.changed();
                drop(tokio::time::timeout(Duration::ZERO, &mut waiting).await);
                // The future may have ended without a change, and must not be polled again then.
                version = set(&writer, Some(&version), token).await.expect("nobody else writes");
                waiter.changed()
            }
        };
        within(harness, "the change to be noticed", woken).await;
    }
    let waiting = tokio::spawn(async move {
        while read(&waiter).await.expect("a record").0.token.0 < 12 {
            waiter.changed().await;
        }
    });
    tokio::task::yield_now().await;
    set(&writer, Some(&version), 12).await.expect("nobody else writes");
    within(harness, "the waiter's end", waiting).await.expect("a waiter that does not panic");
}

/// A waiter is woken within the documented bound: by a write, and by the deletion of the record by hand.
pub async fn changed_wakes_within_its_documented_bound(harness: &dyn Harness) {
    let election = "changed_wakes_within_its_documented_bound";
    let [waiter, writer] = open_twice(harness, election).await;
    let stalls = Stalls::watch();
    let mut version = None;
    for token in 1..=20 {
        let _ = read(&waiter).await;
        let waiter = Arc::clone(&waiter);
        let waiting = tokio::spawn(async move {
            // It may be woken without a change; then the waiter reads, and waits again.
            while waiter.read().await.ok().flatten().is_none_or(|(record, _)| record.token.0 < token) {
                waiter.changed().await;
            }
            Instant::now()
        });
        tokio::task::yield_now().await;
        version = Some(set(&writer, version.as_ref(), token).await.expect("nobody else writes"));
        let written_at = Instant::now();
        let woken_at = within(harness, "the change to be noticed", waiting).await.expect("no panic");
        assert_within(&stalls, harness.change_bound(), (written_at, woken_at));
    }
    if harness.capabilities().deletion {
        let waiting = tokio::spawn(async move {
            while waiter.read().await != Ok(None) {
                waiter.changed().await;
            }
            Instant::now()
        });
        harness.erase(election).await;
        let erased_at = Instant::now();
        let woken_at = within(harness, "the deletion to be noticed", waiting).await.expect("no panic");
        assert_within(&stalls, harness.change_bound(), (erased_at, woken_at));
    }
}

/// After a read or an own write, a wait does not end at once: a caller that reads after every wake-up does not spin.
pub async fn changed_rests_until_something_changes(harness: &dyn Harness) {
    let register = harness.open("changed_rests_until_something_changes").await;
    let rests = async || {
        for _ in 0..50 {
            if tokio::time::timeout(Duration::from_millis(20), register.changed()).await.is_err() {
                return true;
            }
            // Some spurious wake-ups are allowed; each is followed by a read, as a caller would do.
            let _ = register.read().await;
        }
        false
    };
    assert_eq!(read(&register).await, None);
    assert!(rests().await, "where there is no record");
    set(&register, None, 1).await.expect("created");
    assert!(rests().await, "after a write of one's own");
    if harness.capabilities().raw_bytes {
        harness.plant("changed_rests_until_something_changes", b"no record").await;
        register.read().await.expect_err("what is there is no record");
        assert!(rests().await, "where there is something that is no record");
    }
}

/// Bytes that are not a valid record of this version are an error for every reader, and no write replaces them.
pub async fn what_is_no_record_is_refused_and_kept(harness: &dyn Harness) {
    let election = "what_is_no_record_is_refused_and_kept";
    let register = harness.open(election).await;
    let version = set(&register, None, 1).await.expect("created");
    let later = br#"{"primacy":2,"something":"else"}"#;
    for bytes in [&b""[..], b"\xff\x00", b"[]", later] {
        harness.plant(election, bytes).await;
        let found = register.read().await;
        assert!(matches!(found, Err(ReadError::Malformed { .. })), "{found:?}");
        for expect in [None, Some(&version)] {
            assert_eq!(set(&register, expect, 2).await, Err(SetError::Conflict));
        }
        assert_eq!(harness.stored(election).await.as_deref(), Some(bytes));
    }
}

/// A record that differs from others only in its token.
fn record(token: u64) -> Record {
    let mut record = Record::released(FencingToken(token), primacy_core::Duration::from_secs(10));
    record.nonce = token;
    record
}

async fn open_twice(harness: &dyn Harness, election: &str) -> [Arc<dyn Register>; 2] {
    [harness.open(election).await, harness.open(election).await]
}

/// Reads until the token is there; in a linearizable store the first read returns it.
async fn read_until(register: &Arc<dyn Register>, token: u64) {
    let found = read(register).await.map(|(record, _)| record.token.0);
    assert_eq!(found, Some(token));
}

async fn set(
    register: &Arc<dyn Register>,
    expect: Option<&Version>,
    token: u64,
) -> Result<Version, SetError> {
    register.compare_and_set(expect, &record(token)).await
}

/// Checks that a waiter was woken in time, apart from the machine's own pauses.
fn assert_within(stalls: &Stalls, bound: Duration, (from, to): (Instant, Instant)) {
    let took = to.saturating_duration_since(from);
    let stalled = stalls.in_the_latest(from.elapsed());
    assert!(took <= bound + stalled, "told after {took:?}, and the bound is {bound:?} (stalls: {stalled:?})");
}
