//! The table of results of the mutants, for people and for programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::judge::{Catch, Spoken};
use super::patch::{Judge, Patch};

/// The result of one mutant with one judge.
pub(super) struct Row<'a> {
    pub(super) mutant: &'a Patch,
    pub(super) judge: &'a Judge,
    pub(super) verdict: Verdict,
    pub(super) build: Duration,
    pub(super) search: Duration,
}

/// The result of a mutant.
pub(super) enum Verdict {
    Caught(Catch),
    /// Caught by another rule than it names: the patch must then name that rule, or it would hide that the named
    /// judge is blind.
    CaughtByAnother(Catch),
    Survived {
        run: String,
    },
    /// The patch does not apply, or the mutant does not compile.
    NotTried(String),
    /// The judge cannot run on this machine.
    NotRun(String),
}

impl Verdict {
    pub(super) fn of(judge: &Judge, spoken: Spoken) -> Self {
        match spoken {
            Spoken::Caught(catch) if catch.by == judge.expected() => Self::Caught(catch),
            Spoken::Caught(catch) => Self::CaughtByAnother(catch),
            Spoken::Nothing { run } => Self::Survived { run },
            Spoken::NotRun(why) => Self::NotRun(why),
        }
    }

    pub(super) const fn is_good(&self) -> bool {
        match self {
            Self::Caught(_) => true,
            Self::CaughtByAnother(_) | Self::Survived { .. } | Self::NotTried(_) | Self::NotRun(_) => false,
        }
    }

    pub(super) const fn is_not_run(&self) -> bool {
        matches!(self, Self::NotRun(_))
    }

    const fn catch(&self) -> Option<&Catch> {
        match self {
            Self::Caught(catch) | Self::CaughtByAnother(catch) => Some(catch),
            Self::Survived { .. } | Self::NotTried(_) | Self::NotRun(_) => None,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Caught(Catch { spoke, .. }) => format!("caught ({spoke})"),
            Self::CaughtByAnother(Catch { by, spoke, .. }) => format!("FAILED: {by} spoke ({spoke})"),
            Self::Survived { run } => format!("FAILED: survived {run}"),
            Self::NotTried(why) => format!("FAILED: {why}"),
            Self::NotRun(why) => format!("NOT RUN: {why}"),
        }
    }
}

impl<'m> Row<'m> {
    pub(super) const fn not_tried(mutant: &'m Patch, judge: &'m Judge, why: String, build: Duration) -> Self {
        Self { mutant, judge, verdict: Verdict::NotTried(why), build, search: Duration::ZERO }
    }

    /// Returns the result as one line, for the progress output.
    pub(super) fn line(&self) -> String {
        let Self { mutant: Patch { name, .. }, judge, verdict, build, search } = self;
        format!(
            "{name}: {judge}: {}, built {}, searched {}",
            verdict.words(),
            seconds(*build),
            seconds(*search)
        )
    }

    fn cells(&self) -> [String; 7] {
        let catch = self.verdict.catch();
        let number = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), |number| number.to_string());
        [
            self.mutant.name.clone(),
            self.judge.to_string(),
            self.verdict.words(),
            number(catch.and_then(|catch| catch.first_seed)),
            number(catch.and_then(|catch| catch.rate)),
            seconds(self.build),
            seconds(self.search),
        ]
    }
}

/// Returns the results as a Markdown table, with a summary line.
pub(super) fn text(rows: &[Row<'_>]) -> String {
    let head = ["mutant", "judge", "verdict", "first seed", "of 1000 seeds", "build", "search"];
    let cells: Vec<[String; 7]> =
        core::iter::once(head.map(str::to_owned)).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for (index, row) in cells.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell}{} ", " ".repeat(width - cell.chars().count()));
        }
        text.push_str("|\n");
        if index == 0 {
            widths.iter().for_each(|width| text.push_str(&format!("|{}", "-".repeat(width + 2))));
            text.push_str("|\n");
        }
    }
    let names = |good: bool| {
        let rows = rows.iter().filter(|row| good || !row.verdict.is_good());
        rows.map(|row| row.mutant.name.as_str()).collect::<BTreeSet<&str>>().len()
    };
    let (all, missed) = (names(true), names(false));
    let whole = |of: fn(&Row<'_>) -> Duration| seconds(rows.iter().map(of).sum());
    let (build, search) = (whole(|row| row.build), whole(|row| row.search));
    let _ = write!(
        text,
        "\n{} of {all} mutants caught, {} judgements; built {build}, searched {search}",
        all - missed,
        rows.len()
    );
    let not_run = rows.iter().filter(|row| row.verdict.is_not_run()).count();
    if not_run > 0 {
        let _ = write!(text, "\n{not_run} judgements NOT RUN");
    }
    text
}

/// Returns the results as JSON, one object per line.
pub(super) fn json(rows: &[Row<'_>]) -> String {
    let line = |row: &Row<'_>| {
        let catch = row.verdict.catch();
        let number =
            |number: Option<u64>| number.map_or_else(|| "null".to_owned(), |number| number.to_string());
        format!(
            "{{\"mutant\":{},\"mistake\":{},\"made_by\":{},\"judge\":{},\"good\":{},\"verdict\":{},\"first_seed\":{},\"of_1000\":{},\
             \"build_seconds\":{:.1},\"search_seconds\":{:.1}}}",
            quoted(&row.mutant.name),
            quoted(&row.mutant.mistake),
            quoted(&row.mutant.made_by),
            quoted(&row.judge.to_string()),
            row.verdict.is_good(),
            quoted(&row.verdict.words()),
            number(catch.and_then(|catch| catch.first_seed)),
            number(catch.and_then(|catch| catch.rate)),
            row.build.as_secs_f64(),
            row.search.as_secs_f64(),
        )
    };
    rows.iter().map(line).collect::<Vec<String>>().join("\n")
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            letter if letter < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn row(mutant: &Patch, spoken: Spoken) -> Row<'_> {
        let second = Duration::from_secs(1);
        Row {
            mutant,
            judge: &mutant.judges[0],
            verdict: Verdict::of(&mutant.judges[0], spoken),
            build: second,
            search: second,
        }
    }

    fn caught(by: &str) -> Spoken {
        let (by, spoke) = (by.to_owned(), format!("{by}:3"));
        Spoken::Caught(Catch { by, first_seed: Some(4), rate: Some(3), spoke })
    }

    #[test]
    fn only_the_invariant_that_is_named_counts() {
        let mutant = Patch::example();
        assert!(row(&mutant, caught("I4")).verdict.is_good());
        assert!(!row(&mutant, caught("I3")).verdict.is_good());
        assert!(!row(&mutant, Spoken::Nothing { run: "20000".to_owned() }).verdict.is_good());
        assert!(!Verdict::NotTried("it does not apply".to_owned()).is_good());
    }

    #[test]
    fn what_came_of_it_is_told() {
        let mutant = Patch::example();
        let rows = [row(&mutant, caught("I4")), row(&mutant, Spoken::Nothing { run: "9".to_owned() })];
        let table = text(&rows);
        assert!(table.contains("| example | seeds quorum I4 | caught (I4:3)      | 4 "), "{table}");
        assert!(
            table.ends_with("0 of 1 mutants caught, 2 judgements; built 2.0 s, searched 2.0 s"),
            "{table}"
        );
        assert_eq!(json(&rows).lines().count(), 2);
        assert!(json(&rows[..1]).contains("\"first_seed\":4,\"of_1000\":3"));
        assert_eq!(quoted("a\"\\\n\u{1}"), "\"a\\\"\\\\\\n\\u0001\"");
    }
}
