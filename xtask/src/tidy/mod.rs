//! The rules of this repository that no compiler checks. Each check is a small function over the files; all findings
//! of all checks are printed together. `cargo test` runs them too.

mod crates;
mod documents;
mod homes;
mod modules;
mod names;
mod picture;
mod purity;
mod rust;
mod sizes;
mod tests;
pub(crate) mod toml;
mod type_names;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use rust::Rust;

/// The text files of the repository, by their path from its root.
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    /// The files in Rust, except generated ones, to which the rules for code, comments and names do not apply.
    rust: BTreeMap<String, Rust>,
    /// The number of lines of generated code.
    generated_lines: usize,
}

/// The beginning of a generated file.
const GENERATED: &str = "// @generated";

/// A violated rule, with its place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// The line, from 1; 0 for the whole file.
    line: usize,
    /// The violation, with the remedy.
    message: String,
}

type Check = fn(&Tree) -> Vec<Finding>;

/// The single list of all checks.
const CHECKS: &[(&str, Check)] = &[
    ("crates depend on each other in one direction", crates::direction),
    ("modules of a crate use each other in one direction", modules::circles),
    ("connections between nodes know no election", modules::network),
    ("the picture of modules shows the code", picture::up_to_date),
    ("versions, features and lints of crates have one home", crates::one_home),
    ("crates that may be published have what their readers need", crates::ready_to_publish),
    ("machines are pure", purity::machines_are_pure),
    ("functions and files are short", sizes::short),
    ("things have the names of the glossary", names::names),
    ("prose has the names of the glossary", names::prose),
    ("a name of a type has one home, or two", type_names::check),
    ("doc comments open with a noun or a verb", names::openings),
    ("each list has one home", homes::lists),
    ("each duty has one home", homes::duties),
    ("stores and algorithms do not know each other", homes::strangers),
    ("what draws a run knows only its trace", homes::drawings),
    ("tests are honest", tests::honest),
    ("tests that documents name are there", tests::named),
    ("documents are whole", documents::whole),
    ("the code map is right", documents::code_map),
    ("links lead somewhere", documents::links),
    ("the files of a repository are there", documents::present),
    ("no path of one machine", documents::machine_paths),
];

/// Returns the names of the publishable crates.
///
/// # Errors
///
/// The reason why the tree cannot be read.
pub(crate) fn published(root: &Path) -> Result<Vec<String>, String> {
    let tree = Tree::read(root).map_err(|error| error.to_string())?;
    Ok(crates::published(&tree).map(|(_, text)| crates::name_in(text)).collect())
}

/// Runs all checks, and prints all findings.
pub(crate) fn run(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            println!("tidy: {} cannot be read: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let findings = findings(&tree);
    findings.iter().for_each(|finding| println!("{finding}"));
    let (checks, found) = (CHECKS.len(), findings.len());
    println!(
        "tidy: {checks} checks, {found} findings; {} lines of generated code apart",
        tree.generated_lines
    );
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Draws the picture of crates and modules to its file.
pub(crate) fn draw(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("picture: {} cannot be read: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let Some(picture) = picture::draw(&tree) else {
        eprintln!("picture: modules use each other in a circle, and have no order: see `cargo xtask tidy`");
        return ExitCode::FAILURE;
    };
    match std::fs::write(root.join(picture::FILE), picture) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("picture: {} cannot be written: {error}", picture::FILE);
            ExitCode::FAILURE
        }
    }
}

fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|(_, check)| check(tree)).collect();
    findings.sort();
    findings
}

impl Tree {
    fn new(texts: BTreeMap<String, String>) -> Self {
        let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let (generated, rust): (Vec<_>, Vec<_>) = rust.partition(|(_, text)| text.starts_with(GENERATED));
        let generated_lines = generated.iter().map(|(_, text)| text.lines().count()).sum();
        let rust = rust.into_iter().map(|(path, text)| (path.clone(), Rust::new(text))).collect();
        Self { texts, rust, generated_lines }
    }

    fn read(root: &Path) -> io::Result<Self> {
        let mut texts = BTreeMap::new();
        read_folder(root, "", &mut texts)?;
        Ok(Self::new(texts))
    }

    /// Returns the files below a folder whose names end with `end`.
    fn files(&self, below: &str, end: &str) -> impl Iterator<Item = (&str, &str)> {
        let chosen =
            self.texts.iter().filter(move |(path, _)| path.starts_with(below) && path.ends_with(end));
        chosen.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The Rust files below a folder.
    fn rust(&self, below: &str) -> impl Iterator<Item = (&str, &Rust)> {
        let chosen = self.rust.iter().filter(move |(path, _)| path.starts_with(below));
        chosen.map(|(path, rust)| (path.as_str(), rust))
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// True if there is such a file, or a folder with a file in it.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.texts.contains_key(path)
            || self.texts.keys().any(|file| file.starts_with(&folder))
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect())
    }
}

fn read_folder(root: &Path, below: &str, texts: &mut BTreeMap<String, String>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        // In a linked worktree, `.git` is a file.
        if name == ".git" || name == "target" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            read_folder(root, &path, texts)?;
        } else if let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) {
            texts.insert(path, text);
        }
    }
    Ok(())
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// True if a file contains only tests: an integration test, or the test module of a module.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let found = findings(&Tree::read(&crate::root()).expect("the repository can be read"));
        let told: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert!(found.is_empty(), "{} findings:\n{}", told.len(), told.join("\n"));
    }

    #[test]
    fn generated_code_is_counted_apart() {
        let long = "use a;\n".repeat(1001);
        let tree = Tree::of(&[("crates/a/src/b.rs", &format!("{GENERATED} by a test\n{long}"))]);
        assert_eq!((sizes::short(&tree).len(), tree.generated_lines), (0, 1002));
    }

    #[test]
    fn a_finding_names_its_place() {
        assert_eq!(Finding::new("a.rs", 3, "bad").to_string(), "a.rs:3: bad");
        assert_eq!(Finding::new("a.rs", 0, "bad").to_string(), "a.rs: bad");
    }
}
