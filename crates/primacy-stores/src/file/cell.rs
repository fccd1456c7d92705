//! The file of the record: its format, and how it is read and replaced.
//!
//! ```text
//! primacy-file 1 12-00c0ffee00c0ffee nightly
//! {"primacy":1,"token":1763719200124,…}
//! ```
//!
//! The first line has the version of this format, the version of the record, and the election. The record is the rest.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Instant;

use primacy_core::election::lease::Version;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::directory::{Folder, LOCK_PATIENCE, LockedFolder, StoreDirectory, fnv};
use crate::election_name::ELECTION_LENGTH_MAX;
use crate::record::RecordError;
use crate::register::SetError;

/// The file of the record, and the temporary one that is renamed to it.
pub(super) const RECORD: &str = "record";
pub(super) const NEXT: &str = "record.next";

/// The beginning of the first line.
const MAGIC: &str = "primacy-file";
/// The version of the format that is written, and the highest that is understood.
const FORMAT: u64 = 1;

/// The longest version that is taken from a file, in bytes; those of this store have at most 37.
const VERSION_LENGTH_MAX: usize = 64;

/// The content of the record's file.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Absent,
    Cell {
        version: Version,
        bytes: Vec<u8>,
    },
    /// Content that has no version, and so cannot be replaced.
    Foreign {
        error: RecordError,
        checksum: u64,
    },
}

/// The identity of a content, by which a change is noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Absent,
    Version(Version),
    Foreign(u64),
}

/// The steps of a write, in order; named so that tests can interrupt between any two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Compare, under the lock.
    Compare,
    /// Write the new record beside the old one.
    Write,
    /// Flush it to the disk.
    Flush,
    /// Rename it over the old one.
    Rename,
    /// Flush the rename to the disk.
    FlushName,
    /// Check that the path still leads to the directory.
    Check,
}

impl Content {
    pub(super) fn mark(&self) -> Mark {
        match self {
            Self::Absent => Mark::Absent,
            Self::Cell { version, .. } => Mark::Version(version.clone()),
            Self::Foreign { checksum, .. } => Mark::Foreign(*checksum),
        }
    }
}

/// Reads the record, if there is one. A rename leaves the old file whole, so no lock is needed.
pub(super) fn read(folder: &Folder<'_>) -> Result<Content, String> {
    let shown = folder.place().folder_path().join(RECORD);
    let shown = shown.display();
    // Not blocking, so that opening a pipe in the record's place does not hang.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder.directory(), RECORD, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Content::Absent),
        Err(Errno::LOOP) => {
            return Err(format!("{shown} is a symbolic link, which is not followed; remove it"));
        }
        Err(error) => return Err(format!("{shown} cannot be opened: {error}")),
    };
    let failed = |error: io::Error| format!("{shown} cannot be read: {error}");
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(format!("{shown} is not a regular file; remove it"));
    }
    let length_max =
        MAGIC.len() + VERSION_LENGTH_MAX + ELECTION_LENGTH_MAX + 32 + folder.place().length_max() + 1;
    let mut text = Vec::new();
    let limit = u64::try_from(length_max).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut text).map_err(failed)?;
    Ok(match parse(&text, folder.place().election()) {
        Ok((version, bytes)) => Content::Cell { version, bytes: bytes.to_vec() },
        Err(error) => Content::Foreign { error, checksum: fnv(&text) },
    })
}

/// Replaces the record if it still has the version `expect`, where `None` means that there must be none. `before` is
/// called before each step, and may fail in its place.
///
/// An error before the rename means that nothing was written; an error from the rename on means that the outcome is
/// unknown.
pub(super) fn compare_and_set(
    place: &StoreDirectory,
    expect: Option<&Version>,
    bytes: &[u8],
    before: &mut dyn FnMut(Step) -> io::Result<()>,
) -> Result<Version, SetError> {
    let unavailable = |why: String| SetError::Unavailable { why };
    let unknown = |why: String| SetError::Unknown { why };
    let failed = |step: Step, error: io::Error| {
        format!("{}: {error} ({step:?})", place.folder_path().join(RECORD).display())
    };
    let folder = match expect {
        None => place.enter_or_make().map_err(unavailable)?,
        Some(_) => place.enter().map_err(unavailable)?.ok_or(SetError::Conflict)?,
    };
    let folder = folder.lock(Instant::now() + LOCK_PATIENCE).map_err(unavailable)?;
    before(Step::Compare).map_err(|error| unavailable(failed(Step::Compare, error)))?;
    let content = read(&folder).map_err(unavailable)?;
    let count = match (&content, expect) {
        (Content::Absent, None) => 1,
        (Content::Cell { version, .. }, Some(expect)) if version == expect => count_of(version) + 1,
        (Content::Absent | Content::Cell { .. } | Content::Foreign { .. }, _) => {
            return Err(SetError::Conflict);
        }
    };
    let version = draw(count).map_err(unavailable)?;
    let text = format_cell(&version, place.election(), bytes);
    if let Err((step, error)) = prepare(&folder, &text, before) {
        let _ = rustix::fs::unlinkat(folder.directory(), NEXT, AtFlags::empty());
        return Err(unavailable(failed(step, error)));
    }
    before(Step::Rename)
        .and_then(|()| Ok(rustix::fs::renameat(folder.directory(), NEXT, folder.directory(), RECORD)?))
        .map_err(|error| unknown(failed(Step::Rename, error)))?;
    before(Step::FlushName).map_err(|error| unknown(failed(Step::FlushName, error)))?;
    folder.flush().map_err(unknown)?;
    before(Step::Check).map_err(|error| unknown(failed(Step::Check, error)))?;
    // A directory that was moved away meanwhile has taken the record with it.
    folder.check().map_err(unknown)?;
    Ok(version)
}

/// Writes the new record beside the old one, and flushes it to the disk.
fn prepare(
    folder: &LockedFolder<'_>,
    text: &[u8],
    before: &mut dyn FnMut(Step) -> io::Result<()>,
) -> Result<(), (Step, io::Error)> {
    let write = |error| (Step::Write, error);
    before(Step::Write).map_err(write)?;
    // The remains of a writer that was killed. No process writes to it any more, because this one holds the lock.
    match rustix::fs::unlinkat(folder.directory(), NEXT, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(write(error.into())),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Users who may read the directory may read the record; no process writes into an existing file.
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let file =
        rustix::fs::openat(folder.directory(), NEXT, flags, mode).map_err(|error| write(error.into()))?;
    let mut file = File::from(file);
    file.write_all(text).map_err(write)?;
    before(Step::Flush).and_then(|()| file.sync_all()).map_err(|error| (Step::Flush, error))
}

/// Draws a version that no other write has: the given count, and a random number.
fn draw(count: u64) -> Result<Version, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random number could be drawn: {error}"))?;
    Ok(Version::new(format!("{count}-{:016x}", u64::from_ne_bytes(bytes)).as_bytes()))
}

/// The count is for people; that of a version which was written by hand may be missing.
fn count_of(version: &Version) -> u64 {
    let text = String::from_utf8_lossy(version.as_bytes());
    let count = text.split_once('-').and_then(|(count, _)| count.parse().ok());
    count.unwrap_or(0).min(u64::MAX - 1)
}

fn format_cell(version: &Version, election: &str, bytes: &[u8]) -> Vec<u8> {
    let version = String::from_utf8_lossy(version.as_bytes());
    let mut text = format!("{MAGIC} {FORMAT} {version} {election}\n").into_bytes();
    text.extend_from_slice(bytes);
    text.push(b'\n');
    text
}

/// Takes the version and the record's bytes out of a file.
fn parse<'a>(text: &'a [u8], election: &str) -> Result<(Version, &'a [u8]), RecordError> {
    let foreign = |why: &str| RecordError::NotJson { why: why.to_owned() };
    let line_end =
        text.iter().position(|byte| *byte == b'\n').ok_or_else(|| foreign("it has no first line"))?;
    let line = std::str::from_utf8(&text[..line_end]).map_err(|_| foreign("its first line is no text"))?;
    let mut words = line.splitn(4, ' ');
    let (magic, format) = (words.next(), words.next().and_then(|format| format.parse::<u64>().ok()));
    let format = format.filter(|_| magic == Some(MAGIC));
    match format.ok_or_else(|| foreign("its first line is not that of the store `file`"))? {
        0 => return Err(foreign("its first line names the format 0")),
        FORMAT => {}
        found => return Err(RecordError::LaterFormat { found }),
    }
    let version = words.next().filter(|version| (1..=VERSION_LENGTH_MAX).contains(&version.len()));
    let version = version.ok_or_else(|| foreign("its first line names no version"))?;
    if words.next() != Some(election) {
        return Err(foreign("its first line names another election"));
    }
    Ok((Version::new(version.as_bytes()), &text[line_end + 1..]))
}
