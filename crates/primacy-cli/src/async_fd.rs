//! File descriptors whose readiness the async runtime watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor, to wait until it is readable. Must be called inside the runtime.
pub(crate) fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    registered(fd, Interest::READABLE)
}

/// Registers a descriptor. Must be called inside the runtime.
pub(crate) fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names one open file until it is dropped, which `AsyncFd` does after it has deregistered it.
    #[allow(unsafe_code)] // The safe constructor cannot know this of every type, and is deprecated for it.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(registered?)
}
