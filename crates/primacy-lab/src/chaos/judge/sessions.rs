//! Judgement of sessions: none ends before its time, whichever node leads; and an abandoned session ends in time,
//! once all is well.

use std::collections::BTreeMap;

use super::Finding;
use super::clients::Tally;
use super::record::{Record, Said};
use crate::chaos::client::journal::{Call, ClientRequest, Outcome, key_of};
use crate::chaos::event_log::RunEvent;

const SECOND_NS: u64 = 1_000_000_000;
/// The maximum difference in rate between a leader's clock and the machine's if one clock is faked: the configured
/// drift, in parts per thousand. A leader with a fast clock ends a session early by this share.
const DRIFT_PER_MILLE: u64 = 10;
/// The maximum time after its end for which an abandoned session may still be found, while all is well.
const SLACK_NS: u64 = 5 * SECOND_NS;
/// A node's error for the write of a key with a session that has ended.
const NOT_FOUND: &str = "requested lease not found";

/// A session, as its client knew it.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// The time at which its client learned that it had begun.
    begun_ns: Option<u64>,
    /// The time at which its client learned that its key was written.
    attached_ns: Option<u64>,
    /// The bounds of its end, by all clients' answers and by what a leader may have done since: the session must live
    /// until the first, and may live until the second.
    lives_until_ns: u64,
    over_by_ns: u64,
    /// The times of the first and the last answer that it is alive.
    first_ns: u64,
    last_ns: u64,
    /// The time at which its client asked to end it.
    end_ns: Option<u64>,
    /// The time at which its client abandoned it.
    let_go_ns: Option<u64>,
    is_seen_over: bool,
    is_found_early: bool,
}

/// The maximum difference of the clocks' rates in this run, in parts per thousand.
#[derive(Clone, Copy, Debug)]
struct Drift(u64);

impl Drift {
    fn of(record: &Record) -> Self {
        Self(if record.faked.is_some() { DRIFT_PER_MILLE } else { 0 })
    }

    /// Returns the true time in which a fast clock counts this many seconds.
    fn least(self, seconds: i64) -> u64 {
        nanos(seconds) / 1_000 * (1_000 - self.0)
    }

    /// Returns the true time in which a slow clock counts this many seconds.
    fn most(self, seconds: i64) -> u64 {
        nanos(seconds) / 1_000 * (1_000 + self.0)
    }
}

fn nanos(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(SECOND_NS)
}

/// Judges all histories of sessions.
pub(super) fn judge(record: &Record, tally: &mut Tally) -> Vec<Finding> {
    let calls = &record.calls;
    let mut sessions = gather(calls, Drift::of(record));
    let mut findings = Vec::new();
    for call in calls {
        let (asked, answered) = (call.asked_ns, call.answered_ns);
        let over = |session: i64, known: &Session, found: &mut Vec<Finding>| {
            let ended = known.end_ns.is_some_and(|end| end <= answered);
            if !ended && !known.is_found_early && answered < known.lives_until_ns {
                let early = (known.lives_until_ns - answered) / 1_000_000;
                let what = format!("{session} is over {early} ms before its time, as {call:?} tells");
                found.push(Finding::new(answered, "a session is over early", what));
                return true;
            }
            false
        };
        match found_over(call) {
            FoundOver::No => {}
            FoundOver::One(session) => {
                if let Some(known) = sessions.get_mut(&session)
                    && known.begun_ns.is_some_and(|begun| begun <= asked)
                {
                    known.is_found_early |= over(session, known, &mut findings);
                    known.is_seen_over = true;
                }
            }
            FoundOver::AllBut(listed) => {
                for (session, known) in &mut sessions {
                    let was_there = known.attached_ns.is_some_and(|attached| attached <= asked);
                    if was_there && !listed.contains_key(&key_of(*session)) {
                        known.is_found_early |= over(*session, known, &mut findings);
                        known.is_seen_over = true;
                    }
                }
            }
        }
    }
    findings.extend(outlived(record, &sessions));
    count(record, &sessions, tally);
    findings
}

/// The sessions that a call shows to have ended.
enum FoundOver<'a> {
    No,
    /// One session.
    One(i64),
    /// All sessions whose keys are not among these.
    AllBut(&'a BTreeMap<String, crate::chaos::client::journal::Entry>),
}

fn found_over(call: &Call) -> FoundOver<'_> {
    match &call.act {
        ClientRequest::KeepAlive { session, outcome: Outcome::Answered(0) } => FoundOver::One(*session),
        ClientRequest::Look { session, outcome: Outcome::Answered(-1) } => FoundOver::One(*session),
        ClientRequest::Attach { session, outcome: Outcome::Failed(why) } if why.contains(NOT_FOUND) => {
            FoundOver::One(*session)
        }
        ClientRequest::Sessions { outcome: Outcome::Answered(listed) } => FoundOver::AllBut(&listed.entries),
        ClientRequest::Read { .. }
        | ClientRequest::Put { .. }
        | ClientRequest::Delete { .. }
        | ClientRequest::Swap { .. } => FoundOver::No,
        ClientRequest::All { .. }
        | ClientRequest::Begin { .. }
        | ClientRequest::Attach { .. }
        | ClientRequest::KeepAlive { .. } => FoundOver::No,
        ClientRequest::Look { .. }
        | ClientRequest::End { .. }
        | ClientRequest::LetGo { .. }
        | ClientRequest::Sessions { .. } => FoundOver::No,
    }
}

fn gather(calls: &[Call], drift: Drift) -> BTreeMap<i64, Session> {
    let mut sessions: BTreeMap<i64, Session> = BTreeMap::new();
    for call in calls {
        let (asked, answered) = (call.asked_ns, call.answered_ns);
        match &call.act {
            ClientRequest::Begin { session, outcome } => {
                let known = sessions.entry(*session).or_default();
                known.begun_ns = outcome.answer().map(|_| answered);
                known.told(call, outcome, drift);
            }
            ClientRequest::KeepAlive { session, outcome } => {
                let known = sessions.entry(*session).or_default();
                known.told(call, outcome, drift);
                // The keep-alive may have had an effect until the request was given up.
                if matches!(outcome, Outcome::InDoubt(_)) {
                    known.over_by_ns = known.over_by_ns.max(answered);
                }
            }
            ClientRequest::Look { session, outcome } => {
                let known = sessions.entry(*session).or_default();
                if let Outcome::Answered(left @ 0..) = outcome {
                    known.lives_until_ns = known.lives_until_ns.max(asked + drift.least(*left));
                }
            }
            ClientRequest::Attach { session, outcome: Outcome::Answered(_) } => {
                let known = sessions.entry(*session).or_default();
                known.attached_ns = Some(known.attached_ns.map_or(answered, |at| at.min(answered)));
            }
            ClientRequest::End { session, .. } => sessions.entry(*session).or_default().end_ns = Some(asked),
            ClientRequest::LetGo { session } => sessions.entry(*session).or_default().let_go_ns = Some(asked),
            ClientRequest::Read { .. }
            | ClientRequest::Put { .. }
            | ClientRequest::Delete { .. }
            | ClientRequest::Swap { .. } => {}
            ClientRequest::All { .. } | ClientRequest::Sessions { .. } | ClientRequest::Attach { .. } => {}
        }
    }
    sessions
}

impl Session {
    /// Records an answer that it is alive, which was true at some time between request and answer.
    fn told(&mut self, call: &Call, outcome: &Outcome<i64>, drift: Drift) {
        let Outcome::Answered(seconds @ 1..) = outcome else { return };
        self.lives_until_ns = self.lives_until_ns.max(call.asked_ns + drift.least(*seconds));
        self.over_by_ns = self.over_by_ns.max(call.answered_ns);
        if self.first_ns == 0 {
            self.first_ns = call.answered_ns;
        }
        self.last_ns = self.last_ns.max(call.asked_ns);
    }
}

/// Returns the times of all elections.
fn elected(record: &Record) -> Vec<u64> {
    let reports = record.lives.iter().flat_map(|life| &life.reports);
    let mut times: Vec<u64> = reports
        .filter(|report| matches!(report.said, Said::Elected { .. }))
        .map(|report| report.at)
        .collect();
    times.sort_unstable();
    times
}

/// Finds sessions that still exist long after they were abandoned and all was well for the last time. Each election
/// since then has given every session its whole time to live again.
fn outlived(record: &Record, sessions: &BTreeMap<i64, Session>) -> Vec<Finding> {
    let well = record.events.iter().rfind(|event| matches!(event.event, RunEvent::Well { .. }));
    let Some(well) = well.map(|event| event.boot_ns) else { return Vec::new() };
    let since = elected(record).last().copied().unwrap_or(0).max(well);
    let whole = Drift::of(record).most(crate::chaos::client::TIME_TO_LIVE_SECONDS);
    let mut findings = BTreeMap::new();
    for call in &record.calls {
        let ClientRequest::Sessions { outcome: Outcome::Answered(listed) } = &call.act else { continue };
        for (session, known) in sessions {
            let Some(let_go) = known.let_go_ns else { continue };
            let due = let_go.max(known.over_by_ns).max(since) + whole + SLACK_NS;
            if call.asked_ns > due && listed.entries.contains_key(&key_of(*session)) {
                let late = (call.asked_ns - due) / 1_000_000;
                let what =
                    format!("{session} was let go, and is there {late} ms after the latest end of its time");
                findings
                    .entry(*session)
                    .or_insert_with(|| Finding::new(call.answered_ns, "a session outlives its time", what));
            }
        }
    }
    findings.into_values().collect()
}

fn count(record: &Record, sessions: &BTreeMap<i64, Session>, tally: &mut Tally) {
    let elected = elected(record);
    let over_a_change = |known: &&Session| {
        let next = elected.partition_point(|at| *at <= known.first_ns);
        known.first_ns > 0 && elected.get(next).is_some_and(|at| *at < known.last_ns)
    };
    let begun = || sessions.values().filter(|known| known.begun_ns.is_some());
    tally.sessions = begun().count();
    tally.sessions_over_changes = begun().filter(over_a_change).count();
    let let_go = || begun().filter(|known| known.let_go_ns.is_some());
    tally.sessions_let_go = let_go().count();
    tally.sessions_seen_over = let_go().filter(|known| known.is_seen_over).count();
}
