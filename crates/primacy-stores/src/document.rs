//! [`Document`]: bytes with compare-and-set, for programs that keep more in a store than the record of an election.

use std::fmt::Debug;

use primacy_core::election::lease::Version;

use crate::register::{Pending, ReadError, SetError};

/// The longest document, in bytes. Each read and write transfers the whole document.
pub const LENGTH_MAX: usize = 64 * 1024 * 1024;

/// The bytes of a document, and their version.
pub type Content = (Vec<u8>, Version);

/// A cell for bytes, with compare-and-set; linearizable, and shared by all clients that open the same one.
///
/// It is the counterpart of [`Register`](crate::Register) for arbitrary bytes; the answers have the same meanings.
pub trait Document: Send + Sync + Debug {
    /// Reads the bytes and their version; `None` if there are none.
    ///
    /// Dropping the future gives up the read.
    fn read(&self) -> Pending<'_, Result<Option<Content>, ReadError>>;

    /// Writes `bytes` if the version is still `expect`, where `None` means that there must be nothing yet. Returns the new
    /// version, and only when the write would survive every failure that the store promises to survive.
    ///
    /// The bytes of each write must be unique, by a random number in them: it identifies the write when its answer is lost, and in some
    /// stores a version identifies contents, not writes. When the outcome of a write is unknown, the same bytes may be written again over
    /// the same version: the write is done at most once.
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

/// Refuses bytes that are too long to be read again.
#[cfg(any(feature = "file", feature = "object"))]
pub(crate) fn check_length(bytes: &[u8]) -> Result<(), SetError> {
    if bytes.len() > LENGTH_MAX {
        let why = format!("it has {} bytes, and at most {LENGTH_MAX} are written", bytes.len());
        return Err(SetError::Unavailable { why });
    }
    Ok(())
}
