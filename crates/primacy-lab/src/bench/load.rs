//! Processes that keep cores busy beside the measured ones.

use std::process::{Child, Command, Stdio};

use super::child;
use crate::exit::Failure;

/// Busy processes; dropping it ends them.
#[derive(Debug)]
pub(super) struct Load(Vec<Child>);

impl Load {
    /// Starts this many processes.
    pub(super) fn start(count: usize) -> Result<Self, Failure> {
        let mut load = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("/proc/self/exe");
            command.args(["bench-child", child::BUSY]).stdin(Stdio::null()).stdout(Stdio::null());
            load.0.push(command.spawn()?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}
