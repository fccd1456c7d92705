//! Failures in the middle of a write, between any two of its steps.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use primacy_core::election::lease::Version;

use super::cell::{self, Content, NEXT, RECORD, Step};
use super::directory::{FLUSHED, LOCK_PATIENCE, StoreDirectory};
use crate::ownership::Sharing;
use crate::register::SetError;

const STEPS: [Step; 6] =
    [Step::Compare, Step::Write, Step::Flush, Step::Rename, Step::FlushName, Step::Check];

/// A directory that goes away with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        Self(std::env::temp_dir().join(format!("primacy-cell-{}-{number}", std::process::id())))
    }

    fn place(&self) -> StoreDirectory {
        StoreDirectory::open(&self.0, Sharing::default(), "e", true).expect("a new directory")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(place: &StoreDirectory, expect: Option<&Version>, bytes: &[u8]) -> Result<Version, SetError> {
    cell::compare_and_set(place, expect, bytes, &mut |_| Ok(()))
}

fn read(place: &StoreDirectory) -> (Version, Vec<u8>) {
    match cell::read(&place.enter().unwrap().expect("the election has a directory")).unwrap() {
        // The line's end is not the record's.
        Content::Cell { version, bytes } => (version, bytes.trim_ascii_end().to_vec()),
        other @ (Content::Absent | Content::Foreign { .. }) => panic!("{other:?}"),
    }
}

#[test]
fn a_crash_at_any_step_leaves_the_old_or_the_new_and_no_lock() {
    for crash in STEPS {
        let directory = Directory::new();
        let place = directory.place();
        let old = write(&place, None, b"old").unwrap();
        // A panic unwinds past everything that would tidy up, as a kill does; and the lock goes with the process.
        let crashed = catch_unwind(AssertUnwindSafe(|| {
            cell::compare_and_set(&place, Some(&old), b"new", &mut |step| {
                assert!(step != crash, "a crash on demand");
                Ok(())
            })
        }));
        crashed.expect_err("a crash");
        let (version, bytes) = read(&place);
        let is_old = matches!(crash, Step::Compare | Step::Write | Step::Flush | Step::Rename);
        assert_eq!(bytes, if is_old { b"old" } else { b"new" }, "{crash:?}");
        assert_eq!(version == old, is_old, "{crash:?}");
        let next = write(&place, Some(&version), b"next").unwrap();
        assert_eq!(read(&place), (next, b"next".to_vec()), "{crash:?}");
    }
}

#[test]
fn an_error_up_to_the_rename_is_not_done_and_from_then_on_not_known() {
    for fail in STEPS {
        let directory = Directory::new();
        let place = directory.place();
        let old = write(&place, None, b"old").unwrap();
        let failed = cell::compare_and_set(&place, Some(&old), b"new", &mut |step| {
            if step == fail { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        });
        match fail {
            Step::Compare | Step::Write | Step::Flush => {
                assert!(matches!(failed, Err(SetError::Unavailable { .. })), "{failed:?}");
                assert_eq!(read(&place), (old, b"old".to_vec()));
                assert!(!place.folder_path().join(NEXT).exists(), "nothing is left behind");
            }
            Step::Rename | Step::FlushName | Step::Check => {
                assert!(matches!(failed, Err(SetError::Unknown { .. })), "{fail:?}: {failed:?}");
            }
        }
    }
}

#[test]
fn a_writer_that_stands_still_with_the_lock_is_not_overtaken_and_makes_nobody_wait_for_ever() {
    let directory = Directory::new();
    let place = directory.place();
    let old = write(&place, None, b"old").unwrap();
    let mut rival = None;
    let slow = cell::compare_and_set(&place, Some(&old), b"slow", &mut |step| {
        if step == Step::Rename {
            let since = Instant::now();
            rival = Some(write(&directory.place(), Some(&old), b"rival"));
            assert!(since.elapsed() >= LOCK_PATIENCE, "it waits for the lock as long as it says");
            assert_eq!(read(&place).1, b"old", "and readers do not wait");
        }
        Ok(())
    });
    let Some(Err(SetError::Unavailable { why })) = rival else { panic!("{rival:?}") };
    let holder = format!("the process {} holds the lock of ", std::process::id());
    assert!(why.contains(&holder), "{why}");
    assert_eq!(read(&place), (slow.unwrap(), b"slow".to_vec()));
    assert_eq!(write(&place, Some(&old), b"rival"), Err(SetError::Conflict));
}

#[test]
fn a_directory_that_is_taken_away_in_the_middle_of_a_write_takes_the_write_with_it() {
    for (at, with_rival) in STEPS.iter().flat_map(|at| [(*at, false), (*at, true)]) {
        let directory = Directory::new();
        let place = directory.place();
        let old = write(&place, None, b"old").unwrap();
        let mut taken = false;
        let slow = cell::compare_and_set(&place, Some(&old), b"slow", &mut |step| {
            if step == at && !std::mem::replace(&mut taken, true) {
                fs::remove_dir_all(place.folder_path())?;
                if with_rival {
                    // The lock of the old directory does not hold this one up.
                    write(&directory.place(), None, b"rival").map_err(io::Error::other)?;
                }
            }
            Ok(())
        });
        assert!(slow.is_err(), "{at:?}: nobody would find it: {slow:?}");
        if with_rival {
            assert_eq!(
                read(&place).1,
                b"rival",
                "{at:?}: a write into the old directory is not seen in the new"
            );
        } else {
            assert!(place.enter().unwrap().is_none());
        }
    }
}

#[test]
fn a_version_comes_back_neither_with_a_new_file_nor_with_an_old_one() {
    let directory = Directory::new();
    let place = directory.place();
    let file = place.folder_path().join(RECORD);
    let mut versions = vec![write(&place, None, b"same").unwrap()];
    let copy = fs::read(&file).unwrap();
    for round in 0..20 {
        match round % 2 {
            0 => fs::remove_file(&file).unwrap(),
            _ => fs::write(&file, &copy).unwrap(),
        }
        let expect = if round % 2 == 0 { None } else { Some(versions[0].clone()) };
        let version = write(&place, expect.as_ref(), b"same").unwrap();
        assert!(!versions.contains(&version), "{version:?} was there before: {versions:?}");
        versions.push(version);
    }
}

#[test]
fn a_name_that_a_killed_process_has_made_and_not_flushed_is_on_the_disk_when_a_write_is_done() {
    let directory = Directory::new();
    let store = directory.0.join("store");
    // As a process leaves it that is killed right after it made them.
    fs::create_dir_all(store.join("e.election")).unwrap();
    let place = StoreDirectory::open(&store, Sharing::default(), "e", true).unwrap();
    let above = fs::canonicalize(&directory.0).unwrap();
    assert_eq!(FLUSHED.take(), std::slice::from_ref(&above));
    let old = write(&place, None, b"old").unwrap();
    assert_eq!(FLUSHED.take(), [above.join("store"), above.join("store/e.election")]);
    write(&place, Some(&old), b"new").unwrap();
    assert_eq!(FLUSHED.take(), [above.join("store/e.election")], "later ones need it no more");
}
