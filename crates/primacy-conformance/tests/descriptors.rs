//! The list of the stores, as the pages have it.

use std::fmt::Write as _;
use std::path::PathBuf;

use primacy_conformance::table;
use primacy_stores::STORES;

const PLACE: (&str, &str) = (
    "<!-- made by `UPDATE_GOLDENFILES=1 cargo test -p primacy-conformance --test descriptors` -->\n\n",
    "\n<!-- end -->",
);

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_of_the_stores_lists_what_the_descriptors_say() {
    let mut rows = "| Store | URL | Feature | Keeps | Shared by |\n|---|---|---|---|---|\n".to_owned();
    for store in STORES {
        let name = match store.page {
            Some(page) => format!("[{}]({})", store.name, page.trim_start_matches("docs/stores/")),
            None => store.name.to_owned(),
        };
        let feature = store.feature.map_or("always".to_owned(), |feature| format!("`{feature}`"));
        writeln!(rows, "| {name} | `{}` | {feature} | {} | {} |", store.form, store.keeps, store.shared_by)
            .expect("a string takes all");
    }
    table::keep(
        &root().join("docs/stores/README.md"),
        PLACE,
        &rows,
        std::env::var_os("UPDATE_GOLDENFILES").is_some(),
    );
}

#[test]
fn every_page_is_there_and_every_feature_is_passed_on() {
    let manifest = |krate: &str| std::fs::read_to_string(root().join(format!("crates/{krate}/Cargo.toml")));
    let manifests = ["primacy-stores", "primacy"].map(|krate| manifest(krate).expect("it is there"));
    for store in STORES {
        assert!(store.form.starts_with(&format!("{}:", store.scheme)), "{}", store.form);
        assert!(store.page.is_none_or(|page| root().join(page).is_file()), "{:?}", store.page);
        for manifest in &manifests {
            let named = |feature| manifest.contains(&format!("\n{feature} = ["));
            assert!(store.feature.is_none_or(named), "no feature for `{}:` in {manifest}", store.scheme);
            let full = manifest.lines().find(|line| line.starts_with("full = [")).expect("it has all stores");
            let in_full = |feature| full.contains(&format!("\"{feature}\""));
            assert!(store.feature.is_none_or(in_full), "`{}:` is not in {full}", store.scheme);
        }
    }
}
