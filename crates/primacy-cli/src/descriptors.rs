//! The file descriptors that every command needs. Without enough of them the creation of a runtime panics, so they are
//! counted before anything is started.

use std::os::unix::net::UnixStream;

use crate::exit::{self, Exit, Failure};

/// Pairs of descriptors: a runtime takes about four, and the command's files and connections take the others.
const PAIRS: usize = 8;

/// Checks that this process can open some more descriptors.
///
/// # Errors
/// [`Exit::System`] if it cannot.
pub(crate) fn check() -> Result<(), Failure> {
    let mut held = Vec::new();
    for _ in 0..PAIRS {
        match UnixStream::pair() {
            Ok(pair) => held.push(pair),
            Err(error) if exit::is_descriptor_shortage(&error) => {
                let message = format!(
                    "the system refuses file descriptors, and at least {} are needed: {error}; raise the limit (ulimit -n, LimitNOFILE=)",
                    2 * PAIRS
                );
                return Err(Failure::new(Exit::System, message));
            }
            Err(_) => return Ok(()), // What it is shows where it matters.
        }
    }
    Ok(())
}
