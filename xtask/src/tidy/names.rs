//! Checks of terminology: one word for one thing. `docs/glossary.md` defines the words; this file has the only list
//! of banned ones.

use super::rust::Rust;
use super::{Finding, Tree};

/// The part of an identifier that is compared.
#[derive(Clone, Copy)]
enum Part {
    /// Any word of the identifier: `msg` is found in `MsgKind` and in `last_msg`.
    Word,
    /// The whole identifier.
    Whole,
    /// The beginning of a function's name, at its definition.
    FunctionStart,
}

/// A banned name.
struct Banned {
    part: Part,
    name: &'static str,
    instead: &'static str,
    /// The folders in which it is banned.
    below: &'static [&'static str],
    /// The exceptions, in which another system's word is meant.
    except: &'static [&'static str],
}

const EVERYWHERE: &[&str] = &[""];
/// The machines, and the simulator that runs them.
const MACHINES: &[&str] = &["crates/primacy-core/", "crates/primacy-kv/", "crates/primacy-sim/"];
/// The code about elections; without the adapters of stores, which use the words of their stores.
const OURS: &[&str] =
    &["crates/primacy-core/", "crates/primacy-kv/", "crates/primacy-sim/", "crates/primacy/src/"];
const METADATA: &[&str] = &[
    "crates/primacy-kv/src/",
    "crates/primacy/src/partitions",
    "crates/primacy-sim/src/display/partitions",
    "crates/primacy-sim/src/invariants/reference_partitions",
    "crates/primacy-sim/src/script/primaries",
    "crates/primacy-sim/src/swarm/primaries",
    "crates/primacy-sim/src/world/primaries",
];
const NOWHERE: &[&str] = &[];
/// Names that are given by others: by the standard library; by the etcd API for its clients; and by object stores for
/// a method.
const GIVEN: &[&str] = &["LazyLock", "UNIX_EPOCH", "Client", "get_opts"];
/// The one election with ballots, and the code that runs it.
const RANKED: &[&str] = &[
    "crates/primacy-core/src/election/ranked",
    "crates/primacy-sim/src/elections/ranked",
    "crates/primacy-sim/src/model/peers/ranked",
];

const fn word(
    name: &'static str,
    instead: &'static str,
    below: &'static [&'static str],
    except: &'static [&'static str],
) -> Banned {
    Banned { part: Part::Word, name, instead, below, except }
}

const fn whole(name: &'static str, instead: &'static str) -> Banned {
    Banned { part: Part::Whole, name, instead, below: EVERYWHERE, except: NOWHERE }
}

const fn start(name: &'static str, instead: &'static str) -> Banned {
    Banned { part: Part::FunctionStart, name, instead, below: EVERYWHERE, except: NOWHERE }
}

/// The list of banned names, each with the word to use instead, which is also the reason.
const BANNED: &[Banned] = &[
    word("master", "leader", EVERYWHERE, NOWHERE),
    word("slave", "follower", EVERYWHERE, NOWHERE),
    word("primary", "leader; a partition has a primary, an election has none", OURS, METADATA),
    word(
        "epoch",
        "term: one word for the number of a leadership",
        OURS,
        // The library's name for 1970, from which certificates count their dates.
        &["crates/primacy/src/transport/tls"],
    ),
    word("generation", "term, or incarnation for the life of a process", OURS, NOWHERE),
    word("ballot", "term: only `ranked` has ballots", MACHINES, RANKED),
    word("revision", "version: a store's own word stays in its adapter", MACHINES, NOWHERE),
    word("etag", "version: a store's own word stays in its adapter", MACHINES, NOWHERE),
    word("msg", "message, in full", EVERYWHERE, NOWHERE),
    word("ping", "heartbeat", OURS, NOWHERE),
    word("acquire", "campaign, or take for a record", MACHINES, NOWHERE),
    word("lock", "lease: a lock is held for ever, a lease expires", MACHINES, NOWHERE),
    word("locked", "held: a lock is held for ever, a lease expires", MACHINES, NOWHERE),
    word(
        "kill",
        "resign or depose: a machine kills nobody",
        &["crates/primacy-core/", "crates/primacy-kv/"],
        NOWHERE,
    ),
    word("client", "candidate or observer", &["crates/primacy-core/src/election/"], NOWHERE),
    word("participant", "candidate or observer", OURS, NOWHERE),
    word("response", "reply, as in `VoteReply`", MACHINES, NOWHERE),
    whole("OnStartedLeading", "events and `Leadership`; there are no callbacks"),
    whole("timeout2", "what the second timeout is for"),
    whole("is_leader", "`check`, which knows the token and the end: a bare bool is stale when it is read"),
    start("get_", "the name of the thing alone"),
    start("do_", "what is done"),
    start("process_", "`handle`, or what is done"),
];

/// File names without a subject, which attract unrelated code.
const BANNED_FILES: &[&str] = &["utils", "util", "common", "helpers", "helper", "types", "misc"];

/// Words that are banned in prose, because they are offensive and inaccurate.
const BANNED_PROSE: &[(&str, &str)] = &[("master", "leader"), ("slave", "follower")];
/// The documents that quote other systems.
const PROSE_EXCEPT: &[&str] = &["docs/glossary.md", "docs/divergence.md", "docs/stores/"];

pub(super) fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust("") {
        let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
        if BANNED_FILES.contains(&stem) || path.split('/').any(|folder| BANNED_FILES.contains(&folder)) {
            findings.push(Finding::new(path, 0, "name the file after the one idea that is in it"));
        }
        let starts_here = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
        for banned in BANNED.iter().filter(|banned| starts_here(banned.below) && !starts_here(banned.except))
        {
            for (offset, identifier) in found(rust, banned) {
                let message = format!("`{identifier}`: not `{}` but {}", banned.name, banned.instead);
                findings.push(Finding::new(path, rust.line(offset), message));
            }
        }
    }
    findings
}

/// Checks comments and documents.
pub(super) fn prose(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files("", ".md").map(|(path, text)| (path, text.to_owned()));
    let comments = tree.rust("").map(|(path, rust)| (path, rust.comments.clone()));
    let mut findings = Vec::new();
    for (path, text) in documents.chain(comments) {
        if PROSE_EXCEPT.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let words = line.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
            for word in words {
                if let Some((_, instead)) = BANNED_PROSE.iter().find(|(banned, _)| word == *banned) {
                    findings.push(Finding::new(path, index + 1, format!("write {instead}, not {word}")));
                }
            }
        }
    }
    findings
}

/// The words with which no paragraph of a doc comment may open, because it should name the thing or the action.
const QUESTIONS: &[&str] = &["What", "How", "Who", "Whoever", "Whose", "Whom"];

/// Checks the first words of doc comments.
pub(super) fn openings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, rust) in tree.rust("") {
        let mut is_opening = true;
        for (index, line) in rust.comments.lines().enumerate() {
            let doc = ["///", "//!"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
            let first = doc.and_then(|text| text.split_whitespace().next());
            if let Some(word) = first.filter(|word| is_opening && QUESTIONS.contains(word)) {
                let message = format!("open the comment with a noun or a verb, not with {word}");
                findings.push(Finding::new(path, index + 1, message));
            }
            is_opening = first.is_none_or(|word| word.starts_with('#'));
        }
    }
    findings
}

fn found<'a>(rust: &'a Rust, banned: &Banned) -> Vec<(usize, &'a str)> {
    match banned.part {
        Part::Word => {
            let ours = rust.words().filter(|(_, word)| !GIVEN.contains(word));
            ours.filter(|(_, word)| words_of(word).any(|part| part == banned.name)).collect()
        }
        Part::Whole => rust.words().filter(|(_, word)| *word == banned.name).collect(),
        Part::FunctionStart => {
            let functions = rust.functions().into_iter().map(|function| (function.offset, function.name));
            let ours = functions.filter(|(_, name)| !GIVEN.contains(name));
            ours.filter(|(_, name)| name.starts_with(banned.name)).collect()
        }
    }
}

/// Returns the words of an identifier, in lower case: `MsgKind` and `msg_kind` both give msg, kind.
fn words_of(identifier: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for letter in identifier.chars() {
        if letter == '_' || (letter.is_uppercase() && after_small) {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("never empty").extend(letter.to_lowercase());
        }
        after_small = letter.is_lowercase() || letter.is_numeric();
    }
    words.into_iter()
}

#[cfg(test)]
mod self_tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        names(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn banned_names_are_found_and_lookalikes_are_not() {
        let machine = "crates/primacy-core/src/election/a.rs";
        for bad in [
            "enum MsgKind {}",
            "let last_msg = 1;",
            "fn get_term() {}",
            "fn do_vote() {}",
            "let epoch = 1;",
            "struct VoteResponse;",
            "let master = 1;",
            "fn is_leader() {}",
            "let primary = 1;",
            "let ballot = 1;",
            "struct ClientId;",
        ] {
            assert_eq!(found(machine, bad), 1, "{bad}");
        }
        for good in [
            "let mastery = 1;",
            "let s = \"epoch\"; // the epoch",
            "fn target() {}",
            "fn doctor() {}",
            "use primacy;",
            "let blocked = 1;",
            "fn recvmsg() {}",
            "Endpoint::Client => {}",
            "static ALL: LazyLock<u8>;",
        ] {
            assert_eq!(found(machine, good), 0, "{good}");
        }
        assert_eq!(found("crates/primacy-stores/src/etcd.rs", "let revision = 1; let epoch = 2;"), 0);
        for ranked in [
            "core/src/election/ranked.rs",
            "core/src/election/ranked/message.rs",
            "sim/src/model/peers/ranked.rs",
        ] {
            assert_eq!(found(&format!("crates/primacy-{ranked}"), "let ballot = 1;"), 0);
        }
        assert_eq!(found("crates/primacy/src/utils.rs", ""), 1);
        assert_eq!(found("crates/primacy/tests/common/mod.rs", ""), 1);
    }

    #[test]
    fn doc_comments_that_open_with_a_question_are_found() {
        let count = |text| openings(&Tree::of(&[("crates/a/src/b.rs", text)])).len();
        assert_eq!(count("/// What it is.\nstruct A;\n/// Who leads.\nfn b() {}\n"), 2);
        assert_eq!(count("/// # Errors\n/// What is wrong.\nfn a() {}\n"), 1);
        assert_eq!(count("//! A thing.\n//!\n//! How it works.\n"), 1);
        assert_eq!(
            count("/// The node, and\n/// Who of all.\nstruct A;\n"),
            0,
            "in the middle of a sentence"
        );
        assert_eq!(count("// What is not documentation.\n/// Whatever.\n"), 0);
    }

    #[test]
    fn banned_words_in_prose_are_found() {
        let count = |path, text| prose(&Tree::of(&[(path, text)])).len();
        assert_eq!(count("README.md", "The Master writes.\n"), 1);
        assert_eq!(count("crates/a/src/b.rs", "// Asks the master.\n"), 1);
        assert_eq!(count("crates/a/src/b.rs", "let a = \"master\"; // mastery\n"), 0);
        assert_eq!(count("docs/glossary.md", "others say master\n"), 0);
    }
}
