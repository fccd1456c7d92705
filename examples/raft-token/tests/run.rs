//! The example runs as described.

use std::process::Command;

#[test]
fn another_leads_under_a_higher_token_and_the_late_write_is_refused() {
    let ran = Command::new(env!("CARGO_BIN_EXE_raft-token")).output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{printed}{}", String::from_utf8_lossy(&ran.stderr));
    let lines: Vec<&str> = printed.lines().collect();
    let [leads, succeeds, late, asks] = lines[..] else { panic!("{printed}") };
    let number = |line: &str, before: &str| -> u64 {
        let (_, rest) = line.split_once(before).unwrap_or_else(|| panic!("{before}: {printed}"));
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let (first, old) = (number(leads, "node "), number(leads, "term "));
    let (second, new) = (number(succeeds, "; node "), number(succeeds, "term "));
    assert!(first != second && old < new, "{printed}");
    assert!(late.starts_with(&format!("node {first} writes: ")), "{printed}");
    for token in [old, new] {
        assert!(late.contains(&token.to_string()), "{printed}");
    }
    assert!(asks.starts_with(&format!("node {first} asks for a token, and gets none")), "{printed}");
}
