//! Events of the proxy on standard error: lines for people, or JSON objects for programs.

use std::io::Write as _;

use serde::Serialize;

use crate::report::LogWriter;

/// An event of the proxy.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// Clients may connect.
    Listening {
        address: String,
        upstream: String,
        highest: u64,
        /// The address at which metrics are served.
        #[serde(skip_serializing_if = "Option::is_none")]
        metrics: Option<String>,
    },
    /// Clients cannot be accepted for a moment.
    NotAccepting {
        reason: String,
        /// The number of failures since the last such line.
        held_back: u64,
    },
    /// A signal has stopped the proxy; requests in progress go on.
    Draining { signal: i32 },
    /// The end.
    Ended(Counts),
}

/// The number of requests by outcome.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    /// The number of all requests.
    pub(super) requests: u64,
    /// Answered by the service.
    pub(super) passed_on: u64,
    /// Refused for a stale token.
    pub(super) stale: u64,
    /// Refused for another reason: no token, the disk, the service.
    pub(super) refused: u64,
}

/// A writer of events, which never waits for its reader.
#[derive(Clone, Debug)]
pub(super) struct EventLog {
    writer: LogWriter,
    json: bool,
}

impl EventLog {
    pub(super) fn new(writer: LogWriter, json: bool) -> Self {
        Self { writer, json }
    }

    pub(super) fn tell(&self, event: &Event) {
        let line = if self.json {
            serde_json::to_string(event).unwrap_or_default()
        } else {
            format!("primacy fence: {event}")
        };
        // Lines that are not read in time are dropped.
        let _ = self.writer.clone().write_all(format!("{line}\n").as_bytes());
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listening { address, upstream, highest, metrics } => {
                write!(
                    f,
                    "listening on {address} in front of {upstream}; tokens below {highest} are refused"
                )?;
                metrics.iter().try_for_each(|address| write!(f, "; figures are at http://{address}/metrics"))
            }
            Self::NotAccepting { reason, held_back } => {
                write!(
                    f,
                    "no client is accepted for a moment: {reason} (held back since the last such line: {held_back})"
                )
            }
            Self::Draining { signal } => {
                write!(f, "told to end by signal {signal}; requests under way go on")
            }
            Self::Ended(Counts { requests, passed_on, stale, refused }) => write!(
                f,
                "ended after {requests} requests: {passed_on} passed on, {stale} stale, {refused} refused otherwise"
            ),
        }
    }
}
