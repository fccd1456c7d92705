//! The health check: a command that says whether this node is fit to lead.
//!
//! A node is unfit until the check has succeeded once, so that one that starts broken never leads. It becomes unfit
//! again when the check has failed several times in a row, and fit with the first success: whoever wants it to take
//! longer makes the command harder to please.
//!
//! Each run has a process group of its own, which is killed when the command has ended or has taken longer than the
//! interval; and it dies with this process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use primacy::Elector;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, waitpgid, waitpid,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::guardian::job::bind_to_parent;
use crate::readable::readable;
use crate::report::{Event, Reporter};

/// How much of what a failing check prints is reported.
const OUTPUT_MAX: usize = 2048;

/// How many runs that were killed may be unable to end, on a file system that hangs for example, until none is added.
const UNENDING_MAX: usize = 4;

/// What to run, and how patiently.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) command: String,
    pub(crate) interval: Duration,
    /// How many failures in a row make the node unfit.
    pub(crate) misses: u32,
}

/// What the checks so far say.
#[derive(Debug, Default)]
struct Verdict {
    healthy: bool,
    misses: u32,
}

impl Verdict {
    /// Takes a result in, and says whether the verdict has changed.
    fn take(&mut self, success: bool, misses_max: u32) -> bool {
        let before = self.healthy;
        if success {
            (self.healthy, self.misses) = (true, 0);
        } else {
            self.misses = self.misses.saturating_add(1);
            self.healthy = self.healthy && self.misses < misses_max;
        }
        self.healthy != before
    }
}

/// Checks again and again, for ever. Until the first success the node does not stand.
pub(crate) async fn watch(check: Check, elector: Elector, reporter: Reporter) {
    let mut verdict = Verdict::default();
    let mut ticks = interval(check.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // What was said of the last failure: each is told of once.
    let mut told = None;
    let mut groups = Vec::new();
    loop {
        ticks.tick().await;
        let outcome = run(&check, &mut groups).await;
        let changed = verdict.take(outcome.is_ok(), check.misses);
        match outcome {
            Ok(()) => told = None,
            Err(reason) if told.as_ref() == Some(&reason) => {}
            Err(reason) => {
                reporter.tell(&Event::CheckFailed { misses: verdict.misses, reason: reason.clone() });
                told = Some(reason);
            }
        }
        if changed {
            elector.set_healthy(verdict.healthy);
            reporter.tell(&Event::Health { healthy: verdict.healthy });
        }
    }
}

/// Runs the command once. `groups` are those whose processes may not have been reaped.
async fn run(check: &Check, groups: &mut Vec<Pid>) -> Result<(), String> {
    groups.retain(|&group| is_left(group));
    if groups.len() >= UNENDING_MAX {
        return Err("earlier runs of it were killed and do not end".to_owned());
    }
    let unusual = |error: io::Error| format!("it could not be run: {error}");
    let (read, write) = io::pipe().map_err(unusual)?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(&check.command).stdin(Stdio::null()).process_group(0);
    command.stdout(write.try_clone().map_err(unusual)?).stderr(write);
    for variable in crate::entry::VARIABLES.iter().chain(crate::notify::VARIABLES) {
        command.env_remove(variable);
    }
    bind_to_parent(&mut command, Signal::KILL);
    let child = command.spawn();
    // It holds the writing end of the pipe.
    drop(command);
    let pid = Pid::from_child(&child.map_err(unusual)?);
    let outcome = timeout(check.interval, ended(pid, read.into())).await;
    // Before the first process is reaped: until then nobody else can have the group's number.
    let _ = kill_process_group(pid, Signal::KILL);
    groups.push(pid);
    let output = match outcome {
        // What the kernel cannot kill yet is reaped later.
        Err(_) => return Err(format!("it did not end within {:?}", check.interval)),
        Ok(Err(error)) => return Err(unusual(error)),
        Ok(Ok(output)) => output,
    };
    match waitpid(Some(pid), WaitOptions::NOHANG).ok().flatten().map(|(_, status)| status) {
        Some(status) if status.exit_status() == Some(0) => Ok(()),
        Some(status) => Err(described(status, &output)),
        // It was ended together with what a dead guardian had left.
        None => Err("it was ended from outside".to_owned()),
    }
}

/// Reaps what was handed to this process of a group that is killed, and says whether some of it is still ending.
fn is_left(group: Pid) -> bool {
    loop {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Waits for the end of a process, and returns the beginning of what it printed. It is not reaped.
async fn ended(pid: Pid, output: OwnedFd) -> io::Result<String> {
    let pidfd = readable(pidfd_open(pid, PidfdFlags::empty())?)?;
    let mut output = pipe::Receiver::from_owned_fd(output)?;
    let (mut printed, mut bytes) = (Vec::new(), [0; 1024]);
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            // What is in the pipe comes before the end.
            count = output.read(&mut bytes), if open => match count? {
                0 => open = false,
                count => {
                    let room = OUTPUT_MAX.saturating_sub(printed.len());
                    printed.extend_from_slice(&bytes[..count.min(room)]);
                }
            },
            dead = pidfd.readable() => {
                let _ = dead?;
                return Ok(String::from_utf8_lossy(&printed).trim_end().to_owned());
            }
        }
    }
}

fn described(status: WaitStatus, output: &str) -> String {
    let how = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    };
    if output.is_empty() { how } else { format!("{how}, and said: {output}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_unfit_at_first_and_after_enough_misses_and_fit_with_one_success() {
        let mut verdict = Verdict::default();
        let mut take = |success| (verdict.take(success, 3), verdict.healthy);
        assert_eq!(take(false), (false, false));
        assert_eq!(take(true), (true, true));
        assert_eq!(take(false), (false, true));
        assert_eq!(take(false), (false, true));
        assert_eq!(take(true), (false, true));
        assert_eq!([take(false), take(false), take(false)], [(false, true), (false, true), (true, false)]);
        assert_eq!(take(false), (false, false));
        assert_eq!(take(true), (true, true));
    }
}
