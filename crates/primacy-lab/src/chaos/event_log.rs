//! The run's own events, one JSON object per line: the faults, the incarnations of the supervisors, the clocks. The
//! judge reads them together with the output of the nodes and the jobs.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use primacy::clock;
use serde::{Deserialize, Serialize};

use crate::chaos::fault::{Kind, NodeProcess};
use primacy_testbed::run_error::RunError;

/// An event of the run. Instants are nanoseconds of the machine's boot clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum RunEvent {
    /// The run begins.
    Run {
        /// The arm.
        arm: String,
        /// The seed of the whole run.
        seed: u64,
        /// The faults that this machine cannot make, with the reasons.
        not_run: Vec<(Kind, String)>,
        /// The node with a faked clock, if there is one.
        faked: Option<String>,
    },
    /// A supervisor was started.
    Incarnation {
        /// The node.
        node: String,
        /// The number of its incarnation, from 1.
        life: u32,
        /// Its process.
        pid: i32,
    },
    /// A supervisor has ended.
    Ended {
        /// The node.
        node: String,
        /// The number of the incarnation.
        life: u32,
        /// Its exit code; if it was killed, 128 plus the number of the signal.
        code: i32,
    },
    /// A fault is about to be injected.
    Fault {
        /// The number of its step, from 1.
        step: u32,
        /// The kind.
        kind: Kind,
        /// The target and all other details, as text.
        what: String,
    },
    /// A fault took effect: a live process got the signal, packets were dropped, the operator's command was obeyed.
    Took {
        /// The number of its step.
        step: u32,
        /// The kind.
        kind: Kind,
    },
    /// The revocable effects of the step were undone.
    Healed {
        /// The number of the step.
        step: u32,
        /// The number of packets dropped until then.
        #[serde(default)]
        dropped: u64,
    },
    /// A leader works again, and every node is up.
    Well {
        /// After this step.
        step: u32,
    },
    /// No leader works, or a node does not come back, long after the healing.
    Stuck {
        /// After this step.
        step: u32,
        /// The condition that is not met.
        what: String,
    },
    /// A command of the operator failed although its node ran and led, or the command did not end.
    Failed {
        /// Of this step.
        step: u32,
        /// Its output.
        what: String,
    },
    /// A live process was sent a signal, immediately after this time.
    Signal {
        /// The node.
        node: String,
        /// The number of its supervisor's incarnation.
        life: u32,
        /// The process that got it.
        part: NodeProcess,
        /// The signal.
        signal: Sent,
    },
    /// A replaced node has ended, and all its processes are gone.
    Left {
        /// The node.
        node: String,
    },
    /// The disk of the store has become full, or has space again.
    Disk {
        /// True if it is full.
        full: bool,
    },
    /// A faked clock was compared with the machine's clock, whose reading is the event's time.
    Clock {
        /// Its reading, in nanoseconds.
        faked_ns: u64,
        /// The uncertainty of the event's own time.
        within_ns: u64,
    },
    /// The run ends, and all processes that it started are gone.
    End,
}

/// A signal that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sent {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// SIGTERM.
    Terminate,
}

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimedEvent {
    /// The time, in nanoseconds of the boot clock.
    pub(crate) boot_ns: u64,
    /// The event.
    #[serde(flatten)]
    pub(crate) event: RunEvent,
}

/// The file of the events.
pub(crate) const EVENT_LOG: &str = "event_log.jsonl";

/// The writer of the events.
#[derive(Debug)]
pub(crate) struct EventLog {
    file: File,
}

impl EventLog {
    /// Opens the event log of an arm for appending.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn open(dir: &Path) -> Result<Self, RunError> {
        let path = dir.join(EVENT_LOG);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        Ok(Self { file: file.map_err(RunError::file("open", &path))? })
    }

    /// Writes an event with the present time.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn log(&mut self, event: RunEvent) -> Result<(), RunError> {
        self.log_at(clock::now().as_nanos(), event)
    }

    /// Writes an event with another time.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn log_at(&mut self, boot_ns: u64, event: RunEvent) -> Result<(), RunError> {
        let event = TimedEvent { boot_ns, event };
        append(&mut self.file, &event).map_err(RunError::file("write", Path::new(EVENT_LOG)))
    }
}

/// Appends a line to a file in one write.
///
/// # Errors
/// The error of the system.
pub(crate) fn append(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    file.write_all(text.as_bytes())
}

/// Reads a file of JSON lines. An incomplete last line, from a process that was killed while writing, is ignored.
///
/// # Errors
/// [`RunError::File`] and [`RunError::Malformed`].
pub(crate) fn read_lines<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Vec<T>, RunError> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(RunError::file("read", path))?,
    };
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let lines = text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let parsed = lines.map(|(index, line)| {
        let malformed = |error: serde_json::Error| RunError::Malformed {
            path: path.to_owned(),
            line: index + 1,
            error: error.to_string(),
        };
        serde_json::from_slice(line).map_err(malformed)
    });
    parsed.collect()
}
