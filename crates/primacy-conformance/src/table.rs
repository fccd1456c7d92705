//! The table of laws, with a column for each store or election.

use std::fmt::Write;
use std::path::Path;

use crate::Outcome;

/// A row for each law and a column for each store or election, in Markdown.
#[must_use]
pub fn render(laws: &[&str], columns: &[(String, Vec<(&'static str, Outcome)>)]) -> String {
    let mut table = String::from("| law |");
    let mut rule = String::from("|---|");
    for (store, _) in columns {
        let _ = write!(table, " {store} |");
        rule.push_str("---|");
    }
    let _ = writeln!(table, "\n{rule}");
    for law in laws {
        let _ = write!(table, "| {} |", law.replace('_', " "));
        for (_, outcomes) in columns {
            let outcome = outcomes.iter().find(|(name, _)| name == law).map(|(_, outcome)| outcome);
            let word = match outcome {
                Some(Outcome::Passed) => "kept",
                Some(Outcome::NotClaimed) => "not claimed",
                Some(Outcome::NotRun) | None => "NOT RUN",
            };
            let _ = write!(table, " {word} |");
        }
        table.push('\n');
    }
    table
}

/// Replaces the marked part of a page by a table, if `updates`; otherwise checks that it is equal.
///
/// # Panics
/// If the page cannot be read or written, has no such marks, or has another table.
pub fn keep(page: &Path, (begin, end): (&str, &str), table: &str, updates: bool) {
    let text = std::fs::read_to_string(page).expect("the page can be read");
    let (before, rest) = text.split_once(begin).expect("the place of the table begins");
    let (found, after) = rest.split_once(end).expect("the place of the table ends");
    if updates {
        std::fs::write(page, format!("{before}{begin}{table}{end}{after}")).expect("the page can be written");
    } else {
        assert_eq!(found, table, "{} is out of date; make it anew", page.display());
    }
}
