//! Incomplete writes are overwritten with zeros; damage is refused.

use primacy_core::rng::Rng;

use super::page::SECTOR_LENGTH;
use super::*;

/// A log of a few blocks in one segment, with their ranges.
struct Taken {
    dir: Dir,
    records: Vec<Record>,
    bytes: Vec<u8>,
    /// The range of each block, which has one record.
    blocks: Vec<Range<usize>>,
}

impl Taken {
    fn new(count: u64) -> Self {
        let dir = Dir::new();
        let step = 2 * PAGE_LENGTH as u64;
        let (mut log, ..) = dir.open_with(Limits { step, ..Limits::default() }).unwrap();
        let records = written(&mut log, count);
        drop(log);
        let bytes = fs::read(dir.segment(1)).unwrap();
        assert_eq!(bytes.len() as u64, step);
        let header = Header::decode(&bytes).unwrap();
        let contents = segment::contents(&header, &bytes).unwrap();
        assert_eq!((contents.blocks.len(), contents.torn), (records.len(), 0));
        Self { dir, records, bytes, blocks: contents.blocks }
    }

    /// Opens the log with these bytes; expects `records` records, and `cut` overwritten bytes. Then writes one more record, and opens
    /// it once more.
    #[track_caller]
    fn opens(&self, bytes: &[u8], records: usize, cut: usize) {
        fs::write(self.dir.segment(1), bytes).unwrap();
        let (mut log, stored, found) = self.dir.open_small().unwrap();
        let mut records = self.records[..records].to_vec();
        let after = records.last().map_or(LeaderSequence::NONE, |last| last.number);
        assert_eq!(stored.records, records);
        let torn = LogDefect::TornTail { path: self.dir.segment(1), bytes: cut as u64, after };
        assert_eq!(found, if cut == 0 { vec![] } else { vec![torn] });
        let more =
            if after == LeaderSequence::NONE { begin(9, after) } else { payload(2, after.counter + 1, b"m") };
        log.write(&Write::Append(vec![more.clone()])).unwrap();
        records.push(more);
        drop(log);
        let (_log, stored, found) = self.dir.open_small().unwrap();
        assert_eq!((stored.records, found), (records, vec![]));
    }
}

#[test]
fn a_segment_that_was_cut_at_any_byte_is_refused() {
    let taken = Taken::new(4);
    let last = taken.blocks.last().unwrap().end;
    for length in (0..=last + 20).chain([taken.bytes.len() - 1]) {
        fs::write(taken.dir.segment(1), &taken.bytes[..length]).unwrap();
        let error = taken.dir.refused();
        assert!(matches!(error, LogError::Damaged { .. }), "{length}: {error}");
        assert!(length < PAGE_LENGTH || error.to_string().contains("it was cut"), "{length}: {error}");
    }
    taken.opens(&taken.bytes, taken.records.len(), 0);
}

/// Even if it was truncated at a multiple of the step: the block states its length, and there is always room for
/// another header.
#[test]
fn a_segment_that_was_cut_at_a_step_is_refused() {
    for length in 350..=512 {
        let dir = Dir::new();
        let limits = Limits { step: 512, ..Limits::default() };
        let (mut log, ..) = dir.open_with(limits).unwrap();
        log.write(&Write::Append(vec![begin(2, LeaderSequence::NONE)])).unwrap();
        log.write(&Write::Append(vec![payload(2, 2, &vec![7; length])])).unwrap();
        let records =
            [begin(2, LeaderSequence::NONE), payload(2, 2, &vec![7; length]), payload(2, 3, &[8; 700])];
        log.write(&Write::Append(vec![records[2].clone()])).unwrap();
        drop(log);
        let bytes = fs::read(dir.segment(1)).unwrap();
        assert!(bytes.len() >= PAGE_LENGTH + 1_024);
        let header = Header::decode(&bytes).unwrap();
        let end = segment::contents(&header, &bytes).unwrap().end;
        for cut in (PAGE_LENGTH..bytes.len()).step_by(512) {
            let is_whole = cut >= end + BLOCK_HEADER_LENGTH;
            assert_eq!(
                segment::contents(&header, &bytes[..cut]).is_ok(),
                is_whole,
                "{length} bytes, cut at {cut}"
            );
        }
        assert_eq!(dir.open_with(limits).unwrap().1.records, records);
    }
}

/// If a damaged last block were taken for an unwritten one, an acknowledged record would be lost.
#[test]
fn a_flipped_bit_anywhere_is_refused_or_changes_nothing() {
    let taken = Taken::new(2);
    let last = taken.blocks.last().unwrap().clone();
    let mut counts = [0, 0];
    for at in (0..300).chain(PAGE_LENGTH - 3..last.end + 600).chain([taken.bytes.len() - 1]) {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = taken.bytes.clone();
            bytes[at] ^= flip;
            if at < last.end {
                fs::write(taken.dir.segment(1), &bytes).unwrap();
                let error = taken.dir.refused();
                assert!(matches!(error, LogError::Damaged { .. }), "{at}: {error}");
                assert!(error.to_string().contains(REPAIR_COMMAND), "{at}: {error}");
                counts[0] += 1;
            } else if at < last.end + BLOCK_HEADER_LENGTH {
                // No interrupted write leaves half of a header in one sector.
                fs::write(taken.dir.segment(1), &bytes).unwrap();
                assert!(matches!(taken.dir.refused(), LogError::Damaged { .. }), "{at}");
            } else if flip == 1 {
                taken.opens(&bytes, taken.records.len(), at + 1 - last.end);
                counts[1] += 1;
            }
        }
    }
    assert!(counts.iter().all(|&count| count > 500), "{counts:?}");
}

/// Without the mask, a record of zeros would look like an unwritten one.
#[test]
fn no_record_makes_a_sector_of_zeros() {
    let taken = Taken::new(1);
    let header = Header::decode(&taken.bytes).unwrap();
    let at = taken.blocks.last().unwrap().end;
    let content = format::message::Block { records: vec![format::record(&payload(2, 3, &[0; 2_000]))] };
    let block = block(&header.id, at, &content.encode_to_vec());
    for flipped in 0..block.len() {
        let mut bytes = taken.bytes.clone();
        bytes[at..at + block.len()].copy_from_slice(&block);
        bytes[at + flipped] ^= 4;
        assert!(segment::contents(&header, &bytes).is_err(), "{flipped}");
    }
}

#[test]
fn of_a_torn_write_any_sectors_may_have_been_written() {
    let taken = Taken::new(1);
    let header = Header::decode(&taken.bytes).unwrap();
    let end = taken.blocks.last().unwrap().end;
    let content = format::message::Block { records: vec![format::record(&payload(2, 3, &[0xee; 2_500]))] };
    let block = block(&header.id, end, &content.encode_to_vec());
    let mut whole = taken.bytes.clone();
    whole[end..end + block.len()].copy_from_slice(&block);
    let (first, last) = (end / SECTOR_LENGTH, (end + block.len() - 1) / SECTOR_LENGTH);
    let count = last - first + 1;
    assert!(count >= 6, "{count}");
    for written in 0..(1_u32 << count) - 1 {
        let mut bytes = taken.bytes.clone();
        for sector in (first..=last).filter(|sector| written >> (sector - first) & 1 == 1) {
            let range = sector * SECTOR_LENGTH..(sector + 1) * SECTOR_LENGTH;
            bytes[range.clone()].copy_from_slice(&whole[range]);
        }
        let contents = segment::contents(&header, &bytes).unwrap();
        assert_eq!((contents.blocks.len(), contents.end), (taken.blocks.len(), end), "{written:b}");
        // A few of them also as files.
        if written % 16 == 5 {
            taken.opens(&bytes, taken.records.len(), used(&bytes).len() - end);
        }
    }
}

/// Unwritten space reads as zeros. The mark of the last flush, and later blocks, show whether it was written. The exception is the
/// last block, if its mark had not reached the disk before the power cut.
#[test]
fn flushed_blocks_that_read_as_zeros_are_missed_but_the_last_before_its_mark_is_on_the_disk() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open().unwrap();
    let records = [begin(2, LeaderSequence::NONE), payload(2, 2, &[0xee; 2_500]), payload(2, 3, b"later")];
    log.write(&Write::Append(vec![records[0].clone()])).unwrap();
    let mark_before = fs::read(dir.segment(1)).unwrap()[LAST_SECTOR_AT..PAGE_LENGTH].to_vec();
    log.write(&Write::Append(vec![records[1].clone()])).unwrap();
    drop(log);
    let lose = || {
        let mut bytes = fs::read(dir.segment(1)).unwrap();
        let contents = segment::contents(&Header::decode(&bytes).unwrap(), &bytes).unwrap();
        let sector = contents.blocks[1].start.next_multiple_of(SECTOR_LENGTH);
        bytes[sector..sector + SECTOR_LENGTH].fill(0);
        fs::write(dir.segment(1), &bytes).unwrap();
    };
    let whole = fs::read(dir.segment(1)).unwrap();
    lose();
    assert!(dir.open().unwrap_err().to_string().contains("blocks were flushed up to byte"));
    // From any byte on, also from the beginning of a block.
    for from in (PAGE_LENGTH..used(&whole).len()).step_by(100) {
        let mut bytes = whole.clone();
        bytes[from..].fill(0);
        fs::write(dir.segment(1), &bytes).unwrap();
        assert!(matches!(dir.open().unwrap_err(), LogError::Damaged { .. }), "{from}");
    }
    let mut bytes = whole.clone();
    bytes[LAST_SECTOR_AT..PAGE_LENGTH].copy_from_slice(&mark_before);
    fs::write(dir.segment(1), &bytes).unwrap();
    lose();
    let (_, stored, found) = dir.open().unwrap();
    assert_eq!(
        (stored.records, found.len()),
        (records[..1].to_vec(), 1),
        "the record that was acknowledged is lost"
    );
    // Without the mark it is still noticed for any block but the last.
    let mut bytes = whole;
    bytes[LAST_SECTOR_AT..PAGE_LENGTH].fill(0);
    fs::write(dir.segment(1), bytes).unwrap();
    dir.open().unwrap().0.write(&Write::Append(vec![records[2].clone()])).unwrap();
    lose();
    assert!(matches!(dir.open().unwrap_err(), LogError::Damaged { .. }));
}

#[test]
fn a_block_that_was_begun_after_a_broken_one_proves_that_it_was_whole_once() {
    let taken = Taken::new(3);
    let [.., broken, last] = taken.blocks.as_slice() else { unreachable!("there are four") };
    // Both are damaged, the last one only in its content.
    let mut bytes = taken.bytes.clone();
    bytes[broken.start + 3] ^= 1;
    bytes[last.end - 1] ^= 1;
    fs::write(taken.dir.segment(1), &bytes).unwrap();
    let error = taken.dir.refused().to_string();
    let [broken, later] = [broken, last].map(|block| format!("at byte {}", block.start));
    assert!(error.contains(&broken) && error.contains(&later), "{error}");
    // Zeros in place of the whole block, as from lost sectors.
    let mut bytes = taken.bytes.clone();
    bytes[taken.blocks[1].clone()].fill(0);
    fs::write(taken.dir.segment(1), &bytes).unwrap();
    assert!(matches!(taken.dir.refused(), LogError::Damaged { .. }));
}

#[test]
fn what_looks_like_a_block_and_was_not_written_there_as_one_is_none() {
    let taken = Taken::new(3);
    let id = Header::decode(&taken.bytes).unwrap().id;
    let end = taken.blocks.last().unwrap().end;
    let copied = taken.bytes[taken.blocks[3].clone()].to_vec();
    // The same block at another offset; a block of another segment; and the beginning of a block whose content is both.
    let other = SegmentId::new([0x11; SegmentId::LENGTH]);
    let foreign = block(&other, end, b"x");
    let mut of_both = block(&id, end, &[copied.as_slice(), &foreign, &copied].concat());
    *of_both.last_mut().unwrap() ^= 1;
    for written in [&copied, &foreign, &of_both] {
        let mut bytes = taken.bytes.clone();
        bytes[end..end + written.len()].copy_from_slice(written);
        fs::write(taken.dir.segment(1), &bytes).unwrap();
        let error = taken.dir.refused().to_string();
        assert!(error.contains(&format!("at byte {end}")) && !error.contains("written later"), "{error}");
    }
}

#[test]
fn a_segment_before_the_last_one_is_never_torn() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    written(&mut log, 30);
    drop(log);
    let good = dir.files();
    assert!(good.len() >= 3, "{}", good.len());
    let first = dir.segment(1);
    let header = Header::decode(&fs::read(&first).unwrap()).unwrap();
    let bytes = fs::read(&first).unwrap();
    let contents = segment::contents(&header, &bytes).unwrap();
    let (last, end) = (contents.blocks.last().unwrap().clone(), contents.end);
    for (at, says) in [(last.start, "damaged"), (last.end - 1, "damaged"), (end + 40, "another segment")] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        fs::write(&first, &bytes).unwrap();
        let error = dir.refused();
        assert!(matches!(error, LogError::Damaged { .. }) && error.to_string().contains(says), "{error}");
    }
    // The last block is treated as if it had never been written.
    let mut without = bytes.clone();
    without[last].fill(0);
    fs::write(&first, &without).unwrap();
    let error = dir.refused();
    assert!(error.to_string().contains("blocks were flushed up to byte"), "{error}");
    dir.put(&good);
    dir.open_small().unwrap();
}

#[test]
fn blocks_with_right_checksums_and_wrong_records_are_damage() {
    let taken = Taken::new(1);
    let id = Header::decode(&taken.bytes).unwrap().id;
    let end = taken.blocks.last().unwrap().end;
    let of = |records: &[Record]| {
        format::message::Block { records: records.iter().map(format::record).collect() }.encode_to_vec()
    };
    for content in [
        of(&[]),
        of(&[payload(2, 4, b"")]),
        of(&[payload(2, 2, b"")]),
        b"\xff".to_vec(),
        b"\x0a\x00".to_vec(),
    ] {
        let mut bytes = taken.bytes.clone();
        let block = block(&id, end, &content);
        bytes[end..end + block.len()].copy_from_slice(&block);
        fs::write(taken.dir.segment(1), &bytes).unwrap();
        let error = taken.dir.refused();
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_file_that_is_longer_than_any_segment_is_not_read() {
    let taken = Taken::new(1);
    // The file is sparse.
    let file = OpenOptions::new().write(true).open(taken.dir.segment(1)).unwrap();
    file.set_len(SEGMENT_LENGTH_READ_MAX + 1).unwrap();
    let error = taken.dir.open().unwrap_err();
    assert!(error.to_string().contains("longer than segments are"), "{error}");
    file.set_len(SEGMENT_LENGTH_READ_MAX).unwrap();
    assert_eq!(taken.dir.open().unwrap().1.records, taken.records);
}

#[test]
fn whatever_rots_in_a_snapshot_is_noticed() {
    let dir = Dir::new();
    let (mut log, ..) = dir.open_small().unwrap();
    let mut random = Rng::new(1);
    let state: Vec<u8> =
        (0..snapshot_file::PIECE_LENGTH_MAX + 50).map(|_| random.next_u64().to_be_bytes()[0]).collect();
    log.write(&Write::Snapshot(snapshot(number(5, 5), &state))).unwrap();
    drop(log);
    let path = dir.log().join(SNAPSHOT);
    let good = fs::read(&path).unwrap();
    let pieces = [PAGE_LENGTH, good.len() - 80];
    let near_pieces = pieces.into_iter().flat_map(|at| at..at + 80);
    for at in (0..120).chain(near_pieces).chain([good.len() - 2_000]) {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert!(snapshot_file::read(&mut bytes.as_slice()).is_err(), "{at}");
        if at % 40 == 0 {
            fs::write(&path, &bytes).unwrap();
            let error = dir.refused();
            assert!(error.to_string().contains("snapshot is damaged"), "{error}");
        }
    }
    for length in (0..good.len()).filter(|length| length % 997 == 0 || good.len() - length < 100) {
        assert!(snapshot_file::read(&mut &good[..length]).is_err(), "{length}");
    }
    let longer = [good.as_slice(), b"\0"].concat();
    assert!(snapshot_file::read(&mut longer.as_slice()).is_err());
    assert!(snapshot_file::read(&mut good.as_slice()).is_ok());
}
