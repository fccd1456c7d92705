//! The processes of a bench: everything that is begun here is ended here, also when the bench is interrupted or
//! fails.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use primacy::clock;
use rustix::process::{Signal, getpid, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Exit, Failure};
use crate::guardian::job::bind_to_parent;
use crate::process_tree::end_descendants;

/// How often to look whether the bench was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// Watches over all that the bench has started. There is one in a bench.
#[derive(Debug)]
pub(super) struct Stage {
    /// The signal that interrupts the bench, or zero.
    interrupted: Arc<AtomicUsize>,
}

/// A line that a process has told.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Which process, by the number that it was given.
    pub(super) process: usize,
    /// Which of its lives.
    pub(super) life: u32,
    /// When it was read, in nanoseconds of the boot clock.
    pub(super) read_ns: u64,
    /// Without its end.
    pub(super) text: String,
}

/// The lines of some processes, in the order in which they were read.
#[derive(Debug)]
pub(super) struct Lines {
    sender: Sender<Line>,
    lines: Receiver<Line>,
}

impl Stage {
    pub(super) fn new() -> Result<Self, Failure> {
        // The guardian of a node that is killed becomes our child, and with it whatever it has started.
        set_child_subreaper(Some(getpid()))?;
        let interrupted = Arc::new(AtomicUsize::new(0));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let value = usize::try_from(signal).unwrap_or(1);
            signal_hook::flag::register_usize(signal, Arc::clone(&interrupted), value)?;
        }
        Ok(Self { interrupted })
    }

    /// # Errors
    /// If a signal has asked for the end.
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

impl Drop for Stage {
    fn drop(&mut self) {
        // All of them are below this process, since it is a subreaper, and nothing else is.
        end_descendants(None, |_, _| {});
    }
}

/// Starts a process that dies with the bench, with both its outputs piped.
pub(super) fn start(mut command: Command) -> Result<Child, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    bind_to_parent(&mut command, Signal::TERM);
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| {
        Failure::new(Exit::Unavailable, format!("{program} cannot be started: {error}; is it installed?"))
    })
}

impl Lines {
    pub(super) fn new() -> Self {
        let (sender, lines) = channel();
        Self { sender, lines }
    }

    /// Reads both outputs of a process from now on.
    pub(super) fn listen(&self, child: &mut Child, process: usize, life: u32) -> Result<(), Failure> {
        self.read(child.stdout.take(), process, life)?;
        self.read(child.stderr.take(), process, life)
    }

    fn read(
        &self,
        from: Option<impl Read + Send + 'static>,
        process: usize,
        life: u32,
    ) -> Result<(), Failure> {
        let sender = self.sender.clone();
        let Some(from) = from else { return Ok(()) };
        std::thread::Builder::new().name(format!("hear {process}")).spawn(move || {
            for text in BufReader::new(from).lines().map_while(Result::ok) {
                let read_ns = clock::now().as_nanos();
                if sender.send(Line { process, life, read_ns, text }).is_err() {
                    return; // The bench is over.
                }
            }
        })?;
        Ok(())
    }

    /// The next line, if one comes before `until`.
    ///
    /// # Errors
    /// If the bench is interrupted.
    pub(super) fn next(&self, stage: &Stage, until: Instant) -> Result<Option<Line>, Failure> {
        loop {
            stage.check_interrupted()?;
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(LOOK.min(left)) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}

/// Waits, unless the bench is interrupted.
pub(super) fn pause(stage: &Stage, time: Duration) -> Result<(), Failure> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        stage.check_interrupted()?;
        std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}
