//! Every file under `scripts/` is a test: a script that must unfold as it is written down.
//!
//! A new script is a new test without anything being compiled. `UPDATE_GOLDENFILES=1` writes the outputs anew.

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Trial};
use primacy_sim::elections::open;
use primacy_sim::golden_file::{difference, replay};

fn main() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let update = std::env::var_os("UPDATE_GOLDENFILES").is_some_and(|value| value == "1");
    let trial = |name: String| {
        let path = scripts.join(format!("{name}.txt"));
        Trial::test(name, move || check(&path, update).map_err(Into::into))
    };
    let trials = names(&scripts).into_iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
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
