//! The reasons why a run cannot go on. None of them is a verdict on Primacy.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A failure of the run itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A system program failed, or is missing.
    #[error("`{line}` failed: {said}")]
    Program {
        /// The command line.
        line: String,
        /// Its output.
        said: String,
    },
    /// A file could not be used.
    #[error("cannot {doing} {path}: {error}", path = .path.display())]
    File {
        /// The attempted operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A file of the run has a line that cannot be parsed.
    #[error("{path}, line {line}, is not understood: {error}", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        error: String,
    },
    /// The record of a run is incomplete.
    #[error("the record of the run is not whole: {0}")]
    NotWhole(String),
}

impl RunError {
    /// Wraps an I/O error, for `map_err`.
    pub fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File { doing, path: path.to_owned(), error }
    }
}

/// Runs a system program to its end, and returns its output.
///
/// # Errors
/// [`RunError::Program`] if it is missing, or fails.
pub fn call(program: &str, args: &[&str]) -> Result<String, RunError> {
    let line = || format!("{program} {}", args.join(" "));
    let failed = |said: String| RunError::Program { line: line(), said };
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
