//! A limit on how fast passwords may be guessed: for each address, and for all together.
//!
//! Only failures count. An address that has used up its tries is refused before its password is looked at, and gets them back one by
//! one. The table has a fixed size: addresses that fall into the same row share it, and since rows are found by a keyed hash, a
//! client cannot choose whose row it shares.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::idle_connections::network;

/// How many tries an address may have failed at once, and how often it gets one back.
const ADDRESS_TRIES: u32 = 10;
const ADDRESS_REFILL: Duration = Duration::from_secs(2);

/// The same of all addresses together.
const TOTAL_TRIES: u32 = 200;
const TOTAL_REFILL: Duration = Duration::from_millis(50);

/// How many rows the table has.
const ROWS: usize = 1 << ROWS_BITS;
const ROWS_BITS: u32 = 10;

/// Tries that come back one by one: until when all of them are back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    full_at: Option<Instant>,
}

impl Bucket {
    /// Returns whether no try is left, of so many that come back one by one.
    pub(super) fn is_spent(self, now: Instant, tries: u32, refill: Duration) -> bool {
        self.full_at.is_some_and(|full_at| full_at.saturating_duration_since(now) > refill * (tries - 1))
    }

    pub(super) fn spend(&mut self, now: Instant, refill: Duration) {
        self.full_at = Some(self.full_at.unwrap_or(now).max(now) + refill);
    }
}

/// How many tries there are left.
#[derive(Debug)]
pub(super) struct Throttle {
    hasher: RandomState,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    total: Bucket,
    rows: Box<[Bucket; ROWS]>,
}

impl Default for Throttle {
    fn default() -> Self {
        let buckets = Buckets { total: Bucket::default(), rows: Box::new([Bucket::default(); ROWS]) };
        Self { hasher: RandomState::new(), buckets: Mutex::new(buckets) }
    }
}

impl Throttle {
    /// Tries a password on behalf of an address: `None`, and it is not tried, if there have been too many failures.
    pub(super) fn attempt<T, E>(
        &self,
        address: IpAddr,
        attempt: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let hash = self.hasher.hash_one(network(address)) % (1 << ROWS_BITS);
        let row = usize::try_from(hash).expect("it is below the number of rows");
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if buckets.total.is_spent(now, TOTAL_TRIES, TOTAL_REFILL)
            || buckets.rows[row].is_spent(now, ADDRESS_TRIES, ADDRESS_REFILL)
        {
            return None;
        }
        let result = attempt();
        if result.is_err() {
            buckets.total.spend(now, TOTAL_REFILL);
            buckets.rows[row].spend(now, ADDRESS_REFILL);
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(throttle: &Throttle, address: IpAddr, tries: u32) -> u32 {
        let fail = |_| throttle.attempt(address, || Err::<(), ()>(())).is_some();
        (0..tries).map(fail).map(u32::from).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_limited_for_each_address_and_in_total_and_come_back() {
        let throttle = Throttle::default();
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert_eq!(failures(&throttle, address(1), 1000), ADDRESS_TRIES);
        // The right password is refused, too, until a try has come back.
        assert!(throttle.attempt(address(1), || Ok::<(), ()>(())).is_none());
        tokio::time::advance(ADDRESS_REFILL * 3).await;
        assert_eq!(failures(&throttle, address(1), 1000), 3);
        // Success costs nothing.
        tokio::time::advance(ADDRESS_REFILL).await;
        for _ in 0..1000 {
            assert!(throttle.attempt(address(1), || Ok::<(), ()>(())).is_some());
        }
        tokio::time::advance(Duration::from_secs(3600)).await;
        let all: u32 = (0..=255).map(|last| failures(&throttle, address(last), 1000)).sum();
        assert_eq!(all, TOTAL_TRIES);
        // One network of IPv6 counts as one address.
        tokio::time::advance(Duration::from_secs(3600)).await;
        let within = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        let all: u32 = (0..100).map(|last| failures(&throttle, within(last), 1)).sum();
        assert_eq!(all, ADDRESS_TRIES);
    }
}
