//! The first page of each file of a log: its kind and its owner.
//!
//! ```text
//!   0      8        12         16       20                    3584             4096
//!   | magic | version | checksum | length | content … | zeros … | the last sector |
//! ```
//!
//! Numbers are big-endian. The checksum is the CRC-32 of the bytes before the last sector, without the four bytes of the
//! checksum. The last sector has another use in each kind of file, and may be overwritten while the file grows. Magic,
//! version and checksum keep their places and their meaning in every later version.

use super::Wrong;

/// The version of the files that are written, and the newest that is read.
pub(crate) const VERSION: u32 = 1;
/// The oldest version that is read. It does not change: a file stays readable in all later versions.
const VERSION_MIN: u32 = 1;
/// The length of the first page, in bytes, which is a page of the disk.
pub(super) const PAGE_LENGTH: usize = 4096;
/// The least that a disk writes atomically.
pub(super) const SECTOR_LENGTH: usize = 512;
/// The offset of the last sector of the first page.
pub(super) const LAST_SECTOR_AT: usize = PAGE_LENGTH - SECTOR_LENGTH;
/// The offset of the content.
const CONTENT_AT: usize = 20;

/// The first bytes of a file, by its kind.
pub(super) type Magic = [u8; 8];

/// Encodes the page with this content.
///
/// # Panics
/// If the content does not fit. It consists of names that also fit into a file name, and of numbers.
pub(super) fn seal(magic: Magic, version: u32, content: &[u8]) -> Vec<u8> {
    assert!(content.len() <= LAST_SECTOR_AT - CONTENT_AT, "the content of a first page is short");
    let length = u32::try_from(content.len()).expect("at most a page");
    let mut page = Vec::with_capacity(PAGE_LENGTH);
    page.extend_from_slice(&magic);
    page.extend_from_slice(&version.to_be_bytes());
    page.extend_from_slice(&[0; 4]);
    page.extend_from_slice(&length.to_be_bytes());
    page.extend_from_slice(content);
    page.resize(PAGE_LENGTH, 0);
    let sum = checksum(&page);
    page[12..16].copy_from_slice(&sum.to_be_bytes());
    page
}

/// Decodes the page at the beginning of these bytes.
pub(super) fn unseal(magic: Magic, bytes: &[u8]) -> Result<&[u8], Wrong> {
    let damaged = |found: &str| Wrong::Damaged { offset: 0, found: found.to_owned() };
    let short = || damaged("it ends in its first page");
    let page = bytes.get(..PAGE_LENGTH).ok_or_else(short)?;
    let (begins, rest) = page.split_first_chunk::<8>().ok_or_else(short)?;
    if *begins != magic {
        return Err(damaged("it does not begin as a file of a log of Primacy"));
    }
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (sum, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    // Verified before anything else, also the version: a flipped bit must not be taken for a newer version.
    if u32::from_be_bytes(*sum) != checksum(page) {
        return Err(damaged("the checksum of its first page is wrong"));
    }
    let version = u32::from_be_bytes(*version);
    if version > VERSION {
        return Err(Wrong::Newer(version));
    }
    if version < VERSION_MIN {
        return Err(damaged("it has a version that there never was"));
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    rest.get(..length).ok_or_else(|| damaged("its first page says that it is longer than it is"))
}

/// The CRC-32 of a page without its last sector and the four bytes of the checksum.
fn checksum(page: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(page.get(..12).unwrap_or_default());
    sum.update(page.get(16..LAST_SECTOR_AT).unwrap_or_default());
    sum.finalize()
}
