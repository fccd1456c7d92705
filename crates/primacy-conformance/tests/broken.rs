//! Each law can fail: for each there is a register that breaks it, and is caught.

#![expect(clippy::wildcard_enum_match_arm, reason = "a flaw concerns the one place that has it")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use primacy_conformance::{Capabilities, Harness, LAWS};
use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use primacy_stores::{Pending, ReadError, Register, SetError, record};
use tokio::sync::watch;

/// The bound that a sound register states for the delay of its news.
const CHANGE_BOUND: Duration = Duration::from_millis(200);

/// The flaw of a register, or of its harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    InventsARecord,
    CreatesOverWhatIsThere,
    IgnoresVersions,
    WritesByAVersionWhereNothingIs,
    CountsRefusedWrites,
    /// Now and then a write is done, and answered as refused.
    RefusesWhatItHasDone,
    MakesTheVersionFromTheContent,
    CountsFromOneAfterADeletion,
    ComparesBeforeItWrites,
    AnswersFromBeforeTheLastWrite,
    WritesLateWithoutComparing,
    DropsUnknownFields,
    DiesWithItsHandles,
    TakesSimilarNamesForTheSame,
    NeverTellsOfChanges,
    TellsOfChangesLate,
    TellsOfChangesAllTheTime,
    WritesOverWhatItCannotRead,
    /// Two processes win one token.
    ProcessesBothWin,
    /// A process that was killed has left half a record.
    KilledProcessTearsTheRecord,
    /// A process that was killed has made a version for the old record.
    KilledProcessMakesAVersion,
    /// A process was answered that it had written, and then killed; and nothing is written.
    KilledProcessTakesItsWriteAlong,
}

/// The laws, each with the flaw that it must catch, and with a part of its message then.
const CAUGHT: [(&str, Flaw, &str); 28] = [
    ("a_record_that_nobody_wrote_is_absent", Flaw::InventsARecord, "left == right"),
    ("creating_twice_conflicts", Flaw::CreatesOverWhatIsThere, "left == right"),
    ("a_write_with_an_old_version_is_refused", Flaw::IgnoresVersions, "left == right"),
    (
        "a_version_of_a_record_that_is_absent_is_refused",
        Flaw::WritesByAVersionWhereNothingIs,
        "left == right",
    ),
    ("a_refused_write_changes_nothing", Flaw::CountsRefusedWrites, "left == right"),
    ("writing_the_same_again_makes_a_new_version", Flaw::MakesTheVersionFromTheContent, "was there before"),
    (
        "a_version_is_never_reused_after_delete_and_restart",
        Flaw::CountsFromOneAfterADeletion,
        "was there before",
    ),
    ("of_many_rivals_exactly_one_wins", Flaw::ComparesBeforeItWrites, "not explained"),
    ("of_many_processes_exactly_one_wins", Flaw::ProcessesBothWin, "not explained"),
    ("answers_fit_one_order", Flaw::AnswersFromBeforeTheLastWrite, "not explained"),
    ("answers_fit_one_order", Flaw::IgnoresVersions, "not explained"),
    ("answers_fit_one_order", Flaw::RefusesWhatItHasDone, "not explained"),
    ("answers_to_many_processes_fit_one_order", Flaw::ProcessesBothWin, "not explained"),
    ("killed_writers_leave_the_old_or_the_new", Flaw::KilledProcessTearsTheRecord, "token 3 of rival 77"),
    ("a_reader_never_sees_the_past", Flaw::AnswersFromBeforeTheLastWrite, "left == right"),
    ("a_lost_reply_is_unknown_not_failed", Flaw::IgnoresVersions, "left == right"),
    ("a_lost_reply_is_unknown_not_failed", Flaw::KilledProcessMakesAVersion, "neither the old one"),
    ("a_lost_reply_is_unknown_not_failed", Flaw::KilledProcessTakesItsWriteAlong, "neither the old one"),
    (
        "a_write_that_was_given_up_is_done_before_the_next_or_never",
        Flaw::WritesLateWithoutComparing,
        "left == right",
    ),
    ("a_record_is_kept_whole_with_unknown_fields", Flaw::DropsUnknownFields, "left == right"),
    ("a_record_outlives_its_handles", Flaw::DiesWithItsHandles, "left == right"),
    ("elections_do_not_touch_each_other", Flaw::TakesSimilarNamesForTheSame, "\"Election\""),
    ("changed_wakes_a_waiter", Flaw::NeverTellsOfChanges, "in vain"),
    ("changed_wakes_within_its_documented_bound", Flaw::NeverTellsOfChanges, "in vain"),
    ("changed_wakes_within_its_documented_bound", Flaw::TellsOfChangesLate, "told after"),
    ("changed_wakes_across_processes", Flaw::NeverTellsOfChanges, "in vain"),
    ("changed_rests_until_something_changes", Flaw::TellsOfChangesAllTheTime, "no record"),
    ("what_is_no_record_is_refused_and_kept", Flaw::WritesOverWhatItCannotRead, "left == right"),
];

#[derive(Clone, Debug, Default)]
struct State {
    count: u64,
    version: u64,
    bytes: Option<Vec<u8>>,
}

/// The record, and what it was before the last write.
#[derive(Debug)]
struct Cell {
    /// Held from the comparison to the end of the write.
    turn: Mutex<()>,
    states: Mutex<[State; 2]>,
    changes: watch::Sender<u64>,
}

impl Default for Cell {
    fn default() -> Self {
        Self { turn: Mutex::default(), states: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Cell {
    fn state(&self) -> State {
        self.states.lock().expect("no panic there")[1].clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut states = self.states.lock().expect("no panic there");
        let before = states[1].clone();
        change(&mut states[1]);
        states[0] = before;
        drop(states);
        self.changes.send_modify(|count| *count += 1);
    }
}

#[derive(Debug)]
struct Broken {
    flaw: Flaw,
    cell: Arc<Cell>,
    seen: Mutex<u64>,
    reads: Mutex<u64>,
}

impl Broken {
    fn version(&self, bytes: &[u8], count: u64) -> u64 {
        if self.flaw == Flaw::MakesTheVersionFromTheContent {
            return bytes.iter().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(*byte));
        }
        count
    }

    fn write(&self, bytes: &[u8]) -> Version {
        let mut made = 0;
        self.cell.change(|state| {
            state.count += 1;
            made = self.version(bytes, state.count);
            (state.version, state.bytes) = (made, Some(bytes.to_vec()));
        });
        *self.seen.lock().expect("no panic there") = *self.cell.changes.borrow();
        Version::from(made)
    }

    fn is_expected(&self, state: &State, expect: Option<&Version>) -> bool {
        match (expect, &state.bytes) {
            (None, bytes) => bytes.is_none() || self.flaw == Flaw::CreatesOverWhatIsThere,
            (Some(_), None) => self.flaw == Flaw::WritesByAVersionWhereNothingIs,
            (Some(expect), Some(bytes)) => {
                *expect == Version::from(state.version)
                    || self.flaw == Flaw::IgnoresVersions
                    || (self.flaw == Flaw::WritesOverWhatItCannotRead && record::decode(bytes).is_err())
            }
        }
    }
}

impl Register for Broken {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            *self.seen.lock().expect("no panic there") = *self.cell.changes.borrow();
            let mut state = self.cell.state();
            let reads = {
                let mut reads = self.reads.lock().expect("no panic there");
                *reads += 1;
                *reads
            };
            if self.flaw == Flaw::AnswersFromBeforeTheLastWrite && reads.is_multiple_of(2) {
                state = self.cell.states.lock().expect("no panic there")[0].clone();
            }
            let Some(bytes) = state.bytes else {
                let invented = Record::released(FencingToken(1), primacy_core::Duration::ZERO);
                let invents = self.flaw == Flaw::InventsARecord;
                return Ok(invents.then(|| (invented, Version::from(1))));
            };
            let record = record::decode(&bytes).map_err(|error| ReadError::Malformed { error })?;
            Ok(Some((record, Version::from(state.version))))
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let mut record = record.clone();
            if self.flaw == Flaw::DropsUnknownFields {
                record.unknown = Box::default();
            }
            let bytes = record::encode(&record)?;
            if self.flaw == Flaw::WritesLateWithoutComparing {
                let mut late = LateWrite { cell: Arc::clone(&self.cell), bytes: Some(bytes.clone()) };
                tokio::task::yield_now().await;
                late.bytes = None;
            }
            if self.flaw == Flaw::ComparesBeforeItWrites {
                if !self.is_expected(&self.cell.state(), expect) {
                    return Err(SetError::Conflict);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                return Ok(self.write(&bytes));
            }
            let _turn = self.cell.turn.lock().expect("no panic there");
            if self.is_expected(&self.cell.state(), expect) {
                let version = self.write(&bytes);
                let refuses = self.flaw == Flaw::RefusesWhatItHasDone && record.token.0.is_multiple_of(7);
                return if refuses { Err(SetError::Conflict) } else { Ok(version) };
            }
            if self.flaw == Flaw::CountsRefusedWrites {
                self.cell.change(|state| {
                    state.count += 1;
                    state.version = state.count;
                });
            }
            Err(SetError::Conflict)
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let mut changes = self.cell.changes.subscribe();
        Box::pin(async move {
            match self.flaw {
                Flaw::NeverTellsOfChanges => std::future::pending().await,
                Flaw::TellsOfChangesAllTheTime => return,
                Flaw::TellsOfChangesLate => tokio::time::sleep(CHANGE_BOUND * 3).await,
                _ => {}
            }
            let is_news = |count: &u64| *count != *self.seen.lock().expect("no panic there");
            let _ = changes.wait_for(is_news).await;
        })
    }
}

impl Broken {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, cell: Arc::default(), seen: Mutex::default(), reads: Mutex::default() }
    }
}

/// A write that lands a moment after it was given up, whatever is there by then.
struct LateWrite {
    cell: Arc<Cell>,
    bytes: Option<Vec<u8>>,
}

impl Drop for LateWrite {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        let broken = Broken { cell: Arc::clone(&self.cell), ..Broken::new(Flaw::None) };
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            broken.write(&bytes);
        });
    }
}

struct BrokenHarness {
    flaw: Flaw,
    cells: Mutex<BTreeMap<String, Weak<Cell>>>,
    /// Keeps the cells where they outlive their handles.
    kept: Mutex<Vec<Arc<Cell>>>,
}

impl BrokenHarness {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, cells: Mutex::default(), kept: Mutex::default() }
    }

    fn cell(&self, election: &str) -> Arc<Cell> {
        let election = match self.flaw {
            Flaw::TakesSimilarNamesForTheSame => election.trim().to_lowercase(),
            _ => election.to_owned(),
        };
        let mut cells = self.cells.lock().expect("no panic there");
        if let Some(cell) = cells.get(&election).and_then(Weak::upgrade) {
            return cell;
        }
        let cell = Arc::<Cell>::default();
        cells.insert(election, Arc::downgrade(&cell));
        if self.flaw != Flaw::DiesWithItsHandles {
            self.kept.lock().expect("no panic there").push(Arc::clone(&cell));
        }
        cell
    }
}

impl Harness for BrokenHarness {
    fn name(&self) -> String {
        format!("{:?}", self.flaw)
    }

    fn capabilities(&self) -> Capabilities {
        let killed = [Flaw::KilledProcessMakesAVersion, Flaw::KilledProcessTakesItsWriteAlong];
        Capabilities {
            processes: killed.contains(&self.flaw),
            lasting: true,
            raw_bytes: true,
            deletion: true,
        }
    }

    fn change_bound(&self) -> Duration {
        CHANGE_BOUND
    }

    fn patience(&self) -> Duration {
        // A change that does not come in this time never comes.
        Duration::from_secs(2)
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        let register = Broken { cell: self.cell(election), ..Broken::new(self.flaw) };
        Box::pin(async move { Arc::new(register) as Arc<dyn Register> })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move {
            self.cell(election).change(|state| {
                state.count += 1;
                (state.version, state.bytes) = (state.count, Some(bytes.to_vec()));
            });
        })
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            self.cell(election).change(|state| {
                state.bytes = None;
                if self.flaw == Flaw::CountsFromOneAfterADeletion {
                    state.count = 0;
                }
            });
        })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move { self.cell(election).state().bytes })
    }

    /// No process at all, but the output of one on a broken store.
    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        let mut script = String::new();
        match self.flaw {
            Flaw::ProcessesBothWin => {
                // As many as there must be, and the first two are won by the same two rivals.
                for token in 1..=last {
                    let winner = if token <= 2 { 1 + number % 2 } else { 1 + token % 4 };
                    if winner == number || (token <= 2 && number <= 2) {
                        script.push_str(&line(number, token, &format!("begun {number} ")));
                        script.push_str(&line(number, token, &format!("won {number} {number}{token}")));
                    }
                }
            }
            Flaw::KilledProcessTearsTheRecord if number == 1 => {
                let record = Record::released(FencingToken(3), primacy_core::Duration::ZERO);
                Broken { cell: self.cell(election), ..Broken::new(self.flaw) }
                    .write(&record::encode(&record).expect("it is short"));
                script.push_str(&line(1, 3, "read 77 aa"));
            }
            Flaw::KilledProcessTearsTheRecord if number > 4 => {
                for token in 1..=3 {
                    script.push_str(&line(number, 100 * number + token, &format!("begun {number} ")));
                }
                script.push_str(&line(number, 100 * number, &format!("begun {number} ")));
                script.push_str(&line(number, 100 * number, &format!("won {number} {number}")));
                script.push_str("exec cat /dev/zero >/dev/null\n");
            }
            Flaw::KilledProcessMakesAVersion => {
                self.cell(election).change(|state| state.version += 1);
                script.push_str(&line(number, last, &format!("begun {number} ")));
                script.push_str("exec cat /dev/zero >/dev/null\n");
            }
            Flaw::KilledProcessTakesItsWriteAlong => {
                script.push_str(&line(number, last, &format!("won {number} aa")));
                script.push_str(&line(number, last, &format!("begun {number} ")));
                script.push_str("exec cat /dev/zero >/dev/null\n");
            }
            _ => {}
        }
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{script}echo 'primacy-rival has ended'")]);
        command
    }
}

fn line(rival: u64, token: u64, rest: &str) -> String {
    format!("echo 'primacy-rival {rival} {0} {1} {token} {rest}.'\n", 10 * token, 10 * token + 1)
}

/// The violation that a law finds, if it does.
async fn finding(law: &'static str, flaw: Flaw) -> Option<String> {
    let law = LAWS.iter().find(|known| known.name == law).expect("a law of this name");
    let holding = tokio::spawn(async move { law.check(&BrokenHarness::new(flaw)).await });
    let panic = holding.await.err()?.try_into_panic().expect("it is not cancelled");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_catches_what_it_is_there_for() {
    let mut names: Vec<_> = CAUGHT.iter().map(|(law, ..)| *law).collect();
    names.dedup();
    assert_eq!(names, LAWS.iter().map(|law| law.name).collect::<Vec<_>>(), "each law has a flaw to catch");
    let mut missed = Vec::new();
    for (law, flaw, says) in CAUGHT {
        let found = finding(law, flaw).await;
        println!("{law}, {flaw:?}: {found:?}");
        if !found.as_ref().is_some_and(|found| found.contains(says)) {
            missed.push((law, flaw, found));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_register_without_a_flaw_keeps_the_laws() {
    primacy_conformance::check(&BrokenHarness::new(Flaw::None)).await;
}
