//! The judges that must catch a mutant, each a command: a search of many seeds, a space of the model checker, a test, or a run of chaos.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::patch::Judge;
use crate::chaos;

/// The number of searched seeds. A mutant that survives all of them survives. A rarer mistake needs better worlds,
/// rather than more of them.
const SEEDS_MAX: &str = "20000";

/// The duration of a run of chaos, in minutes, and the seed of its faults.
const CHAOS: [&str; 4] = ["--minutes", "1", "--seed", "1"];

/// The time limit of a command, after which it counts as hanging: a mutant may loop for ever.
const PATIENCE: Duration = Duration::from_secs(600);

/// The time that it then has to end in order: a run of chaos removes its namespaces.
const GRACE: Duration = Duration::from_secs(30);

/// The interval between two checks whether a command has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The verdict of a judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    /// No violation was found, with this amount of work.
    Nothing {
        run: String,
    },
    Caught(Catch),
    /// The judge cannot run on this machine, or for this user.
    NotRun(String),
}

/// The way in which a mutant was caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Catch {
    /// The invariant or test that caught it.
    pub(super) by: String,
    /// The first seed whose world breaks the rule, if there are seeds.
    pub(super) first_seed: Option<u64>,
    /// The number of worlds among the first thousand seeds in which any rule broke.
    pub(super) rate: Option<u64>,
    /// All rules that broke, with their counts.
    pub(super) spoke: String,
}

/// Builds and runs judges in the copy.
pub(super) struct Builder {
    tree: PathBuf,
    target: PathBuf,
}

impl Builder {
    pub(super) fn new(tree: &Path, target: &Path) -> Self {
        Self { tree: tree.to_owned(), target: target.to_owned() }
    }

    /// Builds the programs that the judge runs.
    pub(super) fn build(&self, judge: &Judge) -> Result<(), String> {
        let example = |name| ["build", "--release", "--package", "primacy-sim", "--example", name];
        let command = match judge {
            Judge::Seeds { .. } => self.cargo(&example("hunt")),
            Judge::Model { .. } => self.cargo(&example("prove")),
            Judge::Test { package, target, .. } => {
                let mut command = self.cargo(&["test", "--no-run", "--all-features", "--package", package]);
                command.args(target_option(target));
                command
            }
            Judge::Chaos { .. } => self.cargo(&[
                "build",
                "--release",
                "--all-features",
                "--package",
                "primacy-cli",
                "--package",
                "primacy-lab",
            ]),
        };
        let (status, text) = self.run(command)?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(_) => Err(format!("it is not built: {}", end(&text))),
            None => Err("it is not built within the time".to_owned()),
        }
    }

    /// Runs the judge, and reads its verdict.
    pub(super) fn ask(&self, judge: &Judge) -> Result<Spoken, String> {
        let command = match judge {
            Judge::Seeds { election, .. } => {
                let mut command = Command::new(self.target.join("release/examples/hunt"));
                command.args([election, SEEDS_MAX]);
                command
            }
            Judge::Model { space, .. } => {
                let mut command = Command::new(self.target.join("release/examples/prove"));
                command.args(["--space", space]);
                command
            }
            Judge::Test { package, target, test } => {
                let mut command = self.cargo(&["test", "--all-features", "--package", package]);
                command.args(target_option(target)).args(["--", "--exact", test]);
                command
            }
            Judge::Chaos { arm, .. } => {
                let mut command = Command::new(self.target.join("release/primacy-lab"));
                command.args(["chaos", "--arm", arm]).args(CHAOS);
                command.arg("--primacy").arg(self.target.join("release/primacy"));
                command.arg("--dir").arg(self.chaos_folder()?);
                command
            }
        };
        let (status, text) = self.run(command)?;
        let Some(status) = status else {
            let spoke = format!("no answer within {} s", PATIENCE.as_secs());
            return Ok(Spoken::Caught(Catch { by: "hang".to_owned(), spoke, ..Catch::default() }));
        };
        match judge {
            Judge::Seeds { .. } | Judge::Model { .. } if status.success() => said(&text),
            Judge::Seeds { .. } | Judge::Model { .. } => Err(format!("{judge}: {status}: {}", end(&text))),
            Judge::Test { test, .. } => tested(test, &text),
            Judge::Chaos { rule, .. } => made_chaos(rule, status.code(), &text),
        }
    }

    /// Creates an empty folder for a run of chaos, which keeps its files if a rule was broken.
    fn chaos_folder(&self) -> Result<PathBuf, String> {
        let folder = self.target.join("chaos");
        let emptied = match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => std::fs::create_dir_all(&folder),
        };
        emptied.map(|()| folder.clone()).map_err(|error| format!("{}: {error}", folder.display()))
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = crate::cargo(&self.tree, arguments);
        command.arg("--locked").env("CARGO_TARGET_DIR", &self.target);
        // A mutant may leave unused items, whose warnings must not fail the build.
        command.env("RUSTFLAGS", "--cap-lints=allow");
        // A mutant changes a line or two, so incremental compilation is ten times faster.
        command.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
        command
    }

    /// Runs a command to its end or the time limit; its output goes to a file, so that it need not be read meanwhile.
    fn run(&self, mut command: Command) -> Result<(Option<ExitStatus>, String), String> {
        let path = self.target.join("output");
        let failed = |error: io::Error| error.to_string();
        std::fs::create_dir_all(&self.target).map_err(failed)?;
        let file = File::create(&path).map_err(failed)?;
        let other = file.try_clone().map_err(failed)?;
        // In a process group of its own, so that none of its processes is left after the time limit.
        command.stdin(Stdio::null()).stdout(file).stderr(other).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let started = Instant::now();
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break Some(status),
                None if started.elapsed() > PATIENCE => {
                    end_group(&mut child).map_err(failed)?;
                    break None;
                }
                None => std::thread::sleep(LOOK_INTERVAL),
            }
        };
        let text = std::fs::read(&path).map_err(failed)?;
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Ends a process and its group: first by a signal that lets it clean up, then by one that leaves no process.
fn end_group(child: &mut Child) -> io::Result<()> {
    for (signal, patience) in [("TERM", GRACE), ("KILL", Duration::MAX)] {
        // The process may have just ended, and its group with it.
        Command::new("sh").args(["-c", &format!("kill -s {signal} -- -{}", child.id())]).status()?;
        let asked = Instant::now();
        while child.try_wait()?.is_none() && asked.elapsed() < patience {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
    Ok(())
}

fn target_option(target: &str) -> Vec<&str> {
    match target {
        "lib" => vec!["--lib"],
        "bins" => vec!["--bins"],
        test => vec!["--test", test],
    }
}

/// Parses the verdict of a search or of the model checker from its last line: `caught invariant=I4 first=17 …`, or `survived
/// run=20000`.
fn said(text: &str) -> Result<Spoken, String> {
    let line = text.lines().rev().find(|line| line.starts_with("caught ") || line.starts_with("survived "));
    let line = line.ok_or_else(|| format!("nothing was said: {}", end(text)))?;
    let value = |key: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        value.map(str::to_owned)
    };
    let number = |key: &str| value(key).and_then(|value| value.parse().ok());
    if line.starts_with("survived ") {
        return Ok(Spoken::Nothing { run: value("run").unwrap_or_default() });
    }
    let by = value("invariant").ok_or_else(|| format!("`{line}` names no invariant"))?;
    let spoke = value("spoke").unwrap_or_default();
    Ok(Spoken::Caught(Catch { by, first_seed: number("first"), rate: number("rate"), spoke }))
}

/// Parses the verdict of the test harness on this test.
fn tested(test: &str, text: &str) -> Result<Spoken, String> {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("test {test} ... ")));
    match line {
        Some("ok") => Ok(Spoken::Nothing { run: "1".to_owned() }),
        Some(_) => {
            Ok(Spoken::Caught(Catch { by: test.to_owned(), spoke: "FAILED".to_owned(), ..Catch::default() }))
        }
        None => Err(format!("the test {test} did not run: {}", end(text))),
    }
}

/// Parses the verdict of a run of chaos: `VIOLATIONS in ARM: RULE: COUNT`, and an exit code that shows that the run
/// completed.
fn made_chaos(expected: &str, code: Option<i32>, text: &str) -> Result<Spoken, String> {
    let mut spoke: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("VIOLATIONS in ")) {
        let counted = line.split_once(": ").and_then(|(_, rest)| rest.rsplit_once(": "));
        let counted = counted.and_then(|(rule, count)| Some((rule, count.parse::<u64>().ok()?)));
        let (rule, count) = counted.ok_or_else(|| format!("chaos counts no rule in `{line}`"))?;
        *spoke.entry(rule).or_default() += count;
    }
    let run = format!("{} min", CHAOS[1]);
    if code == Some(chaos::NOT_RUN) {
        return Ok(Spoken::NotRun(end(text).lines().last().unwrap_or_default().to_owned()));
    }
    match (code, spoke.iter().max_by_key(|(_, count)| **count)) {
        (Some(0), None) => Ok(Spoken::Nothing { run }),
        (Some(1), Some((most, _))) => {
            // One overlap may break many rules, each as often as a process acted in it.
            let by = if spoke.contains_key(expected) { expected } else { most };
            let words: Vec<String> = spoke.iter().map(|(rule, count)| format!("{rule}:{count}")).collect();
            Ok(Spoken::Caught(Catch { by: by.to_owned(), spoke: words.join(","), ..Catch::default() }))
        }
        _ => Err(format!("chaos did not come to an end: {}", end(text))),
    }
}

/// Returns the end of the output, where the reason is.
fn end(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { run } => write!(f, "nothing in {run}"),
            Self::Caught(Catch { by, spoke, .. }) => write!(f, "{by} ({spoke})"),
            Self::NotRun(why) => write!(f, "NOT RUN: {why}"),
        }
    }
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn what_judges_say_is_understood() {
        let text = "noise\ncaught invariant=I4 first=17 run=1000 rate=32 spoke=I4:30,I3:2\n";
        let (by, spoke) = ("I4".to_owned(), "I4:30,I3:2".to_owned());
        let caught = Catch { by, first_seed: Some(17), rate: Some(32), spoke };
        assert_eq!(said(text), Ok(Spoken::Caught(caught)));
        assert_eq!(said("survived run=20000\n"), Ok(Spoken::Nothing { run: "20000".to_owned() }));
        assert!(said("killed\n").is_err() && said("caught it\n").is_err());
        assert_eq!(tested("a::b", "test a::b ... ok\n"), Ok(Spoken::Nothing { run: "1".to_owned() }));
        assert!(matches!(tested("a::b", "test a::b ... FAILED\n"), Ok(Spoken::Caught(_))));
        assert!(tested("a::b", "test a::bc ... ok\n").is_err(), "a test that did not run says nothing");
        assert_eq!(made_chaos("I3", Some(0), "all\n"), Ok(Spoken::Nothing { run: "1 min".to_owned() }));
        let text = "VIOLATION in file: I3 at 7: x\nVIOLATION in file: and 2 more\nVIOLATIONS in file: I3: 2\n\
                    VIOLATIONS in file: a lock: 1\n";
        let (by, spoke) = ("a lock".to_owned(), "I3:2,a lock:1".to_owned());
        let caught = Catch { by, spoke, ..Catch::default() };
        assert_eq!(made_chaos("a lock", Some(1), text), Ok(Spoken::Caught(caught)));
        assert_eq!(made_chaos("I3", Some(77), "NOT RUN\n"), Ok(Spoken::NotRun("NOT RUN".to_owned())));
        assert!(made_chaos("I3", Some(1), "VIOLATIONS in file: I3\n").is_err(), "no count");
        let kept = "VIOLATION in file: I3 at 7: x\n";
        assert!(made_chaos("I3", Some(1), kept).is_err(), "findings are not counts");
        assert!(made_chaos("I3", Some(70), "").is_err());
    }
}
