//! Selection of the corpus: the fewest inputs with the same coverage.
//!
//! libFuzzer reports the coverage of each input while it merges folders, for which it restarts itself through a
//! shell; so the path of the target directory must not contain a space.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Built, Target};

/// The maximum number of inputs kept for a target: tens of small files, which an ordinary test runs in no time.
const KEPT_MAX: usize = 40;

/// Adds found inputs to the corpus of these targets.
pub(super) fn keep(root: &Path, built: &Built, targets: &[&Target]) -> Result<(), String> {
    for target in targets {
        let (kept, found) = (built.kept(target), built.found(target));
        if !found.exists() {
            println!("  {}: nothing was found yet; run cargo xtask fuzz {}", target.name, target.name);
            continue;
        }
        let control = built.found.join(format!("{}.merge", target.name));
        let scratch = built.found.join(format!("{}.merged", target.name));
        // Otherwise libFuzzer would resume from the earlier control file. It requires an output folder, but the
        // selection is made here.
        let _ = fs::remove_file(&control);
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
        let options = [
            "-set_cover_merge=1".to_owned(),
            // The number of times that an edge is taken guides a search, but is no reason to keep an input.
            "-use_counters=0".to_owned(),
            format!("-merge_control_file={}", control.display()),
            scratch.display().to_string(),
            kept.display().to_string(),
            found.display().to_string(),
        ];
        let output = built.command(target, &options).output().map_err(|error| error.to_string())?;
        let reached = fs::read_to_string(&control)
            .map_err(|error| format!("{}: {error}; libFuzzer: {}", control.display(), output.status))?;
        let inputs = inputs(&reached);
        let before = inputs.iter().filter(|input| Path::new(input.path).starts_with(&kept)).count();
        let added = choose(&inputs, &|path| Path::new(path).starts_with(&kept));
        for path in &added {
            let name = Path::new(path).file_name().ok_or("an input has no name")?;
            fs::copy(path, kept.join(name)).map_err(|error| format!("{path}: {error}"))?;
        }
        let shown = kept.strip_prefix(root).unwrap_or(&kept).display();
        println!(
            "  {}: {before} kept, {} found, {} added to {shown}",
            target.name,
            inputs.len() - before,
            added.len()
        );
    }
    Ok(())
}

/// An input, with the edges that it reaches.
#[derive(Debug, PartialEq, Eq)]
struct Input<'a> {
    path: &'a str,
    reaches: BTreeSet<u64>,
}

/// Parses libFuzzer's control file: the number of files, the number of initial ones, their names; and then for each,
/// by its number, the edges that it reaches.
fn inputs(control: &str) -> Vec<Input<'_>> {
    let mut lines = control.lines();
    let count: usize = lines.next().and_then(|count| count.parse().ok()).unwrap_or(0);
    let paths = lines.by_ref().skip(1).take(count);
    let mut inputs: Vec<Input<'_>> = paths.map(|path| Input { path, reaches: BTreeSet::new() }).collect();
    for line in lines {
        let Some(numbers) = line.strip_prefix("FT ") else { continue };
        let mut numbers = numbers.split(' ').filter_map(|number| number.parse::<u64>().ok());
        let index = numbers.next().and_then(|index| usize::try_from(index).ok());
        if let Some(input) = index.and_then(|index| inputs.get_mut(index)) {
            input.reaches.extend(numbers);
        }
    }
    inputs
}

/// Returns the inputs to add to the corpus, greedily: repeatedly the one that reaches the most new edges.
fn choose<'a>(inputs: &[Input<'a>], is_kept: &dyn Fn(&str) -> bool) -> Vec<&'a str> {
    let (kept, mut found): (Vec<_>, Vec<_>) = inputs.iter().partition(|input| is_kept(input.path));
    let mut reached: BTreeSet<u64> = kept.iter().flat_map(|input| input.reaches.iter().copied()).collect();
    let mut added = Vec::new();
    while kept.len() + added.len() < KEPT_MAX {
        let news = |input: &Input<'_>| input.reaches.difference(&reached).count();
        let Some(best) =
            found.iter().copied().max_by_key(|input| news(input)).filter(|input| news(input) > 0)
        else {
            break;
        };
        reached.extend(&best.reaches);
        added.push(best.path);
        found.retain(|input| input.path != best.path);
    }
    added
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn what_reaches_the_most_is_added() {
        let control = "4\n0\nkept/a\nfound/b\nfound/c\nfound/d\nSTARTED 0 9\nFT 0 1 2\nCOV 0 1\nSTARTED 1 9\nFT 1 2 3\n\
                       STARTED 2 9\nFT 2 3 4 5\nSTARTED 3 9\nFT 3 6\n";
        let inputs = inputs(control);
        assert_eq!(inputs[2], Input { path: "found/c", reaches: BTreeSet::from([3, 4, 5]) });
        assert_eq!(choose(&inputs, &|path| path.starts_with("kept/")), ["found/c", "found/d"]);
    }

    #[test]
    fn no_more_are_kept_than_the_limit_says() {
        let paths: Vec<String> = (0..KEPT_MAX + 10).map(|number| number.to_string()).collect();
        let inputs: Vec<Input<'_>> = paths
            .iter()
            .zip(0..)
            .map(|(path, edge)| Input { path, reaches: BTreeSet::from([edge]) })
            .collect();
        assert_eq!(choose(&inputs, &|path| path == "0").len(), KEPT_MAX - 1);
    }
}
