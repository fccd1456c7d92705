//! `cargo xtask test`: every check and every test of this repository, in one target directory and one profile.

mod sqlite_users;

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::deny::Rules;
use crate::{chaos, lanes, live, mutants, needs, tidy};

/// Packages that the command must not depend on: they need a C++ compiler, CMake, protoc or a system library.
const NOT_IN_THE_COMMAND: &[&str] = &[
    "openssl-sys",
    "native-tls",
    "aws-lc-sys",
    "prost-build",
    "protobuf-src",
    "protoc-bin-vendored",
    "cmake",
];

/// The outcome of a step: passed, with a remark; not run, with the reason; or failed, with the error.
enum Outcome {
    Passed(String),
    NotRun(String),
    Failed(String),
}

/// The number of tests that ran, over all binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
}

/// The counts of passed and failed tests so far.
#[derive(Debug, Default)]
struct Tally {
    count: Count,
    wrong: Vec<String>,
}

struct Session<'a> {
    root: &'a Path,
    count: Count,
}

type Step = fn(&mut Session<'_>) -> Outcome;

/// All steps, cheap ones first. All are run even if one fails, so that one run shows every failure.
const STEPS: &[(&str, Step)] = &[
    ("needs", |_| needs::meet(needs::Step::Test).map_or_else(Outcome::Failed, Outcome::Passed)),
    ("servers", |session| live::install(session.root).map_or_else(Outcome::Failed, Outcome::Passed)),
    ("format", |session| session.cargo(&["fmt", "--all", "--check"])),
    ("tidy", |session| {
        let tidy = tidy::run(session.root) == ExitCode::SUCCESS;
        if tidy { Outcome::passed() } else { Outcome::Failed("see the findings above".to_owned()) }
    }),
    ("generated code is up to date", |session| {
        session.cargo(&["test", "--quiet", "--package", "xtask-proto", "--locked"])
    }),
    ("lints", |session| {
        // Cargo leaves tests that are no default targets out of `--all-targets`, also where they are named beside it.
        let of = |targets: &[&str]| {
            let arguments =
                [&["clippy", "--all-features", "--locked"], targets, &["--", "--deny", "warnings"]];
            session.cargo(&arguments.concat())
        };
        match of(&["--workspace", "--all-targets"]) {
            Outcome::Passed(_) => of(&["-p", "primacy-conformance", "-p", "primacy-cli", "--test", "live"]),
            failed @ (Outcome::NotRun(_) | Outcome::Failed(_)) => failed,
        }
    }),
    ("documentation", documentation),
    ("purity", purity),
    ("features", features),
    ("beside other crates with SQLite", sqlite_users::all),
    ("licences, sources, bans", licences),
    ("cargo deny", cargo_deny),
    ("packages", packages),
    ("cargo semver-checks", semver_checks),
    ("other platforms", other_platforms),
    ("tests", tests),
    ("tests on servers", tests_on_servers),
    ("fixed seeds, run twice", seeds_twice),
    ("mutants, a handful", mutants_handful),
    ("chaos on real processes, a minute", chaos_minute),
];

/// Runs all steps; the last output line has the numbers of passed and failed tests.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut session = Session { root, count: Count::default() };
    let started = Instant::now();
    let mut summary = Vec::new();
    let mut failed = false;
    for (index, (name, step)) in STEPS.iter().enumerate() {
        println!("\n[{}/{}] {name} ({})", index + 1, STEPS.len(), disk(&crate::target(root)));
        let step_started = Instant::now();
        let outcome = step(&mut session);
        failed |= matches!(outcome, Outcome::Failed(_));
        let line = outcome.line(name, step_started.elapsed());
        println!("{line}");
        summary.push(line);
    }
    println!("\nSummary, {} in all:", seconds(started.elapsed()));
    summary.iter().for_each(|line| println!("{line}"));
    println!("\n{} passed, {} failed", session.count.passed, session.count.failed);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns the free space of the target directory's disk: a full disk makes steps fail with unrelated errors.
fn disk(target: &Path) -> String {
    let there = target.ancestors().find(|folder| folder.exists());
    let mut command = Command::new("df");
    command.arg("-Pk").arg(there.unwrap_or(target));
    let left = output(command).ok().and_then(|told| left_of(&told));
    left.map_or_else(
        || "nobody knows how much disk is left".to_owned(),
        |mib| format!("{mib} MiB of disk left"),
    )
}

/// Parses the free space, in MiB: the fourth column of the second line of `df -Pk`.
fn left_of(told: &str) -> Option<u64> {
    Some(told.lines().nth(1)?.split_whitespace().nth(3)?.parse::<u64>().ok()? / 1024)
}

fn documentation(session: &mut Session<'_>) -> Outcome {
    // Libraries only: the command has the same name as the library, and its pages would overwrite the library's.
    let mut command =
        session.command(&["doc", "--workspace", "--all-features", "--lib", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    succeeds(command)
}

/// The crates of state machines.
const MACHINES: &[&str] = &["primacy-core", "primacy-kv"];

/// Checks that the machines depend on no foreign crate and compile without the standard library, and that the command
/// has no heavy dependency.
fn purity(session: &mut Session<'_>) -> Outcome {
    let mut wrong = Vec::new();
    for package in MACHINES {
        let tree = match session.output(&["tree", "--package", package, "--prefix", "none", "--locked"]) {
            Ok(tree) => tree,
            Err(error) => return Outcome::Failed(error),
        };
        let foreign = tree.lines().filter(|line| !line.starts_with("primacy-"));
        wrong.extend(foreign.map(|line| format!("{package} depends on {line}")));
    }
    let command = [
        "tree",
        "--package",
        "primacy-cli",
        "--all-features",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--locked",
    ];
    let command = match session.output(&command) {
        Ok(tree) => tree,
        Err(error) => return Outcome::Failed(error),
    };
    wrong.extend(
        among(NOT_IN_THE_COMMAND, &command).into_iter().map(|name| format!("the command depends on {name}")),
    );
    if !wrong.is_empty() {
        return Outcome::Failed(wrong.join("\n"));
    }
    // Without `test` the crates are `no_std`, so any use of the standard library fails to compile.
    let packages = MACHINES.iter().flat_map(|package| ["--package", package]);
    session.cargo(&["check"].into_iter().chain(packages).chain(["--lib", "--locked"]).collect::<Vec<_>>())
}

/// Returns the packages of `packages` that occur in a dependency tree.
fn among<'a>(packages: &[&str], tree: &'a str) -> Vec<&'a str> {
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| packages.contains(name)).collect()
}

/// The packages that are checked with few features: the command with its default features, and with none; the library
/// with one kind of election only, or one store.
const FEW_FEATURES: &[(&str, Option<&str>)] = &[
    ("primacy-cli", None),
    ("primacy-cli", Some("")),
    ("primacy", Some("file")),
    ("primacy", Some("kubernetes")),
    ("primacy", Some("peers")),
    ("primacy", Some("s3")),
];

/// The dependencies that only elections among peers and networked stores need; a program that elects over files must not
/// have them.
const NOT_WITH_FILES: &[&str] = &["primacy-kv", "prost", "ring", "rustls", "tonic"];

/// Checks that every package of [`FEW_FEATURES`] compiles without a warning, and that the library without peers depends on none of
/// [`NOT_WITH_FILES`].
fn features(session: &mut Session<'_>) -> Outcome {
    for (package, features) in FEW_FEATURES {
        let mut arguments = vec!["clippy", "--package", package, "--locked"];
        if let Some(features) = features {
            arguments.extend(["--no-default-features", "--features", features]);
        }
        arguments.extend(["--", "--deny", "warnings"]);
        if let failed @ (Outcome::NotRun(_) | Outcome::Failed(_)) = session.cargo(&arguments) {
            return failed;
        }
    }
    let tree = ["tree", "--package", "primacy", "--no-default-features", "--features", "file"];
    let tree = [&tree[..], &["--edges", "normal,build", "--prefix", "none", "--locked"]].concat();
    match session.output(&tree) {
        Err(error) => Outcome::Failed(error),
        Ok(tree) => match among(NOT_WITH_FILES, &tree)[..] {
            [] => Outcome::passed(),
            ref found => Outcome::Failed(format!("primacy with files only depends on {}", found.join(", "))),
        },
    }
}

fn licences(session: &mut Session<'_>) -> Outcome {
    let arguments =
        ["tree", "--workspace", "--all-features", "--prefix", "none", "--format", "{p}|{l}", "--locked"];
    let read = |path: &str| {
        std::fs::read_to_string(session.root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let findings = session.output(&arguments).and_then(|tree| {
        let mut findings = Rules::parse(&read("deny.toml")?).check_tree(&tree);
        findings.extend(Rules::check_sources(&read("Cargo.lock")?));
        Ok(findings)
    });
    match findings {
        Ok(findings) if findings.is_empty() => Outcome::passed(),
        Ok(findings) => Outcome::Failed(findings.join("\n")),
        Err(error) => Outcome::Failed(error),
    }
}

fn cargo_deny(session: &mut Session<'_>) -> Outcome {
    if session.output(&["deny", "--version"]).is_err() {
        return Outcome::NotRun("not installed; licences, sources and bans are checked above".to_owned());
    }
    // Advisories change daily and need the network, so they are not a property of a commit.
    session.cargo(&["deny", "check", "licenses", "sources", "bans"])
}

/// Packages each crate that may be published, without building it from the package: the tests build the same code.
fn packages(session: &mut Session<'_>) -> Outcome {
    let names = match tidy::published(session.root) {
        Ok(names) => names,
        Err(error) => return Outcome::Failed(error),
    };
    // `--allow-dirty`, because the tests also run in trees with changes.
    let mut arguments = vec!["package", "--no-verify", "--allow-dirty", "--locked", "--quiet"];
    names.iter().for_each(|name| arguments.extend(["--package", name]));
    session.cargo(&arguments)
}

/// Compares the public API with that of the latest tag.
fn semver_checks(session: &mut Session<'_>) -> Outcome {
    let mut describe = Command::new("git");
    describe.args(["describe", "--tags", "--abbrev=0"]).current_dir(session.root);
    let Ok(tag) = output(describe) else {
        return Outcome::NotRun("no version has been tagged, so there is none to compare with".to_owned());
    };
    if session.output(&["semver-checks", "--version"]).is_err() {
        return Outcome::NotRun("not installed; `cargo install --locked cargo-semver-checks`".to_owned());
    }
    session.cargo(&["semver-checks", "--workspace", "--baseline-rev", tag.trim()])
}

/// Other platforms, with the packages checked for each if its standard library is installed (`rustup target add`).
/// The C code of SQLite and ring needs a C compiler for the platform, so only a Mac can check the whole library for
/// macOS.
const OTHER_PLATFORMS: &[(&str, &[&str])] = &[
    ("aarch64-apple-darwin", &["--package", "primacy", "--no-default-features", "--features", "file"]),
    ("x86_64-pc-windows-gnu", &["--package", "primacy-core"]),
];

fn other_platforms(session: &mut Session<'_>) -> Outcome {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]);
    let sysroot = match output(rustc) {
        Ok(sysroot) => sysroot,
        Err(error) => return Outcome::Failed(error),
    };
    let library = Path::new(sysroot.trim()).join("lib/rustlib");
    let (here, missing): (Vec<_>, Vec<_>) =
        OTHER_PLATFORMS.iter().copied().partition(|(target, _)| library.join(target).is_dir());
    for (target, what) in &here {
        let arguments = [&["check", "--lib", "--locked", "--target", *target][..], what].concat();
        if let failed @ (Outcome::NotRun(_) | Outcome::Failed(_)) = session.cargo(&arguments) {
            return failed;
        }
    }
    let named = |platforms: &[(&str, &[&str])]| {
        platforms.iter().map(|(target, _)| *target).collect::<Vec<_>>().join(", ")
    };
    if missing.is_empty() {
        return Outcome::Passed(named(&here));
    }
    Outcome::NotRun(format!("the standard library is not installed for {}", named(&missing)))
}

/// The variable that makes a live test fail if its server is missing; without it, the test reports NOT RUN.
const REQUIRE_LIVE_VARIABLE: &str = "PRIMACY_REQUIRE_LIVE";

/// The number of concurrent tests on servers, independent of the number of processors: they mostly wait for leases.
const LIVE_AT_A_TIME: &str = "5";

/// The number of concurrent tests in any other binary: many wait for leases or processes too.
const TESTS_AT_A_TIME: &str = "4";

/// Runs all tests except those on servers.
fn tests(session: &mut Session<'_>) -> Outcome {
    let build = [
        "test",
        "--workspace",
        "--all-features",
        "--no-run",
        "--locked",
        "--message-format",
        "json-render-diagnostics",
    ];
    let mut build = session.command(&build);
    // Some tests without servers need programs that not every machine has.
    session.prepare(&mut build, needs::all_of_use());
    let told = match build.stdin(Stdio::null()).stderr(Stdio::inherit()).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => return Outcome::Failed(format!("a test was not built; cargo test: {}", output.status)),
        Err(error) => return Outcome::Failed(format!("cargo cannot be run: {error}")),
    };
    let mut tally = Tally::default();
    let prepare = |command: &mut Command| session.prepare(command, needs::all_of_use());
    let binaries = lanes::binaries(&told);
    if binaries.is_empty() {
        return Outcome::Failed("cargo has told of no test that it has built".to_owned());
    }
    lanes::run(&binaries, prepare, |binary, printed, ended| {
        let name = binary.executable.display();
        println!("\n     Has run {name}");
        printed.iter().for_each(|line| tally.take(line));
        tally.end(&name.to_string(), ended);
    });
    // Cargo builds the documentation tests as it runs them.
    let mut documented =
        session.command(&["test", "--workspace", "--all-features", "--doc", "--no-fail-fast", "--locked"]);
    session.prepare(&mut documented, needs::all_of_use());
    let ended = lanes::watch(&mut documented, |line| tally.take(line));
    tally.end("cargo test --doc", ended);
    session.judge(tally)
}

/// Runs the tests of stores on real servers. The earlier step has installed the servers, so a missing one is a failure.
fn tests_on_servers(session: &mut Session<'_>) -> Outcome {
    let arguments = ["--test", "live", "--", "--test-threads", LIVE_AT_A_TIME];
    let mut command =
        session.command(&["test", "--workspace", "--all-features", "--no-fail-fast", "--locked"]);
    session.prepare(command.args(arguments), true);
    let mut tally = Tally::default();
    let ended = lanes::watch(&mut command, |line| tally.take(line));
    tally.end("cargo test", ended);
    session.judge(tally)
}

/// The number of mutants that are tried with every commit; `cargo xtask mutants` tries all.
const MUTANTS_DRAWN: &str = "2";

/// Tries a few mutants, chosen by the commit, so that all are tried over time.
fn mutants_handful(session: &mut Session<'_>) -> Outcome {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(session.root);
    let commit = match output(git) {
        Ok(commit) => commit,
        Err(why) => {
            return Outcome::NotRun(format!("mutants are drawn by the commit, and there is none: {why}"));
        }
    };
    match mutants::run(session.root, &["--draw", MUTANTS_DRAWN, "--seed", commit.trim()]) == ExitCode::SUCCESS
    {
        true => Outcome::passed(),
        false => Outcome::Failed("see the table above".to_owned()),
    }
}

/// Runs real clusters under all faults, with a new schedule each time, whose seed is printed.
fn chaos_minute(session: &mut Session<'_>) -> Outcome {
    match chaos::a_minute(session.root) {
        Ok(None) => Outcome::passed(),
        Ok(Some(why)) => Outcome::NotRun(why),
        Err(why) => Outcome::Failed(why),
    }
}

/// The seeds whose traces are compared between processes. The tests also run all seeds twice, but within one process,
/// in which per-process random values are equal.
const SEEDS_TOLD_TWICE: &[&str] = &["1", "2", "3"];

/// Checks that the same seeds give byte-identical traces in two processes.
fn seeds_twice(session: &mut Session<'_>) -> Outcome {
    if !session.root.join("crates/primacy-sim/tests/seeds.rs").exists() {
        return Outcome::NotRun("primacy-sim has no tests/seeds.rs".to_owned());
    }
    let mut lines = 0;
    for seed in SEEDS_TOLD_TWICE {
        match (session.tell_seed(seed), session.tell_seed(seed)) {
            (Ok(first), Ok(second)) => match difference(&first, &second) {
                Some(difference) => return Outcome::Failed(format!("seed {seed}: {difference}")),
                None => lines += without_times(&first).len(),
            },
            (Err(error), _) | (_, Err(error)) => return Outcome::Failed(format!("seed {seed}: {error}")),
        }
    }
    Outcome::Passed(format!("{lines} lines are the same"))
}

/// Returns the first difference of two runs, if there is one.
fn difference(first: &str, second: &str) -> Option<String> {
    let (first, second) = (without_times(first), without_times(second));
    let at = (0..first.len().max(second.len())).find(|&at| first.get(at) != second.get(at))?;
    let line = |lines: &[&str]| lines.get(at).copied().unwrap_or("(nothing)").to_owned();
    Some(format!("line {} differs:\n{}\n{}", at + 1, line(&first), line(&second)))
}

/// Returns the lines of a test run without the summary lines, which contain times.
fn without_times(output: &str) -> Vec<&str> {
    output.lines().filter(|line| !line.starts_with("test result:")).collect()
}

impl Session<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        crate::cargo(self.root, arguments)
    }

    /// Prepares a command; with `require`, a test with a missing server fails.
    fn prepare(&self, command: &mut Command, require: bool) {
        command.envs(live::environment(self.root)).env("RUST_TEST_THREADS", TESTS_AT_A_TIME);
        if require {
            command.env(REQUIRE_LIVE_VARIABLE, "1");
        }
    }

    fn judge(&mut self, tally: Tally) -> Outcome {
        let Tally { count: Count { passed, failed }, wrong } = tally;
        self.count.passed += passed;
        self.count.failed += failed;
        match wrong.is_empty() && failed == 0 {
            true => Outcome::Passed(format!("{passed} tests")),
            false => {
                let failed = format!("{failed} of {} tests failed", passed + failed);
                Outcome::Failed([vec![failed], wrong].concat().join("\n"))
            }
        }
    }

    /// Returns the whole trace of one seed, for each election.
    fn tell_seed(&self, seed: &str) -> Result<String, String> {
        let mut command = self.command(&["test", "--package", "primacy-sim", "--test", "seeds", "--locked"]);
        command.args(["--", "--nocapture", "--test-threads=1"]).env("PRIMACY_SIM_SEED", seed);
        output(command)
    }

    fn cargo(&self, arguments: &[&str]) -> Outcome {
        succeeds(self.command(arguments))
    }

    /// Returns the output of a cargo command, or its error output.
    fn output(&self, arguments: &[&str]) -> Result<String, String> {
        output(self.command(arguments)).map_err(|error| format!("cargo {}: {error}", arguments.join(" ")))
    }
}

/// The number of output lines shown of a failed command, from its end, where the reason is.
const COMPLAINT_LINES_MAX: usize = 40;

/// Returns the output of a command, or its error output.
fn output(mut command: Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let all = text(&output.stdout) + &text(&output.stderr);
    let lines: Vec<&str> = all.lines().collect();
    let end = &lines[lines.len().saturating_sub(COMPLAINT_LINES_MAX)..];
    Err(format!("{}\n{}", output.status, end.join("\n")))
}

fn succeeds(mut command: Command) -> Outcome {
    // Flushes our output before the child's, so that the lines are in order.
    drop(io::stdout().flush());
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Outcome::passed(),
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

impl Outcome {
    fn passed() -> Self {
        Self::Passed(String::new())
    }

    fn line(&self, name: &str, took: Duration) -> String {
        let (word, remark) = match self {
            Self::Passed(remark) => ("ok", remark),
            Self::NotRun(reason) => ("NOT RUN", reason),
            Self::Failed(what) => ("FAILED", what),
        };
        let remark = if remark.is_empty() { String::new() } else { format!("  {remark}") };
        format!("  {word:<8} {name}, {}{}", seconds(took), remark.replace('\n', "\n             "))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{}.{} s", duration.as_secs(), duration.subsec_millis() / 100)
}

impl Tally {
    /// Processes a line of output, and prints it.
    fn take(&mut self, line: &str) {
        self.count.add(line);
        println!("{line}");
    }

    /// Records the end of a test program.
    fn end(&mut self, name: &str, ended: lanes::Ended) {
        if !ended.left.is_empty() {
            self.wrong.push(format!("{name} left processes behind, ended now: {}", ended.left.join(", ")));
        }
        match ended.status {
            Ok(status) if status.success() => {}
            Ok(status) => self.wrong.push(format!("{name}: {status}")),
            Err(error) => self.wrong.push(format!("{name} cannot be run: {error}")),
        }
    }
}

impl Count {
    /// Adds a summary line such as `test result: ok. 12 passed; 0 failed; …`; other lines are ignored.
    fn add(&mut self, line: &str) {
        let Some(result) = line.trim_start().strip_prefix("test result: ") else { return };
        let numbers: Vec<usize> = result.split([' ', ';']).filter_map(|word| word.parse().ok()).collect();
        if let [passed, failed, ..] = numbers[..] {
            self.passed += passed;
            self.failed += failed;
        }
    }
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn results_of_all_binaries_are_added_up() {
        let mut count = Count::default();
        for line in [
            "running 2 tests",
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ] {
            count.add(line);
        }
        assert_eq!(count, Count { passed: 15, failed: 2 });
    }

    #[test]
    fn packages_that_must_not_be_are_found() {
        let tree = "primacy-cli v0.1.0 (path)\nopenssl-sys v0.9.0\nprost v0.14.0\n";
        assert_eq!(among(NOT_IN_THE_COMMAND, tree), ["openssl-sys"]);
        assert_eq!(among(NOT_WITH_FILES, tree), ["prost"]);
    }

    #[test]
    fn only_times_are_left_out_of_the_comparison() {
        assert_eq!(without_times("a\ntest result: ok. 1 passed; finished in 0.1s\nb\n"), ["a", "b"]);
        assert_eq!(difference("a\ntest result: ok. 0.1s\nb\n", "a\ntest result: ok. 0.2s\nb\n"), None);
        assert!(difference("a\nb\n", "a\nc\n").is_some_and(|difference| difference.starts_with("line 2")));
        assert!(difference("a\n", "a\nb\n").is_some());
    }

    #[test]
    fn what_df_prints_is_understood() {
        let told = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 2048 1023 1025 50% /\n";
        assert_eq!(left_of(told), Some(1));
        assert_eq!(left_of("df: no such file\n"), None);
    }

    #[test]
    fn a_summary_line_tells_what_failed() {
        let line = Outcome::Failed("one\ntwo".to_owned()).line("tidy", Duration::from_millis(1_250));
        assert_eq!(line, "  FAILED   tidy, 1.2 s  one\n             two");
    }
}
