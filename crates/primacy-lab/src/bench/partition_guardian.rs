//! A guardian as any program that uses the library can have one: a process that waits for the end of its node, and
//! reports its death. The voters of the bench do not change; where they do, the guardian must be updated: see
//! `Elector::death_notice_spec_changed`.
//!
//! The node of the bench has no work outside of its process, so its end is the end of all its work.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use primacy::Elector;
use primacy::death_notice::{DeathNoticeSpec, DeathNotifier};
use primacy::transport::Limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

use super::child::PARTITION_GUARDIAN;
use super::failed;
use crate::exit::Failure;

/// The maximum time for sending the death notice. After that, the nodes detect the death by silence.
const TELL_MAX: Duration = Duration::from_secs(3);

/// Starts the guardian of this process, which outlives it.
pub(super) fn start(elector: &Elector) -> Result<Child, Failure> {
    let spec =
        elector.death_notice_spec().ok_or_else(|| failed("nobody can bear notifier in this election"))?;
    let spec = serde_json::to_string(&spec).map_err(|error| failed(error.to_string()))?;
    let me = std::process::id().to_string();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench-child", PARTITION_GUARDIAN, &me, &spec]);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?)
}

/// Waits until its node is dead, and notifies the peers.
pub(super) fn run(node: &str, spec: &str) -> Result<(), Failure> {
    let node =
        node.parse().ok().and_then(Pid::from_raw).ok_or_else(|| failed(format!("{node} is no process")))?;
    let spec: DeathNoticeSpec = serde_json::from_str(spec).map_err(|error| failed(error.to_string()))?;
    let process = pidfd_open(node, PidfdFlags::empty());
    let mut notifier =
        DeathNotifier::new(&spec, Limits::default()).map_err(|error| failed(error.to_string()))?;
    // While the node is our parent, it is alive; so the handle opened above is that of the node, not of a process with a
    // reused number.
    while getppid() == Some(node) {
        match poll(&mut [PollFd::new(process.as_ref().map_err(|&error| error)?, PollFlags::IN)], None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    notifier.notify(TELL_MAX);
    Ok(())
}
