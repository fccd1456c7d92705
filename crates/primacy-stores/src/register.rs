//! [`Register`]: a cell with compare-and-set, the interface of a store that keeps records.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use primacy_core::election::lease;
use primacy_core::election::lease::{Record, Version};

use crate::error_text::shortened;
use crate::record::RecordError;

/// A boxed future that may be sent to another thread: the return type of the methods of [`Register`], so that a
/// register can be a trait object.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A cell for one [`Record`], with compare-and-set; linearizable, and shared by all nodes that open the same
/// election in the same store.
///
/// A handle is cheap to keep and may be used from many tasks at once. The record is never deleted.
pub trait Register: Send + Sync + Debug {
    /// Reads the record and its version; `None` if there has never been one.
    ///
    /// Dropping the future gives up the read.
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>>;

    /// Writes `record` if the version is still `expect`, where `None` means that there must be no record yet.
    /// Returns the new version, and only when the write would survive every failure that the store promises to
    /// survive.
    ///
    /// Once it has been polled, dropping the future does not take the write back: whether it happened is then
    /// as unknown as after [`SetError::Unknown`].
    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>>;

    /// Resolves when the record may have changed since the last read or successful write through this handle,
    /// and at once if it already has.
    ///
    /// It is only a hint: it may resolve without a change, and the caller must also read periodically. The future may
    /// be dropped and requested again without missing a change. Of several tasks that wait on one handle, each is
    /// woken.
    fn changed(&self) -> Pending<'_, ()>;
}

/// The reason that there is no answer to a read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store was not reached, or did not answer. Nothing is known about the record.
    #[error("the store is not available: {}", shortened(.why))]
    Unavailable {
        /// The error.
        why: String,
    },
    /// The store answered with content that is not a record of this format. The content is left as it is.
    #[error("the record is not usable: {error}")]
    Malformed {
        /// The reason that it is no record.
        error: RecordError,
    },
}

/// The meaning of a compare-and-set that did not succeed: not mine, not known, or not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// The version is not the expected one; nothing was written.
    #[error("the record has changed since it was read")]
    Conflict,
    /// The record may have been written, or may yet be. The caller must read before it draws conclusions, and must not
    /// blindly repeat the write.
    #[error("it is not known whether the record was written: {}", shortened(.why))]
    Unknown {
        /// The error.
        why: String,
    },
    /// Nothing was written, and nothing will be.
    #[error("the record was not written: {}", shortened(.why))]
    Unavailable {
        /// The error.
        why: String,
    },
}

impl From<SetError> for lease::SetError {
    fn from(error: SetError) -> Self {
        match error {
            SetError::Conflict => Self::Conflict,
            SetError::Unknown { .. } => Self::Unknown,
            SetError::Unavailable { .. } => Self::Unavailable,
        }
    }
}

impl From<RecordError> for SetError {
    /// A record that cannot be put into bytes never left this process.
    fn from(error: RecordError) -> Self {
        Self::Unavailable { why: error.to_string() }
    }
}
