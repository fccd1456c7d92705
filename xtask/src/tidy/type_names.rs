//! Checks of type names: one name is one idea, so it has one definition, or two if one represents the other at an
//! interface.

use std::collections::BTreeMap;

use super::{Finding, Tree, modules};

/// The maximum number of definitions of a name.
const HOMES_MAX: usize = 2;

/// The names that still have more, each with its number, which may only fall.
const KNOWN: &str = "\
    Timers 16, Config 8, Message 5, Entry 11, Answer 10, Node 10, Watch 10, Failure 8, Outcome 8, Queue 8, \
    Settings 8, State 8, Status 8, Refusal 7, Request 6, Kind 6, Member 5, Progress 6, Record 6, \
    Server 6, Write 6, Event 4, GuardError 5, Line 5, Login 5, Run 5, Session 5, Bounds 4, Cell 4, Client 4, \
    Cluster 4, Leader 3, Lease 4, Limits 4, Link 4, Machine 4, Map 4, Measured 4, Partitions 4, Reading 4, \
    User 4, Verdict 4, Answers 3, Change 3, Clients 3, Command 3, Connection 3, Fault 3, Found 3, \
    Ledger 3, Members 3, Membership 3, Metadata 3, Network 3, News 3, Operation 3, Pace 3, \
    Peers 3, Pool 3, Reply 3, Setup 3, Stamp 3, Step 3, Table 3, Tally 3, Target 3, View 3, \
    Wire 3";

/// The names that every election gives to the same part of it, so that all of them are one home.
const OF_EVERY_ELECTION: [&str; 3] = ["Body", "Config", "Message"];
const ELECTIONS: &str = "crates/primacy-core/src/election/";

/// Checks that no visible type name has too many definitions.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    judge(tree, KNOWN)
}

fn judge(tree: &Tree, known: &str) -> Vec<Finding> {
    let known: BTreeMap<&str, usize> = known
        .split(',')
        .filter_map(|entry| entry.trim().split_once(' '))
        .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
        .collect();
    let mut homes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, file) in modules::parsed(tree) {
        names(&file.items, &mut |name| {
            let of_every = OF_EVERY_ELECTION.contains(&name.as_str()) && path.starts_with(ELECTIONS);
            let (home, homes) = (if of_every { ELECTIONS } else { path }, homes.entry(name).or_default());
            if !of_every || !homes.contains(&home) {
                homes.push(home);
            }
        });
    }
    let mut findings = Vec::new();
    for (name, paths) in &homes {
        let allowed = known.get(name.as_str()).copied().unwrap_or(HOMES_MAX);
        if paths.len() > allowed {
            let message = format!(
                "`{name}` is the name of {} types ({}), and {allowed} may have it; name the idea",
                paths.len(),
                paths.join(", ")
            );
            findings.push(Finding::new(paths[0], 0, message));
        }
    }
    for (name, &count) in &known {
        let now = homes.get(*name).map_or(0, Vec::len);
        if now < count {
            findings.push(Finding::new(
                "xtask/src/tidy/type_names.rs",
                0,
                format!("`{name}` has {now} homes, and {count} are listed: lower the number, or take it out"),
            ));
        }
    }
    findings
}

/// Finds the names of the types that are visible outside of their module, except in tests.
fn names(items: &[syn::Item], found: &mut impl FnMut(String)) {
    for item in items {
        if let syn::Item::Mod(inner) = item
            && let Some((_, items)) = inner.content.as_ref().filter(|_| !modules::is_test(&inner.attrs))
        {
            names(items, found);
        }
        let (syn::Item::Struct(syn::ItemStruct { vis: visibility, ident: name, .. })
        | syn::Item::Enum(syn::ItemEnum { vis: visibility, ident: name, .. })
        | syn::Item::Trait(syn::ItemTrait { vis: visibility, ident: name, .. })) = item
        else {
            continue;
        };
        let is_seen = match visibility {
            syn::Visibility::Public(_) => true,
            // A type whose visibility is limited to a path is local to that path.
            syn::Visibility::Restricted(restricted) => restricted.in_token.is_none(),
            syn::Visibility::Inherited => false,
        };
        if is_seen {
            found(name.to_string());
        }
    }
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn found(texts: [&str; 3], known: &str) -> Vec<String> {
        let paths = ["crates/k/src/a.rs", "crates/k/src/b.rs", "crates/l/src/c.rs"];
        let files: Vec<(&str, &str)> = paths.into_iter().zip(texts).collect();
        judge(&Tree::of(&files), known).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_name_with_too_many_homes_is_found() {
        let three = ["pub struct Told;", "pub(crate) enum Told {}", "mod inner { pub trait Told {} }"];
        let message = &found(three, "")[0];
        assert!(
            message.contains("`Told` is the name of 3 types") && message.contains("crates/l/src/c.rs"),
            "{message}"
        );
        assert_eq!(found(three, "Told 3"), [""; 0]);
        assert!(found(three, "Told 4, Gone 3").iter().all(|finding| finding.contains("lower the number")));
        for few in
            ["struct Told;", "#[cfg(test)] mod tests { pub struct Told; }", "pub(in crate::a) struct Told;"]
        {
            assert_eq!(found([three[0], three[1], few], ""), [""; 0], "{few}");
        }
    }
}
