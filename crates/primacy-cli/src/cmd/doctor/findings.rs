//! The findings of all checks, reported as they are made.

use std::io::Write as _;

use primacy::stores::{Check, Verdict};
use serde::Serialize;

use crate::cmd::target::{print, print_json};
use crate::exit::{Exit, Failure};
use crate::printable::one_line;

/// The results of the checks so far.
#[derive(Debug)]
pub(super) struct Findings {
    json: bool,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct FindingsReport<'a> {
    checks: Vec<CheckReport<'a>>,
    /// The worst verdict of all checks.
    verdict: String,
}

#[derive(Serialize)]
struct CheckReport<'a> {
    check: &'a str,
    verdict: String,
    found: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    fix: &'a str,
}

impl Findings {
    pub(super) const fn new(json: bool) -> Self {
        Self { json, checks: Vec::new() }
    }

    /// Reports the result of a check.
    pub(super) fn add(&mut self, check: Check) -> Result<(), Failure> {
        if !self.json {
            let Check { name, verdict, found, why, fix } = &check;
            print(&format!("{verdict:<8} {name}: {}", one_line(found)))?;
            for (label, text) in [("why", why), ("fix", fix)] {
                if !text.is_empty() {
                    print(&format!("{:<9}{label}: {}", "", one_line(text)))?;
                }
            }
        }
        self.checks.push(check);
        Ok(())
    }

    /// Announces a step that takes long, to people only.
    pub(super) fn tell(&self, what: &str) {
        if !self.json {
            // A reader that is gone needs no announcement.
            let _ = writeln!(std::io::stderr(), "primacy: {}", one_line(what));
        }
    }

    /// Reports the summary.
    pub(super) fn end(self) -> Result<Exit, Failure> {
        let worst = self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Unknown);
        if self.json {
            let checks = self.checks.iter().map(|check| CheckReport {
                check: &check.name,
                verdict: check.verdict.to_string(),
                found: &check.found,
                why: &check.why,
                fix: &check.fix,
            });
            let report = FindingsReport { checks: checks.collect(), verdict: worst.to_string() };
            print_json(&report)?;
        } else {
            let count = |wanted| self.checks.iter().filter(|check| check.verdict == wanted).count();
            let [passed, unknown, warned, failed] =
                [Verdict::Pass, Verdict::Unknown, Verdict::Warn, Verdict::Fail].map(count);
            print(&format!("{passed} passed, {warned} to be mended, {failed} failed, {unknown} not known"))?;
        }
        Ok(if worst == Verdict::Fail { Exit::Failed } else { Exit::Success })
    }
}
