//! The chores of this repository: `cargo xtask test`, `cargo xtask tidy` and `cargo xtask mutants`.
//!
//! It depends on nothing, so that it is built in seconds.

mod deny;
mod mutants;
mod needs;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
The chores of this repository.

  cargo xtask test   everything: format, lints, tidy, documentation, purity, features, licences, all tests
  cargo xtask tidy   the rules of this repository that no compiler knows
  cargo xtask mutants [NAME...] [--draw N] [--seed S] [--json]
                     wrong variants of the code, each of which must be caught; with --draw only N of them
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["test"] => test::run(&root()),
        ["tidy"] => tidy::run(&root()),
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

/// The root of the repository. Cargo tells where this package is, both under `cargo run` and under `cargo test`.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.and_then(|package| Some(package.parent()?.to_path_buf())).unwrap_or_else(|| PathBuf::from("."))
}
