//! The record of a run of an arm, read from its files alone, with every instant converted to the machine's boot
//! clock.

use std::path::Path;

use primacy_core::{FencingToken, Identity, Incarnation, NodeId, Reason, Term};
use serde_json::Value;

use super::clocks::NodeClock;
use crate::chaos::arm::Arm;
use crate::chaos::client;
use crate::chaos::client::journal::Call;
use crate::chaos::event_log::{EVENT_LOG, RunEvent, Sent, TimedEvent, read_lines};
use crate::chaos::fake_clock::Reading;
use crate::chaos::fault::{Kind, NodeProcess};
use crate::chaos::ledger::{Entry, JOURNAL, LEDGER, Line};
use crate::chaos::node::trace_path;
use crate::chaos::stalls::{DISK_WATCH, DiskWatch, STALLS, Stall};
use primacy_testbed::run_error::RunError;

/// The maximum time from the start of a process until its event is written, because the writer of events may be
/// delayed.
const NOTED_LATE_MAX_NS: u64 = 1_000_000_000;

/// A run of an arm.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The arm.
    pub(crate) arm: Arm,
    /// The seed of the run.
    pub(crate) seed: u64,
    /// The faults that the machine could not inject, with the reasons.
    pub(crate) not_run: Vec<(Kind, String)>,
    /// The node with the faked clock.
    pub(crate) faked: Option<String>,
    /// The events.
    pub(crate) events: Vec<TimedEvent>,
    /// The incarnations of all nodes, in the order in which they began.
    pub(crate) lives: Vec<IncarnationRecord>,
    /// The accepted writes, in the order in which they were accepted.
    pub(crate) ledger: Vec<Line>,
    /// The other reports of the jobs.
    pub(crate) journal: Vec<Entry>,
    /// The requests of clients with their outcomes.
    pub(crate) calls: Vec<Call>,
    /// The times at which a processor ran no ready process, and at which the disk answered no request.
    pub(crate) stalls: Vec<Stall>,
    /// Whether the disk was watched.
    pub(crate) disk: DiskWatch,
}

/// One incarnation of a node.
#[derive(Clone, Debug)]
pub(crate) struct IncarnationRecord {
    /// The node and the incarnation.
    pub(crate) who: Identity,
    /// The time of its start.
    pub(crate) begun: u64,
    /// The time at which the run killed its supervisor, if it did.
    pub(crate) killed: Option<u64>,
    /// True if the run terminated its supervisor.
    pub(crate) told_to_end: bool,
    /// The time at which its end was detected, and its exit code.
    pub(crate) ended: Option<(u64, i32)>,
    /// Its reports, in order.
    pub(crate) reports: Vec<NodeReport>,
    /// The times of all its output lines, in order: it was alive then.
    pub(crate) words: Vec<u64>,
    /// The uncertainty of its instants, if its clock is faked.
    pub(crate) within_ns: u64,
}

/// A report of a node, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeReport {
    /// The time of the event: that passed to the machine, or else that of the output line.
    pub(crate) at: u64,
    /// The uncertainty of the time, if the clock is faked.
    pub(crate) within_ns: u64,
    /// The report.
    pub(crate) said: Said,
}

/// The content of a node's report, as far as the judge needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The machine has been elected.
    Elected {
        /// The term.
        term: Term,
        /// The token.
        token: FencingToken,
        /// The end of the leadership, on the machine's clock.
        until: u64,
    },
    /// The machine's leadership was renewed.
    Renewed {
        /// The new end.
        until: u64,
    },
    /// The machine resigns; its work must drain.
    Resigning(Reason),
    /// The machine was deposed.
    Deposed(Reason),
    /// The machine detected a violation.
    Violation(String),
    /// The supervisor has begun this leadership. A leadership that ends before that has had no work.
    Taken {
        /// The token of the leadership.
        token: FencingToken,
    },
    /// The supervisor reports that all processes of the job are gone.
    Drained {
        /// The token of the leadership.
        token: FencingToken,
    },
    /// The supervisor reports that a guardian runs.
    Guardian,
    /// The supervisor reports that the guardian is dead, for whatever reason.
    GuardianLost,
    /// The election reports that a write to the store failed on a full disk.
    NoRoom,
}

impl Record {
    /// Reads the files of an arm.
    ///
    /// # Errors
    /// [`RunError`] if they are incomplete; a run with an incomplete record is not judged.
    pub(crate) fn read(dir: &Path) -> Result<Self, RunError> {
        let events: Vec<TimedEvent> = read_lines(&dir.join(EVENT_LOG))?;
        if events.last().is_none_or(|last| last.event != RunEvent::End) {
            return Err(RunError::NotWhole(
                "the events have no end: the run was broken off, or goes on".into(),
            ));
        }
        let mut record = Self::of_events(events)?;
        for life in &mut record.lives {
            let count = u32::try_from(life.who.incarnation.count).unwrap_or(u32::MAX);
            let faked = record.faked.as_deref() == Some(life.who.node.as_str());
            let clock = if faked { NodeClock::through(&readings(&record.events))? } else { NodeClock::True };
            life.within_ns = clock.within_ns();
            let path = trace_path(dir, life.who.node.as_str(), count);
            let text = std::fs::read(&path).map_err(RunError::file("read", &path))?;
            // All other lines are for people, such as those of a guardian whose supervisor is dead.
            for line in text.split(|&byte| byte == b'\n') {
                let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
                life.words.extend(line["boot_ns"].as_u64().map(|shown| clock.true_ns(shown)));
                life.reports.extend(node_report(&line, &clock)?);
            }
        }
        record.check_times()?;
        record.ledger = read_lines(&dir.join(LEDGER))?;
        record.journal = read_lines(&dir.join(JOURNAL))?;
        for name in record.arm.node_names().iter().filter(|_| record.arm.serves_clients()) {
            record.calls.extend(read_lines::<Call>(&client::path_of(dir, name))?);
        }
        if let Some(run) = dir.parent() {
            record.stalls = read_lines(&run.join(STALLS))?;
            let (from, until) = record.span();
            record.stalls.retain(|stall| (from..=until).contains(&stall.boot_ns));
            let disk = read_lines(&run.join(DISK_WATCH))?.into_iter().next();
            record.disk = disk.unwrap_or_else(not_watched);
        }
        Ok(record)
    }

    /// Builds a record from the events alone.
    ///
    /// # Errors
    /// [`RunError::NotWhole`]
    pub(crate) fn of_events(events: Vec<TimedEvent>) -> Result<Self, RunError> {
        let begun = events.iter().find_map(|event| {
            let RunEvent::Run { arm, seed, not_run, faked } = &event.event else { return None };
            Some((arm.clone(), *seed, not_run.clone(), faked.clone()))
        });
        let (arm, seed, not_run, faked) =
            begun.ok_or_else(|| RunError::NotWhole("the events have no beginning".into()))?;
        let arm = Arm::named(&arm).ok_or_else(|| RunError::NotWhole(format!("there is no arm {arm:?}")))?;
        let mut lives: Vec<IncarnationRecord> = Vec::new();
        for event in &events {
            take(&mut lives, event)?;
        }
        let (ledger, journal, stalls) = (Vec::new(), Vec::new(), Vec::new());
        let (calls, disk) = (Vec::new(), not_watched());
        Ok(Self { arm, seed, not_run, faked, events, lives, ledger, journal, calls, stalls, disk })
    }

    /// Checks that every incarnation printed its lines while it was alive: a process with a clock other than the
    /// configured one would be off by years. Its first line may precede the event of its start, which is written
    /// after the start.
    ///
    /// # Errors
    /// [`RunError::NotWhole`]
    pub(crate) fn check_times(&self) -> Result<(), RunError> {
        let (_, end) = self.span();
        for life in &self.lives {
            let from = life.begun.saturating_sub(NOTED_LATE_MAX_NS);
            let outside = |report: &&NodeReport| {
                report.at + report.within_ns < from || report.at > end + report.within_ns
            };
            if let Some(report) = life.reports.iter().find(outside) {
                let what = format!(
                    "{} told {report:?} at a time when it did not live; is its clock the one that it was given?",
                    life.who
                );
                return Err(RunError::NotWhole(what));
            }
        }
        Ok(())
    }

    /// The beginning and the end of the run.
    pub(crate) fn span(&self) -> (u64, u64) {
        let at = |event: Option<&TimedEvent>| event.map_or(0, |event| event.boot_ns);
        (at(self.events.first()), at(self.events.last()))
    }
}

/// The state of the disk watch, if the files have none.
fn not_watched() -> DiskWatch {
    DiskWatch::NotWatched { reason: "its files do not say that anybody watched it".to_owned() }
}

/// Adds an event to the incarnations.
fn take(lives: &mut Vec<IncarnationRecord>, event: &TimedEvent) -> Result<(), RunError> {
    let at = event.boot_ns;
    match &event.event {
        RunEvent::Incarnation { node, life, pid } => {
            let node = NodeId::new(node).map_err(|error| RunError::NotWhole(error.to_string()))?;
            let nonce = u64::from(pid.unsigned_abs());
            let who = Identity::new(node, Incarnation { count: u64::from(*life), nonce });
            lives.push(IncarnationRecord {
                who,
                begun: at,
                killed: None,
                told_to_end: false,
                ended: None,
                reports: Vec::new(),
                words: Vec::new(),
                within_ns: 0,
            });
        }
        RunEvent::Ended { node, life, code } => {
            if let Some(life) = of(lives, node, *life) {
                life.ended = Some((at, *code));
            }
        }
        RunEvent::Signal { node, life, part: NodeProcess::Supervisor, signal } => {
            if let Some(life) = of(lives, node, *life) {
                match signal {
                    Sent::Kill => life.killed = life.killed.or(Some(at)),
                    Sent::Terminate => life.told_to_end = true,
                    Sent::Stop | Sent::Continue => {}
                }
            }
        }
        RunEvent::Run { .. }
        | RunEvent::Fault { .. }
        | RunEvent::Took { .. }
        | RunEvent::Healed { .. }
        | RunEvent::Well { .. }
        | RunEvent::Stuck { .. }
        | RunEvent::Failed { .. }
        | RunEvent::Signal { .. }
        | RunEvent::Left { .. }
        | RunEvent::Disk { .. }
        | RunEvent::Clock { .. }
        | RunEvent::End => {}
    }
    Ok(())
}

fn of<'a>(lives: &'a mut [IncarnationRecord], node: &str, life: u32) -> Option<&'a mut IncarnationRecord> {
    let is = |each: &&mut IncarnationRecord| {
        each.who.node.as_str() == node && each.who.incarnation.count == u64::from(life)
    };
    lives.iter_mut().find(is)
}

fn readings(events: &[TimedEvent]) -> Vec<Reading> {
    let reading = |event: &TimedEvent| {
        let RunEvent::Clock { faked_ns, within_ns } = event.event else { return None };
        Some(Reading { true_ns: event.boot_ns, faked_ns, within_ns })
    };
    events.iter().filter_map(reading).collect()
}

/// The error texts of a full disk: the system's, and SQLite's.
const NO_ROOM: [&str; 2] = ["No space left on device", "database or disk is full"];

/// Parses the report in a line, if the judge needs it.
pub(crate) fn node_report(line: &Value, clock: &NodeClock) -> Result<Option<NodeReport>, RunError> {
    let number = |name: &str| {
        line[name].as_u64().ok_or_else(|| RunError::NotWhole(format!("a line lacks {name}: {line}")))
    };
    let time = |name: &str| number(name).map(|shown| clock.true_ns(shown));
    let within_ns = clock.within_ns();
    // If the end is not known exactly, it counts as a little earlier, so that no node is blamed wrongly.
    let until = || time("until_ns").map(|until| until.saturating_sub(within_ns));
    let of_machine = line["target"] == "primacy::machine";
    let no_room =
        || NO_ROOM.iter().any(|what| line["error"].as_str().is_some_and(|error| error.contains(what)));
    let (at, said) = match (line["event"].as_str(), line["message"].as_str()) {
        (Some("elected"), _) => ("boot_ns", Said::Taken { token: FencingToken(number("token")?) }),
        (Some("drained"), _) => ("boot_ns", Said::Drained { token: FencingToken(number("token")?) }),
        (Some("guardian"), _) => ("boot_ns", Said::Guardian),
        (Some("guardian_lost"), _) => ("boot_ns", Said::GuardianLost),
        (Some("log"), Some("elected")) if of_machine => {
            let (term, token) = (Term(number("term")?), FencingToken(number("token")?));
            ("at_ns", Said::Elected { term, token, until: until()? })
        }
        (Some("log"), Some("renewed")) if of_machine => ("at_ns", Said::Renewed { until: until()? }),
        (Some("log"), Some("resigning")) if of_machine => ("at_ns", Said::Resigning(reason(line)?)),
        (Some("log"), Some("deposed")) if of_machine => ("at_ns", Said::Deposed(reason(line)?)),
        (Some("log"), Some("violation")) if of_machine => {
            ("at_ns", Said::Violation(line["violation"].as_str().unwrap_or_default().to_owned()))
        }
        (Some("log"), Some(_)) if no_room() => ("boot_ns", Said::NoRoom),
        (Some(_) | None, _) => return Ok(None),
    };
    Ok(Some(NodeReport { at: time(at)?, within_ns, said }))
}

fn reason(line: &Value) -> Result<Reason, RunError> {
    let text = line["reason"].as_str().unwrap_or_default();
    let inner = text.split_once('(').map_or("", |(_, inner)| inner.trim_end_matches(')'));
    let known = match text.split('(').next().unwrap_or_default() {
        "Resigned" => Some(Reason::Resigned),
        "Transferred" => NodeId::new(inner).ok().map(Reason::Transferred),
        "Unhealthy" => Some(Reason::Unhealthy),
        "Expired" => Some(Reason::Expired),
        "Undecided" => Some(Reason::Undecided),
        "HigherTerm" => {
            let digits: String = inner.chars().filter(char::is_ascii_digit).collect();
            digits.parse().ok().map(|term| Reason::HigherTerm(Term(term)))
        }
        "Overwritten" => Some(Reason::Overwritten),
        "Removed" => Some(Reason::Removed),
        "SessionEnded" => Some(Reason::SessionEnded),
        "DiskLost" => Some(Reason::DiskLost),
        "Violation" => Some(Reason::Violation),
        "Halted" => Some(Reason::Halted),
        _ => None,
    };
    known.ok_or_else(|| RunError::NotWhole(format!("a reason is not known: {line}")))
}
