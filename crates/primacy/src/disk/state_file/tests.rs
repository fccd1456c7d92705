//! Interrupted writes, damage, foreign files, and failing disks.

mod fuzz;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use primacy_stores::ownership;

use super::*;
use crate::disk::FILE_NAME_MAX;

/// A directory of this test, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("primacy-disk-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    fn open(&self) -> Result<(StateFile, Stored), DiskError> {
        StateFile::open(&self.0, "main", a())
    }

    fn state(&self) -> PathBuf {
        self.0.join("main@a.state")
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

fn c() -> NodeId {
    NodeId::new("c").unwrap()
}

fn b() -> NodeId {
    NodeId::new("b").unwrap()
}

fn vote(term: u64) -> HardState {
    let voted_for = Identity::new(b(), Incarnation { count: 3, nonce: 99 });
    HardState {
        term: Term(term),
        voted_for: Some(voted_for),
        promise: Duration::from_millis(1_000),
        disk_state: DiskState::Intact,
    }
}

/// Creates a directory whose state has votes in the terms 1 to `terms`.
fn voted(terms: u64) -> Dir {
    let dir = Dir::new();
    let (mut state, _) = dir.open().unwrap();
    for term in 1..=terms {
        state.persist(&vote(term)).unwrap();
    }
    dir
}

/// A restored copy may have any permissions, by which other users could lock or read the files.
#[test]
fn files_that_others_may_open_are_closed_to_them() {
    let dir = voted(1);
    let files = ["main@a.lock", "main@a.state"].map(|name| dir.0.join(name));
    for mode in [0o644, 0o666, 0o660, 0o604, 0o600] {
        for file in &files {
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        }
        drop(dir.open().unwrap());
        for file in &files {
            let now = fs::metadata(file).unwrap().permissions().mode() & 0o7777;
            assert_eq!(now, 0o600, "{}, which had {mode:o}", file.display());
        }
    }
}

/// The error names the user of a process that opened the file earlier.
#[test]
fn a_state_that_another_user_has_locked_is_refused_with_whose_lock_it_is() {
    if !rustix::process::geteuid().is_root() {
        // Not by a macro: captured output is not shown when a test passes.
        let _ = io::stderr().write_all(b"NOT RUN: a lock of another user takes root\n");
        return;
    }
    let dir = voted(1);
    let lock = dir.0.join("main@a.lock");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--clear-groups", "flock", "--no-fork"])
        .arg(&lock)
        .args(["sleep", "60"]);
    let mut other = command.spawn().unwrap();
    let file = File::open(&lock).unwrap();
    while ownership::lock_holder(&file) != Some(other.id()) {
        assert!(other.try_wait().unwrap().is_none(), "it has locked nothing");
        std::thread::yield_now();
    }
    let refused = dir.open().unwrap_err().to_string();
    let holder = format!("the process {} of the user nobody (65534)", other.id());
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(refused.contains(&holder), "{refused}");
    dir.open().unwrap();
}

#[test]
fn what_was_written_is_found_again() {
    let dir = Dir::new();
    let (mut state, first) = dir.open().unwrap();
    assert!(first.created);
    assert_eq!(first.hard_state, HardState::default());
    assert_eq!(first.incarnation.count, 1);
    state.persist(&vote(4)).unwrap();
    let disk = DiskId([7; DiskId::LENGTH]);
    state.record_peer_disk(b(), disk).unwrap();
    let back = HardState { disk_state: DiskState::Recovered, ..vote(4) };
    state.readmit(c(), disk).unwrap();
    state.persist(&back).unwrap();
    drop(state);
    let (_state, second) = dir.open().unwrap();
    assert!(!second.created);
    assert_eq!(second.hard_state, back);
    assert_eq!(second.disk, first.disk);
    let readmitted = PeerDisk { readmitted: true, ..PeerDisk::first(disk) };
    assert_eq!(second.peer_disks, BTreeMap::from([(b(), PeerDisk::first(disk)), (c(), readmitted)]));
    assert_eq!(second.incarnation.count, 2);
    assert_ne!(second.incarnation.nonce, first.incarnation.nonce);
}

#[test]
fn lives_are_counted_on_and_never_back() {
    let dir = Dir::new();
    let (mut state, _) = dir.open().unwrap();
    assert_eq!(state.count_lives_from(1_000).unwrap(), 1_000);
    assert_eq!(state.count_lives_from(7).unwrap(), 1_000);
    drop(state);
    let (_state, stored) = dir.open().unwrap();
    assert_eq!(stored.incarnation.count, 1_001);
}

#[test]
fn the_directory_is_made_and_names_cannot_leave_it() {
    let dir = Dir::new();
    let deep = dir.0.join("x/y");
    let (state, _) = StateFile::open(&deep, "../billing/eu é", a()).unwrap();
    assert_eq!(state.path(), deep.join("%2e%2e%2fbilling%2feu%20%c3%a9@a.state"));
    let error = StateFile::open(&dir.0, &"x".repeat(250), a()).unwrap_err();
    assert!(matches!(error, DiskError::NameTooLong { .. }), "{error}");
}

#[test]
fn a_second_process_of_the_node_is_told_who_holds_the_state() {
    let dir = Dir::new();
    let (_state, _) = dir.open().unwrap();
    let error = dir.open().unwrap_err();
    assert!(error.to_string().contains(&format!("the process {}", std::process::id())), "{error}");
    // Another node of the same election has its own file.
    StateFile::open(&dir.0, "main", b()).unwrap();
}

#[test]
fn the_disks_of_those_who_vote_no_more_make_room() {
    let dir = Dir::new();
    let (mut state, _) = dir.open().unwrap();
    let other = |number: u32| NodeId::new(&format!("{}-{number}", "x".repeat(50))).unwrap();
    let disk = DiskId([7; DiskId::LENGTH]);
    for number in 0..200 {
        let members = [a(), other(number), other(number + 1)].map(|node| (node, "h:1"));
        state.persist_voters(&voters(u64::from(number) + 1, &members)).unwrap();
        state.record_peer_disk(other(number + 1), disk).unwrap();
        state.persist(&vote(u64::from(number) + 1)).unwrap();
    }
    drop(state);
    let stored = dir.open().unwrap().1;
    assert_eq!(stored.voters.unwrap().members.len(), 3);
    assert!(stored.peer_disks.contains_key(&other(199)) && stored.peer_disks.contains_key(&other(200)));
    assert!((10..200).contains(&stored.peer_disks.len()), "{}", stored.peer_disks.len());
}

#[test]
fn a_torn_write_leaves_the_state_before_it() {
    // Every combination of sectors of the new slot that may have reached the disk.
    let dir = voted(5);
    let before = fs::read(dir.state()).unwrap();
    let (slot, record) = read(&dir.state(), &open_existing(&dir.state()).unwrap()).unwrap();
    let target = slot.other();
    let next = Record { sequence: record.sequence + 1, hard_state: vote(6), ..record };
    let new = next.encode(&dir.state()).unwrap();
    let start = usize::try_from(target.offset()).unwrap();
    for written in 0..=u8::MAX {
        let mut bytes = before.clone();
        for sector in (0..8).filter(|sector| written >> sector & 1 == 1) {
            let (from, to) = (sector * slot::SECTOR_LENGTH, (sector + 1) * slot::SECTOR_LENGTH);
            bytes[start + from..start + to].copy_from_slice(&new[from..to]);
        }
        fs::write(dir.state(), &bytes).unwrap();
        let (_, found) = read(&dir.state(), &open_existing(&dir.state()).unwrap()).unwrap();
        let expected = if written == u8::MAX { vote(6) } else { vote(5) };
        assert_eq!(found.hard_state, expected, "{written:08b}");
    }
}

/// Also in the newest slot: if a flipped bit were taken for an interrupted write, the node would go on with the state before
/// it, and could vote twice.
#[test]
fn a_flipped_bit_anywhere_is_refused_or_changes_nothing() {
    for terms in [5, 6] {
        let dir = voted(terms);
        let mut bytes = fs::read(dir.state()).unwrap();
        let scratch = dir.0.join("scratch");
        let mut counts = [0, 0];
        // All bits of the record, and around the borders of sectors; some of the zeros.
        let at_a_border = |at: usize| at % slot::SECTOR_LENGTH < 16 || at % slot::LENGTH < 160;
        for at in (0..FILE_LENGTH).filter(|&at| at_a_border(at) || (at % slot::LENGTH).is_multiple_of(61)) {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                fs::write(&scratch, &bytes).unwrap();
                match read(&dir.state(), &open_existing(&scratch).unwrap()) {
                    Ok((_, found)) => {
                        assert_eq!(found.hard_state, vote(terms), "byte {at}, bit {bit}");
                        counts[0] += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, DiskError::Damaged { .. }), "byte {at}, bit {bit}: {error}");
                        counts[1] += 1;
                    }
                }
                bytes[at] ^= 1 << bit;
            }
        }
        assert!(counts[0] == counts[1] && counts[0] > 1_000, "{counts:?}");
    }
}

#[test]
fn a_state_that_is_gone_is_noticed_and_nothing_is_written() {
    let dir = voted(3);
    let (mut state, _) = dir.open().unwrap();
    state.check_in_place().unwrap();
    let (path, away) = (dir.state(), dir.0.join("away"));
    fs::rename(&path, &away).unwrap();
    let bytes = fs::read(&away).unwrap();
    for put_in_its_place in [false, true] {
        if put_in_its_place {
            fs::copy(&away, &path).unwrap();
        }
        assert!(matches!(state.check_in_place(), Err(DiskError::Gone { .. })));
        assert!(matches!(state.persist(&vote(4)), Err(DiskError::Gone { .. })));
        assert_eq!(fs::read(&away).unwrap(), bytes);
    }
}

#[test]
fn a_torn_slot_is_the_one_that_is_written_next() {
    let dir = voted(5);
    let (newest, _) = read(&dir.state(), &open_existing(&dir.state()).unwrap()).unwrap();
    let mut bytes = fs::read(dir.state()).unwrap();
    bytes[usize::try_from(newest.other().offset()).unwrap() + 100] ^= 1;
    fs::write(dir.state(), &bytes).unwrap();
    let (state, stored) = dir.open().unwrap();
    assert_eq!(stored.hard_state, vote(5));
    assert_eq!(state.newest, newest.other());
    drop(state);
    // Both slots are intact again.
    let bytes = fs::read(dir.state()).unwrap();
    for slot in bytes.chunks(slot::LENGTH) {
        assert_eq!(Record::decode(slot).unwrap().hard_state, vote(5));
    }
}

#[test]
fn the_order_of_the_slots_means_nothing() {
    for terms in [4, 5] {
        let dir = voted(terms);
        let mut bytes = fs::read(dir.state()).unwrap();
        bytes.rotate_left(slot::LENGTH);
        fs::write(dir.state(), &bytes).unwrap();
        assert_eq!(dir.open().unwrap().1.hard_state, vote(terms));
    }
}

/// Opens, expects a refusal, and checks that no byte of the file was changed.
#[track_caller]
fn refused(dir: &Dir, bytes: &[u8]) -> DiskError {
    fs::write(dir.state(), bytes).unwrap();
    let error = dir.open().unwrap_err();
    assert_eq!(fs::read(dir.state()).unwrap(), bytes, "the file was changed");
    assert!(error.to_string().contains("main@a.state"), "{error}");
    error
}

#[test]
fn a_file_of_any_other_length_is_refused() {
    let dir = voted(2);
    let mut bytes = fs::read(dir.state()).unwrap();
    let scratch = dir.0.join("scratch");
    fs::write(&scratch, &bytes).unwrap();
    for length in (0..FILE_LENGTH).rev() {
        let file = open_existing(&scratch).unwrap();
        file.set_len(u64::try_from(length).unwrap()).unwrap();
        assert!(matches!(read(&dir.state(), &file), Err(DiskError::NotAStateFile { .. })), "{length}");
    }
    assert!(matches!(refused(&dir, &[]), DiskError::NotAStateFile { .. }));
    assert!(refused(&dir, &bytes[..slot::LENGTH]).to_string().contains("cut short"));
    bytes.push(0);
    assert!(matches!(refused(&dir, &bytes), DiskError::NotAStateFile { .. }));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let dir = voted(5);
    let bytes = fs::read(dir.state()).unwrap();
    for position in 0..slot::LENGTH {
        for bit in 0..8 {
            let mut slot = bytes[..slot::LENGTH].to_vec();
            slot[position] ^= 1 << bit;
            let error = Record::decode(&slot).unwrap_err();
            assert!(matches!(error, SlotError::Broken { rotten: 1, .. }), "{position}: {error:?}");
        }
    }
}

#[test]
fn two_damaged_slots_are_refused_and_left_as_they_are() {
    let dir = voted(5);
    let good = fs::read(dir.state()).unwrap();
    let mut bytes = good.clone();
    bytes[50] ^= 1;
    bytes[slot::LENGTH + 50] ^= 1;
    let error = refused(&dir, &bytes);
    assert!(matches!(error, DiskError::Damaged { .. }) && error.to_string().contains("readmit"), "{error}");
    assert!(matches!(refused(&dir, &[0; FILE_LENGTH]), DiskError::NotAStateFile { .. }));
    assert!(matches!(refused(&dir, &[b'x'; FILE_LENGTH]), DiskError::NotAStateFile { .. }));
    // Two intact slots that cannot both belong to this node.
    let record = Record::decode(&good[..slot::LENGTH]).unwrap();
    let slot = |record: &Record| record.encode(&dir.state()).unwrap();
    let other_disk = Record { disk: DiskId([1; DiskId::LENGTH]), ..record.clone() };
    assert!(matches!(refused(&dir, &[slot(&record), slot(&other_disk)].concat()), DiskError::Damaged { .. }));
    let other_vote = Record { hard_state: vote(77), ..record.clone() };
    assert!(matches!(refused(&dir, &[slot(&record), slot(&other_vote)].concat()), DiskError::Damaged { .. }));
    // The slots are written in turn, with consecutive numbers.
    let later = Record { sequence: record.sequence + 2, ..record.clone() };
    for other in [&record, &later] {
        assert!(matches!(refused(&dir, &[slot(&record), slot(other)].concat()), DiskError::Damaged { .. }));
    }
}

#[test]
fn another_nodes_or_elections_file_is_refused() {
    let dir = voted(1);
    let (mine, theirs) = (dir.state(), dir.0.join("main@b.state"));
    fs::copy(&mine, &theirs).unwrap();
    let error = StateFile::open(&dir.0, "main", b()).unwrap_err();
    assert!(error.to_string().contains(r#"node "a" in the election "main""#), "{error}");
    fs::rename(&mine, dir.0.join("other@a.state")).unwrap();
    let error = StateFile::open(&dir.0, "other", a()).unwrap_err();
    assert!(matches!(error, DiskError::Foreign { .. }), "{error}");
}

#[test]
fn a_newer_version_is_refused_also_if_only_one_slot_is_newer() {
    let dir = voted(1);
    let mut bytes = fs::read(dir.state()).unwrap();
    bytes[..slot::LENGTH].copy_from_slice(&seal(VERSION + 1, 99, b"whatever comes"));
    let error = refused(&dir, &bytes);
    assert!(matches!(error, DiskError::Newer { version: 3, .. }), "{error}");
}

#[test]
fn bytes_with_a_right_checksum_cannot_panic_us() {
    let mut random = primacy_core::rng::Rng::new(1);
    let good = Record::first("main", a()).unwrap().encode(Path::new("x")).unwrap();
    let Content { record, .. } = unseal(&good).unwrap();
    for _ in 0..20_000 {
        let mut record = record.clone();
        for _ in 0..=random.up_to(4) {
            let position = usize::try_from(random.up_to(record.len() as u64 - 1)).unwrap();
            record[position] = random.next_u64().to_be_bytes()[0];
        }
        let _ = Record::decode(&seal(VERSION, 1, &record));
    }
    // A length above that of the slot.
    let mut slot = good;
    slot[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
    let sum = slot::checksum(0, &slot[..slot::SECTOR_LENGTH]);
    slot[12..16].copy_from_slice(&sum.to_be_bytes());
    assert!(matches!(Record::decode(&slot), Err(SlotError::Record(_))));
}

#[test]
fn after_a_failed_write_nothing_is_written_until_the_file_is_opened_again() {
    let dir = voted(3);
    let (mut state, _) = dir.open().unwrap();
    // Writes to this device fail with "no space left", as on a full disk.
    let good = std::mem::replace(&mut state.file, OpenOptions::new().write(true).open("/dev/full").unwrap());
    let error = state.persist(&vote(4)).unwrap_err();
    assert!(matches!(error, DiskError::Full { .. }), "{error}");
    state.file = good;
    let error = state.persist(&vote(5)).unwrap_err();
    assert!(matches!(error, DiskError::FailedBefore { .. }), "{error}");
    assert!(state.record_peer_disk(b(), DiskId([1; DiskId::LENGTH])).is_err());
    drop(state);
    let (mut state, stored) = dir.open().unwrap();
    assert_eq!(stored.hard_state, vote(3));
    state.persist(&vote(6)).unwrap();
}

#[test]
fn a_failed_flush_is_a_failed_write() {
    let dir = voted(3);
    let (mut state, _) = dir.open().unwrap();
    // This device accepts every write and fails every flush.
    state.file = OpenOptions::new().write(true).open("/dev/null").unwrap();
    let error = state.persist(&vote(4)).unwrap_err();
    assert!(matches!(error, DiskError::Io { action: "write", .. }), "{error}");
    assert!(matches!(state.persist(&vote(4)), Err(DiskError::FailedBefore { .. })));
}

#[test]
fn too_many_peers_are_refused_before_anything_is_written() {
    let dir = Dir::new();
    let (mut state, _) = dir.open().unwrap();
    let mut known = 0;
    let error = loop {
        let peer = NodeId::new(&format!("{known:x>63}")).unwrap();
        match state.record_peer_disk(peer, DiskId([1; DiskId::LENGTH])) {
            Ok(()) => known += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DiskError::TooLong { .. }), "{error}");
    assert!(known > 40, "{known}");
    // There is room for the longest possible vote.
    let node = NodeId::new(&"x".repeat(NodeId::LENGTH_MAX)).unwrap();
    let voted_for = Some(Identity::new(node, Incarnation { count: u64::MAX, nonce: u64::MAX }));
    let promise = Duration::from_nanos(u64::MAX);
    state
        .persist(&HardState { term: Term(u64::MAX), voted_for, promise, disk_state: DiskState::Recovered })
        .unwrap();
}

#[test]
fn a_disk_is_not_replaced_when_there_is_no_room_to_remember_it() {
    let dir = Dir::new();
    let (mut state, _) = dir.open().unwrap();
    let disk = |number: u8| DiskId([number; DiskId::LENGTH]);
    let mut known = 0;
    let error = loop {
        match state.readmit(c(), disk(known + 1)) {
            Ok(()) => known += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DiskError::TooLong { .. }), "{error}");
    assert!(known > 100, "{known}");
    assert!(matches!(state.readmit(c(), disk(1)), Err(DiskError::Replaced { .. })));
    drop(state);
    let known_of_c = dir.open().unwrap().1.peer_disks.remove(&c()).unwrap();
    assert_eq!((known_of_c.disk, known_of_c.former.len()), (disk(known), usize::from(known) - 1));
}

#[test]
fn a_disk_that_was_replaced_never_comes_back() {
    let dir = Dir::new();
    let (mut state, _) = dir.open().unwrap();
    let [first, second, third] = [1, 2, 3].map(|byte| DiskId([byte; DiskId::LENGTH]));
    state.record_peer_disk(c(), first).unwrap();
    state.readmit(c(), second).unwrap();
    state.readmit(c(), third).unwrap();
    state.readmit(c(), third).unwrap();
    for presented in [first, second] {
        let error = state.readmit(c(), presented).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, DiskError::Replaced { recorded, .. } if recorded == third), "{text}");
        assert!(
            text.contains(&presented.to_string()) && text.contains("move its state directory away"),
            "{text}"
        );
    }
    drop(state);
    let (mut state, stored) = dir.open().unwrap();
    let known = PeerDisk { disk: third, readmitted: true, former: [first, second].into() };
    assert_eq!(stored.peer_disks, BTreeMap::from([(c(), known.clone())]));
    // The same for a disk that is recorded only after the node was readmitted with another one.
    let late = DiskId([4; DiskId::LENGTH]);
    state.record_peer_disk(c(), late).unwrap();
    assert!(matches!(state.readmit(c(), late), Err(DiskError::Replaced { .. })));
    // A refusal is not a failed write.
    state.persist(&vote(1)).unwrap();
}

#[test]
fn the_bytes_on_the_disk_are_these() {
    let record = Record {
        sequence: 0x0102,
        election: "main".into(),
        node: a(),
        disk: DiskId([0xdd; DiskId::LENGTH]),
        incarnations: 2,
        hard_state: HardState { disk_state: DiskState::Recovered, ..vote(5) },
        peer_disks: BTreeMap::from([(
            b(),
            PeerDisk {
                disk: DiskId([0xbb; DiskId::LENGTH]),
                readmitted: true,
                former: [DiskId([0xcc; DiskId::LENGTH])].into(),
            },
        )]),
        voters: None,
        log: None,
        log_lost: false,
        log_reach: LogReach::default(),
    };
    let slot = record.encode(Path::new("x")).unwrap();
    // The other sectors have their checksum and the sequence number; the record does not reach into them.
    assert_eq!(&slot[512 + 4..1024], [&[0, 0, 0, 0, 0, 0, 1, 2][..], &[0; 500]].concat());
    let used = slot[..512].iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let hex: String = slot[..used].iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = concat!(
        "5052494d4143591a",
        "00000001",
        "a3216aa8",
        "0000000000000102",
        "00000062",
        "0a046d61696e",
        "120161",
        "1a10dddddddddddddddddddddddddddddddd",
        "2002",
        "2805",
        "320e0a016210031963000000000000003880",
        "94ebdc03",
        "42290a01621210bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "18012210cccccccccccccccccccccccccccccccc",
        "4802",
    );
    assert_eq!(hex, golden);
    assert_eq!(Record::decode(&slot).unwrap(), record);
    // With voters the version differs, so that programs that would drop them refuse the file; everything else is equal.
    let record = Record { voters: Some(voters(3, &[(a(), "h:1"), (b(), "[::1]:2")])), ..record };
    let slot = record.encode(Path::new("x")).unwrap();
    let used = slot[..512].iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let hex: String = slot[..used].iter().map(|byte| format!("{byte:02x}")).collect();
    let with_voters =
        golden.replacen("00000001a3216aa8", "00000002780d203e", 1).replacen("00000062", "00000080", 1);
    assert_eq!(hex, with_voters + "521c080310021a080a01611203683a311a0c0a016212075b3a3a315d3a32");
    assert_eq!(Record::decode(&slot).unwrap(), record);
}

/// The voters in the record `(term, 2)`.
fn voters(term: u64, members: &[(NodeId, &str)]) -> Arc<Voters> {
    let members = members.iter().map(|(node, address)| (*node, (*address).into())).collect();
    Arc::new(Voters { number: LeaderSequence { term: Term(term), counter: 2 }, members })
}

#[test]
fn voters_are_remembered_like_votes_and_an_older_program_refuses_to_forget_them() {
    let dir = voted(5);
    let versions = |dir: &Dir| -> Vec<u32> {
        let bytes = fs::read(dir.state()).unwrap();
        bytes.chunks(slot::LENGTH).map(|slot| unseal(slot).unwrap().version).collect()
    };
    // Without voters the version is the one that every program writes.
    assert_eq!(versions(&dir), [1, 1]);
    let (mut state, stored) = dir.open().unwrap();
    assert_eq!(stored.voters, None);
    let (first, second) = (voters(4, &[(a(), "h:1")]), voters(5, &[(a(), "h:1"), (b(), "h:2")]));
    state.persist_voters(&first).unwrap();
    state.persist_voters(&second).unwrap();
    state.persist(&vote(6)).unwrap();
    drop(state);
    let (mut state, stored) = dir.open().unwrap();
    assert_eq!((stored.voters, stored.hard_state, stored.log_lost), (Some(second.clone()), vote(6), false));
    assert_eq!(versions(&dir), [2, 2]);
    // Neither a vote nor a peer's disk replaces them.
    state.record_peer_disk(b(), DiskId([1; DiskId::LENGTH])).unwrap();
    drop(state);
    assert_eq!(dir.open().unwrap().1.voters, Some(second));
    // Nor is the loss of the log forgotten.
    let dir = voted(5);
    let (mut state, _) = dir.open().unwrap();
    state.persist_log_lost(true).unwrap();
    drop(state);
    let (mut state, stored) = dir.open().unwrap();
    assert_eq!((stored.log_lost, stored.hard_state, versions(&dir)), (true, vote(5), vec![2, 2]));
    state.persist_log_lost(false).unwrap();
    state.persist(&vote(6)).unwrap();
    drop(state);
    assert_eq!((dir.open().unwrap().1.log_lost, versions(&dir)), (false, vec![1, 1]));
    // Nor is the log's extent, which is written with the next write, and at once only if another segment was begun.
    let (mut state, _) = dir.open().unwrap();
    let reach = |segment, counter| LogReach { segment, last: LeaderSequence { term: Term(6), counter } };
    let before = fs::read(dir.state()).unwrap();
    state.note_log(reach(0, 1)).unwrap();
    assert_eq!(fs::read(dir.state()).unwrap(), before);
    state.note_log(reach(1, 2)).unwrap();
    assert_ne!(fs::read(dir.state()).unwrap(), before);
    state.note_log(reach(1, 3)).unwrap();
    state.persist(&vote(7)).unwrap();
    state.note_log(reach(1, 4)).unwrap();
    drop(state);
    assert_eq!(dir.open().unwrap().1.log_reach, reach(1, 3));
    assert_eq!(versions(&dir), [2, 2]);
    // Nor is its durability.
    let (mut state, stored) = dir.open().unwrap();
    assert_eq!(stored.log, None);
    state.persist_log(Durability::Memory, false).unwrap();
    drop(state);
    let stored = dir.open().unwrap().1;
    assert_eq!((stored.log, stored.log_lost, versions(&dir)), (Some(Durability::Memory), false, vec![2, 2]));
}

#[test]
fn as_many_voters_fit_as_is_said_with_their_disks_and_the_longest_vote_and_no_more() {
    let longest = "x".repeat(NodeId::LENGTH_MAX - 2);
    let node = |name: &str, index: usize| NodeId::new(&format!("{name}{index:02}")).unwrap();
    // Names of 16 bytes and addresses of 32; and the longest of both: a host name and a port.
    for (count, name, address) in [(31, "n".repeat(14), 32), (7, longest.clone(), 253 + 6)] {
        let dir = Dir::new();
        // With the longest name of an election, which leaves the least room.
        let me = NodeId::new(&"y".repeat(NodeId::LENGTH_MAX)).unwrap();
        let election = "e".repeat(FILE_NAME_MAX - 1 - NodeId::LENGTH_MAX - ".state.new".len());
        let (mut state, _) = StateFile::open(&dir.0, &election, me).unwrap();
        let address = "h".repeat(address);
        let members =
            |count: usize| (0..count).map(|index| (node(&name, index), address.as_str())).collect::<Vec<_>>();
        let before = fs::read(state.path()).unwrap();
        let error = state.persist_voters(&voters(9, &members(count + 1))).unwrap_err();
        assert!(matches!(error, DiskError::VotersTooLong { voters, .. } if voters == count + 1), "{error}");
        assert_eq!(fs::read(state.path()).unwrap(), before, "nothing was written");
        let fits = voters(u64::MAX, &members(count));
        state.persist_voters(&fits).unwrap();
        // Each of them may present its disk, and some are readmitted with another one; a vote always fits.
        for &voter in fits.members.keys() {
            state.record_peer_disk(voter, DiskId([1; DiskId::LENGTH])).unwrap();
        }
        let replaced =
            (2..).take_while(|&byte| state.readmit(node(&name, 0), DiskId([byte; 16])).is_ok()).count();
        assert!(replaced >= 20, "{replaced}");
        let voted_for = Identity::new(node(&longest, 0), Incarnation { count: u64::MAX, nonce: 1 });
        let hard = HardState { term: Term(u64::MAX), voted_for: Some(voted_for), ..vote(1) };
        state.persist(&hard).unwrap();
        drop(state);
        let (_state, stored) = StateFile::open(&dir.0, &election, me).unwrap();
        assert_eq!((stored.voters, stored.hard_state), (Some(fits), hard));
    }
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_written_through() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    let dir = Dir::new();
    let victim = dir.0.join("victim");
    fs::write(&victim, "precious").unwrap();
    let mode = fs::metadata(&victim).unwrap().mode();
    for end in ["lock", "state", "state.new"] {
        let link = dir.0.join(format!("main@a.{end}"));
        symlink(&victim, &link).unwrap();
        match dir.open() {
            // The file was removed, like a leftover of an earlier attempt.
            Ok(_) => assert_eq!(end, "state.new"),
            Err(error) => {
                assert!(error.to_string().contains("is a symbolic link"), "{end}: {error}");
                fs::remove_file(&link).unwrap();
            }
        }
        let kept = (fs::read(&victim).unwrap(), fs::metadata(&victim).unwrap().mode());
        assert_eq!(kept, (b"precious".to_vec(), mode), "{end}");
    }
    dir.open().unwrap();
}

#[test]
fn the_state_directory_of_another_user_is_refused_where_every_user_could_have_made_it() {
    use std::os::unix::fs::chown;
    let dir = Dir::new();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o777)).unwrap();
    let why = dir.open().unwrap_err().to_string();
    assert!(why.contains("everybody may write to the directory"), "{why}");
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("NOT RUN: a directory of another user, which takes root");
    }
    let theirs = dir.0.join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(60001), Some(60001)).unwrap();
    let open = || StateFile::open(&theirs, "main", a());
    open().expect("only root has put it there");
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o1777)).unwrap();
    let why = open().unwrap_err().to_string();
    assert!(why.contains("belongs to the user 60001"), "{why}");
}
