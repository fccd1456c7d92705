//! A segment of a log on disk: its layout, which a test must know to damage it at a chosen position.

use std::ops::Range;

/// The size of the first page of a log file, and of a slot of a state file.
pub const PAGE: usize = 4096;

/// The length of the header before the content of a block: the mark, the checksum of the header, the length, the
/// checksum of the content.
pub const BLOCK_HEADER: usize = 16;

/// The file name of the first segment.
pub const FIRST: &str = "0000000000000001.segment";

/// The random id of a segment: in its first page, after a tag and its length.
fn id(segment: &[u8]) -> Vec<u8> {
    let at = segment[..PAGE].windows(2).position(|two| two == [0x1a, 16]).unwrap() + 2;
    let mut id = segment[at..at + 16].to_vec();
    id[0] |= 0x81;
    id
}

/// The positions of the blocks, each with its header.
pub fn blocks(segment: &[u8]) -> Vec<Range<usize>> {
    let mark = &id(segment)[..4];
    let (mut blocks, mut at) = (Vec::new(), PAGE);
    while &segment[at..at + 4] == mark {
        let length: [u8; 4] = segment[at + 8..at + 12].try_into().unwrap();
        let end = at + BLOCK_HEADER + usize::try_from(u32::from_be_bytes(length)).unwrap();
        blocks.push(at..end);
        at = end;
    }
    blocks
}

/// The content of this block before it was combined with the segment's id.
pub fn content(segment: &[u8], block: &Range<usize>) -> Vec<u8> {
    masked(&id(segment), &segment[block.start + BLOCK_HEADER..block.end - 1])
}

fn masked(id: &[u8], content: &[u8]) -> Vec<u8> {
    content.iter().zip(id.iter().cycle()).map(|(byte, key)| byte ^ key).collect()
}

/// Returns a block with this content for this position of a segment.
pub fn block(segment: &[u8], at: usize, content: &[u8]) -> Vec<u8> {
    let id = id(segment);
    let content = &[masked(&id, content), vec![0xff]].concat();
    let (length, place) = (u32::try_from(content.len()).unwrap().to_be_bytes(), (at as u64).to_be_bytes());
    let sum = crc32(&[content]).to_be_bytes();
    let header = crc32(&[&id, &place, &length, &sum]).to_be_bytes();
    [&id[..4], &header, &length, &sum, content].concat()
}

pub fn crc32(parts: &[&[u8]]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    parts.iter().for_each(|part| sum.update(part));
    sum.finalize()
}
