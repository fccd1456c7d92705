//! The child processes of the bench, which run the same program file: `primacy-lab bench-child ROLE`, started only by
//! the bench. They do without the command line parser, whose time would count as the job's.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use primacy::clock;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::partition_guardian;
use super::partition_node::{self, Node, TIME_TO_LIVE};

/// A job that prints its first line with the time, and then sleeps.
pub(crate) const JOB: &str = "job";
/// An echo server: `echo ADDRESS`.
pub(crate) const ECHO: &str = "echo";
/// A process that prints a line, and waits to be killed.
pub(crate) const VICTIM: &str = "victim";
/// A process that keeps one core busy.
pub(crate) const BUSY: &str = "busy";

/// A node of the partitions bench: `partition-node NAME PEERS DIR [LEDGERS [SECONDS]]`, with the directory of the
/// ledgers that it writes to, and the time to live of its session.
pub(crate) const PARTITION_NODE: &str = "partition-node";
/// The same with a guardian that reports its death.
pub(crate) const GUARDED_PARTITION_NODE: &str = "guarded-partition-node";
/// The guardian: `partition-guardian PID SPEC`.
pub(crate) const PARTITION_GUARDIAN: &str = "partition-guardian";

/// The length of the echoed messages: that of a heartbeat.
pub(crate) const MESSAGE_LENGTH: usize = 64;

/// Runs the child process of this role.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let role = args.next().and_then(|role| role.into_string().ok());
    // A guardian outlives its node, and ends when it has reported the death.
    if role.as_deref() != Some(PARTITION_GUARDIAN)
        && set_parent_process_death_signal(Some(Signal::KILL)).is_err()
    {
        return ExitCode::FAILURE;
    }
    if let Some(role @ (PARTITION_NODE | GUARDED_PARTITION_NODE | PARTITION_GUARDIAN)) = role.as_deref() {
        return of_partitions(role, args);
    }
    let more = args.next().and_then(|more| more.into_string().ok());
    let done = match (role.as_deref(), more) {
        (Some(JOB), None) => job(),
        (Some(ECHO), Some(address)) => echo(&address),
        (Some(VICTIM), None) => say("ready").map(|()| wait_for_ever()),
        (Some(BUSY), None) => compute_for_ever(),
        (Some(_) | None, _) => {
            let _ =
                writeln!(std::io::stderr(), "primacy-lab: this command is started by `primacy-lab bench`");
            return ExitCode::FAILURE;
        }
    };
    // An error means that the reader is gone; no output matters any more.
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn of_partitions(role: &str, args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.filter_map(|arg| arg.into_string().ok()).collect();
    let guarded = role == GUARDED_PARTITION_NODE;
    let done = match (role, args.as_slice()) {
        (PARTITION_GUARDIAN, [node, spec]) => partition_guardian::run(node, spec),
        (PARTITION_NODE | GUARDED_PARTITION_NODE, [name, peers, dir, more @ ..]) => {
            let dir = dir.as_ref();
            let (ledgers, time_to_live) = match more {
                [] => (None, TIME_TO_LIVE),
                [ledgers] => (Some(ledgers.into()), TIME_TO_LIVE),
                [ledgers, seconds] => match seconds.parse() {
                    Ok(seconds) => (Some(ledgers.into()), Duration::from_secs(seconds)),
                    Err(_) => return ExitCode::FAILURE,
                },
                _ => return ExitCode::FAILURE,
            };
            partition_node::run(Node { name, peers, dir, ledgers, time_to_live, guarded })
        }
        _ => return ExitCode::FAILURE,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "{}", failure.message);
            failure.exit.into()
        }
    }
}

fn job() -> std::io::Result<()> {
    let boot_ns = clock::now().as_nanos();
    let token = std::env::var("PRIMACY_TOKEN").unwrap_or_default();
    say(&format!("{{\"job\":\"first_line\",\"token\":{token},\"boot_ns\":{boot_ns}}}"))?;
    wait_for_ever()
}

fn say(line: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(format!("{line}\n").as_bytes())
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

fn echo(address: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut message = [0; MESSAGE_LENGTH];
    loop {
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
    }
}

fn compute_for_ever() -> ! {
    let mut value = 1_u64;
    loop {
        value = std::hint::black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
}
