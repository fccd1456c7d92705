//! A guardian as any program that uses the library may have one: a process that waits for the end of its node, and vouches for it. The
//! voters of the bench do not change; where they do, it must hear of it: see `Elector::death_notice_spec_changed`.
//!
//! The node that the bench measures has no work outside of its own process, so with that all is gone.

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

/// The time for which it sends its notice of the death, if it is not heard. Then the nodes know of it by silence.
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

/// Waits until its node is dead, and notifies the others.
pub(super) fn run(node: &str, spec: &str) -> Result<(), Failure> {
    let node =
        node.parse().ok().and_then(Pid::from_raw).ok_or_else(|| failed(format!("{node} is no process")))?;
    let spec: DeathNoticeSpec = serde_json::from_str(spec).map_err(|error| failed(error.to_string()))?;
    let process = pidfd_open(node, PidfdFlags::empty());
    let mut notifier =
        DeathNotifier::new(&spec, Limits::default()).map_err(|error| failed(error.to_string()))?;
    // As long as it is our parent, it is alive; so what was opened before is the node, and no other process under its number.
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
