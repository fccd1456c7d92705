//! A rehearsal of a job and its end before the first one, so that all that a real one needs is in memory, and stays there.
//!
//! A guardian sleeps for months, and then must act within milliseconds. Memory that it has not used for long the kernel
//! may have taken back, and the program's text is read from the disk again; on a busy disk that takes longer than the
//! kill margin. (Chaos has found this: jobs outlived their leases by up to two seconds while builds kept the disk
//! busy.)
//!
//! The rehearsal covers the code that keeps a job from outliving its lease: a job is started, commands arrive, the job
//! is asked to end by the deadline, its descendants are searched for, and all are killed because the supervisor is
//! gone. Hooks and the death notice are left out: safety does not rest on their deadlines.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;

use primacy::clock;
use primacy::core::{Duration, Instant};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open};

use super::{Guardian, Notifier, Program, Warnings, Wire};
use crate::boot_timer::BootTimer;
use crate::cgroup::Cgroup;
use crate::guardian::message::{GuardianCommand, GuardianConfig};
use crate::guardian::stop_command::StopAttempts;
use crate::process_tree::signal_descendants;

/// The argument of the rehearsed job, in the place of the descriptor. The job is this program itself, since there may
/// be no other.
pub(super) const JOB: &str = "warmup";

/// The main function of the rehearsed job: waits until it is killed.
pub(super) fn work() -> ! {
    loop {
        rustix::event::pause();
    }
}

/// Rehearses a job in the control group. The group is given up if no process can be put into it. Returns when no
/// process of the job is left.
///
/// To be called while this process has no child, since all children are ended.
pub(super) fn warm_up(config: &GuardianConfig, cgroup: &mut Result<Cgroup, String>) -> io::Result<()> {
    let (ours, mut theirs) = UnixStream::pair()?;
    let (child_signals, _silent) = UnixStream::pair()?;
    child_signals.set_nonblocking(true)?;
    // Leaves out the fields that may be long: nothing reads the socket while this is written.
    let (election, node, mark) = (config.election.clone(), config.node.clone(), config.mark.clone());
    let GuardianConfig { supervisor, drain, kill_margin, lease, json, .. } = *config;
    let (stop_command, on_elected, on_deposed, death_notice, watchdog) = (None, None, None, None, None);
    let stop_record = None;
    let config = GuardianConfig {
        supervisor,
        election,
        node,
        mark,
        drain,
        kill_margin,
        lease,
        stop_command,
        stop_record,
        on_elected,
        on_deposed,
        death_notice,
        watchdog,
        json,
    };
    writeln!(theirs, "{}", serde_json::to_string(&config)?)?;
    let (wire, config) = Wire::open(ours)?;
    let args = ["primacy", "guardian", JOB].map(OsString::from).into();
    let (notifier, _ordered) = Notifier::without_receivers();
    let mut played = Guardian {
        wire,
        supervisor: Some(pidfd_open(getpid(), PidfdFlags::empty())?),
        child_signals,
        timer: BootTimer::new()?,
        notifier,
        niceness: None,
        cgroup: std::mem::replace(cgroup, Err(String::new())),
        warnings: Warnings::new(&config.node, config.json),
        stop: StopAttempts::default(),
        config,
        job: Some(Program { file: "/proc/self/exe".into(), args }),
        watchdog: None,
        feed_at: None,
        is_unwatched: false,
        was_too_short: false,
        job_run: None,
        supervisor_lost: false,
        leave_taken: false,
        settled_at: None,
    };
    let outcome = play(&mut played, &mut theirs);
    // Ends all remaining processes, even if the rehearsal failed.
    played.end_now();
    *cgroup = played.cgroup;
    outcome
}

fn play(played: &mut Guardian, supervisor: &mut UnixStream) -> io::Result<()> {
    let valid_until = clock::now().after(Duration::from_nanos(played.config.lease)).as_nanos();
    let granted = played.config.lease;
    let start = GuardianCommand::Start { term: 0, fenced: true, valid_until, granted };
    writeln!(supervisor, "{}", serde_json::to_string(&start)?)?;
    played.take_orders();
    played.start_if_due();
    if played.job_run.as_ref().is_none_or(|job_run| job_run.main.is_none()) {
        return Err(io::Error::other("the job of the warmup could not be started"));
    }
    if let Ok(cgroup) = &played.cgroup
        && cgroup.is_empty()
    {
        cgroup.remove();
        played.cgroup =
            Err(format!("no process can be put into the control group {}", cgroup.dir().display()));
    }
    // These commands end the wait below.
    for command in [
        GuardianCommand::Reach { death_notice: String::new() },
        GuardianCommand::Extend { term: 0, valid_until, granted },
    ] {
        writeln!(supervisor, "{}", serde_json::to_string(&command)?)?;
    }
    played.wait()?;
    played.take_orders();
    played.reap();
    played.on_time(Instant::NEVER);
    signal_descendants(&[Signal::CONT], Instant::NEVER, |_| true);
    played.on_supervisor_lost();
    Ok(())
}
