//! Judgement of the clients' histories of an arm, if its nodes serve clients.

use std::collections::BTreeSet;

use serde::Serialize;

use super::record::Record;
use super::{Finding, keys, sessions};
use crate::chaos::client::journal::{Call, ClientRequest, Outcome};

/// The counts of the clients' requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// All requests.
    pub(crate) calls: usize,
    /// Writes and deletions that were answered.
    pub(crate) writes: usize,
    /// Reads that were answered.
    pub(crate) reads: usize,
    /// Reads of all keys that were answered after the end of all faults.
    pub(crate) last_readings: usize,
    /// Requests to change something whose effect is unknown.
    pub(crate) in_doubt: usize,
    /// Places with a node that answered a request.
    pub(crate) endpoints: usize,
    /// Keys, each with a history of its own.
    pub(crate) keys: usize,
    /// Keys of which it is undecided whether their history is linearizable.
    pub(crate) undecided: usize,
    /// The number of steps that the decisions took.
    pub(crate) steps: u64,
    /// Sessions that were begun.
    pub(crate) sessions: usize,
    /// Sessions that were kept alive before and after a change of leader.
    pub(crate) sessions_over_changes: usize,
    /// Sessions that were abandoned or ended.
    pub(crate) sessions_let_go: usize,
    /// Of these, sessions that were seen to have ended.
    pub(crate) sessions_seen_over: usize,
}

/// The rules that judge the histories of clients, for the table.
pub(crate) const RULES: [&str; 3] = ["histories of keys", "revisions", "sessions"];

/// Judges the clients' histories, if there were any.
pub(super) fn judge(record: &Record) -> (Option<Tally>, Vec<Finding>) {
    if !record.arm.serves_clients() {
        return (None, Vec::new());
    }
    let mut tally = count(&record.calls);
    let mut findings: Vec<Finding> = record.calls.iter().filter_map(garbled).collect();
    findings.extend(keys::judge(&record.calls, &mut tally));
    findings.extend(sessions::judge(record, &mut tally));
    (Some(tally), findings)
}

/// The kind of a call's outcome, independent of the request.
enum End<'a> {
    Answered,
    Failed,
    InDoubt,
    Garbled(&'a str),
}

fn end_of<T>(outcome: &Outcome<T>) -> End<'_> {
    match outcome {
        Outcome::Answered(_) => End::Answered,
        Outcome::Failed(_) => End::Failed,
        Outcome::InDoubt(_) => End::InDoubt,
        Outcome::Garbled(why) => End::Garbled(why),
    }
}

/// The kind of a call's outcome; `None` if no request was sent.
fn end(call: &Call) -> Option<End<'_>> {
    match &call.act {
        ClientRequest::Read { outcome, .. } => Some(end_of(outcome)),
        ClientRequest::Put { outcome, .. }
        | ClientRequest::Delete { outcome, .. }
        | ClientRequest::Attach { outcome, .. } => Some(end_of(outcome)),
        ClientRequest::Swap { outcome, .. } => Some(end_of(outcome)),
        ClientRequest::All { outcome } | ClientRequest::Sessions { outcome } => Some(end_of(outcome)),
        ClientRequest::Begin { outcome, .. }
        | ClientRequest::KeepAlive { outcome, .. }
        | ClientRequest::Look { outcome, .. } => Some(end_of(outcome)),
        ClientRequest::End { outcome, .. } => Some(end_of(outcome)),
        ClientRequest::LetGo { .. } => None,
    }
}

/// True if the call may have changed something.
fn changes(act: &ClientRequest) -> bool {
    match act {
        ClientRequest::Put { .. }
        | ClientRequest::Delete { .. }
        | ClientRequest::Swap { .. }
        | ClientRequest::Attach { .. } => true,
        ClientRequest::Begin { .. } | ClientRequest::KeepAlive { .. } | ClientRequest::End { .. } => true,
        ClientRequest::Read { .. }
        | ClientRequest::All { .. }
        | ClientRequest::Look { .. }
        | ClientRequest::Sessions { .. }
        | ClientRequest::LetGo { .. } => false,
    }
}

fn count(calls: &[Call]) -> Tally {
    let mut tally = Tally { calls: calls.len(), ..Tally::default() };
    let mut endpoints = BTreeSet::new();
    for call in calls {
        match end(call) {
            Some(End::Answered) => {
                endpoints.insert(call.endpoint);
                let writes = match &call.act {
                    ClientRequest::Put { .. }
                    | ClientRequest::Delete { .. }
                    | ClientRequest::Attach { .. } => true,
                    ClientRequest::Swap { outcome, .. } => {
                        outcome.answer().is_some_and(|swapped| swapped.held)
                    }
                    ClientRequest::Read { .. }
                    | ClientRequest::All { .. }
                    | ClientRequest::Begin { .. }
                    | ClientRequest::KeepAlive { .. } => false,
                    ClientRequest::Look { .. }
                    | ClientRequest::End { .. }
                    | ClientRequest::LetGo { .. }
                    | ClientRequest::Sessions { .. } => false,
                };
                tally.writes += usize::from(writes);
                tally.reads += usize::from(matches!(call.act, ClientRequest::Read { .. }));
                tally.last_readings += usize::from(matches!(call.act, ClientRequest::All { .. }));
            }
            Some(End::InDoubt) => tally.in_doubt += usize::from(changes(&call.act)),
            Some(End::Failed | End::Garbled(_)) | None => {}
        }
    }
    tally.endpoints = endpoints.len();
    tally
}

fn garbled(call: &Call) -> Option<Finding> {
    let Some(End::Garbled(why)) = end(call) else { return None };
    Some(Finding::new(call.answered_ns, "an answer that nobody can have given", format!("{why}: {call:?}")))
}
