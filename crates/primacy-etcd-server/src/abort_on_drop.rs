//! A task that ends with its owner.

use tokio::task::JoinHandle;

/// A task that is aborted when this value is dropped.
pub(super) struct AbortOnDrop(pub(super) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
