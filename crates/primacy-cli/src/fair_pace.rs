//! A rate that many clients share: a burst is let through at once, and what comes beyond it waits, first come, first served.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

const SECOND: Duration = Duration::from_secs(1);

/// A burst, and a rate beyond it.
#[derive(Debug)]
pub(crate) struct Pace {
    burst: u32,
    interval: Duration,
    /// When the whole burst is there again.
    full_at: Option<Instant>,
}

impl Pace {
    /// So many turns at once, and so many a second beyond that.
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

    /// When the whole burst is there again after the next turn, and when that turn is due unless it is now.
    fn next(&self) -> (Instant, Option<Instant>) {
        let now = Instant::now();
        let full = self.full_at.map_or(now, |at| at.max(now)) + self.interval;
        (full, full.checked_sub(self.interval * self.burst).filter(|&due| due > now))
    }
}

/// The turns that clients of one server get. The lock of tokio is handed on in the order in which it was requested.
#[derive(Debug)]
pub(crate) struct FairPace(Mutex<Pace>);

impl FairPace {
    /// See [`Pace::new`].
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
        // Two that wait get every other turn each.
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
