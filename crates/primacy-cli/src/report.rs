//! Events that `primacy run` and `primacy node` report while they run: lines for people, or JSON objects for programs.
//! They go to standard error, since standard output is the job's.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use primacy::clock;
use primacy::stores::login::without_logins;
use serde::Serialize;

use crate::line_writer::{LAST_LINES_TIME, LineWriter, write_to_stderr};
use crate::printable::{indented, one_line, printable_json};
use crate::process_tree::Ended;

/// The number of a leadership, as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Lead {
    /// The fencing token, which resources check; `None` in an advisory election.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// The number of the leadership.
    term: u64,
}

impl Lead {
    pub(crate) fn new(term: u64, fenced: bool) -> Self {
        Self { token: fenced.then_some(term), term }
    }

    pub(crate) const fn is_fenced(self) -> bool {
        self.token.is_some()
    }

    pub(crate) const fn term(self) -> u64 {
        self.term
    }
}

impl std::fmt::Display for Lead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.token {
            Some(token) => write!(f, "token {token}, term {}", self.term),
            None => write!(f, "advisory, without a token, term {}", self.term),
        }
    }
}

/// An event of a node.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The guardian runs.
    Guardian { pid: i32 },
    /// The control group in which all processes are started; or the reason why there is none, and processes are
    /// searched for.
    Cgroup {
        #[serde(skip_serializing_if = "Option::is_none")]
        dir: Option<PathBuf>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Processes that an earlier supervisor had left behind were ended.
    LeftoversEnded { processes: usize },
    /// This node campaigns.
    Campaigning,
    /// This node leads.
    Elected {
        #[serde(flatten)]
        lead: Lead,
        /// `None` if the leadership does not expire.
        #[serde(skip_serializing_if = "Option::is_none")]
        valid_for_ms: Option<f64>,
        /// The evidence for which it campaigned, among peers.
        #[serde(skip_serializing_if = "Option::is_none")]
        evidence: Option<&'static str>,
    },
    /// The job runs.
    Started {
        #[serde(flatten)]
        lead: Lead,
        pid: i32,
    },
    /// The job was not started.
    NotStarted {
        #[serde(flatten)]
        lead: Lead,
        reason: String,
    },
    /// The job was asked to end.
    Stopping {
        #[serde(flatten)]
        lead: Lead,
        reason: String,
    },
    /// The job did not end in time and is being killed.
    Killing {
        #[serde(flatten)]
        lead: Lead,
    },
    /// A process of the job has not ended though it was killed, and the lead is kept until it has.
    StillLeading {
        #[serde(flatten)]
        lead: Lead,
        reason: String,
    },
    /// The job's first process has ended.
    Exited {
        #[serde(flatten)]
        lead: Lead,
        ended: Ended,
    },
    /// A hook has ended.
    HookEnded {
        #[serde(flatten)]
        lead: Lead,
        hook: &'static str,
        ended: Ended,
    },
    /// The stop command has failed: the lead is kept, and the command is run again after this time.
    StopFailed {
        #[serde(flatten)]
        lead: Lead,
        failures: u32,
        retry_ms: u64,
    },
    /// The stop command has not succeeded and is not run again, because a second signal came: the lead is kept for this
    /// time at the most, as long as other nodes would wait if this node had died in silence.
    StopGivenUp {
        #[serde(flatten)]
        lead: Lead,
        kept_ms: u64,
    },
    /// The guardian died, or did not answer and was killed. The processes that it left are ended next.
    GuardianLost,
    /// Everything that ran under this token is gone, and the lead may be given up.
    Drained {
        #[serde(flatten)]
        lead: Lead,
    },
    /// The lead was given up, after the job was gone with all its descendants.
    Released {
        #[serde(flatten)]
        lead: Lead,
        reason: String,
    },
    /// Nothing is started for this time, because the job ended too soon or could not be started, or the hook before it
    /// failed, or there is no guardian.
    Backoff { ms: u64 },
    /// Another node leads, or none, as far as this node knows.
    Leader { leader: Option<String>, term: Option<u64> },
    /// An operator sent a request over the control socket. Reported before it is checked whether it can be done.
    Asked {
        what: &'static str,
        /// The node that the request is about, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// The number of the operator's user.
        by: u32,
    },
    /// A violation was seen.
    Violation { violation: String },
    /// Metrics are served.
    Serving { metrics: String },
    /// The etcd API is served at this address.
    #[cfg(feature = "etcd")]
    ServingClients { address: String },

    /// The health check failed.
    CheckFailed { misses: u32, reason: String },
    /// This node became fit to lead, or unfit.
    Health { healthy: bool },
    /// A warning.
    Warning { message: String },
    /// An error of the program itself, which ends it.
    Panic { message: String },
    /// Standard error was full, and this number of lines was not written.
    Dropped { lines: u64 },
    /// The end of this process.
    Ended {
        exit_code: u8,
        /// The error, and its remedy.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// A writer of events, in order. It never waits for their reader: a stopped terminal must not cost the lead.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    form: Form,
    writer: LineWriter,
}

/// The format of the lines.
#[derive(Clone, Debug)]
struct Form {
    json: bool,
    node: Arc<str>,
}

/// The writer of log lines: they take the same way as events, so that they never wait for the reader either.
#[derive(Clone, Debug)]
pub(crate) struct LogWriter {
    writer: LineWriter,
    json: bool,
}

impl std::io::Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let shown = if self.json {
            printable_json(&text).into_owned()
        } else {
            one_line(&without_logins(text.strip_suffix('\n').unwrap_or(&text))) + "\n"
        };
        self.writer.put(shown);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Reporter {
    /// Creates a reporter for `node`.
    pub(crate) fn new(json: bool, node: &str) -> std::io::Result<Self> {
        let form = Form { json, node: node.into() };
        let told = form.clone();
        let dropped = move |lines| told.line(&Event::Dropped { lines }).unwrap_or_default();
        let writer = LineWriter::start("report", write_to_stderr, dropped)?;
        Ok(Self { form, writer })
    }

    /// Formats a line of the log as an object like those of the events.
    pub(crate) fn log_line(&self, log: serde_json::Map<String, serde_json::Value>) -> String {
        #[derive(Serialize)]
        struct Log {
            event: &'static str,
            #[serde(flatten)]
            log: serde_json::Map<String, serde_json::Value>,
        }
        self.form.json_line(&Log { event: "log", log })
    }

    /// Returns whether all lines are written as JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.form.json
    }

    /// Returns the writer of log lines.
    pub(crate) fn log_writer(&self) -> LogWriter {
        LogWriter { writer: self.writer.clone(), json: self.form.json }
    }

    /// Reports an event.
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(line) = self.form.line(event) {
            self.writer.put(line);
        }
    }

    /// Reports a panic, and waits a moment for its reader.
    pub(crate) fn tell_of_panic(&self, panic: &PanicHookInfo<'_>) {
        let mut message = panic.to_string();
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            message = format!("{message}\n{backtrace}");
        }
        self.tell(&Event::Panic { message });
        self.finish();
    }

    /// Waits a moment for the reader of the last events, at the end of the program.
    pub(crate) fn finish(&self) {
        self.writer.finish(LAST_LINES_TIME);
    }
}

impl Form {
    /// Formats the event; `None` if it is not shown in this format.
    fn line(&self, event: &Event) -> Option<String> {
        if self.json {
            return Some(self.json_line(event));
        }
        if let Event::Ended { reason, .. } = event {
            return Some(format!("primacy: {}\n", indented(&without_logins(reason.as_ref()?))));
        }
        let text = text(event, &self.node)?;
        let text = without_logins(&text);
        // A panic has lines of its own.
        let shown = if matches!(event, Event::Panic { .. }) { indented(&text) } else { one_line(&text) };
        Some(format!("primacy[{}]: {shown}\n", self.node))
    }

    fn json_line(&self, event: &impl Serialize) -> String {
        #[derive(Serialize)]
        struct Line<'a, E> {
            /// Milliseconds since 1970.
            at_ms: u64,
            /// The machine's boot clock, for comparing the events of processes on one machine.
            boot_ns: u64,
            node: &'a str,
            #[serde(flatten)]
            event: &'a E,
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        let line = Line { at_ms, boot_ns: clock::now().as_nanos(), node: &self.node, event };
        let mut text = printable_json(&serde_json::to_string(&line).unwrap_or_default()).into_owned();
        text.push('\n');
        text
    }
}

/// Formats the event for people; `None` if it is not shown to them.
fn text(event: &Event, node: &str) -> Option<String> {
    Some(match event {
        Event::Guardian { .. }
        | Event::Cgroup { .. }
        | Event::Drained { .. }
        | Event::Ended { .. }
        | Event::Leader { leader: None, .. } => return None,
        Event::Leader { leader: Some(leader), .. } if leader == node => return None,
        Event::LeftoversEnded { processes } => {
            format!("ended {processes} process(es) that an earlier run of this node had left behind")
        }
        Event::Campaigning => "campaigning".into(),
        Event::Elected { lead, valid_for_ms: Some(valid), .. } => {
            format!("elected: {lead}, valid for {valid:.0} ms unless renewed")
        }
        Event::Elected { lead, valid_for_ms: None, .. } => format!("elected: {lead}"),
        Event::Started { pid, .. } => format!("the command runs as process {pid}"),
        Event::NotStarted { reason, .. } => format!("the command was not started: {reason}"),
        Event::Stopping { reason, .. } => format!("stopping the command: {reason}"),
        Event::Killing { .. } => "killing what is left of the command".into(),
        Event::StillLeading { lead, reason } => format!("still leading ({lead}): {reason}"),
        Event::Exited { ended: Ended::Code(code), .. } => format!("the command exited with code {code}"),
        Event::Exited { ended: Ended::Signal(signal), .. } => {
            format!("the command was ended by signal {signal}")
        }
        Event::HookEnded { hook, ended, .. } => format!("{hook} ended with exit code {}", ended.exit_code()),
        Event::StopFailed { failures, retry_ms, .. } => format!(
            "--stop-command has failed, {failures} time(s), so what it is to end may go on: the lead is kept, and the command is run \
             again in {retry_ms} ms"
        ),
        Event::StopGivenUp { kept_ms, .. } => format!(
            "--stop-command has not succeeded and is not run again, so what it was to end may go on: the lead is kept for up to \
             {kept_ms} ms, as long as others would wait if this machine had died"
        ),
        Event::GuardianLost => {
            "the guardian is dead; what it guarded is being ended, and a new one starts after that".into()
        }
        Event::Released { lead, reason } => format!("leads no more ({lead}): {reason}"),
        Event::Backoff { ms } => format!("campaigning again in {ms} ms"),
        Event::Leader { leader: Some(leader), term } => {
            format!("{leader} leads, term {}", term.unwrap_or_default())
        }
        Event::Asked { what, to: None, by } => format!("user {by} asks it to {what}"),
        Event::Asked { what, to: Some(to), by } => format!("user {by} asks it to {what} {to:?}"),
        Event::Violation { violation } => {
            format!("THIS MUST NEVER BE, and an operator should look: {violation}; this node does not lead")
        }
        Event::Serving { metrics } => format!("figures are at http://{metrics}/metrics"),
        #[cfg(feature = "etcd")]
        Event::ServingClients { address } => format!("clients of etcd are answered at {address}"),

        Event::CheckFailed { misses, reason } => {
            format!("the health check failed, {misses} time(s) in a row: {reason}")
        }
        Event::Health { healthy: true } => "the health check succeeds: this node is fit to lead".into(),
        Event::Health { healthy: false } => "the health check fails: this node does not lead any more".into(),
        Event::Warning { message } => format!("warning: {message}"),
        Event::Panic { message } => message.clone(),
        Event::Dropped { lines } => format!("{lines} line(s) were not written here: standard error was full"),
    })
}
