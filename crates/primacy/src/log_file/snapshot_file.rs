//! The file of a snapshot: a first page, and the content in pieces, so that it need not be in memory all at once.
//!
//! ```text
//!   0            4096
//!   | first page | piece | piece | … | the last piece, which is empty |
//!
//!   piece:  0        4          8
//!           | length | checksum | bytes … |
//! ```
//!
//! The pieces contain the voters, in Protocol Buffers, and then the state; the first page has the length of each. Numbers are
//! big-endian. The checksum is the CRC-32 of the file's random id, of the index of the piece, of its length and of its bytes.

use std::io::{self, Read, Write};
use std::sync::Arc;

use primacy_kv::replication::log::Snapshot;
use prost::Message as _;

use super::format::{self, message};
use super::page::{self, LAST_SECTOR_AT, Magic, PAGE_LENGTH};
use super::{Owner, Wrong};

const MAGIC: Magic = *b"PRIMSNP\x1a";
/// The length of a piece's header, in bytes.
const PIECE_HEADER_LENGTH: usize = 8;
/// The most bytes of a piece.
pub(super) const PIECE_LENGTH_MAX: usize = 256 * 1024;

/// The random id of a snapshot's file.
pub(super) type SnapshotId = [u8; 16];

/// Writes a snapshot.
pub(super) fn write(
    to: &mut impl Write,
    owner: &Owner,
    id: SnapshotId,
    snapshot: &Snapshot,
) -> io::Result<()> {
    let voters = format::voters(&snapshot.voters).encode_to_vec();
    let content = message::Snapshot {
        election: owner.election.clone(),
        node: owner.node.as_str().to_owned(),
        id: id.to_vec(),
        number: format::number(snapshot.number),
        voters_length: voters.len() as u64,
        state_length: snapshot.state.len() as u64,
    };
    to.write_all(&page::seal(MAGIC, page::VERSION, &content.encode_to_vec()))?;
    // The voters and the state each begin a piece; readers do not depend on that.
    let pieces = voters.chunks(PIECE_LENGTH_MAX).chain(snapshot.state.chunks(PIECE_LENGTH_MAX));
    for (index, bytes) in pieces.chain([&[][..]]).enumerate() {
        let length = u32::try_from(bytes.len()).expect("a piece is short").to_be_bytes();
        to.write_all(&length)?;
        to.write_all(&checksum(id, index as u64, length, bytes).to_be_bytes())?;
        to.write_all(bytes)?;
    }
    Ok(())
}

/// Reads a complete snapshot, and its owner. Memory grows with the bytes read, and not with the stated length.
pub(super) fn read(from: &mut impl Read) -> Result<(Owner, Snapshot), Wrong> {
    let mut first = Vec::new();
    from.take(PAGE_LENGTH as u64).read_to_end(&mut first).map_err(Wrong::Unread)?;
    let content = page::unseal(MAGIC, &first)?;
    if first[LAST_SECTOR_AT..].iter().any(|&byte| byte != 0) {
        let found = "the last sector of its first page is not empty".to_owned();
        return Err(Wrong::Damaged { offset: LAST_SECTOR_AT as u64, found });
    }
    let header = message::Snapshot::decode(content).map_err(|error| Wrong::first_page(&error))?;
    let node = format::read_node(&header.node).map_err(|error| Wrong::first_page(&error))?;
    let id: SnapshotId = format::read_id(&header.id).map_err(|error| Wrong::first_page(&error))?;
    let mut pieces = Pieces { from, id, index: 0, at: PAGE_LENGTH as u64 };
    let (mut voters, mut state) = (Vec::new(), Vec::new());
    while let Some(piece) = pieces.next()? {
        let missing =
            usize::try_from(header.voters_length).unwrap_or(usize::MAX).saturating_sub(voters.len());
        let (of_voters, of_state) = piece.split_at(missing.min(piece.len()));
        voters.extend_from_slice(of_voters);
        state.extend_from_slice(of_state);
    }
    let end = pieces.at;
    let damaged = |found: String| Wrong::Damaged { offset: end, found };
    if (voters.len() as u64, state.len() as u64) != (header.voters_length, header.state_length) {
        return Err(damaged("it has not as many bytes as its first page says".to_owned()));
    }
    if from.read(&mut [0]).map_err(Wrong::Unread)? != 0 {
        return Err(damaged("something stands after its end".to_owned()));
    }
    let voters = message::Voters::decode(voters.as_slice()).map_err(format::NotAllowed::from);
    let voters = voters.and_then(format::read_voters).map_err(|error| damaged(error.to_string()))?;
    let number = format::read_number(header.number);
    let snapshot = Snapshot { number, voters: Arc::new(voters), state: state.into() };
    Ok((Owner { election: header.election, node }, snapshot))
}

/// The pieces that were not read yet.
struct Pieces<'a, R> {
    from: &'a mut R,
    id: SnapshotId,
    index: u64,
    /// The offset of the next piece.
    at: u64,
}

impl<R: Read> Pieces<'_, R> {
    /// The bytes of the next piece; `None` for the last one.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Wrong> {
        let damaged = |found: &str| Wrong::Damaged { offset: self.at, found: found.to_owned() };
        let mut header = [0; PIECE_HEADER_LENGTH];
        let ended = |error: io::Error| {
            let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
            if is_end { damaged("it ends before its last piece") } else { Wrong::Unread(error) }
        };
        self.from.read_exact(&mut header).map_err(ended)?;
        let [length @ .., a, b, c, d] = header;
        let count = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if count > PIECE_LENGTH_MAX {
            return Err(damaged("the piece there says that it is longer than pieces are"));
        }
        let mut bytes = vec![0; count];
        self.from.read_exact(&mut bytes).map_err(ended)?;
        if u32::from_be_bytes([a, b, c, d]) != checksum(self.id, self.index, length, &bytes) {
            return Err(damaged("the checksum of the piece there is wrong"));
        }
        self.index += 1;
        self.at += (PIECE_HEADER_LENGTH + count) as u64;
        Ok(if bytes.is_empty() { None } else { Some(bytes) })
    }
}

fn checksum(id: SnapshotId, index: u64, length: [u8; 4], bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&id);
    sum.update(&index.to_be_bytes());
    sum.update(&length);
    sum.update(bytes);
    sum.finalize()
}
