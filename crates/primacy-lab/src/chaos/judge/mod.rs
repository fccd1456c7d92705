//! The judge: reads the files of a run of an arm, and reports the violations. It needs no running process, so a run
//! can be judged again from its files at any time.

mod checked_invariants;
#[cfg(test)]
mod client_tests;
mod clients;
mod clocks;
mod coverage;
mod exemptions;
mod gaps;
mod history;
mod keys;
mod record;
mod sessions;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use self::checked_invariants::CheckedInvariants;
pub(crate) use self::clients::Tally as ClientTally;
pub(crate) use self::exemptions::Exempted;
use self::exemptions::Exemptions;
use self::gaps::Made;
use self::record::Record;
use crate::chaos::event_log::{RunEvent, TimedEvent};
use crate::chaos::fault::{KINDS, Kind};
use crate::chaos::stalls::{DiskWatch, StalledResource};
use primacy_testbed::run_error::RunError;

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The time, in nanoseconds of the machine's boot clock.
    pub(crate) boot_ns: u64,
    /// The broken rule: the name of an invariant of the simulator, or a sentence.
    pub(crate) rule: String,
    /// The details.
    pub(crate) what: String,
}

/// The counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Leaderships that a machine reported to its application.
    pub(crate) leaderships: usize,
    /// Different tokens that the ledger has accepted.
    pub(crate) tokens_accepted: usize,
    /// Different nodes whose writes the ledger has accepted.
    pub(crate) leaders: usize,
    /// Writes that the ledger has accepted.
    pub(crate) writes_accepted: usize,
    /// Writes with a token below the highest that the ledger had seen.
    pub(crate) stale_tried: usize,
    /// Writes that the fence has refused.
    pub(crate) stale_refused: usize,
    /// Jobs that found the lock taken.
    pub(crate) lock_waits: usize,
    /// Of these, jobs that waited longer than the drain for a job whose supervisor and guardian were both out of action.
    pub(crate) locks_unguarded: Exempted,
    /// Of these, jobs that waited longer because they were stopped themselves.
    pub(crate) locks_stopped: Exempted,
    /// Of these, jobs that waited longer while a processor did not run a ready process.
    pub(crate) locks_stalled: Exempted,
    /// Of these, jobs that waited longer while the disk answered no request.
    pub(crate) locks_disk_stalled: Exempted,
    /// Late acts of jobs whose supervisor and guardian were both out of action.
    pub(crate) acts_unguarded: Exempted,
    /// Late acts of jobs that should have been killed while a processor did not run a ready process.
    pub(crate) acts_stalled: Exempted,
    /// Late acts of jobs that a supervisor without its guardian should have killed while the disk answered no request.
    pub(crate) acts_disk_stalled: Exempted,
    /// Packets between nodes that were dropped.
    pub(crate) packets_dropped: u64,
    /// Incarnations of supervisors.
    pub(crate) lives: usize,
    /// The counts of clients' requests, if the nodes serve clients.
    pub(crate) clients: Option<ClientTally>,
    /// Stalls of a processor: 20 ms or more for which it did not run a ready process.
    pub(crate) stalls: Stalled,
    /// Stalls of the disk: 20 ms or more for which it answered no request; `None` if it was not watched.
    pub(crate) disk_stalls: Option<Stalled>,
}

/// The stalls of one resource during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Stalled {
    /// The number of stalls.
    pub(crate) count: usize,
    /// The total time, each nanosecond counted once.
    pub(crate) total_ns: u64,
    /// The stalled share of the run, in parts per million.
    pub(crate) ppm: u64,
    /// The longest of these.
    pub(crate) longest_ns: u64,
}

/// The result of one kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(crate) enum FaultResult {
    /// It was planned, or could have been.
    Made {
        /// The number of planned faults.
        planned: usize,
        /// The number of faults that took effect.
        took: usize,
        /// The median, over these faults, of the longest time without a working leader.
        median_ns: u64,
        /// The longest time of all.
        longest_ns: u64,
    },
    /// This machine cannot inject it.
    NotRun {
        /// The reason.
        reason: String,
    },
    /// The fault does not apply to this arm.
    NotApplicable,
}

/// The judgement of a run of an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// The arm.
    pub(crate) arm: String,
    /// The seed of the run.
    pub(crate) seed: u64,
    /// The duration of the run, in milliseconds.
    pub(crate) millis: u64,
    /// The counts.
    pub(crate) tally: Tally,
    /// The result for every kind of fault.
    pub(crate) faults: BTreeMap<Kind, FaultResult>,
    /// The simulator's invariants by which the run was judged.
    pub(crate) judged: Vec<&'static str>,
    /// The other invariants of the election, with the reasons why the files are no evidence for them.
    pub(crate) not_judged: Vec<(&'static str, &'static str)>,
    /// The violations, in the order of time.
    pub(crate) findings: Vec<Finding>,
    /// The missing coverage.
    pub(crate) missing: Vec<String>,
    /// The reason why the disk was not watched, in which case its stalls exempt nothing.
    pub(crate) disk_not_watched: Option<String>,
}

impl Finding {
    /// A finding.
    pub(crate) fn new(boot_ns: u64, rule: &str, what: impl Into<String>) -> Self {
        Self { boot_ns, rule: rule.to_owned(), what: what.into() }
    }
}

/// Judges the files of an arm.
///
/// # Errors
/// [`RunError`] if they are incomplete; a run that cannot be judged has not passed.
pub(crate) fn judge(dir: &Path) -> Result<Verdict, RunError> {
    Ok(verdict(&Record::read(dir)?))
}

fn verdict(record: &Record) -> Verdict {
    let exemptions = Exemptions::of(record);
    let mut tally = count(record);
    let promised = CheckedInvariants::by(&record.arm);
    let one_at_a_time = promised.one_at_a_time();
    let CheckedInvariants { judged, not_judged } = promised;
    let mut names: Vec<&str> = judged.iter().map(|invariant| invariant.name()).collect();
    let mut findings = history::judge(record, judged);
    findings.extend(work::judge(record, &exemptions, one_at_a_time, &mut tally));
    let (of_clients, more) = clients::judge(record);
    tally.clients = of_clients;
    names.extend(tally.clients.iter().flat_map(|_| clients::RULES));
    findings.extend(more);
    findings.sort_by_key(|finding| finding.boot_ns);
    let (from, until) = record.span();
    let took_ns = until.saturating_sub(from);
    tally.stalls = stalled(record, &exemptions, took_ns, StalledResource::Processor);
    let disk_not_watched = match &record.disk {
        DiskWatch::Watched => {
            tally.disk_stalls = Some(stalled(record, &exemptions, took_ns, StalledResource::Disk));
            None
        }
        DiskWatch::NotWatched { reason } => Some(reason.clone()),
    };
    let (millis, faults) = (took_ns / 1_000_000, rows(record));
    Verdict {
        arm: record.arm.name.to_owned(),
        seed: record.seed,
        millis,
        judged: names,
        not_judged,
        findings,
        missing: coverage::missing(millis, record.arm.nodes, &tally, &faults),
        faults,
        tally,
        disk_not_watched,
    }
}

fn stalled(record: &Record, exemptions: &Exemptions, took_ns: u64, of: StalledResource) -> Stalled {
    let lengths = || record.stalls.iter().filter(|stall| stall.of == of).map(|stall| stall.stall_ns);
    let total_ns = exemptions.stalled_ns(of);
    let share = u128::from(total_ns) * 1_000_000 / u128::from(took_ns.max(1));
    Stalled {
        count: lengths().count(),
        total_ns,
        ppm: u64::try_from(share).unwrap_or(u64::MAX),
        longest_ns: lengths().max().unwrap_or(0),
    }
}

fn count(record: &Record) -> Tally {
    let mut tokens: Vec<u64> = record.ledger.iter().map(|line| line.writer.token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let leaders: BTreeSet<&str> = record.ledger.iter().map(|line| line.writer.node.as_str()).collect();
    let mut highest = 0;
    let mut late = 0;
    for line in &record.ledger {
        late += usize::from(line.writer.token < highest);
        highest = highest.max(line.writer.token);
    }
    let refused = |entry: &&crate::chaos::ledger::Entry| {
        matches!(entry.report, crate::chaos::ledger::JobReport::Refused { .. })
    };
    Tally {
        tokens_accepted: tokens.len(),
        leaders: leaders.len(),
        writes_accepted: record.ledger.len(),
        stale_tried: late + record.journal.iter().filter(refused).count(),
        packets_dropped: record
            .events
            .iter()
            .map(|event| if let RunEvent::Healed { dropped, .. } = event.event { dropped } else { 0 })
            .sum(),
        lives: record.lives.len(),
        ..Tally::default()
    }
}

fn rows(record: &Record) -> BTreeMap<Kind, FaultResult> {
    let made = gaps::by_kind(record);
    let row = |&kind: &Kind| {
        let reason =
            record.not_run.iter().find(|(not_run, _)| *not_run == kind).map(|(_, reason)| reason.clone());
        let row = match reason {
            Some(_) | None if !record.arm.knows(kind) => FaultResult::NotApplicable,
            Some(reason) => FaultResult::NotRun { reason },
            None if kind == Kind::FakedClock => {
                let of_node = |event: &&TimedEvent| matches!(&event.event, RunEvent::Incarnation { node, .. } if Some(node) == record.faked.as_ref());
                // Counted once for each incarnation under the faked clock. No gap is measured, because the clock is
                // faked for the whole run.
                let lives = record.events.iter().filter(of_node).count();
                FaultResult::Made { planned: lives, took: lives, median_ns: 0, longest_ns: 0 }
            }
            None => {
                let Made { planned, gaps } = made.get(&kind).cloned().unwrap_or_default();
                let longest_ns = gaps.iter().copied().max().unwrap_or(0);
                FaultResult::Made { planned, took: gaps.len(), median_ns: gaps::median(&gaps), longest_ns }
            }
        };
        (kind, row)
    };
    KINDS.iter().map(row).collect()
}
