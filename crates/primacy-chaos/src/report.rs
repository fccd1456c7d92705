//! The table of a run, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::fault::{KINDS, Kind};
use crate::judge::{Excused, Row, Tally, Verdict};

/// How many findings of an arm are printed; the files have them all.
const FINDINGS_MAX: usize = 20;

/// What programs are told.
#[derive(Debug, Serialize)]
struct Whole<'a> {
    seed: u64,
    violations: usize,
    arms: &'a [Verdict],
}

/// One JSON object.
pub(crate) fn json(seed: u64, verdicts: &[Verdict]) -> String {
    let violations = violations(verdicts);
    serde_json::to_string(&Whole { seed, violations, arms: verdicts }).unwrap_or_default()
}

/// How much was broken, in all arms.
pub(crate) fn violations(verdicts: &[Verdict]) -> usize {
    verdicts.iter().map(|verdict| verdict.findings.len()).sum()
}

/// Two tables, and what was broken.
pub(crate) fn text(seed: u64, verdicts: &[Verdict]) -> String {
    let mut text = format!("Chaos on real processes, seed {seed}\n\n");
    let mut header = vec!["counted".to_owned()];
    header.extend(verdicts.iter().map(|verdict| verdict.arm.clone()));
    let mut rows = vec![header];
    for (name, count) in COUNTS {
        let mut row = vec![(*name).to_owned()];
        row.extend(verdicts.iter().map(count));
        rows.push(row);
    }
    text += &table(&rows);
    text += "\nFaults, and the time without a leader at work: how often, median / longest in ms\n\n";
    let mut rows = vec![vec!["fault".to_owned()]];
    rows[0].extend(verdicts.iter().map(|verdict| verdict.arm.clone()));
    for kind in KINDS {
        let mut row = vec![kind.text().to_owned()];
        row.extend(verdicts.iter().map(|verdict| cell(verdict, *kind)));
        rows.push(row);
    }
    text += &table(&rows);
    for (kind, reason) in not_run(verdicts) {
        let _ = writeln!(text, "NOT RUN: {}: {reason}", kind.text());
    }
    for verdict in verdicts {
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
    }
    text
}

type Count = (&'static str, fn(&Verdict) -> String);

/// The rows of the first table.
const COUNTS: &[Count] = &[
    ("seconds", |verdict| (verdict.millis / 1_000).to_string()),
    ("faults made", |verdict| verdict.faults.values().map(made).sum::<u64>().to_string()),
    ("packets dropped", |verdict| verdict.tally.packets_dropped.to_string()),
    ("lives of nodes", |verdict| verdict.tally.lives.to_string()),
    ("leaderships", |verdict| verdict.tally.leaderships.to_string()),
    ("tokens accepted", |verdict| verdict.tally.tokens_accepted.to_string()),
    ("writes accepted", |verdict| verdict.tally.writes_accepted.to_string()),
    ("stale writes tried", |verdict| verdict.tally.stale_tried.to_string()),
    ("stale writes refused", |verdict| verdict.tally.stale_refused.to_string()),
    ("lock found taken", |verdict| verdict.tally.lock_waits.to_string()),
    ("stalls of a processor, 20 ms or more: count, longest ms", |verdict| {
        let Tally { stalls, longest_stall_ns, .. } = &verdict.tally;
        format!("{stalls}, {}", longest_stall_ns / 1_000_000)
    }),
    ("  share of the run", |verdict| {
        let hundredths = verdict.tally.stalled_ppm / 100;
        format!("{}.{:02} %", hundredths / 100, hundredths % 100)
    }),
    ("excused: count, total / longest ms", |_| String::new()),
    ("  act past the lease, supervisor and guardian out", |verdict| excused(verdict.tally.acts_unguarded)),
    ("  act past the lease, a processor stalled", |verdict| excused(verdict.tally.acts_stalled)),
    ("  lock longer than the drain, supervisor and guardian out", |verdict| {
        excused(verdict.tally.locks_unguarded)
    }),
    ("  lock longer than the drain, stopped itself", |verdict| excused(verdict.tally.locks_stopped)),
    ("  lock longer than the drain, a processor stalled", |verdict| excused(verdict.tally.locks_stalled)),
    ("violations", |verdict| verdict.findings.len().to_string()),
];

fn excused(excused: Excused) -> String {
    let Excused { count, total_ns, longest_ns } = excused;
    if count == 0 {
        return "0".to_owned();
    }
    format!("{count}, {} / {}", total_ns / 1_000_000, longest_ns / 1_000_000)
}

fn made(row: &Row) -> u64 {
    match row {
        Row::Made { count, .. } => *count as u64,
        Row::NotRun { .. } | Row::NotApplicable => 0,
    }
}

fn cell(verdict: &Verdict, kind: Kind) -> String {
    match verdict.faults.get(&kind) {
        Some(Row::Made { count, .. }) if kind == Kind::FakedClock => format!("{count} lives"),
        Some(Row::Made { count: 0, .. }) => "0".to_owned(),
        Some(Row::Made { count, median_ns, longest_ns }) => {
            format!("{count}: {} / {}", median_ns / 1_000_000, longest_ns / 1_000_000)
        }
        Some(Row::NotRun { .. }) => "NOT RUN".to_owned(),
        Some(Row::NotApplicable) | None => "n/a".to_owned(),
    }
}

fn not_run(verdicts: &[Verdict]) -> Vec<(Kind, String)> {
    let mut reasons = Vec::new();
    for (kind, row) in verdicts.iter().flat_map(|verdict| &verdict.faults) {
        if let Row::NotRun { reason } = row {
            reasons.push((*kind, reason.clone()));
        }
    }
    reasons.sort();
    reasons.dedup();
    reasons
}

/// Columns of one width each, as Markdown has them.
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
