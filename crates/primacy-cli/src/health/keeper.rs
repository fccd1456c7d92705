//! One run of the health check, below its own process, which leaves none of the run's processes behind.
//!
//! The keeper is this program in a hidden mode, and a child subreaper: all processes that the command starts, in any
//! group or session, stay below it and are ended before the keeper ends. So the node has one child for each run, and no
//! process of a run is handed to the node, which could not distinguish it from the orphans of its guardian.
//!
//! The keeper's standard input is its connection to the node. Over it the keeper reports how the command ended, when
//! none of its processes is left. When the connection is closed, because the node's patience is over or the node has
//! died, the keeper ends all processes at once.

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
    /// The command was not started, for this reason.
    NotStarted(String),
}

/// A running check.
#[derive(Debug)]
pub(super) struct Run {
    keeper: Keeper,
    connection: tokio::net::UnixStream,
    output: pipe::Receiver,
}

/// The keeper of a run. Once the connection is closed, it only ends its processes and itself.
#[derive(Debug)]
pub(super) struct Keeper(AsyncFd<OwnedFd>);

impl Run {
    /// Starts the command. No other code may be reaping all children of this process meanwhile.
    pub(super) fn start(command: &str) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (read, write) = io::pipe()?;
        ours.set_nonblocking(true)?;
        // Executes this program itself, even if its file has been replaced or removed since. It is in a group of its
        // own, since the terminal's signals are for the node.
        let mut keeper = Command::new("/proc/self/exe");
        keeper.arg0("primacy").arg("health-check").process_group(0);
        keeper.stdin(OwnedFd::from(theirs)).stdout(write.try_clone()?).stderr(write);
        crate::variables::take_from(&mut keeper);
        keeper.env(SCRIPT, command);
        let child = keeper.spawn();
        // The command holds the keeper's ends of the connection and the pipe.
        drop(keeper);
        let pidfd = pidfd_open(Pid::from_child(&child?), PidfdFlags::empty())?;
        Ok(Self {
            keeper: Keeper(readable(pidfd)?),
            connection: tokio::net::UnixStream::from_std(ours)?,
            output: pipe::Receiver::from_owned_fd(read.into())?,
        })
    }

    /// Waits for the command's end. The error is the reason why the check has failed.
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
                    // The end is checked first, since a command may print without end.
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
        // No process that could write to the pipe is left.
        while let Ok(count @ 1..) = self.output.try_read(&mut bytes) {
            keep(&bytes[..count]);
        }
        match serde_json::from_slice(&said) {
            Ok(Said::Ended(Ended::Code(0))) => Ok(()),
            Ok(Said::Ended(ended)) => Err(described(ended, String::from_utf8_lossy(&printed).trim_end())),
            Ok(Said::NotStarted(why)) => Err(format!("it could not be run: {why}")),
            // The keeper was killed, perhaps together with the leftovers of a dead guardian.
            Err(_) => Err("it was ended from outside".to_owned()),
        }
    }

    /// Closes the connection, so that the keeper ends all remaining processes of the run.
    pub(super) fn end(self) -> Keeper {
        self.keeper
    }
}

impl Keeper {
    /// Waits for the keeper's end. May be cancelled.
    pub(super) async fn ended(&self) {
        // An error means that the runtime is being shut down.
        let _ = self.0.readable().await;
    }

    /// Returns whether the keeper is still ending. If not, it was reaped.
    pub(super) fn is_left(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // An error means that other code has reaped it.
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
        // The node has closed the connection, or a user has started this by hand.
        Err(_) => {
            let why = "primacy health-check: nobody asks for it; see `primacy node --health`";
            crate::line_writer::write_last_words(why);
            ExitCode::FAILURE
        }
    }
}

/// Runs the command until it ends or the node has closed the connection, and ends all its remaining processes.
fn keep(node: &io::Stdin) -> io::Result<Ended> {
    // Before any process is started, since this process must survive to end it.
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
