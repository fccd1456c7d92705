//! The comparison as a bar chart.

use primacy_core::Duration;

use super::table::{at_once, in_words, surroundings};
use super::{ComparisonRow, Scenario, Setup};
use crate::draw::bars::{Band, BarRow, Bars, Cell, Column, Scale, svg};
use crate::draw::plot::number;

/// Draws the rows, one band for each scenario.
#[must_use]
pub fn sheet(setup: &Setup, runs: u64, rows: &[ComparisonRow]) -> String {
    let mut bands: Vec<(Scenario, Vec<&ComparisonRow>)> = Vec::new();
    for row in rows {
        match bands.last_mut().filter(|(scenario, _)| *scenario == row.scenario) {
            Some((_, of)) => of.push(row),
            None => bands.push((row.scenario, vec![row])),
        }
    }
    let band = |(scenario, rows): (Scenario, Vec<&ComparisonRow>)| Band {
        title: scenario.name().to_owned(),
        about: scenario.about(setup.nodes),
        rows: rows.into_iter().map(drawn).collect(),
    };
    svg(&Bars {
        title: "Every election through the same scenarios".to_owned(),
        about: vec![
            format!("{}, in the simulator.", surroundings(setup, runs)),
            "A bar is the median of the runs, and the line behind it goes to the worst of them.".to_owned(),
        ],
        kinds: [
            "leaders have a token: a resource can refuse a stale one".to_owned(),
            "advisory: no token".to_owned(),
        ],
        columns: columns(rows),
        bands: bands.into_iter().map(band).collect(),
    })
}

fn columns(rows: &[ComparisonRow]) -> Vec<Column> {
    let most = |of: fn(&ComparisonRow) -> u64| rows.iter().map(of).max().unwrap_or(0);
    let column = |title: &str, unit: &str, scale, widths| Column {
        title: title.to_owned(),
        unit: unit.to_owned(),
        scale,
        widths,
    };
    let tick = |value: f64, text: &str| (value, text.to_owned());
    let times = vec![
        tick(0.001, "1 ms"),
        tick(0.01, "10 ms"),
        tick(0.1, "100 ms"),
        tick(1.0, "1 s"),
        tick(10.0, "10 s"),
        tick(100.0, "100 s"),
    ];
    let changes = even(most(|row| row.needless.most).max(4));
    let messages = even(most(|row| row.messages.most).max(10));
    vec![
        column("Nobody leads", "time, logarithmic", Scale::Logarithmic(times), [260, 54]),
        column("Leaders at once", "at most, and for how long", Scale::Squares, [30, 110]),
        column("Needless changes", "of the leader", changes, [100, 24]),
        column("Messages", "in all", messages, [220, 60]),
    ]
}

/// Returns a linear scale from zero to at least this maximum, with two round steps.
fn even(most: u64) -> Scale {
    let powers = core::iter::successors(Some(1_u64), |power| power.checked_mul(10));
    let steps = powers.flat_map(|power| [1, 2, 3, 4, 5].map(|step| power.saturating_mul(step)));
    let half = steps.into_iter().find(|&step| step.saturating_mul(2) >= most).unwrap_or(most);
    let ticks = [0, half, half.saturating_mul(2)].map(|value| (value as f64, number(value as f64)));
    Scale::Even(ticks.into())
}

fn drawn(row: &ComparisonRow) -> BarRow {
    let seconds = |duration: Duration| duration.as_nanos() as f64 / 1e9;
    let cell = |value: f64, reach: f64, text: String, is_loud| Some(Cell { value, reach, text, is_loud });
    let cells = vec![
        cell(
            seconds(row.leaderless.median),
            seconds(row.leaderless.most),
            in_words(row.leaderless.median),
            false,
        ),
        cell(f64::from(row.leaders_max), 0.0, at_once(row), row.leaders_max > 1),
        cell(
            row.needless.median as f64,
            row.needless.most as f64,
            row.needless.median.to_string(),
            row.needless.median > 0,
        ),
        cell(row.messages.median as f64, row.messages.most as f64, number(row.messages.median as f64), false),
    ];
    let nothing = row.runs == 0;
    BarRow {
        name: row.contender.name().to_owned(),
        is_second_kind: !row.contender.is_fenced(),
        cells: if nothing { cells.into_iter().map(|_| None).collect() } else { cells },
    }
}
