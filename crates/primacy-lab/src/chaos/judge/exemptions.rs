//! The exemptions for lateness: a supervisor and its guardian that were killed or stopped together, and a machine that did not run a process
//! that was due, or fetched nothing from its disk. These are limits that the documents state. An exemption has a size: something may be late
//! by no longer than these held in the time in question, each nanosecond counted once; what it exempts is counted, and shown in the report.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use super::record::{IncarnationRecord, Record, Said};
use crate::chaos::event_log::{RunEvent, Sent};
use crate::chaos::fault::NodeProcess;
use crate::chaos::stalls::{self, STALL_MIN, Stall};

/// A span of time: from and until, in nanoseconds of the boot clock.
pub(crate) type Span = (u64, u64);

/// The longest time from the start of a node's next incarnation until it has ended what the earlier one has left. It waits up to a drain
/// and a second for a guardian that still lives, and must be started before that.
const TAKEOVER_MAX_NS: u64 = 2_000_000_000;

/// The time that it takes to kill one of many processes, where there is no control group, on a machine that does much else: nodes that run
/// again still have to do that. Nodes report when it is more than their margin.
const KILL_NS: u64 = 1_000_000;

/// The reason why something may be late. Of two that both hold, the first one here is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exemption {
    /// Supervisor and guardian were out of action together.
    Unguarded,
    /// The run itself had stopped the late process.
    Stopped,
    /// A processor did not run a process that was due.
    Stalled,
    /// The disk answered no request: a process that writes is blocked, and so is a supervisor that acts for its guardian, for a part of its
    /// program may have to be read again. A guardian has in memory what it needs.
    DiskStalled,
}

/// The lateness that was excused by one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Exempted {
    /// The number of times.
    pub(crate) count: usize,
    /// The total lateness; of the acts of one leadership, only that of the last one.
    pub(crate) total_ns: u64,
    /// The greatest lateness.
    pub(crate) longest_ns: u64,
}

/// The times when each node could not watch over its job, and when the machine stalled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exemptions {
    unguarded: Vec<(String, Span)>,
    without_guardian: Vec<(String, Span)>,
    stopped: Vec<(String, Span)>,
    stalls: Vec<Span>,
    disk_stalls: Vec<Span>,
}

impl Exempted {
    /// Adds the lateness of `count` events.
    pub(crate) fn add(&mut self, count: usize, late_ns: u64) {
        self.count += count;
        self.total_ns = self.total_ns.saturating_add(late_ns);
        self.longest_ns = self.longest_ns.max(late_ns);
    }
}

impl Exemptions {
    /// The exemptions in a record.
    pub(crate) fn of(record: &Record) -> Self {
        let mut exemptions = Self::default();
        let kill = KILL_NS.saturating_mul(u64::from(record.arm.crowd));
        let names: BTreeSet<&str> = record.lives.iter().map(|life| life.who.node.as_str()).collect();
        for name in names.into_iter().map(str::to_owned) {
            let supervisor = disabled(record, &name, NodeProcess::Supervisor);
            let guardian = disabled(record, &name, NodeProcess::Guardian);
            for one in &supervisor {
                for other in &guardian {
                    let span = both(*one, *other).map(|(from, until)| (from, until.saturating_add(kill)));
                    exemptions.unguarded.extend(span.map(|span| (name.clone(), span)));
                }
            }
            let job = disabled(record, &name, NodeProcess::Job);
            exemptions.stopped.extend(job.into_iter().map(|span| (name.clone(), span)));
            exemptions.without_guardian.extend(guardian.into_iter().map(|span| (name.clone(), span)));
        }
        let span = |stall: &Stall| (stall.boot_ns.saturating_sub(stall.stall_ns), stall.boot_ns);
        for stall in &record.stalls {
            match stall.of {
                stalls::StalledResource::Processor => exemptions.stalls.push(span(stall)),
                stalls::StalledResource::Disk => exemptions.disk_stalls.push(span(stall)),
            }
        }
        exemptions
    }

    /// Returns why a job of `node`, which had to be killed when `due`, may still act `at` a later time.
    ///
    /// The kill itself takes no time that counts; so these must have held all the time from `due` on, or it would have been done. But for
    /// one stall that is too short to be recorded: when the last of them is over, the process that kills still has to be scheduled.
    pub(crate) fn of_act(&self, node: &str, due: u64, at: u64) -> Option<Exemption> {
        let without_guardian = of(&self.without_guardian, node);
        let disk_stalls = self
            .disk_stalls
            .iter()
            .flat_map(|stall| without_guardian.iter().filter_map(|out| both(*stall, *out)));
        let reasons = [
            (Exemption::Unguarded, of(&self.unguarded, node)),
            (Exemption::Stalled, self.stalls.clone()),
            (Exemption::DiskStalled, disk_stalls.collect()),
        ];
        enough(reasons, (due, at), at.saturating_sub(due).saturating_sub(nanos(STALL_MIN)))
    }

    /// Returns why a job of `waiter` may wait for a lock that a job of `holder` has, `late_ns` longer than a drain, in `wait`.
    pub(crate) fn of_wait(
        &self,
        holder: Option<&str>,
        waiter: &str,
        wait: Span,
        late_ns: u64,
    ) -> Option<Exemption> {
        let unguarded = holder.map_or_else(Vec::new, |holder| of(&self.unguarded, holder));
        let reasons = [
            (Exemption::Unguarded, unguarded),
            (Exemption::Stopped, of(&self.stopped, waiter)),
            (Exemption::Stalled, self.stalls.clone()),
            (Exemption::DiskStalled, self.disk_stalls.clone()),
        ];
        enough(reasons, wait, late_ns)
    }

    /// The total time of these stalls, each nanosecond counted once.
    pub(crate) fn stalled_ns(&self, of: stalls::StalledResource) -> u64 {
        let spans = match of {
            stalls::StalledResource::Processor => &self.stalls,
            stalls::StalledResource::Disk => &self.disk_stalls,
        };
        length(spans, (0, u64::MAX))
    }
}

/// The duration in nanoseconds, as the clocks count.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The span in which both held.
fn both(one: Span, other: Span) -> Option<Span> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 <= both.1).then_some(both)
}

fn of(spans: &[(String, Span)], node: &str) -> Vec<Span> {
    spans.iter().filter(|(name, _)| name == node).map(|(_, span)| *span).collect()
}

/// The first reason that is long enough, together with those before it.
fn enough<const COUNT: usize>(
    reasons: [(Exemption, Vec<Span>); COUNT],
    within: Span,
    late_ns: u64,
) -> Option<Exemption> {
    let mut spans = Vec::new();
    reasons.into_iter().find_map(|(exemption, more)| {
        spans.extend(more);
        let held = length(&spans, within);
        (held > 0 && held >= late_ns).then_some(exemption)
    })
}

/// The time for which any of these spans held within another, in nanoseconds.
pub(crate) fn length(spans: &[Span], within: Span) -> u64 {
    let clipped = spans.iter().map(|span| (span.0.max(within.0), span.1.min(within.1)));
    let mut clipped: Vec<Span> = clipped.filter(|span| span.0 < span.1).collect();
    clipped.sort_unstable();
    let (mut sum, mut counted) = (0, 0);
    for (from, until) in clipped {
        sum += until.saturating_sub(from.max(counted));
        counted = counted.max(until);
    }
    sum
}

/// The spans in which a part of a node was stopped, or was dead and not replaced yet.
fn disabled(record: &Record, node: &str, wanted: NodeProcess) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut since: Option<(u64, Sent)> = None;
    let mut signals: Vec<(u64, Option<Sent>)> = Vec::new();
    for event in &record.events {
        match &event.event {
            RunEvent::Signal { node: of, part, signal, .. } if of == node && *part == wanted => {
                signals.push((event.boot_ns, Some(*signal)));
            }
            // There is nothing left of it to watch over.
            RunEvent::Left { node: of } if of == node => signals.push((event.boot_ns, None)),
            RunEvent::Signal { .. }
            | RunEvent::Left { .. }
            | RunEvent::Run { .. }
            | RunEvent::Incarnation { .. } => {}
            RunEvent::Ended { .. }
            | RunEvent::Fault { .. }
            | RunEvent::Took { .. }
            | RunEvent::Healed { .. } => {}
            RunEvent::Well { .. } | RunEvent::Stuck { .. } | RunEvent::Failed { .. } => {}
            RunEvent::Disk { .. } | RunEvent::Clock { .. } | RunEvent::End => {}
        }
    }
    let lives = record.lives.iter().filter(|life| life.who.node.as_str() == node);
    match wanted {
        NodeProcess::Supervisor => {
            let stops = stops(&signals);
            signals.extend(lives.filter_map(|life| takeover(life, &stops)).map(|at| (at, None)));
        }
        NodeProcess::Job => signals.extend(lives.map(|life| (life.begun, None))),
        NodeProcess::Guardian => {
            signals.extend(lives.flat_map(|life| &life.reports).filter_map(|report| match report.said {
                Said::Guardian => Some((report.at, None)),
                // Its supervisor has killed it, since it did not answer.
                Said::GuardianLost => Some((report.at, Some(Sent::Kill))),
                Said::Elected { .. } | Said::Renewed { .. } | Said::Resigning(_) => None,
                Said::Deposed(_) | Said::Violation(_) | Said::NoRoom => None,
                Said::Taken { .. } | Said::Drained { .. } => None,
            }))
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

/// The times for which these signals have stopped a process.
fn stops(signals: &[(u64, Option<Sent>)]) -> Vec<Span> {
    let (mut stops, mut since) = (Vec::new(), None);
    for (at, signal) in signals {
        match signal {
            Some(Sent::Stop) => since = since.or(Some(*at)),
            Some(Sent::Continue | Sent::Kill) => stops.extend(since.take().map(|from| (from, *at))),
            Some(Sent::Terminate) | None => {}
        }
    }
    stops
}

/// The time when an incarnation had ended what the one before it had left: it prints nothing before, and an incarnation that is stopped
/// meanwhile takes longer. None if it did not come to that.
fn takeover(life: &IncarnationRecord, stops: &[Span]) -> Option<u64> {
    let first = life.words.first().copied().unwrap_or(u64::MAX);
    let stopped = length(stops, (life.begun, first));
    let latest = life.begun.saturating_add(TAKEOVER_MAX_NS).saturating_add(stopped);
    let over = life.killed.or(life.ended.map(|(at, _)| at));
    match life.words.first() {
        Some(&first) => Some(first.clamp(life.begun, latest)),
        None => over.is_none_or(|over| over > latest).then_some(latest),
    }
}
