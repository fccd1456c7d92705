//! Judgement of keys: each key's history must be linearizable, and the revisions of the map must grow with time.
//!
//! A write with an unknown outcome is searched for in all clients' answers. If its value was seen, the write was
//! done, at the revision that came with the value, and before the first answer with it. If no client saw it, it is
//! left out. That loses nothing: the answer to a write or deletion contains the entry before it, so an order in which
//! the unknown write was done and never seen remains valid without it.

use std::collections::BTreeMap;

use primacy_conformance::linearizability::{Answer, BUDGET, Model, Request, Verdict, check_within};

use super::Finding;
use super::clients::Tally;
use crate::chaos::client::journal::{Call, ClientRequest, Entry, KeyRead, Outcome, Swapped, Wrote};

/// A request for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// To read its entry.
    Read,
    /// To write this value.
    Put(u64),
    /// To delete it.
    Delete,
    /// To write this value if the key was last written at this revision; 0 if it must be absent.
    Swap(i64, u64),
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// To [`Action::Read`].
    KeyRead(KeyRead),
    /// To [`Action::Put`] and [`Action::Delete`].
    Wrote(Wrote),
    /// To [`Action::Swap`].
    Swapped(Swapped),
    /// No answer; but a client has seen the written value, at this revision.
    Seen(i64),
}

/// The sequential model of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key;

/// The entry of the key, and its highest known revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    entry: Option<Entry>,
    revision: i64,
}

impl Cell {
    fn written(self, value: u64, revision: i64) -> Option<Self> {
        let entry = Some(Entry { value, revision });
        (revision > self.revision).then_some(Self { entry, revision })
    }

    fn is_at(self, expected: i64) -> bool {
        self.entry.map_or(0, |entry| entry.revision) == expected
    }
}

impl Model for Key {
    type Key = ();
    type State = Cell;
    type Action = Action;
    type Reply = Reply;

    fn key(&self, _: &Action) {}

    fn initial(&self) -> Cell {
        Cell::default()
    }

    fn step(&self, cell: &Cell, action: &Action, reply: Option<&Reply>) -> Option<Cell> {
        match (*action, reply.copied()) {
            (Action::Read, Some(Reply::KeyRead(KeyRead { revision, entry }))) => {
                (entry == cell.entry && revision >= cell.revision).then_some(*cell)
            }
            (Action::Put(value), Some(Reply::Wrote(Wrote { revision, before }))) => {
                cell.written(value, revision).filter(|_| before == cell.entry)
            }
            (Action::Put(value), Some(Reply::Seen(revision))) => cell.written(value, revision),
            (Action::Delete, Some(Reply::Wrote(Wrote { revision, before }))) => {
                let after = if before.is_some() { Cell { entry: None, revision } } else { *cell };
                let grows =
                    if before.is_some() { revision > cell.revision } else { revision >= cell.revision };
                (before == cell.entry && grows).then_some(after)
            }
            // No client learns the revision of a deletion without an answer.
            (Action::Delete, None) => Some(Cell { entry: None, ..*cell }),
            (Action::Swap(expected, value), Some(Reply::Swapped(Swapped { revision, held: true, .. }))) => {
                cell.written(value, revision).filter(|_| cell.is_at(expected))
            }
            (Action::Swap(expected, _), Some(Reply::Swapped(Swapped { revision, held: false, found }))) => {
                let explained = found == cell.entry && !cell.is_at(expected) && revision >= cell.revision;
                explained.then_some(*cell)
            }
            (Action::Swap(expected, value), Some(Reply::Seen(revision))) => {
                cell.written(value, revision).filter(|_| cell.is_at(expected))
            }
            // Of the requests without an answer only deletions remain here, and no request has an answer of another
            // kind.
            (Action::Read | Action::Put(_) | Action::Delete | Action::Swap(..), _) => None,
        }
    }

    fn describe(&self, action: &Action, answer: &Answer<Reply>) -> String {
        format!("{action:?}: {answer:?}")
    }

    fn describe_state(&self, cell: &Cell) -> String {
        format!("{cell:?}")
    }
}

/// The values in all clients' answers.
#[derive(Debug, Default)]
struct AnsweredValues {
    /// The revision at which each was written, and the time of the first answer with it.
    values: BTreeMap<u64, (i64, u64)>,
    findings: Vec<Finding>,
}

impl AnsweredValues {
    fn by(calls: &[Call]) -> Self {
        let mut answered = Self::default();
        for call in calls {
            match &call.act {
                ClientRequest::Read { outcome, .. } => {
                    answered.see(call, outcome.answer().and_then(|found| found.entry));
                }
                ClientRequest::Put { value, outcome, .. } => {
                    let wrote = outcome.answer();
                    answered.see(call, wrote.and_then(|wrote| wrote.before));
                    answered.see(call, wrote.map(|wrote| Entry { value: *value, revision: wrote.revision }));
                }
                ClientRequest::Delete { outcome, .. } => {
                    answered.see(call, outcome.answer().and_then(|wrote| wrote.before));
                }
                ClientRequest::Swap { value, outcome, .. } => {
                    let swapped = outcome.answer();
                    answered.see(call, swapped.and_then(|swapped| swapped.found));
                    let held = swapped.filter(|swapped| swapped.held);
                    answered
                        .see(call, held.map(|swapped| Entry { value: *value, revision: swapped.revision }));
                }
                ClientRequest::All { outcome } => {
                    for &entry in outcome.answer().iter().flat_map(|listed| listed.entries.values()) {
                        answered.see(call, Some(entry));
                    }
                }
                ClientRequest::Begin { .. }
                | ClientRequest::Attach { .. }
                | ClientRequest::KeepAlive { .. }
                | ClientRequest::Look { .. } => {}
                ClientRequest::End { .. } | ClientRequest::LetGo { .. } | ClientRequest::Sessions { .. } => {}
            }
        }
        answered
    }

    fn see(&mut self, call: &Call, entry: Option<Entry>) {
        let Some(Entry { value, revision }) = entry else { return };
        let (known, first) = self.values.entry(value).or_insert((revision, call.answered_ns));
        if *known != revision {
            let what = format!("{value} was written at {known}, and at {revision}, as {call:?} tells");
            self.findings.push(Finding::new(call.answered_ns, "one write of two revisions", what));
        }
        *first = (*first).min(call.answered_ns);
    }
}

/// Judges the histories of all keys.
pub(super) fn judge(calls: &[Call], tally: &mut Tally) -> Vec<Finding> {
    let AnsweredValues { values, mut findings } = AnsweredValues::by(calls);
    findings.extend(revisions(calls));
    let mut keys: BTreeMap<&str, Vec<Request<Action, Reply>>> = BTreeMap::new();
    for call in calls {
        let of_key = match &call.act {
            ClientRequest::Read { key, outcome } => {
                Some((key, Action::Read, answer(outcome, |found| Reply::KeyRead(*found))))
            }
            ClientRequest::Put { key, value, outcome } => {
                Some((key, Action::Put(*value), answer(outcome, |wrote| Reply::Wrote(*wrote))))
            }
            ClientRequest::Delete { key, outcome } => {
                Some((key, Action::Delete, answer(outcome, |wrote| Reply::Wrote(*wrote))))
            }
            ClientRequest::Swap { key, expected, value, outcome } => {
                let action = Action::Swap(*expected, *value);
                Some((key, action, answer(outcome, |swapped| Reply::Swapped(*swapped))))
            }
            ClientRequest::All { .. }
            | ClientRequest::Begin { .. }
            | ClientRequest::Attach { .. }
            | ClientRequest::KeepAlive { .. } => None,
            ClientRequest::Look { .. }
            | ClientRequest::End { .. }
            | ClientRequest::LetGo { .. }
            | ClientRequest::Sessions { .. } => None,
        };
        let Some((key, action, answer)) = of_key else { continue };
        let history = keys.entry(key.as_str()).or_default();
        history.extend(looked_for(request(call, action, answer), &values));
    }
    for call in calls {
        let ClientRequest::All { outcome: Outcome::Answered(listed) } = &call.act else { continue };
        for (key, history) in &mut keys {
            let entry = listed.entries.get(*key).copied();
            let found = Reply::KeyRead(KeyRead { revision: listed.revision, entry });
            history.push(request(call, Action::Read, Answer::Known(found)));
        }
        let unknown = listed.entries.keys().find(|key| !keys.contains_key(key.as_str()));
        if let Some(key) = unknown {
            let what = format!("{key} is there, and nobody has asked for it");
            findings.push(Finding::new(call.answered_ns, "a key of nobody's", what));
        }
    }
    tally.keys = keys.len();
    for (key, history) in &keys {
        findings.extend(ordered(key, history, tally));
    }
    findings
}

fn ordered(key: &str, history: &[Request<Action, Reply>], tally: &mut Tally) -> Option<Finding> {
    match check_within(&Key, history, BUDGET) {
        Verdict::Ordered(effort) => {
            tally.steps += effort.steps;
            None
        }
        Verdict::Impossible(explanation) => {
            let what = format!("{key}: {explanation}");
            Some(Finding::new(explanation.settled_at, "a history is not ordered", what))
        }
        Verdict::Undecided(effort) => {
            tally.steps += effort.steps;
            tally.undecided += 1;
            None
        }
    }
}

fn answer<T>(outcome: &Outcome<T>, reply: impl FnOnce(&T) -> Reply) -> Answer<Reply> {
    match outcome {
        Outcome::Answered(answer) => Answer::Known(reply(answer)),
        Outcome::Failed(_) => Answer::Failed,
        // The garbled answer is reported as a finding of its own.
        Outcome::InDoubt(_) | Outcome::Garbled(_) => Answer::Unknown,
    }
}

fn request(call: &Call, action: Action, answer: Answer<Reply>) -> Request<Action, Reply> {
    Request { caller: call.client, start: call.asked_ns, end: call.answered_ns, action, answer }
}

/// Returns the request, with its outcome as other answers show it; `None` if no answer shows any effect.
fn looked_for(
    request: Request<Action, Reply>,
    values: &BTreeMap<u64, (i64, u64)>,
) -> Option<Request<Action, Reply>> {
    if request.answer != Answer::Unknown {
        return Some(request);
    }
    match request.action {
        Action::Read => None,
        Action::Delete => Some(request),
        Action::Put(value) | Action::Swap(_, value) => {
            let (revision, end) = *values.get(&value)?;
            Some(Request { end, answer: Answer::Known(Reply::Seen(revision)), ..request })
        }
    }
}

/// A revision in a client's answer.
struct Stated<'a> {
    call: &'a Call,
    revision: i64,
    /// True if the revision is that of a write.
    is_new: bool,
}

/// Checks that the revision of each write is higher than all revisions answered before it was sent, that no two
/// writes have the same, and that no read is answered with a lower one.
fn revisions(calls: &[Call]) -> Vec<Finding> {
    let mut stated: Vec<Stated<'_>> = calls.iter().filter_map(stated).collect();
    let mut findings = Vec::new();
    let mut writes: BTreeMap<i64, &Call> = BTreeMap::new();
    for write in stated.iter().filter(|stated| stated.is_new) {
        if let Some(other) = writes.insert(write.revision, write.call) {
            let what = format!("{:?} and {other:?} have both made {}", write.call, write.revision);
            findings.push(Finding::new(write.call.answered_ns, "one revision of two writes", what));
        }
    }
    let mut answered: Vec<(u64, i64)> =
        stated.iter().map(|stated| (stated.call.answered_ns, stated.revision)).collect();
    answered.sort_unstable();
    stated.sort_by_key(|stated| stated.call.asked_ns);
    let (mut next, mut highest) = (0, 0);
    for Stated { call, revision, is_new } in stated {
        while let Some(&(_, revision)) = answered.get(next).filter(|(at, _)| *at < call.asked_ns) {
            highest = highest.max(revision);
            next += 1;
        }
        if revision < highest || is_new && revision == highest {
            let what = format!("{highest} was told before {call:?} was asked");
            findings.push(Finding::new(call.answered_ns, "a revision that goes down", what));
        }
    }
    findings
}

fn stated(call: &Call) -> Option<Stated<'_>> {
    let (revision, is_new) = match &call.act {
        ClientRequest::Read { outcome, .. } => (outcome.answer()?.revision, false),
        ClientRequest::Put { outcome, .. } | ClientRequest::Attach { outcome, .. } => {
            (outcome.answer()?.revision, true)
        }
        ClientRequest::Delete { outcome, .. } => {
            let wrote = outcome.answer()?;
            (wrote.revision, wrote.before.is_some())
        }
        ClientRequest::Swap { outcome, .. } => {
            let swapped = outcome.answer()?;
            (swapped.revision, swapped.held)
        }
        ClientRequest::All { outcome } | ClientRequest::Sessions { outcome } => {
            (outcome.answer()?.revision, false)
        }
        ClientRequest::Begin { .. } | ClientRequest::KeepAlive { .. } | ClientRequest::Look { .. } => {
            return None;
        }
        ClientRequest::End { .. } | ClientRequest::LetGo { .. } => return None,
    };
    Some(Stated { call, revision, is_new })
}
