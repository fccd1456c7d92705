//! A directory for a test, and the command in it.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its part of this")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The bound of each wait, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that is removed when this is dropped.
pub struct Place(PathBuf);

impl Place {
    pub fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("primacy-lab-{test}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The command with these arguments, which ignores no signals, as if it were started at a terminal.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT", env!("CARGO_BIN_EXE_primacy-lab")]).args(args);
        command.stdin(Stdio::null()).current_dir(&self.0);
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits, with a bound, until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
