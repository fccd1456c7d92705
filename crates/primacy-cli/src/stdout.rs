//! Standard output of the verbs, whose text is their result.

use std::io::{self, Write as _};

use rustix::process::Signal;

use crate::exit::{Exit, Failure};

/// Writes this text to standard output.
///
/// # Errors
/// See [`written`].
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Converts the result of writing to standard output into that of the verb.
///
/// # Errors
/// [`Exit::Signal`] of SIGPIPE, without a message, if the reader is gone; else [`Exit::Failed`].
pub(crate) fn written<T>(result: io::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::new(Exit::Signal(Signal::PIPE.as_raw()), "")
        } else {
            Failure::new(Exit::Failed, format!("the output cannot be written: {error}"))
        }
    })
}
