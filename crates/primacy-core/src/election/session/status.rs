//! The status of a candidate in a queue.

use alloc::string::String;

use super::{Entry, Session};
use crate::protocol::Leader;
use crate::time::{Duration, Instant};

/// The state of a candidate, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its role: `watching`, `waiting`, `leading` or `leaving`.
    pub role: &'static str,
    /// The session that it has begun.
    pub session: Option<SessionStatus>,
    /// The timeout that the store gave, if it was shorter than the configured minimum.
    pub too_short: Option<Duration>,
    /// Another node's entry that the store showed as the first, and the time of that look.
    pub first: Option<(Entry, Instant)>,
    /// The leader, as far as it knows.
    pub leader: Option<Leader>,
}

/// A session that a candidate has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// The name in the store.
    pub name: String,
    /// The time for which the store waits for a keep-alive.
    pub timeout: Duration,
    /// The time at which the last answered keep-alive was sent.
    pub kept_at: Instant,
}

impl Session {
    /// The state of this node.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            role: self.role(),
            session: self.line.as_ref().map(|line| SessionStatus {
                name: line.session.as_str().into(),
                timeout: line.timeout,
                kept_at: line.kept_at,
            }),
            too_short: self.too_short,
            first: self.seen.clone(),
            leader: self.told_leader,
        }
    }
}
