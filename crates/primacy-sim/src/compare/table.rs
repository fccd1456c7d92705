//! The comparison as text.

use core::fmt::Write as _;

use primacy_core::Duration;

use super::{ComparisonRow, Scenario, Setup};

/// Formats a duration with at most three digits, for comparison at a glance: `0`, `4 ms`, `1.06 s`, `30.0 s`.
#[must_use]
pub fn in_words(duration: Duration) -> String {
    let micros = duration.as_nanos() / 1_000;
    let tenths = |unit: u64| format!("{}.{}", micros / unit, micros % unit / (unit / 10));
    match micros {
        0 => "0".to_owned(),
        1..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{} ms", tenths(1_000)),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..10_000_000 => format!("{}.{:02} s", micros / 1_000_000, micros % 1_000_000 / 10_000),
        _ => format!("{} s", tenths(1_000_000)),
    }
}

/// Formats parts per million as a percentage: `0 %`, `1.5 %`.
pub(super) fn share(ppm: u32) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the maximum number of simultaneous leaders, and for how long there were that many.
pub(super) fn at_once(row: &ComparisonRow) -> String {
    match row.leaders_max {
        most @ (0 | 1) => most.to_string(),
        // Most runs have no overlap, so the maximum is shown.
        most if row.overlap.median.is_zero() => format!("{most} for up to {}", in_words(row.overlap.most)),
        most => format!("{most} for {}", in_words(row.overlap.median)),
    }
}

/// The setup as one line.
pub(super) fn surroundings(setup: &Setup, runs: u64) -> String {
    let Setup { nodes, delay, lost_ppm, .. } = *setup;
    let (delay, lost) = (in_words(delay), share(lost_ppm));
    format!("{nodes} nodes, {delay} from one to another, {lost} of the packets lost; {runs} runs of each")
}

/// The table: the rows of each scenario under its heading, in the given order.
#[must_use]
pub fn table(setup: &Setup, runs: u64, rows: &[ComparisonRow]) -> String {
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = writeln!(text, "{}", surroundings(setup, runs));
    let _ = writeln!(
        text,
        "\n{:<24} {:>12} {:>9}  {:<18} {:>8} {:>8} {:>5} {:>9} {:>11}",
        "",
        "nobody leads",
        "at most",
        "leaders at once",
        "changes",
        "needless",
        "most",
        "messages",
        "not routine"
    );
    let mut of: Option<Scenario> = None;
    for row in rows {
        if of != Some(row.scenario) {
            of = Some(row.scenario);
            let _ = writeln!(text, "\n{}: {}", row.scenario.name(), row.scenario.about(setup.nodes));
        }
        let _ = writeln!(text, "{}", line(row).trim_end());
    }
    let _ = writeln!(
        text,
        "\nTimes and numbers are medians; `at most` and `most` are of the worst run, and so are the leaders at once. \
         docs/guide/simulation.md says what is measured."
    );
    text
}

fn line(row: &ComparisonRow) -> String {
    let name = row.contender.name();
    if row.runs == 0 {
        return format!("  {name:<22} no run had a leader before anything happened");
    }
    let unsettled = match row.leaderless_runs {
        0 => String::new(),
        some => format!("  {some} more runs had no leader before anything happened"),
    };
    format!(
        "  {name:<22} {:>12} {:>9}  {:<18} {:>8} {:>8} {:>5} {:>9} {:>11}{unsettled}",
        in_words(row.leaderless.median),
        in_words(row.leaderless.most),
        at_once(row),
        row.changes.median,
        row.needless.median,
        row.needless.most,
        row.messages.median,
        row.beyond_routine.median,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_shares_are_short() {
        let told = |micros: u64| in_words(Duration::from_nanos(micros * 1_000));
        assert_eq!(
            [0, 7, 4_090, 26_900, 1_069_000, 30_090_000].map(told),
            ["0", "7 µs", "4.0 ms", "26 ms", "1.06 s", "30.0 s"]
        );
        assert_eq!([0, 10_000, 15_000, 1].map(share), ["0 %", "1 %", "1.5 %", "0.0001 %"]);
    }
}
