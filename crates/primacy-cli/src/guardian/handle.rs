//! The supervisor's side: starting a guardian, exchanging messages with it, and noticing its end at once.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::async_fd::{readable, registered};
use crate::guardian::job::Program;
use crate::guardian::message::{GuardianCommand, GuardianConfig, Report};

/// A running guardian.
#[derive(Debug)]
pub(crate) struct Guardian {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
    stream: AsyncFd<OwnedFd>,
    /// The guardian has closed its end of the socket.
    closed: bool,
    heard: Vec<u8>,
    unsent: Vec<u8>,
    /// The newest extension that was not written yet. A guardian that is paused for long reads nothing, and of several
    /// extensions only the last one matters.
    extension: Option<GuardianCommand>,
}

/// The time that a guardian may take to end when it has nothing left to do.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// A notice from a guardian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The guardian reports something.
    Report(Report),
    /// The guardian is dead.
    Died,
}

/// The state of the outgoing messages after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Done,
    Blocked,
}

impl Guardian {
    /// Starts a guardian for `job`, or for a lead without one.
    pub(crate) fn start(config: &GuardianConfig, job: Option<&Program>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // Executes this program itself, even if its file has been replaced or removed since.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("primacy").arg("guardian").arg(theirs.as_raw_fd().to_string());
        if let Some(job) = job {
            command.arg(&job.file).args(&job.args);
        }
        command.env(crate::leftovers::GUARDIAN_MARK, &config.mark);
        // The job inherits the guardian's environment, and these variables are for this process only.
        crate::variables::take_from(&mut command);
        // The guardian inherits this descriptor over `exec`. This process starts nothing else in between.
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
        let child = command.spawn();
        drop(theirs);
        let pid = Pid::from_child(&child?);
        Self::of_process(pid, ours, config).inspect_err(|_| {
            // A guardian that cannot be watched must not stay. Its process number is still valid, since it has not been
            // reaped.
            let _ = kill_process(pid, Signal::KILL);
        })
    }

    fn of_process(pid: Pid, ours: UnixStream, config: &GuardianConfig) -> io::Result<Self> {
        let mut guardian = Self {
            pid,
            pidfd: readable(pidfd_open(pid, PidfdFlags::empty())?)?,
            stream: registered(ours.into(), Interest::READABLE | Interest::WRITABLE)?,
            closed: false,
            heard: Vec::new(),
            unsent: serde_json::to_vec(config)?,
            extension: None,
        };
        guardian.unsent.push(b'\n');
        guardian.flush();
        Ok(guardian)
    }

    /// Returns the guardian's process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a command. A guardian that does not read now reads it later.
    pub(crate) fn tell(&mut self, command: GuardianCommand) {
        if matches!(command, GuardianCommand::Extend { .. }) {
            self.extension = Some(command);
        } else {
            self.put(command);
        }
        self.flush();
    }

    fn put(&mut self, command: GuardianCommand) {
        if let Ok(line) = serde_json::to_vec(&command) {
            self.unsent.extend_from_slice(&line);
            self.unsent.push(b'\n');
        }
    }

    /// Writes as much as possible without waiting, and returns whether all is written.
    fn flush(&mut self) -> Flow {
        loop {
            if self.unsent.is_empty() {
                let Some(command) = self.extension.take() else { return Flow::Done };
                self.put(command);
            }
            match rustix::io::write(self.stream.get_ref(), &self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Flow::Blocked,
                Err(_) => {
                    // The guardian is gone, as its pidfd shows, and never reads this.
                    self.unsent.clear();
                    self.extension = None;
                    return Flow::Done;
                }
            }
        }
    }

    /// Reads all that is available.
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        while !self.closed {
            match rustix::io::read(self.stream.get_ref(), &mut bytes) {
                Ok(count) if count > 0 => self.heard.extend_from_slice(&bytes[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // The guardian closes its end only by dying. Its process ends a little later.
                Ok(_) | Err(_) => self.closed = true,
            }
        }
    }

    /// Waits for the guardian's next report, or its end. All its reports come before its end. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> Notice {
        let mut dead = false;
        loop {
            if let Some(report) = self.heard_report() {
                return Notice::Report(report);
            }
            if dead {
                return Notice::Died;
            }
            let blocked = self.flush() == Flow::Blocked;
            tokio::select! {
                biased;
                _ = self.pidfd.readable() => dead = true,
                () = becomes(&self.stream, Interest::READABLE), if !self.closed => {}
                () = becomes(&self.stream, Interest::WRITABLE), if blocked => {}
            }
            self.read();
        }
    }

    /// Returns whether the guardian has sent a report that [`next`](Self::next) has not returned yet.
    pub(crate) fn has_told(&mut self) -> bool {
        self.read();
        self.heard.contains(&b'\n')
    }

    fn heard_report(&mut self) -> Option<Report> {
        loop {
            let end = self.heard.iter().position(|&byte| byte == b'\n')?;
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            // Both ends are the same program, so an unreadable line is dropped.
            match serde_json::from_slice(&line) {
                Ok(report) => return Some(report),
                Err(error) => tracing::warn!(%error, "the guardian said something that is not understood"),
            }
        }
    }

    /// Waits for the guardian's end.
    pub(crate) async fn died(&self) {
        let _ = self.pidfd.readable().await;
    }

    /// Asks the guardian to end at the end of the supervisor, and waits a moment for it: it shares the job's standard
    /// output, whose reader waits until all writers have closed it.
    pub(crate) async fn take_leave(&mut self) {
        self.tell(GuardianCommand::Leave);
        let gone =
            tokio::time::timeout(LEAVE_MAX, async { while self.next().await != Notice::Died {} }).await;
        if gone.is_err() {
            self.kill();
        }
    }

    /// Kills the guardian. Its descendants are then handed to this process.
    pub(crate) fn kill(&self) {
        // The guardian may be dead already.
        let _ = pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL);
    }
}

/// Waits until a descriptor has become readable or writable since the last such wait. The caller then reads or writes
/// until that would block.
async fn becomes(fd: &AsyncFd<OwnedFd>, interest: Interest) {
    match fd.ready(interest).await {
        Ok(mut ready) => ready.clear_ready(),
        // The runtime is being shut down.
        Err(_) => std::future::pending().await,
    }
}
