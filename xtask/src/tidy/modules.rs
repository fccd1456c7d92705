//! Checks that the modules of a crate depend on each other in one direction, so that each can be read after those
//! that it uses.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::{Finding, Tree, is_test_file};

/// A top-level module of a crate; the empty name is that of the root file.
type Module = String;

/// The top-level modules of a crate, each with those that it uses.
pub(crate) type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// Checks that no module uses itself through others.
pub(super) fn circles(tree: &Tree) -> Vec<Finding> {
    let mut findings = unreadable(tree);
    for (name, uses) in crates(tree) {
        let inside = in_circles(&uses);
        if inside.is_empty() {
            continue;
        }
        let is_inside = |module: &&String| inside.contains(&module.as_str());
        let edges = uses.iter().filter(|(module, _)| is_inside(module)).map(|(module, used)| {
            let used: Vec<&str> = used.iter().filter(is_inside).map(String::as_str).collect();
            format!("{module} uses {}", used.join(" "))
        });
        let message = format!(
            "{} modules use each other in a circle; move what they share below them: {}",
            inside.len(),
            edges.collect::<Vec<_>>().join("; ")
        );
        findings.push(Finding::new(&format!("crates/{name}/src"), 0, message));
    }
    findings
}

/// The modules of `primacy` for connections between nodes.
const NETWORK: &[&str] = &["codec", "connections", "handshake", "transport", "versions"];

/// The other modules that they may use.
const BELOW_NETWORK: &[&str] = &["clock", "disk", "log_limit"];

/// Checks that the connections between nodes use no other part of `primacy`, as if they were a separate crate.
pub(super) fn network(tree: &Tree) -> Vec<Finding> {
    let crates = crates(tree);
    let of_network = crates.get("primacy").into_iter().flatten();
    let of_network = of_network.filter(|(module, _)| NETWORK.contains(&module.as_str()));
    let may_use = |used: &&String| NETWORK.contains(&used.as_str()) || BELOW_NETWORK.contains(&used.as_str());
    let wrong = of_network
        .flat_map(|(module, used)| used.iter().filter(|used| !may_use(used)).map(move |used| (module, used)));
    let finding = |(module, used): (&Module, &Module)| {
        let message = format!(
            "`{module}` must not use `{used}`: the connections between nodes know no election that runs over them"
        );
        Finding::new("crates/primacy/src", 0, message)
    };
    wrong.map(finding).collect()
}

/// Returns the source files of crates that are not generated, each with the name of its crate and its path in the crate.
fn sources(tree: &Tree) -> impl Iterator<Item = (&str, &str, &str, &str)> {
    tree.files("crates/", ".rs").filter_map(|(path, text)| {
        let (name, inner) = path["crates/".len()..].split_once("/src/")?;
        let is_code = tree.rust.contains_key(path) && !is_test_file(path);
        let is_source = is_code && !name.contains('/') && !inner.starts_with("bin/");
        is_source.then_some((path, name, inner, text))
    })
}

/// Returns the source files that can be parsed; [`circles`] reports the others.
pub(super) fn parsed(tree: &Tree) -> impl Iterator<Item = (&str, syn::File)> {
    sources(tree).filter_map(|(path, _, _, text)| Some((path, syn::parse_file(text).ok()?)))
}

/// Reports files that cannot be parsed, because their uses are unknown.
fn unreadable(tree: &Tree) -> Vec<Finding> {
    let read = sources(tree).filter_map(|(path, _, _, text)| Some((path, syn::parse_file(text).err()?)));
    read.map(|(path, error)| Finding::new(path, 0, format!("it cannot be parsed: {error}"))).collect()
}

/// Returns every crate, with its top-level modules and their uses.
pub(crate) fn crates(tree: &Tree) -> BTreeMap<String, Uses> {
    let mut crates: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (_, name, inner, text) in sources(tree) {
        crates.entry(name.to_owned()).or_default().push((inner, text));
    }
    crates.into_iter().map(|(name, files)| (name, uses(&files))).collect()
}

fn uses(files: &[(&str, &str)]) -> Uses {
    let parsed: Vec<(Vec<String>, syn::File)> = files
        .iter()
        .filter_map(|(path, text)| Some((module_path(path), syn::parse_file(text).ok()?)))
        .collect();
    let modules: BTreeSet<&String> = parsed.iter().filter_map(|(path, _)| path.first()).collect();
    // The names that the root re-exports from its modules: `crate::Name` is a use of that module.
    let mut exported = BTreeMap::new();
    for (_, file) in parsed.iter().filter(|(path, _)| path.is_empty()) {
        for item in &file.items {
            let syn::Item::Use(item) = item else { continue };
            let mut paths = Vec::new();
            flatten(&item.tree, &mut Vec::new(), &mut paths);
            for (path, name) in paths {
                let first = path.iter().find(|part| !["crate", "self"].contains(&part.as_str()));
                if let Some(module) = first.filter(|first| modules.contains(first)) {
                    exported.insert(name, module.clone());
                }
            }
        }
    }
    let mut uses = Uses::new();
    for (path, file) in &parsed {
        let mut paths = Paths { place: path.clone(), used: BTreeSet::new() };
        let is_root = path.is_empty();
        for item in &file.items {
            // Declaring a module, or re-exporting from it, is not a use.
            if !(is_root && matches!(item, syn::Item::Mod(_) | syn::Item::Use(_))) {
                paths.visit_item(item);
            }
        }
        let mine = path.first().cloned().unwrap_or_default();
        let target = |name: &String| match modules.contains(name) {
            true => name.clone(),
            false => exported.get(name).cloned().unwrap_or_default(),
        };
        let used = paths.used.iter().map(target).filter(|used| *used != mine);
        uses.entry(mine.clone()).or_default().extend(used);
    }
    uses
}

/// Returns the path of the module in a file: `a::b` for `a/b.rs` and `a/b/mod.rs`, empty for the root.
fn module_path(file: &str) -> Vec<String> {
    let mut parts: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// Collects the paths of a `use`, each with the name that it introduces.
fn flatten(tree: &syn::UseTree, before: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, found)),
        syn::UseTree::Name(name) => {
            let path = before.iter().cloned().chain([name.ident.to_string()]).collect();
            found.push((path, name.ident.to_string()));
        }
        syn::UseTree::Rename(name) => {
            let path = before.iter().cloned().chain([name.ident.to_string()]).collect();
            found.push((path, name.rename.to_string()));
        }
        syn::UseTree::Glob(_) => found.push((before.clone(), String::new())),
    }
}

/// Collects the first path segments after `crate::` in a file, outside of its tests.
struct Paths {
    /// The path of the module that is being visited.
    place: Vec<String>,
    used: BTreeSet<String>,
}

impl Paths {
    fn add(&mut self, path: &[String]) {
        let mut place = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super") => self.place[..self.place.len().saturating_sub(1)].to_vec(),
            _ => return,
        };
        for part in &path[1..] {
            if part == "super" {
                place.pop();
            } else {
                place.push(part.clone());
                break;
            }
        }
        self.used.extend(place.into_iter().next());
    }
}

pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

impl<'a> Visit<'a> for Paths {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            self.place.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.place.pop();
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_test(&item.attrs) {
            let mut paths = Vec::new();
            flatten(&item.tree, &mut Vec::new(), &mut paths);
            paths.iter().for_each(|(path, _)| self.add(path));
        }
    }

    fn visit_visibility(&mut self, _: &'a syn::Visibility) {} // `pub(in crate::a)` is no use of it.

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&parts);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let text = call.tokens.to_string();
        for (start, _) in text.match_indices("crate :: ") {
            let name = text[start + "crate :: ".len()..]
                .split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            self.add(&["crate".to_owned(), name.take(1).collect()]);
        }
        visit::visit_macro(self, call);
    }
}

/// Returns the modules that are part of a cycle.
fn in_circles(uses: &Uses) -> Vec<&str> {
    let reaches_itself = |start: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(module) = next.pop() {
            for used in uses.get(module).into_iter().flatten() {
                if used == start {
                    return true;
                }
                if seen.insert(used) {
                    next.push(used);
                }
            }
        }
        false
    };
    let inside = uses.keys().filter(|module| reaches_itself(module));
    inside.map(String::as_str).collect()
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/k/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        circles(&Tree::of(&files)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_transport_that_knows_an_election_is_found() {
        let found = |text| {
            network(&Tree::of(&[
                ("crates/primacy/src/lib.rs", "mod clock; mod driver; mod transport;"),
                ("crates/primacy/src/clock.rs", ""),
                ("crates/primacy/src/driver.rs", "use crate::transport::Mesh;"),
                ("crates/primacy/src/transport/mod.rs", text),
            ]))
            .len()
        };
        assert_eq!(found("use crate::clock::now;"), 0);
        assert_eq!(found("use crate::driver::Driver;"), 1);
    }

    #[test]
    fn a_circle_of_modules_is_found_in_whatever_way_they_use_each_other() {
        let root = ("lib.rs", "mod a; mod b; pub use b::B;");
        let a = "pub struct A; fn f() { let _ = crate::B; }";
        for b in [
            "use crate::a::A; pub struct B;",
            "use super::a; pub struct B;",
            "pub struct B(crate::a::A);",
            "pub struct B; mod inner { use super::super::a::A; }",
            "pub struct B; fn f() { dbg!(crate::a::A); }",
        ] {
            let files = [root, ("a.rs", a), ("b/mod.rs", b)];
            assert!(found(&files)[0].contains("2 modules use each other in a circle"), "{b}");
        }
        for b in ["pub struct B; #[cfg(test)] mod tests { use crate::a::A; }", "use std::a; pub struct B;"] {
            assert_eq!(found(&[root, ("a.rs", a), ("b.rs", b)]), [""; 0], "{b}");
        }
        assert!(found(&[root, ("a.rs", "fn {")])[0].contains("cannot be parsed"));
    }
}
