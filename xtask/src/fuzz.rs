//! `cargo xtask fuzz`: the checks of untrusted bytes, under libFuzzer.
//!
//! Each target is a test that calls `primacy_fuzz::hold`. It is compiled with the coverage counters that libFuzzer
//! needs, which stable Rust supports (`-Cpasses=sancov-module`), and linked with libFuzzer, which is compiled from
//! C++. It starts from the inputs in `crates/primacy-fuzz/corpus/` and those that earlier runs have found in the
//! target directory.

mod keep;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A check, with its test.
struct Target {
    /// Its folder in the corpus.
    name: &'static str,
    /// The test binary, as cargo names it.
    binary: &'static str,
    test: &'static str,
    /// The longest input, in bytes.
    length_max: usize,
}

/// The table: a row for each check.
#[rustfmt::skip]
const TARGETS: &[Target] = &[
    Target { name: "frames",           binary: "primacy",        test: "codec::tests::fuzz::frames",                length_max: 4_096 },
    Target { name: "handshake",        binary: "primacy",        test: "transport::tests::fuzz::handshake",         length_max: 4_096 },
    Target { name: "state_file",       binary: "primacy",        test: "disk::state_file::tests::fuzz::state_file", length_max: 2_048 },
    Target { name: "log_segment",      binary: "primacy",        test: "log_file::tests::fuzz::log_segment", length_max: 4_096 },
    Target { name: "log_snapshot",     binary: "primacy",        test: "log_file::tests::fuzz::log_snapshot", length_max: 4_096 },
    Target { name: "lease_record",     binary: "primacy_stores", test: "record::tests::fuzz::lease_record",         length_max: 4_096 },
    Target { name: "store_url",        binary: "primacy_stores", test: "open::tests::fuzz::store_url",              length_max: 1_024 },
    Target { name: "etcd_value",       binary: "primacy_stores", test: "etcd::value::tests::fuzz::etcd_value",      length_max: 1_024 },
    Target { name: "consul_value",     binary: "primacy_stores", test: "consul::value::tests::fuzz::consul_value",  length_max: 1_024 },
    Target { name: "zookeeper_entry",  binary: "primacy_stores", test: "zookeeper::entry::tests::fuzz::zookeeper_entry", length_max: 1_024 },
    Target { name: "zookeeper_answers", binary: "primacy_stores", test: "zookeeper::client::tests::fuzz::zookeeper_answers", length_max: 4_096 },
    Target { name: "nats_server_ops",  binary: "primacy_stores", test: "nats::link::framing::tests::fuzz::nats_server_ops", length_max: 2_048 },
    Target { name: "kubernetes_lease", binary: "primacy_stores", test: "kubernetes::lease::tests::fuzz::kubernetes_lease", length_max: 2_048 },
    Target { name: "settings",         binary: "primacy_cli",    test: "entry::tests::fuzz::settings",              length_max: 1_024 },
    Target { name: "control_request",  binary: "primacy_cli",    test: "control::server::tests::fuzz::control_request", length_max: 8_192 },
    Target { name: "etcd_api_request", binary: "primacy_etcd_server", test: "tests::fuzz::etcd_api_request", length_max: 4_096 },
];

/// The packages that contain the targets, with the kinds of their test binaries.
const BUILT: &[&str] = &[
    "--package",
    "primacy",
    "--package",
    "primacy-stores",
    "--package",
    "primacy-etcd-server",
    "--package",
    "primacy-cli",
    "--all-features",
    "--lib",
    "--bins",
];

/// The default run time of each target, in seconds.
pub(crate) const SECONDS: u64 = 60;
/// The time limit for one input, in seconds. Each takes microseconds; the limit allows for a busy machine.
const INPUT_SECONDS_MAX: u64 = 60;
/// The memory limit of a target, in MiB, most of it for the inputs found.
const MEMORY_MAX: u64 = 1_024;
/// The maximum size of a single allocation for an input, in MiB. The input of a node is far smaller.
const ALLOCATION_MAX: u64 = 64;
/// The number of output lines shown of a failed run, from its end, where the reason is.
const COMPLAINT_LINES_MAX: usize = 30;

/// Makes the code count the edges that it takes, and report its comparisons. The checks of a debug build are enabled too.
const FLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// The result of one target.
pub(crate) struct Run {
    /// The target.
    pub(crate) target: &'static str,
    /// The number of executed inputs.
    pub(crate) executions: u64,
    /// The number of reached edges of the code, and of features: edges by how often they were taken, and comparisons.
    pub(crate) edges: u64,
    pub(crate) features: u64,
    pub(crate) took: Duration,
    /// The failure: the end of the output, with the path of the input.
    pub(crate) failure: Option<String>,
}

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    seconds: u64,
    /// True to add inputs that earlier runs have found to the corpus, instead of a run.
    keep: bool,
    /// The targets; all, if none is named.
    targets: Vec<String>,
}

/// Runs the fuzzer, and prints a table of the results.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let done = Asked::parse(arguments).and_then(|asked| {
        let targets = chosen(&asked.targets)?;
        if asked.keep {
            return keep::keep(root, &Built::new(root)?, &targets).map(|()| true);
        }
        let runs = runs(root, asked.seconds, &asked.targets)?;
        print!("{}", table(&runs));
        Ok(runs.iter().all(|run| run.failure.is_none()))
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs these targets one after another, or all if none is named, for this many seconds each.
///
/// # Errors
/// If nothing could be run: an unknown target, no C++ compiler, or code that does not compile.
pub(crate) fn runs(root: &Path, seconds: u64, targets: &[String]) -> Result<Vec<Run>, String> {
    let targets = chosen(targets)?;
    let built = Built::new(root)?;
    let run = |target: &&'static Target| {
        eprintln!("  {}, {seconds} s", target.name);
        built.run(target, seconds)
    };
    targets.iter().map(run).collect()
}

/// Returns the runs as a Markdown table, followed by the failures.
pub(crate) fn table(runs: &[Run]) -> String {
    let mut text =
        "| target | executions | edges | features | time | result |\n|---|---|---|---|---|---|\n".to_owned();
    for run in runs {
        let Run { target, executions, edges, features, took, failure } = run;
        let result = if failure.is_some() { "FAILED" } else { "ok" };
        let seconds = took.as_secs();
        text += &format!("| {target} | {executions} | {edges} | {features} | {seconds} s | {result} |\n");
    }
    let failures = runs.iter().filter_map(|run| Some((run.target, run.failure.as_ref()?)));
    for (target, failure) in failures {
        text += &format!("\n{target}: {failure}\n");
    }
    text
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>, String> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        let known = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
        let found = TARGETS.iter().find(|target| target.name == name);
        found.ok_or_else(|| format!("there is no target `{name}`; there are {}", known()))
    };
    names.iter().map(find).collect()
}

impl Asked {
    fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut asked = Self { seconds: SECONDS, keep: false, targets: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(&argument) = arguments.next() {
            match argument {
                "--seconds" => {
                    let seconds = arguments.next().and_then(|seconds| seconds.parse().ok());
                    let seconds = seconds.filter(|&seconds| seconds > 0);
                    asked.seconds =
                        seconds.ok_or("--seconds takes a whole number above 0, as in --seconds 60")?;
                }
                "--keep" => asked.keep = true,
                option if option.starts_with('-') => {
                    return Err(format!(
                        "there is no option {option}; write [--seconds N | --keep] [TARGET...]"
                    ));
                }
                target => asked.targets.push(target.to_owned()),
            }
        }
        Ok(asked)
    }
}

/// The test binaries built for libFuzzer.
struct Built {
    root: PathBuf,
    /// The folder for the inputs that runs find.
    found: PathBuf,
    binaries: BTreeMap<String, PathBuf>,
}

impl Built {
    fn new(root: &Path) -> Result<Self, String> {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let answers = Command::new(&compiler).arg("--version").stdout(Stdio::null()).status();
        if !answers.is_ok_and(|status| status.success()) {
            return Err(format!(
                "{compiler} is missing, and libFuzzer is compiled from C++; install it, for example: \
                 apt-get install --yes --no-install-recommends g++"
            ));
        }
        eprintln!("  building with libFuzzer");
        let arguments = ["test", "--no-run", "--release", "--locked", "--message-format", "json", "--target"];
        let mut command = crate::cargo(root, &arguments);
        // With an explicit target, the flags do not apply to build scripts and macros, which run by themselves.
        command
            .arg(host()?)
            .args(BUILT)
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cargo cannot be run: {error}"))?;
        if !output.status.success() {
            return Err(format!("the targets are not built; cargo test --no-run: {}", output.status));
        }
        let binaries = binaries(&String::from_utf8_lossy(&output.stdout));
        if let Some(target) = TARGETS.iter().find(|target| !binaries.contains_key(target.binary)) {
            return Err(format!(
                "cargo has built no test binary {}, which has {}",
                target.binary, target.name
            ));
        }
        Ok(Self { root: root.to_owned(), found: crate::target(root).join("fuzz"), binaries })
    }

    /// The folder of a target's inputs in the corpus.
    fn kept(&self, target: &Target) -> PathBuf {
        self.root.join("crates/primacy-fuzz/corpus").join(target.name)
    }

    /// The folder of inputs that earlier runs have found for this target.
    fn found(&self, target: &Target) -> PathBuf {
        self.found.join(target.name)
    }

    /// Returns the command that runs libFuzzer for this target with these options.
    fn command(&self, target: &Target, options: &[String]) -> Command {
        let mut command = Command::new(&self.binaries[target.binary]);
        command.args([target.test, "--exact", "--nocapture", "--test-threads=1", "--"]).args(options);
        command.env("PRIMACY_FUZZ", "1").current_dir(&self.root).stdin(Stdio::null());
        command
    }

    fn run(&self, target: &'static Target, seconds: u64) -> Result<Run, String> {
        let (found, kept) = (self.found(target), self.kept(target));
        let told = self.found.join(format!("{}.log", target.name));
        let log = fs::create_dir_all(&found).and_then(|()| File::create(&told));
        let log = log.map_err(|error| format!("{}: {error}", told.display()))?;
        let copy = log.try_clone().map_err(|error| error.to_string())?;
        let options = [
            format!("-max_total_time={seconds}"),
            format!("-timeout={INPUT_SECONDS_MAX}"),
            format!("-rss_limit_mb={MEMORY_MAX}"),
            format!("-malloc_limit_mb={ALLOCATION_MAX}"),
            format!("-max_len={}", target.length_max),
            format!("-artifact_prefix={}-", self.found.join(target.name).display()),
            "-print_final_stats=1".to_owned(),
            found.display().to_string(),
            kept.display().to_string(),
        ];
        let started = Instant::now();
        let status = self.command(target, &options).stdout(copy).stderr(log).status();
        let status = status.map_err(|error| format!("{} cannot be run: {error}", target.binary))?;
        let took = started.elapsed();
        let output = fs::read(&told).map_err(|error| format!("{}: {error}", told.display()))?;
        let output = String::from_utf8_lossy(&output);
        let mut run = Run::read(target.name, &output, took);
        // If the test was renamed, nothing is executed; that counts as a failure.
        if !status.success() || run.executions == 0 {
            let lines: Vec<&str> = output.lines().collect();
            let end = lines[lines.len().saturating_sub(COMPLAINT_LINES_MAX)..].join("\n");
            run.failure = Some(format!(
                "{status}\n{end}\n\nMend it, and keep the input in {} under a name that says what it is.",
                kept.display()
            ));
        }
        Ok(run)
    }
}

impl Run {
    /// Parses libFuzzer's output. The last status line has the coverage; a failed run has no final statistics.
    fn read(target: &'static str, output: &str, took: Duration) -> Self {
        let status =
            output.lines().rfind(|line| line.starts_with('#') && line.contains(" cov: ")).unwrap_or_default();
        let figure = |name: &str| {
            let mut words = status.split_whitespace().skip_while(|word| *word != name);
            words.nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let executed = output.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        let counted = status.trim_start_matches('#').split_whitespace().next();
        let executions = executed.or(counted).and_then(|number| number.trim().parse().ok()).unwrap_or(0);
        Self { target, executions, edges: figure("cov:"), features: figure("ft:"), took, failure: None }
    }
}

/// Returns the test binaries in cargo's JSON messages, one object per line.
fn binaries(messages: &str) -> BTreeMap<String, PathBuf> {
    let text = |line: &str, key: &str| {
        let (_, value) = line.split_once(&format!("\"{key}\":\""))?;
        value.split('"').next().map(str::to_owned)
    };
    let binary = |line: &str| {
        let path = PathBuf::from(text(line, "executable")?);
        let file = path.file_name()?.to_str()?;
        // The library and the command have the same name, but their test binaries have different paths.
        let crate_name = file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned();
        let is_command = line.contains("\"kind\":[\"bin\"]");
        Some((if is_command { format!("{crate_name}_cli") } else { crate_name }, path))
    };
    messages.lines().filter_map(binary).collect()
}

/// Returns the target triple of this machine.
fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).arg("-vV").output().map_err(|error| format!("rustc cannot be run: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say for which machine it is".to_owned())
}

#[cfg(test)]
mod self_tests;
