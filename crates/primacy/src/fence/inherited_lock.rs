//! The lock on a fence that a child process inherits, in addition to the lock of the process that holds the fence.
//!
//! The holder has an `flock` on an open file of its own, which no child inherits. A child inherits another open file, which is read-only
//! and has a lock of another kind (`F_OFD_SETLK`), because two locks of one kind would exclude each other. So a child, which may run as
//! another user, can neither write to the fence nor end the holder's lock; it can only release its own. An admission needs both: it takes
//! the `flock`, and waits until no inherited lock is left. No inherited lock appears meanwhile, because only the holder of the `flock`
//! creates them.

use std::fs::File;
use std::io;

/// Opens the file of `held` once more, read-only, with a lock of its own. The caller has the `flock` of `held`.
#[cfg(target_os = "linux")]
pub(super) fn make(held: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd as _;

    // Opened through the descriptor: the name may lead to another file by now.
    let file = File::open(format!("/proc/self/fd/{}", held.as_raw_fd()))?;
    match set(&file, libc::F_OFD_SETLK, libc::F_RDLCK) {
        Err(rustix::io::Errno::AGAIN) => Err(io::Error::other(
            "its file system takes a lock of `flock` for one of `fcntl`, as NFS does; keep it on a local disk",
        )),
        locked => Ok(locked.map(|()| file)?),
    }
}

/// Releases the lock of a file from [`make`], for all processes that share it.
#[cfg(target_os = "linux")]
pub(super) fn release(inherited: &File) -> io::Result<()> {
    Ok(set(inherited, libc::F_OFD_SETLK, libc::F_UNLCK)?)
}

/// Waits until no process has an inherited lock; if `waits` is false, fails with [`io::ErrorKind::WouldBlock`] instead. The caller has the
/// `flock` of `file`, which is open for writing.
#[cfg(target_os = "linux")]
pub(super) fn none_left(file: &File, waits: bool) -> io::Result<()> {
    let command = if waits { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    match set(file, command, libc::F_WRLCK) {
        // If the system has no such locks, none was inherited.
        Err(rustix::io::Errno::INVAL) => Ok(()),
        locked => Ok(locked.and_then(|()| set(file, libc::F_OFD_SETLK, libc::F_UNLCK))?),
    }
}

/// Locks or unlocks the whole file, for all processes that share this open file.
#[cfg(target_os = "linux")]
fn set(file: &File, command: libc::c_int, kind: libc::c_int) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd as _;

    // SAFETY: zeros are a range from the start of the file without an end; the call reads it, and touches nothing else of this process.
    #[allow(unsafe_code)] // No safe wrapper has these locks.
    let done = unsafe {
        let mut range: libc::flock = std::mem::zeroed();
        range.l_type = libc::c_short::try_from(kind).expect("the numbers of locks are 0, 1 and 2");
        libc::fcntl(file.as_raw_fd(), command, &raw const range)
    };
    if done == -1 {
        let error = io::Error::last_os_error();
        return Err(rustix::io::Errno::from_io_error(&error).expect("it is the system's"));
    }
    Ok(())
}

/// On other systems a child inherits the holder's open file, and with it its lock.
#[cfg(not(target_os = "linux"))]
pub(super) fn make(held: &File) -> io::Result<File> {
    held.try_clone()
}

/// The lock is the holder's, and ends with the holder and the descriptors.
#[cfg(not(target_os = "linux"))]
pub(super) fn release(_inherited: &File) -> io::Result<()> {
    Ok(())
}

/// There are no locks of a second kind.
#[cfg(not(target_os = "linux"))]
pub(super) fn none_left(_file: &File, _waits: bool) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use primacy_core::fence::FencingToken;
    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::fence::{DurableFenceError, HeldFence};

    #[test]
    fn what_is_inherited_keeps_the_fence_held_and_neither_writes_nor_ends_the_hold() {
        let path = std::env::temp_dir().join(format!("primacy-inherited-{}.fence", std::process::id()));
        let held = HeldFence::open(&path, "e").unwrap();
        held.admit(FencingToken(7)).unwrap();
        let is_in_use = || matches!(HeldFence::open(&path, "e"), Err(DurableFenceError::InUse { .. }));
        let inherited = File::from(held.duplicate_lock().unwrap());
        let error = inherited.write_at(b"x", 0).unwrap_err();
        assert_eq!(rustix::io::Errno::from_io_error(&error), Some(rustix::io::Errno::BADF), "{error}");
        flock(&inherited, FlockOperation::Unlock).unwrap();
        assert!(is_in_use());
        drop(held);
        assert!(is_in_use(), "as when the holder is killed, and what it has started lives on");
        drop(inherited);

        let held = HeldFence::open(&path, "e").unwrap();
        assert_eq!(held.highest().unwrap(), FencingToken(7));
        let inherited = File::from(held.duplicate_lock().unwrap());
        set(&inherited, libc::F_OFD_SETLK, libc::F_UNLCK).unwrap();
        assert!(is_in_use());
        drop(held);
        assert!(!is_in_use(), "it has given up its own");

        let held = HeldFence::open(&path, "e").unwrap();
        let lock = held.duplicate_lock().unwrap();
        let passed_on = lock.try_clone().unwrap();
        held.release_duplicate(lock).unwrap();
        assert!(is_in_use());
        drop(held);
        assert!(!is_in_use(), "whatever process has been handed it");
        drop(passed_on);
        std::fs::remove_file(path).unwrap();
    }
}
