//! Partitions and their primaries as text for people.

use primacy_kv::partitions::{Partitions, Plan};

/// Returns all partitions as text for people, one line for each run of equal ones.
#[must_use]
pub fn partitions_text(partitions: &Partitions) -> Vec<String> {
    let runs = partitions.groups().flat_map(|(group, _)| partitions.runs(group));
    let mut lines: Vec<String> = runs
        .map(|run| {
            let (from, last) = (run.range.start, run.range.end - 1);
            let which = if from == last { from.to_string() } else { format!("{from} to {last}") };
            let number = run.partition.number;
            let whose = run.partition.primary.map_or_else(
                || format!("nobody's, the last number is {number}"),
                |primary| format!("{primary} under number {number}"),
            );
            let plan = match run.partition.plan {
                Plan::Stays => String::new(),
                Plan::Taken(None) => ", wanted back".to_owned(),
                Plan::Taken(Some(next)) => format!(", wanted back for {next}"),
            };
            format!("{} {which}: {whose}{plan}", run.group)
        })
        .collect();
    if lines.is_empty() {
        lines.push("no partitions".to_owned());
    }
    lines
}
