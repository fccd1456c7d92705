//! Checks of licences, sources and bans by `deny.toml`, without any other tool.
//!
//! `cargo deny` reads the same file and checks more (advisories, which need the network); it runs where it is
//! installed.

use crate::tidy::toml;

/// The rules of `deny.toml`.
pub(crate) struct Rules {
    licences: Vec<String>,
    /// Each banned package, with the alternative.
    bans: Vec<(String, String)>,
}

impl Rules {
    pub(crate) fn parse(text: &str) -> Self {
        let entries = toml::entries(text);
        let value = |section: &str, key: &str| {
            let entry = entries.iter().find(|entry| entry.section == section && entry.key == key);
            entry.map_or("", |entry| entry.value.as_str())
        };
        let licences = toml::strings(value("licenses", "allow")).into_iter().map(str::to_owned).collect();
        let bans = value("bans", "deny").split('{').skip(1).filter_map(|table| {
            let strings = toml::strings(table);
            Some(((*strings.first()?).to_owned(), strings.get(1).copied().unwrap_or_default().to_owned()))
        });
        Self { licences, bans: bans.collect() }
    }

    /// Returns the violations in a dependency tree, given as lines of `name v1.2.3 …
    /// licence`, as `cargo tree` prints them.
    pub(crate) fn check_tree(&self, tree: &str) -> Vec<String> {
        let mut findings = Vec::new();
        for line in tree.lines().filter(|line| !line.trim().is_empty()) {
            let line = line.trim_end_matches(" (*)");
            let (package, licence) = line.rsplit_once('|').unwrap_or((line, ""));
            if !self.allows(licence) {
                findings
                    .push(format!("{package}: its licence is `{licence}`, which deny.toml does not allow"));
            }
            let name = package.split(' ').next().unwrap_or(package);
            if let Some((_, instead)) = self.bans.iter().find(|(banned, _)| banned == name) {
                findings.push(format!("{package}: banned; {instead}"));
            }
        }
        findings.sort();
        findings.dedup();
        findings
    }

    /// Returns the violations in a lock file: packages from other sources than the public registry.
    pub(crate) fn check_sources(lock: &str) -> Vec<String> {
        let sources = toml::entries(lock).into_iter().filter(|entry| entry.key == "source");
        let strange = sources
            .filter(|entry| entry.value != r#""registry+https://github.com/rust-lang/crates.io-index""#);
        strange.map(|entry| format!("Cargo.lock:{}: a package from {}", entry.line, entry.value)).collect()
    }

    /// True if the allowed licences satisfy an SPDX expression.
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut words = spaced.split_whitespace().collect::<Vec<_>>().into_iter().peekable();
        let allowed = self.any(&mut words);
        allowed && words.next().is_none()
    }

    fn any<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let mut allowed = self.all(words);
        while words.next_if_eq(&"OR").is_some() {
            allowed |= self.all(words);
        }
        allowed
    }

    fn all<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let mut allowed = self.one(words);
        while words.next_if_eq(&"AND").is_some() {
            allowed &= self.one(words);
        }
        allowed
    }

    fn one<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        if words.next_if_eq(&"(").is_some() {
            let allowed = self.any(words);
            return words.next_if_eq(&")").is_some() && allowed;
        }
        let Some(name) = words.next() else { return false };
        let mut name = name.to_owned();
        if words.next_if_eq(&"WITH").is_some() {
            name = format!("{name} WITH {}", words.next().unwrap_or_default());
        }
        self.licences.contains(&name)
    }
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn rules() -> Rules {
        Rules::parse(
            "[licenses]\nallow = [\n  \"MIT\",\n  \"Apache-2.0\", # why\n  \"Unicode-3.0\",\n]\n[bans]\ndeny = [\n  \
             { crate = \"openssl-sys\", reason = \"use rustls\" },\n]\n",
        )
    }

    #[test]
    fn expressions_are_met_or_not() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/GPL-3.0",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(rules().allows(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH LLVM-exception", "(MIT", "MIT MIT"] {
            assert!(!rules().allows(bad), "{bad}");
        }
    }

    #[test]
    fn bad_packages_are_found() {
        assert!(
            rules()
                .check_tree("serde v1.0.0|MIT OR Apache-2.0\nserde v1.0.0|MIT OR Apache-2.0 (*)\n")
                .is_empty()
        );
        assert_eq!(
            rules().check_tree("openssl-sys v0.9.0|MIT\n"),
            ["openssl-sys v0.9.0: banned; use rustls"]
        );
        assert_eq!(rules().check_tree("x v1.0.0|GPL-3.0\nx v1.0.0|GPL-3.0 (*)\n").len(), 1);
    }

    #[test]
    fn packages_from_elsewhere_are_found() {
        let lock = |source: &str| format!("[[package]]\nname = \"x\"\nsource = \"{source}\"\n");
        assert!(
            Rules::check_sources(&lock("registry+https://github.com/rust-lang/crates.io-index")).is_empty()
        );
        assert_eq!(Rules::check_sources(&lock("git+https://example.com/x#1")).len(), 1);
    }
}
