//! `cargo xtask prove`: the long searches, whose results are in docs/proof.md.
//!
//! Each part is a command that can also be run alone; this runs them one after another, and with `--write` puts their
//! output into the page, below the command.

use std::path::Path;
use std::process::{ExitCode, Stdio};

use crate::record;

/// A part of the proof: its name in docs/proof.md, and the arguments of its cargo command.
struct Part {
    name: &'static str,
    what: &'static str,
    program: &'static [&'static str],
    arguments: &'static [&'static str],
}

/// The arguments for the search of spaces, and for `primacy-lab`, in the release profile.
const SPACES: &[&str] =
    &["run", "--release", "--quiet", "--locked", "--package", "primacy-sim", "--example", "prove", "--"];
const LAB: &[&str] = &["run", "--release", "--quiet", "--locked", "--package", "primacy-lab", "--"];

/// The parts, in the order in which they are run.
const PARTS: &[Part] = &[
    Part { name: "spaces", what: "every reachable state of small clusters", program: SPACES, arguments: &[] },
    Part {
        name: "worlds",
        what: "drawn worlds with faults, 14,000 hours of them",
        program: LAB,
        arguments: &["sim", "--election", "all", "--hours", "14000"],
    },
    Part {
        name: "metadata",
        what: "drawn worlds of replicated metadata by itself, ten million simulated seconds",
        program: LAB,
        arguments: &["sim", "--election", "metadata", "--hours", "2778", "--from", "1000000"],
    },
    Part {
        name: "bytes",
        what: "bytes from outside, a minute for each parser",
        program: &["xtask", "fuzz"],
        arguments: &["--seconds", "60"],
    },
];

/// Runs these parts, or all if none is named.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let write = arguments.contains(&"--write");
    let names: Vec<&str> = arguments.iter().copied().filter(|&argument| argument != "--write").collect();
    if let Some(unknown) = names.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        eprintln!("prove: there is no part {unknown}; there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let mut all_good = true;
    for part in PARTS.iter().filter(|part| names.is_empty() || names.contains(&part.name)) {
        println!("\n[{}] {}", part.name, part.what);
        let run = record::Run::begin(root);
        match tell(root, part) {
            Ok((good, printed)) => {
                println!("{printed}");
                all_good &= good;
                if write && good {
                    let command = format!("cargo xtask prove {}", part.name);
                    all_good &= run.write(part.name, &command, &printed);
                }
            }
            Err(why) => {
                eprintln!("{}: {why}", part.name);
                all_good = false;
            }
        }
    }
    if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the output of a part, and whether it succeeded. It reports its progress on standard error.
fn tell(root: &Path, part: &Part) -> Result<(bool, String), String> {
    let mut command = crate::cargo(root, &[part.program, part.arguments].concat());
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).trim_end().to_owned()))
}
