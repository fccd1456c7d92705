//! The exemptions for lateness: a supervisor and its guardian that were killed or stopped together, and a machine
//! that did not run a ready process, or read nothing from its disk. The documents state these limits. An exemption is
//! limited: the lateness must not exceed the time for which its reasons held in the relevant span, each nanosecond
//! counted once. Exempted lateness is counted, and shown in the report.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use super::record::{IncarnationRecord, Record, Said};
use crate::chaos::event_log::{RunEvent, Sent};
use crate::chaos::fault::NodeProcess;
use crate::chaos::stalls::{self, STALL_MIN, Stall};

/// A span of time: begin and end, in nanoseconds of the boot clock.
pub(crate) type Span = (u64, u64);

/// The longest time from the start of a node's next incarnation until it has ended the remains of the earlier one. It
/// waits up to a drain and a second for a guardian that is still alive, after the start of its process.
const TAKEOVER_MAX_NS: u64 = 2_000_000_000;

/// The time to kill one of many processes without a control group on a busy machine, which restarted nodes still
/// need. Nodes report when it exceeds their margin.
const KILL_NS: u64 = 1_000_000;

/// The reason for an exemption, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exemption {
    /// Supervisor and guardian were both out of action.
    Unguarded,
    /// The run itself had stopped the late process.
    Stopped,
    /// A processor did not run a ready process.
    Stalled,
    /// The disk answered no request: this blocks a process that writes, and a supervisor that acts for its guardian,
    /// because a part of its program may have to be read again. A guardian has in memory all that it needs.
    DiskStalled,
}

/// The lateness exempted for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Exempted {
    /// The number of times.
    pub(crate) count: usize,
    /// The total lateness; of the acts of one leadership, only the last one counts.
    pub(crate) total_ns: u64,
    /// The greatest lateness.
    pub(crate) longest_ns: u64,
}

/// The times at which each node could not supervise its job, and at which the machine stalled.
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
    /// Collects the exemptions of a record.
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

    /// Returns the reason for which a job of `node` that had to be killed by `due` may still act at `at`.
    ///
    /// The kill itself takes no time, so the reasons must have held for the whole time from `due` on, except for one
    /// stall that is too short to be recorded: after the last recorded one, the killing process must still be
    /// scheduled.
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

    /// Returns the reason for which a job of `waiter` may wait for a lock of a job of `holder`, `late_ns` longer than a drain,
    /// during `wait`.
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

    /// The total time of the stalls of a resource, each nanosecond counted once.
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

/// The intersection of two spans.
fn both(one: Span, other: Span) -> Option<Span> {
    let both = (one.0.max(other.0), one.1.min(other.1));
    (both.0 <= both.1).then_some(both)
}

fn of(spans: &[(String, Span)], node: &str) -> Vec<Span> {
    spans.iter().filter(|(name, _)| name == node).map(|(_, span)| *span).collect()
}

/// Returns the first reason that covers the lateness, together with those before it.
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

/// The time within `within` that these spans cover together, in nanoseconds.
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

/// The spans in which a process of a node was stopped, or dead and not yet replaced.
fn disabled(record: &Record, node: &str, wanted: NodeProcess) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut since: Option<(u64, Sent)> = None;
    let mut signals: Vec<(u64, Option<Sent>)> = Vec::new();
    for event in &record.events {
        match &event.event {
            RunEvent::Signal { node: of, part, signal, .. } if of == node && *part == wanted => {
                signals.push((event.boot_ns, Some(*signal)));
            }
            // A node that was replaced has no job to supervise.
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
                // Its supervisor has killed it, because it did not answer.
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

/// The spans for which these signals stopped a process.
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

/// Returns the time at which an incarnation had ended the remains of the previous one: it prints nothing before that,
/// and takes longer if it is stopped meanwhile. `None` if it never did.
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
