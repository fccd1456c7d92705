//! The health of the store that an election is held in. Each request is counted, each change of state is logged once
//! with the store's own error, and the last error is kept for operators and for the reason of a lost lead.
//!
//! All requests to all stores pass through [`StoreRequest`], one value each. A request that the machine gives up, because the store did
//! not answer in time, counts as failed; errors that its client has met meanwhile are reported with it.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use primacy_core::{Duration, Instant};
use primacy_stores::{Attempts, ReadError, SessionError, SetError};

use crate::clock;
use crate::config::{Timers, Venue};
use crate::histogram::Histogram;

/// The purpose of a request. A store may answer reads and fail writes, so each purpose has its own state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A read of the record or the queue.
    Read,
    /// A write of the record, or a request for a session or its keep-alive: what takes, keeps or releases the lead.
    Renewal,
}

impl Operation {
    pub(crate) const ALL: [Self; 2] = [Self::Read, Self::Renewal];

    /// The operation's label in metrics.
    #[cfg(feature = "metrics")]
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Renewal => "write",
        }
    }

    /// The operation's name in messages.
    const fn noun(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Renewal => "renewal",
        }
    }
}

/// The number of leases without another failure after which an earlier failure counts as over, if the store answers other requests.
const OVER_AFTER: u64 = 3;

/// The age of the last failure, in milliseconds, from which a message states it: there may be no further requests.
const TOLD_AFTER_MS: u64 = 10_000;

/// The severity of a failed request, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// It may pass by itself.
    Passing,
    /// It lasts until an operator acts: a right is missing, or the content is no record.
    Lasting,
}

/// The classes of a store's errors.
pub(crate) trait StoreError: Display {
    /// Returns true if the store has answered as it should, with a conflict: another client was first.
    fn is_answer(&self) -> bool;
    /// Returns true if the failure lasts until an operator acts.
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

/// The health of one store, over all requests.
#[derive(Debug)]
pub(crate) struct StoreHealth {
    pub(crate) requests: Histogram,
    failed: [AtomicU64; 2],
    slow: [AtomicU64; 2],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The store's name in messages.
    name: String,
    /// The time after which an answer is slow. A request that was given up counts as unanswered.
    slow_after: Duration,
    /// The least time between two logged recoveries.
    quiet: Duration,
    channels: [Channel; 2],
}

#[derive(Clone, Debug, Default)]
struct Channel {
    last_success: Option<Instant>,
    /// The failures since the last success.
    row: Option<Row>,
    /// The logged failures whose end was not logged yet.
    logged: Option<Logged>,
    recovered_at: Option<Instant>,
}

/// Consecutive failures without a success.
#[derive(Clone, Debug)]
struct Row {
    since: Instant,
    /// The time of the last failure.
    at: Instant,
    count: u64,
    error: String,
}

#[derive(Clone, Debug)]
struct Logged {
    severity: Severity,
    since: Instant,
    count: u64,
    /// The error that was logged last, and when.
    error: String,
    at: Instant,
}

/// The present failures of the store that an election is held in, as seen by one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTrouble {
    /// The store, without secrets.
    pub store: String,
    /// The failing operation: `read`, or `renewal` for all requests that take, keep or release the lead.
    pub operation: &'static str,
    /// The number of consecutive failed requests, including those without an answer in time.
    pub failures: u64,
    /// The time since which no such request has succeeded, on this machine's boot clock: for a renewal the last success, for a read the
    /// first failure.
    pub since: Instant,
    /// The time of the last failure. A member of a cluster by seniority sends no more requests once it hears the others again.
    pub last: Instant,
    /// The store's own error for the last one.
    pub error: String,
}

impl StoreTrouble {
    /// Describes it in a sentence, as of `now`.
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

/// Half of the time after which the machine gives a request up.
fn slow_after(timers: &Timers) -> Duration {
    (timers.answer_timeout / 2).into()
}

/// Rounds a time of a second or more to a tenth of a second.
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
    /// Sets the store's name, if known, and the limits for these timers.
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

    /// The present failures, renewals first.
    pub(crate) fn troubles(&self) -> Vec<StoreTrouble> {
        let state = self.lock();
        Operation::ALL.into_iter().rev().filter_map(|operation| state.trouble(operation)).collect()
    }

    /// The failures behind a lost lead: those of renewals if there are any. A renewal with an unknown outcome is followed by reads, so
    /// with a silent store mostly reads fail: all are counted.
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
            // A node that does not lead writes nothing, so none of its writes can succeed: its last failure is over when the store
            // has answered reads for long enough.
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
                // Another error is logged too, at a limited rate.
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
    /// Ends the row of failures, as of `at`. Returns the number and the duration of the logged failures, if the end is to be logged.
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

/// A request in progress. If it is dropped without an outcome, it was given up.
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

    /// Waits for the answer, and records it.
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
        // A request that was given up early is not a failure: its answer was no longer needed.
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
        // Renewals come first.
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
        // Logged as failing, as recovered, and as failing again.
        assert_eq!(channel.logged.as_ref().map(|logged| logged.count), Some(4));
    }
}
