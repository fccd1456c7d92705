//! Checks that the crates of machines use no clock, entropy, thread, socket or async, and have no `unsafe`.

use super::{Finding, Tree, is_test_file};

const MACHINES: &[&str] = &["crates/primacy-core/src/", "crates/primacy-kv/src/"];

/// The patterns that are banned from machines outside of tests, with the alternatives.
const IMPURE: &[(&str, &str)] = &[
    ("std::", "use `core::` or `alloc::`: machines are built without the standard library"),
    ("extern crate std", "machines are built without the standard library"),
    ("async", "a machine is handed inputs and drained of effects; the driver waits"),
    ("await", "a machine is handed inputs and drained of effects; the driver waits"),
    ("SystemTime", "no machine looks at the time of day"),
    ("Instant::now", "`now` is an argument of `handle`"),
    ("thread", "the driver has the thread"),
    ("thread_local!", "a machine's state is in the machine, so that it can be cloned and replayed"),
    ("static", "a machine's state is in the machine, so that it can be cloned and replayed"),
    ("rand", "draw from the machine's own `Rng`, which is seeded from outside"),
    ("getrandom", "draw from the machine's own `Rng`, which is seeded from outside"),
    ("HashMap", "its order is drawn at random; use `BTreeMap`"),
    ("HashSet", "its order is drawn at random; use `BTreeSet`"),
    ("println!", "a machine tells what happens as an `Event`"),
    ("unsafe", "machines have no unsafe code"),
    ("f32", "two machines may round differently; count in whole nanoseconds"),
    ("f64", "two machines may round differently; count in whole nanoseconds"),
    ("Serialize", "only `codec.rs` and `record.rs` serialise, and neither is in a machine's crate"),
    ("Deserialize", "only `codec.rs` and `record.rs` serialise, and neither is in a machine's crate"),
];

pub(super) fn machines_are_pure(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in MACHINES.iter().flat_map(|below| tree.rust(below)) {
        if is_test_file(path) {
            continue;
        }
        for (pattern, instead) in IMPURE {
            for offset in rust.find(pattern) {
                let lifetime = offset > 0 && rust.code.as_bytes()[offset - 1] == b'\''; // `&'static str` is a type.
                if !rust.is_test(offset) && !lifetime {
                    let message = format!("`{pattern}` in a machine's crate: {instead}");
                    findings.push(Finding::new(path, rust.line(offset), message));
                }
            }
        }
    }
    for below in MACHINES {
        let root = format!("{below}lib.rs");
        let Some(text) = tree.text(&root) else { continue };
        for attribute in ["#![cfg_attr(not(test), no_std)]", "#![forbid(unsafe_code)]"] {
            if !text.lines().any(|line| line == attribute) {
                findings.push(Finding::new(&root, 1, format!("this crate says `{attribute}`; put it back")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod self_tests {
    use super::*;

    const HEAD: &str = "#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]\n";

    fn found(body: &str) -> usize {
        machines_are_pure(&Tree::of(&[("crates/primacy-core/src/lib.rs", &format!("{HEAD}{body}"))])).len()
    }

    #[test]
    fn whatever_asks_the_world_is_found() {
        assert_eq!(found("use core::time::Duration; // std::time would be wrong, and so would async\n"), 0);
        assert_eq!(found("fn name() -> &'static str { \"std::thread\" }\n"), 0);
        assert_eq!(found("#[cfg(test)]\nmod tests { use std::thread; }\n"), 0);
        for bad in [
            "use std::fmt;",
            "async fn f() {}",
            "let t = Instant::now();",
            "static COUNT: u64 = 0;",
            "fn f(x: f64) {}",
            "#[derive(serde::Serialize)]\nstruct S;",
            "let m = HashMap::new();",
        ] {
            assert_eq!(found(bad), 1, "{bad}");
        }
        assert!(found("use std::thread;") >= 1);
    }

    #[test]
    fn a_crate_of_machines_that_needs_the_standard_library_is_found() {
        let tree = Tree::of(&[("crates/primacy-core/src/lib.rs", "//! The core.\n")]);
        assert_eq!(machines_are_pure(&tree).len(), 2);
    }
}
