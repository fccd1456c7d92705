//! Checks of manifests: the dependencies between crates, and settings that must be in one place only.

use std::collections::{BTreeMap, BTreeSet};

use super::toml::{self, Entry};
use super::{Finding, Tree};

/// The allowed dependencies of each crate within the workspace: crates before it in its chain.
const DIRECTION: &[(&str, &[&str])] = &[
    ("primacy-core", &[]),
    ("primacy-kv", &["primacy-core"]),
    ("primacy-stores", &["primacy-core"]),
    ("primacy", &["primacy-core", "primacy-kv", "primacy-stores"]),
    ("primacy-fence-redis", &["primacy"]),
    ("primacy-fence-sqlite", &["primacy-core", "primacy"]),
    ("primacy-fence-zookeeper", &["primacy-core", "primacy"]),
    ("primacy-kube", &["primacy"]),
    ("primacy-sim", &["primacy-core", "primacy-kv"]),
    ("primacy-etcd-server", &["primacy-core", "primacy-kv", "primacy"]),
    (
        "primacy-cli",
        &["primacy-core", "primacy-stores", "primacy", "primacy-etcd-server", "primacy-fence-sqlite"],
    ),
    (
        "primacy-lab",
        &[
            "primacy-core",
            "primacy-kv",
            "primacy",
            "primacy-fence-sqlite",
            "primacy-sim",
            "primacy-conformance",
            "primacy-testbed",
        ],
    ),
    (
        "primacy-conformance",
        &[
            "primacy-core",
            "primacy-stores",
            "primacy",
            "primacy-fence-redis",
            "primacy-fence-zookeeper",
            "primacy-kube",
            "primacy-sim",
        ],
    ),
    ("primacy-fuzz", &["primacy-core"]),
    (
        "primacy-testbed",
        &["primacy-core", "primacy-stores", "primacy", "primacy-fence-sqlite", "primacy-conformance"],
    ),
];

/// The crates of state machines, which depend on no foreign crate.
const PURE: &[&str] = &["primacy-core", "primacy-kv"];

/// The crates that may use any crate, because nothing is built on them.
const FREE: &[&str] = &["xtask", "xtask-proto", "examples", "queue-broker", "raft-token"];

/// The crates that other crates may use only in their tests.
const FOR_TESTS: &[&str] = &["primacy-conformance", "primacy-fuzz", "primacy-testbed"];

/// Checks that dependencies go one way, and that the machines have no foreign ones.
pub(super) fn direction(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in manifests(tree) {
        let entries = toml::entries(text);
        let name = package(&entries);
        if FREE.contains(&name) {
            continue;
        }
        let Some((_, allowed)) = DIRECTION.iter().find(|(known, _)| *known == name) else {
            let message =
                format!("the crate `{name}` has no place in the direction of dependencies; give it one");
            findings.push(Finding::new(path, 0, message));
            continue;
        };
        for (entry, dependency) in dependencies(&entries) {
            let ours = dependency.starts_with("primacy") || FREE.contains(&dependency);
            let in_tests = FOR_TESTS.contains(&dependency) && entry.section.contains("dev-dependencies");
            if PURE.contains(&name) && !allowed.contains(&dependency) {
                let message = format!(
                    "`{name}` is pure and depends on no foreign crate, not even in its tests; remove `{dependency}`"
                );
                findings.push(Finding::new(path, entry.line, message));
            } else if ours && !in_tests && !allowed.contains(&dependency) {
                let message =
                    format!("`{name}` must not depend on `{dependency}`; it may on: {}", allowed.join(", "));
                findings.push(Finding::new(path, entry.line, message));
            }
        }
    }
    findings
}

/// Checks that only the root manifest states the minimum Rust version, the versions of dependencies and the lints.
pub(super) fn one_home(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in manifests(tree) {
        let entries = toml::entries(text);
        let has = |section: &str, key: &str| entries.iter().any(|e| e.section == section && e.key == key);
        if !has("lints", "workspace") {
            findings.push(Finding::new(
                path,
                0,
                "add `[lints] workspace = true`: the root manifest has the lints",
            ));
        }
        for key in ["version", "edition", "rust-version", "license"] {
            if !has("package", &format!("{key}.workspace")) {
                let message = format!("write `{key}.workspace = true`: the root manifest has the value");
                findings.push(Finding::new(path, 0, message));
            }
        }
        for (entry, dependency) in dependencies(&entries) {
            if !entry.key.ends_with(".workspace") && !entry.value.contains("workspace = true") {
                let message = format!(
                    "take `{dependency}` from the workspace: its version stands in the root manifest"
                );
                findings.push(Finding::new(path, entry.line, message));
            }
        }
    }
    findings.extend(root_manifest(tree));
    findings.extend(second_homes(tree));
    findings
}

/// Checks that each publishable crate has the metadata that crates.io and docs.rs show.
pub(super) fn ready_to_publish(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in published(tree) {
        let entries = toml::entries(text);
        let folder = path.trim_end_matches("Cargo.toml");
        let has = |section: &str, key: &str| entries.iter().any(|e| e.section == section && e.key == key);
        for key in ["description", "keywords", "categories", "repository.workspace"] {
            if !has("package", key) {
                findings.push(Finding::new(path, 0, format!("give `{key}`, or `publish = false`")));
            }
        }
        let is_library = tree.has(&format!("{folder}src/lib.rs"));
        if is_library && !has("package.metadata.docs.rs", "all-features") {
            findings.push(Finding::new(
                path,
                0,
                "write `[package.metadata.docs.rs] all-features = true`: docs.rs shows the default features only",
            ));
        }
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            if !tree.has(&format!("{folder}{file}")) {
                findings.push(Finding::new(path, 0, format!("add {folder}{file}: a package has its own")));
            }
        }
        let shown = tree.text(&format!("{folder}src/lib.rs")).unwrap_or_default();
        if is_library && !shown.starts_with(README_IS_THE_FRONT_PAGE) {
            let message = format!("begin with `{README_IS_THE_FRONT_PAGE}`: so its example is compiled");
            findings.push(Finding::new(&format!("{folder}src/lib.rs"), 1, message));
        }
    }
    findings
}

/// The required first line of a published library.
const README_IS_THE_FRONT_PAGE: &str = "#![doc = include_str!(\"../README.md\")]";

/// Returns the manifests of the publishable crates.
pub(super) fn published(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let in_crates = manifests(tree).filter(|(path, _)| path.starts_with("crates/"));
    in_crates.filter(|(_, text)| !text.lines().any(|line| line == "publish = false"))
}

/// Checks that dependencies have no default features, so that heavy parts are compiled only on request.
fn root_manifest(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text("Cargo.toml") else {
        return vec![Finding::new("Cargo.toml", 0, "the root manifest is missing")];
    };
    let entries = toml::entries(text);
    let dependencies = entries.iter().filter(|entry| entry.section == "workspace.dependencies");
    let greedy = dependencies.filter(|entry| !entry.value.contains("default-features = false"));
    let mut findings: Vec<Finding> = greedy
        .filter(|entry| !entry.value.contains("path = "))
        .map(|entry| {
            let message =
                format!("say `default-features = false` for `{}`, and name the features it needs", entry.key);
            Finding::new("Cargo.toml", entry.line, message)
        })
        .collect();
    if !entries.iter().any(|entry| entry.section == "workspace.package" && entry.key == "rust-version") {
        findings.push(Finding::new(
            "Cargo.toml",
            0,
            "give the minimum Rust version in `[workspace.package]`",
        ));
    }
    findings
}

/// Finds other places that state the minimum Rust version.
fn second_homes(tree: &Tree) -> Vec<Finding> {
    let root = toml::entries(tree.text("Cargo.toml").unwrap_or_default());
    let version =
        root.iter().find(|entry| entry.key == "rust-version").map(|entry| entry.value.trim_matches('"'));
    let mut findings: Vec<Finding> = ["rust-toolchain", "rust-toolchain.toml"]
        .iter()
        .filter(|path| tree.has(path))
        .map(|path| Finding::new(path, 0, "remove it: any Rust from the minimum version on will do"))
        .collect();
    let Some(version) = version else { return findings };
    let stated = [
        format!("Rust {version}"),
        format!("rust {version}"),
        format!("MSRV {version}"),
        "msrv = ".to_owned(),
    ];
    for (path, text) in tree.files("", ".md").chain(tree.files("clippy.toml", "")) {
        for (index, line) in text.lines().enumerate() {
            if path != "CHANGELOG.md" && stated.iter().any(|stated| line.contains(stated)) {
                let message =
                    "name `rust-version` in Cargo.toml instead of its value: it would be forgotten here";
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

/// Returns the manifests of the packages, without the root manifest.
fn manifests(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.files("", "/Cargo.toml")
}

/// The name of the package in a manifest.
pub(super) fn name_in(manifest: &str) -> String {
    package(&toml::entries(manifest)).to_owned()
}

fn package(entries: &[Entry]) -> &str {
    let name = entries.iter().find(|entry| entry.section == "package" && entry.key == "name");
    name.map_or("", |entry| entry.value.trim_matches('"'))
}

/// Returns the crates below `crates/`, each with the crates that it uses outside of its tests.
pub(super) fn dependencies_between(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let of_crates = manifests(tree).filter(|(path, _)| path.starts_with("crates/"));
    let named = of_crates.map(|(_, text)| {
        let entries = toml::entries(text);
        let used = dependencies(&entries).filter(|(entry, used)| {
            !entry.section.contains("dev-dependencies") && (used.starts_with("primacy"))
        });
        let used = used.map(|(_, used)| used.to_owned()).collect();
        (package(&entries).to_owned(), used)
    });
    named.collect()
}

/// Returns the dependencies of any kind, each with the entry that declares it.
fn dependencies(entries: &[Entry]) -> impl Iterator<Item = (&Entry, &str)> {
    entries.iter().filter_map(|entry| {
        if entry.section.ends_with("dependencies") {
            return Some((entry, entry.key.split('.').next()?));
        }
        let (_, name) = entry.section.split_once("dependencies.")?;
        Some((entry, name))
    })
}

#[cfg(test)]
mod self_tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"primacy-stores\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n";
    const ROOT: &str = "[workspace.package]\nrust-version = \"1.77\"\n[workspace.dependencies]\n";

    fn found(check: super::super::Check, files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_dependency_against_the_direction_is_found() {
        let good = format!(
            "{GOOD}[dependencies]\nprimacy-core.workspace = true\n[dev-dependencies]\nprimacy-conformance.workspace = true\n"
        );
        assert!(found(direction, &[("crates/s/Cargo.toml", &good)]).is_empty());
        for bad in [
            "[dependencies]\nprimacy = {}",
            "[target.'cfg(unix)'.dependencies.primacy-sim]\nx = 1",
            "[dependencies]\nprimacy-conformance.workspace = true",
        ] {
            let bad = format!("{GOOD}{bad}\n");
            assert_eq!(found(direction, &[("crates/s/Cargo.toml", &bad)]).len(), 1, "{bad}");
        }
        let core = "[package]\nname = \"primacy-core\"\n[dev-dependencies]\nproptest.workspace = true\n";
        assert_eq!(found(direction, &[("crates/primacy-core/Cargo.toml", core)]).len(), 1);
        assert_eq!(found(direction, &[("crates/x/Cargo.toml", "[package]\nname = \"x\"\n")]).len(), 1);
    }

    #[test]
    fn a_crate_that_is_not_ready_to_be_published_is_found() {
        let manifest = format!(
            "{GOOD}[package.metadata.docs.rs]\nall-features = true\n[package]\ndescription = \"d\"\n\
             keywords = []\ncategories = []\nrepository.workspace = true\n"
        );
        let library = format!("{README_IS_THE_FRONT_PAGE}\n");
        let good = [
            ("crates/s/Cargo.toml", manifest.as_str()),
            ("crates/s/README.md", "It is ready.\n"),
            ("crates/s/LICENSE-MIT", "MIT\n"),
            ("crates/s/LICENSE-APACHE", "Apache\n"),
            ("crates/s/src/lib.rs", library.as_str()),
        ];
        assert_eq!(found(ready_to_publish, &good), Vec::<String>::new());
        for missing in 1..good.len() - 1 {
            let mut files = good.to_vec();
            files.remove(missing);
            assert_eq!(found(ready_to_publish, &files).len(), 1, "{}", good[missing].0);
        }
        let mut bare = good.to_vec();
        bare[4].1 = "//! A crate.\n";
        assert_eq!(found(ready_to_publish, &bare).len(), 1);
        bare[0].1 = GOOD;
        assert_eq!(found(ready_to_publish, &bare).len(), 6);
        let kept_back = format!("publish = false\n{GOOD}");
        bare[0].1 = &kept_back;
        assert!(found(ready_to_publish, &bare).is_empty());
    }

    #[test]
    fn a_second_home_is_found() {
        assert!(found(one_home, &[("Cargo.toml", ROOT), ("crates/s/Cargo.toml", GOOD)]).is_empty());
        let versioned = format!("{GOOD}[dependencies]\nserde = \"1\"\n");
        assert_eq!(found(one_home, &[("Cargo.toml", ROOT), ("crates/s/Cargo.toml", &versioned)]).len(), 1);
        let own = GOOD.replace("rust-version.workspace = true", "rust-version = \"1.80\"");
        assert_eq!(found(one_home, &[("Cargo.toml", ROOT), ("crates/s/Cargo.toml", &own)]).len(), 1);
        let greedy = format!("{ROOT}serde = {{ version = \"1\" }}\n");
        assert_eq!(found(one_home, &[("Cargo.toml", &greedy)]).len(), 1);
        assert_eq!(found(one_home, &[("Cargo.toml", ROOT), ("README.md", "Needs Rust 1.77.\n")]).len(), 1);
        assert_eq!(found(one_home, &[("Cargo.toml", ROOT), ("rust-toolchain.toml", "")]).len(), 1);
    }
}
