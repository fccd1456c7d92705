//! What nobody can be blamed for: a supervisor and its guardian that were killed or stopped together, and a machine that
//! ran nobody. These are limits that the documents state; what they excuse is counted, and shown in the report.

use super::record::{Record, Said};
use crate::fault::Part;
use crate::notes::{Note, Sent};
use crate::stalls::Stall;

/// From when until when, in nanoseconds of the boot clock.
pub(crate) type Span = (u64, u64);

/// How long those that were stopped may take, when they go on, to end what they should have ended; and the next life of a
/// node, to end what the one before has left.
const GRACE_NS: u64 = 2_000_000_000;
/// A machine that has stood still within the last lease may have kept a guardian from its deadline.
const STALL_REACH_NS: u64 = 1_000_000_000;

/// When each node could not watch over its job, and when the machine stood still.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excuses {
    unguarded: Vec<(String, Span)>,
    stopped: Vec<(String, Span)>,
    stalls: Vec<Span>,
}

impl Excuses {
    /// Those of a record.
    pub(crate) fn of(record: &Record) -> Self {
        let mut excuses = Self::default();
        for name in record.arm.node_names() {
            let supervisor = disabled(record, &name, Part::Supervisor);
            let guardian = disabled(record, &name, Part::Guardian);
            for one in &supervisor {
                for other in &guardian {
                    let both = (one.0.max(other.0), one.1.min(other.1));
                    if both.0 <= both.1 {
                        excuses.unguarded.push((name.clone(), both));
                    }
                }
            }
            let all = [Part::Supervisor, Part::Guardian, Part::Job].map(|part| disabled(record, &name, part));
            excuses.stopped.extend(all.into_iter().flatten().map(|span| (name.clone(), span)));
        }
        let span = |stall: &Stall| (stall.boot_ns.saturating_sub(stall.stall_ns), stall.boot_ns);
        excuses.stalls = record.stalls.iter().map(span).collect();
        excuses
    }

    /// Whether supervisor and guardian of a node were out of action together, at some time from `from` on, so shortly
    /// before `at` that a job of theirs may have been left alone then.
    pub(crate) fn unguarded(&self, node: &str, from: u64, at: u64) -> bool {
        let covers = |span: &Span| span.0 <= at && span.1.saturating_add(GRACE_NS) >= at && span.1 >= from;
        self.unguarded.iter().any(|(name, span)| name == node && covers(span))
    }

    /// Whether any process of a node was stopped or killed between these.
    pub(crate) fn disturbed(&self, node: &str, from: u64, until: u64) -> bool {
        self.stopped.iter().any(|(name, span)| name == node && span.0 <= until && span.1 >= from)
    }

    /// Whether the machine stood still shortly before `at`.
    pub(crate) fn stalled(&self, at: u64) -> bool {
        self.stalls.iter().any(|span| span.0 <= at && span.1.saturating_add(STALL_REACH_NS) >= at)
    }
}

/// When a part of a node was stopped, or was dead and not replaced yet.
fn disabled(record: &Record, node: &str, wanted: Part) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut since: Option<(u64, Sent)> = None;
    let mut signals: Vec<(u64, Option<Sent>)> = Vec::new();
    for noted in &record.notes {
        if let Note::Signal { node: of, part, signal, .. } = &noted.note
            && of == node
            && *part == wanted
        {
            signals.push((noted.boot_ns, Some(*signal)));
        }
        if let Note::Life { node: of, .. } = &noted.note
            && of == node
            && wanted != Part::Guardian
        {
            // A new life has new processes.
            signals.push((noted.boot_ns, None));
        }
    }
    if wanted == Part::Guardian {
        let lives = record.lives.iter().filter(|life| life.who.node.as_str() == node);
        for told in lives.flat_map(|life| &life.told) {
            match told.said {
                Said::Guardian => signals.push((told.at, None)),
                // Its supervisor has killed it, since it did not answer.
                Said::GuardianLost => signals.push((told.at, Some(Sent::Kill))),
                Said::Elected { .. } | Said::Renewed { .. } | Said::Resigning(_) => {}
                Said::Deposed(_) | Said::Violation(_) | Said::Drained { .. } => {}
            }
        }
    }
    signals.sort_by_key(|(at, _)| *at);
    for (at, signal) in signals {
        match (signal, since) {
            (Some(Sent::Stop | Sent::Kill), None) => since = signal.map(|signal| (at, signal)),
            (Some(Sent::Kill), Some((from, _))) => since = Some((from, Sent::Kill)),
            (Some(Sent::Continue), Some((from, Sent::Stop))) | (None, Some((from, _))) => {
                spans.push((from, at));
                since = None;
            }
            (Some(Sent::Stop | Sent::Continue | Sent::Terminate), _) | (None, None) => {}
        }
    }
    spans.extend(since.map(|(from, _)| (from, record.span().1)));
    spans
}
