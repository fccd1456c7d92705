//! The findings of `primacy doctor`, parsed from its JSON output.

use std::process::Output;

use serde_json::Value;

use crate::{Place, stderr, stdout, strings};

/// The lease of tests that do not concern it: far longer than any pause of a busy machine, so that no check fails because of it.
const LEASE: &str = "10m";

/// The exit code and the findings of `primacy doctor`.
#[derive(Debug)]
pub struct Found {
    pub code: Option<i32>,
    pub told: Value,
}

impl Found {
    pub fn of(output: &Output) -> Self {
        let told = serde_json::from_str(&stdout(output));
        let told = told.unwrap_or_else(|error| panic!("{error}: {}\n{}", stdout(output), stderr(output)));
        Self { code: output.status.code(), told }
    }

    /// Runs `primacy doctor` for the store of this URL.
    pub fn on(place: &mut Place, url: &str, more: &[&str]) -> Self {
        // Some URLs contain a password, which does not belong on a command line.
        place.set("DOCTOR_STORE", url);
        let mut args =
            strings(&["doctor", "--json", "--store", "env:DOCTOR_STORE", "--watch", "1s", "--lease", LEASE]);
        args.extend(strings(more));
        Self::of(&place.output(&args))
    }

    /// The check of this name.
    pub fn check(&self, name: &str) -> &Value {
        let checks = self.told["checks"].as_array().expect("there are checks");
        let found = checks.iter().find(|check| check["check"] == name);
        found.unwrap_or_else(|| panic!("there is no check `{name}`: {:#}", self.told))
    }

    /// Checks the verdict of this check, and that its findings contain `part`; and if it did not pass, that it states
    /// a reason and a remedy.
    pub fn expect(&self, name: &str, verdict: &str, part: &str) {
        let check = self.check(name);
        let found = check["found"].as_str().expect("what was found is a text");
        assert!(check["verdict"] == verdict && found.contains(part), "{verdict}, {part}: {check:#}");
        let is_explained = check["why"].is_string() && check["fix"].is_string();
        assert!(verdict == "pass" || is_explained, "{check:#}");
    }

    /// Checks the exit code, which shows whether any check failed.
    pub fn ends(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{:#}", self.told);
        assert_eq!(self.told["verdict"] == "fail", code == 1, "{:#}", self.told);
    }
}
