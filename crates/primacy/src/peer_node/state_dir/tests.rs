//! State files, snapshots and segments that do not belong together, and damage in each. The node is refused, or starts as one
//! that knows what it has lost; it never goes on with less than it has promised.
//!
//! `PRIMACY_EVERY_BIT=1` flips every bit and cuts every file at every length, instead of some.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use primacy_core::election::quorum::{DiskState, HardState};
use primacy_core::{Duration, Identity, Incarnation, LeaderSequence, Term};
use primacy_kv::replication::log::{Record, RecordBody, Snapshot, Write};
use primacy_kv::replication::voters;

use super::*;
use crate::log_file::{Repair, repair};

/// Limits so low that a few records fill a segment.
const LIMITS: Limits = Limits { segment: 4_096 + 600, block: 400, step: 512 };
/// The number of successive states of the directory that are kept.
const STAGES: usize = 3;

type Files = BTreeMap<String, Vec<u8>>;

/// A directory of this test, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("primacy-state-dir-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// All files except the locks.
    fn files(&self) -> Files {
        let mut files = Files::new();
        for dir in [self.0.clone(), self.0.join("main@a.log")] {
            for entry in fs::read_dir(&dir).into_iter().flatten().map(Result::unwrap) {
                let name = entry.path().strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned();
                if entry.path().is_file() && !name.ends_with("lock") {
                    files.insert(name, fs::read(entry.path()).unwrap());
                }
            }
        }
        files
    }

    /// Replaces all files by these.
    fn put(&self, files: &Files) {
        for name in self.files().keys().filter(|name| !files.contains_key(*name)) {
            fs::remove_file(self.0.join(name)).unwrap();
        }
        for (name, bytes) in files {
            fs::create_dir_all(self.0.join(name).parent().unwrap()).unwrap();
            fs::write(self.0.join(name), bytes).unwrap();
        }
    }

    fn open(&self, peers: &[NodeId]) -> Result<(StateFile, Stored, OpenLog), OpenError> {
        let (mut state, stored) = open_state(&self.0, "main", a(), peers.iter().copied())?;
        let files = (&mut state, &stored);
        let opened = open_log(LIMITS, &self.0, ("main", a()), Durability::Fsync, files)?;
        Ok((state, stored, opened))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn a() -> NodeId {
    NodeId::new("a").unwrap()
}

fn three() -> [NodeId; 3] {
    ["a", "b", "c"].map(|name| NodeId::new(name).unwrap())
}

fn number(term: u64, counter: u64) -> LeaderSequence {
    LeaderSequence { term: Term(term), counter }
}

fn voters(of: &[NodeId], number: LeaderSequence) -> Arc<voters::Voters> {
    Arc::new(voters::Voters { number, members: of.iter().map(|node| (*node, Arc::from("h:1"))).collect() })
}

fn hard(term: u64) -> HardState {
    let voted_for = Some(Identity::new(a(), Incarnation { count: 1, nonce: 1 }));
    HardState { term: Term(term), voted_for, promise: Duration::from_secs(1), disk_state: DiskState::Intact }
}

/// The writes of a node in the term of a stage: its vote, records that fill several segments, and a snapshot of some of them.
fn live(dir: &Dir, of: &[NodeId], stage: usize) {
    let (mut state, _, OpenLog { mut log, .. }) = dir.open(of).unwrap();
    let term = stage as u64 + 1;
    state.persist(&hard(term)).unwrap();
    let mut write = |write: &Write| {
        log.write(write).unwrap();
        state.note_log(log.reach()).unwrap();
    };
    let after = if stage == 0 { LeaderSequence::NONE } else { number(term - 1, 12) };
    let begins = RecordBody::Begin { after, voters: voters(of, number(term, 1)) };
    write(&Write::Append(vec![Record { number: number(term, 1), body: begins }]));
    for counter in 2..=12 {
        let body = RecordBody::Payload(Arc::from([7; 100]));
        write(&Write::Append(vec![Record { number: number(term, counter), body }]));
    }
    if stage > 0 {
        let number = number(term, 3);
        let snapshot = Snapshot { number, voters: voters(of, number), state: Arc::from([5; 40]) };
        write(&Write::Snapshot(Arc::new(snapshot)));
    }
    // The last write is one of the state file, so that this knows the whole extent of the log.
    state.record_peer_disk(three()[2], crate::handshake::DiskId([stage.try_into().unwrap(); 16])).unwrap();
    state.persist(&HardState { promise: Duration::from_secs(2), ..hard(term) }).unwrap();
}

/// The files of a node at the end of each stage.
fn stages(of: &[NodeId]) -> (Dir, [Files; STAGES]) {
    let dir = Dir::new();
    let files = std::array::from_fn(|stage| {
        live(&dir, of, stage);
        dir.files()
    });
    (dir, files)
}

/// The outcome of opening the files.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// The node is refused, for this reason.
    Refused(&'static str),
    /// The node waits until the others have readmitted it.
    LostItsDisk,
    /// The node asks the others for its log.
    LostItsLog,
    /// The node goes on with the vote and the log of this stage.
    GoesOn(usize),
    /// The node starts as a new one.
    First,
}

/// Opens the files, and classifies the outcome.
fn start(dir: &Dir, peers: &[NodeId]) -> Start {
    let (_state, stored, opened) = match dir.open(peers) {
        Ok(opened) => opened,
        Err(OpenError::Log(LogError::StateLost { .. })) => return Start::Refused("the state is lost"),
        Err(OpenError::Log(LogError::StateBehind { .. })) => return Start::Refused("the state is behind"),
        Err(OpenError::Log(LogError::Damaged { .. })) => return Start::Refused("the log is damaged"),
        Err(OpenError::Log(LogError::OnlyLogDamaged { .. })) => {
            return Start::Refused("the only log is damaged");
        }
        Err(OpenError::Log(LogError::BothLost { .. })) => return Start::Refused("both are lost"),
        Err(OpenError::Disk(DiskError::Damaged { .. })) => return Start::Refused("the state is damaged"),
        Err(OpenError::Disk(DiskError::NotAStateFile { .. })) => return Start::Refused("it was cut"),
        Err(error) => panic!("{error}"),
    };
    let reach = opened.log.reach();
    if stored.hard_state.disk_state == DiskState::Lost {
        assert!(opened.log_lost && stored.hard_state.term >= reach.last.term);
        return Start::LostItsDisk;
    }
    if opened.log_lost {
        return Start::LostItsLog;
    }
    if stored.created {
        assert_eq!(opened.stored, log::Stored::default());
        return Start::First;
    }
    let stage = usize::try_from(stored.hard_state.term.0 - 1).unwrap();
    assert_eq!(stored.hard_state, HardState { promise: Duration::from_secs(2), ..hard(stage as u64 + 1) });
    assert_eq!(reach.last, number(stage as u64 + 1, 12), "the log of another stage is believed");
    let base = opened.stored.snapshot.map_or(LeaderSequence::NONE, |snapshot| snapshot.number);
    let first = opened.stored.records.first().unwrap();
    assert!(first.follows(base) && opened.stored.records.last().unwrap().number == reach.last);
    Start::GoesOn(stage)
}

fn is_state(name: &str) -> bool {
    name.ends_with(".state")
}

fn is_snapshot(name: &str) -> bool {
    name.ends_with("snapshot")
}

fn is_segment(name: &str) -> bool {
    name.ends_with(".segment")
}

#[test]
fn files_that_are_missing_are_missed() {
    let (dir, [.., before, now]) = stages(&three());
    let segments: Vec<&String> = now.keys().filter(|name| is_segment(name)).collect();
    let [oldest, middle, .., newest] = segments.as_slice() else { panic!("{segments:?}") };
    let without = |is_gone: &dyn Fn(&str) -> bool| -> Files {
        now.clone().into_iter().filter(|(name, _)| !is_gone(name)).collect()
    };
    let damaged = Start::Refused("the log is damaged");
    for (what, files, expected) in [
        ("nothing", now.clone(), Start::GoesOn(2)),
        ("the state file", without(&is_state), Start::LostItsDisk),
        ("the log", without(&|name| !is_state(name)), Start::LostItsLog),
        ("the snapshot", without(&is_snapshot), damaged),
        ("all segments", without(&is_segment), Start::Refused("the log is damaged")),
        ("the oldest segment", without(&|name| name == *oldest), Start::Refused("the log is damaged")),
        ("a segment", without(&|name| name == *middle), Start::Refused("the log is damaged")),
        ("the newest segment", without(&|name| name == *newest), Start::Refused("the log is damaged")),
        ("everything", Files::new(), Start::First),
    ] {
        dir.put(&files);
        assert_eq!(start(&dir, &three()), expected, "without {what}");
    }
    // A segment was begun, and its first block is not on the disk yet: its absence is noticed even then.
    dir.put(&before);
    let (mut state, _, OpenLog { log, .. }) = dir.open(&three()).unwrap();
    let reach = log.reach();
    state.note_log(crate::disk::LogReach { segment: reach.segment + 1, ..reach }).unwrap();
    drop((state, log));
    assert_eq!(start(&dir, &three()), Start::Refused("the log is damaged"));
}

/// Each of the three files may be missing, or come from any stage. Accepted files belong together.
#[test]
fn files_of_different_times_are_not_believed() {
    let (dir, stages) = stages(&three());
    let times: Vec<Option<usize>> = std::iter::once(None).chain((0..STAGES).map(Some)).collect();
    let part = |time: Option<usize>, of: fn(&str) -> bool| {
        let files = time.map(|stage| stages[stage].clone()).unwrap_or_default();
        files.into_iter().filter(move |(name, _)| of(name))
    };
    let mut counts = BTreeMap::new();
    for &state in &times {
        for &snapshot in &times {
            for &segments in &times {
                let files = part(state, is_state).chain(part(snapshot, is_snapshot));
                let files: Files = files.chain(part(segments, is_segment)).collect();
                let has_log = files.keys().any(|name| !is_state(name));
                dir.put(&files);
                let begun = start(&dir, &three());
                let told =
                    format!("state {state:?}, snapshot {snapshot:?}, segments {segments:?}: {begun:?}");
                match &begun {
                    // Together they are an earlier copy, or the other part has no effect.
                    Start::GoesOn(stage) => assert!(state == Some(*stage) && segments == state, "{told}"),
                    Start::First => assert!(files.is_empty(), "{told}"),
                    Start::LostItsDisk => assert!(state.is_none() && has_log, "{told}"),
                    Start::LostItsLog => assert!(state.is_some() && !has_log, "{told}"),
                    Start::Refused(_) => assert!(has_log, "{told}"),
                }
                *counts.entry(format!("{begun:?}").split('(').next().unwrap().to_owned()).or_insert(0) += 1;
            }
        }
    }
    assert!(counts.len() == 5 && counts["GoesOn"] >= 3 && counts["Refused"] > 30, "{counts:?}");
    // An earlier state with a later log, and the other way round.
    for (state, log, expected) in
        [(1, 2, "the state is behind"), (0, 2, "the state is behind"), (2, 1, "the log is damaged")]
    {
        dir.put(&part(Some(state), is_state).chain(part(Some(log), |name| !is_state(name))).collect());
        assert_eq!(start(&dir, &three()), Start::Refused(expected));
    }
}

/// No other voter could readmit it. The log has all terms in which it led, so an operator can rebuild the state.
#[test]
fn the_only_voter_whose_state_is_lost_ends_and_gets_it_again_from_its_log() {
    let (dir, [.., now]) = stages(&[a()]);
    let files: Files = now.into_iter().filter(|(name, _)| !is_state(name)).collect();
    dir.put(&files);
    assert_eq!(start(&dir, &[a()]), Start::Refused("the state is lost"));
    // Even if its configuration, which may be outdated, names other nodes.
    assert_eq!(start(&dir, &three()), Start::Refused("the state is lost"));
    assert!(dir.files() == files, "nothing was written");
    assert_eq!(repair(&dir.0, "main", a()).unwrap(), Repair::StateMade);
    let (_state, stored, opened) = dir.open(&[a()]).unwrap();
    assert_eq!((stored.hard_state.term, stored.hard_state.disk_state), (Term(3), DiskState::Recovered));
    assert!(!opened.log_lost && opened.log.reach().last == number(3, 12));
    // If other nodes vote, they must report what they know.
    let (dir, [.., now]) = stages(&three());
    dir.put(&now.into_iter().filter(|(name, _)| !is_state(name)).collect());
    assert!(matches!(repair(&dir.0, "main", a()), Err(LogError::OthersVote { .. })));
    assert_eq!(start(&dir, &[a()]), Start::Refused("the state is lost"));
}

/// The log of the only voter is not renamed, and its operator is not told to get it from other nodes.
#[test]
fn the_damaged_log_of_the_only_voter_stays_where_it_is() {
    let damage = |of: &[NodeId], remembered: bool, keep_state: bool| {
        let (dir, [.., now]) = stages(of);
        if remembered {
            let (mut state, ..) = dir.open(of).unwrap();
            state.persist_voters(&voters(of, number(3, 1))).unwrap();
        }
        let mut files = if remembered { dir.files() } else { now };
        files.retain(|name, _| keep_state || !is_state(name));
        let segment = files.iter_mut().rfind(|(name, _)| name.ends_with("segment")).unwrap().1;
        segment[4_096 + 20] ^= 1;
        dir.put(&files);
        (dir, files)
    };
    let (dir, files) = damage(&[a()], true, true);
    assert_eq!(start(&dir, &three()), Start::Refused("the only log is damaged"));
    let error = repair(&dir.0, "main", a()).unwrap_err();
    assert!(matches!(error, LogError::OnlyLogDamaged { .. }), "{error}");
    assert!(error.to_string().contains("there is nobody to ask"), "{error}");
    let kept = |files: Files| files.into_iter().filter(|(name, _)| !is_state(name)).collect::<Files>();
    assert!(kept(dir.files()) == kept(files), "it was left as it is");
    // Without the state file the voters are unknown.
    let (dir, files) = damage(&[a()], false, false);
    assert_eq!(start(&dir, &[a()]), Start::Refused("both are lost"));
    assert!(matches!(repair(&dir.0, "main", a()), Err(LogError::BothLost { .. })));
    assert!(dir.files() == files, "nothing was written");
    // Other nodes have the records.
    let (dir, _) = damage(&three(), true, true);
    assert_eq!(start(&dir, &three()), Start::Refused("the log is damaged"));
    assert!(matches!(repair(&dir.0, "main", a()), Ok(Repair::SetAside(_))));
}

/// The stride over the possible damages.
fn stride(usual: usize) -> usize {
    if std::env::var_os("PRIMACY_EVERY_BIT").is_some() { 1 } else { usual }
}

#[test]
fn a_flipped_bit_anywhere_is_refused_or_changes_nothing() {
    let (dir, [.., now]) = stages(&three());
    let (mut tried, mut harmless) = (0, 0);
    for (name, good) in &now {
        for at in (0..good.len() * 8).step_by(stride(1_009)) {
            let mut bytes = good.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            let mut files = now.clone();
            files.insert(name.clone(), bytes);
            dir.put(&files);
            tried += 1;
            match start(&dir, &three()) {
                Start::Refused(_) => {}
                Start::GoesOn(2) => harmless += 1,
                other @ (Start::LostItsDisk | Start::LostItsLog | Start::GoesOn(_) | Start::First) => {
                    panic!("bit {at} of {name}: {other:?}")
                }
            }
        }
    }
    assert!(tried > 150 && harmless > 20 && harmless < tried / 2, "{harmless} of {tried}");
}

#[test]
fn a_file_that_was_cut_at_any_length_is_refused() {
    let (dir, [.., now]) = stages(&three());
    for (name, good) in &now {
        for length in (0..good.len()).step_by(stride(233)) {
            let mut files = now.clone();
            files.insert(name.clone(), good[..length].to_vec());
            dir.put(&files);
            match start(&dir, &three()) {
                Start::Refused(_) => {}
                // Only zeros after the last block were cut, at a multiple of the step.
                Start::GoesOn(2) => assert!(is_segment(name) && length % 512 == 0, "{name} cut at {length}"),
                other @ (Start::LostItsDisk | Start::LostItsLog | Start::GoesOn(_) | Start::First) => {
                    panic!("{name} cut at {length}: {other:?}")
                }
            }
        }
    }
}

/// It was added to a cluster, or began one alone, and its configured peers are outdated.
#[test]
fn a_node_that_has_kept_metadata_does_not_go_by_its_peers_without_it() {
    let dir = Dir::new();
    let node = |name: &str| NodeId::new(name).unwrap();
    let (mut state, before) = StateFile::open(&dir.0, "main", node("a")).unwrap();
    let number = LeaderSequence { term: Term(3), counter: 1 };
    let members = ["a", "b", "c"].map(|name| (node(name), "127.0.0.1:1".into())).into();
    state.persist_voters(&Arc::new(voters::Voters { number, members })).unwrap();
    drop(state);
    let (_state, stored) = StateFile::open(&dir.0, "main", node("a")).unwrap();
    let all = Voters::new(["a", "b", "c"].map(node));
    assert!(check_voters(&stored, &all).is_ok());
    let alone = Voters::new([node("a")]);
    assert!(check_voters(&before, &alone).is_ok(), "it has kept none");
    let why = check_voters(&stored, &alone).unwrap_err().to_string();
    assert!(why.contains("are {a, b, c}, by its record (3, 1), and --peers names {a}"), "{why}");
}
