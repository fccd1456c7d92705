//! Rules beyond the simulator's invariants, which know no processes: no job acts past its lease, the lock is free for
//! a rightful leader, every refused write was stale, and no node or guardian ends without a reason.

use std::collections::BTreeMap;

use super::exemptions::{Exemption, Exemptions, nanos};
use super::record::{IncarnationRecord, Record, Said};
use super::{Finding, Tally};
use crate::chaos::arm::{DRAIN, KILL_MARGIN};
use crate::chaos::event_log::{RunEvent, Sent, TimedEvent};
use crate::chaos::fault::NodeProcess;
use crate::chaos::ledger::{Entry, JobReport, Writer};

/// A leadership, by the reports of its machine.
#[derive(Clone, Copy, Debug)]
struct Leadership {
    elected: u64,
    until: u64,
}

/// Judges the work. A wait for the lock is a violation only if the election guarantees one leader at a time.
pub(crate) fn judge(
    record: &Record,
    exemptions: &Exemptions,
    one_at_a_time: bool,
    tally: &mut Tally,
) -> Vec<Finding> {
    let leaderships = leaderships(record);
    tally.leaderships = told(record).len();
    let mut findings = acts_past_the_lease(record, &leaderships, exemptions, tally);
    let waits = lock(record, &leaderships, exemptions, tally);
    findings.extend(waits.into_iter().filter(|_| one_at_a_time));
    findings.extend(refusals(record, &leaderships, tally));
    findings.extend(ends(record));
    findings.extend(guardians(record));
    findings.extend(stuck(record));
    findings
}

/// The leaderships by token. The end is the last one that the machine reported. Without a report, it is a lease after
/// the first act: the machine counts the lease from before its election.
fn leaderships(record: &Record) -> BTreeMap<u64, Leadership> {
    let mut all = told(record);
    let mut untold: BTreeMap<u64, Leadership> = BTreeMap::new();
    let acts = record.ledger.iter().map(|line| (&line.writer, line.boot_ns));
    for (writer, at) in acts.chain(record.journal.iter().map(|entry| (&entry.writer, entry.boot_ns))) {
        let first = untold.get(&writer.token).map_or(at, |leadership| leadership.elected.min(at));
        let until = first.saturating_add(nanos(record.arm.lease));
        untold.insert(writer.token, Leadership { elected: first, until });
    }
    untold.retain(|token, _| !all.contains_key(token));
    all.append(&mut untold);
    all
}

fn told(record: &Record) -> BTreeMap<u64, Leadership> {
    let mut all: BTreeMap<u64, Leadership> = BTreeMap::new();
    for life in &record.lives {
        let mut current = None;
        for report in &life.reports {
            match report.said {
                Said::Elected { token, until, .. } => {
                    current = Some(token.0);
                    // The end counts as late as the uncertainty allows, because the job is blamed by it.
                    let until = until + 2 * report.within_ns;
                    all.insert(token.0, Leadership { elected: report.at, until });
                }
                Said::Renewed { until } => {
                    if let Some(leadership) = current.and_then(|token| all.get_mut(&token)) {
                        leadership.until = leadership.until.max(until + 2 * report.within_ns);
                    }
                }
                Said::Resigning(_)
                | Said::Deposed(_)
                | Said::Violation(_)
                | Said::Taken { .. }
                | Said::Drained { .. }
                | Said::Guardian
                | Said::GuardianLost
                | Said::NoRoom => {}
            }
        }
    }
    all
}

fn acts_past_the_lease(
    record: &Record,
    leaderships: &BTreeMap<u64, Leadership>,
    exemptions: &Exemptions,
    tally: &mut Tally,
) -> Vec<Finding> {
    let accepted = record.ledger.iter().map(|line| (&line.writer, line.boot_ns, "writes"));
    let told = record.journal.iter().map(|entry| (&entry.writer, entry.boot_ns, "acts"));
    let mut findings: BTreeMap<u64, Finding> = BTreeMap::new();
    // For each leadership and reason: the number of acts, and the lateness of the last one.
    let mut excused: BTreeMap<(u64, Exemption), (usize, u64)> = BTreeMap::new();
    for (writer, at, how) in accepted.chain(told) {
        let Some(leadership) = leaderships.get(&writer.token).filter(|leadership| at >= leadership.until)
        else {
            continue;
        };
        let late_ns = at - leadership.until;
        // The job had to be killed this long before; an exemption must cover that time too, not only the time past the
        // lease.
        let due = leadership.until.saturating_sub(nanos(KILL_MARGIN));
        if let Some(exemption) = exemptions.of_act(&writer.node, due, at) {
            let (count, longest) = excused.entry((writer.token, exemption)).or_default();
            (*count, *longest) = (*count + 1, (*longest).max(late_ns));
        } else {
            let what = format!(
                "process {} of {} {how} with token {}, {} µs after the end of its lease",
                writer.pid,
                writer.node,
                writer.token,
                late_ns / 1_000
            );
            findings.entry(writer.token).or_insert_with(|| Finding::new(at, "acts past its lease", what));
        }
    }
    for ((_, exemption), (count, late_ns)) in excused {
        match exemption {
            Exemption::Unguarded => tally.acts_unguarded.add(count, late_ns),
            Exemption::Stopped => unreachable!("`of_act` gives no such reason: a stopped job does not act"),
            Exemption::Stalled => tally.acts_stalled.add(count, late_ns),
            Exemption::DiskStalled => tally.acts_disk_stalled.add(count, late_ns),
        }
    }
    findings.into_values().collect()
}

/// A leader must find the lock free within the drain time, because the previous holder must be gone by then. The wait
/// counts from the first to the last time at which the lock was found taken: a job delayed by its disk may retry much
/// later.
fn lock(
    record: &Record,
    leaderships: &BTreeMap<u64, Leadership>,
    exemptions: &Exemptions,
    tally: &mut Tally,
) -> Vec<Finding> {
    let mut waits: BTreeMap<&Writer, (&Entry, &Entry)> = BTreeMap::new();
    for entry in record.journal.iter().filter(|entry| matches!(entry.report, JobReport::Waits { .. })) {
        waits.entry(&entry.writer).and_modify(|(_, last)| *last = entry).or_insert((entry, entry));
    }
    tally.lock_waits = waits.len();
    let mut findings = Vec::new();
    for (writer, (entry, last)) in waits {
        // The holder may have been writing its name during the first attempt.
        let named = |entry: &'_ Entry| match &entry.report {
            JobReport::Waits { holder } => holder.clone(),
            JobReport::Began
            | JobReport::Locked
            | JobReport::Grandchild
            | JobReport::Refused { .. }
            | JobReport::Failed { .. } => None,
        };
        let holder = named(entry).or_else(|| named(last));
        let lease_ends = leaderships.get(&writer.token).map_or(u64::MAX, |leadership| leadership.until);
        let until = last.boot_ns.min(lease_ends);
        let late_ns = until.saturating_sub(entry.boot_ns).saturating_sub(nanos(DRAIN));
        if late_ns == 0 {
            continue;
        }
        let alone = holder.as_ref().map(|holder| holder.node.as_str());
        let exemption = exemptions.of_wait(alone, &writer.node, (entry.boot_ns, until), late_ns);
        if let Some(exemption) = exemption {
            let excused = match exemption {
                Exemption::Unguarded => &mut tally.locks_unguarded,
                Exemption::Stopped => &mut tally.locks_stopped,
                Exemption::Stalled => &mut tally.locks_stalled,
                Exemption::DiskStalled => &mut tally.locks_disk_stalled,
            };
            excused.add(1, late_ns);
        } else {
            let what = format!(
                "{} leads with token {} and waits {} ms for the lock that {holder:?} has",
                writer.node,
                writer.token,
                (until - entry.boot_ns) / 1_000_000
            );
            findings.push(Finding::new(entry.boot_ns, "the lock is taken", what));
        }
    }
    findings
}

/// A refused write must have been stale: a higher token must have been given before.
fn refusals(record: &Record, leaderships: &BTreeMap<u64, Leadership>, tally: &mut Tally) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in &record.journal {
        match &entry.report {
            JobReport::Refused { highest } => {
                tally.stale_refused += 1;
                let given =
                    leaderships.get(highest).is_some_and(|leadership| leadership.elected <= entry.boot_ns);
                if entry.writer.token >= *highest || !given {
                    let what = format!("{:?} was refused, for {highest} had been there", entry.writer);
                    findings.push(Finding::new(entry.boot_ns, "a write was refused and not stale", what));
                }
            }
            JobReport::Failed { error } => {
                findings.push(Finding::new(entry.boot_ns, "the ledger failed", error.clone()));
            }
            JobReport::Began | JobReport::Waits { .. } | JobReport::Locked | JobReport::Grandchild => {}
        }
    }
    findings
}

/// The exit codes of a process killed by a signal: 128 plus its number.
const BY_SIGKILL: i32 = 137;
const BY_SIGTERM: i32 = 143;
/// The exit codes of `primacy run` if its state or its store is unusable, as with a full disk or without the server.
const NO_STORE: [i32; 2] = [74, 69];
/// The time for which a full disk still explains an end after it has space again, and an unreachable store after it is back.
const STORE_REACH_NS: u64 = 2_000_000_000;

fn ends(record: &Record) -> Vec<Finding> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for event in &record.events {
        match &event.event {
            RunEvent::Disk { full: true } => out.push((event.boot_ns, u64::MAX)),
            RunEvent::Fault { kind, .. } if kind.is_of_store() => out.push((event.boot_ns, u64::MAX)),
            RunEvent::Disk { full: false } | RunEvent::Healed { .. } => {
                for span in out.iter_mut().filter(|span| span.1 == u64::MAX) {
                    span.1 = event.boot_ns + STORE_REACH_NS;
                }
            }
            RunEvent::Run { .. }
            | RunEvent::Incarnation { .. }
            | RunEvent::Ended { .. }
            | RunEvent::Fault { .. } => {}
            RunEvent::Took { .. }
            | RunEvent::Well { .. }
            | RunEvent::Stuck { .. }
            | RunEvent::Failed { .. } => {}
            RunEvent::Signal { .. } | RunEvent::Left { .. } | RunEvent::Clock { .. } | RunEvent::End => {}
        }
    }
    let of_store = |at: u64| out.iter().any(|span| (span.0..=span.1).contains(&at));
    let unexplained = |life: &&IncarnationRecord| match life.ended {
        None => false,
        Some((_, BY_SIGKILL)) => life.killed.is_none(),
        Some((_, BY_SIGTERM)) => !life.told_to_end,
        Some((at, code)) => !(NO_STORE.contains(&code) && of_store(at)),
    };
    let finding = |life: &IncarnationRecord| {
        let (at, code) = life.ended.unwrap_or_default();
        Finding::new(at, "an end without a reason", format!("{} ended with exit code {code}", life.who))
    };
    record.lives.iter().filter(unexplained).map(finding).collect()
}

/// Checks that a guardian is lost only by a signal of the run, or because it did not answer its supervisor while the machine
/// stalled.
fn guardians(record: &Record) -> Vec<Finding> {
    let mut findings = Vec::new();
    if record.arm.unkillable || record.arm.crowd > 0 {
        // A guardian that cannot end its job, or must kill hundreds of processes, does not answer in time either, and
        // its supervisor takes over.
        return findings;
    }
    for life in &record.lives {
        let mut since = life.begun;
        for report in &life.reports {
            match report.said {
                Said::Guardian => since = report.at,
                Said::GuardianLost => {
                    let (from, node) =
                        (report.at.saturating_sub(nanos(record.arm.lease)), life.who.node.as_str());
                    let mut signals = record.events.iter().filter_map(|event| match &event.event {
                        RunEvent::Signal { node: of, part: NodeProcess::Guardian, signal, .. }
                            if of == node =>
                        {
                            Some((event.boot_ns, *signal))
                        }
                        RunEvent::Signal { .. }
                        | RunEvent::Run { .. }
                        | RunEvent::Incarnation { .. }
                        | RunEvent::Ended { .. } => None,
                        RunEvent::Fault { .. }
                        | RunEvent::Took { .. }
                        | RunEvent::Healed { .. }
                        | RunEvent::Well { .. } => None,
                        RunEvent::Stuck { .. } | RunEvent::Failed { .. } | RunEvent::Disk { .. } => None,
                        RunEvent::Left { .. } | RunEvent::Clock { .. } | RunEvent::End => None,
                    });
                    let last = signals.rfind(|(at, _)| (since..=report.at).contains(at));
                    let signalled = last.is_some_and(|(at, signal)| signal != Sent::Continue || at >= from);
                    // The stall may have ended only after the guardian was given up.
                    let stalled = record.stalls.iter().any(|stall| {
                        stall.boot_ns >= from && stall.boot_ns.saturating_sub(stall.stall_ns) <= report.at
                    });
                    if !signalled && !stalled {
                        let what = format!("that of {} is lost, and nobody has touched it", life.who);
                        findings.push(Finding::new(report.at, "a guardian ended without a reason", what));
                    }
                }
                Said::Elected { .. } | Said::Renewed { .. } | Said::Resigning(_) | Said::NoRoom => {}
                Said::Deposed(_) | Said::Violation(_) | Said::Taken { .. } | Said::Drained { .. } => {}
            }
        }
    }
    findings
}

fn stuck(record: &Record) -> Vec<Finding> {
    let finding = |event: &TimedEvent| {
        let (rule, step, what) = match &event.event {
            RunEvent::Stuck { step, what } => ("stuck", step, what),
            RunEvent::Failed { step, what } => ("a command failed", step, what),
            RunEvent::Run { .. }
            | RunEvent::Incarnation { .. }
            | RunEvent::Ended { .. }
            | RunEvent::Fault { .. } => return None,
            RunEvent::Took { .. }
            | RunEvent::Healed { .. }
            | RunEvent::Well { .. }
            | RunEvent::Signal { .. } => return None,
            RunEvent::Left { .. } | RunEvent::Disk { .. } | RunEvent::Clock { .. } | RunEvent::End => {
                return None;
            }
        };
        Some(Finding::new(event.boot_ns, rule, format!("after step {step}: {what}")))
    };
    record.events.iter().filter_map(finding).collect()
}
