//! A slot of the state file: one page of eight sectors, each with a checksum of its own.
//!
//! ```text
//!   first sector:  0      8        12         16         24       28                 512
//!                  | magic | version | checksum | sequence | length | record …         |
//!   each other:    0         4          12                                           512
//!                  | checksum | sequence | record … | zeros …                          |
//! ```
//!
//! Numbers are big-endian. The checksum is the CRC-32 of the sector's index in its slot and of the sector without the four bytes of
//! the checksum. Magic, version and checksum of the first sector keep their places and their meaning in every later version.
//!
//! A disk writes a sector completely or not at all. So a write that a crash has interrupted leaves complete sectors of the old state
//! and complete sectors of the new one, and nothing else: a sector with a wrong checksum is damaged. Every sector has the sequence
//! number, even if it has only zeros otherwise, so that any intact sector tells which of the two states was being written.

use std::collections::BTreeSet;

/// The first bytes of each slot.
const MAGIC: [u8; 8] = *b"PRIMACY\x1a";
/// One slot is one page, so that overwriting it needs no read, and no new space on a full disk.
pub(super) const LENGTH: usize = 4096;
/// The least that a disk writes atomically.
pub(super) const SECTOR_LENGTH: usize = 512;
const SECTORS: usize = LENGTH / SECTOR_LENGTH;
/// The checksum and the sequence number of a sector.
const SECTOR_HEADER_LENGTH: usize = 12;
/// The offset of the checksum in the first sector.
const FIRST_CHECKSUM_AT: usize = 12;
/// The bytes of a slot in addition to its record.
const OVERHEAD: usize = FIRST_CHECKSUM_AT + SECTORS * SECTOR_HEADER_LENGTH + 4;
/// The longest record that fits into a slot, in bytes.
pub(super) const RECORD_LENGTH_MAX: usize = LENGTH - OVERHEAD;

/// One of the two places in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    First,
    Second,
}

impl Slot {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    pub(super) const fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => LENGTH as u64,
        }
    }
}

/// The content of an intact slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) version: u32,
    pub(super) sequence: u64,
    pub(super) record: Vec<u8>,
}

/// The reason why a slot is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotError {
    /// No sector is intact, and the first one does not begin with the magic.
    Magic,
    /// Its sectors belong to different states, or some have a wrong checksum.
    Broken {
        /// The sequence numbers of the intact sectors.
        sequences: BTreeSet<u64>,
        /// The number of sectors with a wrong checksum.
        rotten: usize,
    },
    /// All checksums are right, and the record is invalid.
    Record(String),
    /// A later version has written it.
    Newer(u32),
}

impl SlotError {
    /// Returns whether this slot certainly has no newer state than the other one, which is intact and has the sequence number `other`: a
    /// sector of the state before that one is still here. Otherwise this slot may have been acknowledged, and damaged later.
    pub(super) fn is_behind(&self, other: u64) -> bool {
        match self {
            Self::Broken { sequences, .. } => {
                let before = other.checked_sub(1);
                let of_a_write =
                    |&sequence| Some(sequence) == before || Some(sequence) == other.checked_add(1);
                before.is_some_and(|before| sequences.contains(&before)) && sequences.iter().all(of_a_write)
            }
            Self::Magic | Self::Record(_) | Self::Newer(_) => false,
        }
    }
}

impl std::fmt::Display for SlotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Magic => f.write_str("it does not begin as a state"),
            Self::Broken { rotten: 0, .. } => f.write_str("its sectors belong to different states"),
            Self::Broken { rotten, .. } => {
                write!(f, "it has wrong checksums in {rotten} of its {SECTORS} sectors")
            }
            Self::Record(reason) => write!(f, "its checksums are right and its record is wrong: {reason}"),
            Self::Newer(version) => write!(f, "it has version {version}"),
        }
    }
}

/// Encodes a slot with this record.
///
/// # Panics
/// If the record is longer than [`RECORD_LENGTH_MAX`].
pub(super) fn seal(version: u32, sequence: u64, record: &[u8]) -> Vec<u8> {
    assert!(record.len() <= RECORD_LENGTH_MAX, "a record fits into its slot");
    let length = u32::try_from(record.len()).expect("at most a slot").to_be_bytes();
    let mut content = length.iter().chain(record).copied();
    let mut slot = Vec::with_capacity(LENGTH);
    for index in 0..SECTORS {
        let begin = slot.len();
        if index == 0 {
            slot.extend_from_slice(&MAGIC);
            slot.extend_from_slice(&version.to_be_bytes());
        }
        let sum_at = slot.len();
        slot.extend_from_slice(&[0; 4]);
        slot.extend_from_slice(&sequence.to_be_bytes());
        let room = begin + SECTOR_LENGTH - slot.len();
        slot.extend(content.by_ref().take(room));
        slot.resize(begin + SECTOR_LENGTH, 0);
        let sum = checksum(index, &slot[begin..]);
        slot[sum_at..sum_at + 4].copy_from_slice(&sum.to_be_bytes());
    }
    slot
}

/// Decodes an intact slot.
pub(super) fn unseal(slot: &[u8]) -> Result<Content, SlotError> {
    let sectors: Vec<_> =
        slot.chunks(SECTOR_LENGTH).enumerate().map(|(index, bytes)| sector(index, bytes)).collect();
    let whole: Vec<&(u64, &[u8])> = sectors.iter().flatten().collect();
    if whole.is_empty() && !slot.starts_with(&MAGIC) {
        return Err(SlotError::Magic);
    }
    let sequences: BTreeSet<u64> = whole.iter().map(|(sequence, _)| *sequence).collect();
    let (1, SECTORS, Some(&sequence)) = (sequences.len(), whole.len(), sequences.first()) else {
        return Err(SlotError::Broken { sequences, rotten: sectors.len() - whole.len() });
    };
    let content: Vec<u8> = whole.iter().flat_map(|(_, content)| content.iter().copied()).collect();
    let missing = || SlotError::Record("it is longer than its slot".to_owned());
    let (length, rest) = content.split_first_chunk::<4>().ok_or_else(missing)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    let record = rest.get(..length).ok_or_else(missing)?.to_vec();
    let version = slot.get(MAGIC.len()..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(missing)?;
    Ok(Content { version: u32::from_be_bytes(*version), sequence, record })
}

/// The version of a slot whose first sector is intact. The checksum is verified first, so that a flipped bit is not taken for a newer
/// version.
pub(super) fn version(slot: &[u8]) -> Option<u32> {
    sector(0, slot.get(..SECTOR_LENGTH)?)?;
    slot.get(MAGIC.len()..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map(|version| u32::from_be_bytes(*version))
}

/// The offset of the checksum in a sector.
const fn checksum_at(index: usize) -> usize {
    if index == 0 { FIRST_CHECKSUM_AT } else { 0 }
}

/// The sequence number and the content of an intact sector.
fn sector(index: usize, bytes: &[u8]) -> Option<(u64, &[u8])> {
    if index == 0 && !bytes.starts_with(&MAGIC) {
        return None;
    }
    let (sum, rest) = bytes.get(checksum_at(index)..)?.split_first_chunk::<4>()?;
    if u32::from_be_bytes(*sum) != checksum(index, bytes) {
        return None;
    }
    let (sequence, content) = rest.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*sequence), content))
}

/// The CRC-32 of a sector without the four bytes that hold it.
pub(super) fn checksum(index: usize, sector: &[u8]) -> u32 {
    let at = checksum_at(index);
    let mut sum = crc32fast::Hasher::new();
    sum.update(&(index as u64).to_be_bytes());
    sum.update(sector.get(..at).unwrap_or_default());
    sum.update(sector.get(at + 4..).unwrap_or_default());
    sum.finalize()
}
