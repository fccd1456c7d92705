//! `primacy fence exec`: runs a command only if its token is not stale, and only one at a time.
//!
//! The state file is locked while the command runs, by two locks. One is this process's, which waits until the command
//! and all its descendants have ended. The other one is of an open file that the command and its descendants inherit,
//! and can only read. When this process is killed, the kernel kills the command (parent-death signal), and the second
//! lock lasts until the last descendant that still has the file open has ended, or until one of them unlocks it.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use clap::Parser;
use primacy::FencingToken;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process, set_child_subreaper};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGINT, SIGQUIT};
use tokio::signal::unix::{SignalKind, signal};

use super::nesting::holder_above;
use super::{Patience, State, failure};
use crate::delegated_work::fence_warning;
use crate::duration;
use crate::exit::{self, Exit, Failure};
use crate::guardian::job::{Program, bind_to_parent, hand_on};
use crate::line_writer::write_last_words;
use crate::process_tree::{Ended, end_descendants, reap};
use crate::program::find_program;
use crate::signals::PassedOn;

/// Run a command only if its token is not stale, and one at a time.
///
/// COMMAND is run when no other command under the same state file is running,
/// and no higher token has been seen by then. A newer leader's command does not
/// begin before an older one's has ended, with all its descendants.
///
/// The command has PRIMACY_TOKEN and PRIMACY_ELECTION in its environment. What
/// it leaves behind when it ends is killed.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::FENCE_EXEC_HELP, after_long_help = LONG_HELP.to_owned() + exit::FENCE_EXEC_HELP)]
pub(crate) struct Exec {
    #[command(flatten)]
    state: State,

    /// The token of your leadership; env:NAME reads it from the environment
    #[arg(long, value_name = "TOKEN", default_value = "env:PRIMACY_TOKEN")]
    token: String,

    /// Give up with exit code 75 when another command has not ended within this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "no_wait")]
    wait: Option<Duration>,

    /// Give up with exit code 75 when another command is running
    #[arg(long)]
    no_wait: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const LONG_HELP: &str = "\
Example: the job of `primacy run`, which deploys by a script that checks nothing
  primacy run --election deploy --peers ... -- ./worker
  and in ./worker, which is told its token:
    primacy fence exec --state /var/lib/deploy.fence -- ./deploy.sh

Signals: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to
the command. While another command is waited for, they end the waiting.

What can outlast the lock: a process that the kernel cannot kill, or that has
become another user (one that was handed the command's descriptor of the state
file can also take its lock again, and keep others out); where this process is killed, a descendant that has closed
the files which it was started with, or has unlocked the state file; and work that
others do for the command (docker run, systemd-run, ssh, kubectl exec).

";

/// Runs the verb.
pub(crate) fn exec(args: &Exec) -> Result<Exit, Failure> {
    // Reports all errors that can be found before anything is started.
    let program = find_program(&args.command)?;
    let token = args.token()?;
    let patience = match (args.wait, args.no_wait) {
        (_, true) => Patience::None,
        (Some(time), false) => Patience::For(time),
        (None, false) => Patience::Forever,
    };
    if let Some(holder) = holder_above(&args.state.file) {
        let message = format!(
            "{}: process {} holds it, and this is a part of its command, for whose end it waits: this would wait for itself; run the \
             commands one after the other, or name another file",
            args.state.file.display(),
            holder.as_raw_nonzero()
        );
        return Err(Failure::new(Exit::NotElected, message));
    }
    if let Some(warning) = fence_warning(&args.command) {
        write_last_words(&format!("primacy fence exec: warning: {warning}"));
    }
    let fence = args.state.hold(patience).map_err(|error| failure(&error, Exit::NotElected))?;
    // The token is checked only now: a later leader may have come while this process waited.
    fence.admit(token).map_err(|error| failure(&error, Exit::NotElected))?;
    // The parent-death signal follows the thread, so this thread starts the command, and stays.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lock = fence.duplicate_lock().map_err(|error| failure(&error, Exit::NotElected))?;
    let exit = runtime.block_on(run(&program, &args.environment(token), lock.try_clone()?));
    // Always before the lock is released, even though remaining descendants have a descriptor of their own.
    end_descendants(None, None, |_, _| {});
    // A process that got the descriptor from the command would keep the fence locked.
    fence.release_duplicate(lock).map_err(|error| failure(&error, Exit::NotElected))?;
    exit
}

impl Exec {
    fn token(&self) -> Result<FencingToken, Failure> {
        let usage = |message: String| Failure::new(Exit::Usage, message);
        let text = match self.token.strip_prefix("env:") {
            None => self.token.clone(),
            Some(name) => env::var(name).map_err(|error| {
                usage(format!(
                    "--token env:{name}: {error}; give --token, or set {name} as `primacy run` does"
                ))
            })?,
        };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.map(FencingToken).ok_or_else(|| {
            usage(format!("the token {text:?} is none: it is a number in decimal digits, at most 2^64 - 1"))
        })
    }

    fn environment(&self, token: FencingToken) -> [(&'static str, String); 2] {
        [("PRIMACY_TOKEN", token.to_string()), ("PRIMACY_ELECTION", self.state.election.clone())]
    }
}

async fn run(
    program: &Program,
    environment: &[(&'static str, String); 2],
    lock: OwnedFd,
) -> Result<Exit, Failure> {
    // Orphans of the command are handed to this process, so that it notices when none is left.
    set_child_subreaper(Some(getpid()))?;
    let mut child_ended = signal(SignalKind::child())?;
    let mut passed_on = PassedOn::listen()?;
    let main = start(program, environment, lock)?;
    loop {
        let mut ended = None;
        reap(|pid, end| {
            if pid == main {
                ended = Some(end);
            }
        });
        if let Some(ended) = ended {
            return Ok(Exit::Job(Ended::exit_code(ended)));
        }
        tokio::select! {
            // Signals that arrive while this is not polled are merged, so all ended children are reaped at once.
            _ = child_ended.recv() => {}
            number = passed_on.next() => pass_on(main, number),
        }
    }
}

/// Starts the command in this process's own group, as `env` and `nice` do, so that it may read the terminal.
fn start(
    program: &Program,
    environment: &[(&'static str, String); 2],
    lock: OwnedFd,
) -> Result<Pid, Failure> {
    let mut command = Command::new(&program.file);
    if let Some((name, args)) = program.args.split_first() {
        command.arg0(name).args(args);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    bind_to_parent(&mut command, Signal::KILL);
    hand_on(&mut command, lock);
    let child = command.spawn().map_err(|error| {
        // The file existed and was executable a moment ago, so any other error is the system's.
        let exit = match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Exit::NotFound,
            Some(Errno::ACCESS | Errno::NOEXEC | Errno::PERM) => Exit::NotExecutable,
            Some(_) | None => Exit::System,
        };
        let message = format!("{} cannot be started: {error}", program.file.to_string_lossy());
        Failure::new(exit, message)
    })?;
    // The child is reaped with all the others.
    Ok(Pid::from_child(&child))
}

fn pass_on(main: Pid, number: i32) {
    // The terminal sends Control-C to the whole foreground group, so the command has received it already.
    if matches!(number, SIGINT | SIGQUIT) && in_foreground() {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(number) {
        // A process that has ended needs no signal, and one that has changed its user may refuse it.
        let _ = kill_process(main, signal);
    }
}

/// Returns whether this process's group is in the foreground of its terminal.
fn in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(&terminal) == Ok(getpgrp()))
}
