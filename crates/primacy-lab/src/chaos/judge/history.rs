//! Conversion of a record for the simulator's invariants: into the same observations and leadership intervals, in
//! true time.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::{Event, FencingToken, Identity, Instant, Mandate, Reason, Term};
use primacy_sim::clock::{Clock, Moment};
use primacy_sim::invariants::{Invariant, Meaning, Observation};
use primacy_sim::leadership_intervals::LeadershipIntervals;

use super::Finding;
use super::record::{IncarnationRecord, Record, Said};

/// An event of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    /// All work of this incarnation has ended.
    WorkEnded(Identity),
    /// This incarnation and all its work have ended.
    Gone(Identity),
    /// A machine reported an event to its application.
    Told(Identity, Event),
    /// A leadership was released in order.
    Released(Identity, FencingToken),
    /// The ledger accepted a write.
    Accepted(FencingToken),
}

/// The times of all writes and reports of each leadership's jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acts {
    /// By token: the node, the first act and the last one.
    of: BTreeMap<u64, (String, u64, u64)>,
}

impl Acts {
    /// Collects the acts of all jobs of a record.
    pub(crate) fn of(record: &Record) -> Self {
        let mut acts = Self::default();
        let lines = record.ledger.iter().map(|line| (&line.writer, line.boot_ns));
        for (writer, at) in lines.chain(record.journal.iter().map(|entry| (&entry.writer, entry.boot_ns))) {
            let act = acts.of.entry(writer.token).or_insert_with(|| (writer.node.clone(), at, at));
            (act.1, act.2) = (act.1.min(at), act.2.max(at));
        }
        acts
    }

    /// The last act under a token.
    pub(crate) fn last(&self, token: FencingToken) -> u64 {
        self.of.get(&token.0).map_or(0, |(_, _, last)| *last)
    }
}

/// Judges the whole record by these invariants.
pub(crate) fn judge(record: &Record, invariants: Vec<Box<dyn Invariant>>) -> Vec<Finding> {
    let acts = Acts::of(record);
    let mut happenings = Vec::new();
    let mut findings = Vec::new();
    for life in &record.lives {
        happenings.extend(of_life(life, &acts));
        for report in &life.reports {
            if let Said::Violation(what) = &report.said {
                findings.push(Finding::new(
                    report.at,
                    "violation",
                    format!("{} tells of {what}", life.who.node),
                ));
            }
        }
    }
    let (untold, more) = untold(record, &acts);
    happenings.extend(untold);
    findings.extend(more);
    let mut latest = 0;
    for line in &record.ledger {
        // The order of the lines is the order in which the ledger accepted the writes.
        latest = latest.max(line.boot_ns);
        happenings.push((latest, Happening::Accepted(FencingToken(line.writer.token))));
    }
    happenings.sort_by_key(|(at, happening)| (*at, happening.rank()));
    findings.extend(observe(&happenings, invariants));
    findings
}

impl Happening {
    /// The order of events in one nanosecond.
    const fn rank(&self) -> u8 {
        match self {
            Self::WorkEnded(_) => 0,
            Self::Told(..) => 1,
            Self::Released(..) => 2,
            // After the last report of the incarnation.
            Self::Gone(_) => 3,
            Self::Accepted(_) => 4,
        }
    }
}

fn of_life(life: &IncarnationRecord, acts: &Acts) -> Vec<(u64, Happening)> {
    let who = life.who;
    let mut happenings = Vec::new();
    let mut token = None;
    // A killed incarnation may have handled more events than it printed. It has ended when it was killed or when its
    // last work ended, whichever is later.
    let over = life.killed.or(life.ended.map(|(at, _)| at));
    let mut gone = over.unwrap_or(life.begun);
    for report in &life.reports {
        gone = gone.max(report.at);
        let event = match report.said {
            Said::Elected { term, token: given, until } => {
                token = Some(given);
                gone = gone.max(acts.last(given));
                let valid_until = Instant::from_nanos(until);
                // If the clock is not known exactly, the leadership begins a little later.
                let at = report.at + report.within_ns;
                let event = Event::Elected { term, mandate: Mandate::Fenced(given), valid_until };
                happenings.push((at, Happening::Told(who, event)));
                continue;
            }
            Said::Renewed { until } => Event::Renewed { valid_until: Instant::from_nanos(until) },
            Said::Resigning(reason) => Event::Resigning(reason),
            Said::Deposed(reason) => {
                // A job that never began has nothing to drain.
                let taken = |said: &Said| token.is_some_and(|token| *said == Said::Taken { token });
                let has_worked = life.reports.iter().any(|report| taken(&report.said));
                if !has_worked && token.is_some_and(|token| acts.last(token) == 0) {
                    happenings.push((report.at, Happening::WorkEnded(who)));
                }
                Event::Deposed(reason)
            }
            Said::Drained { token: of } => {
                // The job's own acts may be later than the report.
                happenings.push((report.at.max(acts.last(of)), Happening::WorkEnded(who)));
                continue;
            }
            Said::Violation(_) | Said::Taken { .. } => continue,
            Said::Guardian | Said::GuardianLost | Said::NoRoom => continue,
        };
        happenings.push((report.at, Happening::Told(who, event)));
        let in_order =
            matches!(event, Event::Deposed(Reason::Resigned | Reason::Transferred(_) | Reason::Unhealthy));
        if let Some(token) = token.filter(|_| in_order) {
            happenings.push((report.at, Happening::Released(who, token)));
        }
    }
    happenings.extend(over.map(|_| (gone, Happening::Gone(who))));
    happenings
}

/// Leaderships that wrote without a report: their supervisor was killed before it could print it, and had printed
/// nothing else since. They count from their first act to their last.
fn untold(record: &Record, acts: &Acts) -> (Vec<(u64, Happening)>, Vec<Finding>) {
    let mut told = BTreeSet::new();
    for each in record.lives.iter().flat_map(|life| &life.reports) {
        if let Said::Elected { token, .. } = each.said {
            told.insert(token.0);
        }
    }
    let (mut happenings, mut findings) = (Vec::new(), Vec::new());
    for (&token, (node, first, last)) in acts.of.iter().filter(|(token, _)| !told.contains(token)) {
        let life = record.lives.iter().rfind(|life| life.who.node.as_str() == node && life.begun <= *first);
        let Some(life) = life.filter(|life| could_not_tell(life, *first)) else {
            let what = format!("{node} wrote with token {token}, and never told that it leads");
            findings.push(Finding::new(*first, "trace", what));
            continue;
        };
        let valid_until = Instant::from_nanos(*last + 1);
        let mandate = Mandate::Fenced(FencingToken(token));
        // Among peers the token is the term; over a store there are no votes.
        let event = Event::Elected { term: Term(token), mandate, valid_until };
        happenings.push((*first, Happening::Told(life.who, event)));
    }
    (happenings, findings)
}

/// True if an incarnation was killed before it could report a leadership whose job acted at `first`. Reports are
/// printed in order, so a later line would imply the report of the leadership.
fn could_not_tell(life: &IncarnationRecord, first: u64) -> bool {
    life.killed.is_some() && life.words.iter().all(|&at| at <= first.saturating_add(life.within_ns))
}

fn observe(happenings: &[(u64, Happening)], mut invariants: Vec<Box<dyn Invariant>>) -> Vec<Finding> {
    let mut leaderships = LeadershipIntervals::default();
    // All instants are already converted to the machine's clock, which is true time here.
    let clock = Clock::new(Instant::from_nanos(0));
    let mut findings = Vec::new();
    for (at, happening) in happenings {
        let now = Moment::from_nanos(*at);
        let seen = match happening {
            Happening::WorkEnded(who) => {
                leaderships.work_ended(now, *who);
                continue;
            }
            Happening::Gone(who) => {
                leaderships.gone(now, *who);
                Observation::Ended { who: *who }
            }
            Happening::Told(who, event) => {
                // The acts of the job show how long its work went on.
                if let Err(what) = leaderships.told(now, &clock, *who, event, Moment::NEVER) {
                    findings.push(Finding::new(*at, "contract", what));
                }
                Observation::Told { who: *who, event }
            }
            Happening::Released(who, token) => {
                Observation::Said { who: *who, meaning: Meaning::Releases { token: *token } }
            }
            Happening::Accepted(token) => Observation::Accepted { number: token.0 },
        };
        for invariant in &mut invariants {
            if let Err(what) = invariant.observe(now, &seen, &leaderships) {
                findings.push(Finding::new(*at, invariant.name(), what));
            }
        }
    }
    findings
}
