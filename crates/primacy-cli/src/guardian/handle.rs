//! The supervisor's end: starting a guardian, talking to it, and knowing at once when it is gone.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use crate::guardian::job::Program;
use crate::guardian::message::{Duty, Order, Report};
use crate::readable::readable;

/// A running guardian.
#[derive(Debug)]
pub(crate) struct Guardian {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    stream: UnixStream,
    heard: Vec<u8>,
    unsent: Vec<u8>,
    /// The newest extension that was not written yet. A guardian that is paused for long reads nothing, and of
    /// all the extensions that come meanwhile only the last one matters.
    extension: Option<Order>,
}

/// How long a guardian may take to end when there is nothing left to do.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// What comes from a guardian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It tells something.
    Report(Report),
    /// It is dead.
    Died,
}

impl Guardian {
    /// Starts a guardian for `job`.
    pub(crate) fn start(duty: &Duty, job: &Program) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        // This very program, also when its file has been replaced or removed since.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("primacy")
            .arg("guardian")
            .arg(theirs.as_raw_fd().to_string())
            .arg(&job.file)
            .args(&job.args);
        command.env(crate::leftovers::GUARDIAN_MARK, &duty.mark);
        // Passed on over `exec`. Nothing else is started by this process in between.
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
        let child = command.spawn();
        drop(theirs);
        let pid = Pid::from_child(&child?);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let mut guardian = Self {
            pid,
            pidfd: readable(pidfd)?,
            stream: UnixStream::from_std(ours)?,
            heard: Vec::new(),
            unsent: serde_json::to_vec(duty)?,
            extension: None,
        };
        guardian.unsent.push(b'\n');
        guardian.flush();
        Ok(guardian)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Tells it to do something; it learns of it now, or when it can read again.
    pub(crate) fn tell(&mut self, order: Order) {
        if matches!(order, Order::Extend { .. }) {
            self.extension = Some(order);
        } else {
            self.put(order);
        }
        self.flush();
    }

    fn put(&mut self, order: Order) {
        if let Ok(line) = serde_json::to_vec(&order) {
            self.unsent.extend_from_slice(&line);
            self.unsent.push(b'\n');
        }
    }

    fn flush(&mut self) {
        loop {
            if self.unsent.is_empty() {
                let Some(order) = self.extension.take() else { return };
                self.put(order);
            }
            match self.stream.try_write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It is full; or the guardian is gone, which its pidfd shows.
                Err(_) => return,
            }
        }
    }

    /// Waits for what it tells, and for its end. Everything that it has told comes before its end. May be
    /// cancelled, and nothing is lost.
    pub(crate) async fn next(&mut self) -> Notice {
        let mut dead = false;
        loop {
            if let Some(report) = self.heard_report() {
                return Notice::Report(report);
            }
            if dead {
                return Notice::Died;
            }
            let mut interest = Interest::READABLE;
            if !self.unsent.is_empty() || self.extension.is_some() {
                interest |= Interest::WRITABLE;
            }
            tokio::select! {
                biased;
                ready = self.stream.ready(interest) => {
                    self.flush();
                    if ready.is_err() || self.read_closed() {
                        // It closes its end only by dying; its process goes a little later.
                        let _ = self.pidfd.readable().await;
                        dead = true;
                    }
                }
                _ = self.pidfd.readable() => {
                    self.read_closed();
                    dead = true;
                }
            }
        }
    }

    /// Reads what there is, and says whether the end was reached.
    fn read_closed(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return true,
                Ok(count) => self.heard.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
    }

    fn heard_report(&mut self) -> Option<Report> {
        loop {
            let end = self.heard.iter().position(|&byte| byte == b'\n')?;
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            // Both ends are the same program; what is not understood is no report.
            match serde_json::from_slice(&line) {
                Ok(report) => return Some(report),
                Err(error) => tracing::warn!(%error, "the guardian said something that is not understood"),
            }
        }
    }

    /// Waits for its end.
    pub(crate) async fn died(&self) {
        let _ = self.pidfd.readable().await;
    }

    /// Lets it end, at the end of the supervisor, and gives it a moment for that: it shares the job's standard
    /// output, whose reader waits until everybody has closed it.
    pub(crate) async fn take_leave(&mut self) {
        self.tell(Order::Leave);
        let gone =
            tokio::time::timeout(LEAVE_MAX, async { while self.next().await != Notice::Died {} }).await;
        if gone.is_err() {
            self.kill();
        }
    }

    /// Kills it. Its descendants are then this process's.
    pub(crate) fn kill(&self) {
        // It may be dead already, which is what is wanted.
        let _ = pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL);
    }
}
