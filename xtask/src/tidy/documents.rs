//! Checks of documents: titles, links, and required files.

use super::toml;
use super::{Finding, Tree};

/// The required files: those of any open repository, and those that this repository refers to.
const PRESENT: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "deny.toml",
    "clippy.toml",
    "docs/glossary.md",
    "docs/divergence.md",
    ".ci/run",
];

pub(super) fn present(tree: &Tree) -> Vec<Finding> {
    let missing = PRESENT.iter().filter(|path| !tree.has(path));
    let mut findings: Vec<Finding> =
        missing.map(|path| Finding::new(path, 0, "the file is missing")).collect();
    if let Some(text) = tree.text(".ci/run")
        && !text.lines().any(|line| line.trim_start_matches("exec ") == "cargo xtask test")
    {
        findings.push(Finding::new(".ci/run", 0, "call `cargo xtask test`, so that all run the same"));
    }
    let version = tree.text("Cargo.toml").map(toml::entries).unwrap_or_default();
    let version = version.iter().find(|entry| entry.section == "workspace.package" && entry.key == "version");
    if let (Some(version), Some(text)) = (version, tree.text("CHANGELOG.md")) {
        let version = version.value.trim_matches('"');
        if !text.lines().any(|line| line.starts_with("## ") && line.contains(version)) {
            findings.push(Finding::new(
                "CHANGELOG.md",
                0,
                format!("add a section for the version {version}"),
            ));
        }
    }
    findings
}

/// Checks that every document has one title, that decisions are numbered without gaps, and that every named script
/// exists.
pub(super) fn whole(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in documents(tree) {
        let titles = prose_lines(text).filter(|(_, line)| line.starts_with("# ")).count();
        let is_crate_page = path.starts_with("crates/"); // Shown by rustdoc below the crate's name.
        if titles != 1 && !is_crate_page {
            findings.push(Finding::new(path, 1, format!("{titles} titles; a document has one `# Title`")));
        }
        for (line, script) in scripts(text) {
            let folder = script.rsplit_once('/').map_or("", |(folder, _)| folder);
            if tree.has(folder) && !tree.has(&script) {
                let message = format!("there is no script {script}; a limit names the script that shows it");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    for (index, (path, _)) in tree.files("docs/decisions/", ".md").enumerate() {
        if !path.starts_with(&format!("docs/decisions/{:04}-", index + 1)) {
            let message = format!("decisions are numbered without gaps; this one would be {:04}", index + 1);
            findings.push(Finding::new(path, 0, message));
        }
    }
    findings
}

/// The documents with code maps.
const CODE_MAPS: &[&str] = &["ARCHITECTURE.md", "docs/code-map.md"];

/// Checks that the code maps name existing files, or state that a file is planned.
pub(super) fn code_map(tree: &Tree) -> Vec<Finding> {
    CODE_MAPS.iter().flat_map(|page| code_map_of(tree, page)).collect()
}

fn code_map_of(tree: &Tree, page: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut folder = "";
    for (number, line) in prose_lines(tree.text(page).unwrap_or_default()) {
        if let Some(heading) = line.strip_prefix('#') {
            folder = heading.trim_start_matches('#').trim();
        }
        if !folder.starts_with("crates/") || !line.starts_with('|') {
            continue;
        }
        let cell = line.split('|').nth(1).unwrap_or_default();
        for name in cell.split('`').skip(1).step_by(2) {
            if !tree.has(format!("{folder}/{name}").trim_end_matches('/')) {
                let message =
                    format!("{folder}/{name} does not exist; mark it as to come, or take it from the map");
                findings.push(Finding::new(page, number, message));
            }
        }
    }
    findings
}

/// Checks that relative links in documents lead to existing files.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in documents(tree) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose_lines(text) {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()) {
                let target = link.split('#').next().unwrap_or_default();
                let elsewhere = link.contains("://") || link.starts_with("mailto:") || target.is_empty();
                if !elsewhere && !resolve(folder, target).is_some_and(|target| tree.has(&target)) {
                    findings.push(Finding::new(path, number, format!("the link leads nowhere: {link}")));
                }
            }
        }
    }
    findings
}

/// Finds absolute paths of a particular machine: the home folders of users and of jobs.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    // Composed so that this check does not find its own source.
    let paths = ["root/", "home/", "Users/", "work/"].map(|folder| format!("/{folder}"));
    let mut findings = Vec::new();
    for (path, text) in tree.files("", "") {
        for (index, line) in text.lines().enumerate() {
            let starts_a_path = |at: usize| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| {
                    c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~' | '}' | '$')
                })
            };
            if paths.iter().any(|path| line.match_indices(path.as_str()).any(|(at, _)| starts_a_path(at))) {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    "a path of one machine; make it relative, or an option",
                ));
            }
        }
    }
    findings
}

pub(super) fn documents(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.files("", ".md")
}

/// Returns the lines, numbered from 1, that are not in a code block.
pub(super) fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((index + 1, line))
    })
}

/// Returns the scripts that a document names, as `scripts/quorum/name.txt` or by the full path.
fn scripts(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in line.split(|c: char| !c.is_alphanumeric() && !"/_-.".contains(c)) {
            if let Some(at) = word.find("scripts/")
                && word.ends_with(".txt")
            {
                found.push((index + 1, format!("crates/primacy-sim/{}", &word[at..])));
            }
        }
    }
    found
}

/// Returns the path relative to the root, or `None` if it leads out of the repository.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn found(check: super::super::Check, files: &[(&str, &str)]) -> usize {
        check(&Tree::of(files)).len()
    }

    #[test]
    fn missing_files_are_found() {
        assert_eq!(found(present, &[]), PRESENT.len());
        assert_eq!(found(present, &[(".ci/run", "cargo test\n")]), PRESENT.len());
        assert_eq!(found(present, &[(".ci/run", "exec cargo xtask test\n")]), PRESENT.len() - 1);
        let root = ("Cargo.toml", "[workspace.package]\nversion = \"0.2.0\"\n");
        assert_eq!(found(present, &[root, ("CHANGELOG.md", "# Changes\n## 0.2.0\n")]), PRESENT.len() - 1);
        assert_eq!(found(present, &[root, ("CHANGELOG.md", "# Changes\n## 0.1.0\n")]), PRESENT.len());
    }

    #[test]
    fn a_document_that_is_not_whole_is_found() {
        assert_eq!(found(whole, &[("docs/a.md", "# A\n```\n# no title\n```\n")]), 0);
        assert_eq!(found(whole, &[("docs/a.md", "A\n")]), 1);
        assert_eq!(found(whole, &[("docs/a.md", "# A\n# B\n")]), 1);
        assert_eq!(found(whole, &[("docs/decisions/0002-a.md", "# A\n")]), 1);
        let script = ("crates/primacy-sim/scripts/quorum/a.txt", "");
        assert_eq!(found(whole, &[script, ("docs/a.md", "# A\n`scripts/quorum/a.txt`\n")]), 0);
        assert_eq!(found(whole, &[script, ("docs/a.md", "# A\n`scripts/quorum/b.txt`\n")]), 1);
    }

    #[test]
    fn a_map_of_what_is_not_there_is_found() {
        let map = ("ARCHITECTURE.md", "### crates/a/src\n| `b.rs` `c/` | two |\n| to come | `d.rs` |\n");
        assert_eq!(found(code_map, &[map, ("crates/a/src/b.rs", ""), ("crates/a/src/c/mod.rs", "")]), 0);
        assert_eq!(found(code_map, &[map, ("crates/a/src/b.rs", "")]), 1);
        assert_eq!(found(code_map, &[("docs/code-map.md", map.1)]), 2);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let b = ("docs/b.md", "# B\n");
        assert_eq!(
            found(
                links,
                &[b, ("docs/a.md", "[b](b.md#x) [b](../docs/b.md) [d](../docs/) [w](https://a.b)\n")]
            ),
            0
        );
        assert_eq!(found(links, &[b, ("docs/a.md", "[c](c.md)\n")]), 1);
        assert_eq!(found(links, &[b, ("docs/a.md", "[out](../../b.md)\n")]), 1);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let path = |folder: &str| format!("see /{folder}/thing\n");
        assert_eq!(found(machine_paths, &[("a.md", &path("home"))]), 1);
        assert_eq!(found(machine_paths, &[("a.rs", &path("root"))]), 1);
        assert_eq!(found(machine_paths, &[("a.md", "crates/home/ and $HOME/.local\n")]), 0);
    }
}
