//! Clients' histories, written by hand: a correct one, and for each rule incorrect ones that the judge must detect.

use std::collections::BTreeMap;

use primacy_core::{FencingToken, Reason, Term};

use super::coverage::missing;
use super::record::{NodeReport, Record, Said};
use super::{ClientTally, Verdict, verdict};
use crate::chaos::client::journal::{
    Call, ClientRequest, Entry, KeyRead, Listed, Outcome, Swapped, Wrote, key_of,
};
use crate::chaos::event_log::{RunEvent, TimedEvent};

const MS: u64 = 1_000_000;
/// The last time at which all was well, and the end of the run, in milliseconds.
const WELL: u64 = 40_000;
const END: u64 = 100_000;

/// No broken rule.
const NOTHING: [&str; 0] = [];
const NOT_ORDERED: &str = "a history is not ordered";
const DOWN: &str = "a revision that goes down";
const EARLY: &str = "a session is over early";
const LATE: &str = "a session outlives its time";

/// The session of all these histories, and its value.
const SESSION: i64 = 7;

/// A history of calls; all times in milliseconds.
#[derive(Clone)]
struct Talk {
    calls: Vec<Call>,
    elected: Vec<u64>,
    faked: bool,
}

fn entry(value: u64, revision: i64) -> Option<Entry> {
    Some(Entry { value, revision })
}

fn wrote(revision: i64, before: Option<Entry>) -> Outcome<Wrote> {
    Outcome::Answered(Wrote { revision, before })
}

fn in_doubt<T>() -> Outcome<T> {
    Outcome::InDoubt("no answer in time".to_owned())
}

fn failed<T>(why: &str) -> Outcome<T> {
    Outcome::Failed(why.to_owned())
}

fn put(value: u64, outcome: Outcome<Wrote>) -> ClientRequest {
    ClientRequest::Put { key: "k/1".into(), value, outcome }
}

fn delete(outcome: Outcome<Wrote>) -> ClientRequest {
    ClientRequest::Delete { key: "k/1".into(), outcome }
}

fn read(revision: i64, entry: Option<Entry>) -> ClientRequest {
    ClientRequest::Read { key: "k/1".into(), outcome: Outcome::Answered(KeyRead { revision, entry }) }
}

fn swap(expected: i64, value: u64, revision: i64) -> ClientRequest {
    let outcome = Outcome::Answered(Swapped { revision, held: true, found: None });
    ClientRequest::Swap { key: "k/1".into(), expected, value, outcome }
}

fn swap_in_vain(expected: i64, revision: i64, found: Option<Entry>) -> ClientRequest {
    let outcome = Outcome::Answered(Swapped { revision, held: false, found });
    ClientRequest::Swap { key: "k/1".into(), expected, value: 99, outcome }
}

fn all(revision: i64, found: Option<Entry>) -> ClientRequest {
    let entries = found.map(|found| ("k/1".to_owned(), found)).into_iter().collect();
    ClientRequest::All { outcome: Outcome::Answered(Listed { revision, entries }) }
}

fn kept(outcome: Outcome<i64>) -> ClientRequest {
    ClientRequest::KeepAlive { session: SESSION, outcome }
}

fn look(left: i64) -> ClientRequest {
    ClientRequest::Look { session: SESSION, outcome: Outcome::Answered(left) }
}

fn attach(outcome: Outcome<Wrote>) -> ClientRequest {
    ClientRequest::Attach { session: SESSION, outcome }
}

fn end(outcome: Outcome<bool>) -> ClientRequest {
    ClientRequest::End { session: SESSION, outcome }
}

/// The answer to a read of all sessions at this revision: with the session, or without it.
fn sessions(revision: i64, is_there: bool) -> ClientRequest {
    let found = is_there.then(|| (key_of(SESSION), Entry { value: 7, revision: 2 }));
    ClientRequest::Sessions {
        outcome: Outcome::Answered(Listed { revision, entries: found.into_iter().collect() }),
    }
}

const LET_GO: ClientRequest = ClientRequest::LetGo { session: SESSION };

impl Talk {
    fn new() -> Self {
        Self { calls: Vec::new(), elected: vec![1_000, 5_000], faked: false }
    }

    /// A history of these calls, each answered a millisecond after it was sent.
    fn of(acts: impl IntoIterator<Item = (u64, ClientRequest)>) -> Self {
        Self::new().and(acts)
    }

    fn and(&self, acts: impl IntoIterator<Item = (u64, ClientRequest)>) -> Self {
        acts.into_iter().fold(self.clone(), |talk, (at, act)| talk.lasting(at, at + 1, act))
    }

    fn lasting(mut self, from: u64, until: u64, act: ClientRequest) -> Self {
        self.calls.push(Call { client: 0, endpoint: 0, asked_ns: from * MS, answered_ns: until * MS, act });
        self
    }

    /// The session begins at 2 s, with a key, and its last keep-alive, for ten seconds, is at 7 s.
    fn of_session() -> Self {
        let begin = ClientRequest::Begin { session: SESSION, outcome: Outcome::Answered(10) };
        let acts = [(2_000, begin), (2_010, attach(wrote(2, None))), (7_000, kept(Outcome::Answered(10)))];
        Self::of(acts)
    }

    /// A history of two acknowledged writes.
    fn of_writes() -> Self {
        Self::of([(1, put(1, wrote(2, None))), (10, put(2, wrote(3, entry(1, 2))))])
    }

    fn verdict(&self) -> Verdict {
        let event = |at: u64, event| TimedEvent { boot_ns: at * MS, event };
        let faked = self.faked.then(|| "c".to_owned());
        let run = RunEvent::Run { arm: "metadata".into(), seed: 1, not_run: Vec::new(), faked };
        let life = RunEvent::Incarnation { node: "a".into(), life: 1, pid: 1 };
        let well = RunEvent::Well { step: 1 };
        let events = vec![event(0, run), event(0, life), event(WELL, well), event(END, RunEvent::End)];
        let mut record = Record::of_events(events).unwrap();
        for (term, &at) in (1..).zip(&self.elected) {
            let begun = Said::Elected { term: Term(term), token: FencingToken(term), until: (at + 1) * MS };
            for (at, said) in [(at, begun), (at + 1, Said::Deposed(Reason::Expired))] {
                record.lives[0].reports.push(NodeReport { at: at * MS, within_ns: 0, said });
            }
        }
        record.calls.clone_from(&self.calls);
        verdict(&record)
    }

    /// Returns the broken rules, each once.
    fn broken(&self) -> Vec<String> {
        let mut rules: Vec<String> = self.verdict().findings.into_iter().map(|it| it.rule).collect();
        rules.sort();
        rules.dedup();
        rules
    }

    /// Returns the broken rules after these further calls.
    fn broken_with(&self, acts: impl IntoIterator<Item = (u64, ClientRequest)>) -> Vec<String> {
        self.and(acts).broken()
    }
}

/// A correct history with calls of all kinds.
fn good() -> Talk {
    Talk::of_session().and([
        (3_000, put(1, wrote(3, None))),
        (3_100, read(3, entry(1, 3))),
        (3_200, swap(3, 2, 4)),
        (3_300, swap_in_vain(3, 4, entry(2, 4))),
        (3_400, delete(wrote(5, entry(2, 4)))),
        (3_500, delete(wrote(5, None))),
        (3_600, read(5, None)),
        (3_700, put(4, in_doubt())),
        (8_000, sessions(6, true)),
        (8_500, LET_GO),
        (12_000, look(5)),
        (17_100, look(-1)),
        (18_000, sessions(7, false)),
        (50_000, all(7, entry(4, 6))),
    ])
}

#[test]
fn a_good_story_has_nothing_broken_and_is_counted() {
    let verdict = good().verdict();
    assert_eq!(verdict.findings, []);
    assert_eq!(verdict.judged[4..], ["histories of keys", "revisions", "sessions"]);
    let clients = verdict.tally.clients.unwrap();
    let counted = ClientTally {
        calls: 17,
        writes: 5,
        reads: 2,
        last_readings: 1,
        in_doubt: 1,
        endpoints: 1,
        keys: 1,
        undecided: 0,
        steps: clients.steps,
        sessions: 1,
        sessions_over_changes: 1,
        sessions_let_go: 1,
        sessions_seen_over: 1,
    };
    assert_eq!(clients, counted);
    assert!(clients.steps > 0);
}

#[test]
fn an_acknowledged_write_that_is_lost_is_seen() {
    let last = |revision, found| Talk::of_writes().broken_with([(50_000, all(revision, found))]);
    assert_eq!(last(3, entry(2, 3)), NOTHING);
    assert_eq!(last(3, entry(1, 2)), [NOT_ORDERED]);
    assert_eq!(last(3, None), [NOT_ORDERED]);
    assert_eq!(last(2, entry(1, 2)), [NOT_ORDERED, DOWN], "the whole map is of the past");
}

#[test]
fn answers_that_no_order_explains_are_seen() {
    let writes = Talk::of_writes();
    let then = |act| writes.broken_with([(20, act)]);
    assert_eq!(then(read(3, entry(1, 2))), [NOT_ORDERED], "what was overwritten");
    assert_eq!(then(put(3, wrote(4, entry(1, 2)))), [NOT_ORDERED], "another was there before");
    assert_eq!(then(delete(wrote(3, None))), [NOT_ORDERED], "there was one");
    assert_eq!(then(swap(2, 3, 4)), [NOT_ORDERED], "the condition did not hold");
    assert_eq!(then(swap_in_vain(3, 3, entry(2, 3))), [NOT_ORDERED], "it held");
    let twice = [(20, swap(3, 3, 4)), (30, swap(3, 4, 5))];
    assert_eq!(writes.broken_with(twice), [NOT_ORDERED], "it held twice");
    // The two calls are concurrent, so either may be first.
    let slow = writes.clone().lasting(15, 30, put(3, wrote(4, entry(2, 3))));
    let slow = slow.and([(20, read(3, entry(2, 3))), (25, read(4, entry(3, 4)))]);
    assert_eq!(slow.broken(), NOTHING);
    assert_eq!(slow.lasting(27, 29, read(4, entry(2, 3))).broken(), [NOT_ORDERED], "seen, and not any more");
}

#[test]
fn what_is_in_doubt_may_be_done_once_and_not_before_it_was_asked() {
    let doubt = Talk::of([(1, put(1, wrote(2, None))), (10, put(2, in_doubt()))]);
    assert_eq!(doubt.broken_with([(9_000, read(2, entry(1, 2)))]), NOTHING, "never");
    assert_eq!(doubt.broken_with([(9_000, read(3, entry(2, 3)))]), NOTHING, "late");
    assert_eq!(doubt.broken_with([(5, read(3, entry(2, 3)))]), [NOT_ORDERED], "early");
    let undone = [(20, read(3, entry(2, 3))), (30, read(3, entry(1, 2)))];
    assert_eq!(doubt.broken_with(undone), [NOT_ORDERED]);
    let again = [(20, read(3, entry(2, 3))), (30, put(3, wrote(4, entry(2, 3)))), (40, read(5, entry(2, 5)))];
    assert_eq!(doubt.broken_with(again), [NOT_ORDERED, "one write of two revisions"]);
    let swapped = |expected| {
        let act = ClientRequest::Swap { key: "k/1".into(), expected, value: 3, outcome: in_doubt() };
        Talk::of_writes().broken_with([(20, act), (30, read(4, entry(3, 4)))])
    };
    assert_eq!((swapped(3), swapped(2)), (vec![], vec![NOT_ORDERED.to_owned()]));
    assert_eq!(doubt.broken_with([(20, delete(in_doubt())), (30, read(3, None))]), NOTHING, "deleted");
    assert_eq!(doubt.broken_with([(30, read(3, None))]), [NOT_ORDERED], "by nobody");
    let refused = [(20, delete(failed("x"))), (30, read(3, None))];
    assert_eq!(doubt.broken_with(refused), [NOT_ORDERED], "by one who was refused");
}

#[test]
fn revisions_that_go_down_or_come_twice_are_seen() {
    let begun = Talk::of([(1, put(1, wrote(5, None)))]);
    let other = |at, revision| {
        [(at, ClientRequest::Put { key: "k/2".into(), value: 9, outcome: wrote(revision, None) })]
    };
    const TWICE: &str = "one revision of two writes";
    assert_eq!(begun.broken_with(other(20, 6)), NOTHING);
    assert_eq!(begun.broken_with(other(20, 4)), [DOWN]);
    assert_eq!(begun.broken_with(other(1, 4)), NOTHING, "under way at once");
    assert_eq!(begun.broken_with(other(1, 5)), [TWICE]);
    assert_eq!(begun.broken_with(other(20, 5)), [DOWN, TWICE]);
    let found = |revision| {
        let outcome = Outcome::Answered(KeyRead { revision, entry: None });
        [(20, ClientRequest::Read { key: "k/2".into(), outcome })]
    };
    assert_eq!(begun.broken_with(found(5)), NOTHING);
    assert_eq!(begun.broken_with(found(4)), [DOWN]);
}

#[test]
fn what_nobody_has_written_is_seen() {
    let entries = [("k/9".to_owned(), Entry { value: 1, revision: 2 })].into();
    let listed = ClientRequest::All { outcome: Outcome::Answered(Listed { revision: 2, entries }) };
    assert_eq!(Talk::of([(5, listed)]).broken(), ["a key of nobody's"]);
    let garbled = put(1, Outcome::Garbled("no value".to_owned()));
    assert_eq!(Talk::of([(1, garbled)]).broken(), ["an answer that nobody can have given"]);
    assert_eq!(Talk::of([(1, read(3, entry(8, 3)))]).broken(), [NOT_ORDERED]);
}

#[test]
fn a_session_that_is_over_before_its_time_is_seen_however_it_is_told() {
    let begun = Talk::of_session();
    let then = |at, act| begun.broken_with([(at, act)]);
    assert_eq!(then(16_998, look(-1)), [EARLY]);
    assert_eq!(then(16_999, look(-1)), NOTHING, "answered when its time was over");
    assert_eq!(then(16_000, sessions(3, false)), [EARLY]);
    assert_eq!(then(17_000, sessions(3, false)), NOTHING);
    assert_eq!(then(16_000, kept(Outcome::Answered(0))), [EARLY]);
    assert_eq!(then(17_000, kept(Outcome::Answered(0))), NOTHING);
    let why = "NotFound: etcdserver: requested lease not found";
    assert_eq!(then(16_000, attach(failed(why))), [EARLY]);
    assert_eq!(then(16_000, attach(failed("no connection in time"))), NOTHING);
    assert_eq!(then(3_000, look(-1)), [EARLY], "what is told of it later says that it was not");
    assert_eq!(then(1_990, look(-1)), NOTHING, "it had not begun");
    assert_eq!(then(2_005, sessions(1, false)), NOTHING, "it had no key");
    // A client that finds the session alive learns its remaining time.
    assert_eq!(begun.broken_with([(8_000, look(10)), (17_500, look(-1))]), [EARLY]);
}

#[test]
fn a_session_may_be_over_early_if_its_client_has_asked_for_that() {
    let begun = Talk::of_session();
    for outcome in [Outcome::Answered(true), in_doubt()] {
        assert_eq!(begun.broken_with([(9_000, end(outcome)), (9_002, look(-1))]), NOTHING);
    }
    assert_eq!(begun.broken_with([(8_000, look(-1)), (9_000, end(in_doubt()))]), [EARLY], "it asked later");
}

#[test]
fn a_faked_clock_excuses_as_much_as_clocks_may_differ() {
    let of = |faked, at| Talk { faked, ..Talk::of_session() }.broken_with([(at, look(-1))]);
    assert_eq!(of(false, 16_899), [EARLY]);
    assert_eq!(of(true, 16_899), NOTHING);
    assert_eq!(of(true, 16_898), [EARLY]);
}

#[test]
fn a_session_that_nobody_keeps_alive_is_over_in_time_once_all_is_well() {
    let of = |elected: &[u64], at| {
        let talk = Talk { elected: elected.to_vec(), ..Talk::of_session() };
        talk.broken_with([(8_000, LET_GO), (at, sessions(3, true))])
    };
    // All was well at 40 s; the session has ten seconds to live, and a busy machine gets five more.
    assert_eq!(of(&[1_000], 30_000), NOTHING);
    assert_eq!(of(&[1_000], 55_000), NOTHING);
    assert_eq!(of(&[1_000], 55_001), [LATE]);
    assert_eq!(of(&[1_000, 45_000], 60_000), NOTHING, "who leads since gives it its time again");
    assert_eq!(of(&[1_000, 45_000], 60_001), [LATE]);
    assert_eq!(Talk::of_session().broken_with([(90_000, sessions(3, true))]), NOTHING, "it was not let go");
    let doubt = Talk::of_session().and([(50_000, LET_GO)]).lasting(45_000, 58_000, kept(in_doubt()));
    assert_eq!(doubt.broken_with([(73_000, sessions(3, true))]), NOTHING, "it may have been kept alive");
    assert_eq!(doubt.broken_with([(73_001, sessions(3, true))]), [LATE]);
}

#[test]
fn clients_must_have_met_enough() {
    let mut tally = good().verdict().tally;
    tally.leaders = 2;
    let of = |change: &dyn Fn(&mut ClientTally)| {
        let mut tally = tally.clone();
        let clients = tally.clients.as_mut().unwrap();
        (clients.writes, clients.reads) = (500, 500);
        change(clients);
        missing(100_000, 3, &tally, &BTreeMap::new())
    };
    assert_eq!(of(&|_| {}), NOTHING);
    let little =
        |writes, reads| vec![format!("clients were answered too little: {writes} writes and {reads} reads")];
    assert_eq!(of(&|clients| clients.writes = 499), little(499, 500));
    assert_eq!(of(&|clients| clients.reads = 499), little(500, 499));
    let unread = "nobody has read at the end what was written";
    assert_eq!(of(&|clients| clients.last_readings = 0), [unread]);
    let never = "no session lived while the leader changed";
    assert_eq!(of(&|clients| clients.sessions_over_changes = 0), [never]);
    let unseen = "of 1 sessions that were let go, 0 were seen to be over";
    assert_eq!(of(&|clients| clients.sessions_seen_over = 0), [unseen]);
    let none = "of 0 sessions that were let go, 0 were seen to be over";
    assert_eq!(of(&|clients| (clients.sessions_let_go, clients.sessions_seen_over) = (0, 0)), [none]);
    assert_eq!(of(&|clients| clients.undecided = 1), ["UNDECIDED: of 1 keys, the histories of 1"]);
}

#[test]
fn an_arm_without_clients_is_not_judged_by_them() {
    let run = RunEvent::Run { arm: "peers-5".into(), seed: 1, not_run: Vec::new(), faked: None };
    let events =
        vec![TimedEvent { boot_ns: 0, event: run }, TimedEvent { boot_ns: MS, event: RunEvent::End }];
    let verdict = verdict(&Record::of_events(events).unwrap());
    assert_eq!((verdict.tally.clients, verdict.judged.len()), (None, 4));
}

#[test]
fn a_call_is_read_as_it_is_written() {
    for call in &good().calls {
        let line = serde_json::to_string(call).unwrap();
        assert_eq!(&serde_json::from_str::<Call>(&line).unwrap(), call, "{line}");
    }
}
