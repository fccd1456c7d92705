//! Every file under `scripts/` is a test: a script that must unfold as it is written down.
//!
//! This is a test harness of its own, so that a new script is a new test without anything being compiled, and
//! it prints what the usual harness prints. `UPDATE_GOLDENFILES=1` writes the outputs anew.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use primacy_sim::elections::open;
use primacy_sim::golden_file::{difference, replay};

fn main() -> ExitCode {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let wanted = |name: &str| {
        filters.is_empty()
            || filters
                .iter()
                .any(|&filter| if exact { name == filter } else { name.contains(filter.as_str()) })
    };
    let all = names(&scripts);
    let chosen: Vec<&String> = all.iter().filter(|name| wanted(name)).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        chosen.iter().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let update = std::env::var_os("UPDATE_GOLDENFILES").is_some_and(|value| value == "1");
    let mut failures = Vec::new();
    for &name in &chosen {
        match check(&scripts.join(format!("{name}.txt")), update) {
            Ok(()) => println!("test {name} ... ok"),
            Err(why) => {
                println!("test {name} ... FAILED");
                failures.push(format!("---- {name} ----\n{why}\n"));
            }
        }
    }
    failures.iter().for_each(|failure| println!("\n{failure}"));
    let (failed, filtered) = (failures.len(), all.len() - chosen.len());
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out\n",
        chosen.len() - failed
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All scripts, as `election/behaviour_under_condition`, in order.
fn names(scripts: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for folder in entries(scripts) {
        for file in entries(&folder) {
            if file.extension().is_some_and(|extension| extension == "txt") {
                let name = file.strip_prefix(scripts).expect("found below it").with_extension("");
                names.push(name.to_string_lossy().into_owned());
            }
        }
    }
    names
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(folder).expect("the scripts can be listed");
    let mut entries: Vec<PathBuf> = read.map(|entry| entry.expect("an entry can be read").path()).collect();
    entries.sort();
    entries
}

fn check(path: &Path, update: bool) -> Result<(), String> {
    let election = path.parent().and_then(Path::file_name).expect("a script has a folder");
    let mut handler = open(&election.to_string_lossy())?;
    let expected = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let found = replay(&expected, handler.as_mut())?;
    match difference(&expected, &found) {
        None => Ok(()),
        Some(_) if update => std::fs::write(path, found).map_err(|error| error.to_string()),
        Some(difference) => Err(difference),
    }
}
