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
    /// The mark by which a later supervisor recognises the processes that this one has left behind.
    pub(crate) mark: String,
    /// The time that the job may take to end by itself, in nanoseconds.
    pub(crate) drain: u64,
    /// The time before the end of the leadership at which everything is killed, in nanoseconds.
    pub(crate) kill_margin: u64,
    /// The lease in nanoseconds. A leadership may last for less without renewal; `drain` and `kill_margin` are shorter then.
    pub(crate) lease: u64,
    /// A shell command that ends the work of other processes for the job, after the job is gone.
    pub(crate) stop_command: Option<String>,
    /// The file with the record of that command until it has succeeded.
    pub(crate) stop_record: Option<PathBuf>,
    /// A shell command to run before the job.
    pub(crate) on_elected: Option<String>,
    /// A shell command to run after the job.
    pub(crate) on_deposed: Option<String>,
    /// The specification by which other nodes are notified of the supervisor's death.
    pub(crate) death_notice: Option<DeathNoticeSpec>,
    /// The device that resets the machine if the job has not ended in time.
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
        /// The term of the leadership, by which later messages name it.
        term: u64,
        /// True if the term is a fencing token, too.
        fenced: bool,
        /// The end of the leadership, by which everything must be gone.
        valid_until: u64,
        /// The time for which it lasts without renewal. If it is shorter than the lease, the drain and the kill margin
        /// are shorter in proportion.
        granted: u64,
    },
    /// Run the commands that follow the job: the guardian of this leadership has died, and none of its processes is
    /// left on this machine.
    Finish {
        /// As in `Start`.
        term: u64,
        /// As in `Start`.
        fenced: bool,
        /// As in `Start`.
        valid_until: u64,
        /// As in `Start`.
        granted: u64,
    },
    /// The leadership was renewed.
    Extend {
        /// The term of the leadership.
        term: u64,
        /// Its new end.
        valid_until: u64,
        /// The time for which it now lasts without renewal.
        granted: u64,
    },
    /// End the job in order: SIGTERM, and after the drain SIGKILL.
    Stop {
        /// The term of the leadership.
        term: u64,
    },
    /// End the job now.
    Kill {
        /// The term of the leadership.
        term: u64,
        /// True to give up a stop command that has not succeeded, too.
        gives_up: bool,
    },
    /// Notify these nodes of the supervisor's death from now on: the voters have changed.
    Reach {
        /// The [`DeathNoticeSpec`] as JSON. The guardian's own thread has no time to parse it.
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
        /// The term of the leadership.
        term: u64,
        /// The job's first process, which leads its group.
        pid: i32,
    },
    /// The job could not be started. `Gone` follows.
    NotStarted {
        /// The term of the leadership.
        term: u64,
        /// The reason.
        reason: NotStarted,
    },
    /// The guardian has adopted a new end of the leadership.
    Extended {
        /// The term of the leadership.
        term: u64,
        /// The end that the guardian now acts by.
        valid_until: u64,
    },
    /// The job has so many processes that killing them takes a large part of the kill margin.
    SlowKill {
        /// The number of processes.
        processes: usize,
        /// The time that killing them may take, in nanoseconds.
        takes: u64,
    },
    /// The job was asked to end.
    Stopping {
        /// The term of the leadership.
        term: u64,
        /// The reason.
        reason: Stopping,
    },
    /// The job did not end in time, and all its remaining processes are being killed.
    Killing {
        /// The term of the leadership.
        term: u64,
    },
    /// The job's first process has ended.
    Exited {
        /// The term of the leadership.
        term: u64,
        /// The process's exit code or signal.
        ended: Ended,
    },
    /// A hook has ended.
    HookEnded {
        /// The term of the leadership.
        term: u64,
        /// Which hook.
        hook: Hook,
        /// The process's exit code or signal.
        ended: Ended,
    },
    /// The job is gone with all its descendants, and a command that follows it has begun.
    Parting {
        /// The term of the leadership.
        term: u64,
    },
    /// The stop command has failed, or could not be started; it will be run again.
    StopFailed {
        /// The term of the leadership.
        term: u64,
        /// The number of its failures.
        failures: u32,
        /// The time until it is run again, in nanoseconds.
        pause: u64,
    },
    /// The job is gone with all its descendants, and the commands that follow it have ended.
    Gone {
        /// The term of the leadership.
        term: u64,
        /// True if there is a stop command and it was given up before it succeeded: the work of other processes for the
        /// job may go on.
        stop_failed: bool,
    },
}

/// The reason why a job was not started.
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
    /// The supervisor's command.
    Asked,
    /// The leadership ends soon and was not renewed.
    Deadline,
    /// The job's first process has ended, and has left these descendants behind.
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
