//! When the machine keeps its processes from running: a small process on each processor, which wakes a hundred times a second
//! and tells when it was late. What a machine does not run for so long cannot keep a deadline.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use primacy::clock;
use serde::{Deserialize, Serialize};

use crate::notes::append;
use crate::processes::MARK;
use crate::trouble::Trouble;

/// The file of a run in which all are.
pub(crate) const STALLS: &str = "stalls.jsonl";

/// How often each looks.
const EVERY: Duration = Duration::from_millis(10);
/// Shorter ones are not told: a kill margin is ten times as long. The judge grants one of them, where it matters.
pub(crate) const STALL_MIN: Duration = Duration::from_millis(20);

/// A processor ran nothing that was due on it, for so long, until `boot_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stall {
    /// Its end.
    pub(crate) boot_ns: u64,
    /// Its length.
    pub(crate) stall_ns: u64,
}

/// The watch of a run; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Watch {
    children: Vec<Child>,
}

impl Watch {
    /// Watches every processor, and writes into the run's directory.
    ///
    /// # Errors
    /// [`Trouble`]
    pub(crate) fn start(dir: &Path) -> Result<Self, Trouble> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let own = std::env::current_exe().map_err(Trouble::file("find", Path::new("this program")))?;
        let mut watch = Self { children: Vec::new() };
        for processor in 0..processors {
            let mut command = Command::new("taskset");
            command.arg("--cpu-list").arg(processor.to_string()).arg(&own).arg("stalls").arg(dir);
            command.env(MARK, format!("{}/stalls", std::process::id())).stdin(Stdio::null());
            watch.children.push(command.spawn().map_err(Trouble::file("start", Path::new("taskset")))?);
        }
        Ok(watch)
    }
}

impl Watch {
    /// Ends it.
    ///
    /// # Errors
    /// [`Trouble`] if a process of it had ended before: then nobody has watched that processor.
    pub(crate) fn end(mut self) -> Result<(), Trouble> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait().map_err(Trouble::file("wait for", Path::new("taskset")))? {
                return Err(Trouble::NotWhole(format!("the watch of a processor had ended: {status}")));
            }
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Watches the processor that this process is bound to, until it is killed.
///
/// # Errors
/// [`Trouble`]
pub(crate) fn watch(dir: &Path) -> Result<(), Trouble> {
    let path = dir.join(STALLS);
    let mut file =
        OpenOptions::new().create(true).append(true).open(&path).map_err(Trouble::file("open", &path))?;
    loop {
        let before = Instant::now();
        std::thread::sleep(EVERY);
        let late = before.elapsed().saturating_sub(EVERY);
        if late >= STALL_MIN {
            let stall_ns = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
            let stall = Stall { boot_ns: clock::now().as_nanos(), stall_ns };
            append(&mut file, &stall).map_err(Trouble::file("write", &path))?;
        }
    }
}
