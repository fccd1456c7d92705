//! The measurements, as a table for people, and its place on the page.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// The page, from the root of the repository.
const PAGE: &str = "docs/performance.md";

const BEGIN: &str = "<!-- failover over stores, made by `cargo xtask failover --write`: begin -->\n";
const END: &str = "<!-- failover over stores: end -->";

const HEAD: &str = "\
| Store | What happens | Trials | median | p99 | Round trip | Goal | |
|---|---|---|---|---|---|---|---|
";

/// A row; all times in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    store: &'static str,
    what: String,
    trials: usize,
    median: f64,
    p99: f64,
    round_trip: Option<f64>,
    goal: String,
    verdict: String,
}

impl Row {
    /// Reads a row from the bench's output; `None` if it is not that.
    pub(crate) fn of(store: &'static str, what: &str, told: &Value) -> Option<Self> {
        let trials = usize::try_from(told["trials"].as_u64()?).ok()?;
        let goal = &told["goal"];
        let (goal, verdict) = if goal.is_null() {
            (String::new(), String::new())
        } else {
            let bound =
                goal["bound_ms"].as_f64().map_or(String::new(), |bound| format!(": {}", shown(bound)));
            let verdict = match goal["missed"].as_u64()? {
                0 => "met".to_owned(),
                missed => format!("**missed** in {missed}"),
            };
            (format!("{}{bound}", goal["text"].as_str()?), verdict)
        };
        Some(Self {
            store,
            what: what.to_owned(),
            trials,
            median: told["ms"]["median"].as_f64()?,
            p99: told["ms"]["p99"].as_f64()?,
            round_trip: Some(told["round_trip_ms"]["median"].as_f64()?),
            goal,
            verdict,
        })
    }

    /// A row of another tool's times; `None` if there are none.
    pub(crate) fn of_peer(store: &'static str, what: String, took: &[Duration]) -> Option<Self> {
        let mut sorted = took.to_vec();
        sorted.sort_unstable();
        let ms = |duration: &Duration| duration.as_secs_f64() * 1e3;
        // Of fewer than a hundred, the 99th percentile is the longest.
        let (median, p99) = (ms(sorted.get(sorted.len().saturating_sub(1) / 2)?), ms(sorted.last()?));
        let (goal, verdict) = (String::new(), String::new());
        Some(Self { store, what, trials: took.len(), median, p99, round_trip: None, goal, verdict })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, what, trials, goal, verdict, .. } = self;
        let (median, p99) = (shown(self.median), shown(self.p99));
        let round_trip = self.round_trip.map_or(String::new(), shown);
        write!(f, "| {store} | {what} | {trials} | {median} | {p99} | {round_trip} | {goal} | {verdict} |")
    }
}

/// Three significant digits, or all of a thousand and more.
fn shown(ms: f64) -> String {
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    }
}

/// Puts the rows into the table on the page; rows of other stores stay.
pub(crate) fn write(stores: &[&str], rows: &[Row]) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let page = std::fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let lines: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let page = replaced(stores, &page, &lines).ok_or_else(|| format!("{PAGE} has no place for the table"))?;
    std::fs::write(&path, page).map_err(|error| format!("{PAGE}: {error}"))
}

/// The page with these lines in its table, in place of the lines of the same stores.
fn replaced(stores: &[&str], page: &str, lines: &[String]) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    let mut new = String::new();
    for store in stores {
        let is_its = |line: &&str| line.starts_with(&format!("| {store} |"));
        let mut its: Vec<&str> = lines.iter().map(String::as_str).filter(is_its).collect();
        if its.is_empty() {
            its = table.lines().filter(is_its).collect();
        }
        for line in its {
            new.push_str(line);
            new.push('\n');
        }
    }
    Some(format!("{before}{BEGIN}\n{HEAD}{new}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_what_was_asked_and_whether_it_was_met() {
        let told = json!({
            "trials": 20, "ms": {"median": 3.2149, "p99": 12.04}, "round_trip_ms": {"median": 1.1},
            "goal": {"text": "3 round trips + 5 ms", "bound_ms": 8.3, "missed": 1, "met": false},
        });
        let row = Row::of("etcd", "it resigns", &told).unwrap();
        let line =
            "| etcd | it resigns | 20 | 3.21 | 12.0 | 1.10 | 3 round trips + 5 ms: 8.30 | **missed** in 1 |";
        assert_eq!(row.to_string(), line);
        assert!(Row::of("etcd", "it resigns", &json!({"trials": 20})).is_none());
        let took = [10_126, 10_128, 10_120].map(Duration::from_millis);
        let row = Row::of_peer("etcd", "`etcdctl elect`".to_owned(), &took).unwrap();
        assert_eq!(row.to_string(), "| etcd | `etcdctl elect` | 3 | 10126 | 10128 |  |  |  |");
        assert!(Row::of_peer("etcd", String::new(), &[]).is_none());
    }

    #[test]
    fn only_the_rows_of_the_stores_that_were_measured_are_replaced() {
        let page = format!("a\n{BEGIN}\n{HEAD}| x | old |\n| y | old |\n\n{END}\nb\n");
        let new = replaced(&["x", "y"], &page, &["| y | new |".to_owned()]).unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n{HEAD}| x | old |\n| y | new |\n\n{END}\nb\n"));
        assert!(replaced(&["x"], "a\nb\n", &[]).is_none());
    }
}
