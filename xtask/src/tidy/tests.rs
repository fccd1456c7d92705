//! Checks of tests: none is skipped, none sleeps, no unfinished code remains, and the tests that documents name exist.

use std::collections::BTreeSet;

use super::documents::{documents, prose_lines};
use super::{Finding, Tree, is_test_file};

/// The patterns that are banned everywhere, with the reasons.
const UNFINISHED: &[(&str, &str)] = &[
    ("#[ignore", "a test that does not run proves nothing; run it, or delete it"),
    ("todo!", "finish it, or leave it out"),
    ("unimplemented!", "finish it, or leave it out"),
];

/// The words that are banned in comments.
const UNFINISHED_COMMENTS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

const SLEEPS: &[&str] = &["thread::sleep", "time::sleep", "sleep_until", "park_timeout"];

/// The files in which a test may sleep, with the reasons. All other tests are passed the time, or wait for an event with
/// a bound.
const MAY_SLEEP: &[(&str, &str)] = &[
    (
        "crates/primacy-cli/tests/",
        "real processes: what the process table says can only be asked again and again",
    ),
    ("crates/primacy-cli/src/cmd/demo", "real processes, as above"),
    ("crates/primacy-lab/tests/", "real processes, as above"),
    ("examples/queue-broker/tests/", "real processes, as above"),
    (
        "crates/primacy/tests/",
        "real clocks and sockets: what a blocked runtime loses shows only in real time",
    ),
    (
        "crates/primacy/src/leader_document/tests.rs",
        "its clock is the runtime's, which stands still but for sleeping: that is how a test hands in the time",
    ),
    ("crates/primacy-conformance/", "the live arm: a lease on a real server ends in real time"),
];

/// The minimum number of words of a test's name that is checked: shorter names in documents may be of other things or
/// other programs.
const WORDS_OF_A_SENTENCE: usize = 5;

/// The names in documents that are defined elsewhere, with the reasons.
const NAMED_ELSEWHERE: &[(&str, &str)] =
    &[("idle_in_transaction_session_timeout", "a setting of PostgreSQL, which we do not touch")];

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
        let machines = ["crates/primacy-core/", "crates/primacy-kv/", "crates/primacy-sim/"]
            .iter()
            .any(|below| path.starts_with(below));
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

/// Checks that each test that a document names exists: a name of that many words must occur in a source, or be that of a
/// file.
pub(super) fn named(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let known = sentences_in_sources(tree);
    for (path, text) in documents(tree) {
        for (number, line) in prose_lines(text) {
            for name in line.split('`').skip(1).step_by(2).flat_map(words).filter(|word| is_sentence(word)) {
                let is_elsewhere = NAMED_ELSEWHERE.iter().any(|(known, _)| *known == name);
                if !is_elsewhere && !known.contains(name) {
                    let message = format!("there is no {name}; a claim names the test that shows it");
                    findings.push(Finding::new(path, number, message));
                }
            }
        }
    }
    findings
}

/// Returns all names of that many words in the sources: of tests, metrics, settings, and the files of scripts and
/// mutants.
fn sentences_in_sources(tree: &Tree) -> BTreeSet<&str> {
    let sources = tree.files("", "").filter(|(path, _)| !path.ends_with(".md"));
    sources.flat_map(|(path, text)| words(path).chain(words(text))).filter(|word| is_sentence(word)).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric())
}

fn is_sentence(word: &str) -> bool {
    let is_lower = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    word.split('_').count() >= WORDS_OF_A_SENTENCE && word.split('_').all(is_lower)
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

    #[test]
    fn a_test_that_is_named_and_not_there_is_found() {
        let document = |text: &str| {
            let sources = [
                ("crates/a/src/a.rs", "#[test]\nfn who_leads_may_write_once() {}\n"),
                ("mutants/reply_before_it_is_written.patch", ""),
            ];
            named(&Tree::of(&[&sources[..], &[("docs/a.md", text)]].concat())).len()
        };
        assert_eq!(document("`who_leads_may_write_once`, in `a.rs::who_leads_may_write_once`\n"), 0);
        assert_eq!(document("It was `who_leads_may_write_twice` once.\n"), 1);
        assert_eq!(document("`cargo test -- a::who_leads_may_write_twice`\n"), 1);
        assert_eq!(document("the mutant `reply_before_it_is_written`\n"), 0);
        assert_eq!(document("`four_words_are_short`, `NOT_OF_A_TEST_AT_ALL`, not_in_code_at_all\n"), 0);
        assert_eq!(document("```text\nwho_leads_may_write_twice\n```\n"), 0);
        assert_eq!(document("`idle_in_transaction_session_timeout`\n"), 0);
    }
}
