//! The table of a run, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::fault::{KINDS, Kind};
use crate::judge::{Row, Verdict};

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
        row.extend(verdicts.iter().map(|verdict| count(verdict).to_string()));
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

type Count = (&'static str, fn(&Verdict) -> u64);

/// The rows of the first table.
const COUNTS: &[Count] = &[
    ("seconds", |verdict| verdict.millis / 1_000),
    ("faults made", |verdict| verdict.faults.values().map(made).sum()),
    ("packets dropped", |verdict| verdict.tally.packets_dropped),
    ("lives of nodes", |verdict| verdict.tally.lives as u64),
    ("leaderships", |verdict| verdict.tally.leaderships as u64),
    ("tokens accepted", |verdict| verdict.tally.tokens_accepted as u64),
    ("writes accepted", |verdict| verdict.tally.writes_accepted as u64),
    ("stale writes tried", |verdict| verdict.tally.stale_tried as u64),
    ("stale writes refused", |verdict| verdict.tally.stale_refused as u64),
    ("lock found taken", |verdict| verdict.tally.lock_waits as u64),
    ("  longer than the drain: supervisor and guardian out together", |verdict| {
        verdict.tally.locks_unguarded as u64
    }),
    ("  longer than the drain: a processor stalled", |verdict| verdict.tally.locks_stalled as u64),
    ("  longer than the drain: stopped itself", |verdict| verdict.tally.locks_disturbed as u64),
    ("acts past the lease: supervisor and guardian out together", |verdict| {
        verdict.tally.acts_unguarded as u64
    }),
    ("acts past the lease: a processor stalled", |verdict| verdict.tally.acts_stalled as u64),
    ("stalls of a processor, 50 ms or more", |verdict| verdict.tally.stalls as u64),
    ("  the longest, ms", |verdict| verdict.tally.longest_stall_ns / 1_000_000),
    ("violations", |verdict| verdict.findings.len() as u64),
];

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
