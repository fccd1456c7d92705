//! The comparison as JSON.

use primacy_sim::compare::{ComparisonRow, Setup, Span};
use serde::Serialize;

use crate::exit::{Exit, Failure};

#[derive(Serialize)]
struct ComparisonReport {
    nodes: usize,
    delay_ns: u64,
    lost_ppm: u32,
    /// The first seed, and the number of seeds.
    from: u64,
    seeds: u64,
    rows: Vec<RowReport>,
}

#[derive(Serialize)]
struct RowReport {
    scenario: &'static str,
    election: &'static str,
    fenced: bool,
    /// The number of measured runs, and of runs without a leader before the scenario began.
    runs: usize,
    leaderless_runs: usize,
    leaderless_ns: Of,
    /// The maximum over all runs.
    leaders_max: u32,
    overlap_ns: Of,
    changes: Of,
    needless: Of,
    messages: Of,
    beyond_routine: Of,
    measured_ns: Of,
}

#[derive(Serialize)]
struct Of {
    median: u64,
    most: u64,
}

fn of<T>(Span { median, most }: Span<T>, number: impl Fn(T) -> u64) -> Of {
    Of { median: number(median), most: number(most) }
}

/// Returns one JSON object on one line.
pub(super) fn text(setup: &Setup, from: u64, seeds: u64, rows: &[ComparisonRow]) -> Result<String, Failure> {
    let report = ComparisonReport {
        nodes: setup.nodes,
        delay_ns: setup.delay.as_nanos(),
        lost_ppm: setup.lost_ppm,
        from,
        seeds,
        rows: rows.iter().map(report).collect(),
    };
    let text = serde_json::to_string(&report);
    text.map(|text| text + "\n").map_err(|error| Failure::new(Exit::System, error.to_string()))
}

fn report(row: &ComparisonRow) -> RowReport {
    RowReport {
        scenario: row.scenario.name(),
        election: row.contender.name(),
        fenced: row.contender.is_fenced(),
        runs: row.runs,
        leaderless_runs: row.leaderless_runs,
        leaderless_ns: of(row.leaderless, |it| it.as_nanos()),
        leaders_max: row.leaders_max,
        overlap_ns: of(row.overlap, |it| it.as_nanos()),
        changes: of(row.changes, |it| it),
        needless: of(row.needless, |it| it),
        messages: of(row.messages, |it| it),
        beyond_routine: of(row.beyond_routine, |it| it),
        measured_ns: of(row.measured, |it| it.as_nanos()),
    }
}
