//! A script of `etcdctl` that is run against etcd and against Primacy, with the outputs compared line by line.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use primacy_conformance::REQUIRE_LIVE_VARIABLE;
use primacy_conformance::live::Ground;
use primacy_conformance::live::etcd::{Etcd, Tls};

use super::strangers::python_with_etcd3;
use super::{etcd_api, follower};
use primacy_testbed::started;

/// The scripts: requests open to all clients, and requests that need a certificate and a password.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/serve/etcdctl.sh");
const SECURE_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/serve/etcdctl_secure.sh");

/// The Python program that the second one runs.
const SECURE_PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/serve/etcd3_secure.py");

/// The prefix of a line of `etcdctl`'s own log, and of the error in it.
const LOG_LINE: &str = "{\"level\":";
const LOGGED_ERROR: &str = "\"error\":\"";

/// Numbers that are each server's own: of members, of its log, of bytes. They follow these words.
const OWN_NUMBERS: &[&str] = &[
    "\"cluster_id\":",
    "\"member_id\":",
    "\"raft_term\":",
    "\"raftTerm\":",
    "\"raftIndex\":",
    "\"raftAppliedIndex\":",
    "\"dbSize\":",
    "\"dbSizeInUse\":",
    "\"leader\":",
    "\"ClusterID\" : ",
    "\"MemberID\" : ",
    "\"RaftTerm\" : ",
    "\"RaftIndex\" : ",
    "\"RaftAppliedIndex\" : ",
    "\"DBSize\" : ",
    "\"Leader\" : ",
];

/// Times that pass.
const TIMES: &[&str] = &["remaining(", "\"ttl\":", "\"TTL\" : ", "took = "];

/// The text before the number of a lease, in hexadecimal and in decimal digits.
const HEXADECIMAL_LEASES: &[&str] = &["lease ", "\ne/", "\nm/"];
const DECIMAL_LEASES: &[&str] = &["\"ID\":", "\"id\":", "\"lease\":"];

/// The least digits that the number of a lease has, if a server draws it.
const LEASE_DIGITS: usize = 13;

/// The versions of the servers.
const VERSIONS: &[&str] = &["\"version\":\"", "\"Version\" : \""];

/// The text that a client logs of a request that it gives up itself.
const TAKEN_BACK: &str = "code = Canceled desc = context canceled";

/// Runs a script with this server, and returns its output.
fn transcript(
    script: &str,
    address: &str,
    variables: &[(&str, &Path)],
    ground: &Ground,
    name: &str,
) -> String {
    assert!(Path::new(script).exists());
    let directory = ground.at(name);
    std::fs::create_dir(&directory).unwrap();
    let mut command = Command::new("sh");
    command.arg(script).env("ENDPOINT", address).envs(variables.iter().copied());
    let output = command.current_dir(&directory).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    normal(&text, address)
}

/// Normalizes a transcript: the result must be the same for both.
fn normal(text: &str, address: &str) -> String {
    let lines = text.lines().filter_map(|line| match line.strip_prefix(LOG_LINE) {
        // A request that a client takes back itself when it ends: it logs that only if it was under way at that moment.
        Some(log) if log.contains(TAKEN_BACK) => None,
        Some(log) => {
            let error = log.split_once(LOGGED_ERROR).map_or(log, |(_, error)| error);
            Some(format!("logged: {}", error.trim_end_matches("\"}")))
        }
        None => Some(line.to_owned()),
    });
    let mut text = lines.collect::<Vec<_>>().join("\n").replace(address, "<address>");
    text = without_leases(&text);
    for marker in OWN_NUMBERS {
        text = without(&text, marker, |c| c.is_ascii_digit(), "<own>");
    }
    for marker in TIMES {
        text = without(&text, marker, |c| c.is_ascii_alphanumeric() || c == '.' || c == 'µ', "<time>");
    }
    for marker in VERSIONS {
        text = without(&text, marker, |c| c != '"', "<version>");
    }
    // Where it is, for clients and for members.
    text = without(&text, "http://127.0.0.1:", |c| c.is_ascii_digit(), "<port>");
    text = text.replace("http://127.0.0.1:<port>", "http://<address>");
    let mut lines: Vec<String> = text.lines().map(without_members).collect();
    // What `lease list` prints has no order.
    let is_lease = |line: &String| line.starts_with("<lease ") && line.ends_with('>');
    lines.chunk_by_mut(|one, next| is_lease(one) && is_lease(next)).for_each(<[String]>::sort);
    lines.join("\n")
}

/// Puts `instead` for all `of` that follows a marker.
fn without(text: &str, marker: &str, of: impl Fn(char) -> bool, instead: &str) -> String {
    let mut parts = text.split(marker);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(&of);
        result.push_str(marker);
        result.push_str(if rest.len() < part.len() { instead } else { "" });
        result.push_str(rest);
    }
    result
}

/// Puts names for the numbers of leases, in the order in which they appear.
fn without_leases(text: &str) -> String {
    let mut leases: BTreeMap<u64, String> = BTreeMap::new();
    let mut found = Vec::new();
    let kinds = [(HEXADECIMAL_LEASES, 16), (DECIMAL_LEASES, 10)];
    for (marker, radix) in kinds.iter().flat_map(|(all, radix)| all.iter().map(move |one| (one, *radix))) {
        for (at, _) in text.match_indices(marker) {
            let rest = &text[at + marker.len()..];
            let digits = rest.split(|c: char| !c.is_digit(radix)).next().unwrap_or_default();
            if digits.len() >= LEASE_DIGITS {
                found.push((at, u64::from_str_radix(digits, radix).unwrap()));
            }
        }
    }
    found.sort_unstable();
    let mut names = BTreeMap::new();
    for (_, number) in found {
        let name = format!("<lease {}>", leases.len());
        let name = leases.entry(number).or_insert(name);
        for word in [format!("{number:016x}"), format!("{number:x}"), number.to_string()] {
            names.insert(word, name.clone());
        }
    }
    // Whole words only: a short number can stand within a drawn one.
    let all: Vec<char> = text.chars().collect();
    all.chunk_by(|one, next| one.is_ascii_alphanumeric() == next.is_ascii_alphanumeric())
        .map(String::from_iter)
        .map(|word: String| names.get(&word).cloned().unwrap_or(word))
        .collect()
}

/// The lines about members whose columns have no names.
fn without_members(line: &str) -> String {
    let mut columns: Vec<&str> = line.split(", ").collect();
    let own: &[usize] = match &columns[..] {
        // Of `member list`.
        [_, "started", ..] => &[0],
        // Of `endpoint status`: the member, the version, the bytes, whether it leads, the term and the log.
        ["<address>", _, _, _, _, _, _, _, ..] => &[1, 2, 3, 4, 6, 7, 8],
        _ => &[],
    };
    for &index in own {
        columns[index] = "<own>";
    }
    columns.join(", ")
}

/// The lines that differ, with the command above them.
fn differences(etcd: &str, primacy: &str) -> String {
    let (mut command, mut told) = ("", Vec::new());
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (etcd, primacy) = (lines(etcd), lines(primacy));
    for index in 0..etcd.len().max(primacy.len()) {
        let line = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
        let (theirs, ours) = (line(&etcd), line(&primacy));
        if theirs.starts_with("$ ") || theirs.starts_with("== ") {
            command = etcd[index].as_str();
        }
        if theirs != ours {
            told.push(format!("after {command:?}\n  etcd says {theirs:?}\n  Primacy   {ours:?}"));
        }
    }
    told.truncate(20);
    told.join("\n")
}

/// Runs a script against etcd and against ours, and returns etcd's output where both are the same.
fn said_by_both(
    script: &str,
    [theirs, ours]: [&str; 2],
    variables: &[(&str, &Path)],
    ground: &Ground,
) -> String {
    let (theirs, ours) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| transcript(script, theirs, variables, ground, "theirs"));
        let ours = transcript(script, ours, variables, ground, "ours");
        (theirs.join().unwrap(), ours)
    });
    let told = differences(&theirs, &ours);
    assert!(told.is_empty(), "{told}");
    // Nothing was waited for in vain.
    assert!(!theirs.contains("never"), "{theirs}");
    theirs
}

#[test]
fn a_short_number_of_a_lease_within_a_drawn_one_is_not_taken_for_it() {
    let told = "lease 0000000000001234 is gone\nlease 4b1c7fc2faa21234 granted\ne/4b1c7fc2faa21234 leads";
    let named = "lease <lease 0> is gone\nlease <lease 1> granted\ne/<lease 1> leads";
    assert_eq!(without_leases(told), named);
}

#[test]
fn etcdctl_is_told_the_same_by_etcd_and_by_primacy() {
    let Some((runtime, etcd)) = started("etcd", Etcd::start_of(1, None)) else { return };
    let ground = Ground::new("script");
    let cluster = runtime.block_on(etcd_api::open(&[]));
    let ours = runtime.block_on(follower(&cluster));
    let said = said_by_both(SCRIPT, [&etcd.endpoint(0), &ours], &[], &ground);
    // It did not end early.
    assert!(said.contains("== the server"), "{said}");
}

#[test]
fn who_shows_certificates_and_passwords_is_told_the_same_by_etcd_and_by_primacy() {
    let ground = Ground::new("secure-script");
    let (tls, foreign) = (Tls::issue(&ground, "own"), Tls::issue(&ground, "foreign"));
    let Some((runtime, etcd)) = started("etcd", Etcd::start_of(1, Some(tls.clone()))) else { return };
    for command in ["user add root:secret-of-root", "user grant-role root root", "auth enable"] {
        let _ = etcd.told(&command.split(' ').collect::<Vec<_>>());
    }
    let users = ground.at("users");
    std::fs::write(&users, "root:secret-of-root\n").unwrap();
    std::fs::set_permissions(&users, Permissions::from_mode(0o600)).unwrap();
    let arguments = ["--etcd-api-users", users.to_str().unwrap()];
    let cluster = runtime.block_on(etcd_api::open_with(Some(tls.clone()), &arguments));
    let python = python_with_etcd3().unwrap_or_else(|why| {
        eprintln!("etcd3: NOT RUN: {why}");
        assert!(std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none(), "etcd3 is required to be there: {why}");
        "false".into()
    });
    let variables = [
        ("CA", &*tls.ca),
        ("CERT", &tls.cert),
        ("KEY", &tls.key),
        ("FOREIGN_CERT", &foreign.cert),
        ("FOREIGN_KEY", &foreign.key),
        ("PYTHON", &python),
        ("PROGRAM", Path::new(SECURE_PROGRAM)),
    ];
    let endpoints = [etcd.endpoint(0), cluster.endpoint(0)];
    let said = said_by_both(SECURE_SCRIPT, [&endpoints[0], &endpoints[1]], &variables, &ground);
    assert!(!said.contains("not refused") && said.contains("no certificate is refused"), "{said}");
    assert!(said.contains("== the end"), "{said}");
}

/// Returns the list of members; `nodes` are their names, which are replaced by those of ours.
fn members(endpoint: &str, nodes: [&str; 3], ground: &Ground) -> Vec<String> {
    let script = ground.at("members.sh");
    std::fs::write(&script, "ETCDCTL_API=3 etcdctl --endpoints \"$ENDPOINT\" member list\n").unwrap();
    let told = transcript(script.to_str().unwrap(), endpoint, &[], ground, nodes[0]);
    let mut lines: Vec<String> = told.lines().map(str::to_owned).collect();
    for (theirs, ours) in nodes.into_iter().zip(["a", "b", "c"]) {
        lines
            .iter_mut()
            .for_each(|line| *line = line.replace(&format!(", {theirs}, "), &format!(", {ours}, ")));
    }
    lines.sort();
    lines
}

/// A node of ours knows where clients reach itself, and not where they reach the others. Else the lists are the same.
#[test]
fn members_are_listed_as_a_cluster_of_etcd_lists_its_own() {
    let Some((runtime, etcd)) = started("etcd", Etcd::start(None)) else { return };
    let ground = Ground::new("members");
    let cluster = runtime.block_on(etcd_api::open(&[]));
    let theirs = members(&etcd.endpoint(0), ["m0", "m1", "m2"], &ground);
    let ours = members(&cluster.endpoint(0), ["a", "b", "c"], &ground);
    let line = "<own>, started, a, http://<address>, http://<address>, false";
    assert_eq!((theirs.len(), &*theirs[0]), (3, line));
    assert_eq!(ours[0], theirs[0]);
    let without_clients = |line: &String| line.replace("http://<address>, false", ", false");
    assert_eq!(ours[1..], theirs[1..].iter().map(without_clients).collect::<Vec<_>>());
}
