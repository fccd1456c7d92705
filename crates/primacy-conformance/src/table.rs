//! The stores and the laws, as a table.

use std::fmt::Write;

use crate::{LAWS, Outcome};

/// A row for each law and a column for each store, in Markdown.
#[must_use]
pub fn render(columns: &[(String, Vec<(&'static str, Outcome)>)]) -> String {
    let mut table = String::from("| law |");
    let mut rule = String::from("|---|");
    for (store, _) in columns {
        let _ = write!(table, " {store} |");
        rule.push_str("---|");
    }
    let _ = writeln!(table, "\n{rule}");
    for law in &LAWS {
        let _ = write!(table, "| {} |", law.name.replace('_', " "));
        for (_, outcomes) in columns {
            let outcome = outcomes.iter().find(|(name, _)| *name == law.name).map(|(_, outcome)| outcome);
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
