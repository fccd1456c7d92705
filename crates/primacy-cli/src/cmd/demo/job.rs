//! The job of the demo and of the tests: it adds its token to a ledger every few milliseconds, until it is ended.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use primacy::{FencingToken, clock};
use rustix::fs::{FlockOperation, flock};
use rustix::process::setsid;
use serde::Serialize;

use super::ledger::{Ledger, Write};
use crate::duration;
use crate::exit::{Exit, Failure};

/// The job of `primacy demo`
#[derive(Debug, Parser)]
pub(crate) struct DemoJob {
    /// The ledger to write to
    #[arg(long)]
    ledger: PathBuf,

    /// Write without a token, to a ledger without a fence
    #[arg(long, conflicts_with_all = ["lock", "stubborn_every"])]
    unguarded: bool,

    /// The time between two writes
    #[arg(long, value_parser = duration::parse, default_value = "5ms")]
    every: Duration,

    /// Take this lock, and keep it
    #[arg(long)]
    lock: Option<PathBuf>,

    /// Start a grandchild in a session of its own that keeps the lock as well
    #[arg(long, requires = "lock")]
    grandchild: bool,

    /// Do not end when asked, if the token is a multiple of this
    #[arg(long)]
    stubborn_every: Option<u64>,

    /// Use so many MiB of memory, which makes dying take long
    #[arg(long, default_value_t = 0)]
    heap: usize,

    /// Be the grandchild's parent, or the grandchild, with the lock as standard input
    #[arg(long, value_parser = ["fork", "hold"])]
    role: Option<String>,
}

/// A report of the job on standard output, one line each.
#[derive(Debug, Serialize)]
#[serde(tag = "job", rename_all = "snake_case")]
pub(crate) enum DemoJobReport {
    /// The first line was written.
    Wrote { token: u64, boot_ns: u64 },
    /// A write was refused.
    Refused { token: u64, highest: u64, boot_ns: u64 },
    /// Another process has the lock.
    LockTaken { token: u64 },
}

/// Writes a line to standard output in one piece.
pub(crate) fn tell(report: &DemoJobReport) {
    if let Ok(mut line) = serde_json::to_string(report) {
        line.push('\n');
        // If the reader is gone, nothing matters any more.
        let _ = std::io::stdout().write_all(line.as_bytes());
    }
}

/// Runs the verb.
pub(crate) fn demo_job(args: &DemoJob) -> Result<Exit, Failure> {
    match args.role.as_deref() {
        Some("fork") => return fork(args),
        Some(_) => {
            setsid()?;
            loop {
                std::thread::sleep(Duration::from_secs(3_600));
            }
        }
        None => {}
    }
    if args.unguarded {
        return write_unguarded(args);
    }
    let token = FencingToken(variable("PRIMACY_TOKEN")?.parse().map_err(|_| not_by_hand())?);
    if args.stubborn_every.is_some_and(|every| token.0.is_multiple_of(every.max(1))) {
        // A handler without effect, so that the loop goes on after SIGTERM.
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false)))?;
    }
    let lock = match &args.lock {
        Some(path) => Some(take_lock(args, path, token)?),
        None => None,
    };
    // The memory is written to, since the kernel provides none before.
    let heap = vec![1_u8; args.heap << 20];
    let outcome = write(args, token, lock.as_ref());
    std::hint::black_box(heap);
    outcome
}

fn write(args: &DemoJob, token: FencingToken, lock: Option<&File>) -> Result<Exit, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, format!("the ledger failed: {error}"));
    let writer = variable("PRIMACY_ID")?;
    let election = variable("PRIMACY_ELECTION")?;
    let mut ledger = Ledger::open(&args.ledger, &election).map_err(|error| failed(&error))?;
    let mut first = true;
    loop {
        // The lease is not checked here, as if this leader had been paused right after its check.
        match ledger.append(token, &writer).map_err(|error| failed(&error))? {
            Write::Accepted if first => {
                first = false;
                tell(&DemoJobReport::Wrote { token: token.0, boot_ns: clock::now().as_nanos() });
            }
            Write::Accepted => {}
            Write::Refused { highest } => {
                let boot_ns = clock::now().as_nanos();
                tell(&DemoJobReport::Refused { token: token.0, highest: highest.0, boot_ns });
                if let Some(mut lock) = lock {
                    writeln!(lock, "{token} was refused, for {highest} had been there")?;
                }
                return Ok(Exit::Failed);
            }
        }
        std::thread::sleep(args.every);
    }
}

/// Writes under a term, which no fence checks, until it is ended.
fn write_unguarded(args: &DemoJob) -> Result<Exit, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, format!("the ledger failed: {error}"));
    let (writer, election) = (variable("PRIMACY_ID")?, variable("PRIMACY_ELECTION")?);
    let term = variable("PRIMACY_TERM")?.parse().map_err(|_| not_by_hand())?;
    let mut ledger = Ledger::open(&args.ledger, &election).map_err(|error| failed(&error))?;
    loop {
        ledger.append_unguarded(term, &writer).map_err(|error| failed(&error))?;
        std::thread::sleep(args.every);
    }
}

/// Takes the lock, which must be free: a job that still holds it should have ended before.
fn take_lock(args: &DemoJob, path: &PathBuf, token: FencingToken) -> Result<File, Failure> {
    let lock = OpenOptions::new().create(true).append(true).open(path)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        tell(&DemoJobReport::LockTaken { token: token.0 });
        // Written to the file, too: the reader of standard output may be gone.
        writeln!(&lock, "{} found the lock taken", token.0)?;
        return Err(Failure::new(Exit::Failed, "another job is alive"));
    }
    if args.grandchild {
        // The grandchild's parent ends at once, so that the grandchild becomes an orphan in a session of its own.
        let parent = Command::new("/proc/self/exe")
            .args(["demo-job", "--role", "fork", "--ledger"])
            .arg(&args.ledger)
            .stdin(lock.try_clone()?)
            .status()?;
        if !parent.success() {
            return Err(Failure::new(Exit::Failed, "the grandchild was not started"));
        }
    }
    Ok(lock)
}

fn fork(args: &DemoJob) -> Result<Exit, Failure> {
    Command::new("/proc/self/exe")
        .args(["demo-job", "--role", "hold", "--ledger"])
        .arg(&args.ledger)
        .stdin(Stdio::inherit())
        .spawn()?;
    Ok(Exit::Success)
}

fn variable(name: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|_| not_by_hand())
}

fn not_by_hand() -> Failure {
    Failure::new(Exit::Usage, "this command is started by `primacy run`, which sets its environment")
}
