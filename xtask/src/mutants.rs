//! `cargo xtask mutants`: mutation tests of the judges. Each patch under `mutants/` makes the mistake of a real
//! system in the real code; the invariant or test that it names must catch it.
//!
//! Everything happens in a copy of the repository below the target directory, so that the working tree does not
//! change, and with a separate target directory, so that each mutant rebuilds only what it touches.

mod copy;
mod judge;
mod patch;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use copy::Copy;
use judge::{Builder, Spoken};
use patch::{Judge, Patch};
use table::{Row, Verdict};

use crate::record;

/// The folder of the patches.
const FOLDER: &str = "mutants";

/// The parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct MutantOptions {
    /// The mutants to try; all, if none is named.
    names: Vec<String>,
    /// The number of mutants to draw, if not all are tried.
    draw: Option<usize>,
    /// The seed of the draw: any text, such as a number, a date or a commit.
    seed: Option<String>,
    json: bool,
    /// True to write the table to docs/proof.md.
    write: bool,
}

/// Runs the requested mutants. Fails if one survives, is caught by another rule than it names, or does not apply; or
/// if a judge reports a violation without a mutant.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let whole = record::Run::begin(root);
    let outcome = MutantOptions::parse(arguments).and_then(|options| {
        let mutants = options.choose(read(root)?)?;
        let rows = hunt(root, &mutants)?;
        println!("{}", if options.json { table::json(&rows) } else { table::text(&rows) });
        // A judge that cannot run has not passed a mutant, but has not checked it either.
        let live = options.write || std::env::var_os("PRIMACY_REQUIRE_LIVE").is_some();
        let good = rows.iter().all(|row| row.verdict.is_good() || (row.verdict.is_not_run() && !live));
        Ok(good && (!options.write || whole.write("mutants", "cargo xtask mutants", &table::text(&rows))))
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("mutants: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Reads all patches, in the order of their names.
fn read(root: &Path) -> Result<Vec<Patch>, String> {
    let folder = root.join(FOLDER);
    let failed = |error: std::io::Error| format!("{FOLDER}: {error}");
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            paths.push(path);
        }
    }
    paths.sort();
    let patch = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Patch::parse(&name, &text).map_err(|why| format!("{FOLDER}/{name}.patch: {why}"))
    };
    let mutants = paths.iter().map(patch).collect::<Result<Vec<Patch>, String>>()?;
    for (index, mutant) in mutants.iter().enumerate() {
        if let Some(twin) = mutants[..index].iter().find(|other| other.files == mutant.files) {
            return Err(format!("{FOLDER}: {} makes the same change as {}", mutant.name, twin.name));
        }
    }
    Ok(mutants)
}

/// Runs all needed judges on the unchanged code first, then on each mutant.
fn hunt<'m>(root: &Path, mutants: &'m [Patch]) -> Result<Vec<Row<'m>>, String> {
    let place = crate::target(root).join("mutants");
    let copy = Copy::make(root, &place.join("tree"))?;
    let builder = Builder::new(&place.join("tree"), &place.join("target"));
    let mut judges: Vec<&Judge> = mutants.iter().flat_map(|mutant| &mutant.judges).collect();
    judges.sort_by_key(|judge| judge.without_invariant());
    judges.dedup_by_key(|judge| judge.without_invariant());
    for judge in judges {
        eprintln!("the code as it is, by {}", judge.without_invariant());
        builder.build(judge).map_err(|why| format!("the code as it is: {why}"))?;
        match builder.ask(judge)? {
            Spoken::Nothing { .. } => {}
            spoken @ Spoken::NotRun(_) => eprintln!("{spoken}"),
            spoken @ Spoken::Caught { .. } => {
                return Err(format!(
                    "the code as it is does not pass {}: {spoken}",
                    judge.without_invariant()
                ));
            }
        }
    }
    let mut rows = Vec::new();
    for (index, mutant) in mutants.iter().enumerate() {
        for row in try_one(&copy, &builder, mutant)? {
            eprintln!("[{}/{}] {}", index + 1, mutants.len(), row.line());
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Tries one mutant with each of its judges.
fn try_one<'m>(copy: &Copy<'_>, builder: &Builder, mutant: &'m Patch) -> Result<Vec<Row<'m>>, String> {
    let mut rows = Vec::new();
    let before = copy.apply(mutant);
    for judge in &mutant.judges {
        let started = Instant::now();
        let built = before.as_ref().map_err(Clone::clone).and_then(|_| builder.build(judge));
        let build = started.elapsed();
        rows.push(match built {
            Err(why) => Row::not_tried(mutant, judge, why, build),
            Ok(()) => {
                let started = Instant::now();
                // If a judge crashes on a mutant, the results of the others are kept.
                let verdict = match builder.ask(judge) {
                    Ok(spoken) => Verdict::of(judge, spoken),
                    Err(why) => Verdict::NotTried(why),
                };
                Row { mutant, judge, verdict, build, search: started.elapsed() }
            }
        });
    }
    if let Ok(before) = before {
        copy.undo(before)?;
    }
    Ok(rows)
}

impl MutantOptions {
    fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(&argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument {
                "--draw" => {
                    let count = value()?;
                    let count = count.parse().map_err(|_| format!("--draw {count}: that is no number"))?;
                    options.draw = Some(count);
                }
                "--seed" => options.seed = Some((*value()?).to_owned()),
                "--json" => options.json = true,
                "--write" => options.write = true,
                option if option.starts_with('-') => {
                    return Err(format!(
                        "there is no {option}; there are --draw N, --seed S, --json and --write"
                    ));
                }
                name => options.names.push(name.to_owned()),
            }
        }
        if options.write && (options.draw.is_some() || !options.names.is_empty()) {
            return Err(
                "--write puts the table of all mutants into the page; so it goes with no names and no --draw"
                    .to_owned(),
            );
        }
        Ok(options)
    }

    fn choose(&self, mut mutants: Vec<Patch>) -> Result<Vec<Patch>, String> {
        if let Some(name) = self.names.iter().find(|name| !mutants.iter().any(|mutant| mutant.name == **name))
        {
            return Err(format!("there is no {FOLDER}/{name}.patch"));
        }
        mutants.retain(|mutant| self.names.is_empty() || self.names.contains(&mutant.name));
        if let Some(count) = self.draw {
            // Chaos needs the release profile, whose build takes too long for a few mutants.
            let is_quick =
                |mutant: &Patch| !mutant.judges.iter().any(|judge| matches!(judge, Judge::Chaos { .. }));
            mutants.retain(is_quick);
            let seed = self.seed.clone().unwrap_or_else(now);
            eprintln!("{count} of {} mutants, drawn by --seed {seed}", mutants.len());
            mutants = draw(mutants, count, &seed);
        }
        if mutants.is_empty() { Err("no mutant is left to be tried".to_owned()) } else { Ok(mutants) }
    }
}

/// Returns the default seed, which is printed.
fn now() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).to_string()
}

/// Draws `count` of these, in order, determined by the seed. All have judges in the same packages as the first one
/// drawn, because building judges takes longest.
fn draw(mutants: Vec<Patch>, count: usize, seed: &str) -> Vec<Patch> {
    // The order is that of a hash of the seed and the name (FNV-1a, then mixed).
    let place = |name: &str| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in seed.bytes().chain([0]).chain(name.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash ^= hash >> 29;
        hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (hash >> 32)
    };
    let mut drawn = mutants;
    drawn.sort_by_key(|mutant| place(&mutant.name));
    if let Some(first) = drawn.first().cloned() {
        drawn.retain(|mutant| mutant.packages() == first.packages());
    }
    drawn.truncate(count);
    drawn.sort_by(|a, b| a.name.cmp(&b.name));
    drawn
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn every_patch_applies_and_says_what_it_is() {
        let root = crate::root();
        let mutants = read(&root).expect("they can be read");
        assert!(mutants.len() >= 28, "{} mutants", mutants.len());
        let mut stale = Vec::new();
        for mutant in &mutants {
            let text =
                |path: &str| std::fs::read_to_string(root.join(path)).map_err(|error| error.to_string());
            for file in &mutant.files {
                let patched = text(&file.path).and_then(|text| file.apply(&text));
                stale.extend(patched.err().map(|why| format!("{}: {why}", mutant.name)));
            }
        }
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }

    #[test]
    fn a_seed_draws_the_same_again_and_another_draws_others() {
        let test = Judge::Test { package: "p".to_owned(), target: "lib".to_owned(), test: "t".to_owned() };
        let judges = [Patch::example().judges, vec![test]];
        let mutant = |number: usize| Patch {
            name: format!("m{number:02}"),
            judges: judges[number % 2].clone(),
            ..Patch::example()
        };
        let names = |seed: &str| {
            let drawn = draw((0..30).map(mutant).collect(), 5, seed);
            assert!(drawn.iter().all(|mutant| mutant.judges == drawn[0].judges), "they are built alike");
            drawn.into_iter().map(|mutant| mutant.name).collect::<Vec<_>>()
        };
        assert_eq!(names("2026-11-21").len(), 5);
        assert_eq!(names("2026-11-21"), names("2026-11-21"));
        assert_ne!(names("2026-11-21"), names("2026-11-22"));
        let mut met: Vec<String> = (0..60).flat_map(|day: u32| names(&day.to_string())).collect();
        met.sort();
        met.dedup();
        assert_eq!(met.len(), 30, "each is drawn some day");
    }

    #[test]
    fn what_is_asked_for_is_understood() {
        let options = MutantOptions::parse(&["--draw", "3", "vote_twice", "--seed", "abc", "--json"])
            .expect("it is right");
        let names = vec!["vote_twice".to_owned()];
        assert_eq!(
            options,
            MutantOptions {
                names: names.clone(),
                draw: Some(3),
                seed: Some("abc".to_owned()),
                json: true,
                write: false
            }
        );
        assert!(
            MutantOptions::parse(&["--draw"]).is_err() && MutantOptions::parse(&["--draw", "x"]).is_err()
        );
        assert!(MutantOptions::parse(&["--drew"]).is_err());
        assert!(
            MutantOptions::parse(&["--write", "vote_twice"]).is_err()
                && MutantOptions::parse(&["--write"]).is_ok()
        );
        assert!(MutantOptions { names, ..MutantOptions::default() }.choose(vec![Patch::example()]).is_err());
    }
}
