//! A read of a store by a separate process.
//!
//! A file system that hangs blocks its readers in the kernel, and a process with such a thread cannot end, not even by
//! SIGKILL. So a separate process reads the store, and this one can report a timeout and end.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::LOOK_PATIENCE;
use crate::exit::{Exit, Failure};
use crate::stdout;

/// The variable that is set for the process that reads.
const APART: &str = "_PRIMACY_LOOKS_APART";

/// The time that the process may take beyond that of the store.
const MORE_PATIENCE: Duration = Duration::from_secs(2);

/// Runs `look`; in a separate process if the store is in files.
///
/// # Errors
/// The failures of `look`; [`Exit::Unavailable`] if the separate process does not end.
pub(in super::super) fn look_apart(
    url: &str,
    look: impl FnOnce() -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let is_in_files = ["sqlite:", "file:"].iter().any(|scheme| url.starts_with(scheme));
    if !is_in_files || std::env::var_os(APART).is_some() {
        return look();
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(APART, "1").stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id();
    let relays = [relay(child.stdout.take(), io::stdout), relay(child.stderr.take(), io::stderr)];
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(child.wait()));
    let Ok(ended) = told.recv_timeout(LOOK_PATIENCE + MORE_PATIENCE) else {
        let message = format!(
            "the file system of {url} does not answer: the process {pid}, which looks there, is kept by it and ends when it answers"
        );
        return Err(Failure::new(Exit::Unavailable, message));
    };
    let [relayed, _] = relays.map(|relay| relay.join().unwrap_or(Ok(0)));
    stdout::written(relayed)?;
    let code = ended?.code().and_then(|code| u8::try_from(code).ok());
    code.map(Exit::Job)
        .ok_or_else(|| Failure::new(Exit::Failed, "the process that looks at the store was killed"))
}

/// Passes on the output of the separate process, to its end.
fn relay<W: io::Write>(
    from: Option<impl Read + Send + 'static>,
    to: impl FnOnce() -> W + Send + 'static,
) -> thread::JoinHandle<io::Result<u64>> {
    thread::spawn(move || from.map_or(Ok(0), |mut from| io::copy(&mut from, &mut to())))
}
