//! Checks that functions and files are short: a function must fit on a screen to be read as a whole.

use super::{Finding, Tree, is_test_file};

/// The maximum number of lines of a function, from `fn` to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// The maximum number of code lines of a file, without unit tests and comments: a file must not be split because it
/// is well explained or well tested.
const FILE_LINES_MAX: usize = 1000;
/// The maximum number of lines of the unit tests in a file: a longer test should be a script.
const UNIT_TEST_LINES_MAX: usize = 200;

/// Checks the sizes. Functions in tests have no limit of their own: a test is a sequence that is read once, and
/// splitting it into helpers would hide it. The limit of their module or file applies.
pub(super) fn short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust("") {
        let (code, unit_tests) = rust.lines();
        if code > FILE_LINES_MAX {
            let message = format!("{code} lines of code, at most {FILE_LINES_MAX}; split it by idea");
            findings.push(Finding::new(path, 0, message));
        }
        if unit_tests > UNIT_TEST_LINES_MAX {
            let message = format!(
                "{unit_tests} lines of unit tests, at most {UNIT_TEST_LINES_MAX}; tell the stories as scripts, \
                 or move the tests to a file of their own"
            );
            findings.push(Finding::new(path, 0, message));
        }
        for function in rust.functions() {
            let in_test = is_test_file(path) || rust.is_test(function.offset);
            if function.lines > FUNCTION_LINES_MAX && !in_test {
                let message = format!(
                    "`{}` has {} lines, at most {FUNCTION_LINES_MAX}; give its parts names",
                    function.name, function.lines
                );
                findings.push(Finding::new(path, rust.line(function.offset), message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        short(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn what_is_too_long_is_found() {
        let function = |lines: usize| format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2));
        assert_eq!(found("crates/a/src/b.rs", &function(70)), 0);
        assert_eq!(found("crates/a/src/b.rs", &function(71)), 1);
        assert_eq!(found("crates/a/tests/b.rs", &function(71)), 0);
        assert_eq!(found("crates/a/src/b.rs", &"use a;\n// why\n\n".repeat(1000)), 0);
        assert_eq!(found("crates/a/src/b.rs", &"use a;\n".repeat(1001)), 1);
        let tests =
            |lines: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    use a;\n".repeat(lines - 3));
        assert_eq!(found("crates/a/src/b.rs", &tests(200)), 0);
        assert_eq!(found("crates/a/src/b.rs", &tests(201)), 1);
    }
}
