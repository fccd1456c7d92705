//! The exit codes of `primacy`, all of them. They are the codes of sysexits.h where it has one.

use std::process::ExitCode;

use rustix::io::Errno;

/// The reason why `primacy` itself ends; a job's own exit code is passed on as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success,
    /// The demo, or a check, found a violation; or a hook failed.
    Failed,
    /// The command line is wrong: unknown option, malformed URL, a secret where others can read it.
    Usage,
    /// The store, the address to listen on, or the watchdog cannot be used.
    Unavailable,
    /// The system refused something that is always needed: a process, a thread, a file descriptor.
    System,
    /// The state directory is used by another process with the same node name.
    InUse,
    /// The state directory or a file in it cannot be read, is damaged or foreign, or the disk is full.
    State,
    /// Not elected in time (`--wait`, `--no-wait`); or there is no leader; or the request cannot be done in the present
    /// state.
    NotElected,
    /// The token is stale: a later leader's token has been seen.
    Stale,
    /// The other side speaks another version.
    Protocol,
    /// A file that only this user may write can be written by other users, or belongs to another user.
    NotPermitted,
    /// The request was done with another outcome than requested: another node was elected.
    Elsewhere,
    /// The settings contradict each other: timers, voters, names.
    Config,
    /// The command was found and cannot be executed.
    NotExecutable,
    /// The command was not found.
    NotFound,
    /// Ended by this signal, after the job was ended.
    Signal(i32),
    /// The job's own exit code.
    Job(u8),
}

/// The exit codes in `primacy run --help`.
pub(crate) const HELP: &str = "\
Exit codes:
  The command's own code when it ends by itself; 128 + N when signal N ended it.
  0       done
  1       the hook --on-elected failed, without --restart
  64      the command line is wrong
  69      the store, the address to listen on, or the watchdog cannot be used
  71      the system refused a process, a thread or a file descriptor
  73      another process with the same node name is running
  74      the state directory is unreadable, damaged, foreign or full
  75      not elected in time (--wait, --no-wait); nothing was run
  77      others may write the state directory, and could command this node
  78      the settings contradict each other, for example lease and drain
  126     the command cannot be executed; with --restart only at the start
  127     the command, or its interpreter, is missing; with --restart only at
          the start
  129 130 143   ended by SIGHUP, SIGINT or SIGTERM, after the command was ended in order";

/// The exit codes in `primacy fence exec --help`.
pub(crate) const FENCE_EXEC_HELP: &str = "\
Exit codes:
  The command's own code when it ends by itself; 128 + N when signal N ended it.
  64      the command line is wrong
  71      the system refused a process, a thread or a file descriptor
  74      the state file is unreadable, damaged, foreign or lost, or the disk is full
  75      another command was running (--wait, --no-wait); nothing was run
  76      the token is stale, another leads; nothing was run
  126     the command cannot be executed
  127     the command was not found";

/// The exit codes in `primacy fence proxy --help`.
pub(crate) const FENCE_PROXY_HELP: &str = "\
Exit codes:
  0       ended by SIGTERM, SIGINT or SIGHUP, after the requests under way had ended
  64      the command line is wrong
  69      the address cannot be listened on
  71      the system refused a thread or a file descriptor
  73      another process holds the state file
  74      the state file is unreadable, damaged, foreign or lost, or the disk is full";

/// The exit codes in `primacy doctor --help`.
pub(crate) const DOCTOR_HELP: &str = "\
Exit codes:
  0       nothing failed; read what is to be mended, and what is not known
  1       something failed; what to do stands beside it
  64      the command line is wrong
  71      the system refused a process, a thread or a file descriptor
  129 130 143   ended by SIGHUP, SIGINT or SIGTERM during the drill, after everything that it had started was ended";

/// The exit codes in `primacy config check --help` and `primacy config print --help`.
pub(crate) const CONFIG_HELP: &str = "\
Exit codes:
  0       nothing is wrong; what was to be printed is printed
  1       it cannot be printed
  64      the command line is wrong
  78      the settings are wrong, or contradict each other; all that is wrong is said";

/// The exit codes in `primacy fence install --help`.
#[cfg(feature = "postgres")]
pub(crate) const FENCE_INSTALL_HELP: &str = "\
Exit codes:
  0       the tables are guarded
  1       the database refuses it; nothing has changed
  64      the command line is wrong
  69      the database cannot be reached, or a table stays in use by transactions
          that do not end; nothing has changed
  71      the system refused a thread or a file descriptor";

/// The exit codes in `primacy fence print --help`.
#[cfg(feature = "postgres")]
pub(crate) const FENCE_PRINT_HELP: &str = "\
Exit codes:
  0       done
  64      the command line is wrong";

/// The exit codes in `primacy demo --help`.
#[cfg(feature = "sqlite")]
pub(crate) const DEMO_HELP: &str = "\
Exit codes:
  0       it was shown
  1       something went otherwise than it should have; what, is said
  64      the command line is wrong
  71      the system refused a process, a thread or a file descriptor";

/// The exit codes in `primacy completions --help`.
pub(crate) const COMPLETIONS_HELP: &str = "\
Exit codes:
  0       done
  1       the script cannot be printed
  64      the command line is wrong, or there is no such shell";

/// The exit codes in the help of the operator's verbs.
pub(crate) const VERBS_HELP: &str = "\
Exit codes:
  0       done; for `status`, a node leads
  2       done, but a node other than the named one was elected
  64      the command line is wrong, or the request can never be done
  69      no such node runs here, it does not answer, or the store cannot be used
  71      the system refused a thread or a file descriptor
  74      the state directory, or the record in the store, cannot be used
  75      no node leads; or the request cannot be done now, and nothing has changed;
          or it was not done within --wait, and may still be done
  76      the node speaks another version of the control protocol
  77      other users may write the control socket or its directory, or it is not yours";

/// Returns whether the process, or the machine, has no file descriptor left.
pub(crate) fn is_descriptor_shortage(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

impl Exit {
    /// Returns the exit code for a file in a state directory that cannot be used.
    pub(crate) fn of_state(error: &std::io::Error) -> Self {
        if is_descriptor_shortage(error) { Self::System } else { Self::State }
    }

    /// Returns the number of the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::System => 71,
            Self::InUse => 73,
            Self::State => 74,
            Self::NotElected => 75,
            Self::Stale => 76,
            Self::Protocol => 76,
            Self::NotPermitted => 77,
            Self::Elsewhere => 2,
            Self::Config => 78,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Self::Job(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An end with its explanation, which names the remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    /// Creates a failure with this message.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::System, format!("the system refuses what is needed: {error}"))
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        std::io::Error::from(error).into()
    }
}
