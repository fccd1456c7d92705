//! Crashes between the steps of a snapshot or of a new segment: afterwards the log is as before, or as after.

use super::*;

type Files = BTreeMap<String, Vec<u8>>;

/// A log of several segments, before and after the installation of a snapshot.
fn around(install: &Arc<Snapshot>) -> (Dir, [(Files, Stored); 2]) {
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    log.write(&Write::Snapshot(snapshot(number(1, 7), b"first"))).unwrap();
    log.write(&Write::Append(vec![begin(2, number(1, 7))])).unwrap();
    for counter in 2..20 {
        log.write(&Write::Append(vec![payload(2, counter, &[u8::try_from(counter).unwrap(); 100])])).unwrap();
    }
    drop(log);
    let before = dir.files();
    let (mut log, stored, _) = dir.open_small().unwrap();
    let mut twin = Twin(stored.clone());
    log.write(&Write::Snapshot(Arc::clone(install))).unwrap();
    twin.write(&Write::Snapshot(Arc::clone(install)));
    drop(log);
    let after = dir.files();
    (dir, [(before, stored), (after, twin.0)])
}

/// Opens a log of these files, which must have this content; then writes to it.
#[track_caller]
fn goes_on(dir: &Dir, files: &Files, stored: &Stored) {
    dir.put(files);
    let (mut log, found, warnings) = dir.open_small().unwrap();
    assert_eq!((&found, warnings.len()), (stored, 0));
    let mut twin = Twin(found);
    let last = twin.0.records.last().map(|record| record.number);
    let last = last.or(twin.0.snapshot.as_ref().map(|snapshot| snapshot.number)).unwrap();
    let write = Write::Append(vec![begin(99, last), payload(99, 2, &[1; 300]), payload(99, 3, &[1; 300])]);
    log.write(&write).unwrap();
    twin.write(&write);
    drop(log);
    let (_log, found, warnings) = dir.open_small().unwrap();
    assert_eq!((found, warnings.len()), (twin.0, 0));
    assert!(dir.files().keys().all(|name| !name.ends_with(".new")), "a leftover is still there");
}

#[test]
fn a_crash_between_any_two_steps_of_a_snapshot_leaves_the_old_state_or_the_new_one() {
    // In the middle of the log, at its end, and above it, as from another node.
    for (install, begun) in [(number(2, 9), 0), (number(2, 19), 0), (number(50, 50), 1)] {
        let install = snapshot(install, &[7; 1_000]);
        let (dir, [(before, old), (after, new)]) = around(&install);
        let written = &after["snapshot"];
        // A snapshot above the end of the log needs a new segment, which exists before another one is deleted.
        let new_segments: Vec<_> = after.iter().filter(|(name, _)| !before.contains_key(*name)).collect();
        assert_eq!(new_segments.len(), begun);
        // While the file is written, and before it is renamed.
        for length in [0, 1, PAGE_LENGTH, PAGE_LENGTH + 500, written.len()] {
            let mut files = before.clone();
            files.insert(NEW_SNAPSHOT.to_owned(), written[..length].to_vec());
            goes_on(&dir, &files, &old);
        }
        // After that, any subset of the segments may be deleted already: a directory need not keep the order.
        let segments: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
        assert!((1..=8).contains(&segments.len()), "{}", segments.len());
        for (deleted, is_begun) in
            (0..1_u32 << segments.len()).map(|deleted| (deleted, true)).chain([(0, false)])
        {
            let mut files = before.clone();
            files.insert("snapshot".to_owned(), written.clone());
            if is_begun {
                files.extend(new_segments.iter().map(|(name, bytes)| ((*name).clone(), (*bytes).clone())));
            }
            for (_, name) in segments.iter().enumerate().filter(|(place, _)| deleted >> place & 1 == 1) {
                files.remove(*name);
            }
            goes_on(&dir, &files, &new);
        }
    }
}

#[test]
fn nothing_is_deleted_before_the_snapshot_has_its_name() {
    let (dir, [(before, _), _]) = around(&snapshot(number(2, 9), b"s"));
    dir.put(&before);
    let (mut log, ..) = dir.open_small().unwrap();
    // A directory has the name of the snapshot; no file replaces it.
    fs::remove_file(dir.log().join(SNAPSHOT)).unwrap();
    fs::create_dir(dir.log().join(SNAPSHOT)).unwrap();
    let error = log.write(&Write::Snapshot(snapshot(number(2, 9), b"s"))).unwrap_err();
    assert!(matches!(error, LogError::Io { action: "make", .. }), "{error}");
    assert!(matches!(log.write(&Write::Append(vec![])), Err(LogError::FailedBefore { .. })));
    fs::remove_dir(dir.log().join(SNAPSHOT)).unwrap();
    let mut files = dir.files();
    files.remove(NEW_SNAPSHOT);
    assert!(before.iter().filter(|(name, _)| *name != SNAPSHOT).eq(&files));
}

#[test]
fn the_last_block_is_written_once_more_when_the_log_is_opened() {
    // The bytes that were read may be in the kernel's memory only, counted as written although their flush has failed.
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    written(&mut log, 2);
    drop(log);
    let file = File::open(dir.segment(1)).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    file.set_modified(long_ago).unwrap();
    let before = dir.files();
    drop(dir.open_small().unwrap());
    assert!(file.metadata().unwrap().modified().unwrap() > long_ago);
    assert!(dir.files() == before);
}

#[test]
fn a_crash_while_a_segment_is_made_leaves_the_log_as_it_was() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    let records = written(&mut log, 5);
    drop(log);
    let before = dir.files();
    let (mut log, ..) = dir.open_small().unwrap();
    log.begin_segment(number(2, 6)).unwrap();
    drop(log);
    let after = dir.files();
    let made = &after["0000000000000002.segment"];
    let stored = Stored { snapshot: None, records };
    for length in [0, 1, PAGE_LENGTH / 2, made.len()] {
        let mut files = before.clone();
        files.insert(NEW_SEGMENT.to_owned(), made[..length].to_vec());
        goes_on(&dir, &files, &stored);
    }
    // The file has its name, and no block yet.
    goes_on(&dir, &after, &stored);
}

#[test]
fn a_file_that_is_missing_is_noticed() {
    let (dir, [(before, _), (after, _)]) = around(&snapshot(number(2, 9), b"s"));
    for (files, missing) in [
        // The second segment, which a third one follows; the snapshot before all of them.
        (&before, before.keys().nth(1).unwrap()),
        (&before, before.keys().last().unwrap()),
        (&after, after.keys().last().unwrap()),
    ] {
        let mut files = files.clone();
        files.remove(missing);
        dir.put(&files);
        let error = dir.refused();
        assert!(error.to_string().contains("missing"), "{missing}: {error}");
    }
    // An older snapshot, from a backup, when the records after it are deleted.
    let mut files = after.clone();
    files.insert("snapshot".to_owned(), before["snapshot"].clone());
    dir.put(&files);
    assert!(matches!(dir.refused(), LogError::Damaged { .. }));
    // A snapshot of another history, whose number the log does not contain.
    let mut files = before.clone();
    let owner = Owner { election: "main".into(), node: a() };
    let mut other = Vec::new();
    snapshot_file::write(&mut other, &owner, [1; 16], &snapshot(number(1, 9), b"s")).unwrap();
    files.insert("snapshot".to_owned(), other);
    dir.put(&files);
    let error = dir.refused();
    assert!(error.to_string().contains("does not have"), "{error}");
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    written(&mut log, 30);
    drop(log);
    fs::rename(dir.segment(2), dir.segment(9)).unwrap();
    let error = dir.refused();
    assert!(error.to_string().contains("it says that it is the segment 0000000000000002"), "{error}");
    fs::copy(dir.segment(9), dir.segment(2)).unwrap();
    assert!(matches!(dir.refused(), LogError::Damaged { .. }));
}
