//! Finding the program of a job.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::exit::{Exit, Failure};
use crate::guardian::job::Program;

/// The number of bytes that the kernel reads of a script's first line (`execve(2)`).
const FIRST_LINE_MAX: u64 = 256;

/// Finds the program now, so that a command that cannot run is noticed before an election is won.
pub(crate) fn find_program(command: &[OsString]) -> Result<Program, Failure> {
    let Some(name) = command.first() else {
        return Err(Failure::new(Exit::Usage, "no command is given"));
    };
    let shown = name.to_string_lossy();
    let mut found = None;
    for file in candidates(name) {
        match check_executable(&file) {
            Ok(()) => {
                check_interpreter(&file)?;
                return Ok(Program { file: file.into(), args: command.to_vec() });
            }
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

/// Fails if the file is a script whose interpreter cannot be executed.
fn check_interpreter(file: &Path) -> Result<(), Failure> {
    let Some(interpreter) = interpreter(file) else { return Ok(()) };
    check_executable(&interpreter).map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let exit = if missing { Exit::NotFound } else { Exit::NotExecutable };
        let message = format!(
            "{} cannot be executed: the interpreter in its first line, {}: {error}",
            file.display(),
            interpreter.display()
        );
        Failure::new(exit, message)
    })
}

/// Returns the interpreter that a script names, as the kernel reads it; `None` if the file is not a script, or cannot
/// be read.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    fs::File::open(file).ok()?.take(FIRST_LINE_MAX).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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

    #[test]
    fn a_script_without_its_interpreter_is_found_out_before_it_is_to_run() {
        let file = env::temp_dir().join(format!("primacy-script-{}", std::process::id()));
        for (first, exit) in [
            ("#!/no/such/interpreter -x", Some(Exit::NotFound)),
            ("#!\t/etc/passwd", Some(Exit::NotExecutable)),
            ("#! /bin/sh", None),
            ("#!", None),
            ("echo a shell runs it", None),
        ] {
            fs::write(&file, format!("{first}\nexit 0\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            let found = find_program(&[file.clone().into()]);
            assert_eq!(found.err().map(|failure| failure.exit), exit, "{first}");
        }
        fs::remove_file(&file).unwrap();
    }
}
