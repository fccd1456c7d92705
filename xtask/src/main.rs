//! The development tasks of this repository.
//!
//! Its only dependency is a Rust parser, so that it is built in seconds.

mod chaos;
mod deny;
mod failover;
mod fuzz;
mod lanes;
mod live;
mod mutants;
mod needs;
mod prove;
mod record;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
The chores of this repository.

  cargo xtask test   everything: format, lints, tidy, documentation, purity, features, licences, all tests
  cargo xtask tidy   the rules of this repository that no compiler knows
  cargo xtask picture
                     draws the crates and their modules as they are into docs/pictures/modules.svg
  cargo xtask proto  generates the Rust code of messages from the .proto files
  cargo xtask prove [PART...] [--write]
                     the long searches: spaces, worlds, metadata, bytes; with --write what they print goes into docs/proof.md
  cargo xtask fuzz [--seconds N] [TARGET...]
                     what reads bytes from outside, under libFuzzer, 60 seconds each; needs a C++ compiler
  cargo xtask fuzz --keep [TARGET...]
                     adds what earlier runs have found to the kept inputs
  cargo xtask live [--require-live] [--only STORE]...
                     every store that is reached over a network under the laws, on real servers, which it installs
  cargo xtask failover [--only STORE]... [--rounds N] [--write]
                     how long nobody leads over each store, beside its own tools; with --write into docs/performance.md
  cargo xtask chaos --minutes M --seed S
                     faults on real clusters, judged by the simulator's invariants; needs root (--help: all options)
  cargo xtask mutants [NAME...] [--draw N] [--seed S] [--json] [--write]
                     wrong variants of the code, each of which must be caught; with --draw only N of them
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["test"] => test::run(&root()),
        ["tidy"] => tidy::run(&root()),
        ["picture"] => tidy::draw(&root()),
        ["proto"] => proto(&root()),
        ["prove", parts @ ..] => prove::run(&root(), parts),
        ["fuzz", asked @ ..] => fuzz::run(&root(), asked),
        ["live", arguments @ ..] => live::run(&root(), arguments),
        ["failover", arguments @ ..] => failover::run(&root(), arguments),
        ["chaos", arguments @ ..] => chaos::run(&root(), arguments),
        ["mutants", wish @ ..] => mutants::run(&root(), wish),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        unknown => {
            eprint!("cargo xtask knows no `{}`.\n\n{HELP}", unknown.join(" "));
            ExitCode::from(2)
        }
    }
}

/// Generates the Rust code of messages. The generator is a crate of its own: it takes longer to build than this one.
fn proto(root: &Path) -> ExitCode {
    let ended = cargo(root, &["run", "--quiet", "--package", "xtask-proto", "--locked"]).status();
    if ended.is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the root of the repository. Cargo names the folder of this package, under `cargo run` and under `cargo
/// test`; otherwise it is the absolute path of the working directory, because programs built from here may run
/// elsewhere.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = package.and_then(|package| Some(package.parent()?.to_path_buf()));
    root.or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| PathBuf::from("."))
}

/// Returns a command for the Cargo that runs this program, in this folder, with these arguments. The variables that
/// Cargo sets for this package are removed.
fn cargo(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(folder);
    let own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(own)) {
        command.env_remove(name);
    }
    command
}

/// Cargo's target directory.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target))
}
