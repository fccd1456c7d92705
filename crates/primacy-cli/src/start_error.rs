//! The errors of starting a process: those that may pass, and those that stay until an operator acts.

use rustix::io::Errno;

/// The lasting errors: they concern the file, its interpreter or its arguments. Every other error is a temporary
/// shortage of the machine (processes, descriptors, memory, a disk that answers).
const LASTING: &[Errno] = &[
    Errno::NOENT,       // No such file, or its interpreter is missing.
    Errno::NOTDIR,      // A part of its path is no directory.
    Errno::ISDIR,       // The interpreter is a directory.
    Errno::LOOP,        // Too many symbolic links.
    Errno::NAMETOOLONG, // Its path is too long.
    Errno::ACCESS,      // Not executable, or on a file system without programs.
    Errno::PERM,        // Forbidden to this user.
    Errno::NOEXEC,      // Of another architecture, or no program.
    Errno::LIBBAD,      // The interpreter is no program.
    Errno::INVAL,       // The interpreter is named twice.
    Errno::TOOBIG,      // Arguments and environment are too long.
    Errno::NOSYS,       // The kernel lacks what is asked.
];

/// Returns whether the error may pass by itself, so that the same start may succeed later.
pub(crate) fn passes(errno: i32) -> bool {
    // An error without a number comes from the standard library, for example for a NUL within a word.
    errno > 0 && !LASTING.iter().any(|lasting| lasting.raw_os_error() == errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_passes_and_a_file_that_is_no_program_stays() {
        let passing = [
            Errno::AGAIN, // No process left: RLIMIT_NPROC, or pids.max of a cgroup.
            Errno::NOMEM,
            Errno::MFILE,
            Errno::NFILE,
            Errno::TXTBSY, // It is being replaced.
            Errno::IO,
            Errno::STALE,
            Errno::NOSPC,
            Errno::INTR,
            Errno::TIMEDOUT,
        ];
        for errno in passing {
            assert!(passes(errno.raw_os_error()), "{errno:?}");
        }
        for errno in LASTING {
            assert!(!passes(errno.raw_os_error()), "{errno:?}");
        }
        assert!(!passes(0));
    }
}
