//! One run of the check, below a process of its own that leaves nothing of it behind.
//!
//! The keeper is this program in a hidden mode, and a child subreaper: whatever the command starts, in whichever group or
//! session, stays below it and is ended before the keeper is. So the node has one child for each run, and nothing of a run
//! ever comes to the node itself, which would have to tell it from what its guardian leaves.
//!
//! Their connection is the keeper's standard input. The keeper says over it how the command ended, when nothing is left of
//! it; and when the node closes it, for lack of patience or by dying, the keeper ends everything at once.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, set_child_subreaper, waitid,
};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

use crate::async_fd::readable;
use crate::guardian::job::{RUN_SCRIPT, SCRIPT, bind_to_parent};
use crate::process_tree::{Ended, end_descendants};
use crate::signals;

/// The most bytes of a failing check's output that are reported.
const OUTPUT_MAX: usize = 2048;

/// A keeper's report on the command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Ended(Ended),
    /// It was not started, for this reason.
    NotStarted(String),
}

/// A run that has begun.
#[derive(Debug)]
pub(super) struct Run {
    keeper: Keeper,
    connection: tokio::net::UnixStream,
    output: pipe::Receiver,
}

/// The keeper of a run. Once the connection is closed, it does nothing but end.
#[derive(Debug)]
pub(super) struct Keeper(AsyncFd<OwnedFd>);

impl Run {
    /// Starts the command. No other code may be reaping all children of this process meanwhile.
    pub(super) fn start(command: &str) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (read, write) = io::pipe()?;
        ours.set_nonblocking(true)?;
        // This very program, also when its file has been replaced or removed since. In a group of its own: what the
        // terminal sends is for the node.
        let mut keeper = Command::new("/proc/self/exe");
        keeper.arg0("primacy").arg("health-check").process_group(0);
        keeper.stdin(OwnedFd::from(theirs)).stdout(write.try_clone()?).stderr(write);
        crate::variables::take_from(&mut keeper);
        keeper.env(SCRIPT, command);
        let child = keeper.spawn();
        // It holds the keeper's ends.
        drop(keeper);
        let pidfd = pidfd_open(Pid::from_child(&child?), PidfdFlags::empty())?;
        Ok(Self {
            keeper: Keeper(readable(pidfd)?),
            connection: tokio::net::UnixStream::from_std(ours)?,
            output: pipe::Receiver::from_owned_fd(read.into())?,
        })
    }

    /// Waits for the command's end; `Err` is the reason why that is no success.
    pub(super) async fn succeeds(&mut self) -> Result<(), String> {
        let (mut said, mut printed, mut bytes) = (Vec::new(), Vec::new(), [0; 1024]);
        let mut keep = |bytes: &[u8]| {
            let room = OUTPUT_MAX.saturating_sub(printed.len());
            printed.extend_from_slice(&bytes[..bytes.len().min(room)]);
        };
        {
            let end = self.connection.read_to_end(&mut said);
            tokio::pin!(end);
            let mut open = true;
            loop {
                tokio::select! {
                    // The end comes first: a command may print without end.
                    biased;
                    end = &mut end => {
                        end.map_err(|error| unusual(&error))?;
                        break;
                    }
                    count = self.output.read(&mut bytes), if open => {
                        match count.map_err(|error| unusual(&error))? {
                            0 => open = false,
                            count => keep(&bytes[..count]),
                        }
                    }
                }
            }
        }
        // No writer is left that could add to it.
        while let Ok(count @ 1..) = self.output.try_read(&mut bytes) {
            keep(&bytes[..count]);
        }
        match serde_json::from_slice(&said) {
            Ok(Said::Ended(Ended::Code(0))) => Ok(()),
            Ok(Said::Ended(ended)) => Err(described(ended, String::from_utf8_lossy(&printed).trim_end())),
            Ok(Said::NotStarted(why)) => Err(format!("it could not be run: {why}")),
            // Killed, perhaps together with what a dead guardian had left.
            Err(_) => Err("it was ended from outside".to_owned()),
        }
    }

    /// Has everything of the run ended that has not.
    pub(super) fn end(self) -> Keeper {
        self.keeper
    }
}

impl Keeper {
    /// Waits for its end. May be cancelled.
    pub(super) async fn ended(&self) {
        // An error means that the runtime is being shut down.
        let _ = self.0.readable().await;
    }

    /// Whether it is still ending. If not, it was reaped.
    pub(super) fn is_left(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // An error means that another has reaped it.
        matches!(waitid(WaitId::PidFd(self.0.get_ref().as_fd()), look), Ok(None))
    }
}

fn unusual(error: &io::Error) -> String {
    format!("it could not be run: {error}")
}

fn described(ended: Ended, output: &str) -> String {
    let how = match ended {
        Ended::Code(code) => format!("it ended with exit code {code}"),
        Ended::Signal(signal) => format!("it was ended by signal {signal}"),
    };
    if output.is_empty() { how } else { format!("{how}, and said: {output}") }
}

/// Runs the keeper: `primacy health-check`, which only a node starts. The command is in the environment.
pub(crate) fn main() -> ExitCode {
    let node = io::stdin();
    let given = std::env::var_os(SCRIPT).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
    let said = match given.and_then(|_| keep(&node)) {
        Ok(ended) => Said::Ended(ended),
        Err(error) => Said::NotStarted(error.to_string()),
    };
    let line = serde_json::to_vec(&said).unwrap_or_default();
    match rustix::io::write(node.as_fd(), &line) {
        Ok(_) => ExitCode::SUCCESS,
        // The node has closed the connection, or this was started by hand.
        Err(_) => {
            let why = "primacy health-check: nobody asks for it; see `primacy node --health`";
            crate::line_writer::write_last_words(why);
            ExitCode::FAILURE
        }
    }
}

/// Runs the command until it ends or the node has closed the connection, and ends all that is left of it.
fn keep(node: &io::Stdin) -> io::Result<Ended> {
    // Before anything is started that it must be there to end.
    signals::outlive()?;
    set_child_subreaper(Some(getpid()))?;
    let mut shell = Command::new("/bin/sh");
    shell.arg0("sh").arg("-c").arg(RUN_SCRIPT).stdin(Stdio::null()).process_group(0);
    bind_to_parent(&mut shell, Signal::KILL);
    let pid = Pid::from_child(&shell.spawn()?);
    let pidfd = pidfd_open(pid, PidfdFlags::empty());
    if let Ok(pidfd) = &pidfd {
        let mut polled = [PollFd::new(pidfd, PollFlags::IN), PollFd::new(node, PollFlags::IN)];
        while poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
    }
    let mut how = None;
    end_descendants(Some(pid), None, |ended, end| {
        if ended == pid {
            how = Some(end);
        }
    });
    pidfd?;
    how.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
