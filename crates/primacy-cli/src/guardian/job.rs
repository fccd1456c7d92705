//! Starting a job or a hook, so that it cannot outlive its guardian or its leadership.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use primacy::{Instant, clock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpriority_process};

use crate::cgroup::{self, Cgroup};

/// The program to run with its arguments. The first argument is the program's own name (`argv[0]`).
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The file to execute.
    pub(crate) file: OsString,
    /// Name and arguments.
    pub(crate) args: Vec<OsString>,
}

/// The variable with the shell command of a hook or a check. It is no argument, since every user can read arguments.
pub(crate) const SCRIPT: &str = "PRIMACY_SCRIPT";

/// Runs the shell command in that variable, after removing the variable.
pub(crate) const RUN_SCRIPT: &str = r#"eval "unset PRIMACY_SCRIPT; $PRIMACY_SCRIPT""#;

impl Program {
    /// The program that runs the shell command in the variable [`SCRIPT`].
    pub(crate) fn shell() -> Self {
        Self { file: "/bin/sh".into(), args: vec!["sh".into(), "-c".into(), RUN_SCRIPT.into()] }
    }
}

/// Starts `program` in a process group of its own and in this control group. Fails if it would start after `too_late`.
///
/// The process dies with the thread that starts it, so this is for the guardian's only thread.
///
/// # Errors
/// The error of the system; `ETIME` if it was too late.
pub(crate) fn start(
    program: &Program,
    env: &[(&str, String)],
    too_late: Instant,
    niceness: Option<i32>,
    cgroup: Option<&Cgroup>,
) -> io::Result<Pid> {
    let guardian = getpid();
    let entrance = cgroup.map(Cgroup::entrance).transpose()?;
    let mut command = Command::new(&program.file);
    if let Some((name, args)) = program.args.split_first() {
        command.arg0(name).args(args);
    }
    command
        .env_remove(crate::leftovers::GUARDIAN_MARK)
        // This guardian may itself run in the job of another `primacy`, whose token the job must not inherit. An
        // advisory leader has no token to replace it.
        .env_remove(TOKEN)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    before_exec(&mut command, move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The guardian may have died before the signal was set.
        if getppid() != Some(guardian) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
        }
        if let Some(niceness) = niceness {
            // Raising the niceness is always allowed, and this was the guardian's own value before.
            let _ = setpriority_process(None, niceness);
        }
        if let Some(entrance) = &entrance {
            // If this fails, the process is found in the process table, as on machines without a control group.
            let _ = rustix::io::write(entrance, cgroup::ENTER);
        }
        // The machine may have been suspended since the guardian looked at its clock.
        if clock::now() >= too_late {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::TIME.raw_os_error()));
        }
        Ok(())
    });
    // The guardian reaps all its children in one place; a `Child` that is dropped does not interfere.
    command.spawn().map(|child| Pid::from_child(&child))
}

/// The variable with the fencing token, which the job presents to resources.
pub(crate) const TOKEN: &str = "PRIMACY_TOKEN";

/// Makes the child of `command` die with the thread that starts it.
pub(crate) fn bind_to_parent(command: &mut Command, signal: Signal) {
    let parent = getpid();
    before_exec(command, move || {
        set_parent_process_death_signal(Some(signal))?;
        if getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
        }
        Ok(())
    });
}

/// Makes the child of `command` keep a descriptor, under whichever number it has.
pub(crate) fn hand_on(command: &mut Command, descriptor: OwnedFd) {
    before_exec(command, move || Ok(fcntl_setfd(&descriptor, FdFlags::empty())?));
}

fn before_exec(command: &mut Command, act: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the callers' closures make system calls and nothing else: no allocation, no lock, and no memory
    // that another thread could have left half written when the process was forked.
    #[allow(unsafe_code)] // No safe wrapper can promise this for a closure.
    unsafe {
        command.pre_exec(act);
    }
}
