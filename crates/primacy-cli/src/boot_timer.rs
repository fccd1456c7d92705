//! A timer on the boot clock, which counts on while the machine is suspended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use primacy::Instant;
use primacy::clock::now;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::async_fd::readable;

/// A file descriptor that becomes readable at an instant of the boot clock.
///
/// The timeout of `poll` does not run while the machine is suspended; a deadline that passed meanwhile must be seen
/// the moment the machine is back.
#[derive(Debug)]
pub(crate) struct BootTimer {
    fd: OwnedFd,
}

impl BootTimer {
    /// Creates a timer that is not set.
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Boottime, flags)? })
    }

    /// Sets the timer to `deadline`, or stops it. From the deadline on it is readable until it is set again.
    pub(crate) fn set(&self, deadline: Option<Instant>) {
        set(&self.fd, deadline);
    }
}

fn set(timer: &OwnedFd, deadline: Option<Instant>) {
    // The time is relative, because a clock that a test has faked is not the kernel's. Zero would mean "never".
    let nanos = deadline.map_or(0, |at| at.since(now()).as_nanos().max(1));
    let value = Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
    };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let setting = Itimerspec { it_interval: never, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &setting)
        .expect("a timer takes every time that is one");
}

impl AsFd for BootTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A [`BootTimer`] that can be awaited.
#[derive(Debug)]
pub(crate) struct AsyncBootTimer {
    timer: AsyncFd<OwnedFd>,
    deadline: Option<Instant>,
}

impl AsyncBootTimer {
    /// Creates a timer that is not set.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { timer: readable(BootTimer::new()?.fd)?, deadline: None })
    }

    /// Sets the timer to `deadline`.
    pub(crate) fn set(&mut self, deadline: Instant) {
        if self.deadline != Some(deadline) {
            self.deadline = Some(deadline);
            set(self.timer.get_ref(), Some(deadline));
        }
    }

    /// Waits until the deadline has come. May be cancelled.
    pub(crate) async fn elapsed(&self) {
        while self.deadline.is_none_or(|deadline| now() < deadline) {
            match self.timer.readable().await {
                // The timer may have been readable for an earlier deadline.
                Ok(mut ready) if self.deadline.is_none_or(|deadline| now() < deadline) => ready.clear_ready(),
                Ok(_) => return,
                // The runtime is being shut down.
                Err(_) => std::future::pending().await,
            }
        }
    }
}
