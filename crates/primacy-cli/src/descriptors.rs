//! The file descriptors that every command needs at once. Where there are too few of them, a runtime cannot
//! be made, and panics; so they are counted before anything is begun.

use std::os::unix::net::UnixStream;

use crate::exit::{self, Exit, Failure};

/// Pairs of descriptors: a runtime takes some four, a command, its files and its connections the others.
const PAIRS: usize = 8;

/// Checks that this process can have some more descriptors.
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
