//! The health of the store that an election is held in: each request counted, each change of state logged once with the
//! store's own words, and the last error kept for operators and for the reason of a lost lead.
//! All requests of all stores pass through [`StoreRequest`], one value each. A request that the machine gives up, because the store did
//! not answer in time, has failed as well; errors that its client has met on the way are reported with it.
//! store did not answer in time, has failed as well; what its client has met on the way is told with it.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use primacy_core::{Duration, Instant};
use primacy_stores::{Attempts, ReadError, SessionError, SetError};

use crate::clock;
use crate::config::{Timers, Venue};
use crate::histogram::Histogram;

/// The purpose of a request. A store may answer reads and fail writes, so each has a state of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A look at the record or the queue.
    Read,
    /// Writes of the record, sessions and their keep-alives, which take, keep or release the lead.
    Renewal,
}

impl Operation {
    pub(crate) const ALL: [Self; 2] = [Self::Read, Self::Renewal];

    /// The operation's name in figures.
    #[cfg(feature = "metrics")]
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Renewal => "write",
        }
    }

    /// The operation's name for people.
    const fn noun(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Renewal => "renewal",
        }
    }
}

/// The number of leases without another failure after which a store that answers other requests has no trouble with the failed ones.
const OVER_AFTER: u64 = 3;

/// The age in milliseconds from which the last failure is reported: there may be no further requests.
const TOLD_AFTER_MS: u64 = 10_000;

/// The severity of a failed request; a later one is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// It may pass by itself.
    Passing,
    /// It lasts until an operator acts: a right is missing, or the content is no record.
    Lasting,
}

/// An error of a store, as far as its health is concerned.
pub(crate) trait StoreError: Display {
    /// Returns whether the store has answered as it should: another was first.
    fn is_answer(&self) -> bool;
    /// Returns true if it lasts until an operator acts.
    fn is_lasting(&self) -> bool;
}

impl StoreError for ReadError {
    fn is_answer(&self) -> bool {
        false
    }

    fn is_lasting(&self) -> bool {
        matches!(self, Self::Malformed { .. })
    }
}

impl StoreError for SetError {
    fn is_answer(&self) -> bool {
        matches!(self, Self::Conflict)
    }

    fn is_lasting(&self) -> bool {
        false
    }
}

impl StoreError for SessionError {
    fn is_answer(&self) -> bool {
        false
    }

    fn is_lasting(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// The state of all requests to one store.
#[derive(Debug)]
pub(crate) struct StoreHealth {
    pub(crate) requests: Histogram,
    failed: [AtomicU64; 2],
    slow: [AtomicU64; 2],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The store, for people.
    name: String,
    /// The time from which an answered request is slow; a request that is given up later was not answered.
    slow_after: Duration,
    /// Recoveries that follow each other faster are not logged.
    quiet: Duration,
    channels: [Channel; 2],
}

#[derive(Clone, Debug, Default)]
struct Channel {
    last_success: Option<Instant>,
    /// The failures since the last success.
    row: Option<Row>,
    /// The logged trouble that was not yet taken back.
    logged: Option<Logged>,
    recovered_at: Option<Instant>,
}

/// Failures without a success in between.
#[derive(Clone, Debug)]
struct Row {
    since: Instant,
    /// The time at which the last one of them was met.
    at: Instant,
    count: u64,
    error: String,
}

#[derive(Clone, Debug)]
struct Logged {
    severity: Severity,
    since: Instant,
    count: u64,
    /// The words that were logged last, and when.
    error: String,
    at: Instant,
}

/// The trouble with the store that an election is held in, as one node has met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTrouble {
    /// The store, without what could be secret.
    pub store: String,
    /// The failing operation: `read`, or `renewal` for all requests that take, keep or release the lead.
    pub operation: &'static str,
    /// The number of failed requests in a row, those that were not answered in time included.
    pub failures: u64,
    /// The time since which no such request has succeeded, on this machine's boot clock: of a renewal, since the last one that did; of a
    /// read, since the first one that failed.
    pub since: Instant,
    /// The time at which the last one of them failed. A member of a cluster by seniority asks no more once it hears the others again.
    pub last: Instant,
    /// The store's own words for the last one.
    pub error: String,
}

impl StoreTrouble {
    /// A sentence about it, as of `now`.
    #[must_use]
    pub fn text(&self, now: Instant) -> String {
        let Self { store, operation, failures, since, last, error } = self;
        let failed = if *failures == 1 { "failure" } else { "failures" };
        let silent = rounded(now.since(*since));
        let ago = rounded(now.since(*last));
        let last =
            if ago.as_millis() < TOLD_AFTER_MS { String::new() } else { format!(", the last one {ago} ago") };
        format!("no {operation} of {store} succeeded for {silent}: {error} ({failures} {failed}{last})")
    }
}

/// The machine gives a request up when the time for its answer has passed, as it counts.
fn slow_after(timers: &Timers) -> Duration {
    (timers.answer_timeout / 2).into()
}

/// Rounds to a tenth of a second, where that is short beside it.
fn rounded(time: Duration) -> Duration {
    let millis = time.as_millis();
    Duration::from_millis(if millis < 1_000 { millis } else { millis / 100 * 100 })
}

impl Default for StoreHealth {
    fn default() -> Self {
        let timers = Timers::new(Venue::Store, None);
        let state = State {
            name: "the store".to_owned(),
            slow_after: slow_after(&timers),
            quiet: timers.lease.into(),
            channels: Default::default(),
        };
        Self {
            requests: Histogram::default(),
            failed: Default::default(),
            slow: Default::default(),
            state: Mutex::new(state),
        }
    }
}

impl StoreHealth {
    /// Sets the name of the store, where it is known, and the time from which an answer is slow for these timers.
    pub(crate) fn describe(&self, name: Option<&str>, timers: &Timers) {
        let mut state = self.lock();
        if let Some(name) = name {
            name.clone_into(&mut state.name);
        }
        state.slow_after = slow_after(timers);
        state.quiet = timers.lease.into();
    }

    /// The number of requests that failed, or were not answered in time.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn failed(&self, operation: Operation) -> u64 {
        self.failed[operation as usize].load(Ordering::Relaxed)
    }

    /// The number of requests that were answered late.
    #[cfg(feature = "metrics")]
    pub(crate) fn slow(&self, operation: Operation) -> u64 {
        self.slow[operation as usize].load(Ordering::Relaxed)
    }

    /// The present troubles.
    pub(crate) fn troubles(&self) -> Vec<StoreTrouble> {
        let state = self.lock();
        Operation::ALL.into_iter().rev().filter_map(|operation| state.trouble(operation)).collect()
    }

    /// The reason why no renewal succeeded, or else the other failures. A renewal of unknown outcome is looked up, so that of a store that
    /// does not answer mostly looks fail: all count.
    pub(crate) fn loss(&self, now: Instant) -> Option<String> {
        let troubles = self.troubles();
        let failures = troubles.iter().map(|trouble| trouble.failures).sum();
        let worst = troubles.into_iter().next()?;
        Some(StoreTrouble { failures, ..worst }.text(now))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_success(&self, operation: Operation, took: Duration) {
        let now = clock::now();
        let mut state = self.lock();
        if took > state.slow_after {
            self.slow[operation as usize].fetch_add(1, Ordering::Relaxed);
        }
        let (quiet, name) = (state.quiet, state.name.clone());
        state.channels[operation as usize].last_success = Some(now);
        let ended = Operation::ALL.map(|other| {
            let channel = &mut state.channels[other as usize];
            // A node that does not lead writes nothing, so no write of it can succeed: the last failure is over when the store has
            // answered reads for long enough.
            let failed_last =
                channel.row.as_ref().map(|row| row.at).filter(|at| now >= at.after(quiet.times(OVER_AFTER)));
            let ended_at = if other == operation { Some(now) } else { failed_last };
            ended_at
                .and_then(|at| channel.end_row(at, now, quiet))
                .map(|(count, lasted)| (other.noun(), count, lasted))
        });
        drop(state);
        for (operation, failures, lasted) in ended.into_iter().flatten() {
            tracing::warn!(store = %name, operation, failures, %lasted, "requests to the store succeed again");
        }
    }

    fn on_failure(&self, operation: Operation, severity: Severity, error: &str) {
        self.failed[operation as usize].fetch_add(1, Ordering::Relaxed);
        let now = clock::now();
        let mut state = self.lock();
        let (name, quiet) = (state.name.clone(), state.quiet);
        let channel = &mut state.channels[operation as usize];
        let row = channel.row.get_or_insert(Row { since: now, at: now, count: 0, error: String::new() });
        row.count += 1;
        row.at = now;
        error.clone_into(&mut row.error);
        match &mut channel.logged {
            Some(logged) => {
                logged.count += 1;
                // Other words are news, though not without end.
                let is_news = error != logged.error && now >= logged.at.after(quiet);
                if severity <= logged.severity && !is_news {
                    return;
                }
                (logged.severity, logged.at) = (logged.severity.max(severity), now);
                error.clone_into(&mut logged.error);
            }
            None => {
                let error = error.to_owned();
                channel.logged = Some(Logged { severity, since: now, count: 1, error, at: now });
            }
        }
        drop(state);
        let operation = operation.noun();
        match severity {
            Severity::Passing => tracing::warn!(
                store = %name, operation, error,
                "a request to the store failed; further failures are counted, and logged when they end"
            ),
            Severity::Lasting => tracing::error!(
                store = %name, operation, error,
                "the store refuses, and no leader is elected over it here until that is mended"
            ),
        }
    }
}

impl Channel {
    /// Ends the row of failures, which ended at that time. Returns the failures that were logged and how long they have lasted, if the end
    /// is to be logged.
    fn end_row(&mut self, at: Instant, now: Instant, quiet: Duration) -> Option<(u64, Duration)> {
        self.row = None;
        // A store that fails and answers in turn is logged as failing, and not twice for each turn.
        if self.recovered_at.is_some_and(|at| now < at.after(quiet)) {
            return None;
        }
        let Logged { since, count, .. } = self.logged.take()?;
        self.recovered_at = Some(now);
        Some((count, rounded(at.since(since))))
    }
}

impl State {
    fn trouble(&self, operation: Operation) -> Option<StoreTrouble> {
        let channel = &self.channels[operation as usize];
        let row = channel.row.as_ref()?;
        Some(StoreTrouble {
            store: self.name.clone(),
            operation: operation.noun(),
            failures: row.count,
            // A leader renews all the time, and reads only when it has to.
            since: match operation {
                Operation::Renewal => channel.last_success.unwrap_or(row.since),
                Operation::Read => row.since,
            },
            last: row.at,
            error: row.error.clone(),
        })
    }
}

/// A request that is under way. If it is dropped without an outcome, it was given up.
pub(crate) struct StoreRequest {
    health: Arc<StoreHealth>,
    operation: Operation,
    began: Instant,
    attempts: Attempts,
    has_outcome: bool,
}

impl StoreRequest {
    pub(crate) fn begin(health: &Arc<StoreHealth>, operation: Operation) -> Self {
        let (began, attempts) = (clock::now(), Attempts::default());
        Self { health: Arc::clone(health), operation, began, attempts, has_outcome: false }
    }

    /// Waits for the answer, and notes it.
    pub(crate) async fn run<T, E: StoreError>(
        mut self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let result = self.attempts.clone().observe(request).await;
        self.has_outcome = true;
        let (health, took) = (&self.health, clock::now().since(self.began));
        health.requests.observe(took);
        match &result {
            Err(error) if !error.is_answer() => {
                let severity = if error.is_lasting() { Severity::Lasting } else { Severity::Passing };
                health.on_failure(self.operation, severity, &error.to_string());
            }
            Ok(_) | Err(_) => health.on_success(self.operation, took),
        }
        result
    }
}

impl Drop for StoreRequest {
    fn drop(&mut self) {
        let (health, waited) = (&self.health, clock::now().since(self.began));
        // A request that is given up earlier is not wanted any more.
        let slow_after = health.lock().slow_after;
        if self.has_outcome || waited < slow_after {
            return;
        }
        let met = self.attempts.last_error().map(|error| format!(" ({error})")).unwrap_or_default();
        health.on_failure(
            self.operation,
            Severity::Passing,
            &format!("no answer within {}{met}", slow_after.times(2)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "connection refused";

    fn refused() -> Result<(), ReadError> {
        Err(ReadError::Unavailable { why: REFUSED.to_owned() })
    }

    fn health(answer_timeout: std::time::Duration) -> Arc<StoreHealth> {
        let health = Arc::new(StoreHealth::default());
        let timers = Timers { answer_timeout, ..Timers::new(Venue::Store, None) };
        health.describe(Some("etcd://h/x"), &timers);
        health
    }

    async fn read(health: &Arc<StoreHealth>, answer: Result<(), ReadError>) {
        let _ = StoreRequest::begin(health, Operation::Read).run(async { answer }).await;
    }

    #[tokio::test]
    async fn failures_in_a_row_are_counted_with_the_stores_own_words_until_one_succeeds() {
        let health = health(std::time::Duration::from_secs(60));
        read(&health, Ok(())).await;
        assert_eq!(health.loss(clock::now()), None);
        for _ in 0..3 {
            read(&health, refused()).await;
        }
        let since = health.troubles().remove(0).since;
        let lost = health.loss(since.after(Duration::from_secs(4))).unwrap();
        let expected = "no read of etcd://h/x succeeded for 4s: the store is not available: connection refused (3 failures)";
        assert_eq!(lost, expected);
        let later = health.loss(health.troubles().remove(0).last.after(Duration::from_secs(30))).unwrap();
        assert!(later.ends_with("connection refused (3 failures, the last one 30s ago)"), "{later}");
        // The operation that keeps the lead comes first.
        let write = StoreRequest::begin(&health, Operation::Renewal);
        let unknown: Result<(), _> = Err(SetError::Unknown { why: "reset".to_owned() });
        let _ = write.run(async { unknown }).await;
        assert!(health.loss(clock::now()).unwrap().starts_with("no renewal of etcd://h/x"));
        let write = StoreRequest::begin(&health, Operation::Renewal);
        let rival: Result<(), _> = Err(SetError::Conflict);
        let _ = write.run(async { rival }).await;
        read(&health, Ok(())).await;
        assert_eq!(health.troubles(), Vec::new());
        assert_eq!((health.failed(Operation::Read), health.failed(Operation::Renewal)), (3, 1));
    }

    #[tokio::test]
    async fn a_write_that_failed_long_ago_is_no_trouble_of_a_store_that_answers_reads() {
        let health = health(std::time::Duration::from_secs(60));
        let write = StoreRequest::begin(&health, Operation::Renewal);
        let unknown: Result<(), _> = Err(SetError::Unknown { why: "reset".to_owned() });
        let _ = write.run(async { unknown }).await;
        read(&health, Ok(())).await;
        assert_eq!(health.troubles().len(), 1, "it may still fail");
        health.lock().quiet = Duration::ZERO;
        read(&health, refused()).await;
        assert_eq!(health.troubles().len(), 2, "no success");
        read(&health, Ok(())).await;
        assert_eq!(health.troubles(), Vec::new());
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_late_was_not_answered_and_one_that_is_given_up_early_is_nothing() {
        let endless = || std::future::pending::<Result<(), ReadError>>();
        let soon = health(std::time::Duration::from_secs(60));
        let request = StoreRequest::begin(&soon, Operation::Read).run(endless());
        assert!(tokio::time::timeout(std::time::Duration::ZERO, request).await.is_err());
        assert_eq!(soon.failed(Operation::Read), 0);
        let late = health(std::time::Duration::from_millis(2));
        let request = StoreRequest::begin(&late, Operation::Read).run(endless());
        assert!(tokio::time::timeout(std::time::Duration::from_millis(5), request).await.is_err());
        let trouble = late.troubles().remove(0);
        assert!(trouble.error.starts_with("no answer within "), "{trouble:?}");
    }

    #[tokio::test]
    async fn a_store_that_fails_and_answers_in_turn_is_logged_as_failing() {
        let health = health(std::time::Duration::from_secs(60));
        for _ in 0..5 {
            read(&health, refused()).await;
            read(&health, Ok(())).await;
        }
        let state = health.lock();
        let channel = &state.channels[Operation::Read as usize];
        // Logged, taken back, and logged once more.
        assert_eq!(channel.logged.as_ref().map(|logged| logged.count), Some(4));
    }
}
