//! Errors of the system that may pass without a repair, and errors that last until an operator acts.
//!
//! Answers of a store are classified by the store: [`OpenError::Unavailable`] may pass, [`OpenError::Refused`] does not. This module is
//! for the errors that all stores meet when they open files and start threads.

use std::io::{self, ErrorKind};

use crate::open_error::OpenError;

/// Returns whether the failed operation may succeed later: after a shortage of this machine, an interruption, or while a peer is not there
/// yet.
#[must_use]
pub fn is_passing(error: &io::Error) -> bool {
    // The system's own numbers, where they have no kind that is stable: too many open files, here and on the whole machine,
    // no buffers.
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    const ENOBUFS: i32 = 105;
    if matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOBUFS)) {
        return true;
    }
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::OutOfMemory
            | ErrorKind::TimedOut
            | ErrorKind::ResourceBusy
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::AddrNotAvailable
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
    )
}

/// Returns the error for a file that is needed to open a store, such as credentials or certificates.
#[cfg_attr(not(feature = "network"), allow(dead_code, reason = "local stores have no such files"))]
pub(crate) fn of_file(why: String, error: &io::Error) -> OpenError {
    if is_passing(error) { OpenError::Shortage { why } } else { OpenError::Refused { why } }
}

/// Returns the error for the files of a store on this machine. Trying again may help even with a missing path or a full disk, which an
/// operator may repair meanwhile.
#[cfg_attr(
    not(any(feature = "file", feature = "sqlite")),
    allow(dead_code, reason = "there is no local store")
)]
pub(crate) fn of_local(why: String, error: &io::Error) -> OpenError {
    if is_passing(error) { OpenError::Shortage { why } } else { OpenError::Unavailable { why } }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn shortages_and_absent_peers_pass_and_wrong_paths_and_rights_do_not() {
        let table = [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::NOMEM, true),
            (Errno::AGAIN, true),
            (Errno::INTR, true),
            (Errno::BUSY, true),
            (Errno::TIMEDOUT, true),
            (Errno::CONNREFUSED, true),
            (Errno::CONNRESET, true),
            (Errno::CONNABORTED, true),
            (Errno::PIPE, true),
            (Errno::HOSTUNREACH, true),
            (Errno::NETUNREACH, true),
            (Errno::NOENT, false),
            (Errno::NOTDIR, false),
            (Errno::ACCESS, false),
            (Errno::PERM, false),
            (Errno::INVAL, false),
            (Errno::ISDIR, false),
            (Errno::ROFS, false),
            (Errno::LOOP, false),
            // A running node retries all errors of its store; at the start, a full disk needs an operator.
            (Errno::NOSPC, false),
            (Errno::DQUOT, false),
            (Errno::IO, false),
        ];
        for (errno, passes) in table {
            let error = io::Error::from(errno);
            assert_eq!(is_passing(&error), passes, "{error}");
            let opened = of_file("x".to_owned(), &error);
            assert_eq!(opened.is_passing(), passes, "{error}");
            let is_shortage = matches!(of_local("x".to_owned(), &error), OpenError::Shortage { .. });
            assert_eq!(is_shortage, passes, "{error}");
        }
    }
}
