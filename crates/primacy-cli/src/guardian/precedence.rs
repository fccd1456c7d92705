//! The guardian's real-time priority, where the system allows it. A thousand processes of a job that are about to be
//! killed must not keep the guardian from killing them.

use rustix::process::getpriority_process;

/// The lowest of the real-time priorities.
const PRIORITY: libc::c_int = 1;

/// Gives this thread real-time priority, and returns its former niceness, for the processes that it starts, which are
/// not real-time. Changes nothing if that is not allowed (`CAP_SYS_NICE`, `ulimit -r`), or if an operator has chosen a
/// scheduling policy.
pub(super) fn take() -> Option<i32> {
    let niceness = getpriority_process(None).ok()?;
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the calls read the parameter and touch nothing else of this process. They are direct system calls, since
    // not every C library has wrappers for them.
    #[allow(unsafe_code)] // No safe wrapper has them.
    let taken = unsafe {
        libc::syscall(libc::SYS_sched_getscheduler, 0) == libc::c_long::from(libc::SCHED_OTHER)
            && libc::syscall(
                libc::SYS_sched_setscheduler,
                0,
                libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
                &raw const parameter,
            ) == 0
    };
    taken.then_some(niceness)
}
