//! [`HeldFence`]: a durable fence that one process keeps locked.
//!
//! A process that remembers the highest token in memory, or admits work that outlasts the admission, must be the only one that admits. So
//! it keeps the lock that other processes take for a single admission: they wait, or get an error. A child process can inherit a
//! descriptor with a lock of its own.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use primacy_core::fence::FencingToken;
use primacy_stores::ownership::Sharing;

use super::file::{DurableFence, DurableFenceError};
use super::inherited_lock;

/// A [`DurableFence`] that stays locked until this value is dropped, and every [duplicate](Self::duplicate_lock) of its
/// descriptor is closed or [released](Self::release_duplicate).
#[derive(Debug)]
pub struct HeldFence(DurableFence);

impl HeldFence {
    /// Opens the fence of `election`, or creates an empty one if there is no file; then waits without limit until no other process holds
    /// it.
    ///
    /// # Errors
    /// [`DurableFenceError`]; then the fence is not held.
    pub fn wait(path: &Path, election: &str) -> Result<Self, DurableFenceError> {
        Self::wait_shared(path, election, Sharing::default())
    }

    /// As [`wait`](Self::wait), with the file shared with the members of a group.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_shared(path: &Path, election: &str, sharing: Sharing) -> Result<Self, DurableFenceError> {
        DurableFence::make_unless_there(path, election, sharing)?;
        let fence = DurableFence::open_unread(path, election, sharing)?;
        fence.wait_for_locks(&fence.file())?;
        Self::check(fence)
    }

    /// Opens the fence of `election`, or creates an empty one if there is no file; does not wait.
    ///
    /// # Errors
    /// [`DurableFenceError::InUse`] if another process holds it, even for a single admission; and the others.
    pub fn open(path: &Path, election: &str) -> Result<Self, DurableFenceError> {
        Self::open_shared(path, election, Sharing::default())
    }

    /// As [`open`](Self::open), with the file shared with the members of a group.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_shared(path: &Path, election: &str, sharing: Sharing) -> Result<Self, DurableFenceError> {
        DurableFence::make_unless_there(path, election, sharing)?;
        let fence = DurableFence::open_unread(path, election, sharing)?;
        let try_lock = |file: &File| {
            file.try_lock()?;
            inherited_lock::none_left(file, false)
        };
        let locked = try_lock(&fence.file());
        match locked {
            Ok(()) => Self::check(fence),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(DurableFenceError::InUse { path: path.to_owned() })
            }
            Err(error) => Err(fence.failed("locked", error)),
        }
    }

    fn check(fence: DurableFence) -> Result<Self, DurableFenceError> {
        let held = Self(fence);
        held.highest()?;
        Ok(held)
    }

    /// Admits `presented`, and returns when the admission would survive a power cut; or refuses it. No other process admits anything
    /// until this fence is released.
    ///
    /// # Errors
    /// [`DurableFenceError`]; the token was not admitted.
    pub fn admit(&self, presented: FencingToken) -> Result<(), DurableFenceError> {
        self.admit_uncounted(presented).inspect_err(DurableFenceError::count)
    }

    /// As [`admit`](Self::admit), for a gate, which counts its refusals itself.
    pub(super) fn admit_uncounted(&self, presented: FencingToken) -> Result<(), DurableFenceError> {
        let file = self.0.file();
        self.0.check_place(&file)?;
        self.0.admit_in(&file, presented)
    }

    /// The highest token that was presented and not refused.
    ///
    /// # Errors
    /// [`DurableFenceError`], but never [`Stale`](DurableFenceError::Stale).
    pub fn highest(&self) -> Result<FencingToken, DurableFenceError> {
        let file = self.0.file();
        self.0.check_place(&file)?;
        Ok(self.0.read(&file)?.0)
    }

    /// Opens another descriptor that keeps the fence held, for a child process to keep as long as it runs. The descriptor is read-only,
    /// and on Linux has a lock of its own: the child can release that, and this value still holds the fence.
    ///
    /// # Errors
    /// [`DurableFenceError::Io`] if the system has no descriptor left, or if the file system cannot distinguish the two
    /// locks.
    pub fn duplicate_lock(&self) -> Result<OwnedFd, DurableFenceError> {
        let file = self.0.file();
        let made = inherited_lock::make(&file);
        made.map(OwnedFd::from).map_err(|error| self.0.failed("held for a child process", error))
    }

    /// Releases the lock of a [duplicate](Self::duplicate_lock), also for processes to which the child passed the descriptor. Call it
    /// when the child and its descendants are gone; this value holds the fence until it is dropped.
    ///
    /// # Errors
    /// [`DurableFenceError::Io`]
    pub fn release_duplicate(&self, lock: OwnedFd) -> Result<(), DurableFenceError> {
        let released = inherited_lock::release(&File::from(lock));
        released.map_err(|error| self.0.failed("released by a child process", error))
    }

    #[cfg(feature = "tower")]
    pub(super) fn failed(&self, doing: &'static str, error: io::Error) -> DurableFenceError {
        self.0.failed(doing, error)
    }
}
