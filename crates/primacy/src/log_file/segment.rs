//! A segment: one file of a log, with a first page and blocks.
//!
//! ```text
//!   0            4096                                       length of the file
//!   | first page | block | block | … | zeros that are there in advance … |
//!
//!   block:  0      4                 8        12                 16
//!           | mark | header checksum | length | content checksum | content … | end |
//! ```
//!
//! Numbers are big-endian. The mark is the beginning of the segment's id, a random number that no two segments share. Its first
//! byte is never zero, so that unwritten space never looks like a block. The header's checksum is the CRC-32 of the whole id, of
//! the block's offset in the file, of its length and of the content's checksum. So bytes that look like a block were written as
//! a block at this offset of this segment: they are neither remains of another file nor the content of a record.
//!
//! The content is XORed with the id, and the end is one byte that is not zero. So every written sector of a block has bytes that
//! are not zero, whatever the records are; a sector of zeros was not written. That distinguishes an interrupted write from
//! damage. (etcd uses the same test in its write-ahead log, whose records may have such sectors.)
//!
//! The last sector of the first page is the mark of the last flush: the offset of the last block's end, and the CRC-32 of the
//! id and of that offset. It is written after a block was flushed, and reaches the disk with the next block, or when the kernel
//! writes it. So blocks that read as zeros after they were flushed are noticed.

use std::ops::Range;

use primacy_core::{LeaderSequence, NodeId};
use prost::Message as _;

use super::format::{self, message};
use super::page::{self, LAST_SECTOR_AT, Magic, PAGE_LENGTH, SECTOR_LENGTH};
use super::{Owner, Wrong};

const MAGIC: Magic = *b"PRIMLOG\x1a";
/// The length of a block's header, in bytes.
pub(super) const BLOCK_HEADER_LENGTH: usize = 16;
const MARK_LENGTH: usize = 4;
/// The last byte of a block. A single flipped bit does not make it zero.
const END: u8 = 0xff;

/// The id of a segment, a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentId([u8; Self::LENGTH]);

impl SegmentId {
    pub(super) const LENGTH: usize = 16;

    /// Makes an id of random bytes.
    pub(super) const fn new(mut bytes: [u8; Self::LENGTH]) -> Self {
        bytes[0] |= 0x81; // No flipped bit makes a zero of it.
        Self(bytes)
    }

    fn mark(&self) -> [u8; MARK_LENGTH] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }

    /// Fills in the header of a block at this offset. `block` has room for the header, and the
    /// [finished](finish_content) content.
    ///
    /// # Panics
    /// If there is no room for the header, or the content has 4 GiB.
    pub(super) fn seal_block(&self, at: u64, block: &mut [u8]) {
        let (header, content) = block.split_at_mut(BLOCK_HEADER_LENGTH);
        self.mask(content);
        let length = u32::try_from(content.len()).expect("a block is shorter").to_be_bytes();
        let sum = crc32fast::hash(content).to_be_bytes();
        header[..4].copy_from_slice(&self.mark());
        header[4..8].copy_from_slice(&self.header_checksum(at, length, sum).to_be_bytes());
        header[8..12].copy_from_slice(&length);
        header[12..].copy_from_slice(&sum);
    }

    /// The mark of the last flush, for blocks that end at `end`.
    pub(super) fn flushed_mark(&self, end: u64) -> [u8; SECTOR_LENGTH] {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&self.0);
        sum.update(&end.to_be_bytes());
        let mut sector = [0; SECTOR_LENGTH];
        sector[..8].copy_from_slice(&end.to_be_bytes());
        sector[8..12].copy_from_slice(&sum.finalize().to_be_bytes());
        sector
    }

    /// The offset up to which blocks were certainly flushed, by the mark in these bytes of a segment.
    fn flushed(&self, bytes: &[u8]) -> Result<u64, Wrong> {
        let sector = bytes.get(LAST_SECTOR_AT..PAGE_LENGTH).unwrap_or_default();
        let end = sector.first_chunk().map_or(0, |end| u64::from_be_bytes(*end));
        if sector.iter().all(|&byte| byte == 0) || *sector == self.flushed_mark(end) {
            return Ok(end);
        }
        let found = "the mark there, up to where blocks were flushed, has a wrong checksum".to_owned();
        Err(Wrong::Damaged { offset: LAST_SECTOR_AT as u64, found })
    }

    /// XORs all but the last byte with the id; the same operation unmasks them.
    fn mask(&self, content: &mut [u8]) {
        let Some((_, masked)) = content.split_last_mut() else { return };
        // In pieces of the id's length: byte by byte it would take as long as the rest of an append before its flush.
        let key = u128::from_ne_bytes(self.0);
        let (pieces, rest) = masked.as_chunks_mut::<{ Self::LENGTH }>();
        pieces.iter_mut().for_each(|piece| *piece = (u128::from_ne_bytes(*piece) ^ key).to_ne_bytes());
        rest.iter_mut().zip(self.0).for_each(|(byte, key)| *byte ^= key);
    }

    fn header_checksum(&self, at: u64, length: [u8; 4], content_sum: [u8; 4]) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&self.0);
        sum.update(&at.to_be_bytes());
        sum.update(&length);
        sum.update(&content_sum);
        sum.finalize()
    }
}

/// The content of a segment's first page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) owner: Owner,
    pub(super) id: SegmentId,
    /// The index of the segment in its log, in the order of their creation.
    pub(super) index: u64,
    /// The record before its first one.
    pub(super) after: LeaderSequence,
    /// The step: its length is a multiple of this.
    pub(super) step: u64,
}

/// Appends the end byte to the content of a block.
pub(super) fn finish_content(block: &mut Vec<u8>) {
    block.push(END);
}

/// The length of a segment whose last block ends at `end`, with room for the header of the next one.
pub(super) const fn length_for(end: u64, step: u64) -> u64 {
    (end + BLOCK_HEADER_LENGTH as u64).next_multiple_of(step)
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let content = message::Segment {
            election: self.owner.election.clone(),
            node: self.owner.node.as_str().to_owned(),
            id: self.id.0.to_vec(),
            index: self.index,
            after: format::number(self.after),
            step: self.step,
        };
        page::seal(MAGIC, page::VERSION, &content.encode_to_vec())
    }

    /// Decodes the header at the beginning of a segment.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Wrong> {
        let content = page::unseal(MAGIC, bytes)?;
        let header = message::Segment::decode(content).map_err(|error| Wrong::first_page(&error))?;
        let node: NodeId = format::read_node(&header.node).map_err(|error| Wrong::first_page(&error))?;
        let id = format::read_id(&header.id).map_err(|error| Wrong::first_page(&error))?;
        if header.step == 0 {
            return Err(Wrong::first_page(&"its length grows by nothing"));
        }
        Ok(Self {
            owner: Owner { election: header.election, node },
            id: SegmentId::new(id),
            index: header.index,
            after: format::read_number(header.after),
            step: header.step,
        })
    }
}

/// The content of a segment after its first page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// The complete blocks, each with its header, in the order in which they were written.
    pub(super) blocks: Vec<Range<usize>>,
    /// The offset of the next block.
    pub(super) end: usize,
    /// The number of bytes of a torn block at `end`: it is incomplete, and no other block follows it.
    pub(super) torn: usize,
}

/// Parses a segment, including its first page.
///
/// Blocks are written one at a time, and each is flushed before the next one is written. So an incomplete block is the one that a
/// power cut has interrupted, if a sector of it was not written. It was once complete, and acknowledged, if another block was
/// begun after it, if all of its sectors were written, or if the mark of the last flush is behind it.
pub(super) fn contents(header: &Header, bytes: &[u8]) -> Result<Contents, Wrong> {
    let (id, length) = (&header.id, bytes.len());
    let damaged = |offset: usize, found: String| Err(Wrong::Damaged { offset: offset as u64, found });
    if !(length as u64).is_multiple_of(header.step) {
        return damaged(
            length,
            format!("it ends, and its length is no multiple of {}: it was cut", header.step),
        );
    }
    let mut blocks = Vec::new();
    let mut end = PAGE_LENGTH;
    while let Some(content) = header_at(id, bytes, end).and_then(|header| header.content(bytes, end)) {
        blocks.push(end..content.end);
        end = content.end;
    }
    let rest = bytes.get(end..).unwrap_or_default();
    if rest.len() < BLOCK_HEADER_LENGTH {
        return damaged(length, "it ends before another block has room: it was cut".to_owned());
    }
    let torn = rest.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    if torn > 0 {
        if let Some(later) = later_block(id, bytes, end + 1) {
            let found =
                format!("no whole block stands there, and one that was written later stands at byte {later}");
            return damaged(end, found);
        }
        if let Some(found) = rot(id, bytes, end) {
            return damaged(end, found);
        }
    }
    let flushed = id.flushed(bytes)?;
    if (end as u64) < flushed {
        return damaged(
            end,
            format!("no whole block stands there, and blocks were flushed up to byte {flushed}"),
        );
    }
    Ok(Contents { blocks, end, torn })
}

/// The reason why an incomplete block is not a torn write, but damage.
fn rot(id: &SegmentId, bytes: &[u8], at: usize) -> Option<String> {
    let (end, found) = match header_at(id, bytes, at) {
        Some(header) => {
            let end = at.saturating_add(BLOCK_HEADER_LENGTH).saturating_add(header.length);
            if end.saturating_add(BLOCK_HEADER_LENGTH) > bytes.len() {
                return Some("a block begins there that the file is too short for: it was cut".to_owned());
            }
            (end, "a block stands there, all of which was written, and its checksum is wrong")
        }
        None => {
            // If a header continues in the next sector, its part there may be zeros, and the bytes after it are not all
            // zeros.
            let end = at + BLOCK_HEADER_LENGTH;
            let goes_over = at % SECTOR_LENGTH + BLOCK_HEADER_LENGTH > SECTOR_LENGTH;
            let end = if goes_over { end.next_multiple_of(SECTOR_LENGTH).min(bytes.len()) } else { end };
            (end, "what stands there is neither a block nor a part of one")
        }
    };
    let mut sectors = bytes.get(at..end)?;
    let mut length = SECTOR_LENGTH - at % SECTOR_LENGTH;
    while !sectors.is_empty() {
        let (sector, rest) = sectors.split_at(length.min(sectors.len()));
        if sector.iter().all(|&byte| byte == 0) {
            return None;
        }
        (sectors, length) = (rest, SECTOR_LENGTH);
    }
    Some(found.to_owned())
}

/// The records of one block.
pub(super) fn records(
    id: &SegmentId,
    bytes: &[u8],
    block: &Range<usize>,
) -> Result<Vec<primacy_kv::replication::log::Record>, Wrong> {
    let mut content = bytes.get(block.start + BLOCK_HEADER_LENGTH..block.end).unwrap_or_default().to_vec();
    id.mask(&mut content);
    content.pop();
    format::read_block(&content).map_err(|error| Wrong::Damaged {
        offset: block.start as u64,
        found: format!("the block there has right checksums and wrong records: {error}"),
    })
}

/// A block's header with a right checksum.
struct BlockHeader {
    length: usize,
    content_sum: [u8; 4],
}

impl BlockHeader {
    /// The range of the content, if it is complete.
    fn content(&self, bytes: &[u8], at: usize) -> Option<Range<usize>> {
        let start = at + BLOCK_HEADER_LENGTH;
        let end = start.checked_add(self.length)?;
        let content = bytes.get(start..end)?;
        (crc32fast::hash(content).to_be_bytes() == self.content_sum).then_some(start..end)
    }
}

fn header_at(id: &SegmentId, bytes: &[u8], at: usize) -> Option<BlockHeader> {
    let (mark, rest) = bytes.get(at..)?.split_first_chunk::<MARK_LENGTH>()?;
    if *mark != id.mark() {
        return None;
    }
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (content_sum, _) = rest.split_first_chunk::<4>()?;
    if u32::from_be_bytes(*sum) != id.header_checksum(at as u64, *length, *content_sum) {
        return None;
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    Some(BlockHeader { length, content_sum: *content_sum })
}

/// The offset of the first block at or after `from`. A header is enough evidence: a block is begun only when the one before it
/// was flushed.
fn later_block(id: &SegmentId, bytes: &[u8], from: usize) -> Option<usize> {
    let mark = id.mark();
    let starts = bytes.get(from..)?.windows(MARK_LENGTH).enumerate();
    starts
        .filter(|(_, window)| **window == mark)
        .map(|(index, _)| from + index)
        .find(|&at| header_at(id, bytes, at).is_some())
}
