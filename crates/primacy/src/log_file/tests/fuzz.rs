//! A segment or a snapshot that was torn, cut, flipped or forged is refused or has its former content, and never a mixture.

use primacy_fuzz::Draw;

use super::*;

/// The step of these segments: one sector.
const STEP: u64 = 512;

#[test]
fn log_segment() {
    primacy_fuzz::hold("log_segment", |bytes| {
        let mut draw = Draw::new(bytes);
        match draw.byte() % 3 {
            0 => damaged_segment(&mut draw),
            1 => forged_segment(&mut draw),
            _ => foreign_segment(draw.rest()),
        }
    });
}

#[test]
fn log_snapshot() {
    primacy_fuzz::hold("log_snapshot", |bytes| {
        let mut draw = Draw::new(bytes);
        match draw.byte() % 3 {
            0 => damaged_snapshot(&mut draw),
            1 => forged_snapshot(&mut draw),
            _ => foreign_snapshot(draw.rest()),
        }
    });
}

fn header(draw: &mut Draw<'_>) -> Header {
    let mut id = [0; SegmentId::LENGTH];
    id.iter_mut().zip(draw.bytes()).for_each(|(to, from)| *to = *from);
    let after = drawn_number(draw);
    Header { owner: owner(draw), id: SegmentId::new(id), index: draw.number(), after, step: STEP }
}

/// The header of a segment with this id.
fn of(id: SegmentId) -> Header {
    let owner = Owner { election: String::new(), node: a() };
    Header { owner, id, index: 1, after: LeaderSequence::NONE, step: STEP }
}

fn owner(draw: &mut Draw<'_>) -> Owner {
    Owner { election: draw.text(), node: node(draw) }
}

fn node(draw: &mut Draw<'_>) -> NodeId {
    NodeId::new(draw.one_of(&["a", "b", "c", "node-1.example:7401"])).unwrap()
}

fn drawn_number(draw: &mut Draw<'_>) -> LeaderSequence {
    number(draw.number(), draw.number())
}

fn drawn_voters(draw: &mut Draw<'_>) -> Arc<Voters> {
    let members = (0..draw.byte() % 5).map(|_| (node(draw), Arc::from(draw.text()))).collect();
    Arc::new(Voters { number: drawn_number(draw), members })
}

fn drawn_record(draw: &mut Draw<'_>) -> Record {
    let number = drawn_number(draw);
    let body = match draw.byte() % 3 {
        0 => RecordBody::Begin { after: drawn_number(draw), voters: drawn_voters(draw) },
        1 => RecordBody::Voters(drawn_voters(draw)),
        _ => RecordBody::Payload(Arc::from(draw.bytes())),
    };
    Record { number, body }
}

/// Blocks of which the last one may be torn, with damage to some of them. The blocks that are read are exactly the first intact ones.
/// If a block was begun after one that is not intact, all are refused.
fn damaged_segment(draw: &mut Draw<'_>) {
    let header = header(draw);
    let mut good = header.encode();
    assert_eq!(Header::decode(&good).unwrap(), header);
    let mut blocks = Vec::new();
    let mut written = Vec::new();
    for _ in 0..=draw.byte() % 4 {
        let records: Vec<Record> = (0..=draw.byte() % 3).map(|_| drawn_record(draw)).collect();
        let content = format::message::Block { records: records.iter().map(format::record).collect() };
        let block = block(&header.id, good.len(), &content.encode_to_vec());
        blocks.push(good.len()..good.len() + block.len());
        good.extend(block);
        written.push(records);
    }
    if draw.byte() % 2 == 1 {
        let flushed = blocks.last().map_or(0, |last| last.start as u64);
        good[LAST_SECTOR_AT..PAGE_LENGTH].copy_from_slice(&header.id.flushed_mark(flushed));
    }
    let length = segment::length_for(good.len() as u64, STEP) + STEP * u64::from(draw.byte() % 3);
    good.resize(usize::try_from(length).unwrap(), 0);
    let mut bytes = good.clone();
    let last = blocks.last().unwrap().clone();
    tear(&mut bytes, &last, draw);
    let is_torn_only = bytes.clone();
    for block in &blocks {
        burst(&mut bytes[block.clone()], draw);
    }
    // For some of the inputs, the file was truncated as well.
    let cut = PAGE_LENGTH + usize::from(draw.short());
    if draw.byte() % 4 == 1 {
        bytes.truncate(cut);
    }
    let same = |range: &Range<usize>| bytes.get(range.clone()) == good.get(range.clone());
    let whole = blocks.iter().take_while(|range| same(range)).count();
    let begins = whole.checked_sub(1).map_or(PAGE_LENGTH, |last| blocks[last].end);
    match segment::contents(&header, &bytes) {
        Ok(contents) => {
            assert_eq!((&contents.blocks[..], contents.end), (&blocks[..whole], begins));
            assert!(whole + 1 >= blocks.len(), "a block that was acknowledged is not missed");
            assert!(whole == blocks.len() || has_unwritten(&bytes, &last), "rot is taken for a torn write");
            let rest = bytes[begins..].iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            assert_eq!(contents.torn, rest);
            for (range, records) in contents.blocks.iter().zip(written) {
                assert_eq!(segment::records(&header.id, &bytes, range).unwrap(), records);
            }
        }
        Err(Wrong::Damaged { offset, .. }) => {
            assert!(bytes != is_torn_only, "a write that was interrupted is no damage");
            assert!(offset == begins as u64 || offset == bytes.len() as u64);
        }
        Err(wrong) => panic!("{wrong:?}"),
    }
}

/// Splits a range at the borders of sectors.
fn sectors(range: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    const SECTOR_LENGTH: usize = 512;
    let (start, end) = (range.start, range.end);
    (start / SECTOR_LENGTH..end.div_ceil(SECTOR_LENGTH))
        .map(move |sector| (sector * SECTOR_LENGTH).max(start)..((sector + 1) * SECTOR_LENGTH).min(end))
}

/// Returns whether a part of the block was not written: a sector, or the header, because bits after it may have been flipped.
fn has_unwritten(bytes: &[u8], block: &Range<usize>) -> bool {
    let header = block.start..block.start + BLOCK_HEADER_LENGTH;
    sectors(block).chain([header]).any(|part| bytes[part].iter().all(|&byte| byte == 0))
}

/// Erases some sectors of a block, as if they were not written yet.
fn tear(bytes: &mut [u8], block: &Range<usize>, draw: &mut Draw<'_>) {
    let missing = draw.byte();
    for (_, sector) in sectors(block).take(8).enumerate().filter(|(index, _)| missing >> index & 1 == 1) {
        bytes[sector].fill(0);
    }
}

/// Flips bits of up to four adjacent bytes. A checksum of 32 bits always detects that, unless the bytes are partly its
/// own.
fn burst(block: &mut [u8], draw: &mut Draw<'_>) {
    let at = usize::from(draw.short()) % block.len();
    let end = [4, 8, 12, 16, block.len()].into_iter().find(|end| at < *end).unwrap();
    let flips = draw.bytes().iter().take(4);
    block[at..end].iter_mut().zip(flips).for_each(|(byte, flip)| *byte ^= flip);
}

/// Right checksums and any content: if it can be read, it can be written, and then reads the same.
fn forged_segment(draw: &mut Draw<'_>) {
    let version = u32::from(draw.byte() % 3);
    let first = page::seal(*b"PRIMLOG\x1a", version, draw.bytes());
    match Header::decode(&first) {
        Ok(header) => {
            assert_eq!(version, page::VERSION);
            assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        }
        Err(Wrong::Newer(newer)) => assert!(newer == version && version > page::VERSION),
        Err(Wrong::Damaged { .. }) => assert!(version <= page::VERSION),
        Err(wrong) => panic!("{wrong:?}"),
    }
    let id = SegmentId::new([7; SegmentId::LENGTH]);
    let mut bytes = vec![0; PAGE_LENGTH];
    bytes.extend(block(&id, PAGE_LENGTH, draw.rest()));
    let end = bytes.len();
    bytes.resize(usize::try_from(segment::length_for(end as u64, STEP)).unwrap(), 0);
    let contents = segment::contents(&of(id), &bytes).unwrap();
    assert_eq!((contents.blocks.len(), contents.end, contents.torn), (1, end, 0));
    if let Ok(records) = segment::records(&id, &bytes, &contents.blocks[0]) {
        let again = format::message::Block { records: records.iter().map(format::record).collect() };
        assert_eq!(format::read_block(&again.encode_to_vec()), Ok(records));
    }
}

/// Any bytes: none of them is taken for a record.
fn foreign_segment(bytes: &[u8]) {
    assert!(Header::decode(bytes).is_err() || bytes.len() >= PAGE_LENGTH);
    let id = SegmentId::new([9; SegmentId::LENGTH]);
    let mut bytes = [&[0; PAGE_LENGTH][..], bytes].concat();
    if !(bytes.len() as u64).is_multiple_of(STEP) {
        assert!(segment::contents(&of(id), &bytes).is_err());
    }
    bytes.resize(usize::try_from(segment::length_for(bytes.len() as u64, STEP)).unwrap(), 0);
    if let Ok(contents) = segment::contents(&of(id), &bytes) {
        assert!(contents.end + contents.torn <= bytes.len());
        for block in &contents.blocks {
            let _ = segment::records(&id, &bytes, block);
        }
    }
}

fn written_snapshot(draw: &mut Draw<'_>) -> (Owner, Snapshot, Vec<u8>) {
    let owner = owner(draw);
    let snapshot = Snapshot {
        number: drawn_number(draw),
        voters: drawn_voters(draw),
        state: Arc::from([draw.bytes(), draw.bytes()].concat()),
    };
    let mut bytes = Vec::new();
    snapshot_file::write(&mut bytes, &owner, [draw.byte(); 16], &snapshot).unwrap();
    (owner, snapshot, bytes)
}

/// A snapshot with some bytes flipped or truncated: it is refused, or unchanged.
fn damaged_snapshot(draw: &mut Draw<'_>) {
    let (owner, snapshot, good) = written_snapshot(draw);
    let mut bytes = good.clone();
    // Most of the first page is zeros.
    let at = usize::from(draw.short()) % bytes.len();
    let at = if draw.byte() % 2 == 1 { at } else { PAGE_LENGTH + at % (bytes.len() - PAGE_LENGTH) };
    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= draw.byte());
    if draw.byte() % 4 == 1 {
        bytes.truncate(usize::from(draw.short()));
    }
    match snapshot_file::read(&mut bytes.as_slice()) {
        Ok(read) => assert_eq!((read, bytes), ((owner, snapshot), good)),
        Err(Wrong::Damaged { .. }) => assert!(bytes != good),
        Err(wrong) => panic!("{wrong:?}"),
    }
}

/// A first page with right checksums, and any content there and after it.
fn forged_snapshot(draw: &mut Draw<'_>) {
    let version = u32::from(draw.byte() % 3);
    let mut bytes = page::seal(*b"PRIMSNP\x1a", version, draw.bytes());
    bytes.extend(draw.rest());
    match snapshot_file::read(&mut bytes.as_slice()) {
        Ok((owner, snapshot)) => {
            let mut again = Vec::new();
            snapshot_file::write(&mut again, &owner, [1; 16], &snapshot).unwrap();
            assert_eq!(snapshot_file::read(&mut again.as_slice()).unwrap(), (owner, snapshot));
        }
        Err(Wrong::Newer(newer)) => assert!(newer == version && version > page::VERSION),
        Err(Wrong::Damaged { .. }) => assert!(version <= page::VERSION),
        Err(wrong) => panic!("{wrong:?}"),
    }
}

/// Any bytes are no snapshot.
fn foreign_snapshot(bytes: &[u8]) {
    assert!(snapshot_file::read(&mut &bytes[..]).is_err() || bytes.len() > PAGE_LENGTH);
}
