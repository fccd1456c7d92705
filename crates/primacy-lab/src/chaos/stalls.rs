//! The watch for stalls of the machine: a small process on each processor, which wakes a hundred times a second and
//! records when it woke late; and one that reads a block from the disk as often, and records when that took long.
//! During such a stall, no process can keep a deadline.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use primacy::clock;
use primacy_core::Instant;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::chaos::event_log::append;
use crate::chaos::processes::MARK;
use primacy_testbed::run_error::RunError;

/// The file of all stalls of a run.
pub(crate) const STALLS: &str = "stalls.jsonl";
/// The file that records whether the disk of a run was watched.
pub(crate) const DISK_WATCH: &str = "disk-watch.jsonl";
/// The file from which the block is read.
const PROBE: &str = "disk-probe";

/// The interval between two probes.
const EVERY: Duration = Duration::from_millis(10);
/// The shortest stall that is recorded: a tenth of a kill margin. Where it matters, the judge allows for one shorter stall.
pub(crate) const STALL_MIN: Duration = Duration::from_millis(20);

/// A resource of the machine that can stall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StalledResource {
    /// A processor ran no ready process. Files of runs without a disk watch have no such field.
    #[default]
    Processor,
    /// The disk of the run's directory answered no read.
    Disk,
}

/// A stall of this length, until `boot_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stall {
    /// The resource.
    #[serde(default)]
    pub(crate) of: StalledResource,
    /// Its end.
    pub(crate) boot_ns: u64,
    /// Its length.
    pub(crate) stall_ns: u64,
}

/// Whether the disk of a run was watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "disk", rename_all = "snake_case")]
pub(crate) enum DiskWatch {
    /// It was watched.
    Watched,
    /// It was not watched, so none of its stalls is known.
    NotWatched {
        /// The reason.
        reason: String,
    },
}

/// The watch of a run; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Watch {
    children: Vec<Child>,
}

impl Watch {
    /// Watches every processor and the disk, and writes into the run's directory. If the file system does not support
    /// reads past the cache, the disk is not watched, and that is recorded.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn start(dir: &Path) -> Result<Self, RunError> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let own = std::env::current_exe().map_err(RunError::file("find", Path::new("this program")))?;
        let mut watch = Self { children: Vec::new() };
        for processor in 0..processors {
            let mut command = Command::new("taskset");
            command.arg("--cpu-list").arg(processor.to_string()).arg(&own).args(["chaos", "stalls"]).arg(dir);
            watch.add(command)?;
        }
        let path = dir.join(PROBE);
        std::fs::write(&path, Block([1; BLOCK]).0).map_err(RunError::file("write", &path))?;
        let disk = match Probe::open(dir).and_then(|mut probe| probe.read()) {
            Ok(_) => DiskWatch::Watched,
            Err(error) => DiskWatch::NotWatched {
                reason: format!("{} cannot be read past the cache: {error}", path.display()),
            },
        };
        if disk == DiskWatch::Watched {
            let mut command = Command::new(&own);
            command.args(["chaos", "stalls"]).arg(dir).arg("--disk");
            watch.add(command)?;
        }
        let path = dir.join(DISK_WATCH);
        let written = File::create_new(&path).and_then(|mut file| append(&mut file, &disk));
        written.map_err(RunError::file("write", &path))?;
        Ok(watch)
    }

    fn add(&mut self, mut command: Command) -> Result<(), RunError> {
        command.env(MARK, format!("{}/stalls", std::process::id())).stdin(Stdio::null());
        let program = command.get_program().to_owned();
        self.children.push(command.spawn().map_err(RunError::file("start", Path::new(&program)))?);
        Ok(())
    }
}

impl Watch {
    /// Ends the watch.
    ///
    /// # Errors
    /// [`RunError`] if one of its processes had ended before: then that processor, or the disk, was not watched.
    pub(crate) fn end(mut self) -> Result<(), RunError> {
        for child in &mut self.children {
            if let Some(status) =
                child.try_wait().map_err(RunError::file("wait for", Path::new("a watch")))?
            {
                return Err(RunError::NotWhole(format!(
                    "the watch of a processor or of the disk had ended: {status}"
                )));
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

/// The size of the block: every O_DIRECT implementation accepts it.
const BLOCK: usize = 4096;

/// Memory aligned for O_DIRECT.
#[derive(Debug)]
#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// A file that is read past the cache.
#[derive(Debug)]
struct Probe {
    file: File,
    block: Box<Block>,
}

impl Probe {
    fn open(dir: &Path) -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = rustix::fs::open(dir.join(PROBE), flags, Mode::empty())?;
        Ok(Self { file: file.into(), block: Box::new(Block([0; BLOCK])) })
    }

    fn read(&mut self) -> std::io::Result<()> {
        self.file.read_exact_at(&mut self.block.0, 0)
    }
}

/// Watches the disk, or the processor that this process is pinned to, until it is killed.
///
/// # Errors
/// [`RunError`]
pub(crate) fn watch(dir: &Path, disk: bool) -> Result<(), RunError> {
    let path = dir.join(STALLS);
    let file =
        OpenOptions::new().create(true).append(true).open(&path).map_err(RunError::file("open", &path))?;
    // A separate thread writes, so that a stalled disk does not block the watch.
    let (tell, told) = channel();
    let written = std::thread::spawn(move || write(file, &told));
    if disk {
        let probe = dir.join(PROBE);
        watch_disk(dir, &tell).map_err(RunError::file("read", &probe))?;
    } else {
        watch_processor(&tell);
    }
    let ended = written.join().unwrap_or_else(|_| Err(std::io::Error::other("its thread has panicked")));
    ended.map_err(RunError::file("write", &path))
}

fn write(mut file: File, told: &Receiver<Stall>) -> std::io::Result<()> {
    told.iter().try_for_each(|stall| append(&mut file, &stall))
}

/// Watches a processor until the writer is gone.
fn watch_processor(tell: &Sender<Stall>) {
    loop {
        let due = clock::now().after(EVERY.into());
        std::thread::sleep(EVERY);
        if !tell_if_long(StalledResource::Processor, (due, clock::now()), tell) {
            return;
        }
    }
}

/// Watches the disk until the writer is gone. Only the read is measured. This process must be scheduled to see the
/// end of a read, so if both stalls coincide, a stall of the disk contains some of the processor's.
fn watch_disk(dir: &Path, tell: &Sender<Stall>) -> std::io::Result<()> {
    let mut probe = Probe::open(dir)?;
    loop {
        std::thread::sleep(EVERY);
        let before = clock::now();
        probe.read()?;
        if !tell_if_long(StalledResource::Disk, (before, clock::now()), tell) {
            return Ok(());
        }
    }
}

/// Records a stall that is long enough. Returns true if the writer still exists.
fn tell_if_long(of: StalledResource, (from, until): (Instant, Instant), tell: &Sender<Stall>) -> bool {
    let stall = until.since(from);
    if stall < STALL_MIN.into() {
        return true;
    }
    tell.send(Stall { of, boot_ns: until.as_nanos(), stall_ns: stall.as_nanos() }).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_told_and_nothing_else() {
        let (tell, told) = channel();
        let until = |nanos| (Instant::from_nanos(5), Instant::from_nanos(nanos));
        assert!(tell_if_long(StalledResource::Disk, until(20_000_004), &tell));
        assert!(tell_if_long(StalledResource::Disk, until(20_000_005), &tell));
        let stalls: Vec<Stall> = told.try_iter().collect();
        assert_eq!(stalls, [Stall { of: StalledResource::Disk, boot_ns: 20_000_005, stall_ns: 20_000_000 }]);
        drop(told);
        assert!(!tell_if_long(StalledResource::Disk, until(20_000_005), &tell), "nobody writes");
    }

    #[test]
    fn the_files_of_runs_that_watched_no_disk_are_read() {
        let stall = |line| serde_json::from_str::<Stall>(line).unwrap();
        let old = Stall { of: StalledResource::Processor, boot_ns: 7, stall_ns: 5 };
        assert_eq!(stall(r#"{"boot_ns":7,"stall_ns":5}"#), old);
        let new = Stall { of: StalledResource::Disk, ..old };
        assert_eq!(serde_json::to_string(&new).unwrap(), r#"{"of":"disk","boot_ns":7,"stall_ns":5}"#);
        assert_eq!(stall(r#"{"of":"disk","boot_ns":7,"stall_ns":5}"#), new);
    }
}
