//! Writes are read again; foreign files, failures, and golden bytes.

mod crash;
mod figures;
mod full;
mod fuzz;
mod random;
mod torn;

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use primacy_core::election::quorum::HardState;
use primacy_core::hard_state::Durability;
use primacy_kv::replication::log::RecordBody;
use primacy_kv::replication::voters::Voters;

use super::*;

/// A directory of this test, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("primacy-log-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    fn open(&self) -> Result<(LogFile, Stored, Vec<LogDefect>), LogError> {
        self.open_with(Limits::default())
    }

    /// Opens the log with limits so low that a few records fill a segment or a block.
    fn open_small(&self) -> Result<(LogFile, Stored, Vec<LogDefect>), LogError> {
        self.open_with(Limits { segment: PAGE_LENGTH as u64 + 600, block: 400, step: 512 })
    }

    fn open_with(&self, limits: Limits) -> Result<(LogFile, Stored, Vec<LogDefect>), LogError> {
        LogFile::open_within(limits, &self.0, "main", a(), &Bounds::none())
    }

    fn log(&self) -> PathBuf {
        self.0.join("main@a.log")
    }

    fn segment(&self, index: u64) -> PathBuf {
        self.log().join(format!("{index:016x}.segment"))
    }

    /// All files of the log except the lock, which contains a process id.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let files = fs::read_dir(self.log()).unwrap().map(|entry| entry.unwrap());
        let named = files.map(|file| (file.file_name().into_string().unwrap(), file.path()));
        named.filter(|(name, _)| name != "lock").map(|(name, path)| (name, fs::read(path).unwrap())).collect()
    }

    /// Replaces the present files by these.
    fn put(&self, files: &BTreeMap<String, Vec<u8>>) {
        for name in self.files().keys().filter(|name| !files.contains_key(*name)) {
            fs::remove_file(self.log().join(name)).unwrap();
        }
        for (name, bytes) in files {
            fs::write(self.log().join(name), bytes).unwrap();
        }
    }

    /// Opens, expects a refusal, and checks that no file was changed.
    #[track_caller]
    fn refused(&self) -> LogError {
        let before = self.files();
        let error = self.open_small().unwrap_err();
        assert!(self.files() == before, "a file was changed");
        assert!(error.to_string().contains("main@a.log"), "{error}");
        error
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

fn number(term: u64, counter: u64) -> LeaderSequence {
    LeaderSequence { term: Term(term), counter }
}

fn voters(number: LeaderSequence) -> Arc<Voters> {
    let members = [(a(), "10.0.0.1:7400"), (NodeId::new("b").unwrap(), "")];
    let members = members.into_iter().map(|(node, address)| (node, Arc::from(address))).collect();
    Arc::new(Voters { number, members })
}

fn begin(term: u64, after: LeaderSequence) -> Record {
    let number = number(term, 1);
    Record { number, body: RecordBody::Begin { after, voters: voters(number) } }
}

fn payload(term: u64, counter: u64, bytes: &[u8]) -> Record {
    Record { number: number(term, counter), body: RecordBody::Payload(Arc::from(bytes)) }
}

fn snapshot(number: LeaderSequence, state: &[u8]) -> Arc<Snapshot> {
    Arc::new(Snapshot { number, voters: voters(number), state: Arc::from(state) })
}

/// Encodes a block with this content at this offset of a segment.
fn block(id: &SegmentId, at: usize, content: &[u8]) -> Vec<u8> {
    let mut block = [&[0; BLOCK_HEADER_LENGTH][..], content].concat();
    segment::finish_content(&mut block);
    id.seal_block(at as u64, &mut block);
    block
}

/// A model of a log: the expected content after the same writes.
#[derive(Clone, Debug, Default)]
struct Twin(Stored);

impl Twin {
    fn write(&mut self, write: &Write) {
        match write {
            Write::Append(records) => self.0.records.extend(records.iter().cloned()),
            Write::Snapshot(snapshot) => {
                self.0.records.retain(|record| record.number > snapshot.number);
                self.0.snapshot = Some(Arc::clone(snapshot));
            }
        }
    }
}

/// Writes the first record of term 2, and `count` records after it, each alone and with different bytes.
fn written(log: &mut LogFile, count: u64) -> Vec<Record> {
    let mut records = vec![begin(2, LeaderSequence::NONE)];
    records.extend((2..2 + count).map(|counter| payload(2, counter, &[u8::try_from(counter).unwrap(); 30])));
    for record in &records {
        log.write(&Write::Append(vec![record.clone()])).unwrap();
    }
    records
}

#[test]
fn what_was_written_is_found_again() {
    let dir = Dir::new();
    let (mut log, stored, found) = dir.open().unwrap();
    assert!(found.is_empty());
    assert_eq!((log.path(), stored), (dir.log().as_path(), Stored::default()));
    let mut twin = Twin::default();
    let voters_record = Record { number: number(2, 3), body: RecordBody::Voters(voters(number(2, 3))) };
    for write in [
        Write::Append(Vec::new()),
        Write::Append(vec![begin(2, LeaderSequence::NONE), payload(2, 2, b""), voters_record]),
        Write::Append(vec![begin(7, number(2, 3)), payload(7, 2, &[7; 5_000])]),
        Write::Snapshot(snapshot(number(2, 2), b"")),
        Write::Append(vec![payload(7, 3, b"x")]),
        Write::Snapshot(snapshot(number(7, 2), &[9; 700_000])),
        // A snapshot from another node: nothing before it is left, and its term continues after it.
        Write::Snapshot(snapshot(number(9, 40), b"state")),
        Write::Append(vec![payload(9, 41, b"y")]),
        Write::Snapshot(snapshot(number(9, 41), b"more")),
        Write::Append(vec![begin(11, number(9, 41))]),
    ] {
        log.write(&write).unwrap();
        twin.write(&write);
        drop(log);
        let (again, stored, found) = dir.open().unwrap();
        assert_eq!((&stored, found.len()), (&twin.0, 0), "after {write:?}");
        log = again;
    }
}

#[test]
fn a_log_that_begins_with_a_snapshot_goes_on_after_it() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open().unwrap();
    let writes = [Write::Snapshot(snapshot(number(3, 9), b"s")), Write::Append(vec![payload(3, 10, b"x")])];
    log.write_many(&writes).unwrap();
    drop(log);
    let mut twin = Twin::default();
    writes.iter().for_each(|write| twin.write(write));
    assert_eq!(dir.open().unwrap().1, twin.0);
}

#[test]
fn several_writes_are_one_block_and_what_a_snapshot_has_is_deleted() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    let append = |record: Record| Write::Append(vec![record]);
    log.write_many(&[append(begin(2, LeaderSequence::NONE)), append(payload(2, 2, b"x"))]).unwrap();
    let bytes = fs::read(dir.segment(1)).unwrap();
    let header = Header::decode(&bytes).unwrap();
    assert_eq!(segment::contents(&header, &bytes).unwrap().blocks.len(), 1);
    for counter in 3..40 {
        log.write(&append(payload(2, counter, &[1; 100]))).unwrap();
    }
    let segments = dir.files().len();
    assert!(segments > 7, "{segments}");
    log.write(&Write::Snapshot(snapshot(number(2, 20), b"s"))).unwrap();
    assert!(dir.files().len() < segments - 2 && !dir.segment(1).exists());
    log.write(&Write::Snapshot(snapshot(number(2, 39), b"s"))).unwrap();
    // The newest segment is kept: the state file knows its number, so its absence would be noticed.
    assert_eq!(dir.files().len(), 2);
    let newest = log.reach();
    assert!(dir.segment(newest.segment).exists() && newest.last == number(2, 39));
    // A snapshot from another node is above all of them; a new segment follows it.
    log.write(&Write::Snapshot(snapshot(number(7, 7), b"s"))).unwrap();
    assert_eq!((dir.files().len(), log.reach().segment), (2, newest.segment + 1));
}

#[test]
fn a_damaged_log_is_put_out_of_the_way_and_that_it_is_lost_is_remembered() {
    let dir = Dir::new();
    assert!(!LogFile::exists(&dir.0, "main", a()).unwrap());
    let aside = || repair(&dir.0, "main", a());
    for number in 1..3 {
        let (mut log, ..) = dir.open_small().unwrap();
        if number == 1 {
            assert!(matches!(aside().unwrap_err(), LogError::OthersVote { .. }), "there is no state");
            let (mut state, _) = disk::StateFile::open(&dir.0, "main", a()).unwrap();
            state.persist(&HardState { term: Term(2), ..HardState::default() }).unwrap();
        }
        log.write(&Write::Append(vec![begin(2, LeaderSequence::NONE)])).unwrap();
        log.write(&Write::Append(vec![payload(2, 2, b"whole")])).unwrap();
        assert!(matches!(aside().unwrap_err(), LogError::Locked { .. }));
        drop(log);
        assert_eq!(aside().unwrap(), Repair::Nothing, "it is whole");
        let mut bytes = fs::read(dir.segment(1)).unwrap();
        bytes[PAGE_LENGTH + 20] ^= 1;
        fs::write(dir.segment(1), &bytes).unwrap();
        dir.refused();
        assert!(LogFile::exists(&dir.0, "main", a()).unwrap());
        let Repair::SetAside(path) = aside().unwrap() else { panic!("it is damaged") };
        assert!(!LogFile::exists(&dir.0, "main", a()).unwrap());
        assert_eq!(path, dir.0.join(format!("main@a.log.damaged-{number}")));
        assert_eq!(fs::read(path.join("0000000000000001.segment")).unwrap(), bytes);
        assert!(!dir.log().exists());
        assert_eq!(aside().unwrap(), Repair::NoLog, "once more");
        assert_eq!(repair(&dir.0, "main", "zz".parse().unwrap()).unwrap(), Repair::NoNode);
        let (mut state, stored) = disk::StateFile::open(&dir.0, "main", a()).unwrap();
        assert_eq!((stored.log, stored.log_lost), (Some(Durability::Fsync), true));
        state.persist_log_lost(false).unwrap();
    }
}

#[test]
fn records_are_written_while_a_snapshot_is_made_and_cut_only_when_it_is_finished() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    let mut records = vec![begin(2, LeaderSequence::NONE)];
    records.extend((2..30).map(|counter| payload(2, counter, &[1; 100])));
    log.write(&Write::Append(records.clone())).unwrap();
    assert!(log.passes(number(2, 20)) && !log.passes(number(2, 30)) && !log.passes(number(1, 1)));
    let first = snapshot(number(2, 20), b"first");
    log.begin_snapshot(&first).unwrap();
    assert!(dir.segment(1).exists());
    records.push(payload(2, 30, b"meanwhile"));
    log.write(&Write::Append(records[29..].to_vec())).unwrap();
    // A second snapshot waits for the first.
    let second = snapshot(number(2, 25), b"second");
    log.begin_snapshot(&second).unwrap();
    assert!(!dir.segment(1).exists() && log.numbers.base == first.number);
    while log.numbers.base < second.number {
        log.finish_snapshot().unwrap();
    }
    drop(log);
    let stored = dir.open_small().unwrap().1;
    assert_eq!(stored, Stored { snapshot: Some(second), records: records[25..].to_vec() });

    // A snapshot that is not finished when the log is closed is dropped.
    let (mut log, ..) = dir.open_small().unwrap();
    log.begin_snapshot(&snapshot(number(2, 29), b"third")).unwrap();
    drop(log);
    let (mut log, again, _) = dir.open_small().unwrap();
    assert_eq!(again, stored);
    fs::create_dir(dir.log().join(NEW_SNAPSHOT)).unwrap();
    log.begin_snapshot(&snapshot(number(2, 29), b"fourth")).unwrap();
    let error = loop {
        if let Err(error) = log.finish_snapshot() {
            break error;
        }
    };
    assert!(matches!(error, LogError::Io { action: "make", .. }), "{error}");
}

#[test]
fn an_append_of_any_length_is_taken_block_by_block() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    let mut records = vec![begin(2, LeaderSequence::NONE)];
    records.extend((2..30).map(|counter| payload(2, counter, &[5; 150])));
    // Longer than the block and the segment of this test.
    records.push(payload(2, 30, &[6; 3_000]));
    log.write(&Write::Append(records.clone())).unwrap();
    drop(log);
    assert_eq!(dir.open_small().unwrap().1.records, records);
}

#[test]
fn the_longest_payload_is_taken_and_a_longer_one_refused_before_anything_is_written() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open().unwrap();
    let longest = payload(u64::MAX, 2, &vec![1; PAYLOAD_LENGTH_MAX]);
    let begins = begin(u64::MAX, LeaderSequence::NONE);
    let longer = payload(u64::MAX, 3, &vec![1; PAYLOAD_LENGTH_MAX + RECORD_OVERHEAD]);
    log.write(&Write::Append(vec![begins.clone(), longest.clone()])).unwrap();
    let before = dir.files();
    let error =
        log.write(&Write::Append(vec![payload(u64::MAX, 3, b"x"), payload(u64::MAX, 4, &vec![1; 3 << 20])]));
    assert!(matches!(error, Err(LogError::TooLong { number: n, .. }) if n == number(u64::MAX, 4)));
    assert!(matches!(log.write(&Write::Append(vec![longer])), Err(LogError::TooLong { .. })));
    assert!(dir.files() == before);
    let short = payload(u64::MAX, 3, b"x");
    log.write(&Write::Append(vec![short.clone()])).unwrap();
    drop(log);
    assert_eq!(dir.open().unwrap().1.records, [begins, longest, short]);
}

#[test]
fn a_second_process_of_the_node_is_told_who_holds_the_log() {
    let dir = Dir::new();
    let (_log, ..) = dir.open().unwrap();
    let error = dir.open().unwrap_err();
    assert!(matches!(error, LogError::Locked { .. }));
    assert!(error.to_string().contains(&format!("the process {}", std::process::id())), "{error}");
    // Another node of the same election has its own log.
    let b = NodeId::new("b").unwrap();
    LogFile::open_within(Limits::default(), &dir.0, "main", b, &Bounds::none()).unwrap();
}

#[test]
fn another_nodes_or_elections_files_are_refused() {
    for (from, election, node) in [("other@a.log", "other", "a"), ("main@b.log", "main", "b")] {
        for file in ["0000000000000001.segment", "snapshot"] {
            let dir = Dir::new();
            let (mut theirs, ..) = LogFile::open_within(
                Limits::default(),
                &dir.0,
                election,
                NodeId::new(node).unwrap(),
                &Bounds::none(),
            )
            .unwrap();
            theirs.write(&Write::Append(vec![begin(2, LeaderSequence::NONE), payload(2, 2, b"")])).unwrap();
            theirs.write(&Write::Snapshot(snapshot(number(2, 1), b""))).unwrap();
            drop(dir.open().unwrap());
            fs::rename(dir.0.join(from).join(file), dir.log().join(file)).unwrap();
            let error = dir.refused();
            assert!(matches!(error, LogError::Foreign { .. }), "{error}");
            let says = format!("the node {node} in the election {election:?}");
            assert!(error.to_string().contains(&says) && error.to_string().contains(file), "{error}");
        }
    }
}

#[test]
fn a_newer_version_is_refused() {
    for (file, magic) in [("0000000000000002.segment", b"PRIMLOG\x1a"), ("snapshot", b"PRIMSNP\x1a")] {
        let dir = Dir::new();
        drop(dir.open().unwrap());
        let page = page::seal(*magic, page::VERSION + 1, b"whatever comes");
        fs::write(dir.log().join(file), page).unwrap();
        let error = dir.refused();
        assert!(matches!(error, LogError::Newer { version: 2, .. }), "{error}");
        assert!(error.to_string().contains("start the newer one"), "{error}");
        // A version that a flipped bit has made is not trusted.
        let mut page = page::seal(*magic, page::VERSION, b"");
        page[11] ^= 2;
        fs::write(dir.log().join(file), page).unwrap();
        assert!(matches!(dir.refused(), LogError::Damaged { .. }));
        fs::write(dir.log().join(file), page::seal(*magic, 0, b"")).unwrap();
        assert!(matches!(dir.refused(), LogError::Damaged { .. }));
    }
}

#[test]
fn files_that_others_may_open_are_closed_to_them() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open().unwrap();
    log.write(&Write::Append(vec![begin(1, LeaderSequence::NONE)])).unwrap();
    drop(log);
    let files = || fs::read_dir(dir.log()).unwrap().map(|entry| entry.unwrap().path());
    files().for_each(|file| fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap());
    drop(dir.open().unwrap());
    for file in files() {
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
    assert!(files().count() > 1);
}

#[test]
fn files_of_others_are_left_alone() {
    let dir = Dir::new();
    drop(dir.open().unwrap());
    for name in ["1.segment", "000000000000000A.segment", "notes", "0000000000000001.segment.old"] {
        fs::write(dir.log().join(name), b"x").unwrap();
    }
    let before = dir.files();
    drop(dir.open().unwrap());
    assert_eq!(dir.files(), before);
}

/// Makes writes fail: this device refuses writes, or flushes.
fn with_device(log: &mut LogFile, device: &str) -> File {
    let device = OpenOptions::new().write(true).open(device).unwrap();
    std::mem::replace(&mut log.active.as_mut().unwrap().file, device)
}

#[test]
fn after_a_failed_write_or_flush_nothing_is_written_until_the_log_is_opened_again() {
    for device in ["/dev/full", "/dev/null"] {
        let dir = Dir::new();
        let (mut log, ..) = dir.open().unwrap();
        let records = written(&mut log, 3);
        let good = with_device(&mut log, device);
        let error = log.write(&Write::Append(vec![payload(2, 5, b"lost")])).unwrap_err();
        match device {
            "/dev/full" => assert!(matches!(error, LogError::Full { .. }), "{error}"),
            _ => assert!(matches!(error, LogError::Io { action: "write", .. }), "{error}"),
        }
        log.active.as_mut().unwrap().file = good;
        let before = dir.files();
        let error = log.write(&Write::Append(vec![payload(2, 6, b"")])).unwrap_err();
        assert!(matches!(error, LogError::FailedBefore { .. }), "{error}");
        let install = Write::Snapshot(snapshot(number(2, 2), b""));
        assert!(matches!(log.write(&install), Err(LogError::FailedBefore { .. })));
        assert!(dir.files() == before);
        drop(log);
        let (mut log, stored, _) = dir.open().unwrap();
        assert_eq!(stored.records, records);
        log.write(&Write::Append(vec![payload(2, 5, b"again")])).unwrap();
    }
}

#[test]
fn a_snapshot_that_cannot_be_made_leaves_the_log_as_it_was_and_can_be_made_later() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open().unwrap();
    let mut records = written(&mut log, 3);
    fs::create_dir(dir.log().join(NEW_SNAPSHOT)).unwrap();
    let install = Write::Snapshot(snapshot(number(2, 3), b"s"));
    let error = log.write(&install).unwrap_err();
    assert!(matches!(error, LogError::Io { action: "make", .. }), "{error}");
    fs::remove_dir(dir.log().join(NEW_SNAPSHOT)).unwrap();
    records.push(payload(2, 5, b"x"));
    log.write(&Write::Append(vec![payload(2, 5, b"x")])).unwrap();
    drop(log);
    let (mut log, stored, _) = dir.open().unwrap();
    assert_eq!(stored, Stored { snapshot: None, records: records.clone() });
    log.write(&install).unwrap();
    drop(log);
    assert_eq!(dir.open().unwrap().1.records, records[3..]);
}

#[test]
#[should_panic(expected = "a log has no gaps")]
fn a_record_that_does_not_follow_is_not_written() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open().unwrap();
    written(&mut log, 3);
    let _ = log.write(&Write::Append(vec![payload(2, 6, b"")]));
}

#[test]
fn a_log_is_cut_only_where_it_passes() {
    let mut numbers = Numbers::after(number(2, 3));
    for record in [payload(2, 4, b""), begin(5, number(2, 4)), payload(5, 2, b"")] {
        assert!(numbers.push(&record));
    }
    assert!(!numbers.push(&payload(5, 2, b"")));
    for (term, counter, may) in [
        (2, 2, false),
        (2, 3, true),
        (2, 4, true),
        (2, 5, false),
        (3, 1, false),
        (5, 0, false),
        (5, 1, true),
        (5, 2, true),
        (5, 3, true),
        (6, 9, true),
    ] {
        assert_eq!(numbers.may_be_cut_at(number(term, counter)), may, "({term}, {counter})");
    }
    numbers.cut(number(5, 1));
    assert!(!numbers.may_be_cut_at(number(2, 4)) && numbers.may_be_cut_at(number(5, 2)));
    numbers.cut(number(8, 8));
    assert_eq!(numbers, Numbers::after(number(8, 8)));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes up to the last one that is not zero.
fn used(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1]
}

#[test]
fn the_bytes_of_a_segment_are_these() {
    let id = SegmentId::new([0x5a; SegmentId::LENGTH]);
    let owner = Owner { election: "main".into(), node: a() };
    let header = Header { owner, id, index: 3, after: number(2, 300), step: 512 };
    let page = header.encode();
    assert_eq!(page.len(), PAGE_LENGTH);
    let golden = concat!(
        "5052494d4c4f471a",
        "00000001",
        "b9b8235e",
        "00000027",
        "0a046d61696e",
        "120161",
        "1a10db5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
        "2003",
        "2a05080210ac02",
        "308004",
    );
    assert_eq!(hex(used(&page)), golden);
    let number = number(5, 2);
    let records = [
        begin(5, header.after),
        Record { number, body: RecordBody::Voters(voters(number)) },
        payload(5, 3, b"payload"),
        payload(5, 4, b""),
    ];
    let content = format::message::Block { records: records.iter().map(format::record).collect() };
    let block = block(&id, PAGE_LENGTH, &content.encode_to_vec());
    // The header and the end; between them the content, XORed with the id.
    let header_and_end = concat!("db5a5a5a", "39b6057a", "0000006f", "dbb92027", "ff");
    let golden = concat!(
        "0a2e08051001",
        "1a280a05080210ac02121f0a040805100112120a0161120d31302e302e302e313a3734303012030a0162",
        "0a2508051002",
        "221f0a040805100212120a0161120d31302e302e302e313a3734303012030a0162",
        "0a0d08051003",
        "2a077061796c6f6164",
        "0a0608051004",
        "2a00",
    );
    let (last, rest) = block.split_last().unwrap();
    let (head, masked) = rest.split_at(BLOCK_HEADER_LENGTH);
    assert_eq!(hex(&[head, &[*last]].concat()), header_and_end);
    let key = [&[0xdb][..], &[0x5a; 15]].concat();
    let plain: Vec<u8> = masked.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
    assert_eq!(hex(&plain), golden);
    let mut bytes = [page, block].concat();
    bytes.resize(PAGE_LENGTH + 512, 0);
    assert_eq!(Header::decode(&bytes).unwrap(), header);
    let contents = segment::contents(&header, &bytes).unwrap();
    assert_eq!((contents.blocks.len(), contents.torn), (1, 0));
    assert_eq!(segment::records(&id, &bytes, &contents.blocks[0]).unwrap(), records);
}

#[test]
fn the_bytes_of_a_snapshot_are_these() {
    let owner = Owner { election: "main".into(), node: a() };
    let snapshot = snapshot(number(5, 2), b"state");
    let mut bytes = Vec::new();
    snapshot_file::write(&mut bytes, &owner, [0x5a; 16], &snapshot).unwrap();
    let (page, pieces) = bytes.split_at(PAGE_LENGTH);
    let golden = concat!(
        "5052494d534e501a",
        "00000001",
        "20cde70d",
        "00000025",
        "0a046d61696e",
        "120161",
        "1a105a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
        "220408051002",
        "281f",
        "3005",
    );
    assert_eq!(hex(used(page)), golden);
    let golden = concat!(
        "0000001f",
        "521b0e7e",
        "0a040805100212120a0161120d31302e302e302e313a3734303012030a0162",
        "00000005",
        "ddc94e7e",
        "7374617465",
        "00000000",
        "6d5bbead",
    );
    assert_eq!(hex(pieces), golden);
    let (of, read) = snapshot_file::read(&mut bytes.as_slice()).unwrap();
    assert_eq!((of, &read), (owner, &*snapshot));
}

#[test]
fn a_link_in_the_place_of_a_log_or_of_a_file_in_it_is_not_written_through() {
    use std::os::unix::fs::symlink;
    let dir = Dir::new();
    let elsewhere = dir.0.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("lock"), "precious").unwrap();
    symlink(&elsewhere, dir.log()).unwrap();
    let why = dir.open().unwrap_err().to_string();
    assert!(why.contains("main@a.log") && why.contains("is a symbolic link"), "{why}");
    fs::remove_file(dir.log()).unwrap();
    fs::create_dir(dir.log()).unwrap();
    let link = |name: &str| symlink(elsewhere.join("lock"), dir.log().join(name)).unwrap();
    link("lock");
    let why = dir.open().unwrap_err().to_string();
    assert!(why.contains("is a symbolic link"), "{why}");
    fs::remove_file(dir.log().join("lock")).unwrap();
    link(NEW_SEGMENT);
    link(NEW_SNAPSHOT);
    drop(dir.open().unwrap());
    assert_eq!(fs::read(elsewhere.join("lock")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}
