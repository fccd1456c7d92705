//! A limit on guesses of passwords: per address, for all addresses together, and separately for each user at an address from which that
//! user has logged in before.
//!
//! Only failures count. A repetition of an earlier failure does not count, because it tells a guesser nothing: clients
//! whose user was removed, or whose password has changed, log in again and again for as long as they run, and would use
//! up the tries of their address. An address without tries left is refused before its password is checked, and gets the
//! tries back one by one. A user that has logged in from an address has separate tries there, so that guesses at other
//! names do not keep that user out.
//!
//! Known and unknown names are treated alike, so that a client cannot learn which names are users. All tables have a
//! fixed size. Logins with the same row share it or replace each other; rows are found by a keyed hash, so a client
//! cannot choose the row.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use primacy::stores::error_text::shortened;
use tokio::time::Instant;
use tracing::warn;

use primacy::idle_connections::network;

/// The failures that an address may make at once, and the time after which it gets one back. The same for a user at an
/// address.
const ADDRESS_TRIES: u32 = 10;
const ADDRESS_REFILL: Duration = Duration::from_secs(2);

/// The same for all addresses together.
const TOTAL_TRIES: u32 = 200;
const TOTAL_REFILL: Duration = Duration::from_millis(50);

/// The messages about failures and refusals that may be logged at once, and the time after which another one may be
/// logged.
const LOG_LINES: u32 = 20;
const LOG_REFILL: Duration = Duration::from_secs(5);

/// The rows of each table.
const ROWS: usize = 1 << 10;

/// The failures that a row remembers.
const FAILURES: usize = 4;

/// A token bucket of tries, by the time at which it is full again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    full_at: Option<Instant>,
}

impl Bucket {
    /// Returns whether no try is left, of `tries` that return one per `refill`.
    pub(super) fn is_spent(self, now: Instant, tries: u32, refill: Duration) -> bool {
        self.full_at.is_some_and(|full_at| full_at.saturating_duration_since(now) > refill * (tries - 1))
    }

    pub(super) fn spend(&mut self, now: Instant, refill: Duration) {
        self.full_at = Some(self.full_at.unwrap_or(now).max(now) + refill);
    }
}

/// A login request.
pub(super) struct Login<'a> {
    pub(super) address: IpAddr,
    pub(super) name: &'a str,
    pub(super) password: &'a str,
}

/// The limits of all logins.
#[derive(Debug)]
pub(super) struct Throttle {
    hasher: RandomState,
    tables: Mutex<Tables>,
}

#[derive(Debug)]
struct Tables {
    total: Tries,
    addresses: Box<[Tries]>,
    /// The tries of users at addresses from which they have logged in, each with the hash of both.
    users: Box<[Option<(u64, Tries)>]>,
    /// The hashes of failed logins, the latest first.
    failures: Box<[[u64; FAILURES]]>,
    log: Bucket,
}

/// The tries of one address or user, and whether the log has reported that none is left.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    bucket: Bucket,
    is_refusal_told: bool,
}

impl Tries {
    fn is_spent(self, now: Instant) -> bool {
        self.bucket.is_spent(now, ADDRESS_TRIES, ADDRESS_REFILL)
    }

    fn spend(&mut self, now: Instant, refill: Duration) {
        self.is_refusal_told &= self.bucket.full_at.is_some_and(|full_at| now < full_at);
        self.bucket.spend(now, refill);
    }

    /// Returns true for the first refusal since all tries were available.
    fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.is_refusal_told, true)
    }
}

impl Default for Throttle {
    fn default() -> Self {
        let tables = Tables {
            total: Tries::default(),
            addresses: vec![Tries::default(); ROWS].into(),
            users: vec![None; ROWS].into(),
            failures: vec![[0; FAILURES]; ROWS].into(),
            log: Bucket::default(),
        };
        Self { hasher: RandomState::new(), tables: Mutex::new(tables) }
    }
}

impl Throttle {
    /// Attempts a login. Returns `None` without checking its password if there were too many failures.
    pub(super) fn attempt<T, E>(
        &self,
        login: &Login<'_>,
        attempt: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let network = network(login.address);
        let address = self.hasher.hash_one(network);
        let user = self.hasher.hash_one((network, login.name));
        let failure = self.hasher.hash_one((network, login.name, login.password));
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_repeated = tables.failures[row(failure)].contains(&failure);
        if !is_repeated && let Err(is_news) = tables.is_refused(now, address, user) {
            if is_news {
                tables.tell(
                    now,
                    login,
                    "logins are refused before their password is looked at: too many have failed",
                );
            }
            return None;
        }
        let result = attempt();
        match &result {
            Ok(_) => tables.admit(user),
            Err(_) if is_repeated => {}
            Err(_) => {
                tables.fail(now, address, user, failure);
                tables.tell(now, login, "a login failed: no user has this name and password");
            }
        }
        Some(result)
    }
}

impl Tables {
    /// Checks that there is a try left.
    ///
    /// # Errors
    /// `true` if this is to be logged: no refusal was logged since all tries were available.
    fn is_refused(&mut self, now: Instant, address: u64, user: u64) -> Result<(), bool> {
        let is_total_spent = self.total.bucket.is_spent(now, TOTAL_TRIES, TOTAL_REFILL);
        let own = match &mut self.users[row(user)] {
            Some((of, own)) if *of == user => own,
            Some(_) | None if is_total_spent => return Err(self.total.is_news()),
            Some(_) | None => &mut self.addresses[row(address)],
        };
        if own.is_spent(now) { Err(own.is_news()) } else { Ok(()) }
    }

    fn fail(&mut self, now: Instant, address: u64, user: u64, failure: u64) {
        let failures = &mut self.failures[row(failure)];
        failures.rotate_right(1);
        failures[0] = failure;
        match &mut self.users[row(user)] {
            Some((of, own)) if *of == user => own.spend(now, ADDRESS_REFILL),
            Some(_) | None => {
                self.total.spend(now, TOTAL_REFILL);
                self.addresses[row(address)].spend(now, ADDRESS_REFILL);
            }
        }
    }

    /// Gives separate tries to a user who has logged in from an address.
    fn admit(&mut self, user: u64) {
        let own = &mut self.users[row(user)];
        if own.is_none_or(|(of, _)| of != user) {
            *own = Some((user, Tries::default()));
        }
    }

    fn tell(&mut self, now: Instant, login: &Login<'_>, what: &str) {
        if self.log.is_spent(now, LOG_LINES, LOG_REFILL) {
            return;
        }
        self.log.spend(now, LOG_REFILL);
        warn!(address = %login.address.to_canonical(), user = &*shortened(login.name), "{what}");
    }
}

/// The row of a hash.
fn row(hash: u64) -> usize {
    usize::try_from(hash % ROWS as u64).expect("it is below the number of rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(throttle: &Throttle, address: IpAddr, name: &str, password: &str) -> Option<Result<(), ()>> {
        let is_right = password == format!("right-{name}");
        throttle.attempt(&Login { address, name, password }, || is_right.then_some(()).ok_or(()))
    }

    /// Logs in `tries` times under this name, each time with another wrong password; returns the number of logins that
    /// were checked.
    fn guesses_at(throttle: &Throttle, address: IpAddr, name: &str, tries: u32) -> u32 {
        let guess = |_| attempt(throttle, address, name, &format!("{:x}", crate::users::random()));
        (0..tries).map(guess).map(|looked_at| u32::from(looked_at.is_some())).sum()
    }

    fn guesses(throttle: &Throttle, address: IpAddr, tries: u32) -> u32 {
        (0..tries).map(|number| guesses_at(throttle, address, &format!("user-{number}"), 1)).sum()
    }

    fn host(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_limited_for_each_address_and_in_total_and_come_back() {
        let throttle = Throttle::default();
        // With another name each, which does not help.
        assert_eq!(guesses(&throttle, host(1), 1000), ADDRESS_TRIES);
        // Even the right password is refused until a try has returned.
        assert!(attempt(&throttle, host(1), "a", "right-a").is_none());
        tokio::time::advance(ADDRESS_REFILL * 3).await;
        assert_eq!(guesses(&throttle, host(1), 1000), 3);
        // A success uses no try.
        tokio::time::advance(ADDRESS_REFILL).await;
        for _ in 0..1000 {
            assert_eq!(attempt(&throttle, host(1), "a", "right-a"), Some(Ok(())));
        }
        tokio::time::advance(Duration::from_secs(3600)).await;
        let all: u32 = (0..=255).map(|last| guesses(&throttle, host(last), 1000)).sum();
        assert_eq!(all, TOTAL_TRIES);
        // One IPv6 network counts as one address.
        tokio::time::advance(Duration::from_secs(3600)).await;
        let within = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        let all: u32 = (0..100).map(|last| guesses(&throttle, within(last), 1)).sum();
        assert_eq!(all, ADDRESS_TRIES);
    }

    /// A client whose user was removed repeats its login for as long as it runs.
    #[tokio::test(start_paused = true)]
    async fn a_failure_that_is_repeated_leaves_their_tries_to_others() {
        let throttle = Throttle::default();
        for address in 0..100 {
            tokio::time::advance(ADDRESS_REFILL).await;
            for _ in 0..1000 {
                assert_eq!(attempt(&throttle, host(address), "removed", "once right"), Some(Err(())));
            }
            assert_eq!(attempt(&throttle, host(address), "a", "right-a"), Some(Ok(())));
        }
        // Even without tries left it gets the same answer as before, and learns nothing new.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(guesses(&throttle, host(1), 1000), ADDRESS_TRIES);
        assert_eq!(attempt(&throttle, host(1), "removed", "once right"), Some(Err(())));
        assert_eq!(attempt(&throttle, host(1), "removed", "another"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_that_has_logged_in_from_an_address_has_tries_of_its_own_there() {
        let throttle = Throttle::default();
        assert_eq!(attempt(&throttle, host(1), "a", "right-a"), Some(Ok(())));
        let others: u32 = (2..=255).map(|last| guesses(&throttle, host(last), 1000)).sum();
        assert_eq!(others + guesses(&throttle, host(1), 1000), TOTAL_TRIES);
        assert_eq!(attempt(&throttle, host(1), "a", "right-a"), Some(Ok(())));
        assert_eq!(attempt(&throttle, host(1), "b", "right-b"), None);
        // Guesses at this user's password are limited too, and leave the other tries alone.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(guesses_at(&throttle, host(1), "a", 1000), ADDRESS_TRIES);
        assert_eq!(attempt(&throttle, host(1), "a", "right-a"), None);
        assert_eq!(attempt(&throttle, host(1), "b", "right-b"), Some(Ok(())));
        assert_eq!(guesses(&throttle, host(1), 1000), ADDRESS_TRIES);
    }
}
