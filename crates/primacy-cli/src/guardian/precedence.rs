//! The guardian's place among the processes of its machine: before all that are not real-time, where that is allowed. A thousand
//! processes of a job that are about to be killed must not keep it from killing them.

use rustix::process::getpriority_process;

/// The lowest of the real-time priorities.
const PRIORITY: libc::c_int = 1;

/// Lets this thread go before others, and returns the niceness that it had, which the processes that it
/// starts are to have. They are not real-time. Nothing changes where it is not allowed (`CAP_SYS_NICE`,
/// `ulimit -r`), or where an operator has chosen a policy.
pub(super) fn take() -> Option<i32> {
    let niceness = getpriority_process(None).ok()?;
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the calls read the parameter and touch nothing else of this process. They are the kernel's own, for not every C library
    // has them.
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
