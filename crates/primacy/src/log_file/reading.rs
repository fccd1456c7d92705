//! Reads a log before any of it is changed, and repairs its end.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufReader, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use primacy_core::LeaderSequence;
use primacy_kv::replication::log::{Record, Snapshot};
use primacy_kv::replication::voters::Voters;

use super::bounds::Bounds;
use super::page::{LAST_SECTOR_AT, PAGE_LENGTH};
use super::segment::{self, Contents, Header, SegmentId};
use super::{
    Active, LogDefect, LogError, Numbers, Owner, SEGMENT_LENGTH_READ_MAX, SEGMENT_SUFFIX, SNAPSHOT, Segment,
    Wrong, snapshot_file,
};
use crate::disk::{self, LogReach};

/// The end of the last segment.
#[derive(Debug)]
pub(super) struct Tail {
    id: SegmentId,
    /// The last block and its range.
    last_block: Option<(Range<usize>, Vec<u8>)>,
    end: u64,
    torn: u64,
    /// The length of the file.
    length: u64,
    step: u64,
}

impl Tail {
    fn new(header: &Header, contents: &Contents, bytes: &[u8]) -> Self {
        let block = |range: &Range<usize>| {
            (range.clone(), bytes.get(range.clone()).map(<[u8]>::to_vec).unwrap_or_default())
        };
        let last_block = contents.blocks.last().map(block);
        let (end, torn, length) = (contents.end as u64, contents.torn as u64, bytes.len() as u64);
        Self { id: header.id, last_block, end, torn, length, step: header.step }
    }

    /// Overwrites a torn block with zeros, and makes the complete blocks durable. The length of the file is not changed.
    pub(super) fn mend(self, path: &Path) -> Result<Active, LogError> {
        let mended = disk::open_existing(path).and_then(|file| {
            let torn = usize::try_from(self.torn).map_err(io::Error::other)?;
            file.write_all_at(&vec![0; torn], self.end)?;
            // An earlier process may have been killed before its flush, or its flush failed. The blocks before it were
            // flushed, because otherwise it would not have been begun.
            if let Some((range, bytes)) = &self.last_block {
                file.write_all_at(bytes, range.start as u64)?;
            }
            file.sync_all()?;
            file.write_all_at(&self.id.flushed_mark(self.end), LAST_SECTOR_AT as u64)?;
            Ok(Active { file, id: self.id, end: self.end, length: self.length, step: self.step })
        });
        mended.map_err(|error| LogError::io("write", path, error))
    }
}

/// A log that was read and not changed.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// The records after the snapshot.
    pub(super) records: Vec<Record>,
    pub(super) numbers: Numbers,
    /// The segments that are needed, by their headers.
    pub(super) segments: VecDeque<Segment>,
    /// The segments that are not needed.
    pub(super) superfluous: Vec<PathBuf>,
    pub(super) index_next: u64,
    pub(super) tail: Option<Tail>,
}

impl Reading {
    /// Reads the log in this directory, and checks it against the state file's bounds.
    pub(super) fn read(dir: &Path, owner: &Owner, bounds: &Bounds) -> Result<Self, LogError> {
        let reading = Self::read_files(dir, owner)?;
        bounds.check(dir, reading.reach())?;
        Ok(reading)
    }

    /// The extent of the log.
    pub(super) fn reach(&self) -> LogReach {
        LogReach { segment: self.index_next - 1, last: self.numbers.last }
    }

    /// The voters that the log states last; `None` if it states none.
    pub(super) fn voters(&self) -> Option<&Arc<Voters>> {
        let stated = self.records.iter().rev().find_map(Record::voters);
        stated.or_else(|| self.snapshot.as_ref().map(|snapshot| &snapshot.voters))
    }

    fn read_files(dir: &Path, owner: &Owner) -> Result<Self, LogError> {
        let snapshot = read_snapshot(&dir.join(SNAPSHOT), owner)?;
        let base = snapshot.as_ref().map_or(LeaderSequence::NONE, |snapshot| snapshot.number);
        let mut all = read_headers(dir, owner)?;
        // A segment that begins at or below the snapshot is enough: the snapshot has every record before it.
        let needed = all.iter().rposition(|(_, header)| header.after <= base);
        let damaged = |found: String| LogError::Damaged { path: dir.to_owned(), found };
        if let (None, Some((path, first))) = (needed, all.first()) {
            let missing = format!(
                "{} goes on after the record {}, and what comes before it is missing",
                path.display(),
                first.after
            );
            return Err(damaged(missing));
        }
        let rest = all.split_off(needed.unwrap_or_default());
        if snapshot.is_none() && !all.is_empty() {
            return Err(damaged("two segments begin with the first record".to_owned()));
        }
        let superfluous: Vec<PathBuf> = all.into_iter().map(|(path, _)| path).collect();
        let mut reading = Self {
            snapshot,
            records: Vec::new(),
            numbers: Numbers::after(rest.first().map_or(base, |(_, first)| first.after)),
            segments: VecDeque::new(),
            superfluous,
            index_next: rest.last().map_or(1, |(_, last)| last.index.saturating_add(1)),
            tail: None,
        };
        let count = rest.len();
        for (place, (path, header)) in rest.into_iter().enumerate() {
            reading.read_segment(dir, path, &header, base, place + 1 == count)?;
        }
        if !reading.numbers.may_be_cut_at(base) {
            return Err(damaged(format!(
                "the snapshot ends with the record {base}, which the log does not have"
            )));
        }
        reading.numbers.cut(base);
        Ok(reading)
    }

    /// The defects that will be repaired.
    pub(super) fn found(&self) -> Vec<LogDefect> {
        let torn = self.tail.iter().zip(self.segments.back()).filter(|(tail, _)| tail.torn > 0);
        let found = torn.map(|(tail, segment)| LogDefect::TornTail {
            path: segment.path.clone(),
            bytes: tail.torn,
            after: segment.last,
        });
        found.collect()
    }

    fn read_segment(
        &mut self,
        dir: &Path,
        path: PathBuf,
        header: &Header,
        base: LeaderSequence,
        is_last: bool,
    ) -> Result<(), LogError> {
        if header.after != self.numbers.last {
            let (last, after) = (self.numbers.last, header.after);
            let found = format!("the records after {last} up to {after} are missing");
            return Err(LogError::Damaged { path: dir.to_owned(), found });
        }
        let bytes = read_file(&path)?;
        let contents = segment::contents(header, &bytes).map_err(|wrong| wrong.of(&path))?;
        if contents.torn > 0 && !is_last {
            let found = "no whole block stands there, and another segment was made later".to_owned();
            return Err(Wrong::Damaged { offset: contents.end as u64, found }.of(&path));
        }
        for block in &contents.blocks {
            for record in segment::records(&header.id, &bytes, block).map_err(|wrong| wrong.of(&path))? {
                if !self.numbers.push(&record) {
                    let found = format!(
                        "the block there has right checksums, and {} does not follow {}",
                        record.number, self.numbers.last
                    );
                    return Err(Wrong::Damaged { offset: block.start as u64, found }.of(&path));
                }
                if record.number > base {
                    self.records.push(record);
                }
            }
        }
        self.tail = is_last.then(|| Tail::new(header, &contents, &bytes));
        self.segments.push_back(Segment { path, last: self.numbers.last });
        Ok(())
    }
}

fn read_snapshot(path: &Path, owner: &Owner) -> Result<Option<Arc<Snapshot>>, LogError> {
    let file = match disk::open_existing(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("open", path, error)),
        Ok(file) => file,
    };
    let (of, snapshot) = snapshot_file::read(&mut BufReader::new(file)).map_err(|wrong| wrong.of(path))?;
    refuse_foreign(path, owner, of)?;
    Ok(Some(Arc::new(snapshot)))
}

/// Reads the first pages of all segments, in their order.
fn read_headers(dir: &Path, owner: &Owner) -> Result<Vec<(PathBuf, Header)>, LogError> {
    let listed = |error| LogError::io("list", dir, error);
    let mut headers = Vec::new();
    for entry in fs::read_dir(dir).map_err(listed)? {
        let entry = entry.map_err(listed)?;
        let name = entry.file_name();
        let Some(index) = name.to_str().and_then(segment_index) else { continue };
        let path = entry.path();
        let file = disk::open_existing(&path).map_err(|error| LogError::io("open", &path, error))?;
        let mut first = Vec::new();
        let read = file.take(PAGE_LENGTH as u64).read_to_end(&mut first);
        read.map_err(|error| LogError::io("read", &path, error))?;
        let header = Header::decode(&first).map_err(|wrong| wrong.of(&path))?;
        refuse_foreign(&path, owner, header.owner.clone())?;
        if header.index != index {
            let found = format!("it says that it is the segment {:016x}", header.index);
            return Err(LogError::Damaged { path, found });
        }
        headers.push((path, header));
    }
    headers.sort_by_key(|(_, header)| header.index);
    Ok(headers)
}

/// The index in the file name of a segment; `None` for any other file, which is ignored.
pub(super) fn segment_index(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SEGMENT_SUFFIX)?;
    let index = u64::from_str_radix(digits, 16).ok()?;
    (format!("{index:016x}") == digits).then_some(index)
}

fn refuse_foreign(path: &Path, owner: &Owner, of: Owner) -> Result<(), LogError> {
    if of == *owner {
        return Ok(());
    }
    Err(LogError::Foreign { path: path.to_owned(), election: of.election, node: of.node })
}

/// Reads a whole segment. Its length is limited, and so is the memory.
fn read_file(path: &Path) -> Result<Vec<u8>, LogError> {
    let file = disk::open_existing(path).map_err(|error| LogError::io("open", path, error))?;
    let mut bytes = Vec::new();
    let read = file.take(SEGMENT_LENGTH_READ_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| LogError::io("read", path, error))?;
    if bytes.len() as u64 > SEGMENT_LENGTH_READ_MAX {
        let found = "it is longer than segments are".to_owned();
        return Err(LogError::Damaged { path: path.to_owned(), found });
    }
    Ok(bytes)
}
