//! `cargo xtask test`: every check and every test of this repository, in one target directory and one profile.

mod sqlite_users;

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::deny::Rules;
use crate::{chaos, lanes, live, mutants, needs, tidy};

/// Packages that may not be in the command: they need a C++ compiler, CMake, protoc or a system library.
const NOT_IN_THE_COMMAND: &[&str] = &[
    "openssl-sys",
    "native-tls",
    "aws-lc-sys",
    "prost-build",
    "protobuf-src",
    "protoc-bin-vendored",
    "cmake",
];

/// The outcome of a step: passed, with a remark; not run, with the reason; or failed, with what is wrong.
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

/// The results of some of them, so far.
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

/// The steps, cheap ones first. All run even if one fails, so that one run shows everything.
const STEPS: &[(&str, Step)] = &[
    ("needs", |_| needs::meet(needs::Step::Test).map_or_else(Outcome::Failed, Outcome::Passed)),
    ("servers", |session| live::install(session.root).map_or_else(Outcome::Failed, Outcome::Passed)),
    ("format", |session| session.cargo(&["fmt", "--all", "--check"])),
    ("tidy", |session| {
        let tidy = tidy::run(session.root) == ExitCode::SUCCESS;
        if tidy { Outcome::passed() } else { Outcome::Failed("see the findings above".to_owned()) }
    }),
    ("lints", |session| {
        session.cargo(&[
            "clippy",
            "--workspace",
            "--all-features",
            "--all-targets",
            // Not a default target: it needs servers.
            "--test",
            "live",
            "--locked",
            "--",
            "--deny",
            "warnings",
        ])
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

/// Runs all steps; the last line has the numbers of tests that passed and failed.
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

/// The free space of the disk on which all is built: without any, a step fails for reasons that do not name it.
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

/// The fourth column of the second line of what `df -Pk` prints, in MiB.
fn left_of(told: &str) -> Option<u64> {
    Some(told.lines().nth(1)?.split_whitespace().nth(3)?.parse::<u64>().ok()? / 1024)
}

fn documentation(session: &mut Session<'_>) -> Outcome {
    // Libraries only: the command has the library's name, and its pages would lie on top of each other.
    let mut command =
        session.command(&["doc", "--workspace", "--all-features", "--lib", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    succeeds(command)
}

/// The crates of machines.
const MACHINES: &[&str] = &["primacy-core", "primacy-kv"];

/// The machines depend on no foreign crate and are built without the standard library; the command needs nothing heavy.
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
    // Without `test` it says `no_std`, so whatever it took from the standard library does not compile here.
    let packages = MACHINES.iter().flat_map(|package| ["--package", package]);
    session.cargo(&["check"].into_iter().chain(packages).chain(["--lib", "--locked"]).collect::<Vec<_>>())
}

/// The packages of `packages` that a tree of dependencies has.
fn among<'a>(packages: &[&str], tree: &'a str) -> Vec<&'a str> {
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| packages.contains(name)).collect()
}

/// The packages that are built with few features, and with which: the command with its default features, and with none; the library
/// with one kind of election only.
const FEW_FEATURES: &[(&str, Option<&str>)] = &[
    ("primacy-cli", None),
    ("primacy-cli", Some("")),
    ("primacy", Some("file")),
    ("primacy", Some("kubernetes")),
    ("primacy", Some("peers")),
];

/// The dependencies that only elections among peers and stores on servers need: no part of a program that elects over files.
const NOT_WITH_FILES: &[&str] = &["primacy-kv", "prost", "ring", "rustls", "tonic"];

/// Every package of [`FEW_FEATURES`] is built, and the library without peers has nothing of [`NOT_WITH_FILES`].
fn features(session: &mut Session<'_>) -> Outcome {
    for (package, features) in FEW_FEATURES {
        let mut arguments = vec!["check", "--package", package, "--locked"];
        if let Some(features) = features {
            arguments.extend(["--no-default-features", "--features", features]);
        }
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
    // Advisories change from day to day and need the network; they are no property of a commit.
    session.cargo(&["deny", "check", "licenses", "sources", "bans"])
}

/// Makes the package of each crate that may be published. The build from it is left to the publisher: it is the build of the tests.
fn packages(session: &mut Session<'_>) -> Outcome {
    let names = match tidy::published(session.root) {
        Ok(names) => names,
        Err(error) => return Outcome::Failed(error),
    };
    // `--allow-dirty`: the tests run in trees with changes, too.
    let mut arguments = vec!["package", "--no-verify", "--allow-dirty", "--locked", "--quiet"];
    names.iter().for_each(|name| arguments.extend(["--package", name]));
    session.cargo(&arguments)
}

/// Compares the public API with that of the last tag.
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

/// Other platforms with the packages checked for them, where the platform's standard library is installed (`rustup target add`). The C code of SQLite and
/// of ring needs a compiler for the platform, so that only a Mac can check all of the library for macOS.
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

/// The variable that makes a live test fail where its server is not there; without it, the test says NOT RUN.
const REQUIRE_LIVE_VARIABLE: &str = "PRIMACY_REQUIRE_LIVE";

/// The number of tests on servers that run at a time, however few processors there are: they wait for leases most of the time.
const LIVE_AT_A_TIME: &str = "5";

/// The number of all other tests of one binary that run at a time: many wait for leases, too, or for processes.
const TESTS_AT_A_TIME: &str = "4";

/// All tests but the ones on servers.
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
    // Tests that need no server may need programs that not every machine can have.
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
    // The tests in the documentation are built by cargo as it runs them.
    let mut documented =
        session.command(&["test", "--workspace", "--all-features", "--doc", "--no-fail-fast", "--locked"]);
    session.prepare(&mut documented, needs::all_of_use());
    let ended = lanes::watch(&mut documented, |line| tally.take(line));
    tally.end("cargo test --doc", ended);
    session.judge(tally)
}

/// The tests of stores on real servers. What the first steps have installed must be found: a server that is left out fails.
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

/// The number of mutants that are tried with every commit. All of them: `cargo xtask mutants`.
const MUTANTS_DRAWN: &str = "2";

/// Tries other mutants with every commit, so that all are tried in time, and the same for the same commit.
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

/// Real clusters under every fault; another schedule each time, whose seed it prints.
fn chaos_minute(session: &mut Session<'_>) -> Outcome {
    match chaos::a_minute(session.root) {
        Ok(None) => Outcome::passed(),
        Ok(Some(why)) => Outcome::NotRun(why),
        Err(why) => Outcome::Failed(why),
    }
}

/// The seeds whose stories are compared. The tests run all seeds twice too, but within one process, where what is drawn once for a process
/// is the same both times.
const SEEDS_TOLD_TWICE: &[&str] = &["1", "2", "3"];

/// Checks that the same seeds give the same story, to the byte, in two processes.
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

/// The place where two runs differ, if they do.
fn difference(first: &str, second: &str) -> Option<String> {
    let (first, second) = (without_times(first), without_times(second));
    let at = (0..first.len().max(second.len())).find(|&at| first.get(at) != second.get(at))?;
    let line = |lines: &[&str]| lines.get(at).copied().unwrap_or("(nothing)").to_owned();
    Some(format!("line {} differs:\n{}\n{}", at + 1, line(&first), line(&second)))
}

/// The lines of a test run without its summary lines, which contain the times.
fn without_times(output: &str) -> Vec<&str> {
    output.lines().filter(|line| !line.starts_with("test result:")).collect()
}

impl Session<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        crate::cargo(self.root, arguments)
    }

    /// Prepares a command; with `require`, a test whose server is not there fails.
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

    /// The whole story of one seed, of each election.
    fn tell_seed(&self, seed: &str) -> Result<String, String> {
        let mut command = self.command(&["test", "--package", "primacy-sim", "--test", "seeds", "--locked"]);
        command.args(["--", "--nocapture", "--test-threads=1"]).env("PRIMACY_SIM_SEED", seed);
        output(command)
    }

    fn cargo(&self, arguments: &[&str]) -> Outcome {
        succeeds(self.command(arguments))
    }

    /// Returns the output of a cargo command, or its complaint.
    fn output(&self, arguments: &[&str]) -> Result<String, String> {
        output(self.command(arguments)).map_err(|error| format!("cargo {}: {error}", arguments.join(" ")))
    }
}

/// The number of lines shown of a failed command's output: its end, where the reason is.
const COMPLAINT_LINES_MAX: usize = 40;

/// Returns the output of a command, or its complaint.
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
    // Ours before theirs, so that the lines come in order.
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
    /// Takes a line of output; it is shown.
    fn take(&mut self, line: &str) {
        self.count.add(line);
        println!("{line}");
    }

    /// Takes the end of a program that printed them.
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
    /// Takes in `test result: ok. 12 passed; 0 failed; …`; other lines count nothing.
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
