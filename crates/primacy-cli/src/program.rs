//! Finding the program of a job.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::exit::{Exit, Failure};
use crate::guardian::job::Program;

/// Finds the program now, so that a command that cannot run is not found out by the one who is elected.
pub(crate) fn find_program(command: &[OsString]) -> Result<Program, Failure> {
    let Some(name) = command.first() else {
        return Err(Failure::new(Exit::Usage, "no command is given"));
    };
    let shown = name.to_string_lossy();
    let mut found = None;
    for file in candidates(name) {
        match check_executable(&file) {
            Ok(()) => return Ok(Program { file: file.into(), args: command.to_vec() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found = found.or(Some((file, error))),
        }
    }
    Err(match found {
        Some((file, error)) => {
            let message = format!(
                "{} cannot be executed: {error}; is it a program, and may you run it?",
                file.display()
            );
            Failure::new(Exit::NotExecutable, message)
        }
        None if name.as_bytes().contains(&b'/') => {
            Failure::new(Exit::NotFound, format!("there is no {shown}; check the path"))
        }
        None => Failure::new(Exit::NotFound, format!("the command {shown} is not found in PATH")),
    })
}

fn candidates(name: &OsStr) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(name)];
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path).map(|dir| dir.join(name)).collect()
}

fn check_executable(file: &Path) -> io::Result<()> {
    if fs::metadata(file)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(access(file, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(find_program(&["sh".into()]).unwrap().args, ["sh"]);
        let code = |name: &str| find_program(&[name.into()]).unwrap_err().exit;
        assert_eq!(code("no-such-command-at-all"), Exit::NotFound);
        assert_eq!(code("/no/such/file"), Exit::NotFound);
        assert_eq!(code("/etc/passwd"), Exit::NotExecutable);
        assert_eq!(code("/etc"), Exit::NotExecutable);
    }
}
