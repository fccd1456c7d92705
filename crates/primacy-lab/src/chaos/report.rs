//! The report of a run, for people and for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::chaos::fault::{KINDS, Kind};
use crate::chaos::judge::{ClientTally, Exempted, FaultResult, Stalled, Verdict};

/// The maximum number of findings printed for an arm; the files have all.
const FINDINGS_MAX: usize = 20;

/// The report for programs.
#[derive(Debug, Serialize)]
struct Whole<'a> {
    seed: u64,
    outcome: Outcome,
    violations: usize,
    arms: &'a [Verdict],
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Everything was tried, and no rule was broken.
    Passed,
    /// No rule was broken, but this machine cannot inject some of the faults.
    NotRun,
    /// No rule was broken, but the coverage is insufficient for a verdict.
    NotMet,
    /// A rule was broken.
    Broken,
}

/// Returns the worst outcome of these.
pub(crate) fn outcome(verdicts: &[Verdict]) -> Outcome {
    if violations(verdicts) > 0 {
        Outcome::Broken
    } else if verdicts.iter().any(|verdict| !verdict.missing.is_empty()) {
        Outcome::NotMet
    } else if not_run(verdicts).is_empty() {
        Outcome::Passed
    } else {
        Outcome::NotRun
    }
}

/// Returns the report as one JSON object.
pub(crate) fn json(seed: u64, verdicts: &[Verdict]) -> String {
    let violations = violations(verdicts);
    let outcome = outcome(verdicts);
    serde_json::to_string(&Whole { seed, outcome, violations, arms: verdicts }).unwrap_or_default()
}

/// The number of violations in all arms.
pub(crate) fn violations(verdicts: &[Verdict]) -> usize {
    verdicts.iter().map(|verdict| verdict.findings.len()).sum()
}

/// Returns two tables, and the violations.
pub(crate) fn text(seed: u64, verdicts: &[Verdict]) -> String {
    let mut text = format!("Chaos on real processes, seed {seed}\n\n");
    text += &table(&counts(verdicts));
    text +=
        "\nFaults, and the time without a leader at work: took effect of planned, median / longest in ms\n\n";
    let mut rows = vec![vec!["fault".to_owned()]];
    rows[0].extend(verdicts.iter().map(|verdict| verdict.arm.clone()));
    for kind in KINDS {
        let mut row = vec![kind.text().to_owned()];
        row.extend(verdicts.iter().map(|verdict| cell(verdict, *kind)));
        rows.push(row);
    }
    text += &table(&rows);
    text += "\n";
    for verdict in verdicts {
        let _ = writeln!(text, "judged {} by {}", verdict.arm, verdict.judged.join(", "));
    }
    let not_judged: BTreeSet<_> = verdicts.iter().flat_map(|verdict| &verdict.not_judged).collect();
    for (name, reason) in not_judged {
        let _ = writeln!(text, "not judged: {name}: {reason}");
    }
    for (kind, reason) in not_run(verdicts) {
        let _ = writeln!(text, "NOT RUN: {}: {reason}", kind.text());
    }
    let not_watched: BTreeSet<_> =
        verdicts.iter().filter_map(|verdict| verdict.disk_not_watched.as_ref()).collect();
    for reason in not_watched {
        // No fault is missing because of that, and the judge is only stricter.
        let _ = writeln!(text, "NOT RUN: the watch of the disk, so that its stalls excuse nothing: {reason}");
    }
    for verdict in verdicts {
        for missing in &verdict.missing {
            let _ = writeln!(text, "NOT MET in {}: {missing}", verdict.arm);
        }
        for finding in verdict.findings.iter().take(FINDINGS_MAX) {
            let _ = writeln!(
                text,
                "VIOLATION in {}: {} at {}: {}",
                verdict.arm, finding.rule, finding.boot_ns, finding.what
            );
        }
        let more = verdict.findings.len().saturating_sub(FINDINGS_MAX);
        if more > 0 {
            let _ = writeln!(text, "VIOLATION in {}: and {more} more", verdict.arm);
        }
        let mut by_rule: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in &verdict.findings {
            *by_rule.entry(&finding.rule).or_default() += 1;
        }
        // All rules are printed, because a program reads them.
        for (rule, count) in by_rule {
            let _ = writeln!(text, "VIOLATIONS in {}: {rule}: {count}", verdict.arm);
        }
    }
    text
}

/// The first table.
fn counts(verdicts: &[Verdict]) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["counted".to_owned()]];
    rows[0].extend(verdicts.iter().map(|verdict| verdict.arm.clone()));
    for (name, count) in COUNTS {
        let mut row = vec![(*name).to_owned()];
        row.extend(verdicts.iter().map(count));
        rows.push(row);
    }
    let has_clients = verdicts.iter().any(|verdict| verdict.tally.clients.is_some());
    for (name, count) in CLIENT_COUNTS.iter().filter(|_| has_clients) {
        let of = |verdict: &Verdict| verdict.tally.clients.as_ref().map_or_else(|| "n/a".to_owned(), count);
        let mut row = vec![(*name).to_owned()];
        row.extend(verdicts.iter().map(of));
        rows.push(row);
    }
    rows
}

type Count = (&'static str, fn(&Verdict) -> String);

/// The rows of the first table.
const COUNTS: &[Count] = &[
    ("seconds", |verdict| (verdict.millis / 1_000).to_string()),
    ("faults that took effect", |verdict| verdict.faults.values().map(made).sum::<u64>().to_string()),
    ("packets dropped", |verdict| verdict.tally.packets_dropped.to_string()),
    ("lives of nodes", |verdict| verdict.tally.lives.to_string()),
    ("leaderships", |verdict| verdict.tally.leaderships.to_string()),
    ("tokens accepted", |verdict| verdict.tally.tokens_accepted.to_string()),
    ("writes accepted", |verdict| verdict.tally.writes_accepted.to_string()),
    ("stale writes tried", |verdict| verdict.tally.stale_tried.to_string()),
    ("stale writes refused", |verdict| verdict.tally.stale_refused.to_string()),
    ("lock found taken", |verdict| verdict.tally.lock_waits.to_string()),
    ("stalls of a processor, 20 ms or more: count, longest ms", |verdict| stalls(Some(verdict.tally.stalls))),
    ("  share of the run", |verdict| share(Some(verdict.tally.stalls))),
    ("stalls of the disk, 20 ms or more: count, longest ms", |verdict| stalls(verdict.tally.disk_stalls)),
    ("  share of the run", |verdict| share(verdict.tally.disk_stalls)),
    ("excused: count, total / longest ms", |_| String::new()),
    ("  act past the lease, supervisor and guardian out", |verdict| excused(verdict.tally.acts_unguarded)),
    ("  act past the lease, a processor stalled", |verdict| excused(verdict.tally.acts_stalled)),
    ("  act past the lease, guardian out and the disk stalled", |verdict| {
        excused(verdict.tally.acts_disk_stalled)
    }),
    ("  lock longer than the drain, supervisor and guardian out", |verdict| {
        excused(verdict.tally.locks_unguarded)
    }),
    ("  lock longer than the drain, stopped itself", |verdict| excused(verdict.tally.locks_stopped)),
    ("  lock longer than the drain, a processor stalled", |verdict| excused(verdict.tally.locks_stalled)),
    ("  lock longer than the drain, the disk stalled", |verdict| excused(verdict.tally.locks_disk_stalled)),
    ("violations", |verdict| verdict.findings.len().to_string()),
];

type ClientCount = (&'static str, fn(&ClientTally) -> String);

/// Its rows for arms whose nodes serve clients.
const CLIENT_COUNTS: &[ClientCount] = &[
    ("clients: requests", |clients| clients.calls.to_string()),
    ("  writes acknowledged", |clients| clients.writes.to_string()),
    ("  reads answered", |clients| clients.reads.to_string()),
    ("  readings of all at the end", |clients| clients.last_readings.to_string()),
    ("  changes of unknown outcome", |clients| clients.in_doubt.to_string()),
    ("  nodes that answered", |clients| clients.endpoints.to_string()),
    ("  keys, and steps of the checker of their histories", |clients| {
        format!("{}, {}", clients.keys, clients.steps)
    }),
    ("  sessions", |clients| clients.sessions.to_string()),
    ("  sessions that lived while the leader changed", |clients| clients.sessions_over_changes.to_string()),
    ("  sessions let go, and seen to be over", |clients| {
        format!("{}, {}", clients.sessions_let_go, clients.sessions_seen_over)
    }),
];

fn stalls(stalled: Option<Stalled>) -> String {
    stalled.map_or_else(
        || "n/a".to_owned(),
        |stalled| format!("{}, {}", stalled.count, stalled.longest_ns / 1_000_000),
    )
}

fn share(stalled: Option<Stalled>) -> String {
    let Some(Stalled { ppm, .. }) = stalled else { return "n/a".to_owned() };
    let hundredths = ppm / 100;
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn excused(excused: Exempted) -> String {
    let Exempted { count, total_ns, longest_ns } = excused;
    if count == 0 {
        return "0".to_owned();
    }
    format!("{count}, {} / {}", total_ns / 1_000_000, longest_ns / 1_000_000)
}

fn made(row: &FaultResult) -> u64 {
    match row {
        FaultResult::Made { took, .. } => *took as u64,
        FaultResult::NotRun { .. } | FaultResult::NotApplicable => 0,
    }
}

fn cell(verdict: &Verdict, kind: Kind) -> String {
    match verdict.faults.get(&kind) {
        Some(FaultResult::Made { took, .. }) if kind == Kind::FakedClock => format!("{took} lives"),
        Some(FaultResult::Made { planned, took: 0, .. }) => format!("0 of {planned}"),
        Some(FaultResult::Made { planned, took, median_ns, longest_ns }) => {
            format!("{took} of {planned}: {} / {}", median_ns / 1_000_000, longest_ns / 1_000_000)
        }
        Some(FaultResult::NotRun { .. }) => "NOT RUN".to_owned(),
        Some(FaultResult::NotApplicable) | None => "n/a".to_owned(),
    }
}

fn not_run(verdicts: &[Verdict]) -> Vec<(Kind, String)> {
    let mut reasons = Vec::new();
    for (kind, row) in verdicts.iter().flat_map(|verdict| &verdict.faults) {
        if let FaultResult::NotRun { reason } = row {
            reasons.push((*kind, reason.clone()));
        }
    }
    reasons.sort();
    reasons.dedup();
    reasons
}

/// Formats a Markdown table with aligned columns.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text += "|\n";
        if index == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text += "|\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::judge::{Finding, Tally};

    fn verdict() -> Verdict {
        Verdict {
            arm: "peers-3".into(),
            seed: 1,
            millis: 60_000,
            tally: Tally::default(),
            faults: BTreeMap::new(),
            judged: vec!["I1"],
            not_judged: vec![("I4", "no votes")],
            findings: Vec::new(),
            missing: Vec::new(),
            disk_not_watched: None,
        }
    }

    #[test]
    fn a_disk_that_was_not_watched_is_named_and_its_stalls_are_not_told_as_none() {
        let mut watched = verdict();
        let stalled = Stalled { count: 2, total_ns: 90_000_000, ppm: 1_500, longest_ns: 61_000_000 };
        watched.tally.disk_stalls = Some(stalled);
        let row = |text: &str| {
            let at = text.lines().position(|line| line.contains("stalls of the disk")).unwrap();
            text.lines()
                .skip(at)
                .take(2)
                .map(|line| line.split('|').nth(2).unwrap().trim().to_owned())
                .collect()
        };
        let of = |verdict: Verdict| -> Vec<String> { row(&text(1, &[verdict])) };
        assert_eq!(of(watched.clone()), ["2, 61", "0.15 %"]);
        let mut not_watched = verdict();
        not_watched.disk_not_watched = Some("no".into());
        assert_eq!(of(not_watched.clone()), ["n/a", "n/a"]);
        let told = "NOT RUN: the watch of the disk, so that its stalls excuse nothing: no\n";
        assert!(text(1, &[not_watched.clone(), not_watched.clone()]).matches(told).count() == 1);
        assert!(!text(1, &[watched]).contains(told));
        assert_eq!(outcome(&[not_watched]), Outcome::Passed);
    }

    #[test]
    fn what_was_not_run_has_not_passed() {
        let passed = verdict();
        assert_eq!(outcome(&[passed]), Outcome::Passed);
        let mut not_run = verdict();
        not_run.faults.insert(Kind::FakedClock, FaultResult::NotRun { reason: "no library".into() });
        let passed = verdict();
        assert_eq!(outcome(&[passed, not_run.clone()]), Outcome::NotRun);
        assert!(text(1, &[not_run.clone()]).contains("NOT RUN: faked clock, all along: no library\n"));
        assert!(json(1, &[not_run.clone()]).contains(r#""outcome":"not_run""#));
        let mut not_met = verdict();
        not_met.missing.push("the leader never changed".into());
        assert_eq!(outcome(&[not_run.clone(), not_met.clone()]), Outcome::NotMet);
        assert!(text(1, &[not_met.clone()]).contains("NOT MET in peers-3: the leader never changed\n"));
        let mut broken = verdict();
        broken.findings.push(Finding::new(1, "I1", "two"));
        assert_eq!(outcome(&[not_run, not_met, broken]), Outcome::Broken);
    }

    #[test]
    fn every_rule_that_was_broken_is_counted_however_many_findings_there_are() {
        let mut broken = verdict();
        broken.findings = (0..30).map(|at| Finding::new(at, "I3", "two")).collect();
        broken.findings.push(Finding::new(30, "the lock is taken", "a: b"));
        let text = text(1, &[verdict(), broken]);
        assert_eq!(text.matches("VIOLATION in peers-3: I3 at ").count(), FINDINGS_MAX);
        let end = "VIOLATION in peers-3: and 11 more\nVIOLATIONS in peers-3: I3: 30\n\
                   VIOLATIONS in peers-3: the lock is taken: 1\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn what_was_not_judged_is_named() {
        let text = text(1, &[verdict(), verdict()]);
        assert_eq!(text.matches("not judged: I4: no votes\n").count(), 1);
        assert!(text.contains("judged peers-3 by I1\n"));
    }
}
