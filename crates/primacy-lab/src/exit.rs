//! The exit codes of `primacy-lab`. They are those of sysexits.h where it has one.

use std::io::{self, Write as _};
use std::process::ExitCode;

/// The exit of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success,
    /// A check failed, or a drawing cannot be written.
    Failed,
    /// The command line is wrong.
    Usage,
    /// A simulated world has broken an invariant.
    Broken,
    /// A program cannot be started, or a network namespace cannot be made.
    Unavailable,
    /// The system refused a process, a thread or a file descriptor.
    System,
    /// A directory cannot be made or written.
    State,
    /// The directory of the measured nodes is not on a disk.
    Config,
    /// Ended by this signal.
    Signal(i32),
}

/// The exit codes in the help of `primacy-lab sim`.
pub(crate) const SIM_HELP: &str = "\
Exit codes:
  0       all that is promised was kept in every world; it took as many messages as it had to
  1       so many worlds must have met more than they did: what was never met is said; or the drawing cannot be written
  64      the command line is wrong
  70      an invariant was broken; the seed and its replay are said; or it took another number of messages
  71      the system refused a thread
  129 130 143   ended by SIGHUP, SIGINT or SIGTERM, after the sums so far were told";

/// The exit codes in the help of `primacy-lab compare`.
pub(crate) const COMPARE_HELP: &str = "\
Exit codes:
  0       done
  1       the drawing cannot be written
  64      the command line is wrong
  70      an invariant was broken, or something panicked; in which run is said
  71      the system refused a thread
  129 130 143   ended by SIGHUP, SIGINT or SIGTERM; nothing is told, for half of it compares nothing";

/// The exit codes in the help of `primacy-lab replay`.
pub(crate) const REPLAY_HELP: &str = "\
Exit codes:
  0       it went as the script says; in the seed's world all that is promised was kept
  1       it went otherwise than the script says, or the drawing cannot be written
  64      the command line is wrong, or there is no such script or election
  70      an invariant was broken, and the script does not say that it is";

/// The exit codes in the help of `primacy-lab bench`.
pub(crate) const BENCH_HELP: &str = "\
Exit codes:
  0       it was measured
  1       it could not be measured: what happened instead is said
  64      the command line is wrong
  69      a program cannot be started, or no network of its own can be made
  71      the system refused a process, a thread or a file descriptor
  74      its directory cannot be made or written
  78      its directory is on no disk
  129 130 143   ended by SIGHUP, SIGINT or SIGTERM, after everything that it had started was ended";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::Usage => 64,
            Exit::Broken => 70,
            Exit::Unavailable => 69,
            Exit::System => 71,
            Exit::State => 74,
            Exit::Config => 78,
            Exit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        })
    }
}

/// Writes to standard output. A closed pipe is not an error.
///
/// # Errors
/// [`Exit::Failed`] if the output cannot be written, as to a full disk.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, format!("the output cannot be written: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// An exit with an error message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    /// A failure with this message.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Exit::System, format!("the system refuses what is needed: {error}"))
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}
