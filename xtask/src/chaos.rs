//! `cargo xtask chaos`: faults on real processes, by `primacy-lab chaos`.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::needs::{self, Step};
use crate::{live, record};

/// The exit code of a run if this user or this machine cannot inject some of the faults, or any.
pub(crate) const NOT_RUN: i32 = 77;

/// The end of a run.
pub(crate) enum Ended {
    /// Completed, with this exit code and this output.
    Code(i32, String),
    /// Not started, with the reason.
    Failed(String),
}

/// Builds with the release profile, and runs.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let release =
        ["build", "--release", "--all-features", "--locked", "-p", "primacy-cli", "-p", "primacy-lab"];
    let write = arguments.contains(&"--write");
    let arguments: Vec<&str> = arguments.iter().copied().filter(|&argument| argument != "--write").collect();
    if let Some(why) = write.then(|| not_whole(&arguments)).flatten() {
        eprintln!("--write is for a whole run: {why}");
        return ExitCode::FAILURE;
    }
    let run = record::Run::begin(root);
    match build_and_run(root, &release, &arguments) {
        Ended::Code(0, printed) if write => {
            let command = format!("cargo xtask chaos {}", schedule(&arguments).join(" "));
            let written = run.write(&place(&arguments), &command, &printed);
            if written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ended::Code(code, _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Ended::Failed(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the arguments that determine the schedule, without those about the files of the run.
fn schedule<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut before = None;
    let mut is_of_it = |argument: &&'a str| {
        let of_files = ["--keep", "--dir"].contains(argument) || before == Some("--dir");
        before = Some(*argument);
        !of_files
    };
    arguments.iter().copied().filter(|argument| is_of_it(argument)).collect()
}

/// Returns the values that follow each `name`.
fn values<'a>(arguments: &[&'a str], name: &str) -> Vec<&'a str> {
    let pairs = arguments.iter().zip(arguments.iter().skip(1));
    pairs.filter(|(before, _)| **before == name).map(|(_, value)| *value).collect()
}

/// Returns the name of the marks on the page between which the run is recorded: runs with named arms have marks of
/// their own.
fn place(arguments: &[&str]) -> String {
    [vec!["chaos"], values(arguments, "--arm")].concat().join(" ")
}

/// Returns the reason why a run with these arguments may not be recorded on the page, if there is one.
fn not_whole(arguments: &[&str]) -> Option<String> {
    let part =
        arguments.iter().find(|argument| ["--arm=", "--json"].iter().any(|part| argument.starts_with(part)));
    if let Some(part) = part {
        return Some(format!("leave out {part}"));
    }
    let least = if values(arguments, "--arm").is_empty() { 60 } else { 10 };
    let minutes = values(arguments, "--minutes").first().and_then(|minutes| minutes.parse::<f64>().ok());
    minutes
        .is_none_or(|minutes| minutes < f64::from(least))
        .then(|| format!("say --minutes {least}, or more"))
}

/// Runs the arms that belong to the tests, with the test binaries: the usual arms; replicated metadata, also with one
/// voter; different leases, with jobs of many processes and jobs that their nodes cannot kill.
pub(crate) fn a_minute(root: &Path) -> Result<Option<String>, String> {
    // Built with the tests, which enable other features of dependencies; otherwise everything would be built again.
    let build = ["build", "--workspace", "--all-features", "--bins", "--tests", "--locked"];
    let runs = [
        &["--minutes", "1"][..],
        &["--minutes", "0.5", "--arm", "metadata", "--arm", "metadata-1"],
        &["--minutes", "0.5", "--arm", "leases", "--arm", "crowd", "--arm", "unkillable"],
    ];
    for arguments in runs {
        match build_and_run(root, &build, arguments) {
            Ended::Code(0, _) => {}
            Ended::Code(NOT_RUN, _) => {
                return Ok(Some("see above for what this user or this machine cannot do".to_owned()));
            }
            Ended::Code(code, _) => return Err(format!("it ended with exit code {code}; see above")),
            Ended::Failed(why) => return Err(why),
        }
    }
    Ok(None)
}

/// Builds the command and `primacy-lab` together, so that they share their libraries, and runs the latter.
fn build_and_run(root: &Path, build: &[&str], arguments: &[&str]) -> Ended {
    match needs::meet(Step::Chaos) {
        Ok(remark) => eprintln!("needs: {remark}"),
        // A missing program may be needed by one fault only; the run then reports NOT RUN.
        Err(missing) => eprintln!("{missing}"),
    }
    let mut command = crate::cargo(root, build);
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = match command.stderr(Stdio::inherit()).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(_) => return Ended::Failed("it cannot be built".to_owned()),
        Err(error) => return Ended::Failed(format!("cargo cannot be run: {error}")),
    };
    let (Some(primacy), Some(chaos)) = (executable(&output, "primacy"), executable(&output, "primacy-lab"))
    else {
        return Ended::Failed("cargo has built no `primacy`, or no `primacy-lab`".to_owned());
    };
    let mut command = Command::new(chaos);
    // The location of the servers that `cargo xtask live` installs.
    command.envs(live::environment(root));
    match command.args(["chaos", "--primacy", primacy]).args(arguments).stderr(Stdio::inherit()).output() {
        Ok(output) => {
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            print!("{printed}");
            // A process killed by a signal has no exit code.
            Ended::Code(output.status.code().unwrap_or(1), printed)
        }
        Err(error) => Ended::Failed(format!("`{chaos}` cannot be run: {error}")),
    }
}

/// Returns the path of the binary of this name, from Cargo's JSON messages.
fn executable<'a>(told: &'a str, name: &str) -> Option<&'a str> {
    let paths = told.split("\"executable\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut paths = paths.filter(|path| Path::new(path).file_name().is_some_and(|file| file == name));
    paths.next()
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn a_binary_is_found_by_its_name() {
        let told =
            r#"{"executable":null}{"executable":"/t/primacy-lab","x":1}{"executable":"/t/primacy","x":1}"#;
        assert_eq!(executable(told, "primacy"), Some("/t/primacy"));
        assert_eq!(executable(told, "primacy-lab"), Some("/t/primacy-lab"));
        assert_eq!(executable(told, "chaos"), None);
    }

    #[test]
    fn what_is_written_down_makes_the_same_run_anywhere() {
        let arguments = ["--minutes", "60", "--keep", "--dir", "here", "--seed", "1"];
        assert_eq!(schedule(&arguments), ["--minutes", "60", "--seed", "1"]);
    }

    #[test]
    fn only_a_whole_run_is_written_down() {
        assert_eq!(not_whole(&["--minutes", "60", "--seed", "1", "--keep"]), None);
        for part in [&["--minutes", "59"][..], &["--minutes"], &["--seed", "60"], &[]] {
            assert_eq!(not_whole(part).as_deref(), Some("say --minutes 60, or more"), "{part:?}");
        }
        assert_eq!(not_whole(&["--minutes", "60", "--arm=file"]).as_deref(), Some("leave out --arm=file"));
        let named = ["--minutes", "10", "--arm", "etcd", "--arm", "nats"];
        assert_eq!((not_whole(&named), place(&named)), (None, "chaos etcd nats".to_owned()));
        assert_eq!(
            not_whole(&["--minutes", "9", "--arm", "etcd"]).as_deref(),
            Some("say --minutes 10, or more")
        );
        assert_eq!(place(&["--minutes", "60"]), "chaos");
    }
}
