//! [`Document`]: bytes with compare-and-set, for programs that keep more in a store than the record of an election.

use std::fmt::Debug;

use primacy_core::election::lease::Version;

use crate::register::{Pending, ReadError, SetError};

/// The longest document, in bytes: what can be read and written again and again.
pub const LENGTH_MAX: usize = 64 * 1024 * 1024;

/// The bytes of a document, and their version.
pub type Content = (Vec<u8>, Version);

/// A cell for bytes, with compare-and-set; linearizable, and shared by all clients that open the same one.
///
/// It is what [`Register`](crate::Register) is for records, and its answers mean the same.
pub trait Document: Send + Sync + Debug {
    /// Reads the bytes and their version; `None` if there are none.
    ///
    /// Dropping the future gives up the read.
    fn read(&self) -> Pending<'_, Result<Option<Content>, ReadError>>;

    /// Writes `bytes` if the version is still `expect`, where `None` means that there must be nothing yet. Returns the new
    /// version, and only when the write would survive every failure that the store promises to survive.
    ///
    /// The bytes must be unlike those of any other write, by a number that is drawn for each: by that number a write is
    /// recognised when its answer is lost, and for some stores a version identifies contents and not writes. The same
    /// bytes may be written again over the same version, when it is not known whether they were: the write is done once or
    /// not at all.
    ///
    /// More than [`LENGTH_MAX`] bytes are [not written](SetError::Unavailable).
    ///
    /// Once it has been polled, dropping the future does not take the write back: whether it happened is then as unknown
    /// as after [`SetError::Unknown`].
    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        bytes: &'a [u8],
    ) -> Pending<'a, Result<Version, SetError>>;
}

/// Refuses what could not be read any more.
#[cfg(any(feature = "file", feature = "object"))]
pub(crate) fn check_length(bytes: &[u8]) -> Result<(), SetError> {
    if bytes.len() > LENGTH_MAX {
        let why = format!("it has {} bytes, and at most {LENGTH_MAX} are written", bytes.len());
        return Err(SetError::Unavailable { why });
    }
    Ok(())
}
