//! A rate limit for log messages whose cause may recur with every request.

use std::sync::{Mutex, PoisonError};

use primacy_core::{Duration, Instant};

use crate::clock;

/// The rate limit for messages of one cause: the first one is logged at once, and a later one when a pause is over.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    logged_at: Option<Instant>,
    held_back: u64,
}

impl LogLimit {
    /// Counts an occurrence. If a message is due, returns how many were not logged since the last one.
    pub fn due(&self, pause: Duration) -> Option<u64> {
        self.due_at(clock::now(), pause)
    }

    fn due_at(&self, now: Instant, pause: Duration) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.logged_at.is_some_and(|at| now.since(at) < pause) {
            state.held_back += 1;
            return None;
        }
        state.logged_at = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_after_each_pause_and_says_how_many_were_held_back() {
        let (limit, start, pause) = (LogLimit::default(), Instant::from_nanos(0), Duration::from_secs(10));
        let at = |second| limit.due_at(start.after(Duration::from_secs(second)), pause);
        assert_eq!([0, 0, 9, 10, 11, 40].map(at), [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
