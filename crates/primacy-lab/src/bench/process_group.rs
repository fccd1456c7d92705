//! The processes of a bench: each is ended at its end, also if the bench is interrupted or fails.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use primacy::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{getpid, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Exit, Failure};
use crate::processes::end_descendants;

/// The interval between two checks whether the bench was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// The guard of all processes that the bench has started; a bench has one.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    /// The signal that interrupts the bench, or zero.
    interrupted: Arc<AtomicUsize>,
}

/// A line that a process has printed.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The index of the process.
    pub(super) process: usize,
    /// The number of its incarnation.
    pub(super) life: u32,
    /// The time at which it was read, in nanoseconds of the boot clock.
    pub(super) read_ns: u64,
    /// Without the line end.
    pub(super) text: String,
}

/// The output of some processes. It is read only on request: a reading thread would take processor time from the
/// measured processes.
#[derive(Debug, Default)]
pub(super) struct Lines {
    sources: Vec<Source>,
    lines: VecDeque<Line>,
}

/// One output stream of a process.
#[derive(Debug)]
struct Source {
    fd: OwnedFd,
    process: usize,
    life: u32,
    begun: Vec<u8>,
    ended: bool,
}

impl ProcessGroup {
    pub(super) fn new() -> Result<Self, Failure> {
        // The guardian of a killed node becomes a child of this process, with all its descendants.
        set_child_subreaper(Some(getpid()))?;
        let interrupted = Arc::new(AtomicUsize::new(0));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let value = usize::try_from(signal).unwrap_or(1);
            signal_hook::flag::register_usize(signal, Arc::clone(&interrupted), value)?;
        }
        Ok(Self { interrupted })
    }

    /// Fails if the bench was interrupted.
    ///
    /// # Errors
    /// If a signal has requested the end.
    pub(super) fn check_interrupted(&self) -> Result<(), Failure> {
        match self.interrupted.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => {
                let signal = i32::try_from(signal).unwrap_or(SIGTERM);
                Err(Failure::new(Exit::Signal(signal), "interrupted; everything that was started is ended"))
            }
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // All of them are descendants of this process, since it is a subreaper, and it has no others.
        end_descendants();
    }
}

/// Starts a process with both outputs piped. [`ProcessGroup`] ends it; if the bench itself is killed by SIGKILL, the
/// process stays.
pub(super) fn start(mut command: Command) -> Result<Child, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)
}

/// Starts a process, which [`ProcessGroup`] ends.
pub(super) fn spawn(mut command: Command) -> Result<Child, Failure> {
    without_settings(&mut command);
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| {
        Failure::new(Exit::Unavailable, format!("{program} cannot be started: {error}; is it installed?"))
    })
}

/// Removes all settings from the environment: the settings of measured nodes, and of requests to them, are on their
/// command lines. Marks of processes are not settings.
pub(super) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"PRIMACY_") && !bytes.ends_with(b"_MARK") {
            command.env_remove(name);
        }
    }
}

impl Lines {
    /// Adds both outputs of a process to those that are read.
    pub(super) fn listen(&mut self, child: &mut Child, process: usize, life: u32) -> Result<(), Failure> {
        let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        for fd in outputs.into_iter().flatten() {
            rustix::io::ioctl_fionbio(&fd, true)?;
            self.sources.push(Source { fd, process, life, begun: Vec::new(), ended: false });
        }
        Ok(())
    }

    /// Returns the next line, if one arrives before `until`. A line that has arrived is returned even after that.
    ///
    /// # Errors
    /// If the bench is interrupted.
    pub(super) fn next(&mut self, group: &ProcessGroup, until: Instant) -> Result<Option<Line>, Failure> {
        loop {
            group.check_interrupted()?;
            if let Some(line) = self.lines.pop_front() {
                return Ok(Some(line));
            }
            let left = until.saturating_duration_since(Instant::now());
            let is_over = left.is_zero();
            self.wait(LOOK.min(left))?;
            self.read();
            if is_over && self.lines.is_empty() {
                return Ok(None);
            }
        }
    }

    fn wait(&self, time: Duration) -> Result<(), Failure> {
        let mut polled: Vec<PollFd<'_>> =
            self.sources.iter().map(|source| PollFd::new(&source.fd, PollFlags::IN)).collect();
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        match poll(&mut polled, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&mut self) {
        for source in &mut self.sources {
            source.read(&mut self.lines);
        }
        self.sources.retain(|source| !source.ended);
    }
}

impl Source {
    /// Reads all available output.
    fn read(&mut self, lines: &mut VecDeque<Line>) {
        let mut bytes = [0; 8192];
        loop {
            match rustix::io::read(&self.fd, &mut bytes) {
                Ok(count) if count > 0 => self.begun.extend_from_slice(&bytes[..count]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Ok(_) | Err(_) => {
                    self.ended = true;
                    break;
                }
            }
        }
        let read_ns = clock::now().as_nanos();
        while let Some(end) = self.begun.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            lines.push_back(Line { process: self.process, life: self.life, read_ns, text });
        }
    }
}
