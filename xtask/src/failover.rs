//! `cargo xtask failover`: the time without a leader over each store, measured on real servers, as a table.

use std::path::Path;
use std::process::ExitCode;

use crate::live;

/// The command that builds the measured programs, with the release profile of users.
const BUILD: &[&str] = &[
    "build",
    "--release",
    "--all-features",
    "--locked",
    "--package",
    "primacy-cli",
    "--package",
    "primacy-lab",
];
/// The command that starts the servers and runs the bench.
const RUN: &[&str] = &["run", "--locked", "--package", "primacy-conformance", "--example", "failover", "--"];

/// Installs the servers, builds, and measures.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    match live::install(root) {
        Ok(told) => println!("{told}"),
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    }
    let mut build = crate::cargo(root, BUILD);
    let mut measure = crate::cargo(root, RUN);
    measure
        .arg(crate::target(root).join("release/primacy-lab"))
        .args(arguments)
        .envs(live::environment(root));
    for command in [&mut build, &mut measure] {
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(_) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("cargo cannot be run: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
