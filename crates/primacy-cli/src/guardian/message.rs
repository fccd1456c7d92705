//! The messages between a supervisor and its guardian: one JSON object a line, over a socket pair.

use std::path::PathBuf;

use primacy::death_notice::DeathNoticeSpec;
use serde::{Deserialize, Serialize};

use crate::guardian::watchdog::WatchdogSpec;
use crate::process_tree::Ended;

/// The first message to a guardian, sent once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GuardianConfig {
    /// The supervisor.
    pub(crate) supervisor: i32,
    /// The election, for the job.
    pub(crate) election: String,
    /// The node, for the job.
    pub(crate) node: String,
    /// The mark by which a later supervisor recognises what this one left behind.
    pub(crate) mark: String,
    /// The time that the job may take to end by itself, in nanoseconds.
    pub(crate) drain: u64,
    /// The time before the end of the leadership at which everything is killed, in nanoseconds.
    pub(crate) kill_margin: u64,
    /// The time for which a leadership lasts without renewal, in nanoseconds.
    pub(crate) lease: u64,
    /// A shell command that ends the work of others for the job, when the job is gone.
    pub(crate) stop_command: Option<String>,
    /// The file that has the command on record until it has succeeded.
    pub(crate) stop_record: Option<PathBuf>,
    /// A shell command to run before the job.
    pub(crate) on_elected: Option<String>,
    /// A shell command to run after the job.
    pub(crate) on_deposed: Option<String>,
    /// The specification by which other nodes are notified of the supervisor's death.
    pub(crate) death_notice: Option<DeathNoticeSpec>,
    /// The device that resets the machine where the job is not ended.
    pub(crate) watchdog: Option<WatchdogSpec>,
    /// True if warnings are written in JSON.
    pub(crate) json: bool,
}

/// A command of the supervisor. Instants are nanoseconds of the boot clock, which both processes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum GuardianCommand {
    /// This node was elected: start the job.
    Start {
        /// The number of the leadership, which also names it in all that follows.
        term: u64,
        /// Whether that is a token, too.
        fenced: bool,
        /// Its end, by which everything must be gone.
        valid_until: u64,
        /// The time for which it lasts without renewal; the drain and the kill margin are that much shorter
        /// than for the whole lease.
        granted: u64,
    },
    /// The guardian of this leadership has died, and nothing of it is left on this machine: run the commands that follow.
    Finish {
        /// As in `Start`.
        term: u64,
        /// As there.
        fenced: bool,
        /// As there.
        valid_until: u64,
        /// As there.
        granted: u64,
    },
    /// The leadership lasts longer.
    Extend {
        /// Which leadership.
        term: u64,
        /// Its new end.
        valid_until: u64,
        /// The time for which it lasts without renewal now.
        granted: u64,
    },
    /// End the job in order: SIGTERM, and after the drain SIGKILL.
    Stop {
        /// Which leadership.
        term: u64,
    },
    /// End the job now.
    Kill {
        /// Which leadership.
        term: u64,
        /// Give up a stop command that has not succeeded, too.
        gives_up: bool,
    },
    /// Other nodes vote: notify these of the supervisor's death from now on.
    Reach {
        /// The [`DeathNoticeSpec`] for that, as JSON; the receiver has no time to take it apart.
        death_notice: String,
    },
    /// The supervisor is about to end in order; there is nothing left to guard, and no death to report.
    Leave,
}

/// A report of the guardian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(crate) enum Report {
    /// It is ready to start jobs.
    Ready {
        /// The directory of the control group that they are started in, or why there is none.
        cgroup: Result<PathBuf, String>,
    },
    /// The job runs.
    Started {
        /// Of which leadership.
        term: u64,
        /// The job's first process, which leads its group.
        pid: i32,
    },
    /// The job could not be started. `Gone` follows.
    NotStarted {
        /// Of which leadership.
        term: u64,
        /// Why.
        reason: NotStarted,
    },
    /// The guardian has taken over a new end of the leadership.
    Extended {
        /// Of which leadership.
        term: u64,
        /// The end that it acts by.
        valid_until: u64,
    },
    /// The job has so many processes that to kill them takes a good part of the kill margin.
    SlowKill {
        /// The number of processes.
        processes: usize,
        /// The time that killing them may take, in nanoseconds.
        takes: u64,
    },
    /// The job was asked to end.
    Stopping {
        /// Of which leadership.
        term: u64,
        /// Why.
        reason: Stopping,
    },
    /// The job did not end in time, and all that is left of it is being killed.
    Killing {
        /// Of which leadership.
        term: u64,
    },
    /// The job's first process has ended.
    Exited {
        /// Of which leadership.
        term: u64,
        /// The process's exit code or signal.
        ended: Ended,
    },
    /// A hook has ended.
    HookEnded {
        /// Of which leadership.
        term: u64,
        /// Which hook.
        hook: Hook,
        /// The process's exit code or signal.
        ended: Ended,
    },
    /// The job is gone with all its descendants, and one of the commands that follow it has begun.
    Parting {
        /// Of which leadership.
        term: u64,
    },
    /// The stop command has failed, or could not be started; it is run again.
    StopFailed {
        /// Of which leadership.
        term: u64,
        /// The number of its failures.
        failures: u32,
        /// When it is run again, in nanoseconds from now.
        pause: u64,
    },
    /// The job is gone with all its descendants, and so are the commands that follow it.
    Gone {
        /// Of which leadership.
        term: u64,
        /// True if the stop command, if there is one, was given up before it has succeeded: the work of
        /// others for the job may go on.
        stop_failed: bool,
    },
}

/// Why a job was not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NotStarted {
    /// Too little of the leadership was left.
    TooLate,
    /// The hook that precedes it failed.
    Hook,
    /// The watchdog could not be armed, for this reason.
    Watchdog(String),
    /// The stop command could not be put on record, for this reason.
    Record(String),
    /// The system refused, with this error number and message.
    System(i32, String),
}

/// The reason why a job is asked to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stopping {
    /// The supervisor's order.
    Asked,
    /// The leadership ends soon and was not renewed.
    Deadline,
    /// The job's first process has ended, and these are what it left behind.
    Leftovers,
    /// The watchdog cannot guard the leadership any more, for this reason.
    Watchdog(String),
}

/// The commands around the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hook {
    /// `--on-elected`
    Elected,
    /// `--stop-command`
    Stop,
    /// `--on-deposed`
    Deposed,
}
