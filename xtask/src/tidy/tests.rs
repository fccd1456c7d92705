//! Honest tests: none is skipped, none sleeps, and nothing is left for later in the code.

use super::{Finding, Tree, is_test_file};

/// What may stand nowhere, and why.
const UNFINISHED: &[(&str, &str)] = &[
    ("#[ignore", "a test that does not run proves nothing; run it, or delete it"),
    ("todo!", "finish it, or leave it out"),
    ("unimplemented!", "finish it, or leave it out"),
];

/// The same in comments; whole words.
const UNFINISHED_COMMENTS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

const SLEEPS: &[&str] = &["thread::sleep", "time::sleep", "sleep_until", "park_timeout"];

/// Where a test may sleep, with the reason. All others are told the time, or wait on an event with a bound.
const MAY_SLEEP: &[(&str, &str)] = &[
    (
        "crates/primacy-cli/tests/",
        "real processes: what the process table says can only be asked again and again",
    ),
    ("crates/primacy-cli/src/cmd/demo", "real processes, as above"),
    ("examples/queue-broker/tests/", "real processes, as above"),
    (
        "crates/primacy/tests/",
        "real clocks and sockets: what a blocked runtime loses shows only in real time",
    ),
    (
        "crates/primacy/src/led_document/tests.rs",
        "its clock is the runtime's, which stands still but for sleeping: that is how a test hands in the time",
    ),
    ("crates/primacy-conformance/", "the live arm: a lease on a real server ends in real time"),
];

pub(super) fn honest(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust("") {
        for (sign, instead) in UNFINISHED {
            let places = rust.find(sign).into_iter();
            findings
                .extend(places.map(|at| Finding::new(path, rust.line(at), format!("`{sign}`: {instead}"))));
        }
        for (index, line) in rust.comments.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric());
            if words.any(|word| UNFINISHED_COMMENTS.contains(&word)) {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    "open an issue instead; code has no list of wishes",
                ));
            }
        }
        let machines = path.starts_with("crates/primacy-core/") || path.starts_with("crates/primacy-sim/");
        if MAY_SLEEP.iter().any(|(place, _)| path.starts_with(place)) {
            continue;
        }
        for sleep in SLEEPS {
            for offset in rust.find(sleep) {
                if machines || is_test_file(path) || rust.is_test(offset) {
                    let message =
                        format!("`{sleep}` in a test of logic: hand in the time, or wait on the event");
                    findings.push(Finding::new(path, rust.line(offset), message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        honest(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn what_is_skipped_unfinished_or_asleep_is_found() {
        let path = "crates/primacy/src/elector.rs";
        for bad in [
            "#[ignore]\nfn f() {}",
            "#[ignore = \"slow\"]\nfn f() {}",
            "fn f() { todo!() }",
            "fn f() { unimplemented!() }",
        ] {
            assert_eq!(found(path, bad), 1, "{bad}");
        }
        assert_eq!(found(path, &["// TO", "DO: later"].concat()), 1);
        let sleep = "fn f() { std::thread::sleep(d) }";
        assert_eq!(found(path, sleep), 0, "not a test");
        assert_eq!(found(path, &format!("#[cfg(test)]\nmod tests {{ {sleep} }}")), 1);
        assert_eq!(found("crates/primacy-stores/tests/a.rs", sleep), 1);
        assert_eq!(found("crates/primacy-sim/src/world.rs", sleep), 1);
        assert_eq!(found("crates/primacy-cli/tests/run.rs", sleep), 0);
    }
}
