//! Limits that several services share.

use std::time::Duration;

/// The most bytes of a replicated request, with etcd's wrapping.
pub(super) const REQUEST_BYTES_MAX: usize = 3 << 19;

/// The most bytes of any message.
pub(super) const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + (512 << 10);

/// The most operations in each list of a transaction.
pub(super) const OPERATIONS_MAX: usize = 128;

/// The most watchers of one stream.
pub(super) const WATCHERS_MAX: usize = 100_000;

/// The time for a message to arrive after its prefix, and for a request without a token to arrive.
pub(super) const MESSAGE_PATIENCE: Duration = Duration::from_secs(30);
pub(super) const OPEN_MESSAGE_PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of a message in a request without a token, where one is required.
pub(super) const OPEN_MESSAGE_BYTES_MAX: usize = 4 << 10;
