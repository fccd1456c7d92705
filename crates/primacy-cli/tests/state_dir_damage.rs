//! Flipped bits and truncated files, anywhere in the state directory of one of three nodes, which then starts with the
//! others: it refuses to start, or is not affected, or comes back as a node that has lost its disk. No token is given
//! twice, and no acknowledged record is lost.
//!
//! A few positions are drawn at random; with `PRIMACY_EVERY_BIT=1`, twenty times as many. The unit tests of the state
//! file and the log try every position.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use primacy::core::rng::Rng;
use primacy_testbed::keepers::Keepers;
use primacy_testbed::segment::{PAGE, blocks};
use primacy_testbed::wait_until;

const ALL: [&str; 3] = ["a", "b", "c"];
const PLACES: u64 = 24;
const MANY_PLACES: u64 = 20 * PLACES;

/// The distance behind the last block in which bytes are damaged, too.
const BEHIND: usize = 600;

/// The outcome of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    Harmless,
    /// After a readmission by the others.
    Readmitted,
}

/// A file and what it had in it, and how it was damaged.
struct Damage {
    path: PathBuf,
    whole: Vec<u8>,
    how: String,
}

impl Damage {
    /// Damages the state file, a segment where it is written, or a snapshot.
    fn draw(keepers: &Keepers, seed: u64) -> Self {
        let mut random = Rng::new(seed);
        let files = files(keepers);
        let path = files[usize::try_from(random.up_to(files.len() as u64 - 1)).unwrap()].clone();
        let whole = fs::read(&path).unwrap();
        let end = written_end(&path, &whole);
        let at = usize::try_from(random.up_to(u64::try_from(end - 1).unwrap())).unwrap();
        let mut bytes = whole.clone();
        let how = if random.up_to(3) == 0 {
            bytes.truncate(at);
            format!("cut at {at}")
        } else {
            let bit = random.up_to(7);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        };
        fs::write(&path, bytes).unwrap();
        let how = format!("seed {seed}: {how} of {}", path.file_name().unwrap().display());
        Self { path, whole, how }
    }

    /// Mends it by the command that the node names; where nothing was written since, the former content may also be
    /// put back.
    fn mend(&self, keepers: &Keepers, puts_back: bool) {
        if puts_back {
            fs::write(&self.path, &self.whole).unwrap();
        } else if self.path.extension().is_some_and(|extension| extension == "state") {
            fs::remove_file(&self.path).unwrap();
        } else {
            keepers.verb("c", &["log", "repair", "--node", "c"]).is(0, &["start c"]);
        }
    }
}

/// The state file, and what the log has.
fn files(keepers: &Keepers) -> Vec<PathBuf> {
    let log = fs::read_dir(keepers.log("c")).unwrap().map(|entry| entry.unwrap().path());
    let is_content = |path: &PathBuf| path.ends_with("snapshot") || is_segment(path);
    let mut files: Vec<PathBuf> = log.filter(is_content).collect();
    files.sort();
    files.push(keepers.dir("c").join("e@c.state"));
    files
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "segment")
}

/// Where a file ends, of a segment but for most of the zeros that are there in advance.
fn written_end(path: &Path, bytes: &[u8]) -> usize {
    if !is_segment(path) {
        return bytes.len();
    }
    (blocks(bytes).last().map_or(PAGE, |last| last.end) + BEHIND).min(bytes.len())
}

/// Starts the damaged node, and returns the outcome.
fn start(keepers: &mut Keepers) -> Outcome {
    keepers.restart("c");
    let mut outcome = None;
    wait_until("that it is refused, or takes part", || {
        if let Some(status) = keepers.node("c").ended() {
            assert_eq!(status.code(), Some(74), "{}", keepers.node("c").history());
            outcome = Some(Outcome::Refused);
        } else {
            let said = keepers.verb("c", &["status"]).stdout;
            outcome = match (said.contains("has lost its disk"), said.contains(" leads")) {
                (true, _) => Some(Outcome::Readmitted),
                (false, true) => Some(Outcome::Harmless),
                (false, false) => None,
            };
        }
        outcome.is_some()
    });
    outcome.unwrap()
}

/// Notes the tokens of all leaderships so far; those of `c` are of its present incarnation.
fn note_tokens(keepers: &mut Keepers, life: u64, tokens: &mut BTreeMap<u64, (&'static str, u64)>) {
    for name in ALL {
        let of = (name, if name == "c" { life } else { 0 });
        for told in keepers.node(name).told.events().iter().filter(|told| told["event"] == "elected") {
            let token = told["token"].as_u64().unwrap();
            assert_eq!(*tokens.entry(token).or_insert(of), of, "the token {token} was given twice");
        }
    }
}

#[tokio::test]
async fn damage_anywhere_in_a_state_directory_is_refused_or_harmless_or_a_lost_disk() {
    let places = if std::env::var_os("PRIMACY_EVERY_BIT").is_some() { MANY_PLACES } else { PLACES };
    let mut keepers = Keepers::start("state-dir-damage", &ALL);
    let mut keys = keepers.write_some("a", "before", 3).await;
    assert_eq!(keepers.keys("c").await, keys);
    let (mut tokens, mut outcomes) = (BTreeMap::new(), BTreeMap::<Outcome, u64>::new());
    note_tokens(&mut keepers, 0, &mut tokens);
    for seed in 1..=places {
        keepers.stop("c");
        let damage = Damage::draw(&keepers, seed);
        println!("{}", damage.how);
        let outcome = start(&mut keepers);
        *outcomes.entry(outcome).or_default() += 1;
        assert!(!keepers.node("c").history().contains("panicked"), "{}", keepers.node("c").history());
        let mut is_lost = outcome == Outcome::Readmitted;
        if outcome == Outcome::Refused {
            damage.mend(&keepers, seed % 2 == 0);
            is_lost = start(&mut keepers) == Outcome::Readmitted;
        }
        if is_lost {
            for by in ["a", "b"] {
                wait_until("that it is readmitted", || {
                    keepers.verb(by, &["member", "readmit", "c"]).code == Some(0)
                });
            }
        }
        assert_eq!(keepers.keys("c").await, keys, "{}", damage.how);
        keepers.write("a", &format!("after-{seed}")).await;
        keys.insert(format!("after-{seed}"));
        // It takes part, and so every third time it leads.
        if seed % 3 == 0 {
            wait_until("that it leads", || {
                let leader = keepers.leader();
                leader == "c" || keepers.verb(&leader, &["transfer", "--to", "c"]).code == Some(0)
            });
        }
        note_tokens(&mut keepers, seed, &mut tokens);
    }
    println!("{outcomes:?}");
    assert!(outcomes.len() > 1, "{outcomes:?}");
    for name in ALL {
        assert_eq!(keepers.keys(name).await, keys);
    }
}
