//! The pace of requests to a store: a burst is not delayed, and further requests are spread over the lease.
//!
//! A store that answers inconsistently, for example with and without a record in turn, makes an election send a new request
//! after each answer; so does a store that reports changes without end. The pace bounds the cost, whatever the cause. A request
//! is delayed by less than the time for its answer, and the election counts from when it made the request.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use primacy_core::{Duration, Instant};

use crate::clock;

/// The number of requests that are not delayed. A hand-over takes a handful.
const BURST: u64 = 24;

/// The number of further requests per lease. A leader renews six times in a lease, and a node that only reads does so ten
/// times.
const IN_A_LEASE: u64 = 40;

/// Clones share one pace, for all requests of one node in one election.
#[derive(Clone, Debug)]
pub(crate) struct RequestPace {
    interval: Duration,
    /// The time at which the burst is available again.
    full_at: Rc<Cell<Instant>>,
}

impl RequestPace {
    pub(crate) fn of_lease(lease: Duration) -> Self {
        Self { interval: lease.divided_by(IN_A_LEASE), full_at: Rc::new(Cell::new(clock::now())) }
    }

    /// Resolves when the next request may be sent.
    pub(crate) fn next(&self) -> impl Future<Output = ()> + use<> {
        let delay = self.take(clock::now());
        async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay.into()).await;
            }
        }
    }

    /// The delay of a request made now.
    fn take(&self, now: Instant) -> Duration {
        let full_at = self.full_at.get().max(now).after(self.interval);
        let delay = full_at.before(self.interval.times(BURST)).since(now);
        // No delay is longer than an interval, so that requests that are given up do not delay later ones further.
        if delay <= self.interval {
            self.full_at.set(full_at);
        }
        delay.min(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_what_follows_is_spread() {
        let pace = RequestPace::of_lease(Duration::from_secs(40));
        let mut now = clock::now().after(Duration::from_secs(100));
        let burst = (0..BURST).map(|_| pace.take(now)).filter(|delay| delay.is_zero()).count();
        assert_eq!(burst as u64, BURST);
        // One after the other, each sent as soon as the one before.
        let began = now;
        for _ in 0..100 {
            now = now.after(pace.take(now));
        }
        assert!(now.since(began) >= Duration::from_secs(99), "{}", now.since(began));
        // However many are given up before they are sent, none is delayed by more than one interval.
        assert!((0..1_000).map(|_| pace.take(now)).all(|delay| delay <= Duration::from_secs(1)));
        now = now.after(Duration::from_secs(40));
        assert!(pace.take(now).is_zero());
    }
}
