//! A rate limit that many clients share: a burst passes at once, and further requests wait, first come, first served.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

const SECOND: Duration = Duration::from_secs(1);

/// A rate limit: a burst, and a rate beyond it.
#[derive(Debug)]
pub(crate) struct Pace {
    burst: u32,
    interval: Duration,
    /// The time at which the whole burst is available again.
    full_at: Option<Instant>,
}

impl Pace {
    /// Allows this number of turns at once, and this number a second beyond that.
    pub(crate) fn new((burst, per_second): (u32, u32)) -> Self {
        Self { burst, interval: SECOND / per_second, full_at: None }
    }

    /// Takes a turn, if there is one now.
    pub(crate) fn try_turn(&mut self) -> bool {
        let (full, due) = self.next();
        let is_due = due.is_none();
        if is_due {
            self.full_at = Some(full);
        }
        is_due
    }

    /// Returns the time at which the whole burst is available again after the next turn; and the time at which that
    /// turn is due, unless it is due now.
    fn next(&self) -> (Instant, Option<Instant>) {
        let now = Instant::now();
        let full = self.full_at.map_or(now, |at| at.max(now)) + self.interval;
        (full, full.checked_sub(self.interval * self.burst).filter(|&due| due > now))
    }
}

/// A rate limit for the clients of one server. Turns are given in the order of the requests, since tokio's lock is
/// fair.
#[derive(Debug)]
pub(crate) struct FairPace(Mutex<Pace>);

impl FairPace {
    /// Creates the limit; see [`Pace::new`].
    pub(crate) fn new(pace: (u32, u32)) -> Self {
        Self(Mutex::new(Pace::new(pace)))
    }

    /// Waits for the next turn.
    pub(crate) async fn turn(&self) {
        let mut pace = self.0.lock().await;
        let (full, due) = pace.next();
        if let Some(due) = due {
            sleep_until(due).await;
        }
        pace.full_at = Some(full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_through_and_what_follows_waits_in_turn() {
        let (pace, began) = (FairPace::new((10, 10)), Instant::now());
        for _ in 0..10 {
            pace.turn().await;
        }
        assert!(began.elapsed().is_zero());
        // Two waiting clients take turns alternately.
        let turns = async |count| {
            for _ in 0..count {
                pace.turn().await;
            }
            began.elapsed()
        };
        let (greedy, modest) = tokio::join!(turns(20), turns(1));
        assert!(modest <= Duration::from_millis(200) && greedy >= Duration::from_millis(2_100));
        tokio::time::advance(Duration::from_secs(60)).await;
        let again = Instant::now();
        turns(10).await;
        assert!(again.elapsed().is_zero());
    }
}
