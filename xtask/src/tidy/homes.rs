//! Checks that each list and each responsibility is in one place, and that stores and elections are independent of
//! each other.

use super::{Finding, Tree, is_test_file};

const ELECTIONS: &str = "crates/primacy-core/src/election/";
const STORES: &str = "crates/primacy-stores/src/";

/// Elections without a page of their own.
const NO_PAGE: &[(&str, &str)] = &[
    ("appointed", "the template; what it promises is nothing, and its file says so"),
    ("record_update", "what others may write into the record of a lease; it is on that page"),
    ("on_a_ring", "what the two rings share; it is on their pages"),
];

/// Checks that every election is in the table of `election/mod.rs`, and every store in the list of the stores crate.
pub(super) fn lists(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let home = format!("{ELECTIONS}mod.rs");
    let table = tree.text(&home).unwrap_or_default();
    for name in modules(tree, ELECTIONS).filter(|name| name != "mod") {
        let path = format!("{ELECTIONS}{name}.rs");
        if !table.lines().any(|line| line.starts_with("//! ") && line.contains(&format!("[`{name}`]"))) {
            let message = format!("add [`{name}`] to the list in {home}, with what it guarantees");
            findings.push(Finding::new(&path, 0, message));
        }
        let page = format!("docs/algorithms/{name}.md");
        if !NO_PAGE.iter().any(|(none, _)| *none == name) && !tree.has(&page) {
            findings.push(Finding::new(&path, 0, format!("write {page}: a promise needs its argument")));
        }
    }
    let home = format!("{STORES}lib.rs");
    let listed = tree.rust(&home).next().map(|(_, rust)| rust);
    for name in stores(tree) {
        let path = format!("{STORES}{name}/{DESCRIPTOR}");
        let line = format!("&{name}_descriptor::DESCRIPTOR,");
        if listed.is_none_or(|rust| rust.find(&line).is_empty()) {
            findings.push(Finding::new(&path, 0, format!("add the store `{name}` to the one list, {home}")));
        }
        let page = format!("docs/stores/{name}.md");
        if name != "memory" && !tree.has(&page) {
            let message = format!("write {page}: what this store promises, and what gets around it");
            findings.push(Finding::new(&path, 0, message));
        }
    }
    findings
}

/// The name of the file that describes a store.
const DESCRIPTOR: &str = "descriptor.rs";

/// Returns the stores: the folders of their crate that have a descriptor.
fn stores(tree: &Tree) -> impl Iterator<Item = &str> {
    let inner = tree.rust(STORES).map(|(path, _)| &path[STORES.len()..]);
    inner
        .filter_map(|path| path.split_once('/').filter(|(_, rest)| *rest == DESCRIPTOR).map(|(name, _)| name))
}

/// Returns the modules directly in a folder: files, and folders with files.
fn modules(tree: &Tree, folder: &str) -> impl Iterator<Item = String> {
    let inner = tree.rust(folder).map(|(path, _)| &path[folder.len()..]);
    let mut names: Vec<String> = inner
        .filter_map(|path| path.split('/').next())
        .map(|name| name.trim_end_matches(".rs").to_owned())
        .collect();
    names.sort();
    names.dedup();
    names.into_iter()
}

/// A responsibility that only one place may have.
struct Duty {
    /// The code patterns that indicate it.
    signs: &'static [&'static str],
    /// The folders in which it is forbidden.
    below: &'static [&'static str],
    /// The exceptions: each path with the reason.
    homes: &'static [(&'static str, &'static str)],
    instead: &'static str,
}

const DUTIES: &[Duty] = &[
    Duty {
        signs: &["Output::Persist", "Output::Send"],
        below: &[
            "crates/primacy/src/",
            "crates/primacy-stores/src/",
            "crates/primacy-etcd-server/src/",
            "crates/primacy-cli/src/",
        ],
        homes: &[("crates/primacy/src/driver.rs", "the driver")],
        instead: "only driver.rs performs effects; hand it what it needs",
    },
    Duty {
        signs: &["prost", "serde", "serde_json"],
        below: &["crates/primacy-core/src/", "crates/primacy-kv/src/", "crates/primacy/src/"],
        homes: &[
            ("crates/primacy/src/codec.rs", "the messages"),
            ("crates/primacy/src/codec/", "the messages"),
            ("crates/primacy/src/disk/state_file.rs", "the durable state has a format of its own"),
            ("crates/primacy/src/disk/format.rs", "the durable state has a format of its own"),
            ("crates/primacy/src/death_notice/spec.rs", "text for a guardian of the same build"),
            ("crates/primacy/src/log_file", "the log has a format of its own"),
            (
                "crates/primacy/src/leader_document",
                "the document is the application's, with a field of its own",
            ),
        ],
        instead: "only codec.rs and disk/state_file.rs serialise in this crate; give them a type to carry",
    },
    Duty {
        signs: &["serde", "serde_json"],
        below: &[
            "crates/primacy-stores/src/lib.rs",
            "crates/primacy-stores/src/register.rs",
            "crates/primacy-stores/src/sessions.rs",
            "crates/primacy-stores/src/open",
            "crates/primacy-stores/src/faulty.rs",
            "crates/primacy-stores/src/memory.rs",
            "crates/primacy-stores/src/file",
            "crates/primacy-stores/src/sqlite",
        ],
        homes: &[],
        instead: "only record.rs serialises the lease record; a store keeps its bytes as they are",
    },
];

pub(super) fn duties(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust("crates/") {
        if is_test_file(path) {
            continue;
        }
        for duty in DUTIES.iter().filter(|duty| duty.below.iter().any(|place| path.starts_with(place))) {
            if duty.homes.iter().any(|(home, _)| path.starts_with(home)) {
                continue;
            }
            for sign in duty.signs {
                let places = rust.find(sign).into_iter().filter(|&offset| !rust.is_test(offset));
                findings.extend(places.map(|offset| Finding::new(path, rust.line(offset), duty.instead)));
            }
        }
    }
    findings.extend(default_durations(tree));
    findings
}

/// The files other than `config.rs` whose code may contain a number of seconds, with the reasons.
const DURATIONS: &[(&str, &str)] = &[
    ("crates/primacy/src/config.rs", "every default, and every relation between them"),
    ("crates/primacy-cli/src/cmd/demo", "the demonstration is a script with its own timing"),
];

/// The crates that may define waits of their own next to their use, as named constants, because no relation between
/// timers depends on them.
const MAY_NAME_THEM: [&str; 2] = ["crates/primacy-cli/src/", "crates/primacy-etcd-server/src/"];

/// Checks that only `config.rs` has default durations: a number of seconds anywhere else is a default without
/// validation.
fn default_durations(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for below in [
        "crates/primacy-core/src/",
        "crates/primacy-kv/src/",
        "crates/primacy/src/",
        "crates/primacy-etcd-server/src/",
        "crates/primacy-cli/src/",
    ] {
        for (path, rust) in tree.rust(below) {
            if is_test_file(path) || DURATIONS.iter().any(|(home, _)| path.starts_with(home)) {
                continue;
            }
            for offset in rust.find_start("Duration::from_") {
                let argument =
                    rust.code[offset..].split_once('(').map_or("", |(_, argument)| argument.trim_start());
                let line = rust.code[..offset].rsplit('\n').next().unwrap_or_default();
                let named =
                    line.contains("const ") && MAY_NAME_THEM.iter().any(|place| path.starts_with(place));
                if argument.starts_with(|c: char| c.is_ascii_digit()) && !named && !rust.is_test(offset) {
                    let message =
                        "give this duration a name in config.rs, where the relations of timers are checked";
                    findings.push(Finding::new(path, rust.line(offset), message));
                }
            }
        }
    }
    findings
}

/// Words that no machine may use, in addition to the names of the stores.
const STORE_WORDS: &[&str] = &["rusqlite", "postgresql", "mariadb"];

/// Names of stores that are also ordinary words.
const ORDINARY_WORDS: &[&str] = &["file", "memory"];

/// Checks that stores use only the store interface of the elections, and that no machine names a store.
pub(super) fn strangers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust(STORES) {
        for offset in rust.find("election::") {
            let next = rust.code[offset + "election::".len()..]
                .split(|c: char| c != '_' && !c.is_alphanumeric())
                .next();
            if !matches!(next, Some("lease" | "session")) {
                let message =
                    "a store knows records, versions and sessions, and no other part of an election";
                findings.push(Finding::new(path, rust.line(offset), message));
            }
        }
        for word in ["Protocol", "protocol::", "Input", "Output::"] {
            for offset in rust.find(word).into_iter().filter(|&offset| !rust.is_test(offset)) {
                let message = format!("a store knows no machine; `{word}` belongs to the driver");
                findings.push(Finding::new(path, rust.line(offset), message));
            }
        }
    }
    let names = stores(tree).filter(|name| !ORDINARY_WORDS.contains(name));
    let names: Vec<&str> = names.chain(STORE_WORDS.iter().copied()).collect();
    for (path, rust) in
        ["crates/primacy-core/src/", "crates/primacy-kv/src/"].into_iter().flat_map(|below| tree.rust(below))
    {
        for (offset, word) in rust.words() {
            if names.contains(&word.to_lowercase().as_str()) {
                let message = format!(
                    "`{word}` in the core: an election knows a register or sessions, no store by name"
                );
                findings.push(Finding::new(path, rust.line(offset), message));
            }
        }
    }
    findings
}

/// The folder of the code that draws a run.
const DRAWINGS: &str = "crates/primacy-sim/src/draw/";

/// The modules of the simulator that it may use: those of trace entries and of their contents.
const OF_THE_TRACE: &[&str] = &["crate::trace", "crate::clock::Moment", "crate::network::Remark"];

/// Checks that drawing code uses only the trace of a run, not the world; otherwise a picture could show facts that
/// are not in the trace.
pub(super) fn drawings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust(DRAWINGS) {
        for sign in ["crate::", "super::super", "primacy_sim"] {
            for offset in rust.find(sign) {
                let rest = &rust.code[offset..];
                let of_the_trace = |known: &&str| {
                    let end = rest.strip_prefix(*known).map(|rest| rest.chars().next());
                    end.is_some_and(|next| next.is_none_or(|next| !(next == '_' || next.is_alphanumeric())))
                };
                if !OF_THE_TRACE.iter().any(of_the_trace) {
                    let message = "what draws a run knows only its trace; put what it needs into an entry";
                    findings.push(Finding::new(path, rust.line(offset), message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn found(check: super::super::Check, files: &[(&str, &str)]) -> usize {
        check(&Tree::of(files)).len()
    }

    #[test]
    fn what_is_missing_in_its_list_is_found() {
        let row = ("crates/primacy-core/src/election/mod.rs", "//! | [`quorum`] | a majority | a token |\n");
        let quorum = ("crates/primacy-core/src/election/quorum.rs", "");
        let page = ("docs/algorithms/quorum.md", "");
        assert_eq!(found(lists, &[row, quorum, page]), 0);
        assert_eq!(found(lists, &[row, quorum]), 1);
        assert_eq!(found(lists, &[quorum, page]), 1);
        let store = ("crates/primacy-stores/src/memory/descriptor.rs", "");
        let list = "const STORES: [&StoreDescriptor; 1] = [&memory_descriptor::DESCRIPTOR,];";
        assert_eq!(found(lists, &[("crates/primacy-stores/src/lib.rs", list), store]), 0);
        assert_eq!(found(lists, &[store]), 1);
        assert_eq!(found(lists, &[("crates/primacy-stores/src/lib.rs", "// memory"), store]), 1);
    }

    #[test]
    fn a_duty_away_from_its_home_is_found() {
        let send = "fn f() { match o { Output::Send { .. } => {} } }";
        assert_eq!(found(duties, &[("crates/primacy/src/driver.rs", send)]), 0);
        assert_eq!(found(duties, &[("crates/primacy/src/elector.rs", send)]), 1);
        assert_eq!(found(duties, &[("crates/primacy/src/elector.rs", "use prost::Message;")]), 1);
        assert_eq!(found(duties, &[("crates/primacy-core/src/term.rs", "#[derive(serde::Serialize)]")]), 1);
        assert_eq!(found(duties, &[("crates/primacy-stores/src/open.rs", "use serde_json as json;")]), 1);
        let wait = "fn f() { wait(Duration::from_millis(250)) }";
        assert_eq!(found(duties, &[("crates/primacy/src/config.rs", wait)]), 0);
        let named = "const WAIT: Duration = Duration::from_secs(1);";
        assert_eq!(found(duties, &[("crates/primacy-cli/src/supervisor.rs", named)]), 0);
        assert_eq!(found(duties, &[("crates/primacy-cli/src/supervisor.rs", wait)]), 1);
        assert_eq!(found(duties, &[("crates/primacy/src/elector.rs", named)]), 1);
        assert_eq!(found(duties, &[("crates/primacy/src/elector.rs", wait)]), 1);
        assert_eq!(
            found(duties, &[("crates/primacy/src/elector.rs", "fn f(n: u64) { Duration::from_millis(n) }")]),
            0
        );
    }

    #[test]
    fn a_store_that_knows_an_algorithm_is_found_and_the_other_way_round() {
        let store = "crates/primacy-stores/src/sqlite.rs";
        assert_eq!(found(strangers, &[(store, "use primacy_core::election::lease::Record;")]), 0);
        assert_eq!(found(strangers, &[(store, "use primacy_core::election::quorum::Quorum;")]), 1);
        assert_eq!(found(strangers, &[(store, "use primacy_core::Protocol;")]), 1);
        let etcd = ("crates/primacy-stores/src/etcd/descriptor.rs", "");
        assert_eq!(found(strangers, &[etcd, ("crates/primacy-core/src/a.rs", "struct Etcd;")]), 1);
        assert_eq!(found(strangers, &[("crates/primacy-core/src/a.rs", "struct PostgreSql;")]), 1);
    }

    #[test]
    fn a_drawing_that_asks_the_world_is_found() {
        let path = "crates/primacy-sim/src/draw/lives.rs";
        for good in [
            "use crate::trace::{Entry, What};",
            "use crate::trace::Entry; // not crate::world",
            "use crate::clock::Moment;\nuse super::page::Page;",
        ] {
            assert_eq!(found(drawings, &[(path, good)]), 0, "{good}");
        }
        for bad in [
            "use crate::world::World;",
            "use crate::{trace, world};",
            "use crate::trace_of_another;",
            "fn f(world: &crate::world::World<A>) {}",
            "use super::super::script::Script;",
        ] {
            assert_eq!(found(drawings, &[(path, bad)]), 1, "{bad}");
        }
        assert_eq!(
            found(drawings, &[("crates/primacy-sim/src/replay.rs", "use crate::elections::open;")]),
            0
        );
    }
}
